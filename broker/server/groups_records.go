// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

// The keys and values of what is stored in the topic __consumer_offsets. Every key begins with its version, a big-endian int16; strings in keys have their
// length, a big-endian int16, before them, as in Kafka. A record without a value is a tombstone.
//
//   - A committed offset is stored as Kafka stores it: Kafka's OffsetCommitKey v1 and OffsetCommitValue v3. Any tool that reads Kafka's offsets topic reads
//     ours. Version 0 of the key is read too.
//   - What a group remembers of itself has the key version 1000 and the group id; the value is coordinator.GroupState as JSON.
//   - A member has the key version 1001, the group id and the member id; the value is coordinator.MemberState as JSON.
//
// Kafka's own key versions go on from 2 and are far from ours; tools pass over those that they do not know, and so does the broker.
const (
	offsetKeyVersion   = 1
	offsetValueVersion = 3
	groupKeyVersion    = 1000
	memberKeyVersion   = 1001
)

// groupRecord is a coordinator's record with the group that it belongs to.
type groupRecord struct {
	group string
	coordinator.Record
}

// encodeRecord makes the key and the value of a record; the value is nil for a tombstone.
func encodeRecord(r groupRecord) (key, value []byte, err error) {
	switch r.Kind {
	case coordinator.OffsetRecord:
		key, value = encodeOffset(r)
		return key, value, nil
	case coordinator.GroupRecord:
		key = appendKey(groupKeyVersion, r.group)
		if !r.Deleted {
			value, err = json.Marshal(r.Group)
		}
	case coordinator.MemberRecord:
		key = appendKey(memberKeyVersion, r.group, r.MemberID)
		if !r.Deleted {
			value, err = json.Marshal(r.Member)
		}
	default:
		return nil, nil, fmt.Errorf("a record of kind %d cannot be stored", r.Kind)
	}
	return key, value, err
}

// encodeOffset encodes a committed offset in Kafka's formats.
func encodeOffset(r groupRecord) (key, value []byte) {
	k := kmsg.OffsetCommitKey{Version: offsetKeyVersion, Group: r.group, Topic: r.Topic, Partition: r.Partition}
	if r.Deleted {
		return k.AppendTo(nil), nil
	}
	v := kmsg.OffsetCommitValue{
		Version:         offsetValueVersion,
		Offset:          r.Offset.Offset,
		LeaderEpoch:     r.Offset.LeaderEpoch,
		Metadata:        r.Offset.Metadata,
		CommitTimestamp: r.Offset.CommitTime.UnixMilli(),
	}
	return k.AppendTo(nil), v.AppendTo(nil)
}

// appendKey makes a key of our own: its version and strings.
func appendKey(version uint16, parts ...string) []byte {
	key := binary.BigEndian.AppendUint16(nil, version)
	for _, s := range parts {
		key = append(binary.BigEndian.AppendUint16(key, uint16(len(s))), s...)
	}
	return key
}

// errKey says that a key is not what its version says.
var errKey = errors.New("the key is not what its version says")

// splitKey takes n strings, and nothing else, from a key of our own.
func splitKey(key []byte, n int) ([]string, error) {
	key = key[2:] // the version
	parts := make([]string, n)
	for i := range parts {
		if len(key) < 2 {
			return nil, errKey
		}
		size := int(int16(binary.BigEndian.Uint16(key)))
		if size < 0 || size > len(key)-2 {
			return nil, errKey
		}
		parts[i], key = string(key[2:2+size]), key[2+size:]
	}
	if len(key) > 0 {
		return nil, errKey
	}
	return parts, nil
}

// decodeRecord decodes a record; ok is false where its key is not one of those above.
func decodeRecord(key, value []byte) (r groupRecord, ok bool, err error) {
	if len(key) < 2 {
		return r, false, nil
	}
	switch version := binary.BigEndian.Uint16(key); {
	case version <= offsetKeyVersion:
		r, err = decodeOffset(key, value)
	case version == groupKeyVersion:
		r, err = decodeGroup(key, value)
	case version == memberKeyVersion:
		r, err = decodeMember(key, value)
	default:
		return r, false, nil
	}
	return r, err == nil, err
}

func decodeOffset(key, value []byte) (r groupRecord, err error) {
	var k kmsg.OffsetCommitKey
	if err := k.ReadFrom(key); err != nil {
		return r, fmt.Errorf("decode an offset's key: %w", err)
	}
	r.group, r.Topic, r.Partition = k.Group, k.Topic, k.Partition
	if value == nil {
		r.Deleted = true
		return r, nil
	}
	v := kmsg.OffsetCommitValue{LeaderEpoch: -1} // versions below 3 have none
	if err := v.ReadFrom(value); err != nil {
		return r, fmt.Errorf("decode an offset's value: %w", err)
	}
	r.Offset = coordinator.Offset{
		Offset:      v.Offset,
		LeaderEpoch: v.LeaderEpoch,
		Metadata:    v.Metadata,
		CommitTime:  time.UnixMilli(v.CommitTimestamp),
	}
	return r, nil
}

func decodeGroup(key, value []byte) (r groupRecord, err error) {
	parts, err := splitKey(key, 1)
	if err != nil {
		return r, fmt.Errorf("decode a group's key: %w", err)
	}
	r.group, r.Kind = parts[0], coordinator.GroupRecord
	if value == nil {
		r.Deleted = true
		return r, nil
	}
	r.Group = new(coordinator.GroupState)
	if err := json.Unmarshal(value, r.Group); err != nil {
		return r, fmt.Errorf("decode the state of group %q: %w", r.group, err)
	}
	return r, nil
}

func decodeMember(key, value []byte) (r groupRecord, err error) {
	parts, err := splitKey(key, 2)
	if err != nil {
		return r, fmt.Errorf("decode a member's key: %w", err)
	}
	r.group, r.Kind, r.MemberID = parts[0], coordinator.MemberRecord, parts[1]
	if value == nil {
		r.Deleted = true
		return r, nil
	}
	r.Member = new(coordinator.MemberState)
	if err := json.Unmarshal(value, r.Member); err != nil {
		return r, fmt.Errorf("decode member %q of group %q: %w", r.MemberID, r.group, err)
	}
	return r, nil
}
