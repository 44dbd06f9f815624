// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// checker holds what must be true of a group after every step.
type checker struct {
	s   *simulation
	now time.Time

	kind       GroupType
	generation int32
	// owners is who reads each partition, by what the clients believe; belief counts only where the group would still hear of it.
	owners map[assigner.Partition]*simClient
	// moved is since when a member of a consumer group holds what is not its own.
	moved map[string]map[assigner.Partition]time.Time
	// holders are who held each partition before the step.
	holders map[assigner.Partition]string
	// targets are what members were to read before the step, ids the member of each instance id.
	targets map[string][]assigner.Partition
	static  map[string]string
	// held are when the heartbeats that were held before the step were to be answered, by member id.
	held map[string]time.Time
	// input is the step's, and single says that the step is one input, with nothing that was due before.
	input  Input
	single bool
	turn   int
}

func newChecker(s *simulation) *checker {
	return &checker{
		s: s, owners: map[assigner.Partition]*simClient{}, moved: map[string]map[assigner.Partition]time.Time{},
		holders: map[assigner.Partition]string{}, targets: map[string][]assigner.Partition{}, static: map[string]string{}, held: map[string]time.Time{},
	}
}

func (k *checker) errorf(format string, args ...any) {
	k.s.t.Helper()
	k.s.t.Errorf(format, args...)
}

func (k *checker) before(in Input) {
	_, tick := in.(Tick)
	k.input, k.single = in, tick || !k.s.due()
	if k.s.now.After(k.now) {
		k.now = k.s.now
	}
	g := k.s.g
	clear(k.held)
	for id, b := range g.held.of {
		k.held[id] = b.due
	}
	clear(k.holders)
	if g.handoff != nil {
		for tp, m := range g.handoff.holders {
			k.holders[tp] = m.id
		}
	}
	clear(k.targets)
	clear(k.static)
	k.kind = g.Type()
	if k.kind != TypeConsumer {
		return
	}
	for id, m := range g.members {
		k.targets[id] = m.client.target
		if m.instanceID != "" {
			k.static[m.instanceID] = id
		}
	}
}

// restarted takes note that the coordinator was loaded anew, or (deleted) that its group is gone.
func (k *checker) restarted(deleted bool) {
	clear(k.moved)
	k.now = k.s.now // its clock may be behind that of the one before
	if deleted {
		k.generation = 0
	}
}

// reply checks an answer by itself.
func (k *checker) reply(q openRequest, r Reply) {
	k.checkGiven(r)
	k.checkTold(r)
	k.checkAnswered(q, r)
	k.checkCommit(q, r)
}

// checkGiven: a member of KIP-848's protocol that is answered and has nothing to give up has got what is its own and nobody holds, so that no partition is without an owner for
// longer than its member takes to ask.
func (k *checker) checkGiven(r Reply) {
	body, ok := r.Body.(ConsumerHeartbeatReply)
	g := k.s.g
	m := g.members[body.MemberID]
	if !ok || r.Err != ErrNone || !k.single || m == nil || m.consumer == nil || m.consumer.away || len(m.client.moved) > 0 || g.handoff.blockers > 0 {
		return
	}
	for _, tp := range m.client.target {
		if g.handoff.holders[tp] == nil {
			k.errorf("%s was answered, and %v has no owner though it is meant for it", m.id, tp)
		}
	}
}

// checkTold: a member of KIP-848's protocol that is yet to give something up is told of nothing new.
func (k *checker) checkTold(r Reply) {
	body, ok := r.Body.(ConsumerHeartbeatReply)
	if !ok || r.Err != ErrNone || !body.Assigned || !k.single {
		return
	}
	m := k.s.g.members[body.MemberID]
	if m == nil || len(m.client.moved) == 0 {
		return
	}
	for _, tp := range flatten(body.Share) {
		if k.holders[tp] != m.id {
			k.errorf("%s is told to read %v, and is yet to give up %v", m.id, tp, moving(m))
		}
	}
}

