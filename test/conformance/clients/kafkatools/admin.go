// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/ringmaster-dev/ringmaster/test/conformance/check"
)

func (p *program) groups() {
	name := p.Name("commit")
	p.Run(check.GroupNeverSeen, func(ctx context.Context) error {
		_, err := p.tool(ctx, "", consumerGroups, "--describe", "--offsets", "--group", p.Name("never"))
		if err != nil && !strings.Contains(err.Error(), "does not exist") {
			return err
		}
		return nil
	})
	p.Run(check.GroupCommit, func(ctx context.Context) error {
		if err := p.topic(ctx, name, 1); err != nil {
			return err
		}
		want, more := check.Text(0), check.Text(0)[:check.More]
		if err := p.send(ctx, name, want); err != nil {
			return err
		}
		got, err := p.read(ctx, name, len(want), "--from-beginning", "--group", name)
		if err == nil {
			err = errors.Join(check.Same(want, got), p.send(ctx, name, more))
		}
		if err != nil {
			return err
		}
		if got, err = p.read(ctx, name, len(more), "--group", name); err != nil {
			return err
		}
		return check.Same(check.After(more), got)
	})
	p.Run(check.GroupRebalance, p.rebalance)
	p.Run(check.GroupDescribe, func(ctx context.Context) error {
		return errors.Join(
			p.wants(ctx, name+`\s.*\sEmpty\s`, consumerGroups, "--describe", "--state", "--group", name),
			p.wants(ctx, `(?m)^`+name+`$`, consumerGroups, "--list"))
	})
	p.Run(check.Lag, func(ctx context.Context) error {
		if err := p.send(ctx, name, check.Text(0)[:check.More]); err != nil {
			return err
		}
		end := len(check.Text(0)) + 2*check.More
		return p.wants(ctx, fmt.Sprintf(`%s\s+%s\s+0\s+(-\s+)?%d\s+(-\s+)?%d\s+%d\s`, name, name, end-check.More, end, check.More), consumerGroups, "--describe", "--group", name)
	})
	p.Run(check.ToolReset, func(ctx context.Context) error {
		_, err := p.tool(ctx, "", consumerGroups, "--reset-offsets", "--to-offset", "7", "--topic", name, "--group", name, "--execute")
		if err != nil {
			return err
		}
		return p.wants(ctx, name+`\s+0\s+(-\s+)?7\s`, consumerGroups, "--describe", "--group", name)
	})
	p.Run(check.GroupDelete, func(ctx context.Context) error {
		if _, err := p.tool(ctx, "", consumerGroups, "--delete", "--group", name); err != nil {
			return err
		}
		out, err := p.tool(ctx, "", consumerGroups, "--list")
		if err == nil && strings.Contains(out, name) {
			err = errors.New("it is still listed")
		}
		return err
	})
}

