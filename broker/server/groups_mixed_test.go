// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// newProtocol makes a client one of the consumer protocol (KIP-848).
func newProtocol() []kgo.Opt {
	return []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())}
}

func TestClientsOfTheNewProtocolReadWhatThePlanSays(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.plan(1, pod("web-0", "127.0.0.2", 0, 5), pod("web-1", "127.0.0.3", 1, 2, 3, 4))
	values := b.produce("x", 60)
	a := b.join("web-0", "g", append(newProtocol(), from("127.0.0.2"))...)
	c := b.join("web-1", "g", from("127.0.0.3"))
	a.holds(t, 0, 5)
	c.holds(t, 1, 2, 3, 4)
	readBy(t, values, a, c)
	b.listed(t, map[string]string{"": "g:consumer:Stable", "consumer": "g:consumer:Stable", "classic": ""})
	described, err := b.admin().DescribeConsumerGroups(t.Context(), "g")
	if g := described["g"]; err != nil || g.Err != nil || g.State != coordinator.StateStable || g.Epoch != 1 || g.AssignorName != "ConsistentHash" || len(g.Members) != 2 {
		t.Fatalf("the group is described as %+v, %v", g, err)
	}
	for _, m := range described["g"].Members {
		want, kind := a.partitions(), memberConsumer
		if m.ClientID == "web-1" {
			want, kind = c.partitions(), memberClassic
		}
		if got := m.Assignment["orders"]; len(got) != len(want) || m.MemberType != kind {
			t.Errorf("member %s, of type %d, holds %v, want %v and type %d", m.ClientID, m.MemberType, m.Assignment, want, kind)
		}
	}

	b.plan(2, pod("web-0", "127.0.0.2", 0, 5, 4), pod("web-1", "127.0.0.3", 1, 2, 3))
	a.holds(t, 0, 4, 5)
	c.holds(t, 1, 2, 3)
	readBy(t, b.produce("y", 60), a, c)
	a.leave(t)
	b.plan(3, pod("web-1", "127.0.0.3", 0, 1, 2, 3, 4, 5))
	c.holds(t, 0, 1, 2, 3, 4, 5)
	b.listed(t, map[string]string{"": "g:classic:Stable", "classic": "g:classic:Stable"})
}

func TestAManagedGroupGoesOnAfterARestart(t *testing.T) {
	cases := map[string][]kgo.Opt{"classic": nil, "the new protocol": newProtocol()}
	for name, opts := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startGroupBroker(t)
			b.plan(1, pod("web-0", "127.0.0.1", 0, 5), pod("web-1", "127.0.0.1", 1, 2, 3, 4))
			opts := append(slices.Clone(opts), kgo.Dialer(dialPatiently))
			a := b.join("web-0", "g", opts...)
			c := b.join("web-1", "g", opts...)
			a.holds(t, 0, 5)
			c.holds(t, 1, 2, 3, 4)
			b.generation("g")
			_, takenA := a.counts()
			_, takenC := c.counts()
			b.restart()
			readBy(t, b.produce("x", 60), a, c)
			b.generation("g")
			b.plan(2, pod("web-0", "127.0.0.1", 0, 4, 5), pod("web-1", "127.0.0.1", 1, 2, 3))
			a.holds(t, 0, 4, 5)
			c.holds(t, 1, 2, 3)
			if _, now := a.counts(); now != takenA {
				t.Errorf("web-0 lost partitions %d times, want %d: it was to lose none", now, takenA)
			}
			if _, now := c.counts(); now != takenC+1 {
				t.Errorf("web-1 lost partitions %d times, want %d", now, takenC+1)
			}
		})
	}
}

func TestAGroupIsManagedNoMoreWhenItsResourceWentWhileTheBrokerWasAway(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.plan(1, pod("web-0", "127.0.0.1", 0, 1, 2, 3, 4, 5))
	a := b.join("web-0", "g", kgo.Dialer(dialPatiently))
	a.holds(t, 0, 1, 2, 3, 4, 5)
	b.stop()
	b.md.change(func(s *metadata.Snapshot) { delete(s.Groups, "g") })
	b.start()
	b.loaded()
	eventually(t, func() error {
		if d, known, _ := b.server.groups.describe(t.Context(), "g"); !known || d.Type != coordinator.TypeClassic || d.State != coordinator.StateStable {
			return fmt.Errorf("the group is %+v", d)
		}
		return nil
	})
	c := b.join("b", "g") // which no pod matches
	share(t, a, c)
}

func TestAGroupMovesToTheNewProtocolAndBackWhileItReads(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	values := b.produce("a", 60)
	old := b.join("old", "g")
	share(t, old)
	next := b.join("new", "g", newProtocol()...)
	share(t, old, next)
	readBy(t, values, old, next)
	b.listed(t, map[string]string{"": "g:consumer:Stable"})
	old.leave(t)
	share(t, next)
	values = append(values, b.produce("b", 60)...)
	readBy(t, values, old, next)

	again := b.join("old again", "g")
	share(t, next, again)
	next.leave(t)
	share(t, again)
	values = append(values, b.produce("c", 60)...)
	readBy(t, values, old, next, again)
	b.listed(t, map[string]string{"": "g:classic:Stable"})
	again.leave(t)
	committed(t, b, "g", 180)
}

func TestTheLeadersPlanIsDecodedWhereItIsOneOfConsumers(t *testing.T) {
	cases := map[string]struct {
		protocolType *string
		data         []byte
		want         map[string][]coordinator.TopicPartitions
	}{
		"a consumers' plan":        {kmsg.StringPtr(consumerProtocol), encodeShare(ordersShare(1, 2)), map[string][]coordinator.TopicPartitions{"m": ordersShare(1, 2)}},
		"of an old version":        {nil, encodeShare(nil), map[string][]coordinator.TopicPartitions{"m": {}}},
		"one of another encoding":  {nil, []byte("plan"), map[string][]coordinator.TopicPartitions{}},
		"of another protocol type": {kmsg.StringPtr("connect"), encodeShare(ordersShare(1)), nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			req := kmsg.NewPtrSyncGroupRequest()
			req.ProtocolType = tc.protocolType
			req.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: "m", MemberAssignment: tc.data}}
			got := syncInput(1, &request{}, req, 0).Shares
			if fmt.Sprint(got) != fmt.Sprint(tc.want) || (got == nil) != (tc.want == nil) {
				t.Errorf("the shares are %v, want %v", got, tc.want)
			}
		})
	}
}

func TestWhatABrokerThatStopsClosesSaysNothingOfItsClients(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	gone := pod("web-0", "127.0.0.1", 0, 5)
	gone.Alive = false // its kubelet takes it for dead; it may still be reading
	b.plan(1, gone, pod("web-1", "127.0.0.1", 1, 2, 3, 4))
	a := b.join("web-0", "g", kgo.Dialer(dialPatiently))
	a.holds(t, 0, 5)
	_, taken := a.counts()
	b.restart()
	readBy(t, b.produce("x", 12)[:1], a)
	eventually(t, func() error {
		d, _, _ := b.server.groups.describe(t.Context(), "g")
		if len(d.Members) != 1 {
			return errors.New("the member is gone")
		}
		return nil
	})
	if _, now := a.counts(); now != taken {
		t.Errorf("the member lost partitions %d times, want %d", now, taken)
	}
}
