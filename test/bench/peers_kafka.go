// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
)

// kafkaPeer is anything that speaks Kafka's protocol.
type kafkaPeer struct {
	title   string
	s       *server
	configs map[string]string
}

func (p *kafkaPeer) name() string    { return p.title }
func (p *kafkaPeer) server() *server { return p.s }

func (p *kafkaPeer) create(ctx context.Context, topic string, w *work) error {
	return createTopic(ctx, p.s.address, topic, w.Partitions, p.configs)
}

func (p *kafkaPeer) remove(ctx context.Context, topic string) error {
	return deleteTopic(ctx, p.s.address, topic)
}

func (p *kafkaPeer) produce(ctx context.Context, topic string, w *work, m *meter, limit int64) error {
	return kafkaProduce(ctx, p.s.address, topic, w, m, limit)
}

func (p *kafkaPeer) consume(ctx context.Context, topic string, w *work, how reading, m *meter) error {
	return kafkaConsume(ctx, p.s.address, topic, w, how, m)
}

// fanOut produces while groups read from the end.
func (p *kafkaPeer) fanOut(ctx context.Context, topic string, w *work, m *meter) error {
	g, ctx := errgroup.WithContext(ctx)
	for i := range w.Groups {
		how := reading{from: -1, group: fmt.Sprintf("%s-group-%d", topic, i)}
		g.Go(func() error { return kafkaConsume(ctx, p.s.address, topic, w, how, m) })
	}
	g.Go(func() error { return kafkaProduce(ctx, p.s.address, topic, w, m, 0) })
	return g.Wait()
}

// newRingmaster returns this project's broker, one on its own, with more flags.
func newRingmaster(title, binary string, more ...string) *server {
	return &server{
		title: title,
		command: func(dir, address string) *exec.Cmd {
			return exec.Command(binary, append([]string{"broker", "--data-dir", filepath.Join(dir, "data"), "--listen", address}, more...)...)
		},
		ask: askKafka,
	}
}

// kafkaConfig is a node that is broker and controller, with what the server.properties sets that Kafka comes with. Deleted topics' files go
// after a second, not a minute, or the disk would fill.
const kafkaConfig = `process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=CONTROLLER_ADDRESS
listeners=PLAINTEXT://BROKER_ADDRESS,CONTROLLER://CONTROLLER_ADDRESS
advertised.listeners=PLAINTEXT://BROKER_ADDRESS,CONTROLLER://CONTROLLER_ADDRESS
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=LOG_DIRS
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
log.segment.delete.delay.ms=1000
`

// kafkaLogging writes warnings to standard output.
const kafkaLogging = `<Configuration><Appenders><Console name="out"><PatternLayout pattern="%d %p %c: %m%n"/></Console></Appenders>` +
	`<Loggers><Root level="warn"><AppenderRef ref="out"/></Root></Loggers></Configuration>`

// javaOptions are those of Kafka's start script: 1 GB of heap, G1.
var javaOptions = []string{
	"-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
	"-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15", "-Djava.awt.headless=true",
}

// newKafka returns Apache Kafka from a directory of its jars; more is added to its configuration.
func newKafka(title, jars, more string) *server {
	java := func(dir string, args ...string) *exec.Cmd {
		all := append(append([]string{}, javaOptions...), "-Dlog4j2.configurationFile="+filepath.Join(dir, "log4j2.xml"), "-cp", filepath.Join(jars, "*"))
		return exec.Command("java", append(all, args...)...)
	}
	config := func(dir string) string { return filepath.Join(dir, "server.properties") }
	return &server{
		title: title,
		prepare: func(ctx context.Context, dir, address string) error {
			controller, err := freeAddress(ctx)
			if err != nil {
				return err
			}
			text := strings.NewReplacer("BROKER_ADDRESS", address, "CONTROLLER_ADDRESS", controller, "LOG_DIRS", filepath.Join(dir, "data")).Replace(kafkaConfig) + more
			if err := os.WriteFile(config(dir), []byte(text), 0o600); err != nil {
				return fmt.Errorf("write Kafka's configuration: %w", err)
			}
			if err := os.WriteFile(filepath.Join(dir, "log4j2.xml"), []byte(kafkaLogging), 0o600); err != nil {
				return fmt.Errorf("write Kafka's configuration: %w", err)
			}
			format := java(dir, "kafka.tools.StorageTool", "format", "--standalone", "-t", "cmluZ21hc3Rlci1iZW5jaA", "-c", config(dir))
			if out, err := format.CombinedOutput(); err != nil {
				return fmt.Errorf("format Kafka's directory: %w: %s", err, out)
			}
			return nil
		},
		command: func(dir, _ string) *exec.Cmd { return java(dir, "kafka.Kafka", config(dir)) },
		ask:     askKafka,
	}
}
