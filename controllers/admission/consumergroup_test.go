// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const (
	groupIDFixed  = "groupID cannot be changed: the group would lose its offsets; create another ConsumerGroup and delete this one"
	groupRefFixed = "clusterRef cannot be changed; create another ConsumerGroup in the other cluster and delete this one"
	selectorRule  = "selector must not be empty, for it would match every pod of the namespace; give matchLabels or matchExpressions, or leave selector out"
	graceRule     = "memberGracePeriod must be a duration from 0s to 1h, such as 10s"
	handoffRule   = "handoffTimeout must be a duration from 0s to 1h, such as 10s"
	delayRule     = "rebalanceDelay must be a duration from 0s to 1m, such as 500ms"
	timestampRule = "timestamp is needed with to: Timestamp, and with nothing else"
	offsetRule    = "offset is needed with to: Offset, and with nothing else"
	resetTopics   = "offsets.reset.topics must be among topics"
	groupIDBytes  = "groupID may have at most 255 bytes in UTF-8, where a letter beyond ASCII has two or more; choose a shorter one"
	groupIDPrint  = "groupID must not have control characters, such as a line's end"
	dotsRule      = "no topic is called '.' or '..'"
	pausedRule    = "paused needs a selector: clients that join over the wire cannot be paused; set selector, or remove paused and stop the clients"
	initialRule   = "offsets.initial needs a selector: clients that join over the wire begin where their own configuration says; set selector or remove offsets.initial"
	resetFixed    = "what a reset does cannot be changed while its id stays, for it is carried out once for each id; give it a new id"
	replicasRule  = "replicas needs targetRef, the workload to scale; set targetRef or remove replicas"
)

// topics lists n topics.
func topics(n int) string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("t%d", i))
	}
	return "topics: [" + strings.Join(names, ", ") + "]"
}

