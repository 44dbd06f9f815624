// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const (
	clusterNameLength = "a BrokerCluster's name may have at most 40 characters, so that the names of its pods and services stay legal; choose a shorter name"
	clusterNameRule   = "a BrokerCluster's name may have lower-case letters, digits and '-' only, starts with a letter and ends with a letter or digit"
	sizeMinimum       = "storage.size must be at least 1Mi"
	sizeGrows         = "storage.size may only grow; leave it as it is, or ask for more"
	classFixed        = "storage.className cannot be changed once the cluster exists; create another BrokerCluster"
	portTaken         = "ports 8080 and 8081 serve health and metrics; choose another port"
	portNameTaken     = "a listener cannot be named health or metrics, as the ports 8080 and 8081 are; choose another name"
	idleTimeoutRule   = "config.idleTimeout must be a duration from 1s to 24h, such as 10m"
	offsetsFixed      = "config.offsetsPartitions cannot be changed once the cluster exists: groups would lose their offsets"
)

var _ = Describe("a BrokerCluster", func() {
	a := admission{kind: "BrokerCluster", name: "web"}

	It("gets defaults", func(ctx SpecContext) {
		obj, err := a.create(ctx, `{}`)
		Expect(err).NotTo(HaveOccurred())
		Expect(obj.Object["spec"]).To(Equal(map[string]any{
			"replicas": int64(3), "imagePullPolicy": "IfNotPresent",
			"storage":   map[string]any{"type": "Local", "size": "10Gi", "whenDeleted": "Retain"},
			"listeners": []any{map[string]any{"name": "plain", "port": int64(9092)}},
			"config":    map[string]any{"autoCreateTopics": "Disabled", "defaultPartitions": int64(1), "offsetsPartitions": int64(16)},
		}))
	})

	It("gets a spec with defaults where it has none", func(ctx SpecContext) {
		obj, err := a.create(ctx, `{metadata: {name: bare}}`)
		Expect(err).NotTo(HaveOccurred())
		Expect(obj.Object["spec"]).To(HaveKeyWithValue("replicas", int64(3)))
	})

	DescribeTable("is accepted with", a.accepts(),
		Entry("one broker", `{replicas: 1}`),
		Entry("the most brokers", `{replicas: 999}`),
		Entry("the longest name", `{metadata: {name: "`+strings.Repeat("x", 40)+`"}}`),
		Entry("small volumes", `{storage: {size: 1Mi}}`),
		Entry("volumes in bytes", `{storage: {size: 10737418240}}`),
		Entry("another port", `{listeners: [{name: internal-1, port: 1024}]}`),
		Entry("everything", `{replicas: 5, image: "x/y:1", imagePullPolicy: Never, storage: {type: Local, size: 1Ti, className: fast, whenDeleted: Delete},
			config: {autoCreateTopics: Enabled, defaultPartitions: 10000, offsetsPartitions: 1000, maxConnections: 10, maxConnectionsPerIP: 1, maxRequestBytes: 1048576, idleTimeout: 24h,
			offsetsRetention: 87600h, initialRebalanceDelay: 10m, minSessionTimeout: 1m30s, maxSessionTimeout: 90s, consumerSessionTimeout: 1s, consumerHeartbeatInterval: 999ms, assignmentInterval: 0s, heartbeatHold: 10s}, resources: {requests: {cpu: "1"}},
			template: {labels: {a: b}, annotations: {a: b}, nodeSelector: {a: b}, tolerations: [{key: a, operator: Exists}],
			affinity: {nodeAffinity: {}}, topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}],
			priorityClassName: high, terminationGracePeriodSeconds: 0, imagePullSecrets: [{name: a}]}}`),
	)

	DescribeTable("is refused with", a.refuses(),
		Entry("no brokers", `{replicas: 0}`, "spec.replicas in body should be greater than or equal to 1"),
		Entry("too many brokers", `{replicas: 1000}`, "spec.replicas in body should be less than or equal to 999"),
		Entry("too long a name", `{metadata: {name: "`+strings.Repeat("x", 41)+`"}}`, clusterNameLength),
		Entry("a dot in its name", `{metadata: {name: web.eu}}`, clusterNameRule),
		Entry("a name that starts with a digit", `{metadata: {name: 1web}}`, clusterNameRule),
		Entry("an empty image", `{image: ""}`, "spec.image in body should be at least 1 chars long"),
		Entry("an unknown pull policy", `{imagePullPolicy: Sometimes}`, `spec.imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"`),
		Entry("an unknown engine", `{storage: {type: Tape}}`, `spec.storage.type: Unsupported value: "Tape": supported values: "Local"`),
		Entry("volumes that are too small", `{storage: {size: 1023Ki}}`, sizeMinimum),
		Entry("volumes in too few bytes", `{storage: {size: 1000}}`, sizeMinimum),
		Entry("volumes of a size that is none", `{storage: {size: large}}`, "spec.storage.size"),
		Entry("an unknown end of the volumes", `{storage: {whenDeleted: Keep}}`, `spec.storage.whenDeleted: Unsupported value: "Keep": supported values: "Retain", "Delete"`),
		Entry("an empty class", `{storage: {className: ""}}`, "spec.storage.className in body should be at least 1 chars long"),
		Entry("no listener", `{listeners: []}`, "spec.listeners in body should have at least 1 items"),
		Entry("two listeners", `{listeners: [{name: a, port: 9092}, {name: b, port: 9093}]}`, "spec.listeners: Too many: 2: must have at most 1 item"),
		Entry("a listener without a port", `{listeners: [{name: a}]}`, "spec.listeners[0].port: Required value"),
		Entry("a port that needs privileges", `{listeners: [{name: a, port: 1023}]}`, "spec.listeners[0].port in body should be greater than or equal to 1024"),
		Entry("a port that does not exist", `{listeners: [{name: a, port: 65536}]}`, "spec.listeners[0].port in body should be less than or equal to 65535"),
		Entry("the health port", `{listeners: [{name: a, port: 8080}]}`, portTaken),
		Entry("the metrics port", `{listeners: [{name: a, port: 8081}]}`, portTaken),
		Entry("the health port's name", `{listeners: [{name: health, port: 9092}]}`, portNameTaken),
		Entry("the metrics port's name", `{listeners: [{name: metrics, port: 9092}]}`, portNameTaken),
		Entry("a listener's name that is no port's", `{listeners: [{name: Plain, port: 9092}]}`, "spec.listeners[0].name in body should match"),
		Entry("too long a listener's name", `{listeners: [{name: "`+strings.Repeat("x", 16)+`", port: 9092}]}`, "spec.listeners[0].name: Too long: may not be more than 15"),
		Entry("an unknown way to create topics", `{config: {autoCreateTopics: "true"}}`, `spec.config.autoCreateTopics: Unsupported value: "true": supported values: "Enabled", "Disabled"`),
		Entry("topics of no partitions", `{config: {defaultPartitions: 0}}`, "spec.config.defaultPartitions in body should be greater than or equal to 1"),
		Entry("topics of too many partitions", `{config: {defaultPartitions: 10001}}`, "spec.config.defaultPartitions in body should be less than or equal to 10000"),
		Entry("room for few connections", `{config: {maxConnections: 9}}`, "spec.config.maxConnections in body should be greater than or equal to 10"),
		Entry("room for too many connections", `{config: {maxConnections: 1000001}}`, "spec.config.maxConnections in body should be less than or equal to 1000000"),
		Entry("no connection from an address", `{config: {maxConnectionsPerIP: -1}}`, "spec.config.maxConnectionsPerIP in body should be greater than or equal to 1"),
		Entry("requests that are too small", `{config: {maxRequestBytes: 1048575}}`, "spec.config.maxRequestBytes in body should be greater than or equal to 1048576"),
		Entry("requests that are too large", `{config: {maxRequestBytes: 1073741825}}`, "spec.config.maxRequestBytes in body should be less than or equal to 1073741824"),
		Entry("connections that are silent for too short", `{config: {idleTimeout: 999ms}}`, idleTimeoutRule),
		Entry("connections that are silent for too long", `{config: {idleTimeout: 25h}}`, idleTimeoutRule),
		Entry("connections that are silent for days", `{config: {idleTimeout: 1d}}`, idleTimeoutRule),
		Entry("offsets that are kept for no time", `{config: {offsetsRetention: 0s}}`, "config.offsetsRetention must be a duration from 1m to 87600h, such as 168h"),
		Entry("a rebalance that waits for too long", `{config: {initialRebalanceDelay: 11m}}`, "config.initialRebalanceDelay must be a duration from 0s to 10m, such as 0s"),
		Entry("sessions that may be no time", `{config: {minSessionTimeout: 0s}}`, "config.minSessionTimeout must be a duration from 100ms to 24h, such as 6s"),
		Entry("sessions that may be too long", `{config: {maxSessionTimeout: 25h}}`, "config.maxSessionTimeout must be a duration from 100ms to 24h, such as 30m"),
		Entry("no session that is allowed", `{config: {minSessionTimeout: 31m}}`, "config.minSessionTimeout must not be longer than config.maxSessionTimeout"),
		Entry("sessions of consumers that are too short", `{config: {consumerSessionTimeout: 500ms, consumerHeartbeatInterval: 100ms}}`, "config.consumerSessionTimeout must be a duration from 1s to 24h, such as 45s"),
		Entry("heartbeats that come too often", `{config: {consumerHeartbeatInterval: 99ms}}`, "config.consumerHeartbeatInterval must be a duration from 100ms to 1h, such as 5s"),
		Entry("heartbeats that come too late", `{config: {consumerHeartbeatInterval: 45s}}`, "config.consumerHeartbeatInterval must be shorter than config.consumerSessionTimeout"),
		Entry("heartbeats that are held for too long", `{config: {heartbeatHold: 10001ms}}`, "config.heartbeatHold must be a duration from 0s to 10s, such as 2900ms"),
		Entry("assignments that wait for too long", `{config: {assignmentInterval: 11s}}`, "config.assignmentInterval must be a duration from 0s to 10s, such as 100ms"),
		Entry("offsets in no partitions", `{config: {offsetsPartitions: 0}}`, "spec.config.offsetsPartitions in body should be greater than or equal to 1"),
		Entry("offsets in too many partitions", `{config: {offsetsPartitions: 1001}}`, "spec.config.offsetsPartitions in body should be less than or equal to 1000"),
		Entry("pods that take too long to stop", `{template: {terminationGracePeriodSeconds: 3601}}`, "spec.template.terminationGracePeriodSeconds in body should be less than or equal to 3600"),
		Entry("a field that does not exist", `{brokers: 3}`, `unknown field "spec.brokers"`),
	)

	DescribeTable("may change", a.acceptsChange(),
		Entry("to more brokers, and fewer", `{replicas: 3}`, `{replicas: 1}`),
		Entry("to larger volumes", `{storage: {size: 1Gi}}`, `{storage: {size: 1025Mi}}`),
		Entry("the way the same size is written", `{storage: {size: 1Gi}}`, `{storage: {size: 1024Mi}}`),
		Entry("the size in bytes", `{storage: {size: 1073741824}}`, `{storage: {size: 1073741825}}`),
		Entry("from a size in bytes to one with a unit", `{storage: {size: 1073741824}}`, `{storage: {size: 2Gi}}`),
		Entry("what is not fixed", `{}`, `{image: x, imagePullPolicy: Always, storage: {whenDeleted: Delete}, listeners: [{name: b, port: 19092}], config: {autoCreateTopics: Enabled, defaultPartitions: 3}, template: {labels: {a: b}}}`),
		Entry("nothing", `{storage: {className: fast}}`, `{storage: {className: fast}}`),
	)

	DescribeTable("may not change", a.refusesChange(),
		Entry("to smaller volumes", `{storage: {size: 1Gi}}`, `{storage: {size: 1023Mi}}`, sizeGrows),
		Entry("to smaller volumes in bytes", `{storage: {size: 1Gi}}`, `{storage: {size: 1073741823}}`, sizeGrows),
		Entry("to the default size, being larger", `{storage: {size: 20Gi}}`, `{}`, sizeGrows),
		Entry("its class", `{storage: {className: fast}}`, `{storage: {className: slow}}`, classFixed),
		Entry("its class to the default", `{storage: {className: fast}}`, `{}`, classFixed),
		Entry("its class from the default", `{}`, `{storage: {className: fast}}`, classFixed),
		Entry("the partitions of the offsets", `{config: {offsetsPartitions: 16}}`, `{config: {offsetsPartitions: 17}}`, offsetsFixed),
		Entry("the partitions of the offsets to the default", `{config: {offsetsPartitions: 4}}`, `{}`, offsetsFixed),
	)
})
