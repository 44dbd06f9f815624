// SPDX-License-Identifier: Apache-2.0

package file

import (
	"fmt"
	"regexp"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

const (
	maxPartitions = 10000
	minMessage    = 1024
	maxMessage    = 100 << 20
	minSegment    = 14
)

// topicName is Kafka's rule for the names of topics; "." and ".." are refused too.
var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

func checkName(name string) error {
	if !topicName.MatchString(name) || name == "." || name == ".." {
		return fmt.Errorf("%w %q: use 1 to 249 letters, digits, '.', '_' and '-', and not '.' or '..'", metadata.ErrInvalidTopic, clip(name))
	}
	return nil
}

// clip shortens a name that goes into a message.
func clip(name string) string {
	const longest = 300
	if len(name) > longest {
		return name[:longest] + "..."
	}
	return name
}

func checkPartitions(name string, n int32) error {
	if n < 1 || n > maxPartitions {
		return fmt.Errorf("topic %q: %w: %d is not from 1 to %d", name, metadata.ErrInvalidPartitions, n, maxPartitions)
	}
	return nil
}

func checkConfig(name string, c metadata.TopicConfig) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("topic %q: %w: %s", name, metadata.ErrInvalidConfig, fmt.Sprintf(format, args...))
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
		return refuse("cleanup.policy must be delete, compact or both with a comma between them, not %q", clip(c.CleanupPolicy))
	}
}
