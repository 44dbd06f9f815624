// SPDX-License-Identifier: Apache-2.0

// Command kcat checks a broker with kcat, and so with librdkafka. Topics are created with franz-go, since kcat cannot.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ringmaster-dev/ringmaster/test/conformance/check"
)

const (
	// format is what kcat prints for a record; a length of -1 stands for null.
	format = "%p\t%o\t%T\t%K\t%k\t%S\t%s\t%h\n"
	// keySeparator is between the key and the value of a record that kcat reads.
	keySeparator = "\t"
)

// program is the checks and what they share.
type program struct {
	*check.Program
	admin *kadm.Client
}

func main() {
	out, err := exec.Command("kcat", "-V").Output()
	version := regexp.MustCompile(`Version (\S+).*librdkafka (\S+)`).FindStringSubmatch(string(out))
	if err != nil || version == nil {
		fmt.Fprintln(os.Stderr, "kcat: there is no kcat that says its version:", err)
		os.Exit(1)
	}
	p := &program{Program: check.Start("kcat, librdkafka", version[1]+", "+version[2])}
	c, err := kgo.NewClient(kgo.SeedBrokers(p.Bootstrap))
	if err != nil {
		fmt.Fprintln(os.Stderr, "kcat:", err)
		os.Exit(1)
	}
	defer c.Close()
	p.admin = kadm.NewClient(c)
	p.produce()
	p.consume()
	p.groups()
	for _, name := range []string{
		check.GroupNeverSeen, check.GroupDescribe, check.Lag, check.GroupDelete, check.GroupAdminister, check.TopicCreate, check.TopicCreateAgain,
		check.PartitionsAdd, check.ConfigsDescribe, check.ConfigsAlter, check.RecordsDelete, check.TopicDelete,
	} {
		p.Skip(name, "kcat does not administer topics and groups")
	}
}

// kcat runs kcat.
func (p *program) kcat(ctx context.Context, input string, args ...string) (string, error) {
	return check.Run(ctx, input, append([]string{"kcat", "-b", p.Bootstrap, "-q"}, args...)...)
}

// topic creates a topic.
func (p *program) topic(ctx context.Context, name string, partitions int32) error {
	if _, err := p.admin.CreateTopic(ctx, partitions, 1, nil, name); err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	return check.Served(ctx, p.admin, name)
}

// send writes records of one partition.
func (p *program) send(ctx context.Context, topic string, partition int, records []check.Record, args ...string) error {
	var input strings.Builder
	for _, r := range records {
		input.WriteString(string(r.Key) + keySeparator + string(r.Value) + "\n")
	}
	_, err := p.kcat(ctx, input.String(), append([]string{"-P", "-t", topic, "-p", strconv.Itoa(partition), "-K", keySeparator, "-Z", "-H", "n=1"}, args...)...)
	return err
}

// read reads n records of a topic, and returns their times besides.
func (p *program) read(ctx context.Context, topic string, n int, args ...string) ([]check.Record, []int64, error) {
	out, err := p.kcat(ctx, "", append([]string{"-C", "-t", topic, "-c", strconv.Itoa(n), "-f", format}, args...)...)
	if err != nil {
		return nil, nil, err
	}
	return parse(out)
}

// parse reads what format printed.
func parse(out string) (records []check.Record, times []int64, err error) {
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 8 {
			return nil, nil, fmt.Errorf("kcat printed %q", line)
		}
		var numbers [3]int64
		for i := range numbers {
			if numbers[i], err = strconv.ParseInt(f[i], 10, 64); err != nil {
				return nil, nil, fmt.Errorf("kcat printed %q: %w", line, err)
			}
		}
		r := check.Record{Partition: int32(numbers[0]), Offset: numbers[1]}
		if f[3] != "-1" {
			r.Key = []byte(f[4])
		}
		if f[5] != "-1" {
			r.Value = []byte(f[6])
		}
		for header := range strings.SplitSeq(f[7], ",") {
			if key, value, ok := strings.Cut(header, "="); ok {
				r.Headers = append(r.Headers, check.Header{Key: key, Value: []byte(value)})
			}
		}
		records, times = append(records, r), append(times, numbers[2])
	}
	return records, times, nil
}

