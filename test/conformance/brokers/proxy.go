// SPDX-License-Identifier: Apache-2.0

package brokers

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// Proxy passes connections on to a broker and counts them.
type Proxy struct {
	ln net.Listener
	// tap, if not nil, is told what is passed on.
	tap   *Tap
	count atomic.Int64
	wg    sync.WaitGroup
}

// newProxy listens on a free port; connections wait until Start.
func newProxy() (*Proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the proxy: %w", err)
	}
	return &Proxy{ln: ln}, nil
}

// Addr is where it listens, HOST:PORT.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

func (p *Proxy) port() int32 {
	address, _ := p.ln.Addr().(*net.TCPAddr)
	return int32(address.Port)
}

// Count is how many connections there have been.
func (p *Proxy) Count() int64 { return p.count.Load() }

// Start passes connections on to an address.
func (p *Proxy) Start(to string) {
	p.wg.Go(func() {
		for {
			client, err := p.ln.Accept()
			if err != nil {
				return // closed
			}
			p.count.Add(1)
			go p.pass(client, to)
		}
	})
}

// Close takes no more connections; those that are there end with the client or the broker.
func (p *Proxy) Close() error {
	err := p.ln.Close()
	p.wg.Wait()
	return err
}

// pass copies both ways until either side ends.
func (p *Proxy) pass(client net.Conn, to string) {
	defer client.Close()
	broker, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer broker.Close()
	var there, back io.Reader = client, broker
	if p.tap != nil {
		requests, responses := p.tap.connection()
		there, back = io.TeeReader(client, requests), io.TeeReader(broker, responses)
	}
	go func() {
		_, _ = io.Copy(broker, there)
		_ = broker.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(client, back)
}
