// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// answer is what becomes of a request whose turn has come.
type answer struct {
	req  *request
	resp kmsg.Response
	// started is when its turn came.
	started time.Time
}

// ready says whether the response can be written without waiting.
func (a *answer) ready() bool {
	if a.req.stored == nil {
		return true
	}
	select {
	case <-a.req.stored:
		return true
	default:
		return false
	}
}

// work handles requests in order until there are none, and writes the responses in the same order. A produce whose records are written, but not
// yet stored, does not hold up the next request, so that many produces of a connection share a sync. ctx is for requests that are to be done
// whatever becomes of the connection, waiting for those that wait.
func (c *conn) work(ctx, waiting context.Context) error {
	var queue []*answer // those that cannot be written yet, the oldest first
	defer func() {
		for _, a := range queue {
			<-a.req.stored // it uses the request
			c.letGo(a.req)
		}
	}()
	frames := c.frames
	for frames != nil || len(queue) > 0 {
		var stored <-chan struct{}
		if len(queue) > 0 {
			stored = queue[0].req.stored
		}
		in := frames
		if len(queue) == maxPipelined {
			in = nil
		}
		select {
		case req, ok := <-in:
			if !ok {
				frames = nil
				continue
			}
			if c.s.apis[req.key].waits {
				// It may wait for longer than what came before it.
				if err := c.finishAll(ctx, &queue); err != nil {
					c.letGo(req)
					return err
				}
			}
			a, err := c.handle(ctx, waiting, req)
			switch {
			case err != nil:
				c.letGo(req)
				return errors.Join(c.finishAll(ctx, &queue), err)
			case len(queue) > 0 || !a.ready():
				queue = append(queue, a)
				continue
			}
			if err := c.finish(ctx, a); err != nil {
				return err
			}
		case <-stored:
			for len(queue) > 0 && queue[0].ready() {
				a := queue[0]
				queue = queue[1:]
				if err := c.finish(ctx, a); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// finishAll waits for all answers and writes them.
func (c *conn) finishAll(ctx context.Context, queue *[]*answer) error {
	for len(*queue) > 0 {
		a := (*queue)[0]
		*queue = (*queue)[1:]
		if err := c.finish(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// finish finishes an answer when it is stored, and writes its response.
func (c *conn) finish(ctx context.Context, a *answer) (err error) {
	defer c.letGo(a.req)
	defer func() {
		if p := recover(); p != nil {
			err = c.failed(a.req, p)
		}
	}()
	if a.req.stored != nil {
		<-a.req.stored
		a.req.finish(ctx)
	}
	c.s.metrics.observe(a.req, time.Since(a.started), a.resp)
	if a.req.hangUp != nil || a.resp == nil {
		return a.req.hangUp
	}
	return c.respond(a.req, a.resp)
}

// letGo gives back what a request and its response held.
func (c *conn) letGo(req *request) {
	if req.done != nil {
		req.done()
	}
	req.held.release()
	c.s.fetched.give(req.fetched)
	c.budget.give(req.size)
	if req.key == keyProduce {
		keepFrame(req.frame)
	}
}

// failed logs a panic in what handles a request. What the request had begun may go on: its memory is not used again.
func (c *conn) failed(req *request, p any) error {
	req.frame = nil
	c.s.metrics.panics.Inc()
	c.s.log.Error("a request's handler failed", "api", kmsg.NameForKey(req.key), "version", req.version,
		"client", c.nc.RemoteAddr().String(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	return fmt.Errorf("the handler of %s v%d failed", kmsg.NameForKey(req.key), req.version)
}

// handle calls the handler of a request. A panic in it ends the connection alone.
func (c *conn) handle(ctx, waiting context.Context, req *request) (a *answer, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = c.failed(req, p)
		}
	}()
	if err := c.decode(req); err != nil {
		c.s.metrics.badFrames.Inc()
		return nil, err
	}
	a = &answer{req: req, started: time.Now()}
	api := c.s.apis[req.key]
	if api.waits {
		ctx = waiting
	}
	a.resp = api.handle(c.s, ctx, req)
	return a, nil
}

// respond writes a response.
func (c *conn) respond(req *request, resp kmsg.Response) error {
	o := newOutgoing(req.correlationID, resp)
	defer o.release()
	_ = c.nc.SetWriteDeadline(time.Now().Add(writeTimeout))
	n, err := o.writeTo(c.nc)
	c.s.metrics.bytesOut.Add(float64(n))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the client did not take a response within %s", writeTimeout)
	case errors.Is(err, storage.ErrDamaged):
		return fmt.Errorf("read records: %w", err)
	default: // the client has left; what it sent before is still done
		c.close()
		return nil
	}
}