func (p *program) roundTrip(name string, args ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		topic := p.Name(name)
		if err := p.topic(ctx, topic, check.Partitions); err != nil {
			return err
		}
		var want []check.Record
		for partition := range int32(check.Partitions) {
			records := check.Text(partition)
			if err := p.send(ctx, topic, int(partition), records, args...); err != nil {
				return err
			}
			want = append(want, records...)
		}
		got, _, err := p.read(ctx, topic, len(want), "-o", "beginning")
		if err != nil {
			return err
		}
		return check.Same(want, got)
	}
}

func (p *program) produce() {
	p.Run(check.AcksNone, p.roundTrip("acks-0", "-X", "acks=0"))
	p.Run(check.AcksLeader, p.roundTrip("acks-1", "-X", "acks=1"))
	p.Run(check.AcksAll, p.roundTrip("acks-all", "-X", "acks=all"))
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		p.Run("compression "+codec, p.roundTrip(codec, "-z", codec))
	}
	p.Run(check.Idempotent, p.roundTrip("idempotent", "-X", "enable.idempotence=true", "-X", "batch.num.messages=10"))
	p.Run(check.LargeRecord, func(ctx context.Context) error {
		topic := p.Name("large")
		want := []check.Record{{Value: slices.Repeat([]byte("ring"), check.LargeBytes/4), Headers: []check.Header{{Key: "n", Value: []byte("1")}}}}
		err := p.topic(ctx, topic, 1)
		if err == nil {
			err = p.send(ctx, topic, 0, want, "-X", "message.max.bytes=1048588")
		}
		if err != nil {
			return err
		}
		got, _, err := p.read(ctx, topic, 1, "-o", "beginning")
		if err != nil {
			return err
		}
		return check.Same(want, got)
	})
	p.Run(check.Transactional, func(ctx context.Context) error {
		short, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		err := p.send(short, p.Name("order"), 0, check.Text(0), "-X", "transactional.id="+p.Name("txn"))
		if short.Err() != nil {
			err = short.Err()
		}
		return check.Refused(err)
	})
	p.Run(check.AutoCreate, func(ctx context.Context) error {
		topic := p.Name("auto")
		if err := p.send(ctx, topic, 0, check.Text(0)[:1]); err != nil {
			return err
		}
		got, _, err := p.read(ctx, topic, 1, "-o", "beginning")
		if err != nil {
			return err
		}
		return check.Same(check.Text(0)[:1], got)
	})
	p.Run(check.UnknownTopic, func(ctx context.Context) error {
		_, err := p.kcat(ctx, "", "-C", "-t", p.Name("nowhere"), "-e", "-o", "beginning")
		if err == nil || !strings.Contains(err.Error(), "Unknown topic") {
			return fmt.Errorf("want that the topic is unknown, not %s", check.Why(err))
		}
		return nil
	})
	p.Run(check.TopicDescribe, func(ctx context.Context) error {
		out, err := p.kcat(ctx, "", "-L", "-t", p.Name("none"))
		if err != nil {
			return err
		}
		if n := len(regexp.MustCompile(`partition \d+, leader [1-9]`).FindAllString(out, -1)); n != check.Partitions {
			return fmt.Errorf("%d partitions with a leader, want %d: %s", n, check.Partitions, out)
		}
		return nil
	})
}

func (p *program) consume() {
	topic := p.Name("order")
	half := check.OrderRecords / 2
	var want []check.Record
	for i := range check.OrderRecords {
		want = append(want, check.Record{
			Offset: int64(i), Key: []byte(strconv.Itoa(i)), Value: []byte("value-" + strconv.Itoa(i)), Headers: []check.Header{{Key: "n", Value: []byte("1")}},
		})
	}
	var times []int64
	p.Run(check.Order, func(ctx context.Context) error {
		err := p.topic(ctx, topic, 1)
		if err == nil {
			err = errors.Join(p.send(ctx, topic, 0, want[:half]), p.send(ctx, topic, 0, want[half:]))
		}
		if err != nil {
			return err
		}
		got, at, err := p.read(ctx, topic, check.OrderRecords, "-o", "beginning")
		if err != nil {
			return err
		}
		for i, r := range got {
			if r.Offset != int64(i) {
				return fmt.Errorf("record %d has offset %d", i, r.Offset)
			}
		}
		times = at
		return check.Same(want, got)
	})
	p.Run(check.SeekOffset, func(ctx context.Context) error {
		got, _, err := p.read(ctx, topic, check.OrderRecords-check.Middle, "-p", "0", "-o", strconv.Itoa(check.Middle))
		if err != nil {
			return err
		}
		return check.Same(want[check.Middle:], got)
	})
	p.Run(check.SeekTime, func(ctx context.Context) error { // kcat writes no time but its own
		if times == nil {
			return errors.New("the records were not read")
		}
		ts := times[half]
		first := slices.IndexFunc(times, func(t int64) bool { return t >= ts })
		got, _, err := p.read(ctx, topic, check.OrderRecords-first, "-p", "0", "-o", "s@"+strconv.FormatInt(ts, 10))
		if err != nil {
			return err
		}
		return check.Same(want[first:], got)
	})
}

