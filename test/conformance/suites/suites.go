// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ringmaster-dev/ringmaster/test/conformance/brokers"
)

// Why tests are left out.
const (
	noTransactions   = "transactions are not there yet"
	noAuthentication = "authentication is not there yet"
	noAuthorization  = "authorization is not there yet"
	noQuotas         = "quotas are not there"
	oneReplica       = "a partition has one replica, which stays where it is"
	placed           = "they place replicas by hand; here the operator places partitions"
)

// librdkafkaBrokers says which brokers librdkafka's tests are run against, and which tests those are.
const librdkafkaBrokers = "those of groups that ask a broker and no mock of one, against one broker with `--default-partitions 4 --initial-rebalance-delay 3s`, " +
	"which the tests expect"

// suites are the clients' own tests.
var suites = []suite{
	{
		name: "franzgo", title: "franz-go, package kgo",
		module: "github.com/twmb/franz-go", version: "v1.22.3", sum: "h1:RHe35s34pKefMLyL+ZYJ6mQVtfFZz4zHDHVkTyACur0=", dir: "pkg/kgo",
		pattern: "^Test", start: one, brokers: "against one broker",
		env: func(w *brokers.World) []string {
			return []string{"KGO_SEEDS=" + w.Bootstrap, "KGO_TEST_RF=1", "KGO_TEST_RECORDS=50000"}
		},
		leave: []leave{
			{"Txn", noTransactions},
			{"Share", "share groups (KIP-932) are not there"},
			{"SCRAM|OAuth", noAuthentication},
		},
	},
	{
		name: "sarama", title: "sarama, functional tests",
		module: "github.com/IBM/sarama", version: "v1.61.1", sum: "h1:I59MWPHQUWqJNdRpsDUcbeCriog8SxjQaPfHNWxidEg=", dir: ".", tags: "functional",
		pattern: "^(TestFunc|TestConsumerHighWaterMarkOffset|TestConsumerPartialBatch|TestVersionMatrix|TestReadOnlyAnd|TestConsumerGroupDeadlock|" +
			"TestInterceptors|TestAsyncProducerRemote|TestConsumerFetchFollower|TestJava)",
		start: behindToxiproxy, brokers: "against five brokers, each behind a toxiproxy",
		env: func(*brokers.World) []string {
			return []string{"TOXIPROXY_ADDR=http://" + toxiproxyAddress, "KAFKA_VERSION=4.0.0"}
		},
		edits: []edit{{old: "ReplicationFactor: 3", new: "ReplicationFactor: 1", why: "a partition has one replica"}},
		leave: []leave{
			{"Txn|InitProducerId3|DescribeTransactions|ListTransactions|DescribeProducers|ReadOnlyAndAllCommitted", noTransactions},
			{"TestFuncAdminListConsumerGroupOffsets$|TestFuncIdempotentBufferedSequence|Java", "they run docker: to stop a broker, to read its log, to run Java"},
			{"TestConsumerFetchFollowerFailover", oneReplica},
			{"AlterPartitionReassignments|ElectLeaders", oneReplica},
			{"TestFuncAdminListOffsets|TestFuncAdminDeleteRecords", placed},
			{"TestFuncAdminQuotas", noQuotas},
			{"TestFuncAdminUpdateFeatures", "features cannot be changed: there are none"},
			{"TestFuncAdminIncrementalAlterConfigs", "it alters log.cleaner.backoff.ms of a broker; a broker has no configuration that clients can alter"},
		},
	},
	{
		name: "kafkago", title: "segmentio kafka-go",
		module: "github.com/segmentio/kafka-go", version: "v0.4.51", sum: "h1:JgDPPG75tC1rWIS2Me6MwcvXJ6f49UQ4HjAOef71Hno=", dir: ".",
		pattern: "^Test", start: standard, brokers: "against one broker at localhost:9092, which is written in the tests",
		env: func(*brokers.World) []string { return []string{"KAFKA_VERSION=4.0.0"} },
		edits: []edit{{
			old: "conn, err := cg.coordinator()", new: "cg.config.Topics = []string{config.Topic}; _ = cg.config.Validate(); conn, err := cg.coordinator()",
			why: "the test leaves out what Validate fills in, and panics with any broker",
		}},
		leave: []leave{
			{"TestClientAlterClientQuotas", noQuotas},
			{"TestClientAlterPartitionReassignments|TestClientListPartitionReassignments|TestClientElectLeaders", oneReplica},
			{"UserScramCredentials|TestUnsupportedSASLMechanism", noAuthentication},
			{"TestWriter/.*SASL", noAuthentication},
			{"ACLs", noAuthorization},
			{"TestClientCreatePartitions|TestClientCreateTopics", placed},
			{"TestClientFindCoordinator", noTransactions + ": it asks for the coordinator of a transaction"},
			{"TestReaderConsumerGroup/consumer_group_rebalance$", "it passes only where both members have joined before one of them has read"},
			{"TestConn/test_delete_topics", "it expects that the topic that it has just deleted, and creates again by asking for it, has no leader at first"},
		},
	},
	{
		name: "confluent", title: "confluent-kafka-go",
		module: "github.com/confluentinc/confluent-kafka-go/v2", version: "v2.11.1", sum: "h1:qGCQznyp2BxyBNyOE+M7O1YS2tI1/Y60O0jQP452zA4=", dir: "kafka",
		cgo: true, pattern: "^TestIntegration$", parent: "TestIntegration", start: one, brokers: "against one broker",
		prepare: func(_ context.Context, w *brokers.World, copied string) error {
			config := fmt.Sprintf(`{"Brokers": %q, "TopicName": "test", "GroupID": "testgroup", "PerfMsgCount": 1000, "PerfMsgSize": 100}`, w.Bootstrap)
			return os.WriteFile(filepath.Join(copied, "kafka", "testconf.json"), []byte(config), 0o600)
		},
		leave: []leave{
			{"TestIntegration/TestAdminACLs", noAuthorization},
			{"TestIntegration/TestAdminClient_UserScramCredentials", noAuthentication},
			{"TestIntegration/(TestAdminClient_DescribeCluster|TestAdminClient_DescribeTopics|.*AuthorizedOperations)", noAuthentication + "; they skip themselves"},
			{"TestIntegration/TestAdminConfig", "it sets a topic's compression.type to snappy; here a topic keeps batches as their producer compressed them"},
			{"TestIntegration/TestAdminTopics", placed},
		},
	},
	{
		name: "librdkafka", title: "librdkafka, tests of groups, classic", module: "librdkafka", version: librdkafkaVersion, pattern: "^",
		start: four, brokers: librdkafkaBrokers, play: playLibrdkafka("classic"),
		leave: []leave{{"0137_barrier_batch_consume", noTransactions}},
	},
	{
		name: "librdkafka848", title: "librdkafka, tests of groups, KIP-848", module: "librdkafka", version: librdkafkaVersion, pattern: "^",
		start: four, brokers: librdkafkaBrokers, play: playLibrdkafka("consumer"),
		leave: []leave{
			{"0137_barrier_batch_consume", noTransactions},
			{"0045_resubscribe_with_regex", "it expects the topics of a pattern in a later answer than those that are named; here they are in the first one"},
		},
	},
}
