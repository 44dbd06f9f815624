// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"regexp"
	"time"
)

const (
	// MaxPartitions is how many partitions a topic may have.
	MaxPartitions = 10000
	// DefaultOffsetsPartitions is the number of partitions of the topic that holds committed offsets, where nobody says how many.
	DefaultOffsetsPartitions = 16

	minMessage = 1024
	maxMessage = 100 << 20
	minSegment = 14
)

// topicName is Kafka's rule for the names of topics; "." and ".." are refused too.
var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

// CheckName refuses names that no topic can have, with ErrInvalidTopic.
func CheckName(name string) error {
	if !topicName.MatchString(name) || name == "." || name == ".." {
		return fmt.Errorf("%w %q: use 1 to 249 letters, digits, '.', '_' and '-', and not '.' or '..'", ErrInvalidTopic, Clip(name))
	}
	return nil
}

// Clip shortens a name that goes into a message.
func Clip(name string) string {
	const longest = 300
	if len(name) > longest {
		return name[:longest] + "..."
	}
	return name
}

// CheckPartitions refuses numbers of partitions that no topic can have, with ErrInvalidPartitions.
func CheckPartitions(topic string, n int32) error {
	if n < 1 || n > MaxPartitions {
		return fmt.Errorf("topic %q: %w: %d is not from 1 to %d", topic, ErrInvalidPartitions, n, MaxPartitions)
	}
	return nil
}

// CheckConfig refuses configurations that no topic can have, with ErrInvalidConfig.
func CheckConfig(topic string, c TopicConfig) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("topic %q: %w: %s", topic, ErrInvalidConfig, fmt.Sprintf(format, args...))
	}
	switch {
	case c.RetentionBytes < -1:
		return refuse("retention.bytes must be -1 (no limit) or more, not %d", c.RetentionBytes)
	case c.MaxMessageBytes < minMessage || c.MaxMessageBytes > maxMessage:
		return refuse("max.message.bytes must be from %d to %d, not %d", minMessage, maxMessage, c.MaxMessageBytes)
	case c.TombstoneRetention < 0:
		return refuse("delete.retention.ms must be 0 or more, not %d", c.TombstoneRetention.Milliseconds())
	case c.SegmentBytes != 0 && c.SegmentBytes < minSegment:
		return refuse("segment.bytes must be %d or more, not %d", minSegment, c.SegmentBytes)
	case c.SegmentTime != 0 && c.SegmentTime < time.Millisecond:
		return refuse("segment.ms must be 1 or more, not %d", c.SegmentTime.Milliseconds())
	}
	switch c.CleanupPolicy {
	case "delete", "compact", "compact,delete", "delete,compact":
		return nil
	default:
		return refuse("cleanup.policy must be delete, compact or both with a comma between them, not %q", Clip(c.CleanupPolicy))
	}
}

// OffsetsConfig is the configuration of the topic that holds committed offsets: it keeps them for ever.
func OffsetsConfig() TopicConfig {
	c := DefaultTopicConfig
	c.RetentionTime, c.CleanupPolicy = -1, "compact"
	return c
}

// NewTopicID draws a topic's id: a random uuid (version 4), which no id that Kafka reserves can equal.
func NewTopicID() (id TopicID) {
	_, _ = rand.Read(id[:]) // never fails: it ends the program instead
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}

// EncodeID writes an id in unpadded URL-safe base64, as Kafka prints it.
func EncodeID(id TopicID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// DecodeID reads what EncodeID writes.
func DecodeID(s string) (id TopicID, err error) {
	var raw []byte
	if len(s) == base64.RawURLEncoding.EncodedLen(len(id)) {
		raw, err = base64.RawURLEncoding.DecodeString(s)
	}
	if err != nil || len(raw) != len(id) {
		return id, fmt.Errorf("id %q is not 16 bytes in unpadded URL-safe base64", Clip(s))
	}
	copy(id[:], raw)
	return id, nil
}
