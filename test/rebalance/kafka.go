// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kafkaAddress is in the network that the cluster's nodes share, so pods reach it.
const kafkaAddress = "10.244.0.1:9092"

// kafkaConfig is a node that is broker and controller. What concerns groups is Kafka's default, but that KIP-848's groups may be given a shorter session, as classic
// clients may ask for theirs.
const kafkaConfig = `process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:9093
listeners=PLAINTEXT://ADDRESS,CONTROLLER://127.0.0.1:9093
advertised.listeners=PLAINTEXT://ADDRESS,CONTROLLER://127.0.0.1:9093
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=LOG_DIRS
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.consumer.min.session.timeout.ms=6000
group.consumer.min.heartbeat.interval.ms=2000
`

const kafkaLogging = `<Configuration><Appenders><Console name="out"><PatternLayout pattern="%d %p %c: %m%n"/></Console></Appenders>` +
	`<Loggers><Root level="warn"><AppenderRef ref="out"/></Root></Loggers></Configuration>`

// startKafka starts Apache Kafka on this machine, in the network that this program is in, until ctx ends.
func startKafka(ctx context.Context, o *options, address string, partitions int) (*system, error) {
	dir := filepath.Join(o.dir, "kafka")
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("remove an older Kafka's directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make Kafka's directory: %w", err)
	}
	config := filepath.Join(dir, "server.properties")
	text := strings.NewReplacer("LOG_DIRS", filepath.Join(dir, "data"), "ADDRESS", address).Replace(kafkaConfig)
	for path, content := range map[string]string{config: text, filepath.Join(dir, "log4j2.xml"): kafkaLogging} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return nil, fmt.Errorf("write Kafka's configuration: %w", err)
		}
	}
	java := func(args ...string) *exec.Cmd {
		all := append([]string{"-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
			"-Djava.awt.headless=true", "-Dlog4j2.configurationFile=" + filepath.Join(dir, "log4j2.xml"), "-cp", filepath.Join(o.kafka, "*")}, args...)
		return exec.CommandContext(ctx, o.java, all...)
	}
	if out, err := java("kafka.tools.StorageTool", "format", "--standalone", "-t", "cmluZ21hc3Rlci1iZW5jaA", "-c", config).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("format Kafka's directory: %w: %s", err, out)
	}
	log, err := os.Create(filepath.Join(dir, "server.log"))
	if err != nil {
		return nil, fmt.Errorf("make Kafka's log: %w", err)
	}
	defer log.Close()
	run := java("kafka.Kafka", config)
	run.Stdout, run.Stderr = log, log
	run.SysProcAttr = dies()
	if err := run.Start(); err != nil {
		return nil, fmt.Errorf("start Kafka: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = run.Wait() // its log says why
		close(ended)
	}()
	s := &system{name: "kafka", title: "Kafka", bootstrap: address, stop: func() {
		_ = run.Process.Kill() // it may have ended
		<-ended
	}}
	if err := createTopic(ctx, address, partitions); err != nil {
		s.stop()
		return nil, fmt.Errorf("%w; its log is %s", err, log.Name())
	}
	return s, nil
}

// createTopic makes the topic, as soon as the broker answers.
func createTopic(ctx context.Context, bootstrap string, partitions int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	defer client.Close()
	req := kmsg.NewPtrCreateTopicsRequest()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topicName, int32(min(partitions, partitionsAtOnce)), 1
	req.Topics = append(req.Topics, t)
	for {
		resp, err := req.RequestWith(ctx, client)
		if err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
		}
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("create the topic: %w", err)
		case <-time.After(200 * time.Millisecond):
		}
	}
	for n := min(partitions, partitionsAtOnce); n < partitions; {
		n = min(partitions, n+partitionsAtOnce)
		if err := grow(ctx, client, n); err != nil {
			return fmt.Errorf("give the topic %d partitions: %w", n, err)
		}
	}
	return nil
}

// partitionsAtOnce is fewer than the 10,000 records that Kafka's controller writes for one request at most.
const partitionsAtOnce = 5000

// grow gives the topic more partitions.
func grow(ctx context.Context, client *kgo.Client, partitions int) error {
	req := kmsg.NewPtrCreatePartitionsRequest()
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = topicName, int32(partitions)
	req.Topics, req.TimeoutMillis = append(req.Topics, t), 60_000
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Topics[0].ErrorCode)
}

// shorten gives a KIP-848 group of Kafka a shorter session.
func shorten(ctx context.Context, bootstrap, group string, session time.Duration) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	defer client.Close()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	for _, setting := range []struct {
		name  string
		value time.Duration
	}{{"consumer.session.timeout.ms", session}, {"consumer.heartbeat.interval.ms", session / 3}} {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = setting.name, kmsg.StringPtr(fmt.Sprint(setting.value.Milliseconds()))
		r.Configs = append(r.Configs, c)
	}
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(resp.Resources[0].ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("set the group's session timeout: %w", err)
	}
	return nil
}
