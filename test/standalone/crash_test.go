// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

// position is where a record was acknowledged to be.
type position struct {
	partition int32
	offset    int64
}

// flood produces records with acks=all, kills the broker once enough of them are acknowledged, in the midst of it, and returns the value at each
// position that was acknowledged.
func flood(t *testing.T, b *broker, prefix string, enough int) map[position]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cl := client(t, b.addr, kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()),
		kgo.MaxBufferedRecords(2000), kgo.ProducerLinger(0), kgo.AllowIdempotentProduceCancellation())
	var mu sync.Mutex
	acked := map[position]string{}
	var promises sync.WaitGroup
	for i := 0; ctx.Err() == nil; i++ {
		value := fmt.Sprintf("%s-%07d", prefix, i)
		promises.Add(1)
		cl.Produce(ctx, &kgo.Record{Topic: "orders", Value: []byte(value)}, func(r *kgo.Record, err error) {
			defer promises.Done()
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			acked[position{r.Partition, r.Offset}] = value
			if len(acked) == enough {
				promises.Go(func() {
					b.kill(t)
					cancel()
				})
			}
		})
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Fatalf("only %d records were acknowledged, of %d", len(acked), enough)
	}
	cl.Close() // fails what is left
	promises.Wait()
	return acked
}

func TestNoAcknowledgedRecordIsLostByKill9(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	acked := map[position]string{}
	rounds := 4
	if testing.Short() {
		rounds = 1
	}
	for round := range rounds {
		b := startBroker(t, dir)
		if round == 0 {
			b.ringmaster(t, "", "topic", "create", "orders", "--partitions", "3")
		}
		enough := 500 + random.IntN(8000)
		for at, value := range flood(t, b, fmt.Sprintf("round%d", round), enough) {
			if old, twice := acked[at]; twice {
				t.Errorf("%+v was acknowledged for %s and for %s", at, old, value)
			}
			acked[at] = value
		}
		t.Logf("round %d: killed after %d acknowledged records, %d in all", round, enough, len(acked))
	}
	b := startBroker(t, dir)
	for at, want := range acked {
		if at.offset < 0 {
			t.Fatalf("%s was acknowledged without an offset", want)
		}
	}
	there := everything(t, b)
	lost := 0
	for at, want := range acked {
		if got := there[at]; got != want {
			lost++
			if lost <= 5 {
				t.Errorf("%+v holds %q, and %q was acknowledged", at, got, want)
			}
		}
	}
	t.Logf("%d acknowledged records, %d in the log, %d lost", len(acked), len(there), lost)
}

// everything reads all records of the topic, up to the ends that the broker says.
func everything(t *testing.T, b *broker) map[position]string {
	t.Helper()
	var topic struct {
		Partitions []struct {
			StartOffset, EndOffset int64
		}
	}
	if err := json.Unmarshal([]byte(b.ringmaster(t, "", "topic", "describe", "orders", "-o", "json")), &topic); err != nil {
		t.Fatal(err)
	}
	n := int64(0)
	for _, p := range topic.Partitions {
		n += p.EndOffset - p.StartOffset
	}
	consumer := client(t, b.addr, kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	there := make(map[position]string, n)
	for _, r := range read(t, consumer, int(n)) {
		there[position{r.Partition, r.Offset}] = string(r.Value)
	}
	if int64(len(there)) != n {
		t.Errorf("the topic has %d records, and %d positions were read", n, len(there))
	}
	return there
}

func TestCommitsSurviveKill9(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, dir)
	b.ringmaster(t, "", "topic", "create", "orders", "--partitions", "2")
	want := numbered("value", 1000)
	for half := range slices.Chunk(want, 500) {
		producer := client(t, b.addr)
		for _, v := range half {
			producer.Produce(t.Context(), &kgo.Record{Topic: "orders", Value: []byte(v)}, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
		if err := producer.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		// The consumer commits and never leaves: its broker dies first.
		consumer := client(t, b.addr, kgo.ConsumeTopics("orders"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit(),
			kgo.SessionTimeout(10*time.Second), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		got := read(t, consumer, len(half))
		if diff := cmp.Diff(half, values(got)); diff != "" {
			t.Errorf("the group reads (-want +got):\n%s", diff)
		}
		if err := consumer.CommitUncommittedOffsets(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.kill(t)
		b = startBroker(t, dir)
		var group struct{ Lag int64 }
		if err := json.Unmarshal([]byte(b.ringmaster(t, "", "group", "describe", "g", "-o", "json")), &group); err != nil {
			t.Fatal(err)
		}
		if group.Lag != 0 {
			t.Errorf("lag after a restart = %d, want 0", group.Lag)
		}
	}
}
