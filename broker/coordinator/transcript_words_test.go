// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// arguments are the words of a line after its verb.
type arguments struct {
	named   map[string]string
	plain   []string
	offsets []string
	pods    []PlanMember
}

func parseArgs(words []string) arguments {
	a := arguments{named: map[string]string{}}
	for _, w := range words {
		name, value, ok := strings.Cut(w, "=")
		switch {
		case !ok:
			a.plain = append(a.plain, w)
		case strings.Contains(name, "@"):
			pod, ip, _ := strings.Cut(name, "@")
			pod, uid, _ := strings.Cut(pod, "/")
			a.pods = append(a.pods, PlanMember{Pod: pod, UID: uid, IP: strings.TrimSuffix(ip, "!"), Share: parsePartitions(value), Alive: !strings.HasSuffix(ip, "!")})
		case strings.Contains(name, ":"):
			a.offsets = append(a.offsets, w)
		default:
			a.named[name] = value
		}
	}
	return a
}

func (a arguments) int32(name string, otherwise int32) int32 {
	n, err := strconv.ParseInt(a.named[name], 10, 32)
	if err != nil {
		return otherwise
	}
	return int32(n)
}

func (a arguments) duration(name string, otherwise time.Duration) time.Duration {
	d, err := time.ParseDuration(a.named[name])
	if err != nil {
		return otherwise
	}
	return d
}

// parsePartitions reads "orders:0-3,5;payments:1".
func parsePartitions(s string) []TopicPartitions {
	var out []TopicPartitions
	for part := range strings.SplitSeq(s, ";") {
		topic, numbers, ok := strings.Cut(part, ":")
		if !ok {
			continue
		}
		tp := TopicPartitions{Topic: topic}
		for r := range strings.SplitSeq(numbers, ",") {
			from, to, ok := strings.Cut(r, "-")
			if !ok {
				to = from
			}
			first, _ := strconv.Atoi(from)
			last, _ := strconv.Atoi(to)
			for p := first; p <= last; p++ {
				tp.Partitions = append(tp.Partitions, int32(p))
			}
		}
		out = append(out, tp)
	}
	return out
}

// cmpString prints partitions as parsePartitions reads them.
func cmpString(in []TopicPartitions) string {
	if len(in) == 0 {
		return "nothing"
	}
	var topics []string
	for _, t := range in {
		var numbers []string
		for _, p := range t.Partitions {
			numbers = append(numbers, strconv.Itoa(int(p)))
		}
		topics = append(topics, t.Topic+":"+strings.Join(numbers, ","))
	}
	return strings.Join(topics, ";")
}

var codes = map[int16]string{
	ErrNone: "ok", ErrOffsetMetadataTooLarge: "OFFSET_METADATA_TOO_LARGE", ErrCoordinatorNotAvailable: "COORDINATOR_NOT_AVAILABLE",
	ErrIllegalGeneration: "ILLEGAL_GENERATION", ErrInconsistentGroupProtocol: "INCONSISTENT_GROUP_PROTOCOL", ErrInvalidGroupID: "INVALID_GROUP_ID",
	ErrUnknownMemberID: "UNKNOWN_MEMBER_ID", ErrInvalidSessionTimeout: "INVALID_SESSION_TIMEOUT", ErrRebalanceInProgress: "REBALANCE_IN_PROGRESS",
	ErrNonEmptyGroup: "NON_EMPTY_GROUP", ErrMemberIDRequired: "MEMBER_ID_REQUIRED", ErrGroupMaxSizeReached: "GROUP_MAX_SIZE_REACHED",
	ErrFencedInstanceID: "FENCED_INSTANCE_ID", ErrGroupSubscribedToTopic: "GROUP_SUBSCRIBED_TO_TOPIC", ErrGroupIDNotFound: "GROUP_ID_NOT_FOUND",
	ErrFencedMemberEpoch: "FENCED_MEMBER_EPOCH", ErrUnreleasedInstanceID: "UNRELEASED_INSTANCE_ID", ErrUnsupportedAssignor: "UNSUPPORTED_ASSIGNOR",
	ErrStaleMemberEpoch: "STALE_MEMBER_EPOCH", ErrInvalidRegularExpression: "INVALID_REGULAR_EXPRESSION",
}

func codeName(code int16) string {
	if name, ok := codes[code]; ok {
		return name
	}
	return strconv.Itoa(int(code))
}

func codeNames(codes []int16) string {
	distinct := map[string]bool{}
	var names []string
	for _, c := range codes {
		names = append(names, codeName(c))
		distinct[codeName(c)] = true
	}
	if len(distinct) == 1 {
		return " each " + slices.Collect(maps.Keys(distinct))[0]
	}
	return " " + strings.Join(names, " ")
}
