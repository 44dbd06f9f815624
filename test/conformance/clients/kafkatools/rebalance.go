// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"sync/atomic"
	"syscall"

	"github.com/ringmaster-dev/ringmaster/test/conformance/check"
)

// rebalance has two console consumers read as members of a group; kafka-consumer-groups says which of them has how many partitions.
func (p *program) rebalance(ctx context.Context) error {
	name := p.Name("rebalance")
	if err := p.topic(ctx, name, check.GroupPartitions); err != nil {
		return err
	}
	var records []check.Record
	for i := range check.GroupRecords {
		records = append(records, check.Record{Key: []byte(strconv.Itoa(i)), Value: []byte("value")})
	}
	var members atomic.Int32
	err := check.Rebalance(ctx, func() error { return p.send(ctx, name, records) },
		func(reading context.Context, ledger *check.Ledger, mine func(int)) error {
			return p.member(ctx, reading, fmt.Sprintf("member-%d", members.Add(1)), ledger, mine)
		})
	if err != nil {
		return err
	}
	return p.wants(ctx, name+`\s+\d+\s+(-\s+)?(\d+\s+){1,3}0\s`, consumerGroups, "--describe", "--group", name)
}

// member runs a console consumer until the context reading ends. It commits when it loses partitions and when it ends.
func (p *program) member(ctx, reading context.Context, id string, ledger *check.Ledger, mine func(int)) error {
	name := p.Name("rebalance")
	args := p.java(consoleConsumer, "--topic", name, "--group", name, "--command-property", "auto.offset.reset=earliest", "--command-property", "client.id="+id,
		"--command-property", "heartbeat.interval.ms=300")
	for _, property := range []string{"print.partition=true", "print.offset=true", "print.value=false"} {
		args = append(args, "--formatter-property", property)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	go func() {
		<-reading.Done()
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	}()
	go p.watch(reading, id, mine)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var partition int32
		var offset int64
		if _, err := fmt.Sscanf(lines.Text(), "Partition:%d\tOffset:%d", &partition, &offset); err != nil {
			return fmt.Errorf("the consumer printed %q: %w", lines.Text(), err)
		}
		ledger.Read(partition, offset)
	}
	if err := cmd.Wait(); err != nil && reading.Err() == nil {
		return fmt.Errorf("the consumer: %w", err)
	}
	return nil // it ends with the signal's number
}

// watch tells how many partitions a member has.
func (p *program) watch(ctx context.Context, id string, mine func(int)) {
	has := regexp.MustCompile(id + `\s+(\d+)`)
	for ctx.Err() == nil {
		out, err := p.tool(ctx, "", consumerGroups, "--describe", "--members", "--group", p.Name("rebalance"))
		if m := has.FindStringSubmatch(out); err == nil && m != nil {
			if n, err := strconv.Atoi(m[1]); err == nil {
				mine(n)
			}
		}
	}
}
