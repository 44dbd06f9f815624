// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"

	"github.com/ringmaster-dev/ringmaster/test/conformance/check"
)

// administer describes a KIP-848 group while a console consumer is in it, lists it by its type, and resets its offsets and deletes it without one.
func (p *program) administer(ctx context.Context) error {
	name := p.Name("administer")
	if err := p.topic(ctx, name, check.Partitions); err != nil {
		return err
	}
	args := p.java(consoleConsumer, "--topic", name, "--group", name, "--command-property", "group.protocol=consumer")
	consumer := exec.CommandContext(ctx, args[0], args[1:]...)
	if err := consumer.Start(); err != nil {
		return fmt.Errorf("start a console consumer: %w", err)
	}
	err := check.Await(ctx, func() error {
		return p.wants(ctx, name+`\s.*\suniform\s+Stable\s+1\s`, consumerGroups, "--describe", "--state", "--group", name)
	})
	if err == nil {
		err = p.used(ctx, name)
	}
	_ = consumer.Process.Signal(syscall.SIGTERM) // it may have ended
	_ = consumer.Wait()                          // it ends with the signal's number
	if err != nil {
		return err
	}
	_, err = p.tool(ctx, "", consumerGroups, "--reset-offsets", "--to-offset", "0", "--topic", name, "--group", name, "--execute")
	if err == nil {
		err = p.wants(ctx, name+`\s+2\s+(-\s+)?0\s`, consumerGroups, "--describe", "--group", name)
	}
	if err == nil {
		_, err = p.tool(ctx, "", consumerGroups, "--delete", "--group", name)
	}
	return err
}

// used is what administer asks of the group while it has a member.
func (p *program) used(ctx context.Context, name string) error {
	_, err := p.tool(ctx, "", consumerGroups, "--delete", "--group", name)
	if err != nil && !strings.Contains(err.Error(), "not empty") {
		return fmt.Errorf("delete it with a member: %w", err)
	}
	listed, err := p.tool(ctx, "", consumerGroups, "--list", "--type", "classic")
	if err == nil && strings.Contains(listed, name) {
		err = errors.New("it is listed as classic")
	}
	return errors.Join(err,
		p.wants(ctx, `(?m)^`+name+`\s+Consumer\s`, consumerGroups, "--list", "--type", "consumer"),
		p.wants(ctx, name+`\s.*\s3\s`, consumerGroups, "--describe", "--members", "--group", name),
		p.wants(ctx, name+`\s.*`+name+`:0,1,2`, consumerGroups, "--describe", "--members", "--verbose", "--group", name))
}
