// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

// tagGeneration is the tag by which Ringmaster's brokers tell a group's generation in DescribeGroups: int32, big endian.
const tagGeneration = 10000

// describe asks the coordinators of the groups, one request for each, and returns by group id the descriptions, and what went wrong with those that have none.
//
// A group is either of the classic protocol, which DescribeGroups describes, or of KIP-848's, which ConsumerGroupDescribe does; each says that there is no such group where
// the other is to be asked.
func describe(ctx context.Context, kafka *kgo.Client, groups []*v1alpha1.ConsumerGroup) (map[string]*description, map[string]error) {
	out, errs := make(map[string]*description, len(groups)), map[string]error{}
	req := kmsg.NewPtrDescribeGroupsRequest()
	for _, g := range groups {
		req.Groups = append(req.Groups, g.KafkaID())
	}
	others := kmsg.NewPtrConsumerGroupDescribeRequest()
	for _, shard := range requestShards(ctx, kafka, req) {
		resp, ok := shard.Resp.(*kmsg.DescribeGroupsResponse)
		if asked, of := shard.Req.(*kmsg.DescribeGroupsRequest); of && (shard.Err != nil || !ok) {
			failAll(errs, asked.Groups, shard)
			continue
		}
		for i := range resp.Groups {
			g := &resp.Groups[i]
			switch {
			case g.ErrorCode == kerr.GroupIDNotFound.Code || g.ErrorCode == 0 && g.State == coordinator.StateDead:
				others.Groups = append(others.Groups, g.Group)
			case g.ErrorCode != 0:
				errs[g.Group] = fmt.Errorf("describe group %s: %w", g.Group, kerr.ErrorForCode(g.ErrorCode))
			default:
				out[g.Group] = describeClassic(g)
			}
		}
	}
	if len(others.Groups) > 0 {
		describeConsumers(ctx, kafka, others, out, errs)
	}
	for _, g := range groups {
		if id := g.KafkaID(); out[id] == nil && errs[id] == nil {
			errs[id] = fmt.Errorf("describe group %s: the brokers do not tell of it", id)
		}
	}
	return out, errs
}

// describeConsumers adds the descriptions of groups of KIP-848's protocol, and of those that there are not, and what went wrong with the others.
func describeConsumers(ctx context.Context, kafka *kgo.Client, req *kmsg.ConsumerGroupDescribeRequest, out map[string]*description, errs map[string]error) {
	for _, shard := range requestShards(ctx, kafka, req) {
		resp, ok := shard.Resp.(*kmsg.ConsumerGroupDescribeResponse)
		if asked, of := shard.Req.(*kmsg.ConsumerGroupDescribeRequest); of && (shard.Err != nil || !ok) {
			failAll(errs, asked.Groups, shard)
			continue
		}
		for i := range resp.Groups {
			g := &resp.Groups[i]
			switch g.ErrorCode {
			case 0:
				out[g.Group] = describeConsumer(g)
			case kerr.GroupIDNotFound.Code:
				out[g.Group] = &description{state: coordinator.StateDead, generation: -1}
			default:
				errs[g.Group] = fmt.Errorf("describe consumer group %s: %w", g.Group, kerr.ErrorForCode(g.ErrorCode))
			}
		}
	}
}

// requestShards sends a request to the brokers that it is for, and returns what each has answered in time.
func requestShards(ctx context.Context, kafka *kgo.Client, req kmsg.Request) []kgo.ResponseShard {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return kafka.RequestSharded(ctx, req)
}

// failAll says of groups why the part of a request that asked of them has failed.
func failAll(errs map[string]error, groups []string, shard kgo.ResponseShard) {
	for _, id := range groups {
		errs[id] = fmt.Errorf("describe group %s: %w", id, unanswered(shard.Meta.NodeID, shard.Err))
	}
}

func describeClassic(g *kmsg.DescribeGroupsResponseGroup) *description {
	d := &description{state: g.State, generation: -1}
	g.UnknownTags.Each(func(tag uint32, value []byte) {
		if tag == tagGeneration && len(value) == 4 {
			d.generation = int32(binary.BigEndian.Uint32(value))
		}
	})
	for i := range g.Members {
		m := &g.Members[i]
		member := observedMember{id: m.MemberID, clientID: m.ClientID, host: host(m.ClientHost)}
		if m.InstanceID != nil {
			member.instanceID = *m.InstanceID
		}
		var share kmsg.ConsumerMemberAssignment
		// Members that have none yet, or speak another protocol than the consumers', have no partitions that anybody could show.
		if len(m.MemberAssignment) > 0 && g.ProtocolType == "consumer" && share.ReadFrom(m.MemberAssignment) == nil {
			for _, t := range share.Topics {
				member.assigned = append(member.assigned, v1alpha1.TopicAssignment{Topic: t.Topic, Partitions: t.Partitions})
			}
			member.assigned = tidy(member.assigned)
		}
		d.members = append(d.members, member)
	}
	d.sort()
	return d
}

// consumerMember is the type of a member that speaks KIP-848's protocol, in ConsumerGroupDescribe.
const consumerMember = 1

