// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// plan is what the controller changes. Its lists are sorted.
type plan struct {
	// takenIn are brokers whose processes are taken in, gone those whose registration has expired.
	takenIn []broker
	gone    []int32
	// deleted are deleted topics whose records another broker process is to remove.
	deleted []gone
	// led are the topics whose leaders change, with all their leaders.
	led map[string]leaders
	// moved is how many partitions have another leader than before, or their first.
	moved int
}

func (p *plan) empty() bool { return len(p.takenIn)+len(p.gone)+len(p.deleted)+len(p.led) == 0 }

// ids are those of the brokers taken in.
func (p *plan) ids() []int32 {
	ids := make([]int32, len(p.takenIn))
	for i, b := range p.takenIn {
		ids[i] = b.id
	}
	return ids
}

// planFor decides who leads what: the partitions of brokers that are gone, and new ones, are given to those that are there, and from one that leads more
// than its share only what must move is taken. It depends on nothing but the state; instance is that of the broker that removes the records of deleted
// topics where the one that should is gone.
func planFor(s *state, instance string) plan {
	p := plan{led: map[string]leaders{}}
	live := map[int32]bool{}    // brokers that are there
	renewed := map[int32]bool{} // of those the ones whose process is another than the one that led before
	instances := map[string]bool{}
	for _, b := range s.brokers {
		switch {
		case !b.live:
			p.gone = append(p.gone, b.id)
			continue
		case !b.leads():
			renewed[b.id] = true
			p.takenIn = append(p.takenIn, b)
		}
		live[b.id] = true
		instances[b.Instance] = true
	}
	if len(live) == 0 {
		return plan{}
	}
	for _, d := range s.deleted {
		if !instances[d.instance] {
			p.deleted = append(p.deleted, gone{Incarnation: d.Incarnation, instance: instance})
		}
	}
	owners := share(s, live)
	for name, t := range s.topics {
		if next, moved, changed := t.led.follow(owners[name], renewed, s); changed {
			p.led[name] = next
			p.moved += moved
		}
	}
	return p
}

// share gives each partition an owner among the live brokers, by topic and partition.
func share(s *state, live map[int32]bool) map[string][]int32 {
	in := assignment(s, live)
	owners := make(map[string][]int32, len(s.topics))
	for name, t := range s.topics {
		owners[name] = make([]int32, t.partitions)
	}
	for member, partitions := range (assigner.ConsistentHash{}).Assign(in) {
		id, _ := strconv.ParseInt(member, 10, 32) // assignment wrote it
		for _, part := range partitions {
			owners[part.Topic][part.Partition] = int32(id)
		}
	}
	return owners
}

// assignment is what the assigner is to solve: the live brokers are its members, and who leads now is the assignment to start from.
func assignment(s *state, live map[int32]bool) assigner.Input {
	names := slices.Sorted(maps.Keys(s.topics))
	in := assigner.Input{Partitions: make(map[string]int32, len(names)), Previous: assigner.Assignment{}}
	for _, id := range slices.Sorted(maps.Keys(live)) {
		in.Members = append(in.Members, assigner.Member{ID: strconv.Itoa(int(id)), Topics: names})
	}
	for _, name := range names {
		t := s.topics[name]
		in.Partitions[name] = t.partitions
		for partition, leader := range t.led.Leaders {
			if live[leader] {
				member := strconv.Itoa(int(leader))
				in.Previous[member] = append(in.Previous[member], assigner.Partition{Topic: name, Partition: int32(partition)})
			}
		}
	}
	return in
}

// follow returns a topic's leaders once owners lead: the epoch of a partition grows by one where its leader is another broker, or another process of the same
// one. moved is how many partitions have another broker or their first.
func (l leaders) follow(owners []int32, renewed map[int32]bool, s *state) (next leaders, moved int, changed bool) {
	next = leaders{Leaders: slices.Clone(l.Leaders), Epochs: slices.Clone(l.Epochs), Since: slices.Clone(l.Since)}
	for p, owner := range owners {
		switch {
		case p >= len(l.Leaders):
			next.Leaders, next.Epochs, next.Since = append(next.Leaders, owner), append(next.Epochs, s.floor), append(next.Since, s.now.UnixMilli())
			moved++
		case l.Leaders[p] != owner || renewed[owner]:
			if l.Leaders[p] != owner {
				moved++
			}
			next.Leaders[p], next.Epochs[p], next.Since[p] = owner, l.Epochs[p]+1, s.now.UnixMilli()
		default:
			continue
		}
		changed = true
	}
	return next, moved, changed
}

// args are the plan's arguments for the script assign.
func (p *plan) args(s *state) ([]string, error) {
	args := []string{strconv.Itoa(len(p.takenIn))}
	for _, b := range p.takenIn {
		args = append(args, strconv.Itoa(int(b.id)), b.Instance)
	}
	args = append(args, strconv.Itoa(len(p.gone)))
	for _, id := range p.gone {
		args = append(args, strconv.Itoa(int(id)))
	}
	args = append(args, strconv.Itoa(len(p.deleted)))
	for _, d := range p.deleted {
		raw, err := d.encode()
		if err != nil {
			return nil, err
		}
		args = append(args, metadata.EncodeID(d.ID), raw)
	}
	args = append(args, strconv.Itoa(len(p.led)))
	for _, name := range slices.Sorted(maps.Keys(p.led)) {
		raw, err := json.Marshal(p.led[name])
		if err != nil {
			return nil, err
		}
		args = append(args, name, s.topics[name].raw, string(raw))
	}
	return args, nil
}

// encode writes the value of a deleted topic.
func (g gone) encode() (string, error) {
	raw, err := json.Marshal(goneJSON{Name: g.Topic, Instance: g.instance})
	return string(raw), err
}
