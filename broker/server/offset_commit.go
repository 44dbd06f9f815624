// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// OffsetCommit, v2 to v10.
//
//   - v5 has no retention time any more, v6 has leader epochs, v7 static members (KIP-345), v8 is flexible, v9 is for members of the consumer protocol
//     (KIP-848), v10 names topics by id.

// offsetsByID is the version of OffsetCommit and OffsetFetch from which on topics are named by id.
const offsetsByID = 10

// offsetCommit answers OffsetCommit. The answer comes when the offsets are on disk. A retention time, which versions below 5 have, is
// not heeded: the broker's own says how long offsets are kept.
func (s *Server) offsetCommit(ctx context.Context, r *request) kmsg.Response {
	req, _ := r.body.(*kmsg.OffsetCommitRequest)
	resp := kmsg.NewPtrOffsetCommitResponse()
	resp.Version = r.version
	if r.version >= offsetsByID {
		for i := range req.Topics {
			req.Topics[i].Topic = s.nameOf(req.Topics[i].TopicID)
		}
	}
	offsets := fillCommit(s.snapshot(), resp, req)
	if len(offsets) == 0 {
		return resp
	}
	reply := coordinator.Reply{Err: codeInvalidGroupID}
	if len(req.Group) <= maxGroupID { // whether it may be empty is for the group to say
		reply = s.groups.call(ctx, req.Group, true, func(token coordinator.Token) coordinator.Input {
			return coordinator.Commit{
				Token: token, Client: clientOf(r, req.MemberID, req.InstanceID), Generation: req.Generation, Offsets: offsets,
			}
		})
	}
	setCommitCodes(resp, reply)
	return resp
}

// nameOf is the name of the topic that has an id, empty where there is none.
func (s *Server) nameOf(id metadata.TopicID) string {
	if topic := s.topicByID(id); topic != nil {
		return topic.Name
	}
	return ""
}

// fillCommit lays the response out and returns the offsets that can be committed. Partitions that do not exist have their error code already; the
// others still have codeNone.
func fillCommit(snap *metadata.Snapshot, resp *kmsg.OffsetCommitResponse, req *kmsg.OffsetCommitRequest) []coordinator.OffsetCommit {
	var offsets []coordinator.OffsetCommit
	for _, t := range req.Topics {
		topic := kmsg.NewOffsetCommitResponseTopic()
		topic.Topic, topic.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			partition := kmsg.NewOffsetCommitResponseTopicPartition()
			partition.Partition = p.Partition
			switch {
			case resp.Version >= offsetsByID && t.Topic == "":
				partition.ErrorCode = codeUnknownTopicID
			case exists(snap, t.Topic, p.Partition):
				offsets = append(offsets, commitOf(t.Topic, p))
			default:
				partition.ErrorCode = codeUnknownTopicOrPartition
			}
			topic.Partitions = append(topic.Partitions, partition)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return offsets
}

// setCommitCodes gives the partitions that were committed the group's answer, in the order of fillCommit.
func setCommitCodes(resp *kmsg.OffsetCommitResponse, reply coordinator.Reply) {
	body, _ := reply.Body.(coordinator.CommitReply)
	next := 0
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			if p.ErrorCode != codeNone {
				continue
			}
			if p.ErrorCode = reply.Err; reply.Err == codeNone {
				p.ErrorCode = codeAt(body.Errs, next)
			}
			next++
		}
	}
}

// commitOf translates an offset.
func commitOf(topic string, p kmsg.OffsetCommitRequestTopicPartition) coordinator.OffsetCommit {
	c := coordinator.OffsetCommit{Topic: topic, Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch}
	if p.Metadata != nil {
		c.Metadata = *p.Metadata
	}
	return c
}

// exists says whether there is such a partition; where nothing is known yet there may be, and the group's coordinator answers for it.
func exists(snap *metadata.Snapshot, topic string, partition int32) bool {
	if snap == nil {
		return true
	}
	t := snap.Topics[topic]
	return t != nil && partition >= 0 && int(partition) < len(t.Leaders)
}