func (p *program) topics() {
	p.Run(check.GroupAdminister, p.administer)
	topic := p.Name("topic")
	p.Run(check.TopicCreate, func(ctx context.Context) error { return p.topic(ctx, topic, 2) })
	p.Run(check.TopicCreateAgain, func(ctx context.Context) error { return check.Exists(p.topic(ctx, topic, 2)) })
	p.Run(check.TopicDescribe, func(ctx context.Context) error {
		return check.Await(ctx, func() error { return p.partitions(ctx, topic, 2) })
	})
	p.Run(check.PartitionsAdd, func(ctx context.Context) error {
		if _, err := p.tool(ctx, "", kafkaTopics, "--alter", "--topic", topic, "--partitions", "5"); err != nil {
			return err
		}
		return check.Await(ctx, func() error { return p.partitions(ctx, topic, 5) })
	})
	configs := []string{"--entity-type", "topics", "--entity-name", topic}
	p.Run(check.ConfigsDescribe, func(ctx context.Context) error {
		return p.wants(ctx, `retention\.ms=604800000\s`, kafkaConfigs, append(configs, "--describe", "--all")...)
	})
	p.Run(check.ConfigsAlter, func(ctx context.Context) error {
		if _, err := p.tool(ctx, "", kafkaConfigs, append(configs, "--alter", "--add-config", "retention.ms=3600000")...); err != nil {
			return err
		}
		err := check.Await(ctx, func() error {
			return p.wants(ctx, `retention\.ms=3600000\s`, kafkaConfigs, append(configs, "--describe")...)
		})
		if err != nil {
			return err
		}
		if _, err := p.tool(ctx, "", kafkaConfigs, append(configs, "--alter", "--delete-config", "retention.ms")...); err != nil {
			return err
		}
		return check.Await(ctx, func() error {
			return p.wants(ctx, `retention\.ms=604800000\s`, kafkaConfigs, append(configs, "--describe", "--all")...)
		})
	})
	p.Run(check.RecordsDelete, func(ctx context.Context) error {
		order := p.Name("order")
		file, err := os.CreateTemp("", "delete-records-*.json")
		if err != nil {
			return err
		}
		defer os.Remove(file.Name())
		fmt.Fprintf(file, `{"version": 1, "partitions": [{"topic": %q, "partition": 0, "offset": 40}]}`, order)
		if err := file.Close(); err != nil {
			return err
		}
		return errors.Join(
			p.wants(ctx, `low_watermark: 40\s`, deleteRecords, "--offset-json-file", file.Name()),
			p.wants(ctx, `(?m)^`+order+`:0:40$`, getOffsets, "--topic", order, "--time", "earliest"))
	})
	p.Run(check.TopicDelete, func(ctx context.Context) error {
		if _, err := p.tool(ctx, "", kafkaTopics, "--delete", "--topic", topic); err != nil {
			return err
		}
		return check.Await(ctx, func() error {
			out, err := p.tool(ctx, "", kafkaTopics, "--list")
			if err == nil && regexp.MustCompile(`(?m)^`+topic+`$`).MatchString(out) {
				err = errors.New("it is still listed")
			}
			return err
		})
	})
}

// partitions says whether a topic has n partitions, each with a leader.
func (p *program) partitions(ctx context.Context, topic string, n int) error {
	out, err := p.tool(ctx, "", kafkaTopics, "--describe", "--topic", topic)
	if err != nil {
		return err
	}
	if got := len(regexp.MustCompile(`Partition: \d+\s+Leader: [1-9]`).FindAllString(out, -1)); got != n {
		return fmt.Errorf("%d partitions with a leader, want %d: %s", got, n, out)
	}
	return nil
}

// tools runs what no client's check is like.
func (p *program) tools() {
	const records = 20000
	topic := p.Name("perf")
	p.Run(check.ToolProducerPerf, func(ctx context.Context) error {
		if err := p.topic(ctx, topic, 3); err != nil {
			return err
		}
		args := []string{"--topic", topic, "--num-records", strconv.Itoa(records), "--record-size", "100", "--throughput", "-1", "--command-property", "acks=all"}
		return p.wants(ctx, `(?m)^20000 records sent`, producerPerformance, args...)
	})
	p.Run(check.ToolConsumerPerf, func(ctx context.Context) error {
		return p.wants(ctx, `, 20000, `, consumerPerformance, "--topic", topic, "--num-records", strconv.Itoa(records), "--timeout", "20000")
	})
	p.Run(check.ToolOffsets, func(ctx context.Context) error {
		out, err := p.tool(ctx, "", getOffsets, "--topic", topic)
		if err != nil {
			return err
		}
		sum := 0
		for line := range strings.Lines(out) {
			n, err := strconv.Atoi(strings.TrimSpace(line[strings.LastIndexByte(line, ':')+1:]))
			if err != nil {
				return fmt.Errorf("kafka-get-offsets printed %q: %w", line, err)
			}
			sum += n
		}
		if sum != records {
			return fmt.Errorf("the ends add up to %d, want %d", sum, records)
		}
		return nil
	})
	p.Run(check.ToolLogDirs, func(ctx context.Context) error {
		return p.wants(ctx, `"partition":"`+topic+`-\d","size":[1-9]`, logDirs, "--describe", "--topic-list", topic)
	})
	p.Run(check.ToolAPIVersions, func(ctx context.Context) error { return p.wants(ctx, `Produce\(0\): 0 to \d+`, apiVersions) })
}
