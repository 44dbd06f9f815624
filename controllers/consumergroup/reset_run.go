// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

const (
	// maxResetDelay is the longest time between two attempts of a reset.
	maxResetDelay = 30 * time.Second
	// maxRemovals is how often in a row the clients of a wire group are removed for a forced reset, should they be back at once.
	maxRemovals = 5
)

var (
	// errGiveUp is an error of a reset that a repetition cannot mend.
	errGiveUp = errors.New("cannot be done")
	// errMembersActive says that the group has members after all.
	errMembersActive = errors.New("members of the group are active")
)

// resetWatch is what is remembered of a group's reset.
type resetWatch struct {
	id string
	// done says that it has ended, failures that many attempts have failed, and next when to try again.
	done     bool
	failures int
	next     time.Time
}

// carryOut carries a group's reset out, if it is time to, and takes note of the result. Whatever the cache says, the API server must say that it is still to be done: a reset that another
// operator has ended is not done again.
func (o *Observer) carryOut(ctx context.Context, kafka *kgo.Client, g *v1alpha1.ConsumerGroup, w *groupWatch) {
	spec := g.Spec.Offsets.Reset
	if w.reset.id != spec.ID {
		w.reset = resetWatch{id: spec.ID}
	}
	now := o.now()
	if w.reset.done || now.Before(w.reset.next) || g.Spec.Selector != nil && activeMembers(g, w.seen.group) {
		return
	}
	live := &v1alpha1.ConsumerGroup{}
	err := o.Reader.Get(ctx, client.ObjectKeyFromObject(g), live)
	if err == nil && (live.UID != g.UID || !resetDue(live) || live.Spec.Offsets.Reset.ID != spec.ID) {
		return
	}
	result := &resetResult{id: spec.ID, phase: v1alpha1.ResetSucceeded}
	if err == nil {
		result.partitions, err = resetOffsets(ctx, kafka, live, w.seen.group)
	}
	switch {
	case err == nil:
		w.reset.done = true
		result.message = fmt.Sprintf("%s of %s set %s", count(int(result.partitions), "offset"), strings.Join(resetTopics(live), ", "), whereTo(live.Spec.Offsets.Reset))
	case errors.Is(err, errGiveUp):
		w.reset.done = true
		result.phase, result.message = v1alpha1.ResetFailed, err.Error()
	case errors.Is(err, errMembersActive) && g.Spec.Selector == nil && !live.Spec.Offsets.Reset.Force:
		w.reset = resetWatch{} // it is begun anew when they have left
		result.phase = v1alpha1.ResetRefused
	default:
		w.reset.next = now.Add(min(tick<<min(w.reset.failures, 10), maxResetDelay))
		w.reset.failures++
		result.phase, result.message = v1alpha1.ResetInProgress, "is tried again: "+err.Error()
	}
	w.seen.reset = result
}

// resetTopics are the topics whose offsets are set.
func resetTopics(g *v1alpha1.ConsumerGroup) []string {
	topics := g.Spec.Offsets.Reset.Topics
	if len(topics) == 0 {
		topics = g.Spec.Topics
	}
	return slices.Sorted(slices.Values(topics))
}

// resetOffsets sets the group's offsets, and returns how many partitions' it set.
func resetOffsets(ctx context.Context, kafka *kgo.Client, g *v1alpha1.ConsumerGroup, d *description) (int32, error) {
	offsets, err := findOffsets(ctx, kadm.NewClient(kafka), g)
	if err != nil {
		return 0, err
	}
	removes := g.Spec.Selector == nil && g.Spec.Offsets.Reset.Force
	for attempt := 0; ; attempt++ {
		if removes && len(d.members) > 0 {
			if err := removeMembers(ctx, kafka, g.KafkaID(), d.members); err != nil {
				return 0, err
			}
		}
		err := commitOffsets(ctx, kafka, g.KafkaID(), offsets)
		if !errors.Is(err, errMembersActive) || !removes || attempt+1 >= maxRemovals {
			return int32(len(offsets.Sorted())), err
		}
		descriptions, err := describe(ctx, kafka, []*v1alpha1.ConsumerGroup{g})
		if d = descriptions[g.KafkaID()]; d == nil {
			return 0, fmt.Errorf("describe the group: %w", err)
		}
	}
}

// findOffsets finds the offsets that the group's are to be set to.
func findOffsets(ctx context.Context, adm *kadm.Client, g *v1alpha1.ConsumerGroup) (kadm.Offsets, error) {
	spec, topics := g.Spec.Offsets.Reset, resetTopics(g)
	starts, err := listed(topics)(adm.ListStartOffsets(ctx, topics...))
	if err != nil {
		return nil, err
	}
	ends, err := listed(topics)(adm.ListEndOffsets(ctx, topics...))
	if err != nil {
		return nil, err
	}
	targets := ends
	switch {
	case spec.To == v1alpha1.ResetEarliest:
		targets = starts
	case spec.To == v1alpha1.ResetTimestamp && spec.Timestamp != nil:
		if targets, err = listed(topics)(adm.ListOffsetsAfterMilli(ctx, spec.Timestamp.UnixMilli(), topics...)); err != nil {
			return nil, err
		}
	}
	offsets := kadm.Offsets{}
	targets.Each(func(at kadm.ListedOffset) {
		offset := at.Offset
		if spec.To == v1alpha1.ResetOffset && spec.Offset != nil {
			start, _ := starts.Lookup(at.Topic, at.Partition)
			offset = min(max(*spec.Offset, start.Offset), at.Offset)
		}
		offsets.AddOffset(at.Topic, at.Partition, offset, -1)
	})
	return offsets, nil
}

// listed checks what a listing of offsets returns: each of the topics must have some.
func listed(topics []string) func(kadm.ListedOffsets, error) (kadm.ListedOffsets, error) {
	return func(offsets kadm.ListedOffsets, err error) (kadm.ListedOffsets, error) {
		if err != nil {
			return nil, fmt.Errorf("list offsets: %w", err)
		}
		for _, topic := range topics {
			if len(offsets[topic]) == 0 {
				return nil, fmt.Errorf("%w: topic %s has no partitions; create it, and ask again with another id", errGiveUp, topic)
			}
			for _, at := range offsets[topic] {
				switch {
				case errors.Is(at.Err, kerr.UnknownTopicOrPartition):
					return nil, fmt.Errorf("%w: there is no topic %s; create it, and ask again with another id", errGiveUp, topic)
				case at.Err != nil:
					return nil, fmt.Errorf("list the offsets of topic %s: %w", topic, at.Err)
				}
			}
		}
		return offsets, nil
	}
}

// commitOffsets commits offsets as a client that is no member does.
func commitOffsets(ctx context.Context, kafka *kgo.Client, group string, offsets kadm.Offsets) error {
	committed, err := kadm.NewClient(kafka).CommitOffsets(ctx, group, offsets)
	if err == nil {
		err = committed.Error()
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.RebalanceInProgress), errors.Is(err, kerr.IllegalGeneration):
		return fmt.Errorf("commit: %w", errMembersActive)
	case isRefusal(err):
		return fmt.Errorf("%w: the brokers refuse to commit: %w", errGiveUp, err)
	}
	return fmt.Errorf("commit: %w", err)
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
