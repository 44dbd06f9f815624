// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

type partitions map[assigner.Partition]bool

// checker holds what must be true of a group, and a second account of what clients were given.
type checker struct {
	s      *simulation
	shadow *Group
	now    time.Time

	managed    bool
	generation int32
	// reads is what each member may be reading, by what it was told and said, and lostAt when the group first meant it for another.
	reads  map[string]partitions
	lostAt map[string]map[assigner.Partition]time.Time
	// old are, from before the group was managed: members that have not joined since, and the time.
	old       map[string]bool
	managedAt time.Time
	// timeout is the handoff timeout that was in force before the step.
	timeout time.Duration
}

func newChecker(s *simulation) *checker {
	return &checker{s: s, shadow: New("g", Options{}), reads: map[string]partitions{}, lostAt: map[string]map[assigner.Partition]time.Time{}, old: map[string]bool{}}
}

func (k *checker) errorf(format string, args ...any) {
	k.s.t.Helper()
	k.s.t.Errorf(format, args...)
}

func (k *checker) before(in Input) {
	if k.s.now.After(k.now) {
		k.now = k.s.now
	}
	if k.s.g.managed != nil {
		k.timeout = k.s.g.managed.handoffTimeout
		k.fenceOld()
	}
	p, ok := in.(Plan)
	if !ok || p.Managed == k.managed {
		return
	}
	k.reads, k.lostAt, k.old = map[string]partitions{}, map[string]map[assigner.Partition]time.Time{}, map[string]bool{}
	k.managedAt = k.now
	if p.Managed {
		for id, m := range k.s.g.members {
			if !m.join.waiting {
				k.old[id] = true
			}
		}
	}
}

// fenceOld ends the account of members from before the group was managed.
func (k *checker) fenceOld() {
	if !k.now.Before(k.managedAt.Add(k.s.g.managed.handoffTimeout)) {
		k.old = map[string]bool{}
	}
}

// reply keeps account of what clients may read.
func (k *checker) reply(q openRequest, r Reply) {
	if r.Err != ErrNone {
		return
	}
	switch body := r.Body.(type) {
	case JoinReply:
		in, _ := q.in.(Join)
		if body.Leader != ManagedLeader && k.s.g.managed != nil { // a plan came in the step that ended an ordinary rebalance
			k.old[body.MemberID] = true
			return
		}
		if k.s.g.managed != nil {
			k.joined(in, body.MemberID)
		}
	case SyncReply:
		in, _ := q.in.(Sync)
		if body.Managed {
			k.given(in.Client.MemberID, body.Share)
		}
	case CommitReply:
		in, _ := q.in.(Commit)
		k.committed(in, body)
	}
}

func (k *checker) joined(in Join, id string) {
	delete(k.old, id)
	kept := partitions{}
	if slices.ContainsFunc(in.Protocols, func(p Protocol) bool { return p.Name == "cooperative-sticky" }) {
		for _, tp := range flatten(in.Subscription.Owned) {
			// What nobody held it could claim.
			if holder := k.s.g.managed.holders[tp]; k.reads[id][tp] || (holder != nil && holder.id == id) {
				kept[tp] = true
			}
		}
	}
	for tp := range k.lostAt[id] {
		if !kept[tp] {
			delete(k.lostAt[id], tp)
		}
	}
	k.reads[id] = kept
}

func (k *checker) given(id string, share []TopicPartitions) {
	waiting := false
	for old := range k.old {
		_, alive := k.s.g.members[old]
		waiting = waiting || alive
	}
	for _, tp := range flatten(share) {
		if waiting && !k.reads[id][tp] && k.now.Before(k.managedAt.Add(k.s.g.managed.handoffTimeout)) {
			m := k.s.g.members[id]
			if m == nil || !m.cooperative() {
				k.errorf("%s was given %v while members from before may read it", id, tp)
			}
		}
		if k.reads[id] == nil {
			k.reads[id] = partitions{}
		}
		k.reads[id][tp] = true
	}
}

// committed checks that no commit was taken from a client of a managed group that does not hold the partition.
func (k *checker) committed(in Commit, body CommitReply) {
	if !k.s.g.Managed() || in.Generation < 0 {
		return
	}
	for i, code := range body.Errs {
		tp := assigner.Partition{Topic: in.Offsets[i].Topic, Partition: in.Offsets[i].Partition}
		holder := k.s.g.managed.holders[tp]
		if code == ErrNone && (holder == nil || holder.id != in.Client.MemberID) && !k.old[in.Client.MemberID] {
			k.errorf("a commit of %v was taken from %s, which does not hold it", tp, in.Client.MemberID)
		}
	}
}

