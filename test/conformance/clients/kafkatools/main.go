// SPDX-License-Identifier: Apache-2.0

// Command kafkatools checks a broker with Apache Kafka's own command-line tools: what their shell scripts run, from their jars.
package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/ringmaster-dev/ringmaster/test/conformance/check"
)

// The tools, by the names of their scripts.
const (
	kafkaTopics         = "org.apache.kafka.tools.TopicCommand"
	kafkaConfigs        = "org.apache.kafka.tools.ConfigCommand"
	consoleProducer     = "org.apache.kafka.tools.ConsoleProducer"
	consoleConsumer     = "org.apache.kafka.tools.consumer.ConsoleConsumer"
	consumerGroups      = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
	producerPerformance = "org.apache.kafka.tools.ProducerPerformance"
	consumerPerformance = "org.apache.kafka.tools.ConsumerPerformance"
	getOffsets          = "org.apache.kafka.tools.GetOffsetShell"
	deleteRecords       = "org.apache.kafka.tools.DeleteRecordsCommand"
	logDirs             = "org.apache.kafka.tools.LogDirsCommand"
	apiVersions         = "org.apache.kafka.tools.BrokerApiVersionsCommand"
)

// null is how the console tools write null.
const null = "<null>"

// program is the checks and what they share.
type program struct {
	*check.Program
	classpath string
}

func main() {
	classpath := os.Getenv("KAFKA_CLASSPATH")
	if classpath == "" {
		fmt.Fprintln(os.Stderr, "kafkatools: KAFKA_CLASSPATH must name the jars")
		os.Exit(2)
	}
	out, err := check.Run(context.Background(), "", "java", "-cp", classpath, kafkaTopics, "--version")
	if err != nil {
		fmt.Fprintln(os.Stderr, "kafkatools:", err)
		os.Exit(1)
	}
	version, _, _ := strings.Cut(strings.TrimSpace(out), " ")
	p := &program{Program: check.Start("Apache Kafka's command-line tools", version), classpath: classpath}
	p.produce()
	p.groups()
	p.topics()
	p.tools()
}

// tool runs a tool.
func (p *program) tool(ctx context.Context, input, class string, args ...string) (string, error) {
	return check.Run(ctx, input, p.java(class, args...)...)
}

// java is a tool's command line. Tools have a short life, on few cores: no second compiler, no large heap.
func (p *program) java(class string, args ...string) []string {
	return append([]string{"java", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", p.classpath, class, "--bootstrap-server", p.Bootstrap}, args...)
}

// wants runs a tool and says whether its output has a match of the pattern.
func (p *program) wants(ctx context.Context, pattern, class string, args ...string) error {
	out, err := p.tool(ctx, "", class, args...)
	if err != nil {
		return err
	}
	if !regexp.MustCompile(pattern).MatchString(out) {
		return fmt.Errorf("want %q in %q", pattern, out)
	}
	return nil
}

// topic creates a topic.
func (p *program) topic(ctx context.Context, name string, partitions int) error {
	_, err := p.tool(ctx, "", kafkaTopics, "--create", "--topic", name, "--partitions", strconv.Itoa(partitions), "--replication-factor", "1")
	return err
}

// send writes records with the console producer.
func (p *program) send(ctx context.Context, topic string, records []check.Record, args ...string) error {
	var input strings.Builder
	for _, r := range records {
		fmt.Fprintf(&input, "n:1\t%s\t%s\n", orNull(r.Key), orNull(r.Value))
	}
	_, err := p.tool(ctx, input.String(), consoleProducer, append([]string{
		"--topic", topic, "--reader-property", "parse.headers=true", "--reader-property", "parse.key=true", "--reader-property", "null.marker=" + null,
	}, args...)...)
	return err
}

func orNull(b []byte) string {
	if b == nil {
		return null
	}
	return string(b)
}

// read reads n records with the console consumer.
func (p *program) read(ctx context.Context, topic string, n int, args ...string) ([]check.Record, error) {
	all := []string{"--topic", topic, "--max-messages", strconv.Itoa(n), "--timeout-ms", "20000"}
	for _, property := range []string{"print.partition=true", "print.offset=true", "print.headers=true", "print.key=true", "null.literal=" + null} {
		all = append(all, "--formatter-property", property)
	}
	out, err := p.tool(ctx, "", consoleConsumer, append(all, args...)...)
	if err != nil {
		return nil, err
	}
	var records []check.Record
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		var r check.Record
		if len(f) != 5 {
			return nil, fmt.Errorf("the consumer printed %q", line)
		}
		if _, err := fmt.Sscanf(f[0]+" "+f[1], "Partition:%d Offset:%d", &r.Partition, &r.Offset); err != nil {
			return nil, fmt.Errorf("the consumer printed %q: %w", line, err)
		}
		if key, value, ok := strings.Cut(f[2], ":"); ok {
			r.Headers = []check.Header{{Key: key, Value: []byte(value)}}
		}
		if f[3] != null {
			r.Key = []byte(f[3])
		}
		if f[4] != null {
			r.Value = []byte(f[4])
		}
		records = append(records, r)
	}
	return records, nil
}

func (p *program) roundTrip(name string, args ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		topic := p.Name(name)
		if err := p.topic(ctx, topic, 1); err != nil {
			return err
		}
		if err := p.send(ctx, topic, check.Text(0), args...); err != nil {
			return err
		}
		got, err := p.read(ctx, topic, len(check.Text(0)), "--from-beginning")
		if err != nil {
			return err
		}
		return check.Same(check.Text(0), got)
	}
}

