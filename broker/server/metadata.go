// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// Metadata, v0 to v13.
//
//   - v0 has no way to ask for no topics: an empty list means all. v1 adds the controller, v2 the cluster id, v4 says whether unknown topics
//     may be created, v7 leader epochs, v9 is flexible, v10 topic ids, v12 topics asked for by id alone, v13 an error for the whole.
//   - The controller is the broker with the lowest id. Every broker takes the requests that clients send to a controller.
//   - A partition has one replica, its leader; without a leader it has none and LEADER_NOT_AVAILABLE.

const (
	// autoCreateTimeout bounds the creation of the unknown topics of one request.
	autoCreateTimeout = 5 * time.Second
	// autoCreateWait is how long a request waits until the topics that it created have leaders. Clients ask again after it.
	autoCreateWait = time.Second
)

// topicName is Kafka's rule for the names of topics; "." and ".." are refused too.
var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

func validTopicName(name string) bool {
	return topicName.MatchString(name) && name != "." && name != ".."
}

// metadata tells clients the brokers, the topics and who leads their partitions.
func (s *Server) metadata(ctx context.Context, r *request) kmsg.Response {
	req := bodyOf[*kmsg.MetadataRequest](r)
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = r.version
	s.autoCreate(ctx, r, req)
	snap := s.snapshot()
	if snap == nil {
		snap = &metadata.Snapshot{}
	}
	for _, b := range snap.Brokers {
		node := kmsg.NewMetadataResponseBroker()
		node.NodeID, node.Host, node.Port = b.ID, b.Host, b.Port
		resp.Brokers = append(resp.Brokers, node)
	}
	resp.ClusterID = &snap.ClusterID
	resp.ControllerID = controllerID(snap)
	if req.Topics == nil || r.version == 0 && len(req.Topics) == 0 {
		for _, name := range sortedTopics(snap) {
			resp.Topics = append(resp.Topics, describeTopic(snap, snap.Topics[name]))
		}
		return resp
	}
	named := make(map[topicKey]bool, len(req.Topics))
	for i := range req.Topics {
		if !firstNamed(named, metadataKey(&req.Topics[i])) {
			continue // as in Kafka; the answer could be ten thousand times the request
		}
		t := s.metadataTopic(snap, &req.Topics[i])
		if t.ErrorCode == codeUnknownTopicOrPartition && mayCreate(snap, req) {
			t.ErrorCode = codeLeaderNotAvailable // it is being created; ask again
		}
		r.code(t.ErrorCode)
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

// topicKey is how a topic is asked for: by id or, where there is none, by name.
type topicKey struct {
	named bool
	name  string
	id    metadata.TopicID
}

// byID says whether a topic is asked for by id: then its name says nothing, and clients leave it null or, as Java's, empty.
func byID(in *kmsg.MetadataRequestTopic) bool { return in.Topic == nil || in.TopicID != [16]byte{} }

func metadataKey(in *kmsg.MetadataRequestTopic) topicKey {
	if byID(in) {
		return topicKey{id: in.TopicID}
	}
	return topicKey{named: true, name: *in.Topic}
}

// controllerID is the lowest broker id, -1 where there is no broker.
func controllerID(snap *metadata.Snapshot) int32 {
	id := int32(-1)
	for _, b := range snap.Brokers {
		if id < 0 || b.ID < id {
			id = b.ID
		}
	}
	return id
}

func sortedTopics(snap *metadata.Snapshot) []string {
	names := make([]string, 0, len(snap.Topics))
	for name := range snap.Topics {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// metadataTopic describes a topic that was asked for by id or, where there is none, by name.
func (s *Server) metadataTopic(snap *metadata.Snapshot, in *kmsg.MetadataRequestTopic) kmsg.MetadataResponseTopic {
	fail := func(code int16) kmsg.MetadataResponseTopic {
		t := kmsg.NewMetadataResponseTopic()
		t.ErrorCode, t.TopicID = code, in.TopicID
		if !byID(in) {
			t.Topic = in.Topic
		}
		return t
	}
	if byID(in) {
		topic := s.topicByID(in.TopicID)
		if topic == nil || snap.Topics[topic.Name] != topic {
			return fail(codeUnknownTopicID)
		}
		return describeTopic(snap, topic)
	}
	switch topic := snap.Topics[*in.Topic]; {
	case topic != nil:
		return describeTopic(snap, topic)
	case !validTopicName(*in.Topic):
		return fail(codeInvalidTopic)
	default:
		return fail(codeUnknownTopicOrPartition)
	}
}

// describeTopic describes a topic.
func describeTopic(snap *metadata.Snapshot, topic *metadata.Topic) kmsg.MetadataResponseTopic {
	t := kmsg.NewMetadataResponseTopic()
	t.Topic, t.TopicID, t.IsInternal = &topic.Name, topic.ID, topic.Internal
	t.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(topic.Leaders))
	unserved := purging(snap, topic)
	for i, leader := range topic.Leaders {
		p := &t.Partitions[i]
		p.Default()
		p.Partition = int32(i)
		if leader < 0 || unserved {
			p.ErrorCode, p.Leader = codeLeaderNotAvailable, -1
			continue
		}
		p.Leader, p.LeaderEpoch = leader, topic.LeaderEpoch(int32(i))
		p.Replicas, p.ISR = topic.Leaders[i:i+1:i+1], topic.Leaders[i:i+1:i+1]
	}
	return t
}

// mayCreate says whether a request creates the unknown topics that it names. Versions before 4 always ask for it.
func mayCreate(snap *metadata.Snapshot, req *kmsg.MetadataRequest) bool {
	return snap.AutoCreateTopics && (req.AllowAutoTopicCreation || req.Version < 4)
}

// autoCreate creates the unknown topics that a request names, where the request and the cluster allow it, and waits a moment for their leaders.
func (s *Server) autoCreate(ctx context.Context, r *request, req *kmsg.MetadataRequest) {
	snap := s.snapshot()
	if snap == nil || !mayCreate(snap, req) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, autoCreateTimeout)
	defer cancel()
	var created []string
	for i := range req.Topics {
		name := req.Topics[i].Topic
		if byID(&req.Topics[i]) || snap.Topics[*name] != nil || !validTopicName(*name) || strings.HasPrefix(*name, "__") || slices.Contains(created, *name) {
			continue
		}
		err := s.cfg.Metadata.CreateTopic(ctx, metadata.NewTopic{Name: *name, Partitions: -1, Config: metadata.DefaultTopicConfig})
		if err != nil && !errors.Is(err, metadata.ErrTopicExists) {
			s.log.Warn("cannot create a topic that a client asked for", "topic", *name, "client", clip(r.clientID), "error", err)
			return // the others would fail in the same way, and the client asks again
		}
		if err == nil {
			s.log.Info("created a topic that a client asked for", "topic", *name, "client", clip(r.clientID))
		}
		created = append(created, *name)
	}
	if len(created) > 0 {
		s.awaitSnapshot(ctx, autoCreateWait, func(snap *metadata.Snapshot) bool { return allServed(snap, created) })
	}
}

// allServed says whether all these topics exist, and every partition of them has a leader that serves it.
func allServed(snap *metadata.Snapshot, names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		topic := snap.Topics[name]
		return topic == nil || slices.Contains(topic.Leaders, -1) || len(topic.Leaders) == 0 || purging(snap, topic)
	})
}
