// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"slices"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// checkDecision looks at a decision of an operator: what is read is read once, no more moves than has to, and deciding again changes nothing.
func (w *world) checkDecision(in PodsInput, out PodsOutput) {
	s := w.s
	if out.Generation < in.Generation || (out.Generation > in.Generation) != out.Changed {
		s.t.Errorf("generation %d after %d, changed %t", out.Generation, in.Generation, out.Changed)
	}
	owners, sharing := map[assigner.Partition]string{}, 0
	for _, seat := range out.Seats {
		if seat.Phase == SeatStandby && len(seat.Share) > 0 || in.Paused && len(seat.Share) > 0 || (seat.Phase == SeatGrace) == seat.Deadline.IsZero() {
			s.t.Errorf("a seat that cannot be: %+v, paused %t", seat, in.Paused)
		}
		if seat.Phase != SeatStandby {
			sharing++
		}
		for _, tp := range flatten(seat.Share) {
			if other, twice := owners[tp]; twice {
				s.t.Errorf("%v is meant for %s and %s", tp, other, seat.Pod)
			}
			owners[tp] = seat.Pod
		}
	}
	all := 0
	for _, n := range in.Topics {
		all += int(n)
	}
	if !in.Paused && sharing > 0 && len(owners) != all {
		s.t.Errorf("%d of %d partitions have an owner among %d pods", len(owners), all, sharing)
	}
	balanced := in.Assigner == nil || in.Assigner.Name() == "Sticky"
	if balanced && !in.Paused && out.Moved != out.Minimum {
		s.t.Errorf("%d partitions moved, %d suffice: %+v", out.Moved, out.Minimum, out)
	}
	if moved := movedOwners(in.Seats, owners); out.Changed && moved != out.Moved {
		s.t.Errorf("%d partitions moved, and %d are told: %+v -> %+v", moved, out.Moved, in.Seats, out.Seats)
	}
	w.checkAgain(in, out)
}

// movedOwners is how many partitions have another owner than before.
func movedOwners(before []Seat, owners map[assigner.Partition]string) (moved int) {
	was := map[assigner.Partition]string{}
	for _, seat := range before {
		for _, tp := range flatten(seat.Share) {
			was[tp] = seat.Pod
		}
	}
	for tp, owner := range owners {
		if was[tp] != owner {
			moved++
		}
	}
	return moved
}

// checkAgain: an unchanged world changes nothing.
func (w *world) checkAgain(in PodsInput, out PodsOutput) {
	in.Seats, in.Generation, in.WasPaused = out.Seats, out.Generation, in.Paused
	in.Pods = slices.Clone(in.Pods)
	slices.Reverse(in.Pods)
	again := Decide(w.s.now, in)
	if diff := difference(out.Seats, again.Seats); diff != "" || again.Changed {
		w.s.t.Errorf("deciding again changes something (-first +second):\n%s\nat %s with %+v", diff, w.s.now, in)
	}
}

// checkWrite: the generation of a group never falls, and one generation is one assignment.
func (w *world) checkWrite(before, after apiGroup) {
	if before.uid != after.uid || after.generation < before.generation {
		w.s.t.Errorf("generation %d of %s follows %d of %s", after.generation, after.uid, before.generation, before.uid)
	}
	if after.generation == before.generation && difference(shares(before.seats), shares(after.seats)) != "" {
		w.s.t.Errorf("generation %d is of %+v and of %+v", after.generation, before.seats, after.seats)
	}
}

// shares is who reads what.
func shares(seats []Seat) map[string][]TopicPartitions {
	out := map[string][]TopicPartitions{}
	for _, seat := range seats {
		if len(seat.Share) > 0 {
			out[seat.Pod] = seat.Share
		}
	}
	return out
}

// checkZombie: a broker that no longer coordinates the group takes no commit.
func (w *world) checkZombie(in Input, r Reply) {
	body, ok := r.Body.(CommitReply)
	if !ok || r.Err != ErrNone {
		return
	}
	if slices.Contains(body.Errs, ErrNone) {
		w.s.t.Errorf("a broker that cannot store anything takes %+v", in)
	}
}

// longestOrphan is how long a partition may have no reader when all is well: a consumer that is gone is noticed at the end of its session, or its pod's at the end of its grace period; one that does not let go is
// fenced; and whoever gets the partition hears of it with its next heartbeat.
const longestOrphan = longestSession + longestHandoff + 10*time.Second + 20*time.Second

// checkOwners: no partition is without a reader for long.
func (w *world) checkOwners() {
	s := w.s
	now := map[assigner.Partition]bool{}
	for tp := range w.readable() {
		if s.chk.owners[tp] != nil {
			continue
		}
		now[tp] = true
		if w.orphaned[tp].IsZero() {
			w.orphaned[tp] = s.now
		}
		if since := s.now.Sub(w.orphaned[tp]); since > longestOrphan {
			s.t.Errorf("nobody has read %v for %s", tp, since)
		}
	}
	for tp := range w.orphaned {
		if !now[tp] {
			delete(w.orphaned, tp)
		}
	}
}

// readable are the partitions that a consumer of the pod that is to read them could read.
func (w *world) readable() map[assigner.Partition]bool {
	out := map[assigner.Partition]bool{}
	for _, seat := range w.groups.last().seats {
		p := w.running[seat.Pod]
		if p == nil {
			continue
		}
		for _, tp := range flatten(seat.Share) {
			for _, c := range p.clients {
				topics := c.beat.Topics
				if !c.consumer {
					topics = c.template.Subscription.Topics
				}
				if slices.Contains(topics, tp.Topic) {
					out[tp] = true
				}
			}
		}
	}
	return out
}

// checkSettled: each pod that is alive has a seat, what is to be read is read, and nobody decides anything more.
func (w *world) checkSettled() {
	s := w.s
	last := w.groups.last()
	versions := len(w.groups.all)
	w.operators[0].catchUp(w)
	if len(w.groups.all) != versions {
		s.t.Errorf("the operator writes though nothing has changed (-before +after):\n%s", difference(last, w.groups.last()))
	}
	for _, seat := range last.seats {
		if p := w.running[seat.Pod]; p == nil || p.uid != seat.UID || seat.Phase != SeatActive {
			s.t.Errorf("%+v is a seat, and the pod is %+v", seat, p)
		}
	}
	if len(last.seats) != len(w.running) {
		s.t.Errorf("%d seats of %d pods", len(last.seats), len(w.running))
	}
	for tp := range w.readable() {
		if s.chk.owners[tp] == nil {
			s.t.Errorf("nobody reads %v", tp)
		}
	}
}