func (p *program) groups() {
	p.Run(check.GroupCommit, func(ctx context.Context) error {
		name := p.Name("commit")
		if err := p.topic(ctx, name, check.Partitions); err != nil {
			return err
		}
		var want []check.Record
		for partition := range int32(check.Partitions) {
			if err := p.send(ctx, name, int(partition), check.Text(partition)); err != nil {
				return err
			}
			want = append(want, check.Text(partition)...)
		}
		got, err := p.readInGroup(ctx, name, len(want))
		if err != nil {
			return err
		}
		if err := check.Same(want, got); err != nil {
			return err
		}
		more := check.Text(0)[:check.More]
		if err := p.send(ctx, name, 0, more); err != nil {
			return err
		}
		if got, err = p.readInGroup(ctx, name, check.More); err != nil {
			return err
		}
		return check.Same(check.After(more), got)
	})
	p.Run(check.GroupRebalance, func(ctx context.Context) error {
		name := p.Name("rebalance")
		if err := p.topic(ctx, name, check.GroupPartitions); err != nil {
			return err
		}
		return check.Rebalance(ctx, func() error { return p.sendSpread(ctx, name) },
			func(reading context.Context, ledger *check.Ledger, mine func(int)) error {
				return member(ctx, reading, p.Bootstrap, name, ledger, mine)
			})
	})
}

// readInGroup reads n records as the only member of a group, commits and leaves.
func (p *program) readInGroup(ctx context.Context, name string, n int) ([]check.Record, error) {
	out, err := p.kcat(ctx, "", "-X", "auto.offset.reset=earliest", "-c", strconv.Itoa(n), "-f", format, "-G", name, name)
	if err != nil {
		return nil, err
	}
	records, _, err := parse(out)
	return records, err
}

// sendSpread writes to every partition of the rebalanced group.
func (p *program) sendSpread(ctx context.Context, topic string) error {
	var records []check.Record
	for i := range check.GroupRecords / check.GroupPartitions {
		records = append(records, check.Record{Value: []byte("value-" + strconv.Itoa(i))})
	}
	for partition := range check.GroupPartitions {
		if err := p.send(ctx, topic, partition, records); err != nil {
			return err
		}
	}
	return nil
}

var assigned = regexp.MustCompile(`assigned: (.*)`)

// member runs kcat as a member of a group until the context reading ends. It commits every 100 ms, when it loses partitions and when it ends.
func member(ctx, reading context.Context, bootstrap, name string, ledger *check.Ledger, mine func(int)) error {
	cmd := exec.CommandContext(ctx, "kcat", "-b", bootstrap, "-u", "-X", "auto.offset.reset=earliest", "-X", "auto.commit.interval.ms=100",
		"-X", "heartbeat.interval.ms=300", "-X", "partition.assignment.strategy=range", "-f", "%p\t%o\n", "-G", name, name)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		<-reading.Done()
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	}()
	said := make(chan struct{})
	go func() {
		defer close(said)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			switch m := assigned.FindStringSubmatch(lines.Text()); {
			case m != nil:
				mine(strings.Count(m[1], "["))
			case strings.Contains(lines.Text(), "revoked"):
				mine(0)
			}
		}
	}()
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var partition int32
		var offset int64
		if _, err := fmt.Sscan(lines.Text(), &partition, &offset); err != nil {
			return fmt.Errorf("kcat printed %q: %w", lines.Text(), err)
		}
		ledger.Read(partition, offset)
	}
	<-said
	return cmd.Wait()
}