// checkCommit: no commit is taken from a client for what another one reads.
func (k *checker) checkCommit(q openRequest, r Reply) {
	body, ok := r.Body.(CommitReply)
	if !ok || r.Err != ErrNone {
		return
	}
	in, _ := q.in.(Commit)
	m := k.s.g.members[in.Client.MemberID]
	if m == nil || in.Client.MemberID != q.client.id {
		return
	}
	if (k.s.g.handoff == nil || m.client.opaque) && (q.client.late || !q.client.reads(in.Offsets)) {
		return // the group does not know what is whose
	}
	for i, code := range body.Errs {
		tp := assigner.Partition{Topic: in.Offsets[i].Topic, Partition: in.Offsets[i].Partition}
		if owner := k.owners[tp]; code == ErrNone && owner != nil && owner != q.client {
			k.errorf("a commit of %v was taken from client %d, and client %d reads it", tp, q.client.index, owner.index)
		}
	}
}

// reads says whether the client reads all these partitions.
func (c *simClient) reads(offsets []OffsetCommit) bool {
	return !slices.ContainsFunc(offsets, func(o OffsetCommit) bool {
		_, ok := c.reading[assigner.Partition{Topic: o.Topic, Partition: o.Partition}]
		return !ok
	})
}

// after checks everything.
func (k *checker) after(in Input, out Output) {
	k.checkTokens(in)
	k.checkHeld(in, out)
	k.checkDeadline(out)
	k.checkMembers()
	k.checkGeneration()
	k.checkStored()
	k.checkHolders()
	if k.s.g.consumer == nil {
		clear(k.moved)
	}
	switch g := k.s.g; {
	case g.managed != nil:
		k.checkManaged()
	case g.consumer != nil:
		k.checkConsumer()
	default:
		k.checkOrdinary()
	}
	k.checkBeliefs()
}

