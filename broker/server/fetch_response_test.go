// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// bytesSection is a section that is in memory after all.
type bytesSection []byte

func (s bytesSection) Len() int                 { return len(s) }
func (s bytesSection) ReadAll() ([]byte, error) { return s, nil }
func (bytesSection) Close()                     {}
func (s bytesSection) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(s)
	return int64(n), err
}

// partitionsOf makes partitions of a fetch, with records in memory and in files.
func partitionsOf() []*fetchPartition {
	large := bytes.Repeat([]byte("x"), 300)
	var all []*fetchPartition
	for i, records := range [][]storage.Batches{
		nil,
		{storage.InMemory([]byte("records"), 7)},
		{storage.InFile(bytesSection("of a file"), 9)},
		{storage.InMemory([]byte("a"), 1), storage.InFile(bytesSection(large), 2), storage.InMemory([]byte("b"), 3)},
	} {
		for j := range 2 {
			key := fetchKey{topic: fmt.Sprintf("topic-%d", i%3), id: metadata.TopicID{byte(i % 3)}, partition: int32(2*i + j)}
			p := &fetchPartition{fetchTarget: &fetchTarget{fetchKey: key}, records: records}
			p.out.Default()
			p.out.Partition, p.out.HighWatermark, p.out.LastStableOffset, p.out.LogStartOffset = key.partition, int64(i), int64(j), 5
			if j == 1 {
				p.out.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
				p.out.ErrorCode = codeNotLeaderOrFollower
				p.out.CurrentLeader.LeaderID, p.out.CurrentLeader.LeaderEpoch = 3, 300
			}
			all = append(all, p)
		}
	}
	return all
}

func TestAFetchResponseIsWhatKmsgWouldWrite(t *testing.T) {
	for version := int16(4); version <= 18; version++ {
		for _, nodes := range []bool{false, true} {
			resp := newFetchResponse(version)
			resp.SessionID, resp.ErrorCode = 77, 3
			for _, p := range partitionsOf() {
				resp.add(p)
			}
			if nodes && version >= 16 {
				resp.addNodes(&metadata.Snapshot{Brokers: []metadata.Broker{{ID: 1}, {ID: 3, Host: "three.example.com", Port: 9092}}}, map[int32]bool{3: true})
			}
			want := *resp.FetchResponse
			want.Topics = nil
			for i, topic := range resp.Topics {
				topic.Partitions = append([]kmsg.FetchResponseTopicPartition{}, topic.Partitions...)
				for j := range topic.Partitions {
					topic.Partitions[j].RecordBatches = []byte{}
					for _, b := range resp.records[i][j] {
						data, err := b.Bytes()
						if err != nil {
							t.Fatal(err)
						}
						topic.Partitions[j].RecordBatches = append(topic.Partitions[j].RecordBatches, data...)
					}
				}
				want.Topics = append(want.Topics, topic)
			}
			o := newOutgoing(42, resp)
			var got bytes.Buffer
			from := 0
			for _, f := range o.files {
				got.Write(o.buf[from:f.at])
				from = f.at
				if _, err := f.batches.WriteTo(&got); err != nil {
					t.Fatal(err)
				}
			}
			got.Write(o.buf[from:])
			if wantBytes := appendResponse(nil, 42, &want); !bytes.Equal(got.Bytes(), wantBytes) {
				t.Errorf("v%d, nodes %t:\n got %x\nwant %x", version, nodes, got.Bytes(), wantBytes)
			}
			o.release()
		}
	}
}