var _ = Describe("a ConsumerGroup", func() {
	a := admission{kind: "ConsumerGroup", name: "billing"}

	It("gets defaults", func(ctx SpecContext) {
		obj, err := a.create(ctx, `{topics: [orders]}`)
		Expect(err).NotTo(HaveOccurred())
		Expect(obj.Object["spec"]).To(Equal(map[string]any{
			"topics": []any{"orders"}, "assigner": "ConsistentHash", "memberGracePeriod": "10s", "handoffTimeout": "30s",
			"rebalanceDelay": "500ms", "offsets": map[string]any{},
		}))
	})

	DescribeTable("is accepted with", a.accepts(),
		Entry("the most topics", `{`+topics(100)+`}`),
		Entry("a group id that is no resource name", `{topics: [orders], groupID: "Billing / EU"}`),
		Entry("a selector of labels", `{topics: [orders], selector: {matchLabels: {app: billing}}}`),
		Entry("a selector of expressions", `{topics: [orders], selector: {matchExpressions: [{key: app, operator: Exists}]}}`),
		Entry("no grace period", `{topics: [orders], memberGracePeriod: 0s, handoffTimeout: 0s}`),
		Entry("the longest grace period", `{topics: [orders], memberGracePeriod: 1h, handoffTimeout: 60m}`),
		Entry("a workload to scale", `{topics: [orders], targetRef: {kind: Deployment, name: billing}, replicas: 0}`),
		Entry("a workload alone", `{topics: [orders], targetRef: {apiVersion: apps/v1, kind: StatefulSet, name: billing}}`),
		Entry("each assigner", `{topics: [orders], assigner: Range}`),
		Entry("each start", `{topics: [orders], selector: {matchLabels: {a: b}}, offsets: {initial: Latest}}`),
		Entry("no delay, paused", `{topics: [orders], selector: {matchLabels: {a: b}}, rebalanceDelay: 0s, paused: true}`),
		Entry("the longest delay", `{topics: [orders], rebalanceDelay: 1m}`),
		Entry("a reset to the start", `{topics: [orders], offsets: {reset: {id: a, to: Earliest}}}`),
		Entry("a forced reset of one topic to the end", `{topics: [orders, clicks], offsets: {reset: {id: "`+strings.Repeat("x", 63)+`", to: Latest, topics: [clicks], force: true}}}`),
		Entry("a reset to a time", `{topics: [orders], offsets: {reset: {id: a, to: Timestamp, timestamp: "2026-01-02T03:04:05Z"}}}`),
		Entry("a reset to an offset", `{topics: [orders], selector: {matchLabels: {a: b}}, offsets: {initial: Earliest, reset: {id: a, to: Offset, offset: 0}}}`),
		Entry("the longest group id", `{topics: [orders], groupID: "`+strings.Repeat("é", 127)+`x"}`),
		Entry("a group id beyond ASCII", `{topics: [orders], groupID: "Rechnungen für 日本 🙂"}`),
		Entry("no selector, and no pause", `{topics: [orders], paused: false}`),
		Entry("topics whose names have dots", `{topics: [..., a.b]}`),
	)

	DescribeTable("is refused with", a.refuses(),
		Entry("no spec", `{metadata: {name: bare}}`, "spec: Required value"),
		Entry("no topics", `{}`, "spec.topics: Required value"),
		Entry("an empty list of topics", `{topics: []}`, "spec.topics in body should have at least 1 items"),
		Entry("too many topics", `{`+topics(101)+`}`, "spec.topics: Too many: 101: must have at most 100 items"),
		Entry("a topic twice", `{topics: [orders, orders]}`, `spec.topics[1]: Duplicate value: "orders"`),
		Entry("an illegal topic", `{topics: [shop/orders]}`, "spec.topics[0] in body should match"),
		Entry("an empty topic", `{topics: [""]}`, "spec.topics[0] in body should be at least 1 chars long"),
		Entry("too long a topic", `{topics: ["`+strings.Repeat("x", 250)+`"]}`, "spec.topics[0]: Too long: may not be more than 249"),
		Entry("an empty group id", `{topics: [orders], groupID: ""}`, "spec.groupID in body should be at least 1 chars long"),
		Entry("too long a group id", `{topics: [orders], groupID: "`+strings.Repeat("x", 256)+`"}`, "spec.groupID: Too long: may not be more than 255"),
		Entry("too many bytes in a group id", `{topics: [orders], groupID: "`+strings.Repeat("é", 128)+`"}`, groupIDBytes),
		Entry("a line's end in a group id", `{topics: [orders], groupID: "a\nb"}`, groupIDPrint),
		Entry("a zero in a group id", `{topics: [orders], groupID: "a\0b"}`, groupIDPrint),
		Entry("the topic .", `{topics: [orders, "."]}`, dotsRule),
		Entry("the topic ..", `{topics: [".."]}`, dotsRule),
		Entry("a pause of nobody that is known", `{topics: [orders], paused: true}`, pausedRule),
		Entry("a start of nobody that is known", `{topics: [orders], offsets: {initial: Latest}}`, initialRule),
		Entry("an empty selector", `{topics: [orders], selector: {}}`, selectorRule),
		Entry("a selector of no labels", `{topics: [orders], selector: {matchLabels: {}}}`, selectorRule),
		Entry("a selector of no labels and no expressions", `{topics: [orders], selector: {matchLabels: {}, matchExpressions: []}}`, selectorRule),
		Entry("an unknown assigner", `{topics: [orders], assigner: Fair}`, `spec.assigner: Unsupported value: "Fair": supported values: "ConsistentHash", "Sticky", "RoundRobin", "Range"`),
		Entry("an unknown start", `{topics: [orders], offsets: {initial: earliest}}`, `spec.offsets.initial: Unsupported value: "earliest": supported values: "Earliest", "Latest"`),
		Entry("too long a grace period", `{topics: [orders], memberGracePeriod: 61m}`, graceRule),
		Entry("a negative grace period", `{topics: [orders], memberGracePeriod: -1s}`, graceRule),
		Entry("a grace period without a unit", `{topics: [orders], memberGracePeriod: "10"}`, graceRule),
		Entry("too long a handoff", `{topics: [orders], handoffTimeout: 2h}`, handoffRule),
		Entry("a handoff in days", `{topics: [orders], handoffTimeout: 1d}`, handoffRule),
		Entry("too long a delay", `{topics: [orders], rebalanceDelay: 61s}`, delayRule),
		Entry("a delay without a unit", `{topics: [orders], rebalanceDelay: "500"}`, delayRule),
		Entry("a reset without an id", `{topics: [orders], offsets: {reset: {to: Latest}}}`, "spec.offsets.reset.id: Required value"),
		Entry("a reset with an empty id", `{topics: [orders], offsets: {reset: {id: "", to: Latest}}}`, "spec.offsets.reset.id in body should be at least 1 chars long"),
		Entry("a reset with too long an id", `{topics: [orders], offsets: {reset: {id: "`+strings.Repeat("x", 64)+`", to: Latest}}}`, "spec.offsets.reset.id: Too long: may not be more than 63"),
		Entry("a reset to nowhere", `{topics: [orders], offsets: {reset: {id: a}}}`, "spec.offsets.reset.to: Required value"),
		Entry("a reset to an unknown place", `{topics: [orders], offsets: {reset: {id: a, to: Middle}}}`,
			`spec.offsets.reset.to: Unsupported value: "Middle": supported values: "Earliest", "Latest", "Timestamp", "Offset"`),
		Entry("a reset to a time that is not given", `{topics: [orders], offsets: {reset: {id: a, to: Timestamp}}}`, timestampRule),
		Entry("a reset to the end, with a time", `{topics: [orders], offsets: {reset: {id: a, to: Latest, timestamp: "2026-01-02T03:04:05Z"}}}`, timestampRule),
		Entry("a reset to what is no time", `{topics: [orders], offsets: {reset: {id: a, to: Timestamp, timestamp: yesterday}}}`, "spec.offsets.reset.timestamp: Invalid value"),
		Entry("a reset to an offset that is not given", `{topics: [orders], offsets: {reset: {id: a, to: Offset}}}`, offsetRule),
		Entry("a reset to the start, with an offset", `{topics: [orders], offsets: {reset: {id: a, to: Earliest, offset: 3}}}`, offsetRule),
		Entry("a reset to a negative offset", `{topics: [orders], offsets: {reset: {id: a, to: Offset, offset: -1}}}`, "spec.offsets.reset.offset in body should be greater than or equal to 0"),
		Entry("a reset of another topic", `{topics: [orders], offsets: {reset: {id: a, to: Latest, topics: [clicks]}}}`, resetTopics),
		Entry("replicas of nothing", `{topics: [orders], replicas: 3}`, replicasRule),
		Entry("fewer than no replicas", `{topics: [orders], targetRef: {kind: Deployment, name: x}, replicas: -1}`, "spec.replicas in body should be greater than or equal to 0"),
		Entry("too many replicas", `{topics: [orders], targetRef: {kind: Deployment, name: x}, replicas: 10001}`, "spec.replicas in body should be less than or equal to 10000"),
		Entry("an unknown kind of workload", `{topics: [orders], targetRef: {kind: DaemonSet, name: x}}`, `spec.targetRef.kind: Unsupported value: "DaemonSet": supported values: "Deployment", "StatefulSet"`),
		Entry("an unknown API of a workload", `{topics: [orders], targetRef: {apiVersion: v1, kind: Deployment, name: x}}`, `spec.targetRef.apiVersion: Unsupported value: "v1"`),
		Entry("a workload without a name", `{topics: [orders], targetRef: {kind: Deployment}}`, "spec.targetRef.name: Required value"),
		Entry("a field that does not exist", `{topics: [orders], members: 3}`, `unknown field "spec.members"`),
	)

	DescribeTable("may change", a.acceptsChange(),
		Entry("what is not fixed", `{topics: [orders]}`,
			`{topics: [invoices, orders], selector: {matchLabels: {app: billing}}, assigner: Sticky, memberGracePeriod: 0s, handoffTimeout: 1m, rebalanceDelay: 1s, paused: true, offsets: {initial: Earliest, reset: {id: b, to: Latest}}, targetRef: {kind: Deployment, name: x}, replicas: 3}`),
		Entry("nothing", `{topics: [orders], groupID: b, clusterRef: web}`, `{topics: [orders], groupID: b, clusterRef: web}`),
	)

	DescribeTable("may change its reset", a.acceptsChange(),
		Entry("under a new id", `{topics: [orders], offsets: {reset: {id: a, to: Earliest}}}`, `{topics: [orders], offsets: {reset: {id: b, to: Latest}}}`),
		Entry("in whether it is forced", `{topics: [orders], offsets: {reset: {id: a, to: Earliest}}}`, `{topics: [orders], offsets: {reset: {id: a, to: Earliest, force: true}}}`),
		Entry("in the order of its topics", `{topics: [orders, clicks], offsets: {reset: {id: a, to: Earliest, topics: [orders, clicks]}}}`, `{topics: [orders, clicks], offsets: {reset: {id: a, to: Earliest, topics: [clicks, orders]}}}`),
		Entry("by removing it", `{topics: [orders], offsets: {reset: {id: a, to: Earliest}}}`, `{topics: [orders]}`),
		Entry("not at all", `{topics: [orders], offsets: {reset: {id: a, to: Timestamp, timestamp: "2026-01-02T03:04:05Z", topics: [orders]}}}`, `{topics: [orders], offsets: {reset: {id: a, to: Timestamp, timestamp: "2026-01-02T03:04:05Z", topics: [orders]}}}`),
	)

	DescribeTable("may not change its reset under the same id", a.refusesChange(),
		Entry("to another place", `{topics: [orders], offsets: {reset: {id: a, to: Earliest}}}`, `{topics: [orders], offsets: {reset: {id: a, to: Latest}}}`, resetFixed),
		Entry("to another kind of place", `{topics: [orders], offsets: {reset: {id: a, to: Earliest}}}`, `{topics: [orders], offsets: {reset: {id: a, to: Offset, offset: 1}}}`, resetFixed),
		Entry("to another offset", `{topics: [orders], offsets: {reset: {id: a, to: Offset, offset: 2}}}`, `{topics: [orders], offsets: {reset: {id: a, to: Offset, offset: 1}}}`, resetFixed),
		Entry("to another time", `{topics: [orders], offsets: {reset: {id: a, to: Timestamp, timestamp: "2026-01-02T03:04:05Z"}}}`,
			`{topics: [orders], offsets: {reset: {id: a, to: Timestamp, timestamp: "2026-01-02T03:04:06Z"}}}`, resetFixed),
		Entry("to other topics", `{topics: [orders, clicks], offsets: {reset: {id: a, to: Earliest, topics: [orders]}}}`, `{topics: [orders, clicks], offsets: {reset: {id: a, to: Earliest, topics: [clicks]}}}`, resetFixed),
		Entry("to all topics", `{topics: [orders, clicks], offsets: {reset: {id: a, to: Earliest, topics: [orders]}}}`, `{topics: [orders, clicks], offsets: {reset: {id: a, to: Earliest}}}`, resetFixed),
		Entry("to some topics", `{topics: [orders, clicks], offsets: {reset: {id: a, to: Earliest}}}`, `{topics: [orders, clicks], offsets: {reset: {id: a, to: Earliest, topics: [orders]}}}`, resetFixed),
	)

	DescribeTable("may not change", a.refusesChange(),
		Entry("to no selector while it is paused", `{topics: [orders], selector: {matchLabels: {a: b}}, paused: true}`, `{topics: [orders], paused: true}`, pausedRule),
		Entry("its group id", `{topics: [orders], groupID: a}`, `{topics: [orders], groupID: b}`, groupIDFixed),
		Entry("its group id to the default", `{topics: [orders], groupID: a}`, `{topics: [orders]}`, groupIDFixed),
		Entry("its group id from the default", `{topics: [orders]}`, `{topics: [orders], groupID: b}`, groupIDFixed),
		Entry("its cluster", `{topics: [orders], clusterRef: web}`, `{topics: [orders], clusterRef: other}`, groupRefFixed),
		Entry("its cluster to the default", `{topics: [orders], clusterRef: web}`, `{topics: [orders]}`, groupRefFixed),
		Entry("its cluster from the default", `{topics: [orders]}`, `{topics: [orders], clusterRef: web}`, groupRefFixed),
	)
})
