// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// there is a registered broker, whose process the controller has taken in as takenIn.
func there(id int32, instance, takenIn string) broker {
	return broker{id: id, live: true, takenIn: takenIn, registration: registration{Host: "h", Port: 1, Instance: instance}}
}

func TestWhatTheControllerDecides(t *testing.T) {
	const then, now = 1000, 5000
	led := func(ids, epochs []int32, since ...int64) leaders {
		return leaders{Leaders: ids, Epochs: epochs, Since: since}
	}
	for name, c := range map[string]struct {
		brokers []broker
		led     leaders
		deleted []gone
		want    plan
	}{
		"nothing is to be done": {
			brokers: []broker{there(1, "a", "a")},
			led:     led([]int32{1, 1}, []int32{3, 0}, then, then),
			want:    plan{led: map[string]leaders{}},
		},
		"new partitions begin at the floor": {
			brokers: []broker{there(1, "a", "a")},
			led:     led([]int32{1}, []int32{3}, then),
			want:    plan{led: map[string]leaders{"orders": led([]int32{1, 1}, []int32{3, 7}, then, now)}, moved: 1},
		},
		"a broker that is gone leads no more": {
			brokers: []broker{there(1, "a", "a"), {id: 2, takenIn: "b"}},
			led:     led([]int32{2, 1}, []int32{3, 0}, then, then),
			want:    plan{gone: []int32{2}, led: map[string]leaders{"orders": led([]int32{1, 1}, []int32{4, 0}, now, then)}, moved: 1},
		},
		"another process under the same id leads in a new epoch": {
			brokers: []broker{there(1, "b", "a")},
			led:     led([]int32{1, 1}, []int32{3, 0}, then, then),
			want:    plan{takenIn: []broker{there(1, "b", "a")}, led: map[string]leaders{"orders": led([]int32{1, 1}, []int32{4, 1}, now, now)}},
		},
		"a process that has not been taken in takes half": {
			brokers: []broker{there(1, "a", "a"), there(2, "b", "")},
			led:     led([]int32{1, 1}, []int32{3, 3}, then, then),
			want:    plan{takenIn: []broker{there(2, "b", "")}, moved: 1},
		},
		"records of a deleted topic are removed by another where the first is gone": {
			brokers: []broker{there(1, "a", "a")},
			led:     led([]int32{1, 1}, []int32{3, 0}, then, then),
			deleted: []gone{{Incarnation: metadata.Incarnation{Topic: "x"}, instance: "gone"}, {Incarnation: metadata.Incarnation{Topic: "y"}, instance: "a"}},
			want:    plan{deleted: []gone{{Incarnation: metadata.Incarnation{Topic: "x"}, instance: "me"}}, led: map[string]leaders{}},
		},
		"nobody is there": {
			brokers: []broker{{id: 2, takenIn: "b"}},
			led:     led([]int32{2, 2}, []int32{3, 0}, then, then),
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &state{
				now: time.UnixMilli(now), floor: 7, brokers: c.brokers, deleted: c.deleted,
				topics: map[string]*topic{"orders": {partitions: 2, led: c.led}},
			}
			got := planFor(s, "me")
			if c.want.led == nil && len(got.led) == 1 { // which of the two moves is the assigner's to say
				if ids := slices.Sorted(slices.Values(got.led["orders"].Leaders)); !slices.Equal(ids, []int32{1, 2}) {
					t.Errorf("leaders %v", ids)
				}
				got.led = nil
			}
			all := cmp.AllowUnexported(plan{}, broker{}, registration{}, gone{})
			if diff := cmp.Diff(c.want, got, all, cmp.AllowUnexported(leaders{})); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever brokers come and go and whatever topics there are, a plan moves the minimum, epochs grow by one where the leader changes, and a second plan is empty.
func TestRandomPlans(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	s := &state{topics: map[string]*topic{}}
	instance := 0
	for range 2000 {
		next := &state{now: time.UnixMilli(rng.Int64N(1e12)), floor: s.floor, topics: map[string]*topic{}}
		for id := range int32(6) {
			b, found := s.find(id + 1)
			switch rng.IntN(6) {
			case 0:
				b.live = false
			case 1:
				instance++
				b = there(id+1, fmt.Sprint(instance), b.takenIn)
				found = true
			}
			if found {
				next.brokers = append(next.brokers, b)
			}
		}
		for name, topic := range s.topics {
			if rng.IntN(20) > 0 {
				grown := *topic
				grown.partitions += int32(rng.IntN(2) * rng.IntN(3))
				next.topics[name] = &grown
			}
		}
		if rng.IntN(4) == 0 {
			next.topics[fmt.Sprint(rng.IntN(6))] = &topic{partitions: int32(rng.IntN(20) + 1)}
		}
		s = checkPlan(t, next)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// checkPlan checks the plan for a state, and returns the state once it is carried out.
func checkPlan(t *testing.T, s *state) *state {
	t.Helper()
	p := planFor(s, "me")
	live := map[int32]bool{}
	after := &state{now: s.now, floor: s.floor, topics: map[string]*topic{}}
	for _, b := range s.brokers {
		if b.live {
			live[b.id] = true
			b.takenIn = b.Instance
			after.brokers = append(after.brokers, b)
		}
	}
	if len(live) == 0 {
		if !p.empty() {
			t.Errorf("with nobody there: %+v", p)
		}
		return s
	}
	for name, before := range s.topics {
		changed := *before
		if led, found := p.led[name]; found {
			changed.led = led
		}
		after.topics[name] = &changed
		if len(changed.led.Leaders) != int(before.partitions) {
			t.Errorf("%s: %d of %d partitions have leaders", name, len(changed.led.Leaders), before.partitions)
		}
		for part, leader := range changed.led.Leaders {
			b, _ := s.find(leader)
			switch {
			case !live[leader]:
				t.Errorf("%s/%d is led by %d, which is not there", name, part, leader)
			case part >= len(before.led.Leaders):
			case before.led.Leaders[part] == leader && b.takenIn == b.Instance:
				if changed.led.Epochs[part] != before.led.Epochs[part] {
					t.Errorf("%s/%d: the epoch has grown, and the leader is the same", name, part)
				}
			case changed.led.Epochs[part] != before.led.Epochs[part]+1:
				t.Errorf("%s/%d: epoch %d after %d", name, part, changed.led.Epochs[part], before.led.Epochs[part])
			}
		}
	}
	in := assignment(s, live)
	if fewest := assigner.Minimum(in); p.moved != fewest {
		t.Errorf("%d partitions moved, want %d", p.moved, fewest)
	}
	if again := planFor(after, "me"); !again.empty() {
		t.Errorf("a second plan: %+v", again)
	}
	if args, err := p.args(s); err != nil || len(args) != 4+2*len(p.takenIn)+len(p.gone)+2*len(p.deleted)+3*len(p.led) {
		t.Errorf("arguments %q, %v", args, err)
	}
	return after
}
