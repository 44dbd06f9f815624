// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestDeadClientsAreBuried follows what the second client is given: it is of pod web-1, to which the plan has moved orders 0 from web-0, whose client still
// holds it.
func TestDeadClientsAreBuried(t *testing.T) {
	t.Parallel()
	const moves, staysInGrace, isBack, restarted = "moves", "stays in grace", "is back", "was restarted"
	tests := map[string]struct {
		// steps are what happens after web-0's client has synced: disconnect, beat (web-0's client is heard of again) or a plan.
		steps []string
		want  []TopicPartitions
		// wantMembers is the number of members at the end.
		wantMembers int
	}{
		"a client that is connected keeps what it holds while its pod is dead": {
			steps: []string{moves}, wantMembers: 2,
		},
		"a client whose connection closed keeps it while its pod is alive": {
			steps: []string{"disconnect"}, wantMembers: 2,
		},
		"a closed connection and a pod that has left the plan free it at once": {
			steps: []string{"disconnect", moves}, want: []TopicPartitions{{"orders", []int32{0}}}, wantMembers: 1,
		},
		"so they do in the other order": {
			steps: []string{moves, "disconnect"}, want: []TopicPartitions{{"orders", []int32{0}}}, wantMembers: 1,
		},
		"a client that was heard of since is not dead": {
			steps: []string{"disconnect", "beat", moves}, wantMembers: 2,
		},
		"a dead client of a pod in its grace period goes, and its partition stays with the pod": {
			steps: []string{"disconnect", staysInGrace, isBack}, wantMembers: 1,
		},
		"a closed connection and a container that was started again free it, though the pod was never seen dead": {
			steps: []string{"disconnect", restarted}, wantMembers: 1,
		},
		"a client that is connected is not dead: another container was started again": {
			steps: []string{restarted}, wantMembers: 2,
		},
		"a connection that closes long after a container was started again says nothing": {
			steps: []string{restarted, "disconnect"}, wantMembers: 2,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Unix(0, 0)
			share := []TopicPartitions{{"orders", []int32{0}}}
			plan := func(generation int32, members ...PlanMember) Plan {
				return Plan{Managed: true, Generation: generation, Members: members, HandoffTimeout: time.Minute}
			}
			zero := PlanMember{Pod: "web-0", UID: "u0", IP: "10.0.0.1", Share: share, Alive: true}
			one := PlanMember{Pod: "web-1", UID: "u1", IP: "10.0.0.2", Alive: true}
			grace := zero
			grace.Alive = false
			again := zero
			again.Restarts++
			plans := map[string]Plan{
				moves:        plan(2, PlanMember{Pod: "web-1", UID: "u1", IP: "10.0.0.2", Share: share, Alive: true}),
				staysInGrace: plan(1, grace, one),
				isBack:       plan(1, zero, one),
				restarted:    plan(1, again, one),
			}
			g := New("billing", Options{})
			g.Step(now, plan(1, zero, one))
			join := func(id, ip string) Output {
				return g.Step(now, Join{
					Client: Client{Host: ip}, NewMemberID: id, SessionTimeout: 45 * time.Second, ProtocolType: "consumer",
					Protocols: []Protocol{{Name: "range"}}, Subscription: &Subscription{Topics: []string{"orders"}},
				})
			}
			join("a", "10.0.0.1")
			g.Step(now, Sync{Client: Client{MemberID: "a"}, Generation: 1})
			for _, step := range test.steps {
				switch step {
				case "disconnect":
					g.Step(now, Disconnect{MemberID: "a"})
				case "beat":
					g.Step(now, Heartbeat{Client: Client{MemberID: "a"}, Generation: 1})
				default:
					g.Step(now, plans[step])
				}
			}
			join("b", "10.0.0.2")
			out := g.Step(now, Sync{Client: Client{MemberID: "b"}, Generation: g.members["b"].generation})
			if diff := cmp.Diff(test.want, out.Replies[0].Body.(SyncReply).Share); diff != "" {
				t.Errorf("web-1's client is given (-want +got):\n%s", diff)
			}
			if got := len(g.members); got != test.wantMembers {
				t.Errorf("%d members, want %d", got, test.wantMembers)
			}
		})
	}
}

func TestAPlanOfANewResourceCounts(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	g := New("billing", Options{})
	g.Step(now, Plan{Managed: true, UID: "old", Generation: 7})
	g.Step(now, Plan{Managed: true, UID: "old", Generation: 5})
	if got := g.Generation(); got != 7 {
		t.Errorf("a late plan made the generation %d, want 7", got)
	}
	g.Step(now, Plan{Managed: true, UID: "new", Generation: 1})
	if got := g.Generation(); got != 1 {
		t.Errorf("the generation is %d after the resource was created anew, want 1", got)
	}
}

// TestAMembersEpochIsNoneThatItsGroupHasYetToReach: the group's plan was of generation 0, and it is no longer managed.
func TestAMembersEpochIsNoneThatItsGroupHasYetToReach(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	g := New("billing", Options{AssignmentInterval: time.Second})
	join := Join{
		Client: Client{Host: "10.0.0.1"}, NewMemberID: "a", SessionTimeout: 45 * time.Second, RebalanceTimeout: time.Minute, ProtocolType: "consumer",
		Protocols: []Protocol{{Name: "range"}}, Subscription: &Subscription{Topics: []string{"orders"}},
	}
	g.Step(now, Topics{Topics: map[string]Topic{"orders": {ID: TopicID{1}, Partitions: 2}}})
	g.Step(now, Plan{Managed: true, UID: "u", Members: []PlanMember{{Pod: "web-0", UID: "u0", IP: "10.0.0.1", Alive: true}}})
	g.Step(now, join)
	g.Step(now, Plan{})
	g.Step(now, ConsumerHeartbeat{Token: 1, NewMemberID: "b", RebalanceTimeout: time.Minute, Topics: []string{"orders"}, Full: true})
	join.Client.MemberID = "a"
	g.Step(now, join)
	if m := g.members["b"]; m == nil || m.generation < 1 || m.generation > g.Generation() {
		t.Errorf("the group is of epoch %d, and its member %+v", g.Generation(), m)
	}
}
