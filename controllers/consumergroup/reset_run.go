// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

const (
	// maxResetDelay is the longest time between two attempts of a reset.
	maxResetDelay = 30 * time.Second
	// maxRemovals is how often in a row the clients of a wire group are removed for a forced reset, should they be back at once.
	maxRemovals = 5
	// minResetWait is how long a reset waits for members to let go of their partitions before its message says so.
	minResetWait = 2 * time.Second
)

var (
	// errGiveUp is an error of a reset that a repetition cannot mend.
	errGiveUp = errors.New("cannot be done")
	// errMembersActive says that the group has members after all.
	errMembersActive = errors.New("members of the group are active")
	// errInTheMiddle says of a wire group's reset, whose clients may have read since, that an operator that is no more has begun it.
	errInTheMiddle = fmt.Errorf("%w: an operator that has ended meanwhile had begun it, so that the offsets may have been set, and clients may have gone on from there; look at them, and "+
		"give it a new id to set them again", errGiveUp)
)

// resetWatch is what is remembered of a group's reset.
type resetWatch struct {
	id string
	// done says that it has ended, failures that many attempts have failed, and next when to try again.
	done     bool
	failures int
	next     time.Time
	// waits is since when it waits for members to let go of their partitions.
	waits time.Time
}

// begunReset is a reset that this operator has begun.
type begunReset struct {
	uid types.UID
	id  string
}

// began remembers that this operator begins a group's reset. It is told before the status is.
func (o *Observer) began(g *v1alpha1.ConsumerGroup, id string) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begun[client.ObjectKeyFromObject(g)] = begunReset{g.UID, id}
}

// isMine says whether this operator has begun a group's reset.
func (o *Observer) isMine(g *v1alpha1.ConsumerGroup, id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.begun[client.ObjectKeyFromObject(g)] == begunReset{g.UID, id}
}

// carryOut carries a group's reset out, if it is time to, and takes note of the result; unknown is why the brokers do not tell of the group, nil if they do. Whatever the cache says, the API
// server must say that it is still to be done: a reset that another operator has ended is not done again.
func (o *Observer) carryOut(ctx context.Context, kafka *kgo.Client, g *v1alpha1.ConsumerGroup, w *groupWatch, unknown error) {
	spec := g.Spec.Offsets.Reset
	if w.reset.id != spec.ID {
		w.reset = resetWatch{id: spec.ID}
	}
	now := o.now()
	switch {
	case w.reset.done || now.Before(w.reset.next):
		return
	case unknown != nil: // it goes on as soon as the brokers tell
		w.seen.reset = tryAgain(spec.ID, unknown)
		return
	case g.Spec.Selector != nil && activeMembers(g, w.seen.group):
		w.waitsForMembers(now)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, resetTimeout)
	defer cancel()
	live := &v1alpha1.ConsumerGroup{}
	err := o.Reader.Get(ctx, client.ObjectKeyFromObject(g), live)
	if err == nil && (live.UID != g.UID || !resetDue(live) || live.Spec.Offsets.Reset.ID != spec.ID) {
		return
	}
	result := &resetResult{id: spec.ID, phase: v1alpha1.ResetSucceeded}
	var targets resetTargets
	switch {
	case err != nil:
	case g.Spec.Selector == nil && !o.isMine(g, spec.ID):
		targets, err = findDone(ctx, kafka, live)
	default:
		targets, err = resetOffsets(ctx, kafka, live, w.seen.group)
	}
	switch {
	case err == nil:
		w.reset.done = true
		result.partitions, result.message = targets.partitions(), targets.describe(live)
	case errors.Is(err, errGiveUp):
		w.reset.done = true
		result.phase, result.message = v1alpha1.ResetFailed, err.Error()
	case errors.Is(err, errMembersActive) && g.Spec.Selector == nil && !live.Spec.Offsets.Reset.Force:
		w.reset = resetWatch{} // it is begun anew when they have left
		result.phase = v1alpha1.ResetRefused
	default:
		w.triedInVain(now, unanswered(unknownBroker, err))
		return
	}
	w.seen.reset = result
}

