// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// create adds a topic with an id of its own.
func (s *simulation) create(name string, partitions int32) {
	s.ids++
	topics := maps.Clone(s.topics)
	topics[name] = Topic{ID: TopicID{s.ids}, Partitions: partitions}
	s.topics = topics
}

// changeTopics lets a topic grow, vanish or come, at times under a name that there was before.
func (s *simulation) changeTopics() {
	name := []string{"orders", "payments", "log-1", "log-2", "log-3"}[s.rng.IntN(5)]
	t, there := s.topics[name]
	chance := s.rng.IntN(9)
	switch {
	case !there:
		s.create(name, 1+s.rng.Int32N(6))
	case chance < 3:
		s.create(name, 1+s.rng.Int32N(8)) // created anew between two looks at it
	case chance < 5:
		topics := maps.Clone(s.topics)
		delete(topics, name)
		s.topics = topics
	case t.Partitions < 10:
		topics := maps.Clone(s.topics)
		t.Partitions += 1 + s.rng.Int32N(2)
		topics[name] = t
		s.topics = topics
	}
	s.step(Topics{Topics: s.topics})
}

// crash ends the coordinator between two steps.
func (s *simulation) crash() {
	s.reload()
}

// reload builds the group anew from its log, as it is or compacted. Whoever waited for an answer gets none.
func (s *simulation) reload() {
	records := s.log
	switch s.rng.IntN(3) {
	case 0:
		records = compact(records)
	case 1:
		records = compact(records)
		slices.SortStableFunc(records, tombstonesFirst)
	}
	s.rebuild(records)
}

// rebuild makes a group of records, and tells it what a broker tells a group that it begins to serve.
func (s *simulation) rebuild(records []Record) {
	stored := make([]Record, 0, len(records))
	for _, r := range records {
		stored = append(stored, s.throughJSON(r))
	}
	s.log = stored
	s.g = New("g", s.opts)
	if s.twin != nil {
		s.twin = New("g", s.opts)
	}
	for _, r := range stored {
		s.g.Load(r)
		if s.twin != nil {
			s.twin.Load(r)
		}
	}
	for _, q := range s.open {
		q.client.open--
		q.client.deaf = false
		if q.client.consumer {
			q.client.lose()
		}
	}
	clear(s.open)
	s.next = s.now // a group that was loaded is to be looked at
	deleted := records == nil
	for _, r := range records {
		if r.Kind == GroupRecord {
			deleted = r.Deleted // the crash came right after it
		}
	}
	s.chk.restarted(deleted)
	s.step(Topics{Topics: s.topics})
	if s.world != nil {
		s.plan = s.world.plan()
	} else if s.rng.IntN(4) == 0 && s.mix.managed {
		s.plan = s.randomPlan(s.plan.Generation + 1)
	}
	s.step(s.plan)
}

// throughJSON is a record as it is when it was stored.
func (s *simulation) throughJSON(r Record) Record {
	data, err := json.Marshal(r)
	var back Record
	if err == nil {
		err = json.Unmarshal(data, &back)
	}
	if err != nil {
		s.t.Errorf("store %+v: %v", r, err)
	}
	return back
}

// compact keeps the last record of each key, in their order.
func compact(records []Record) []Record {
	seen := map[string]bool{}
	var out []Record
	for _, r := range slices.Backward(records) {
		if key := recordKey(r); !seen[key] {
			seen[key] = true
			out = append(out, r)
		}
	}
	slices.Reverse(out)
	return out
}

// recordKey is the key that a record is stored under.
func recordKey(r Record) string {
	return fmt.Sprintf("%d/%s/%d/%s", r.Kind, r.Topic, r.Partition, r.MemberID)
}