// after checks everything.
func (k *checker) after(in Input, out Output) {
	k.checkTokens(in)
	k.checkDeadline(out)
	k.checkMembers()
	k.checkGeneration()
	k.checkOffsets(out)
	if k.s.g.managed != nil {
		k.fenceOld()
		k.checkManaged()
	} else {
		k.checkOrdinary()
	}
}

// checkTokens: every open token is a member's waiting request, and was not asked longer ago than a rebalance may take.
func (k *checker) checkTokens(in Input) {
	waiting := map[Token]bool{}
	for _, m := range k.s.g.members {
		for _, w := range []waiter{m.join, m.sync} {
			if w.waiting {
				waiting[w.token] = true
			}
		}
	}
	for token, q := range k.s.open {
		if !waiting[token] {
			k.errorf("step %d: token %d of %T is open, and nobody waits for it; now %T", k.s.steps, token, q.in, in)
		}
		if k.now.Sub(q.asked) > longestRebalance {
			k.errorf("token %d waits since %s", token, k.now.Sub(q.asked))
		}
	}
	for token := range waiting {
		if _, ok := k.s.open[token]; !ok {
			k.errorf("a member waits with token %d, which was answered", token)
		}
	}
}

func (k *checker) checkDeadline(out Output) {
	if !out.Deadline.IsZero() && !out.Deadline.After(k.now) {
		k.errorf("at %s the deadline is %s", k.now, out.Deadline)
	}
	if out.Deadline.IsZero() && len(k.s.g.members)+len(k.s.g.pending) > 0 {
		k.errorf("there are members and nothing ever expires")
	}
	for _, m := range k.s.g.members {
		if e := m.expiry(); !e.IsZero() && !e.After(k.now) {
			k.errorf("member %s should have expired at %s", m.id, e)
		}
		if e := m.expiry(); !out.Deadline.IsZero() && !e.IsZero() && e.Before(out.Deadline) {
			k.errorf("member %s expires at %s, before the deadline", m.id, e)
		}
	}
}

func (k *checker) checkMembers() {
	g := k.s.g
	if len(g.members)+len(g.pending) > g.opts.MaxMembers {
		k.errorf("%d members and %d ids, more than %d", len(g.members), len(g.pending), g.opts.MaxMembers)
	}
	for id := range g.pending {
		if g.members[id] != nil {
			k.errorf("%s is a member and is awaited as one", id)
		}
	}
	static := 0
	for id, m := range g.members {
		if m.id != id || (m.instanceID != "" && g.static[m.instanceID] != id) {
			k.errorf("member %s is known as %s, its instance as %s", m.id, id, g.static[m.instanceID])
		}
		if m.instanceID != "" {
			static++
		}
	}
	if static != len(g.static) {
		k.errorf("%d static members, %d instance ids", static, len(g.static))
	}
}

func (k *checker) checkGeneration() {
	g := k.s.g
	if now := g.Generation(); now < k.generation && g.Managed() == k.managed {
		k.errorf("the generation fell from %d to %d", k.generation, now)
	}
	k.generation, k.managed = g.Generation(), g.Managed()
}

func (k *checker) checkOffsets(out Output) {
	for _, r := range out.Records {
		k.shadow.Load(r)
	}
	if len(out.Records) == 0 {
		return
	}
	if diff := cmp.Diff(k.s.g.Offsets(), k.shadow.Offsets()); diff != "" {
		k.errorf("the records give other offsets:\n%s", diff)
	}
}

// checkOrdinary: requests wait in their states alone, and the protocol is one that all offer.
func (k *checker) checkOrdinary() {
	g := k.s.g
	o := g.ordinary
	if (o.state == StateEmpty) != (len(g.members) == 0) {
		k.errorf("%s with %d members", o.state, len(g.members))
	}
	if (o.state == StatePreparingRebalance) == o.due.IsZero() {
		k.errorf("%s until %s", o.state, o.due)
	}
	for _, m := range g.members {
		if m.join.waiting && o.state != StatePreparingRebalance || m.sync.waiting && o.state != StateCompletingRebalance {
			k.errorf("%s waits (join %t, sync %t) in %s", m.id, m.join.waiting, m.sync.waiting, o.state)
		}
		if o.state != StatePreparingRebalance && !m.offers(o.protocol) {
			k.errorf("%s does not offer %q", m.id, o.protocol)
		}
		if m.stale && o.state != StatePreparingRebalance {
			k.errorf("%s is stale in %s", m.id, o.state)
		}
	}
	if o.state == StateCompletingRebalance || o.state == StateStable {
		if g.members[o.leader] == nil {
			k.errorf("%s, and the leader %q is no member", o.state, o.leader)
		}
	}
}

