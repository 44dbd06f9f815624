// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// The topic configurations that there are, under Kafka's names.
const (
	configRetentionMs     = "retention.ms"
	configRetentionBytes  = "retention.bytes"
	configCleanupPolicy   = "cleanup.policy"
	configMaxMessageBytes = "max.message.bytes"
)

// topicConfigNames lists them for messages.
var topicConfigNames = strings.Join([]string{configRetentionMs, configRetentionBytes, configCleanupPolicy, configMaxMessageBytes}, ", ")

const (
	minMessageBytes = 1024
	maxMessageBytes = 100 << 20
)

// topicConfig is one configuration of a topic as it is shown.
type topicConfig struct {
	name  string
	value string
	// def is the value of a topic that asks for nothing.
	def  string
	kind kmsg.ConfigType
	doc  string
}

// topicConfigs lists a topic's configurations, sorted by name.
func topicConfigs(c metadata.TopicConfig) []topicConfig {
	d := metadata.DefaultTopicConfig
	return []topicConfig{
		{configCleanupPolicy, c.CleanupPolicy, d.CleanupPolicy, kmsg.ConfigTypeList, "How records that are no longer needed go: delete, compact or compact,delete."},
		{configMaxMessageBytes, formatInt(int64(c.MaxMessageBytes)), formatInt(int64(d.MaxMessageBytes)), kmsg.ConfigTypeInt, "The largest record batch that may be produced, in bytes."},
		{configRetentionBytes, formatInt(max(c.RetentionBytes, -1)), formatInt(d.RetentionBytes), kmsg.ConfigTypeLong, "How many bytes of a partition are kept at most; -1 for no limit."},
		{configRetentionMs, formatMillis(c.RetentionTime), formatMillis(d.RetentionTime), kmsg.ConfigTypeLong, "How long records are kept at least, in milliseconds; -1 for ever."},
	}
}

func formatInt(v int64) string { return strconv.FormatInt(v, 10) }

func formatMillis(d time.Duration) string {
	if d < 0 {
		return "-1"
	}
	return formatInt(d.Milliseconds())
}

// parseTopicConfigs makes a configuration of what a client asks for. The error says what to do.
func parseTopicConfigs(entries []kmsg.CreateTopicsRequestTopicConfig) (metadata.TopicConfig, error) {
	c := metadata.DefaultTopicConfig
	for _, e := range entries {
		if e.Value == nil {
			continue // the default
		}
		if err := setTopicConfig(&c, e.Name, strings.TrimSpace(*e.Value)); err != nil {
			return c, err
		}
	}
	return c, nil
}

// setTopicConfig sets one entry.
func setTopicConfig(c *metadata.TopicConfig, name, value string) error {
	var err error
	switch name {
	case configRetentionMs:
		var ms int64
		// 2^63 nanoseconds are 292 years; Kafka's tools write the largest int64 for ever.
		if ms, err = parseConfigInt(name, value, -1, 1<<63-1); err == nil {
			c.RetentionTime = -1
			if ms >= 0 && ms <= int64((1<<63-1)/time.Millisecond) {
				c.RetentionTime = time.Duration(ms) * time.Millisecond
			}
		}
	case configRetentionBytes:
		c.RetentionBytes, err = parseConfigInt(name, value, -1, 1<<63-1)
	case configMaxMessageBytes:
		var n int64
		n, err = parseConfigInt(name, value, minMessageBytes, maxMessageBytes)
		c.MaxMessageBytes = int32(n)
	case configCleanupPolicy:
		c.CleanupPolicy, err = parseCleanupPolicy(value)
	default:
		err = fmt.Errorf("%w: %s is not a topic configuration here; there are %s", metadata.ErrInvalidConfig, strconv.Quote(clip(name)), topicConfigNames)
	}
	return err
}

func parseConfigInt(name, value string, low, high int64) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("%w: %s must be a whole number from %d to %d, not %q", metadata.ErrInvalidConfig, name, low, high, clip(value))
	}
	return n, nil
}

// parseCleanupPolicy takes the policies in any order, as Kafka does.
func parseCleanupPolicy(value string) (string, error) {
	var del, compact bool
	for part := range strings.SplitSeq(value, ",") {
		switch strings.TrimSpace(part) {
		case "delete":
			del = true
		case "compact":
			compact = true
		default:
			return "", fmt.Errorf("%w: %s must be delete, compact or compact,delete, not %q", metadata.ErrInvalidConfig, configCleanupPolicy, clip(value))
		}
	}
	switch {
	case del && compact:
		return "compact,delete", nil
	case compact:
		return "compact", nil
	default:
		return "delete", nil
	}
}

// clip shortens what a client sent for a message.
func clip(s string) string {
	const limit = 100
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "…"
}
