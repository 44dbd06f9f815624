// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// pod is a member of a managed group in a test: its share of orders.
func pod(name, ip string, partitions ...int32) metadata.GroupMember {
	m := metadata.GroupMember{Pod: name, UID: "uid-" + name, IP: ip, Alive: true, Partitions: map[string][]int32{}}
	if len(partitions) > 0 {
		m.Partitions["orders"] = partitions
	}
	return m
}

// plan makes g a managed group with these members.
func (b *groupBroker) plan(generation int32, members ...metadata.GroupMember) {
	b.md.change(func(s *metadata.Snapshot) {
		s.Groups["g"] = &metadata.Group{
			ID: "g", Generation: generation, Assigner: "ConsistentHash", Topics: []string{"orders"},
			Members: members, HandoffTimeout: groupDeadline,
		}
	})
}

// from makes a client connect from an address, as a pod of that address does.
func from(ip string) kgo.Opt {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	return kgo.Dialer(d.DialContext)
}

func TestClientsOfAManagedGroupReadWhatThePlanSays(t *testing.T) {
	cases := map[string]struct {
		opts func(name, ip string) []kgo.Opt
		ips  [3]string
	}{
		"matched by their addresses": {
			ips:  [3]string{"127.0.0.2", "127.0.0.3", "127.0.0.4"},
			opts: func(_, ip string) []kgo.Opt { return []kgo.Opt{from(ip), kgo.ClientID("some-app")} },
		},
		"matched by their client ids where all have one address": {
			ips:  [3]string{"127.0.0.1", "127.0.0.1", "127.0.0.1"},
			opts: func(name, _ string) []kgo.Opt { return []kgo.Opt{kgo.ClientID(name)} },
		},
		"matched by their instance ids": {
			ips:  [3]string{"127.0.0.1", "127.0.0.1", "127.0.0.1"},
			opts: func(name, _ string) []kgo.Opt { return []kgo.Opt{kgo.ClientID("some-app"), kgo.InstanceID(name)} },
		},
		"with an eager protocol": {
			ips: [3]string{"127.0.0.2", "127.0.0.3", "127.0.0.4"},
			opts: func(_, ip string) []kgo.Opt {
				return []kgo.Opt{from(ip), kgo.ClientID("some-app"), kgo.Balancers(kgo.RangeBalancer())}
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startGroupBroker(t)
			b.plan(1, pod("web-0", tc.ips[0], 0, 5), pod("web-1", tc.ips[1], 1, 2), pod("web-2", tc.ips[2], 3, 4))
			values := b.produce("x", 60)
			members := make([]*groupMember, 3)
			for i := range members {
				name := fmt.Sprintf("web-%d", i)
				members[i] = b.join(name, "g", tc.opts(name, tc.ips[i])...)
			}
			members[0].holds(t, 0, 5)
			members[1].holds(t, 1, 2)
			members[2].holds(t, 3, 4)
			readBy(t, values, members...)

			steady := members[0]
			assigned, taken := steady.counts()
			b.plan(2, pod("web-0", tc.ips[0], 0, 5), pod("web-1", tc.ips[1], 1, 2, 3), pod("web-2", tc.ips[2], 4))
			members[1].holds(t, 1, 2, 3)
			members[2].holds(t, 4)
			b.plan(3, pod("web-0", tc.ips[0], 0, 5), pod("web-1", tc.ips[1], 1, 2), pod("web-2", tc.ips[2], 3, 4))
			members[1].holds(t, 1, 2)
			members[2].holds(t, 3, 4)
			more := b.produce("y", 60)
			readBy(t, more, members...)
			steady.holds(t, 0, 5)
			if a, l := steady.counts(); a != assigned || l != taken {
				t.Errorf("the member whose share did not change was assigned %d and lost %d times, want %d and %d", a, l, assigned, taken)
			}
			describeStable(t, b.admin(), 3)
		})
	}
}

