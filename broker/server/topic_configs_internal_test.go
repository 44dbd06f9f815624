// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// FuzzTopicConfigs changes a configuration as a client asks for. What is taken must be a configuration that says the same when it is set as it is shown,
// and what is not taken must be the client's mistake.
func FuzzTopicConfigs(f *testing.F) {
	for _, t := range topicSettings {
		f.Add(t.name, t.get(metadata.DefaultTopicConfig), int8(0))
	}
	for _, fact := range topicFacts {
		f.Add(fact.name, fact.value, int8(1))
	}
	f.Add("cleanup.policy", "compact,,delete", int8(2))
	f.Add("cleanup.policy", " compact , delete ", int8(3))
	f.Add("cleanup.policy", "delete,compact", int8(0))
	f.Add("segment.bytes", "2147483647", int8(0))
	f.Add("segment.bytes", "13", int8(0))
	f.Add("segment.ms", "9223372036854775807", int8(0))
	f.Add("message.timestamp.type", "LogAppendTime", int8(0))
	f.Add("retention.ms", "9223372036854775807", int8(0))
	f.Add("delete.retention.ms", "9223372036854775807", int8(0))
	f.Add("max.message.bytes", "-1", int8(0))
	f.Fuzz(func(t *testing.T, name, value string, op int8) {
		entry := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		entry.Name, entry.Value, entry.Op = name, &value, kmsg.IncrementalAlterConfigOp(op)
		entries := []kmsg.IncrementalAlterConfigsRequestResourceConfig{entry}
		if checkOps(entries) != nil {
			return
		}
		c, err := applyOps(metadata.DefaultTopicConfig, entries)
		if err != nil {
			if !errors.Is(err, metadata.ErrInvalidConfig) || len(err.Error()) > 1000 {
				t.Fatalf("%q %q is refused with %v", name, value, err)
			}
			return
		}
		again := metadata.DefaultTopicConfig
		for _, shown := range topicConfigs(c) {
			if err := setTopicConfig(&again, shown.name, shown.value); err != nil {
				t.Fatalf("%s is shown as %q, which cannot be set: %v", shown.name, shown.value, err)
			}
		}
		if again != c {
			t.Fatalf("%q %q makes %+v, which is shown as %+v", name, value, c, again)
		}
		if c.MaxMessageBytes < minMessageBytes || c.RetentionBytes < -1 || c.TombstoneRetention < 0 || c.CleanupPolicy == "" ||
			c.SegmentBytes < minSegmentBytes || c.SegmentTime <= 0 || !sameConfig(c, again) {
			t.Fatalf("%q %q makes %+v", name, value, c)
		}
	})
}

func TestConfigurationsAreTheSameInAnyOrderOfTheirPolicies(t *testing.T) {
	with := func(policy string) metadata.TopicConfig {
		c := metadata.DefaultTopicConfig
		c.CleanupPolicy = policy
		return c
	}
	if !sameConfig(with("compact,delete"), with("delete,compact")) || !sameConfig(with("delete"), with("delete")) {
		t.Error("an order is taken for a difference")
	}
	later := with("delete")
	later.RetentionTime++
	if sameConfig(with("compact"), with("compact,delete")) || sameConfig(with("delete"), later) {
		t.Error("different configurations are taken for the same")
	}
}
