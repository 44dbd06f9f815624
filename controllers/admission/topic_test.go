// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const (
	topicNameFixed  = "topicName cannot be changed; create another Topic and delete this one"
	topicRefFixed   = "clusterRef cannot be changed; create another Topic in the other cluster and delete this one"
	topicNameRule   = "topicName may have letters, digits, '.', '_' and '-' only, and must not be '.' or '..'"
	topicOwnRule    = "a topicName that begins with __ is the brokers' own; choose another name"
	partitionsRule  = "partitions must be from 1 to 10000"
	partitionsGrow  = "partitions may only grow: removing a partition would delete its records; create another Topic with fewer partitions"
	retentionRule   = "retention.time must be a duration of at least 1s, such as 168h or 90m, or -1 to keep records for ever"
	retentionBytes  = "retention.bytes must be -1 (no limit) or at least 1048576"
	tombstonesRule  = "retention.tombstones must be a duration, such as 24h or 90m"
	segmentTimeRule = "segment.time must be a duration of at least 1ms, such as 168h or 90m"
	offsetsConstant = "the number of partitions of __consumer_offsets cannot be changed: groups would lose their offsets"
)

var _ = Describe("a Topic", func() {
	a := admission{kind: "Topic", name: "orders"}

	It("gets defaults", func(ctx SpecContext) {
		obj, err := a.create(ctx, `{}`)
		Expect(err).NotTo(HaveOccurred())
		Expect(obj.Object["spec"]).To(Equal(map[string]any{
			"partitions": int64(1), "partitioner": "KeyHash", "cleanupPolicy": "Delete", "deletionPolicy": "Retain",
			"maxMessageBytes": int64(1048588), "retention": map[string]any{"time": "168h", "bytes": int64(-1), "tombstones": "24h"}, "flush": "Sync",
			"segment": map[string]any{"bytes": int64(134217728), "time": "168h"}, "timestamps": "CreateTime",
		}))
	})

	It("gets a spec with defaults where it has none", func(ctx SpecContext) {
		obj, err := a.create(ctx, `{metadata: {name: bare}}`)
		Expect(err).NotTo(HaveOccurred())
		Expect(obj.Object["spec"]).To(HaveKeyWithValue("partitions", int64(1)))
	})

	DescribeTable("is accepted with", a.accepts(),
		Entry("the fewest partitions", `{partitions: 1}`),
		Entry("the most partitions", `{partitions: 10000}`),
		Entry("a Kafka name", `{topicName: Orders_v1.eu-west}`),
		Entry("a Kafka name that begins with an underscore", `{topicName: _schemas}`),
		Entry("the longest Kafka name", `{topicName: "`+strings.Repeat("x", 249)+`"}`),
		Entry("a long resource name and a Kafka name", `{metadata: {name: "`+strings.Repeat("x", 253)+`"}, spec: {topicName: orders}}`),
		Entry("records kept for ever", `{retention: {time: "-1"}}`),
		Entry("a duration of several units", `{retention: {time: 1h30m0.5s}}`),
		Entry("a limit in bytes", `{retention: {bytes: 1048576}}`),
		Entry("compaction", `{cleanupPolicy: CompactDelete}`),
		Entry("tombstones that may go at once", `{retention: {tombstones: 0s}}`),
		Entry("tombstones for as long as can be counted", `{retention: {tombstones: 9223372036854ms}}`),
		Entry("a flush of each batch", `{flush: Sync}`),
		Entry("a flush by the operating system", `{flush: Os}`),
		Entry("segments of the smallest size", `{segment: {bytes: 14}}`),
		Entry("segments of the largest size", `{segment: {bytes: 2147483647}}`),
		Entry("segments of the shortest time", `{segment: {time: 1ms}}`),
		Entry("segments for as long as can be counted", `{segment: {time: 9223372036854ms}}`),
		Entry("timestamps of the producer", `{timestamps: CreateTime}`),
		Entry("timestamps of the broker", `{timestamps: LogAppendTime}`),
		Entry("everything", `{clusterRef: web, topicName: orders, partitions: 12, partitioner: Sticky, retention: {time: 90m, bytes: 1073741824, tombstones: 1h30m}, flush: Os, segment: {bytes: 1048576, time: 1h30m}, timestamps: LogAppendTime, cleanupPolicy: Compact, maxMessageBytes: 1024, deletionPolicy: Delete}`),
	)

	DescribeTable("is refused with", a.refuses(),
		Entry("no partitions", `{partitions: 0}`, partitionsRule),
		Entry("fewer than no partitions", `{partitions: -1}`, partitionsRule),
		Entry("too many partitions", `{partitions: 10001}`, partitionsRule),
		Entry("partitions that are no number", `{partitions: many}`, "spec.partitions: Invalid value"),
		Entry("a blank in its Kafka name", `{topicName: "my orders"}`, topicNameRule),
		Entry("a slash in its Kafka name", `{topicName: shop/orders}`, topicNameRule),
		Entry("a letter beyond ASCII in its Kafka name", `{topicName: "bücher"}`, topicNameRule),
		Entry("the Kafka name .", `{topicName: .}`, topicNameRule),
		Entry("the Kafka name ..", `{topicName: ..}`, topicNameRule),
		Entry("a Kafka name of the brokers", `{topicName: __orders}`, topicOwnRule),
		Entry("a Kafka name of two underscores", `{topicName: __}`, topicOwnRule),
		Entry("an empty Kafka name", `{topicName: ""}`, "spec.topicName: Invalid value: \"\": spec.topicName in body should be at least 1 chars long"),
		Entry("too long a Kafka name", `{topicName: "`+strings.Repeat("x", 250)+`"}`, "spec.topicName: Too long: may not be more than 249"),
		Entry("a resource name that is too long for Kafka", `{metadata: {name: "`+strings.Repeat("x", 250)+`"}}`,
			"a topic name may have at most 249 characters; set spec.topicName or choose a shorter name"),
		Entry("an empty clusterRef", `{clusterRef: ""}`, "spec.clusterRef in body should be at least 1 chars long"),
		Entry("an unknown partitioner", `{partitioner: Random}`, `spec.partitioner: Unsupported value: "Random": supported values: "KeyHash", "RoundRobin", "Sticky", "ConsistentHash"`),
		Entry("an unknown cleanup policy", `{cleanupPolicy: compact}`, `spec.cleanupPolicy: Unsupported value: "compact": supported values: "Delete", "Compact", "CompactDelete"`),
		Entry("an unknown deletion policy", `{deletionPolicy: Keep}`, `spec.deletionPolicy: Unsupported value: "Keep": supported values: "Retain", "Delete"`),
		Entry("a duration in days", `{retention: {time: 7d}}`, retentionRule),
		Entry("a duration that is too short", `{retention: {time: 999ms}}`, retentionRule),
		Entry("a negative duration", `{retention: {time: "-2"}}`, retentionRule),
		Entry("an empty duration", `{retention: {time: ""}}`, retentionRule),
		Entry("a duration without a unit", `{retention: {time: "100"}}`, retentionRule),
		Entry("a duration beyond what can be counted", `{retention: {time: 9999999999h}}`, "retention.time"),
		Entry("tombstones for days", `{retention: {tombstones: 7d}}`, tombstonesRule),
		Entry("tombstones for ever", `{retention: {tombstones: "-1"}}`, tombstonesRule),
		Entry("tombstones for a time without a unit", `{retention: {tombstones: "100"}}`, tombstonesRule),
		Entry("tombstones for no time that is given", `{retention: {tombstones: ""}}`, tombstonesRule),
		Entry("tombstones beyond what can be counted", `{retention: {tombstones: 9999999999h}}`, "retention.tombstones"),
		Entry("an unknown flush", `{flush: Never}`, `spec.flush: Unsupported value: "Never": supported values: "Sync", "Os"`),
		Entry("segments that are too small", `{segment: {bytes: 13}}`, "spec.segment.bytes in body should be greater than or equal to 14"),
		Entry("segments that are too large", `{segment: {bytes: 2147483648}}`, "spec.segment.bytes in body should be less than or equal to 2147483647"),
		Entry("segments for no time", `{segment: {time: 0s}}`, segmentTimeRule),
		Entry("segments for a time that is too short", `{segment: {time: 0.5ms}}`, segmentTimeRule),
		Entry("segments for days", `{segment: {time: 7d}}`, segmentTimeRule),
		Entry("segments for ever", `{segment: {time: "-1"}}`, segmentTimeRule),
		Entry("segments for no time that is given", `{segment: {time: ""}}`, segmentTimeRule),
		Entry("segments beyond what can be counted", `{segment: {time: 9999999999h}}`, "segment.time"),
		Entry("unknown timestamps", `{timestamps: Now}`, `spec.timestamps: Unsupported value: "Now": supported values: "CreateTime", "LogAppendTime"`),
		Entry("no bytes", `{retention: {bytes: 0}}`, retentionBytes),
		Entry("too few bytes", `{retention: {bytes: 1048575}}`, retentionBytes),
		Entry("messages that are too small", `{maxMessageBytes: 1023}`, "spec.maxMessageBytes in body should be greater than or equal to 1024"),
		Entry("messages that are too large", `{maxMessageBytes: 104857601}`, "spec.maxMessageBytes in body should be less than or equal to 104857600"),
		Entry("a field that does not exist", `{replicationFactor: 3}`, `unknown field "spec.replicationFactor"`),
	)

	DescribeTable("may change", a.acceptsChange(),
		Entry("to more partitions", `{partitions: 4}`, `{partitions: 5}`),
		Entry("nothing", `{topicName: orders, clusterRef: web}`, `{topicName: orders, clusterRef: web}`),
		Entry("what is not fixed", `{}`, `{partitioner: RoundRobin, retention: {time: 1h, tombstones: 1h}, flush: Os, segment: {bytes: 1048576, time: 1h}, timestamps: LogAppendTime, cleanupPolicy: Compact, maxMessageBytes: 2048, deletionPolicy: Delete}`),
		Entry("__consumer_offsets in other ways", `{topicName: __consumer_offsets, partitions: 16}`, `{topicName: __consumer_offsets, partitions: 16, maxMessageBytes: 2048}`),
	)

	DescribeTable("may not change", a.refusesChange(),
		Entry("to fewer partitions", `{partitions: 5}`, `{partitions: 4}`, partitionsGrow),
		Entry("to fewer partitions by leaving them out", `{partitions: 5}`, `{}`, partitionsGrow),
		Entry("its Kafka name", `{topicName: orders}`, `{topicName: invoices}`, topicNameFixed),
		Entry("its Kafka name to the default", `{topicName: invoices}`, `{}`, topicNameFixed),
		Entry("its Kafka name from the default", `{}`, `{topicName: invoices}`, topicNameFixed),
		Entry("its cluster", `{clusterRef: web}`, `{clusterRef: other}`, topicRefFixed),
		Entry("its cluster to the default", `{clusterRef: web}`, `{}`, topicRefFixed),
		Entry("its cluster from the default", `{}`, `{clusterRef: web}`, topicRefFixed),
		Entry("the number of partitions of __consumer_offsets", `{topicName: __consumer_offsets, partitions: 16}`, `{topicName: __consumer_offsets, partitions: 17}`, offsetsConstant),
	)
})