func TestAPartitionThatMovesIsFirstLetGo(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.plan(1, pod("web-0", "127.0.0.2", 0, 1, 2, 3, 4, 5))
	var old *groupMember
	letGo, revoking := make(chan struct{}), make(chan struct{})
	old = b.join("web-0", "g", from("127.0.0.2"), kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
			if len(lost) == 0 {
				return
			}
			select {
			case <-revoking:
			default:
				close(revoking)
			}
			<-letGo
			old.mu.Lock()
			defer old.mu.Unlock()
			for _, p := range lost["orders"] {
				delete(old.owned, p)
			}
		}))
	old.holds(t, 0, 1, 2, 3, 4, 5)
	b.plan(2, pod("web-0", "127.0.0.2", 0, 1, 2), pod("web-1", "127.0.0.3", 3, 4, 5))
	next := b.join("web-1", "g", from("127.0.0.3"), kgo.Balancers(kgo.CooperativeStickyBalancer()))
	await(t, revoking, "the old owner is told to let go")
	eventually(t, func() error {
		if assigned, _ := next.counts(); assigned == 0 {
			return errors.New("the new owner has not had its first answer")
		}
		return nil
	})
	if held := next.partitions(); len(held) > 0 {
		t.Errorf("the new owner has %v while the old one still holds them", held)
	}
	close(letGo)
	next.holds(t, 3, 4, 5)
	old.holds(t, 0, 1, 2)
}

func await(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(groupDeadline):
		t.Fatalf("waited %v until %s", groupDeadline, what)
	}
}

func TestAManagedGroupIsThereBeforeItsClientsAndGoesWithItsResource(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.plan(7, pod("web-0", "127.0.0.1", 0, 1, 2, 3, 4, 5))
	admin := b.admin()
	eventually(t, func() error {
		groups, err := admin.ListGroups(t.Context())
		if err == nil && !slices.Contains(groups.Groups(), "g") {
			err = fmt.Errorf("the groups are %v", groups.Groups())
		}
		return err
	})
	if r, err := admin.DeleteGroup(t.Context(), "g"); !errors.Is(firstOf(err, r.Err), kerr.PolicyViolation) {
		t.Errorf("delete a managed group: %v, %v", err, r.Err)
	}
	a := b.join("a", "g")
	share(t, a)
	b.md.change(func(s *metadata.Snapshot) { delete(s.Groups, "g") })
	c := b.join("b", "g")
	share(t, a, c) // an ordinary group now, which the clients divide themselves
}

// twoBrokers starts two brokers that lead the partitions of every topic in turn.
func twoBrokers(t *testing.T) (one, two *groupBroker) {
	t.Helper()
	md := newGroupMetadata()
	md.change(func(s *metadata.Snapshot) {
		for name, topic := range s.Topics {
			topic := *topic
			topic.Leaders = slices.Clone(topic.Leaders)
			for i := range topic.Leaders {
				topic.Leaders[i] = int32(1 + i%2)
			}
			s.Topics[name] = &topic
		}
	})
	return startGroupBrokerNode(t, 1, md), startGroupBrokerNode(t, 2, md)
}

func TestTheGroupsOfTwoBrokersAreServedByTheirCoordinators(t *testing.T) {
	t.Parallel()
	b, _ := twoBrokers(t)
	values := b.produce("x", 60)
	for _, group := range []string{"g", "h", "i", "j"} { // their hashes differ by one: two for each broker
		a, c := b.join("a", group), b.join("b", group)
		share(t, a, c)
		readBy(t, values, a, c)
		a.leave(t)
		c.leave(t)
		committed(t, b, group, 60)
	}
	listed, err := b.admin().ListGroups(t.Context())
	if got := listed.Groups(); err != nil || !slices.Equal(got, []string{"g", "h", "i", "j"}) {
		t.Errorf("the groups are %v, %v", got, err)
	}
}

func TestAManagedGroupBeginsWhereItsResourceSays(t *testing.T) {
	cases := map[string]struct {
		initial string
		reset   kgo.Offset
		// want are the offsets of the first two partitions before anybody has committed.
		want string
		// wantOld says that the records are read that were there before.
		wantOld bool
	}{
		"from the oldest record, though the client would begin at the end": {
			initial: "Earliest", reset: kgo.NewOffset().AtEnd(), want: "orders-0:0 orders-1:0", wantOld: true,
		},
		"from the end, though the client would begin at the oldest record": {
			initial: "Latest", reset: kgo.NewOffset().AtStart(), want: "orders-0:10 orders-1:10",
		},
		"where the client says, as the resource does not": {reset: kgo.NewOffset().AtStart(), want: "orders-0:-1 orders-1:-1", wantOld: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := managedByOneOfTwo(t, tc.initial)
			old := b.produce("old", 60)
			if got := fetchOffsets(b, 7, "g", false); got != tc.want {
				t.Errorf("the offsets are %s, want %s", got, tc.want)
			}
			m := b.join("web-0", "g", kgo.ConsumeResetOffset(tc.reset))
			share(t, m)
			rounds := 0
			eventually(t, func() error { // a client may begin between two records
				rounds++
				b.produce(fmt.Sprintf("round%d", rounds), 6)
				return m.readsAll()
			})
			values := b.produce("new", 60)
			if tc.wantOld {
				values = append(values, old...)
			}
			readBy(t, values, m)
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, v := range old {
				if m.values[v] > 0 != tc.wantOld {
					t.Fatalf("%s is read %d times, want it read: %t", v, m.values[v], tc.wantOld)
				}
			}
		})
	}
}

