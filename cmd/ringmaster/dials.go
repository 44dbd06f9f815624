// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// dials remembers which brokers could not be connected to: a request that waited for one of them ends with nothing but a timeout.
type dials struct {
	mu sync.Mutex
	// failed holds the last error of each broker that could not be connected to since it last was.
	failed map[string]error
	// last is the one of them that failed last.
	last string
	// warn, if set, is called when a broker that could be connected to no longer can.
	warn func(address string, err error)
}

var _ kgo.HookBrokerConnect = (*dials)(nil)

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (d *dials) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	address := net.JoinHostPort(meta.Host, strconv.Itoa(int(meta.Port)))
	if errors.Is(err, context.Canceled) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		delete(d.failed, address)
		return
	}
	_, known := d.failed[address]
	if d.failed == nil {
		d.failed = map[string]error{}
	}
	d.failed[address], d.last = err, address
	if !known && d.warn != nil {
		d.warn(address, err)
	}
}

// setWarn sets warn.
func (d *dials) setWarn(warn func(address string, err error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.warn = warn
}

// failure is the broker that could not be connected to last, and cannot still.
func (d *dials) failure() (address string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last, d.failed[d.last]
}
