// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// The reasons of the rebalances of wire groups, as far as can be known from outside.
const (
	reasonClientsJoined = "ClientsJoined"
	reasonClientsLeft   = "ClientsLeft"
	reasonRejoined      = "ClientsRejoined"
)

const (
	// shortID is how many characters of a member id tell clients of the same client id apart.
	shortID = 8
	// maxNameBytes is the length of the longest name of a client. A name of Kubernetes's has 253 at most.
	maxNameBytes = 128
	// maxMemberTopics is the largest number of topics of a member that the API takes.
	maxMemberTopics = 100
	// maxNamedClients is how many clients a rebalance's message names.
	maxNamedClients = 5
)

// mirror writes what the brokers say of a wire group into its status.
func mirror(s *v1alpha1.ConsumerGroupStatus, o *Observation) {
	if o.group == nil {
		return
	}
	s.State = groupState(o.group)
	if o.group.generation >= 0 {
		s.Generation = o.group.generation
	}
	s.Members = mirroredMembers(o.group.members)
	s.Replicas = int32(len(s.Members))
	s.Assignments = compact(s.Members)
	if o.rebalance != nil {
		s.LastRebalance = o.rebalance.DeepCopy()
	}
}

// mirroredMembers are the clients of a group as members, by name.
func mirroredMembers(clients []observedMember) []v1alpha1.GroupMember {
	if len(clients) == 0 {
		return nil
	}
	names := clientNames(clients)
	members := make([]v1alpha1.GroupMember, 0, len(clients))
	for i := range clients {
		c := &clients[i]
		member := v1alpha1.GroupMember{Name: names[c.id], UID: types.UID(legible(c.id)), IP: c.host, Phase: v1alpha1.MemberActive, Assignments: c.assigned}
		members = append(members, *member.DeepCopy()) // what was observed stays as it is, whatever becomes of the status
	}
	slices.SortFunc(members, func(a, b v1alpha1.GroupMember) int { return strings.Compare(a.Name, b.Name) })
	return members
}

// clientNames names clients for people, by their member ids: by the instance id, which is the group's only one, else by the client id and the beginning of what the
// member id has beside it. Where that names several they have their whole member ids. All of these are the clients' to choose, so that one may be another one's in any of these ways; the API
// server takes no two members of one name, so that the later of them by member id has a number behind it then.
func clientNames(clients []observedMember) map[string]string {
	names := make(map[string]string, len(clients))
	short := make(map[string]string, len(clients))
	count := make(map[string]int, len(clients))
	for i := range clients {
		c := &clients[i]
		short[c.id] = shortName(c)
		count[short[c.id]]++
	}
	taken := make(map[string]bool, len(clients))
	ids := slices.Sorted(maps.Keys(short))
	for _, id := range ids {
		if name := short[id]; count[name] == 1 {
			names[id], taken[name] = name, true
		}
	}
	for _, id := range ids {
		if count[short[id]] == 1 {
			continue
		}
		name := legible(id)
		for n := 2; taken[name]; n++ {
			name = fmt.Sprintf("%s#%d", legible(id), n)
		}
		names[id], taken[name] = name, true
	}
	return names
}

// shortName is what a client is called unless another one is called the same.
func shortName(c *observedMember) string {
	if c.instanceID != "" {
		return legible(c.instanceID)
	}
	own := strings.TrimPrefix(strings.TrimPrefix(c.id, c.clientID), "-")
	return legible(strings.TrimPrefix(c.clientID+"-"+own[:min(len(own), shortID)], "-"))
}

// legible is a text that a client has chosen, as it is shown: without what is no character, and so short that the names of many fit into a status.
func legible(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, text)
	for i := 0; i < len(text); {
		_, size := utf8.DecodeRuneInString(text[i:])
		if i+size > maxNameBytes {
			return text[:i]
		}
		i += size
	}
	return cmp.Or(text, "-")
}

// tooWide says which member has more topics than a status can hold, empty for none.
func tooWide(members []v1alpha1.GroupMember) string {
	for i := range members {
		if n := len(members[i].Assignments); n > maxMemberTopics {
			return fmt.Sprintf("member %s reads %d topics, which is more than the %d that a member may have", members[i].Name, n, maxMemberTopics)
		}
	}
	return ""
}

