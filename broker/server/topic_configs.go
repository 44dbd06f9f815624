// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// The topic configurations that there are, under Kafka's names.
const (
	configCleanupPolicy     = "cleanup.policy"
	configDeleteRetentionMs = "delete.retention.ms"
	configFlushMessages     = "flush.messages"
	configMaxMessageBytes   = "max.message.bytes"
	configTimestampType     = "message.timestamp.type"
	configRetentionBytes    = "retention.bytes"
	configRetentionMs       = "retention.ms"
	configSegmentBytes      = "segment.bytes"
	configSegmentMs         = "segment.ms"
)

const (
	minMessageBytes = 1024
	maxMessageBytes = 100 << 20
	minSegmentBytes = 14
	// createTime and logAppendTime are the values of message.timestamp.type.
	createTime, logAppendTime = "CreateTime", "LogAppendTime"
	// flushEach is the value of flush.messages with which a batch counts as stored when it is on disk.
	flushEach = 1
	// flushNever is the one, Kafka's default, with which the operating system writes to disk in its own time.
	flushNever = math.MaxInt64
)

// topicSetting is a configuration of a topic that can be set.
type topicSetting struct {
	name string
	kind kmsg.ConfigType
	doc  string
	get  func(metadata.TopicConfig) string
	// set sets the configuration. The error says what to give instead.
	set func(*metadata.TopicConfig, string) error
}

// topicSettings are the configurations that can be set, by name.
var topicSettings = []topicSetting{
	{
		configCleanupPolicy, kmsg.ConfigTypeList, "How records that are no longer needed go: delete, compact, or both with a comma between them.",
		func(c metadata.TopicConfig) string { return c.CleanupPolicy }, setCleanupPolicy,
	},
	{
		configDeleteRetentionMs, kmsg.ConfigTypeLong, "How long compaction keeps a record without a value at least, in milliseconds.",
		func(c metadata.TopicConfig) string { return formatMillis(c.TombstoneRetention) }, setTombstoneRetention,
	},
	{
		configFlushMessages, kmsg.ConfigTypeLong,
		"When a record counts as stored: 1 when it is on disk; " + formatInt(flushNever) + " when the operating system has it.",
		func(c metadata.TopicConfig) string {
			if c.FlushOS {
				return formatInt(flushNever)
			}
			return formatInt(flushEach)
		}, setFlush,
	},
	{
		configMaxMessageBytes, kmsg.ConfigTypeInt, "The largest record batch that may be produced, in bytes.",
		func(c metadata.TopicConfig) string { return formatInt(int64(c.MaxMessageBytes)) }, setMaxMessageBytes,
	},
	{
		configTimestampType, kmsg.ConfigTypeString,
		"Whose a record's timestamp is: " + createTime + ", its producer's; " + logAppendTime + ", the broker's, when it appended the record.",
		func(c metadata.TopicConfig) string {
			if c.LogAppendTime {
				return logAppendTime
			}
			return createTime
		}, setTimestampType,
	},
	{
		configRetentionBytes, kmsg.ConfigTypeLong, "How many bytes of a partition are kept at most; -1 for no limit.",
		func(c metadata.TopicConfig) string { return formatInt(max(c.RetentionBytes, -1)) }, setRetentionBytes,
	},
	{
		configRetentionMs, kmsg.ConfigTypeLong, "How long records are kept at least, in milliseconds; -1 for ever.",
		func(c metadata.TopicConfig) string { return formatMillis(c.RetentionTime) }, setRetentionTime,
	},
	{
		configSegmentBytes, kmsg.ConfigTypeInt,
		"The size at which a partition's log starts a new segment, in bytes; more than 1 GiB counts as that. Retention removes whole segments.",
		func(c metadata.TopicConfig) string { return formatInt(int64(c.SegmentBytes)) }, setSegmentBytes,
	},
	{
		configSegmentMs, kmsg.ConfigTypeLong, "The age at which a partition's log starts a new segment, however small the old one is, in milliseconds.",
		func(c metadata.TopicConfig) string { return formatMillis(c.SegmentTime) }, setSegmentTime,
	},
}

// topicFact is a configuration of Kafka's that has one value here. It may be set to that, for tools and libraries do when they create topics, and to
// no other.
type topicFact struct {
	name, value string
	kind        kmsg.ConfigType
	// doc says why.
	doc string
}

