// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// dialTimeout and requestTimeout are how long a broker may take to accept a connection, and to answer a request.
	dialTimeout, requestTimeout = time.Second, 3 * time.Second
	// minSilence is how long a read must have waited in vain until the broker counts as silent: one that is cut short says nothing.
	minSilence = 2 * time.Second
	// silenceHold is how long nobody tries to connect to a silent broker again.
	silenceHold = 5 * time.Second
	// forgetTimeout is how long it may take to make a client forget what it knows of a silent broker.
	forgetTimeout = 300 * time.Millisecond
)

// unknownBroker stands for the id of a broker that is not known.
const unknownBroker int32 = -1

// silence is the error of a question that was not answered in time.
type silence struct{ broker int32 }

func (s silence) Error() string {
	if s.broker < 0 {
		return "the brokers do not answer"
	}
	return fmt.Sprintf("broker %d does not answer", s.broker)
}

// unanswered says of an error that it is a broker's silence, if it is. Other errors stay what they are.
func unanswered(broker int32, err error) error {
	var timeout net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return silence{broker}
	}
	return err
}

// forget makes the client forget which groups a silent broker coordinates: another one may have taken them over. It does so where it cannot connect, which is at once here.
func forget(ctx context.Context, kafka *kgo.Client, broker int32) {
	ctx, cancel := context.WithTimeout(ctx, forgetTimeout)
	defer cancel()
	_, _ = kafka.Broker(int(broker)).RetriableRequest(ctx, kmsg.NewPtrApiVersionsRequest())
}

// silences knows which addresses of a cluster's brokers do not answer. Much of what a client asks any broker can answer, and it asks them in turn: it would wait for each that is silent, time
// and again, if a connection to it did not fail at once.
type silences struct {
	mu sync.Mutex
	// until is, of the addresses that are silent, when to try again.
	until map[string]time.Time
}

// dial connects to an address, unless it is silent.
func (s *silences) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if s.holds(address) {
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
	}
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address)
	if err != nil {
		if errors.Is(unanswered(unknownBroker, err), silence{unknownBroker}) && ctx.Err() == nil {
			s.note(address, true)
		}
		return nil, err
	}
	return &listenedConn{Conn: conn, silences: s, address: address}, nil
}

// holds says whether an address is silent. When it is time to try again it is not, for one that asks.
func (s *silences) holds(address string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, silent := s.until[address]
	if !silent {
		return false
	}
	now := time.Now()
	if now.Before(until) {
		return true
	}
	s.until[address] = now.Add(silenceHold)
	return false
}

// note takes note of whether an address is silent.
func (s *silences) note(address string, silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !silent {
		delete(s.until, address)
		return
	}
	if s.until == nil {
		s.until = map[string]time.Time{}
	}
	s.until[address] = time.Now().Add(silenceHold)
}

// listenedConn is a connection of which it is noted whether its other end answers.
type listenedConn struct {
	net.Conn
	silences *silences
	address  string
	// heard says that something has come. It belongs to the one that reads.
	heard bool
}

func (c *listenedConn) Read(p []byte) (int, error) {
	began := time.Now()
	n, err := c.Conn.Read(p)
	switch {
	case n > 0 && !c.heard:
		c.heard = true
		c.silences.note(c.address, false)
	case errors.Is(err, os.ErrDeadlineExceeded) && time.Since(began) >= minSilence:
		c.silences.note(c.address, true)
	}
	return n, err
}
