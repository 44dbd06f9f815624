// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

func member(name string, assignments ...v1alpha1.TopicAssignment) v1alpha1.GroupMember {
	return v1alpha1.GroupMember{Name: name, UID: "uid", IP: "10.0.0.1", Node: "node", Phase: v1alpha1.MemberActive, Assignments: assignments}
}

func share(topic string, partitions ...int32) v1alpha1.TopicAssignment {
	return v1alpha1.TopicAssignment{Topic: topic, Partitions: partitions}
}

func TestCompact(t *testing.T) {
	var scattered []int32
	for i := range int32(1000) {
		scattered = append(scattered, 3*i)
	}
	var topics []v1alpha1.TopicAssignment
	for _, name := range strings.Split("abcdefghij", "") {
		topics = append(topics, share(name, 0))
	}
	cases := map[string]struct {
		members []v1alpha1.GroupMember
		want    string
	}{
		"nobody":               {want: ""},
		"runs and single ones": {members: []v1alpha1.GroupMember{member("web-0", share("orders", 0, 1, 2, 3, 7)), member("web-1", share("orders", 4, 5, 8))}, want: "web-0:orders[0-3,7] web-1:orders[4-5,8]"},
		"several topics":       {members: []v1alpha1.GroupMember{member("web-0", share("clicks", 0), share("orders", 1, 2))}, want: "web-0:clicks[0],orders[1-2]"},
		"a member without any": {members: []v1alpha1.GroupMember{member("web-0", share("orders", 0)), member("web-1")}, want: "web-0:orders[0] web-1:-"},
		"scattered partitions": {members: []v1alpha1.GroupMember{member("web-0", share("orders", scattered...))}, want: "web-0:orders[0,3,6,9,12,15,18,21,+992]"},
		"many topics":          {members: []v1alpha1.GroupMember{member("web-0", topics...)}, want: "web-0:a[0],b[0],c[0],d[0],e[0],f[0],g[0],h[0],+2 topics"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := compact(tc.members); got != tc.want {
				t.Errorf("compact = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestCompactOfManyMembersFitsAColumn(t *testing.T) {
	many := make([]v1alpha1.GroupMember, 0, 1000)
	for i := range 1000 {
		many = append(many, member(fmt.Sprint("web-", i), share("orders", int32(i))))
	}
	got := compact(many)
	if !strings.HasPrefix(got, "web-0:orders[0] web-1:orders[1] ") || !strings.HasSuffix(got, " more: see .status.members") || len(got) > maxCompactBytes+100 {
		t.Errorf("compact = %q, %d bytes", got, len(got))
	}
	var more int
	_, rest, _ := strings.Cut(got, " and ")
	if _, err := fmt.Sscanf(rest, "%d more", &more); err != nil || strings.Count(got, ":orders[")+more != len(many) {
		t.Errorf("%d members are shown and %d counted, want %d together (%v)", strings.Count(got, ":orders["), more, len(many), err)
	}
}

func TestMembersAndSeatsConvertBothWays(t *testing.T) {
	deadline := metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC))
	waiting := member("web-1", share("clicks", 1), share("orders", 0, 2))
	waiting.Phase, waiting.GraceDeadline = v1alpha1.MemberGrace, &deadline
	waiting.Workload, waiting.Restarts, waiting.IP = "StatefulSet/web", 3, "10.0.0.2"
	spare := member("web-2")
	spare.Workload, spare.Phase = "Deployment/web", v1alpha1.MemberStandby
	members := []v1alpha1.GroupMember{member("web-0"), waiting, spare}
	if diff := cmp.Diff(members, membersOf(seatsOf(members))); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
	members[1].IP = members[0].IP
	if m := membersOf(seatsOf(members)); m[0].IP != members[0].IP || m[1].IP != "" {
		t.Errorf("the live member web-0 has the address %q and web-1, which had it before, %q", m[0].IP, m[1].IP)
	}
}

func TestMembersThatAreStalledStaySo(t *testing.T) {
	in := func(phase v1alpha1.MemberPhase, m v1alpha1.GroupMember) v1alpha1.GroupMember {
		m.Phase, m.UID = phase, types.UID(m.Name)
		return m
	}
	const active, grace, stalled = v1alpha1.MemberActive, v1alpha1.MemberGrace, v1alpha1.MemberStalled
	before := []v1alpha1.GroupMember{in(stalled, member("a")), in(stalled, member("b")), in(stalled, member("c")), in(active, member("d"))}
	if phase := seatsOf(before)[0].Phase; phase != coordinator.SeatActive {
		t.Errorf("the seat of a stalled member is %s", phase)
	}
	again := in(active, member("c"))
	again.UID = "another"
	after := keepStalled(before, []v1alpha1.GroupMember{in(active, member("a")), in(grace, member("b")), again, in(active, member("d"))})
	want := []v1alpha1.GroupMember{in(stalled, member("a")), in(grace, member("b")), again, in(active, member("d"))}
	if diff := cmp.Diff(want, after); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
}