// topicFacts are the configurations of one value, by name.
var topicFacts = []topicFact{
	{"compression.type", "producer", kmsg.ConfigTypeString, "Batches are kept as the producer compressed them."},
	{"flush.ms", formatInt(math.MaxInt64), kmsg.ConfigTypeLong, "flush.messages says when records are flushed; no time does."},
	{"max.compaction.lag.ms", formatInt(math.MaxInt64), kmsg.ConfigTypeLong, "No age of a record makes compaction begin."},
	{"message.timestamp.after.max.ms", formatInt(math.MaxInt64), kmsg.ConfigTypeLong, "A producer may set any timestamp."},
	{"message.timestamp.before.max.ms", formatInt(math.MaxInt64), kmsg.ConfigTypeLong, "A producer may set any timestamp."},
	{"min.compaction.lag.ms", "0", kmsg.ConfigTypeLong, "No age keeps a record from being compacted."},
	{"min.insync.replicas", "1", kmsg.ConfigTypeInt, "A partition has one replica."},
	{"preallocate", "false", kmsg.ConfigTypeBoolean, "Segments grow as they are written."},
	{"remote.storage.enable", "false", kmsg.ConfigTypeBoolean, "All records are on the brokers' own storage."},
	{"unclean.leader.election.enable", "false", kmsg.ConfigTypeBoolean, "A partition has one replica."},
}

// topicConfigNames lists what can be set, for messages.
var topicConfigNames = func() string {
	names := make([]string, 0, len(topicSettings))
	for i := range topicSettings {
		names = append(names, topicSettings[i].name)
	}
	return strings.Join(names, ", ")
}()

// topicConfig is one configuration of a topic as it is shown.
type topicConfig struct {
	name  string
	value string
	// def is the value of a topic that asks for nothing.
	def      string
	kind     kmsg.ConfigType
	doc      string
	readOnly bool
}

// topicConfigs lists a topic's configurations, sorted by name.
func topicConfigs(c metadata.TopicConfig) []topicConfig {
	configs := make([]topicConfig, 0, len(topicSettings)+len(topicFacts))
	for _, t := range topicSettings {
		configs = append(configs, topicConfig{name: t.name, value: t.get(c), def: t.get(metadata.DefaultTopicConfig), kind: t.kind, doc: t.doc})
	}
	for _, f := range topicFacts {
		configs = append(configs, topicConfig{name: f.name, value: f.value, def: f.value, kind: f.kind, doc: f.doc, readOnly: true})
	}
	slices.SortFunc(configs, func(a, b topicConfig) int { return strings.Compare(a.name, b.name) })
	return configs
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
		if err := setTopicConfig(&c, e.Name, *e.Value); err != nil {
			return c, err
		}
	}
	return c, nil
}

// setTopicConfig sets one entry.
func setTopicConfig(c *metadata.TopicConfig, name, value string) error {
	value = strings.TrimSpace(value)
	if t := findSetting(name); t != nil {
		return t.set(c, value)
	}
	f, err := findFact(name)
	if err != nil {
		return err
	}
	if !strings.EqualFold(value, f.value) {
		return fmt.Errorf("%w: %s can only be %s here, not %q: %s", metadata.ErrInvalidConfig, name, f.value, clip(value), f.doc)
	}
	return nil
}

// resetTopicConfig gives one entry its default.
func resetTopicConfig(c *metadata.TopicConfig, name string) error {
	if t := findSetting(name); t != nil {
		return t.set(c, t.get(metadata.DefaultTopicConfig))
	}
	_, err := findFact(name)
	return err
}

// findSetting returns a configuration that can be set, nil where there is none of that name.
func findSetting(name string) *topicSetting {
	i := slices.IndexFunc(topicSettings, func(t topicSetting) bool { return t.name == name })
	if i < 0 {
		return nil
	}
	return &topicSettings[i]
}

// findFact returns a configuration of one value.
func findFact(name string) (topicFact, error) {
	i := slices.IndexFunc(topicFacts, func(f topicFact) bool { return f.name == name })
	if i < 0 {
		return topicFact{}, fmt.Errorf("%w: %s is not a topic configuration here; there are %s",
			metadata.ErrInvalidConfig, strconv.Quote(clip(name)), topicConfigNames)
	}
	return topicFacts[i], nil
}

