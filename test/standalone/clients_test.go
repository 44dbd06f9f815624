// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// numbered returns n lines.
func numbered(prefix string, n int) []string {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf("%s-%05d", prefix, i)
	}
	return lines
}

func sortedLines(out string) []string {
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	slices.Sort(lines)
	return lines
}

// client makes a franz-go client that ends with the test.
func client(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.CloseAllowingRebalance)
	return cl
}

// read reads n records.
func read(t *testing.T, cl *kgo.Client, n int) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var got []*kgo.Record
	for len(got) < n {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %d of %d records: %v", len(got), n, err)
		}
		got = append(got, fetches.Records()...)
	}
	return got
}

func values(records []*kgo.Record) []string {
	vs := make([]string, len(records))
	for i, r := range records {
		vs[i] = string(r.Value)
	}
	slices.Sort(vs)
	return vs
}

func TestKcatRoundTrips(t *testing.T) {
	kcat := kcat(t)
	b := startBroker(t, t.TempDir())
	b.ringmaster(t, "", "topic", "create", "orders", "--partitions", "4")
	var want []string
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		lines := numbered(codec, 500)
		want = append(want, lines...)
		if _, err := program(t, strings.Join(lines, "\n")+"\n", kcat, "-b", b.addr, "-P", "-t", "orders", "-z", codec, "-X", "acks=all"); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(want)
	out, err := program(t, "", kcat, "-b", b.addr, "-C", "-t", "orders", "-o", "beginning", "-e", "-q")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, sortedLines(out)); diff != "" {
		t.Errorf("kcat reads something else than it wrote (-want +got):\n%s", diff)
	}
	out = b.ringmaster(t, "", "consume", "orders", "--from-beginning", "--max", fmt.Sprint(len(want)))
	if diff := cmp.Diff(want, sortedLines(out)); diff != "" {
		t.Errorf("ringmaster reads something else than kcat wrote (-want +got):\n%s", diff)
	}
}

func TestKcatCreatesATopicByProducing(t *testing.T) {
	kcat := kcat(t)
	b := startBroker(t, t.TempDir())
	if _, err := program(t, "hello\n", kcat, "-b", b.addr, "-P", "-t", "fresh"); err != nil {
		t.Fatal(err)
	}
	out, err := program(t, "", kcat, "-b", b.addr, "-L")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, `topic "fresh" with 1 partitions`) || !strings.Contains(out, "broker 1 at "+b.addr) {
		t.Errorf("kcat lists\n%s", out)
	}
}

func TestAGroupOfKcatGoesOnWhereItStopped(t *testing.T) {
	kcat := kcat(t)
	b := startBroker(t, t.TempDir())
	b.ringmaster(t, "", "topic", "create", "orders", "--partitions", "3")
	first, second := numbered("first", 300), numbered("second", 200)
	for _, lines := range [][]string{first, second} {
		b.ringmaster(t, strings.Join(lines, "\n"), "produce", "orders", "--partitioner", "RoundRobin")
		out, err := program(t, "", kcat, "-b", b.addr, "-G", "g", "-q", "-c", fmt.Sprint(len(lines)),
			"-X", "auto.offset.reset=earliest", "orders")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(lines, sortedLines(out)); diff != "" {
			t.Errorf("the group reads (-want +got):\n%s", diff)
		}
	}
}

func TestFranzGoRoundTrips(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.ringmaster(t, "", "topic", "create", "orders", "--partitions", "4")
	want := numbered("value", 2000)
	producer := client(t, b.addr)
	records := make([]*kgo.Record, len(want))
	for i, v := range want {
		records[i] = &kgo.Record{
			Topic: "orders", Key: fmt.Appendf(nil, "key-%d", i%17), Value: []byte(v),
			Headers: []kgo.RecordHeader{{Key: "n", Value: fmt.Append(nil, i)}},
		}
	}
	if err := producer.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	consumer := client(t, b.addr, kgo.ConsumeTopics("orders"), kgo.ConsumerGroup("g"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	got := read(t, consumer, len(want))
	if diff := cmp.Diff(want, values(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	partitionOf := map[string]int32{}
	for _, r := range got {
		if p, seen := partitionOf[string(r.Key)]; seen && p != r.Partition {
			t.Fatalf("key %s is in partitions %d and %d", r.Key, p, r.Partition)
		}
		partitionOf[string(r.Key)] = r.Partition
		if len(r.Headers) != 1 || r.Headers[0].Key != "n" {
			t.Fatalf("headers = %v", r.Headers)
		}
	}
	if err := consumer.CommitUncommittedOffsets(t.Context()); err != nil {
		t.Fatal(err)
	}
	lags, err := kadm.NewClient(producer).Lag(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	lag := lags["g"]
	if err := lag.Error(); err != nil || lag.State != "Stable" || lag.Lag.Total() != 0 {
		t.Errorf("state %s, lag %d, error %v", lag.State, lag.Lag.Total(), err)
	}
}
