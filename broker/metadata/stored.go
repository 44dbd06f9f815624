// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// StoredConfig is a topic's configuration as the sources that store topics themselves write it, in JSON, with Kafka's names. EncodeConfig makes it.
type StoredConfig struct {
	RetentionMs     int64  `json:"retention.ms"`
	RetentionBytes  int64  `json:"retention.bytes"`
	CleanupPolicy   string `json:"cleanup.policy"`
	MaxMessageBytes int32  `json:"max.message.bytes"`
	// These are null in what brokers wrote that did not have them.
	DeleteRetentionMs *int64  `json:"delete.retention.ms"`
	FlushMessages     *int64  `json:"flush.messages"`
	SegmentBytes      *int32  `json:"segment.bytes"`
	SegmentMs         *int64  `json:"segment.ms"`
	TimestampType     *string `json:"message.timestamp.type"`
}

const (
	// flushNever is Kafka's default of flush.messages: the operating system flushes.
	flushNever = math.MaxInt64
	// createTime and logAppendTime are Kafka's values of message.timestamp.type.
	createTime, logAppendTime = "CreateTime", "LogAppendTime"
	// maxMillis is the longest time.Duration in milliseconds.
	maxMillis = math.MaxInt64 / int64(time.Millisecond)
)

// EncodeConfig writes a configuration.
func EncodeConfig(c TopicConfig) StoredConfig {
	tombstones, segment, flush, timestamps := c.TombstoneRetention.Milliseconds(), c.SegmentTime.Milliseconds(), int64(1), createTime
	if c.FlushOS {
		flush = flushNever
	}
	if c.LogAppendTime {
		timestamps = logAppendTime
	}
	return StoredConfig{
		RetentionMs:       retentionMs(c.RetentionTime),
		RetentionBytes:    c.RetentionBytes,
		CleanupPolicy:     c.CleanupPolicy,
		MaxMessageBytes:   c.MaxMessageBytes,
		DeleteRetentionMs: &tombstones,
		FlushMessages:     &flush,
		SegmentBytes:      &c.SegmentBytes,
		SegmentMs:         &segment,
		TimestampType:     &timestamps,
	}
}

// Decode reads a configuration. What is missing has its default; that the rest is what a topic may have, CheckConfig says.
func (j StoredConfig) Decode() (TopicConfig, error) {
	c := TopicConfig{
		RetentionTime:      retentionTime(j.RetentionMs),
		RetentionBytes:     j.RetentionBytes,
		CleanupPolicy:      j.CleanupPolicy,
		MaxMessageBytes:    j.MaxMessageBytes,
		TombstoneRetention: DefaultTopicConfig.TombstoneRetention,
		SegmentBytes:       DefaultTopicConfig.SegmentBytes,
		SegmentTime:        DefaultTopicConfig.SegmentTime,
	}
	if err := errors.Join(setMillis(&c.TombstoneRetention, "delete.retention.ms", j.DeleteRetentionMs), setMillis(&c.SegmentTime, "segment.ms", j.SegmentMs)); err != nil {
		return c, err
	}
	if j.SegmentBytes != nil {
		c.SegmentBytes = *j.SegmentBytes
	}
	if t := j.TimestampType; t != nil {
		if *t != createTime && *t != logAppendTime {
			return c, fmt.Errorf("message.timestamp.type is %q, neither %s nor %s", Clip(*t), createTime, logAppendTime)
		}
		c.LogAppendTime = *t == logAppendTime
	}
	if n := j.FlushMessages; n != nil {
		if *n != 1 && *n != flushNever {
			return c, fmt.Errorf("flush.messages is %d, neither 1 nor %d", *n, int64(flushNever))
		}
		c.FlushOS = *n == flushNever
	}
	return c, nil
}

// setMillis sets a time to the milliseconds of an entry, if there is one.
func setMillis(d *time.Duration, name string, ms *int64) error {
	switch {
	case ms == nil:
		return nil
	case *ms < 0 || *ms > maxMillis:
		return fmt.Errorf("%s %d is out of range", name, *ms)
	}
	*d = time.Duration(*ms) * time.Millisecond
	return nil
}

// retentionMs is a retention time in milliseconds, -1 for ever.
func retentionMs(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return d.Milliseconds()
}

// retentionTime is the retention time of milliseconds; what time.Duration cannot hold (292 years) is for ever.
func retentionTime(ms int64) time.Duration {
	if ms < 0 || ms > maxMillis {
		return -1
	}
	return time.Duration(ms) * time.Millisecond
}
