// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestDescribeGroupsTellsTheGenerationAndSinceWhenItIsCoordinated(t *testing.T) {
	t.Parallel()
	begun := time.Now().Truncate(time.Millisecond)
	b := startGroupBroker(t)
	b.plan(7, pod("web-0", "127.0.0.2", 0, 1, 2, 3, 4, 5))
	b.join("web-0", "g", from("127.0.0.2")).holds(t, 0, 1, 2, 3, 4, 5)
	for _, version := range []int16{4, 5, 6} {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups = []string{"g"}
		resp := ask[*kmsg.DescribeGroupsResponse](b, req, version)
		var tags, generation uint32
		var since time.Time
		resp.Groups[0].UnknownTags.Each(func(tag uint32, value []byte) {
			tags++
			if tag == 10000 && len(value) == 4 {
				generation = binary.BigEndian.Uint32(value)
			}
			if tag == 10001 && len(value) == 8 {
				since = time.UnixMilli(int64(binary.BigEndian.Uint64(value)))
			}
		})
		switch {
		case version < 5 && tags != 0:
			t.Errorf("v%d: %d tags in a version that has none", version, tags)
		case version >= 5 && (tags != 2 || generation != 7 || since.Before(begun) || since.After(time.Now())):
			t.Errorf("v%d: %d tags, generation %d, coordinated since %s; want two tags, generation 7, and a time after %s", version, tags, generation, since, begun)
		}
	}
}

func TestAnAdminToolCommitsForAPausedGroup(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.plan(1, pod("web-0", "127.0.0.2", 0, 1, 2))
	member := b.join("web-0", "g", from("127.0.0.2"), kgo.Balancers(kgo.CooperativeStickyBalancer()))
	member.holds(t, 0, 1, 2)
	commit := func(partition int32) error {
		offsets := kadm.Offsets{}
		offsets.AddOffset("orders", partition, 5, -1)
		committed, err := b.admin().CommitOffsets(t.Context(), "g", offsets)
		return firstOf(err, committed.Error())
	}
	if err := commit(1); err != kerr.UnknownMemberID { //nolint:errorlint // kadm returns it as it is
		t.Errorf("a commit for what a member reads: %v, want %v", err, kerr.UnknownMemberID)
	}
	if err := commit(3); err != nil {
		t.Errorf("a commit for what no member reads: %v", err)
	}
	b.plan(2, pod("web-0", "127.0.0.2"))
	eventually(t, func() error { return commit(1) })
}