// checkManaged: a partition has one holder at most; whoever may be reading one is its holder, or was fenced after the handoff timeout.
func (k *checker) checkManaged() {
	g := k.s.g
	holds := map[assigner.Partition]string{}
	for id, m := range g.members {
		if m.join.waiting || m.sync.waiting {
			k.errorf("%s waits in a managed group", id)
		}
		for tp := range m.client.held {
			if other, ok := holds[tp]; ok || g.managed.holders[tp] != m {
				k.errorf("%v is held by %s and by %q", tp, id, other)
			}
			holds[tp] = id
		}
		k.checkReads(m)
	}
	if len(holds) != len(g.managed.holders) {
		k.errorf("%d partitions are held, and there are %d holders", len(holds), len(g.managed.holders))
	}
	for id := range k.reads {
		if g.members[id] == nil {
			delete(k.reads, id)
			delete(k.lostAt, id)
		}
	}
	blockers := 0
	for _, m := range g.members {
		if m.client.blocking {
			blockers++
		}
	}
	if blockers != g.managed.blockers {
		k.errorf("%d blockers, counted %d", blockers, g.managed.blockers)
	}
	k.checkTargets()
}

// checkReads compares what a member may be reading with what the group holds it to.
func (k *checker) checkReads(m *groupMember) {
	g := k.s.g
	lost := k.lostAt[m.id]
	if lost == nil {
		lost = map[assigner.Partition]time.Time{}
		k.lostAt[m.id] = lost
	}
	for tp := range k.reads[m.id] {
		since := lost[tp]
		if since.IsZero() {
			since = k.now
		}
		own := slices.Contains(m.client.target, tp)
		moved := m.client.moved[tp] // it may have been given back and taken anew in this step
		if !own && moved.Equal(k.now) {
			since = moved
		}
		switch held := g.managed.holders[tp] == m; {
		case held && own:
			delete(lost, tp)
		case held && !k.now.Before(since.Add(g.managed.handoffTimeout)):
			k.errorf("%s should have been fenced from %v", m.id, tp)
		case held:
			lost[tp] = since
		case k.now.Before(since.Add(min(k.timeout, g.managed.handoffTimeout))):
			k.errorf("%s may be reading %v, which it does not hold", m.id, tp)
		default: // fenced in this step
			delete(k.reads[m.id], tp)
			delete(lost, tp)
		}
	}
}

// checkTargets: the targets of a pod's clients are its share, as far as they read its topics, each partition once.
func (k *checker) checkTargets() {
	g := k.s.g
	of := map[assigner.Partition]string{}
	for id, m := range g.members {
		for _, tp := range m.client.target {
			if other, ok := of[tp]; ok {
				k.errorf("%v is meant for %s and %s", tp, id, other)
			}
			of[tp] = id
			if !slices.Contains(g.managed.pods[m.client.pod].share, tp) || !slices.Contains(m.subscription.Topics, tp.Topic) {
				k.errorf("%s is to get %v, which is not its pod's or not of its topics", id, tp)
			}
		}
	}
	for name, pod := range g.managed.pods {
		for _, tp := range pod.share {
			for id, m := range g.members {
				if m.client.pod == name && !m.client.opaque && slices.Contains(m.subscription.Topics, tp.Topic) && of[tp] == "" {
					k.errorf("%v is meant for nobody, though %s could read it", tp, id)
				}
			}
		}
	}
}

// settled checks a group whose clients have behaved long enough.
func (k *checker) settled() {
	g := k.s.g
	if state := g.State(); state != StateStable {
		k.errorf("the group is %s", state)
	}
	if len(g.members) != len(k.s.clients) || len(k.s.open) > 0 {
		k.errorf("%d members of %d clients, %d requests wait", len(g.members), len(k.s.clients), len(k.s.open))
	}
	if g.managed == nil {
		return
	}
	for _, c := range k.s.clients {
		m := g.members[c.id]
		if m == nil {
			k.errorf("client %d is no member", c.index)
			continue
		}
		if diff := cmp.Diff(group(m.client.target), c.reading); diff != "" {
			k.errorf("client %d does not read its part (-want +got):\n%s", c.index, diff)
		}
		if len(m.client.held) != len(m.client.target) {
			k.errorf("client %d holds %v", c.index, m.client.held)
		}
	}
}
