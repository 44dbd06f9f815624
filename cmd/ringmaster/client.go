// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// client is a connection to brokers and the flags it was made from.
type client struct {
	*kgo.Client
	adm     *kadm.Client
	dials   *dials
	seeds   []string
	timeout time.Duration
}

// connect connects to the brokers that the flags name, and returns when one has answered.
func (c *clientFlags) connect(cmd *cobra.Command, opts ...kgo.Opt) (*client, error) {
	seeds, err := c.seeds(cmd)
	if err != nil {
		return nil, err
	}
	d := &dials{}
	opts = append([]kgo.Opt{
		kgo.SeedBrokers(seeds...),
		kgo.WithHooks(d),
		kgo.ClientID("ringmaster"),
		kgo.DialTimeout(c.timeout),
		kgo.RequestTimeoutOverhead(max(c.timeout, time.Second)),
		kgo.RetryTimeout(c.timeout),
	}, opts...)
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	k := &client{Client: cl, adm: kadm.NewClient(cl), dials: d, seeds: seeds, timeout: c.timeout}
	k.adm.SetTimeoutMillis(int32(min(c.timeout, time.Hour).Milliseconds()))
	ctx, cancel := k.limit(cmd.Context())
	defer cancel()
	if err := cl.Ping(ctx); err != nil {
		cl.CloseAllowingRebalance()
		return nil, unreachable(seeds, reason(err, c.timeout))
	}
	return k, nil
}

// limit bounds a context by --timeout.
func (c *client) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.timeout)
}

// dial connects, for a command that asks the brokers something and ends: ctx is bounded by --timeout, done ends both.
func (c *clientFlags) dial(cmd *cobra.Command) (ctx context.Context, k *client, done func(), err error) {
	k, err = c.connect(cmd)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := k.limit(cmd.Context())
	return ctx, k, func() { cancel(); k.Close() }, nil
}

// unreachable is the error of brokers that cannot be reached.
func unreachable(seeds []string, why string) error {
	return fmt.Errorf("cannot reach a broker at %s: %s; start one with `ringmaster broker` or give --%s",
		strings.Join(seeds, ", "), why, flagBootstrap)
}

// reason says in a few words why brokers cannot be reached.
func reason(err error, timeout time.Duration) string {
	var dns *net.DNSError
	var errno syscall.Errno
	switch {
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case errors.As(err, &dns):
		if dns.IsNotFound {
			return fmt.Sprintf("there is no host %q", dns.Name)
		}
		return fmt.Sprintf("the host name %q cannot be looked up", dns.Name)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Sprintf("no answer within %s", timeout)
	case errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, io.EOF):
		return "it closed the connection (is it a Kafka broker?)"
	}
	return err.Error()
}

// explain turns an error of a request into what a user can act on. what is what was being done. msg is the broker's own
// message, if it sent one.
func (c *client) explain(what string, err error, msg string) error {
	var op *net.OpError
	var dns *net.DNSError
	var ke *kerr.Error
	late := errors.Is(err, context.DeadlineExceeded)
	dial := errors.As(err, &op) && op.Op == "dial" || errors.As(err, &dns)
	if broker, dialErr := c.dials.failure(); dialErr != nil && (late || dial) {
		if slices.Contains(c.seeds, broker) {
			return fmt.Errorf("%s: %w", what, unreachable([]string{broker}, reason(dialErr, c.timeout)))
		}
		return fmt.Errorf("%s: %s answers, but names the broker %s, which cannot be reached: %s; start that broker with an --advertise that clients reach",
			what, strings.Join(c.seeds, ", "), broker, reason(dialErr, c.timeout))
	}
	switch {
	case err == nil:
		return nil
	case late:
		return fmt.Errorf("%s: no answer within %s; try again, or give a longer --%s", what, c.timeout, flagTimeout)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: interrupted", what)
	case errors.As(err, &ke):
		return fmt.Errorf("%s: %w", what, brokerError{ke, msg})
	}
	return fmt.Errorf("%s: %s", what, reason(err, c.timeout))
}

// brokerError is an error that a broker answered with: its own message where it sent one, else Kafka's description.
type brokerError struct {
	code *kerr.Error
	msg  string
}

func (e brokerError) Error() string {
	switch {
	case e.msg != "":
		return e.msg
	case errors.Is(e.code, kerr.InvalidTopicException):
		return "invalid topic name: use 1 to 249 letters, digits, '.', '_' and '-', and not '.' or '..'"
	case errors.Is(e.code, kerr.InvalidGroupID):
		return "invalid group id: use 1 to 255 bytes"
	}
	return strings.TrimSuffix(lowerFirst(e.code.Description), ".") + " (" + e.code.Message + ")"
}

func (e brokerError) Unwrap() error { return e.code }

func lowerFirst(s string) string {
	if len(s) > 1 && s[1] >= 'a' && s[1] <= 'z' || len(s) > 1 && s[1] == ' ' {
		return strings.ToLower(s[:1]) + s[1:]
	}
	return s
}

func errNoTopic(topic string) error {
	return fmt.Errorf("topic %q does not exist; create it with `ringmaster topic create %s`, or see `ringmaster topic list`", topic, topic)
}