// readsAll says whether the member has read something new from each of the six partitions, which are produced to in turn.
func (m *groupMember) readsAll() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	read := make(map[byte]bool)
	for v := range m.values {
		if strings.HasPrefix(v, "round") {
			read[v[len(v)-1]] = true
		}
	}
	if len(read) < 6 {
		return fmt.Errorf("%s reads %d partitions", m.name, len(read))
	}
	return nil
}

// managedByOneOfTwo starts two brokers, makes g a managed group and returns its coordinator once that knows of it.
func managedByOneOfTwo(t *testing.T, initial string) *groupBroker {
	t.Helper()
	one, two := twoBrokers(t)
	one.plan(1, pod("web-0", "127.0.0.1", 0, 1, 2, 3, 4, 5))
	one.md.change(func(s *metadata.Snapshot) {
		g := *s.Groups["g"]
		g.InitialOffset = initial
		s.Groups["g"] = &g
	})
	leader, _, _ := coordinatorOf(one.md.Snapshot(), "g")
	b := map[int32]*groupBroker{1: one, 2: two}[leader]
	eventually(t, func() error {
		var managed bool
		if _, code := b.server.groups.view(t.Context(), "g", func(g *coordinator.Group) { managed = g.Managed() }); !managed {
			return fmt.Errorf("the group is not managed yet, error code %d", code)
		}
		return nil
	})
	return b
}

func TestWhereAManagedGroupBeginsIsNotGuessed(t *testing.T) {
	t.Parallel()
	here := managedByOneOfTwo(t, initialEarliest)
	if got := fetchOffsets(here, 7, "g", false); got != "orders-0:0 orders-1:0" {
		t.Errorf("the initial offsets are %s", got)
	}
	here.md.change(func(s *metadata.Snapshot) { // the other one goes
		s.Brokers = slices.DeleteFunc(slices.Clone(s.Brokers), func(b metadata.Broker) bool { return b.ID != here.node })
	})
	eventually(t, func() error {
		if here.server.snapshot() != here.md.Snapshot() {
			return errors.New("the broker has not noticed")
		}
		return nil
	})
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = "g"
	req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "orders", Partitions: []int32{0, 1}}}
	resp := ask[*kmsg.OffsetFetchResponse](here, req, 7)
	if resp.ErrorCode != codeCoordinatorLoading || resp.Topics[0].Partitions[0].ErrorCode != codeCoordinatorLoading {
		t.Errorf("with the other broker down the offsets are %+v, want an error upon which a client tries again", resp)
	}
}

func TestTheOffsetsOfADeletedTopicGo(t *testing.T) {
	cases := map[string]struct {
		deleteData bool
		want       string
	}{
		"with its records":              {deleteData: true, want: "orders-0:-1 orders-1:-1"},
		"but stay where the records do": {want: "orders-0:5m orders-1:-1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startGroupBroker(t)
			b.loaded()
			b.md.change(func(s *metadata.Snapshot) {
				topic := *s.Topics["orders"]
				topic.DeleteData = tc.deleteData
				s.Topics["orders"] = &topic
			})
			ask[*kmsg.OffsetCommitResponse](b, commitRequest("g"), 7)
			followed := func() error {
				if b.server.snapshot() != b.md.Snapshot() {
					return errors.New("the broker has not noticed")
				}
				return nil
			}
			eventually(t, followed)
			old := b.md.Snapshot().Topics["orders"]
			b.md.change(func(s *metadata.Snapshot) { delete(s.Topics, "orders") })
			eventually(t, followed)
			eventually(t, func() error {
				if got := fetchOffsets(b, 7, "g", false); got != tc.want {
					return fmt.Errorf("the offsets are %s, want %s", got, tc.want)
				}
				return nil
			})
			b.md.change(func(s *metadata.Snapshot) { s.Topics["orders"] = old })
			eventually(t, followed)
			if got := fetchOffsets(b, 7, "g", false); got != tc.want {
				t.Errorf("when the topic is there again the offsets are %s, want %s", got, tc.want)
			}
		})
	}
}