func (p *program) produce() {
	for _, acks := range []string{"0", "1", "all"} {
		p.Run("produce acks="+acks, p.roundTrip("acks-"+acks, "--request-required-acks", acks, "--command-property", "enable.idempotence=false"))
	}
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		p.Run("compression "+codec, p.roundTrip(codec, "--compression-codec", codec))
	}
	p.Run(check.Idempotent, p.roundTrip("idempotent", "--command-property", "enable.idempotence=true"))
	p.Run(check.Order, p.roundTrip("order"))
	const from = 40
	p.Run(check.SeekOffset, func(ctx context.Context) error {
		want := check.Text(0)[from:]
		got, err := p.read(ctx, p.Name("order"), len(want), "--partition", "0", "--offset", strconv.Itoa(from))
		if err != nil {
			return err
		}
		return check.Same(want, got)
	})
	p.Run(check.SeekTime, func(ctx context.Context) error {
		return p.wants(ctx, `(?m)^`+p.Name("order")+`:0:0$`, getOffsets, "--topic", p.Name("order"), "--time", "0")
	})
	p.Run(check.LargeRecord, func(ctx context.Context) error {
		topic := p.Name("large")
		want := []check.Record{{Value: []byte(strings.Repeat("ring", check.LargeBytes/4)), Headers: check.Text(0)[0].Headers}}
		err := p.topic(ctx, topic, 1)
		if err == nil {
			err = p.send(ctx, topic, want, "--command-property", "max.request.size=1048588")
		}
		if err != nil {
			return err
		}
		got, err := p.read(ctx, topic, 1, "--from-beginning")
		if err != nil {
			return err
		}
		return check.Same(want, got)
	})
	p.Run(check.AutoCreate, func(ctx context.Context) error {
		if err := p.send(ctx, p.Name("auto"), check.Text(0)); err != nil {
			return err
		}
		got, err := p.read(ctx, p.Name("auto"), len(check.Text(0)), "--from-beginning")
		if err != nil {
			return err
		}
		return check.Same(check.Text(0), got)
	})
	p.Run(check.Transactional, func(ctx context.Context) error {
		_, err := p.tool(ctx, "", producerPerformance, "--topic", p.Name("order"), "--num-records", "10", "--record-size", "10", "--throughput", "-1",
			"--transactional-id", p.Name("txn"))
		return check.Refused(err)
	})
	p.Run(check.UnknownTopic, func(ctx context.Context) error {
		_, err := p.tool(ctx, "", kafkaTopics, "--describe", "--topic", p.Name("nowhere"))
		if err == nil || !strings.Contains(err.Error(), "does not exist") {
			return fmt.Errorf("want that the topic does not exist, not %s", check.Why(err))
		}
		return nil
	})
}
