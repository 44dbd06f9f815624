// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// OffsetFetch, v1 to v10.
//
//   - v2 has null topics for all that a group has, v6 is flexible, v7 may ask for stable offsets (KIP-447), v8 asks for several groups (KIP-709), v9 is for
//     members of the consumer protocol (KIP-848), v10 names topics by id.

// offsetFetch answers OffsetFetch. A group or partition without a committed offset has -1 and no error, as in Kafka. RequireStable changes
// nothing: there are no transactions.
func (s *Server) offsetFetch(ctx context.Context, r *request) kmsg.Response {
	req, _ := r.body.(*kmsg.OffsetFetchRequest)
	resp := kmsg.NewPtrOffsetFetchResponse()
	resp.Version = r.version
	if r.version >= 8 {
		named := make(map[string]bool, len(req.Groups))
		for _, g := range req.Groups {
			if !firstNamed(named, g.Group) {
				continue
			}
			if r.version < offsetsByID {
				resp.Groups = append(resp.Groups, s.fetchGroupOffsets(ctx, g))
			} else {
				resp.Groups = append(resp.Groups, s.fetchGroupOffsetsByID(ctx, g))
			}
		}
		return resp
	}
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = req.Group
	if req.Topics != nil {
		group.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for _, t := range req.Topics {
		topic := kmsg.NewOffsetFetchRequestGroupTopic()
		topic.Topic, topic.Partitions = t.Topic, t.Partitions
		group.Topics = append(group.Topics, topic)
	}
	fillOldFetch(resp, s.fetchGroupOffsets(ctx, group))
	return resp
}

// fetchGroupOffsets answers for one group; null topics ask for every offset that the group has.
func (s *Server) fetchGroupOffsets(ctx context.Context, req kmsg.OffsetFetchRequestGroup) kmsg.OffsetFetchResponseGroup {
	resp := kmsg.NewOffsetFetchResponseGroup()
	resp.Group = req.Group
	if len(req.Group) > maxGroupID { // an empty one has never been known
		setFetchCode(&resp, codeInvalidGroupID)
		return resp
	}
	member, refused := "", codeNone
	if req.MemberID != nil { // a member of the consumer protocol, v9 and later
		member = *req.MemberID
	}
	known, code := s.groups.view(ctx, req.Group, func(g *coordinator.Group) {
		switch refused = g.CheckFetch(member, req.MemberEpoch); {
		case refused != codeNone:
		case req.Topics == nil:
			resp.Topics = allOffsets(g.Offsets())
		default:
			resp.Topics = fetchedTopics(req.Topics, g.Offset)
		}
	})
	if code == codeNone {
		code = refused
	}
	if !known || code != codeNone {
		resp.Topics = fetchedTopics(req.Topics, func(string, int32) (o coordinator.Offset, ok bool) { return o, false })
	}
	setFetchCode(&resp, code)
	s.fillInitialOffsets(ctx, &resp)
	return resp
}

// fetchGroupOffsetsByID answers for one group where topics are named by id. Of all that a group has, offsets of topics that have gone are left out: such a
// topic has no id.
func (s *Server) fetchGroupOffsetsByID(ctx context.Context, req kmsg.OffsetFetchRequestGroup) kmsg.OffsetFetchResponseGroup {
	for i := range req.Topics {
		req.Topics[i].Topic = s.nameOf(req.Topics[i].TopicID)
	}
	resp := s.fetchGroupOffsets(ctx, req)
	if req.Topics == nil {
		for i := range resp.Topics {
			if topic := s.topic(resp.Topics[i].Topic); topic != nil {
				resp.Topics[i].TopicID = topic.ID
			}
		}
		resp.Topics = slices.DeleteFunc(resp.Topics, func(t kmsg.OffsetFetchResponseGroupTopic) bool { return t.TopicID == metadata.TopicID{} })
		return resp
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			if t.Topic == "" && resp.ErrorCode == codeNone {
				t.Partitions[j].ErrorCode = codeUnknownTopicID
			}
		}
	}
	return resp
}

// offsetKey is a partition whose offset is asked for.
type offsetKey struct {
	topic     string
	id        metadata.TopicID
	partition int32
}

// setFetchCode sets a group's error. Version 1 has no place for it but the partitions, and later ones repeat it there.
func setFetchCode(resp *kmsg.OffsetFetchResponseGroup, code int16) {
	resp.ErrorCode = code
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			resp.Topics[i].Partitions[j].ErrorCode = code
		}
	}
}

// fetchedTopics lays out the offsets of the partitions that were asked for.
func fetchedTopics(topics []kmsg.OffsetFetchRequestGroupTopic, offset func(string, int32) (coordinator.Offset, bool)) []kmsg.OffsetFetchResponseGroupTopic {
	out := make([]kmsg.OffsetFetchResponseGroupTopic, 0, len(topics))
	named := make(map[offsetKey]bool)
	for _, t := range topics {
		topic := kmsg.NewOffsetFetchResponseGroupTopic()
		topic.Topic, topic.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			if !firstNamed(named, offsetKey{t.Topic, t.TopicID, p}) {
				continue
			}
			o, ok := offset(t.Topic, p)
			topic.Partitions = append(topic.Partitions, fetchedPartition(p, o, ok))
		}
		out = append(out, topic)
	}
	return out
}

// allOffsets lays out every offset of a group; they are sorted by topic.
func allOffsets(offsets []coordinator.Record) []kmsg.OffsetFetchResponseGroupTopic {
	var out []kmsg.OffsetFetchResponseGroupTopic
	for _, o := range offsets {
		if len(out) == 0 || out[len(out)-1].Topic != o.Topic {
			topic := kmsg.NewOffsetFetchResponseGroupTopic()
			topic.Topic = o.Topic
			out = append(out, topic)
		}
		last := &out[len(out)-1]
		last.Partitions = append(last.Partitions, fetchedPartition(o.Partition, o.Offset, true))
	}
	return out
}

func fetchedPartition(partition int32, o coordinator.Offset, ok bool) kmsg.OffsetFetchResponseGroupTopicPartition {
	p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = partition, -1, -1, new(string)
	if ok {
		p.Offset, p.LeaderEpoch, p.Metadata = o.Offset, o.LeaderEpoch, &o.Metadata
	}
	return p
}

// fillOldFetch lays one group's answer out as versions below 8 have it.
func fillOldFetch(resp *kmsg.OffsetFetchResponse, g kmsg.OffsetFetchResponseGroup) {
	resp.ErrorCode = g.ErrorCode
	for _, t := range g.Topics {
		topic := kmsg.NewOffsetFetchResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			partition := kmsg.NewOffsetFetchResponseTopicPartition()
			partition.Partition, partition.Offset, partition.LeaderEpoch = p.Partition, p.Offset, p.LeaderEpoch
			partition.Metadata, partition.ErrorCode = p.Metadata, p.ErrorCode
			topic.Partitions = append(topic.Partitions, partition)
		}
		resp.Topics = append(resp.Topics, topic)
	}
}