// triedInVain takes note of an attempt that has failed: it is tried again, later and later.
func (w *groupWatch) triedInVain(now time.Time, err error) {
	w.reset.next = now.Add(min(tick<<min(w.reset.failures, 10), maxResetDelay))
	w.reset.failures++
	w.seen.reset = tryAgain(w.reset.id, err)
}

func tryAgain(id string, err error) *resetResult {
	return &resetResult{id: id, phase: v1alpha1.ResetInProgress, message: "is tried again: " + err.Error()}
}

// prepare finds out whether a reset can be carried out, before anybody is paused for it: it needs the group's coordinator, and the leaders of its partitions. unknown is why the brokers do
// not tell of the group, nil if they do.
func (w *groupWatch) prepare(ctx context.Context, kafka *kgo.Client, g *v1alpha1.ConsumerGroup, unknown error) {
	id := g.Spec.Offsets.Reset.ID
	if p := w.seen.prepared; unknown == nil && p != nil && p.id == id && p.phase == v1alpha1.ResetInProgress {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	err := unknown
	if err == nil {
		_, err = findOffsets(ctx, kafka, g)
	}
	w.seen.prepared = &resetResult{id: id, phase: v1alpha1.ResetInProgress}
	switch {
	case errors.Is(err, errGiveUp):
		w.seen.prepared.phase, w.seen.prepared.message = v1alpha1.ResetFailed, err.Error()
	case err != nil:
		w.seen.prepared.phase, w.seen.prepared.message = v1alpha1.ResetWaiting, "waits, and nobody is paused: "+err.Error()
	}
}

// waitsForMembers takes note that clients still hold partitions that are taken from them. If that takes long it says of whom.
func (w *groupWatch) waitsForMembers(now time.Time) {
	if w.reset.waits.IsZero() {
		w.reset.waits = now
	}
	if now.Sub(w.reset.waits) < minResetWait {
		return
	}
	var names []string
	for i := range w.seen.group.members {
		if m := &w.seen.group.members[i]; len(m.assigned) > 0 {
			names = append(names, stranger{cmp.Or(m.instanceID, m.clientID), m.host}.String())
		}
	}
	slices.Sort(names)
	w.seen.reset = &resetResult{
		id: w.reset.id, phase: v1alpha1.ResetInProgress,
		message: fmt.Sprintf("waits, at most for handoffTimeout, for %s to let go of partitions: %s", count(len(names), "client"), clip(slices.Compact(names))),
	}
}

// resetTopics are the topics whose offsets are set.
func resetTopics(g *v1alpha1.ConsumerGroup) []string {
	topics := g.Spec.Offsets.Reset.Topics
	if len(topics) == 0 {
		topics = g.Spec.Topics
	}
	return slices.Sorted(slices.Values(topics))
}

// resetOffsets sets the group's offsets, and returns them.
func resetOffsets(ctx context.Context, kafka *kgo.Client, g *v1alpha1.ConsumerGroup, d *description) (resetTargets, error) {
	targets, err := findOffsets(ctx, kafka, g)
	if err != nil {
		return resetTargets{}, err
	}
	removes := g.Spec.Selector == nil && g.Spec.Offsets.Reset.Force
	for attempt := 0; ; attempt++ {
		if removes && len(d.members) > 0 {
			if err := removeMembers(ctx, kafka, g.KafkaID(), d.members); err != nil {
				return resetTargets{}, err
			}
		}
		err := commitOffsets(ctx, kafka, g.KafkaID(), targets.offsets)
		if !errors.Is(err, errMembersActive) || !removes || attempt+1 >= maxRemovals {
			return targets, err
		}
		descriptions, errs := describe(ctx, kafka, []*v1alpha1.ConsumerGroup{g})
		if d = descriptions[g.KafkaID()]; d == nil {
			return resetTargets{}, errs[g.KafkaID()]
		}
	}
}

// resetMark begins the metadata of offsets that a reset commits; its id is the rest. Clients that commit write theirs over it.
const resetMark = "reset "

// findDone finds out whether another operator has carried a wire group's reset out, which it had begun. Where its offsets are not there any more, or not yet, nobody can tell.
func findDone(ctx context.Context, kafka *kgo.Client, g *v1alpha1.ConsumerGroup) (resetTargets, error) {
	targets, err := findOffsets(ctx, kafka, g)
	if err != nil {
		return resetTargets{}, err
	}
	committed, err := kadm.NewClient(kafka).FetchOffsets(ctx, g.KafkaID())
	if err != nil {
		return resetTargets{}, fmt.Errorf("fetch the offsets of group %s: %w", g.KafkaID(), err)
	}
	for _, o := range targets.offsets.Sorted() {
		if c, found := committed.Lookup(o.Topic, o.Partition); !found || c.Err != nil || c.Metadata != resetMark+g.Spec.Offsets.Reset.ID {
			return resetTargets{}, errInTheMiddle
		}
	}
	return targets, nil
}

// resetTargets are the offsets that a group's are set to.
type resetTargets struct {
	offsets kadm.Offsets
	// toStarts and toEnds are of how many partitions it is the first record's or the end's, because what was asked for is beyond it.
	toStarts, toEnds int
}

func (t *resetTargets) partitions() int32 { return int32(len(t.offsets.Sorted())) }

// describe says what was set, for people.
func (t *resetTargets) describe(g *v1alpha1.ConsumerGroup) string {
	r := g.Spec.Offsets.Reset
	text := fmt.Sprintf("%s of %s set %s", count(int(t.partitions()), "offset"), strings.Join(resetTopics(g), ", "), whereTo(r))
	missed := "which is not that long"
	if r.To == v1alpha1.ResetTimestamp {
		missed = "which has no such record"
	}
	if t.toStarts > 0 {
		text += fmt.Sprintf("; but %s to the first record of the partition, which begins later", countOf(t.toStarts))
	}
	if t.toEnds > 0 {
		text += fmt.Sprintf("; but %s to the end of the partition, %s", countOf(t.toEnds), missed)
	}
	return text
}

// findOffsets finds the offsets that the group's are to be set to. None is negative, or beyond its partition's start or end.
func findOffsets(ctx context.Context, kafka *kgo.Client, g *v1alpha1.ConsumerGroup) (resetTargets, error) {
	spec, topics := g.Spec.Offsets.Reset, resetTopics(g)
	times := []int64{timeStart, timeEnd}
	if spec.To == v1alpha1.ResetTimestamp && spec.Timestamp != nil {
		times = append(times, max(spec.Timestamp.UnixMilli(), 0)) // negative ones have meanings of their own in the protocol
	}
	lists, err := listOffsets(ctx, kafka, topics, times...)
	if err != nil {
		return resetTargets{}, err
	}
	for _, list := range lists {
		if err := checkListed(topics, list); err != nil {
			return resetTargets{}, err
		}
	}
	starts, ends, asked := lists[0], lists[1], lists[len(lists)-1]
	t := resetTargets{offsets: kadm.Offsets{}}
	for _, end := range offsetsOf(ends) {
		start, known := starts.Lookup(end.Topic, end.Partition)
		if !known || start.Offset < 0 || end.Offset < start.Offset {
			return resetTargets{}, fmt.Errorf("list the offsets of topic %s: partition %d goes from %d to %d", end.Topic, end.Partition, start.Offset, end.Offset)
		}
		at := end.Offset
		switch {
		case spec.To == v1alpha1.ResetEarliest:
			at = start.Offset
		case spec.To == v1alpha1.ResetOffset && spec.Offset != nil:
			at = t.bound(*spec.Offset, start.Offset, end.Offset)
		case len(times) > 2:
			if found, _ := asked.Lookup(end.Topic, end.Partition); found.Offset >= 0 {
				at = min(max(found.Offset, start.Offset), end.Offset)
			} else {
				t.toEnds++
			}
		}
		t.offsets.Add(kadm.Offset{Topic: end.Topic, Partition: end.Partition, At: at, LeaderEpoch: -1, Metadata: resetMark + spec.ID})
	}
	return t, nil
}

// bound bounds an offset to those of a partition, and counts it if that changes it.
func (t *resetTargets) bound(offset, start, end int64) int64 {
	switch {
	case offset < start:
		t.toStarts++
		return start
	case offset > end:
		t.toEnds++
		return end
	}
	return offset
}

// offsetsOf are the offsets of a list, by topic and partition.
func offsetsOf(list kadm.ListedOffsets) []kadm.ListedOffset {
	var out []kadm.ListedOffset
	list.Each(func(o kadm.ListedOffset) { out = append(out, o) })
	slices.SortFunc(out, func(a, b kadm.ListedOffset) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out
}

// checkListed checks a list of offsets: each of the topics must have some.
func checkListed(topics []string, list kadm.ListedOffsets) error {
	for _, topic := range topics {
		if len(list[topic]) == 0 {
			return fmt.Errorf("%w: topic %s has no partitions; create it, and ask again with another id", errGiveUp, topic)
		}
	}
	for _, at := range offsetsOf(list) {
		switch {
		case errors.Is(at.Err, kerr.UnknownTopicOrPartition):
			return fmt.Errorf("%w: there is no topic %s; create it, and ask again with another id", errGiveUp, at.Topic)
		case isRefusal(at.Err):
			return fmt.Errorf("%w: the brokers refuse to list the offsets of topic %s: %w", errGiveUp, at.Topic, at.Err)
		case at.Err != nil:
			return fmt.Errorf("list the offsets of topic %s: %w", at.Topic, at.Err)
		}
	}
	return nil
}

// commitOffsets commits offsets as a client that is no member does.
func commitOffsets(ctx context.Context, kafka *kgo.Client, group string, offsets kadm.Offsets) error {
	var err error
	for some := range slices.Chunk(offsets.Sorted(), maxListed) {
		part := kadm.Offsets{}
		for _, o := range some {
			part.Add(o)
		}
		var committed kadm.OffsetResponses
		if committed, err = kadm.NewClient(kafka).CommitOffsets(ctx, group, part); err == nil {
			err = committed.Error()
		}
		if err != nil {
			break
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.RebalanceInProgress), errors.Is(err, kerr.IllegalGeneration):
		return fmt.Errorf("commit: %w", errMembersActive)
	case isRefusal(err):
		return fmt.Errorf("%w: the brokers refuse to commit: %w", errGiveUp, err)
	}
	return fmt.Errorf("commit: %w", unanswered(unknownBroker, err))
}

// isRefusal says whether an error is the brokers' last word.
func isRefusal(err error) bool {
	var code *kerr.Error
	return errors.As(err, &code) && !code.Retriable || errors.Is(err, kerr.UnknownTopicOrPartition)
}

// removeMembers removes the clients of a group, as an administrator does. Clients that have left meanwhile are none any more.
func removeMembers(ctx context.Context, kafka *kgo.Client, group string, members []observedMember) error {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = group
	reason := "the group's offsets are reset"
	for i := range members {
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID, m.Reason = members[i].id, &reason
		if members[i].instanceID != "" {
			m.InstanceID = &members[i].instanceID
		}
		req.Members = append(req.Members, m)
	}
	resp, err := req.RequestWith(ctx, kafka)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("remove the group's clients: %w", err)
	}
	for _, m := range resp.Members {
		if err := kerr.ErrorForCode(m.ErrorCode); err != nil && !errors.Is(err, kerr.UnknownMemberID) {
			return fmt.Errorf("remove client %s: %w", m.MemberID, err)
		}
	}
	return nil
}