// checkTokens: every open token is a member's waiting request, and was not asked longer ago than a rebalance may take.
func (k *checker) checkTokens(in Input) {
	waiting := map[Token]bool{}
	for _, m := range k.s.g.members {
		for _, w := range []waiter{m.join, m.sync, m.beat} {
			if w.waiting {
				waiting[w.token] = true
			}
		}
	}
	for _, b := range k.s.g.held.of {
		waiting[b.in.Token] = true
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
	g := k.s.g
	if !out.Deadline.IsZero() && !out.Deadline.After(k.now) {
		k.errorf("at %s the deadline is %s", k.now, out.Deadline)
	}
	if out.Deadline.IsZero() && len(g.members)+len(g.pending) > 0 {
		k.errorf("there are members and nothing ever expires")
	}
	for _, m := range g.members {
		e := m.expiry()
		if !e.IsZero() && !e.After(k.now) {
			k.errorf("member %s should have expired at %s", m.id, e)
		}
		if g.consumer != nil {
			e = earliest(e, m.overdue())
		}
		if e = earliest(e, m.syncDue); !out.Deadline.IsZero() && !e.IsZero() && e.Before(out.Deadline) {
			k.errorf("member %s expires at %s, before the deadline %s", m.id, e, out.Deadline)
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
		if m.order >= g.joins {
			k.errorf("%s was the %d. to join of %d", id, m.order, g.joins)
		}
	}
	if static != len(g.static) {
		k.errorf("%d static members, %d instance ids", static, len(g.static))
	}
	if len(g.sorted) != len(g.members) || !slices.IsSortedFunc(g.sorted, func(a, b *groupMember) int { return compareID(a, b.id) }) {
		k.errorf("%d members, sorted %d", len(g.members), len(g.sorted))
	}
	for _, m := range g.sorted {
		if g.members[m.id] != m {
			k.errorf("%s is among the sorted members alone", m.id)
		}
	}
}

func (k *checker) checkGeneration() {
	g := k.s.g
	now := g.ordinary.generation
	if now < k.generation {
		k.errorf("the generation fell from %d to %d", k.generation, now)
	}
	k.generation = now
}

// checkStored compares what is stored with what there is: the group, and one member with every step.
func (k *checker) checkStored() {
	g := k.s.g
	if stored, now := g.stored.group, g.groupState(); stored != nil && !reflect.DeepEqual(*stored, now) {
		k.errorf("the group is not as it was stored:\n%s", cmp.Diff(*stored, now))
	}
	for id := range g.stored.members {
		if g.members[id] == nil {
			k.errorf("%s is stored, and no member", id)
		}
	}
	if len(g.sorted) == 0 {
		return
	}
	k.turn++
	m := g.sorted[k.turn%len(g.sorted)]
	if stored := g.stored.members[m.id]; !unknown(m) && !reflect.DeepEqual(stored, g.memberState(m)) {
		k.errorf("member %s is not as it was stored:\n%s", m.id, cmp.Diff(stored, g.memberState(m)))
	}
	if k.turn%20 == 0 && !k.s.t.Failed() {
		k.checkReplay()
	}
}

// checkReplay builds a group of the log, and compares it with this one.
func (k *checker) checkReplay() {
	live, again := k.s.g, New("g", k.s.opts)
	for _, r := range k.s.log {
		again.Load(r)
	}
	if diff := difference(live.Records(), again.Records()); diff != "" {
		k.errorf("the log gives other records (-live +log):\n%s", diff)
		return
	}
	again.now, again.topics = k.now, live.topics
	again.resume()
	want, got := live.groupState(), again.groupState()
	if again.members[want.Leader] == nil {
		want.Leader = "" // it has not been heard of by that id
	}
	if diff := difference(want, got); diff != "" && len(again.members) > 0 {
		k.errorf("the group differs from a loaded one (-live +loaded):\n%s", diff)
	}
	for id, m := range again.members {
		was := live.members[id]
		if unknown(was) {
			continue
		}
		if diff := difference(live.memberState(was), again.memberState(m)); diff != "" {
			k.errorf("member %s differs from a loaded one (-live +loaded):\n%s", id, diff)
		}
		if !slices.Equal(was.topics, m.topics) || !slices.Equal(moving(was), moving(m)) {
			k.errorf("member %s differs from a loaded one: %v, %v; %v, %v", id, was.topics, m.topics, was.client.moved, m.client.moved)
		}
	}
}

// unknown says whether the member waits for an answer by which its client will know what is to be stored.
func unknown(m *groupMember) bool { return m.join.waiting || (m.beat.waiting && m.generation < 0) }

// difference is cmp.Diff, which takes its time where there is none.
func difference(want, got any) string {
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return cmp.Diff(want, got)
}

// moving is what a member is to give up.
func moving(m *groupMember) []assigner.Partition {
	return slices.SortedFunc(maps.Keys(m.client.moved), comparePartitions)
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
		if m.consumer != nil {
			k.errorf("%s speaks the consumer protocol in an ordinary group", m.id)
		}
	}
	if o.state == StateCompletingRebalance || o.state == StateStable {
		if g.members[o.leader] == nil {
			k.errorf("%s, and the leader %q is no member", o.state, o.leader)
		}
	}
}

// settled checks a group whose clients have behaved long enough.
func (k *checker) settled() {
	g := k.s.g
	if state := g.State(); state != StateStable && (state != StateEmpty || len(k.s.clients) > 0) && (state != StateCompletingRebalance || !k.lends()) {
		k.errorf("the group is %s", state)
	}
	if len(g.members) != len(k.s.clients) || len(k.s.open) > len(g.held.of) {
		k.errorf("%d members of %d clients, %d requests wait, of which %d are held", len(g.members), len(k.s.clients), len(k.s.open), len(g.held.of))
	}
	for _, c := range k.s.clients {
		m := g.members[c.id]
		if m == nil {
			k.errorf("client %d is no member", c.index)
			continue
		}
		if g.handoff == nil {
			continue
		}
		if diff := cmp.Diff(m.client.target, c.sortedReading()); diff != "" && len(m.client.target)+len(c.reading) > 0 {
			k.errorf("client %d does not read its part (-want +got):\n%s", c.index, diff)
		}
		if len(m.client.held) != len(m.client.target) {
			k.errorf("client %d holds %v", c.index, m.client.held)
		}
	}
	// Where the leader of a classic group came back as a follower (KIP-345 before KIP-814) nobody sees to a topic that has changed since.
	if g.consumer != nil || (g.managed == nil && slices.ContainsFunc(k.s.clients, func(c *simClient) bool { return c.watches != nil })) {
		k.checkAllRead()
	}
}

// checkAllRead: every partition of a topic that a client reads is read.
func (k *checker) checkAllRead() {
	for _, m := range k.s.g.members {
		for _, topic := range m.topics {
			for p := range k.s.topics[topic].Partitions {
				if tp := (assigner.Partition{Topic: topic, Partition: p}); k.owners[tp] == nil {
					k.errorf("nobody reads %v", tp)
				}
			}
		}
	}
}

// lends says whether a member reads on for a pod none of whose clients can.
func (k *checker) lends() bool {
	return k.s.g.managed != nil && slices.ContainsFunc(k.s.g.sorted, func(m *groupMember) bool { return len(m.client.lent) > 0 })
}