// wireWatch remembers the last assignment of a wire group that all members had, to say what a rebalance changed.
type wireWatch struct {
	generation int32
	members    []observedMember
	known      bool
}

// note takes a description, and returns the rebalance that it ends; nil for none. After a restart of the operator the first one tells nothing, for nobody knows what was before it.
func (w *wireWatch) note(now time.Time, d *description) *v1alpha1.Rebalance {
	state := groupState(d)
	if state != v1alpha1.GroupStable && state != v1alpha1.GroupEmpty {
		return nil
	}
	before := *w
	w.generation, w.members, w.known = d.generation, d.members, true
	if !before.known || d.generation <= before.generation || len(before.members) == 0 && len(d.members) == 0 {
		return nil
	}
	r := wireRebalance(before.members, d.members)
	r.Time = metav1.NewTime(now.UTC().Truncate(time.Second))
	return r
}

// wireRebalance says what a rebalance changed.
func wireRebalance(before, after []observedMember) *v1alpha1.Rebalance {
	joined, left := without(after, before), without(before, after)
	var reasons, phrases []string
	if len(joined) > 0 {
		reasons, phrases = append(reasons, reasonClientsJoined), append(phrases, clip(joined)+" joined")
	}
	if len(left) > 0 {
		reasons, phrases = append(reasons, reasonClientsLeft), append(phrases, clip(left)+" left")
	}
	if len(reasons) == 0 {
		reasons, phrases = []string{reasonRejoined}, []string{"the same clients joined again"}
	}
	was, is := held(before), held(after)
	return &v1alpha1.Rebalance{
		Reason: strings.Join(reasons, ","), Message: strings.Join(phrases, "; "), Moved: int32(assigner.Moves(was, is)), Minimum: minimumMoves(was, is),
	}
}

// minimumMoves is the smallest number of moves from one assignment to a balanced one of the partitions and members of another. What the members read is known by
// what they have alone, so the bound is that of members which all read the same; which numbers the partitions have makes no difference to it.
func minimumMoves(was, is assigner.Assignment) int32 {
	in := assigner.Input{Partitions: map[string]int32{}, Previous: assigner.Assignment{}}
	places := map[assigner.Partition]assigner.Partition{}
	for _, share := range is {
		for _, tp := range share {
			places[tp] = assigner.Partition{Topic: tp.Topic, Partition: in.Partitions[tp.Topic]}
			in.Partitions[tp.Topic]++
		}
	}
	topics := slices.Sorted(maps.Keys(in.Partitions))
	for _, id := range slices.Sorted(maps.Keys(is)) {
		in.Members = append(in.Members, assigner.Member{ID: id, Topics: topics})
		for _, tp := range was[id] {
			if place, read := places[tp]; read {
				in.Previous[id] = append(in.Previous[id], place)
			}
		}
	}
	return int32(assigner.Minimum(in))
}

// without are the names of the clients that others are not among, sorted.
func without(clients, others []observedMember) []string {
	ids := make(map[string]bool, len(others))
	for i := range others {
		ids[others[i].id] = true
	}
	names := clientNames(clients)
	var out []string
	for i := range clients {
		if !ids[clients[i].id] {
			out = append(out, names[clients[i].id])
		}
	}
	slices.Sort(out)
	return out
}

// held are the partitions that clients have, by member id.
func held(clients []observedMember) assigner.Assignment {
	out := make(assigner.Assignment, len(clients))
	for i := range clients {
		out[clients[i].id] = partitionsOf(clients[i].assigned)
	}
	return out
}

// partitionsOf lists partitions one by one.
func partitionsOf(share []v1alpha1.TopicAssignment) []assigner.Partition {
	var out []assigner.Partition
	for _, a := range share {
		for _, p := range a.Partitions {
			out = append(out, assigner.Partition{Topic: a.Topic, Partition: p})
		}
	}
	return out
}

// clip lists the first few names.
func clip(names []string) string {
	if more := len(names) - maxNamedClients; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamedClients], ", "), more)
	}
	return strings.Join(names, ", ")
}
