// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// beat plays a ConsumerGroupHeartbeat.
func (tr *transcript) beat(who *talker, verb string, args arguments) {
	if !who.consumer {
		who.consumer, who.generation = true, EpochJoin
		who.last.Client.ClientID, who.last.Client.Host = who.name, "10.0.0.99"
	}
	c := &who.last.Client
	c.InstanceID, c.Host, c.ClientID = cmp.Or(args.named["instance"], c.InstanceID), cmp.Or(args.named["host"], c.Host), cmp.Or(args.named["client"], c.ClientID)
	in := ConsumerHeartbeat{Client: *c, Epoch: args.int32("epoch", who.generation)}
	in.Client.MemberID = who.id
	if id, ok := args.named["id"]; ok {
		in.Client.MemberID = id
	}
	switch verb {
	case "leaves":
		in.Epoch = EpochLeave
	case "goes":
		in.Epoch = EpochLeaveStatic
	case "acks":
		in.Owned = owned(who.told)
	}
	if in.Epoch == EpochJoin {
		who.joins++
		in.NewMemberID, in.Full, in.Owned, in.RebalanceTimeout, in.Topics = fmt.Sprintf("%s-%d", who.name, who.joins), true, []TopicPartitions{}, time.Minute, []string{}
	}
	if topics, ok := args.named["topics"]; ok {
		in.Topics = strings.FieldsFunc(topics, func(r rune) bool { return r == ',' })
	}
	if share, ok := args.named["owned"]; ok {
		in.Owned = owned(parsePartitions(share))
	}
	if regex, ok := args.named["regex"]; ok {
		in.Regex = &regex
	}
	if assignor, ok := args.named["assignor"]; ok {
		in.Assignor = &assignor
	}
	in.RebalanceTimeout = args.duration("rebalance", in.RebalanceTimeout)
	in.Full = in.Full || slices.Contains(args.plain, "full")
	who.lost = slices.Contains(args.plain, "lost")
	in.Token = tr.ask(who, "heartbeat")
	tr.step(in)
}

// owned are partitions that a client says it holds, none or some.
func owned(in []TopicPartitions) []TopicPartitions {
	if in == nil {
		return []TopicPartitions{}
	}
	return in
}

// renderBeat prints the answer to a ConsumerGroupHeartbeat, and lets the client take note of it.
func (tr *transcript) renderBeat(who *talker, code int16, body ConsumerHeartbeatReply) string {
	s := ""
	switch {
	case code != ErrNone:
		s = ": " + body.Message
	case body.Epoch < 0:
	default:
		s = fmt.Sprintf(" %s epoch %d", body.MemberID, body.Epoch)
		if body.Assigned {
			s += " reads " + cmpString(body.Share)
		}
	}
	switch {
	case who.lost:
		return s + " (lost)"
	case code == ErrUnknownMemberID, code == ErrFencedMemberEpoch, body.Epoch < 0:
		who.generation, who.told = EpochJoin, nil
		if body.Epoch < 0 {
			who.id = ""
		}
	case code == ErrNone:
		who.id, who.generation = body.MemberID, body.Epoch
		if body.Assigned {
			who.told = body.Share
		}
	}
	return s
}

// describeConsumer prints a consumer group.
func (tr *transcript) describeConsumer(d Description) {
	tr.printf("%s, epoch %d, assignor %q", d.State, d.Generation, d.Assignor)
	for _, m := range d.Members {
		s := m.MemberID
		if m.InstanceID != "" {
			s += " instance " + m.InstanceID
		}
		if m.Consumer {
			s += fmt.Sprintf(" epoch %d", m.Epoch)
		} else {
			s += fmt.Sprintf(" classic generation %d", m.Epoch)
		}
		s += " reads " + cmpString(m.Share)
		if target := cmpString(m.Target); target != cmpString(m.Share) {
			s += ", is to read " + target
		}
		tr.printf("%s", s)
	}
}

// parseTopics reads orders=6 and orders=6/2: partitions and which topic of that name it is.
func parseTopics(named map[string]string) Topics {
	out := Topics{Topics: map[string]Topic{}}
	for name, value := range named {
		count, which, _ := strings.Cut(value, "/")
		partitions, _ := strconv.Atoi(count)
		id, _ := strconv.Atoi(cmp.Or(which, "1"))
		out.Topics[name] = Topic{ID: TopicID{byte(id), name[0]}, Partitions: int32(partitions)}
	}
	return out
}

// restart loads all that was stored into a new group. Whoever waits for an answer gets none.
func (tr *transcript) restart(compacted bool) {
	records := tr.records
	if compacted {
		records = compact(records)
		slices.SortStableFunc(records, tombstonesFirst)
	}
	tr.g = New("g", tr.opts)
	for _, r := range records {
		data, err := json.Marshal(r)
		if err != nil {
			tr.t.Fatal(err)
		}
		var stored Record
		if err := json.Unmarshal(data, &stored); err != nil {
			tr.t.Fatal(err)
		}
		tr.g.Load(stored)
	}
	clear(tr.open)
	tr.step(tr.topics)
	tr.step(tr.plan)
}

func tombstonesFirst(a, b Record) int {
	switch {
	case a.Deleted == b.Deleted:
		return 0
	case a.Deleted:
		return -1
	}
	return 1
}