func describeConsumer(g *kmsg.ConsumerGroupDescribeResponseGroup) *description {
	d := &description{state: g.State, generation: g.Epoch}
	for i := range g.Members {
		m := &g.Members[i]
		member := observedMember{
			id: m.MemberID, clientID: m.ClientID, host: host(m.ClientHost), assigned: shareOf(m.Assignment), target: shareOf(m.TargetAssignment),
		}
		if m.InstanceID != nil {
			member.instanceID = *m.InstanceID
		}
		member.behind = m.MemberType == consumerMember && m.MemberEpoch < g.Epoch
		d.members = append(d.members, member)
	}
	d.sort()
	return d
}

// sort sorts the members by their ids. Of two of the same id, as no broker tells of, the first stays.
func (d *description) sort() {
	slices.SortStableFunc(d.members, func(a, b observedMember) int { return cmp.Compare(a.id, b.id) })
	d.members = slices.CompactFunc(d.members, func(a, b observedMember) bool { return a.id == b.id })
}

// host is an address without the slash that Java prints before it.
func host(clientHost string) string { return strings.TrimPrefix(clientHost, "/") }

func shareOf(a kmsg.Assignment) []v1alpha1.TopicAssignment {
	var out []v1alpha1.TopicAssignment
	for _, t := range a.TopicPartitions {
		out = append(out, v1alpha1.TopicAssignment{Topic: t.Topic, Partitions: t.Partitions})
	}
	return tidy(out)
}

// tidy sorts what a member has, and leaves out topics of which it has nothing, and what no topic can have: in a classic group a client says what each has, and no broker looks at it. Of a
// topic that is named twice it has what is named first.
func tidy(share []v1alpha1.TopicAssignment) []v1alpha1.TopicAssignment {
	for i := range share {
		share[i].Partitions = slices.DeleteFunc(share[i].Partitions, func(p int32) bool { return p < 0 || p >= maxPartitions })
	}
	share = slices.DeleteFunc(share, func(a v1alpha1.TopicAssignment) bool { return len(a.Partitions) == 0 || !isTopic(a.Topic) })
	slices.SortStableFunc(share, func(a, b v1alpha1.TopicAssignment) int { return cmp.Compare(a.Topic, b.Topic) })
	share = slices.CompactFunc(share, func(a, b v1alpha1.TopicAssignment) bool { return a.Topic == b.Topic })
	for i := range share {
		slices.Sort(share[i].Partitions)
		share[i].Partitions = slices.Compact(share[i].Partitions)
	}
	return share
}

// The bounds of topics, as in a Topic's schema.
const (
	maxPartitions, maxTopicBytes = 10_000, 249
	topicCharacters              = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
)

// isTopic says whether a topic can be called that.
func isTopic(name string) bool {
	return name != "" && len(name) <= maxTopicBytes && !strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(topicCharacters, r) })
}

// matchClients finds the pods of a managed group's clients as the brokers do: by the address, if one pod alone has it, else by the instance id or client id that is the pod's
// name. It returns how many clients each pod has, and those of no pod.
func matchClients(members []v1alpha1.GroupMember, clients []observedMember) (byPod map[string]int, unknown []observedMember) {
	byIP, names := map[string][]string{}, map[string]bool{}
	for i := range members {
		m := &members[i]
		names[m.Name] = true
		if m.IP != "" {
			byIP[m.IP] = append(byIP[m.IP], m.Name)
		}
	}
	byPod = map[string]int{}
	for _, c := range clients {
		switch at := byIP[c.host]; {
		case len(at) == 1:
			byPod[at[0]]++
		case c.instanceID != "" && names[c.instanceID]:
			byPod[c.instanceID]++
		case c.clientID != "" && names[c.clientID]:
			byPod[c.clientID]++
		default:
			unknown = append(unknown, c)
		}
	}
	return byPod, unknown
}

// strangerWatch finds the clients that belong to no pod of a managed group. One that did before is a dead pod's, whose session has not ended yet; and one that was not seen twice
// may be that of a pod which is about to be ready.
type strangerWatch struct {
	// known are the member ids of clients that belonged to a pod once, seen those of the last reading that belonged to none.
	known, seen map[string]bool
	// told are the clients of which an event was recorded.
	told map[stranger]bool
}

// note takes a reading: the clients of no pod, and all. It returns those that are strangers, and of these the ones that are so for the first time.
func (w *strangerWatch) note(unknown, clients []observedMember) (strangers, fresh []stranger) {
	isUnknown := make(map[string]bool, len(unknown))
	for i := range unknown {
		isUnknown[unknown[i].id] = true
	}
	known := map[string]bool{}
	for i := range clients {
		if id := clients[i].id; !isUnknown[id] || w.known[id] {
			known[id] = true
		}
	}
	told := map[stranger]bool{}
	for _, c := range unknown {
		if known[c.id] || !w.seen[c.id] {
			continue
		}
		s := stranger{c.clientID, c.host}
		strangers = append(strangers, s)
		if !w.told[s] && !told[s] {
			fresh = append(fresh, s)
		}
		told[s] = true
	}
	w.known, w.seen, w.told = known, isUnknown, told
	return sortStrangers(strangers), sortStrangers(fresh)
}

// sortStrangers sorts clients, each once.
func sortStrangers(clients []stranger) []stranger {
	slices.SortFunc(clients, func(a, b stranger) int {
		return cmp.Or(cmp.Compare(a.clientID, b.clientID), cmp.Compare(a.host, b.host))
	})
	return slices.Compact(clients)
}