func setRetentionTime(c *metadata.TopicConfig, value string) error {
	ms, err := parseConfigInt(configRetentionMs, value, -1, math.MaxInt64)
	if err != nil {
		return err
	}
	c.RetentionTime = -1
	// 2^63 nanoseconds are 292 years; Kafka's tools write the largest int64 for ever.
	if ms >= 0 && ms <= maxMillis {
		c.RetentionTime = time.Duration(ms) * time.Millisecond
	}
	return nil
}

// maxMillis is the longest time.Duration in milliseconds.
const maxMillis = math.MaxInt64 / int64(time.Millisecond)

func setTombstoneRetention(c *metadata.TopicConfig, value string) error {
	ms, err := parseConfigInt(configDeleteRetentionMs, value, 0, math.MaxInt64)
	c.TombstoneRetention = time.Duration(min(ms, maxMillis)) * time.Millisecond
	return err
}

func setSegmentTime(c *metadata.TopicConfig, value string) error {
	ms, err := parseConfigInt(configSegmentMs, value, 1, math.MaxInt64)
	c.SegmentTime = time.Duration(min(ms, maxMillis)) * time.Millisecond
	return err
}

func setSegmentBytes(c *metadata.TopicConfig, value string) error {
	n, err := parseConfigInt(configSegmentBytes, value, minSegmentBytes, math.MaxInt32)
	c.SegmentBytes = int32(n)
	return err
}

func setTimestampType(c *metadata.TopicConfig, value string) error {
	if value != createTime && value != logAppendTime {
		return fmt.Errorf("%w: %s must be %s or %s, not %q", metadata.ErrInvalidConfig, configTimestampType, createTime, logAppendTime, clip(value))
	}
	c.LogAppendTime = value == logAppendTime
	return nil
}

func setRetentionBytes(c *metadata.TopicConfig, value string) (err error) {
	c.RetentionBytes, err = parseConfigInt(configRetentionBytes, value, -1, math.MaxInt64)
	return err
}

func setMaxMessageBytes(c *metadata.TopicConfig, value string) error {
	n, err := parseConfigInt(configMaxMessageBytes, value, minMessageBytes, maxMessageBytes)
	c.MaxMessageBytes = int32(n)
	return err
}

func setFlush(c *metadata.TopicConfig, value string) error {
	switch value {
	case formatInt(flushEach):
		c.FlushOS = false
	case formatInt(flushNever):
		c.FlushOS = true
	default:
		return fmt.Errorf("%w: %s must be %d (a record counts as stored when it is on disk) or %d (when the operating system has it), not %q: "+
			"nothing in between is offered", metadata.ErrInvalidConfig, configFlushMessages, flushEach, int64(flushNever), clip(value))
	}
	return nil
}

func parseConfigInt(name, value string, low, high int64) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("%w: %s must be a whole number from %d to %d, not %q", metadata.ErrInvalidConfig, name, low, high, clip(value))
	}
	return n, nil
}

// setCleanupPolicy takes the policies in any order, and keeps it, as Kafka does.
func setCleanupPolicy(c *metadata.TopicConfig, value string) error {
	var policies []string
	for policy := range strings.SplitSeq(value, ",") {
		policy = strings.TrimSpace(policy)
		if policy != "delete" && policy != "compact" {
			return fmt.Errorf("%w: %s must be delete, compact, or both with a comma between them, not %q",
				metadata.ErrInvalidConfig, configCleanupPolicy, clip(value))
		}
		if !slices.Contains(policies, policy) {
			policies = append(policies, policy)
		}
	}
	c.CleanupPolicy = strings.Join(policies, ",")
	return nil
}

// sameConfig says whether two configurations differ in nothing but, perhaps, the order of the cleanup policies, which not every metadata source keeps.
func sameConfig(a, b metadata.TopicConfig) bool {
	for _, c := range []*metadata.TopicConfig{&a, &b} {
		policies := strings.Split(c.CleanupPolicy, ",")
		slices.Sort(policies)
		c.CleanupPolicy = strings.Join(policies, ",")
	}
	return a == b
}

// clip shortens what a client sent for a message.
func clip(s string) string {
	const limit = 100
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "…"
}
