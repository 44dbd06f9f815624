// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// fetchResponse is a Fetch response whose records may still be in their files. What kmsg would encode is written here field by field, because it
// wants all records in one piece of memory; a test holds the two against each other in every version.
type fetchResponse struct {
	*kmsg.FetchResponse
	// records are those of the partitions, in the order of topics and partitions; RecordBatches are empty.
	records [][][]storage.Batches
	// topics holds the place of every topic that is there.
	topics map[fetchKey]int
}

func newFetchResponse(version int16) *fetchResponse {
	resp := &fetchResponse{FetchResponse: kmsg.NewPtrFetchResponse(), topics: make(map[fetchKey]int)}
	resp.Version = version
	return resp
}

// add adds a partition with its records, which the response closes from now on.
func (f *fetchResponse) add(p *fetchPartition) {
	key := fetchKey{topic: p.fetchKey.topic, id: p.id}
	i, ok := f.topics[key]
	if !ok {
		i = len(f.Topics)
		f.topics[key] = i
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic, topic.TopicID = key.topic, key.id
		f.Topics = append(f.Topics, topic)
		f.records = append(f.records, nil)
	}
	f.Topics[i].Partitions = append(f.Topics[i].Partitions, p.out)
	f.records[i] = append(f.records[i], p.records)
}

// addNodes tells where the leaders are.
func (f *fetchResponse) addNodes(snap *metadata.Snapshot, leaders map[int32]bool) {
	for _, b := range snap.Brokers {
		if leaders[b.ID] {
			node := kmsg.NewFetchResponseBroker()
			node.NodeID, node.Host, node.Port = b.ID, b.Host, b.Port
			f.Brokers = append(f.Brokers, node)
		}
	}
}

// close ends the use of the files that hold records.
func (f *fetchResponse) close() {
	for _, topic := range f.records {
		for _, records := range topic {
			closeBatches(records)
		}
	}
}

// AppendTo is not for this response: appendFrame writes it.
func (*fetchResponse) AppendTo([]byte) []byte { panic("a fetch response is written by appendFrame") }

// appendFrame writes the response as a frame, less the records that are in files.
func (f *fetchResponse) appendFrame(o *outgoing, correlationID int32) {
	e := fetchEncoder{o: o, version: f.Version, flexible: f.IsFlexible()}
	e.int32(0) // the length, set at the end
	e.int32(correlationID)
	e.tags()
	e.int32(f.ThrottleMillis)
	if e.version >= 7 {
		e.int16(f.ErrorCode)
		e.int32(f.SessionID)
	}
	e.count(len(f.Topics))
	for i := range f.Topics {
		topic := &f.Topics[i]
		if e.version >= 13 {
			o.buf = append(o.buf, topic.TopicID[:]...)
		} else {
			e.string(topic.Topic)
		}
		e.count(len(topic.Partitions))
		for j := range topic.Partitions {
			e.partition(&topic.Partitions[j], f.records[i][j])
		}
		e.tags()
	}
	e.nodes(f.Brokers)
	binary.BigEndian.PutUint32(o.buf, uint32(o.len()-4))
}

// fetchEncoder writes the parts of a Fetch response.
type fetchEncoder struct {
	o        *outgoing
	version  int16
	flexible bool
}

func (e *fetchEncoder) partition(p *kmsg.FetchResponseTopicPartition, records []storage.Batches) {
	e.int32(p.Partition)
	e.int16(p.ErrorCode)
	e.int64(p.HighWatermark)
	e.int64(p.LastStableOffset)
	if e.version >= 5 {
		e.int64(p.LogStartOffset)
	}
	e.aborted(p.AbortedTransactions)
	if e.version >= 11 {
		e.int32(p.PreferredReadReplica)
	}
	size := 0
	for i := range records {
		size += records[i].Len()
	}
	if e.flexible {
		e.uvarint(uint64(size) + 1)
	} else {
		e.int32(int32(size))
	}
	for i := range records {
		e.o.add(&records[i])
	}
	e.leader(&p.CurrentLeader)
}

// aborted writes a list that is null or empty: there are no transactions.
func (e *fetchEncoder) aborted(list []kmsg.FetchResponseTopicPartitionAbortedTransaction) {
	switch {
	case list == nil && e.flexible:
		e.uvarint(0)
	case list == nil:
		e.int32(-1)
	default:
		e.count(0)
	}
}

// leader writes a partition's tags, of which the current leader (tag 1) is the only one.
func (e *fetchEncoder) leader(leader *kmsg.FetchResponseTopicPartitionCurrentLeader) {
	if !e.flexible {
		return
	}
	if leader.LeaderID == -1 && leader.LeaderEpoch == -1 {
		e.uvarint(0)
		return
	}
	e.o.buf = append(e.o.buf, 1, 1, 9)
	e.int32(leader.LeaderID)
	e.int32(leader.LeaderEpoch)
	e.tags()
}

// nodes writes the response's tags, of which the nodes (tag 0) are the only one.
func (e *fetchEncoder) nodes(nodes []kmsg.FetchResponseBroker) {
	if !e.flexible {
		return
	}
	if len(nodes) == 0 {
		e.uvarint(0)
		return
	}
	inner := fetchEncoder{o: &outgoing{}, version: e.version, flexible: true}
	inner.count(len(nodes))
	for i := range nodes {
		inner.int32(nodes[i].NodeID)
		inner.string(nodes[i].Host)
		inner.int32(nodes[i].Port)
		inner.uvarint(0) // no rack
		inner.tags()
	}
	e.o.buf = append(e.o.buf, 1, 0)
	e.uvarint(uint64(len(inner.o.buf)))
	e.o.buf = append(e.o.buf, inner.o.buf...)
}

func (e *fetchEncoder) int16(v int16)    { e.o.buf = binary.BigEndian.AppendUint16(e.o.buf, uint16(v)) }
func (e *fetchEncoder) int32(v int32)    { e.o.buf = binary.BigEndian.AppendUint32(e.o.buf, uint32(v)) }
func (e *fetchEncoder) int64(v int64)    { e.o.buf = binary.BigEndian.AppendUint64(e.o.buf, uint64(v)) }
func (e *fetchEncoder) uvarint(v uint64) { e.o.buf = binary.AppendUvarint(e.o.buf, v) }

// tags writes that there are no tagged fields.
func (e *fetchEncoder) tags() {
	if e.flexible {
		e.o.buf = append(e.o.buf, 0)
	}
}

// count writes the length of an array.
func (e *fetchEncoder) count(n int) {
	if e.flexible {
		e.uvarint(uint64(n) + 1)
	} else {
		e.int32(int32(n))
	}
}

func (e *fetchEncoder) string(s string) {
	if e.flexible {
		e.uvarint(uint64(len(s)) + 1)
	} else {
		e.int16(int16(len(s)))
	}
	e.o.buf = append(e.o.buf, s...)
}
