// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata/file"
	"github.com/ringmaster-dev/ringmaster/broker/server"
)

// newTopic is a topic of a CreateTopics request, with configurations as name=value.
func newTopic(name string, partitions int32, replicas int16, configs ...string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, replicas
	for _, c := range configs {
		name, value, _ := strings.Cut(c, "=")
		e := kmsg.NewCreateTopicsRequestTopicConfig()
		e.Name, e.Value = name, &value
		t.Configs = append(t.Configs, e)
	}
	return t
}

func createRequest(topics ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis, req.Topics = 10000, topics
	return req
}

func TestTopicsAreCreatedOrRefused(t *testing.T) {
	b := start(t, func(_ *server.Config, o *file.Options) { o.DefaultPartitions = 3 })
	b.create("there", 1)
	assigned := newTopic("assigned", -1, -1)
	assigned.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: []int32{1}}}
	cases := map[string]struct {
		topic      kmsg.CreateTopicsRequestTopic
		code       int16
		partitions int32
		message    string
	}{
		"a topic":                            {newTopic("plain", 4, 1), 0, 4, ""},
		"a topic of defaults":                {newTopic("default", -1, -1), 0, 3, ""},
		"a topic with every configuration":   {newTopic("full", 1, 1, "retention.ms=1000", "retention.bytes=-1", "cleanup.policy=compact, delete", "max.message.bytes=2000", "delete.retention.ms=0", osFlush, "min.insync.replicas=1", "segment.bytes=14", "segment.ms=1", "message.timestamp.type=LogAppendTime"), 0, 1, ""},
		"one for ever, as Kafka's tools say": {newTopic("forever", 1, 1, "retention.ms=9223372036854775807"), 0, 1, ""},
		"a topic that exists":                {newTopic("there", 1, 1), kerr.TopicAlreadyExists.Code, 0, "exists"},
		"three replicas":                     {newTopic("three", 1, 3), kerr.InvalidReplicationFactor.Code, 0, "ask for 1 or -1"},
		"no replica":                         {newTopic("none", 1, 0), kerr.InvalidReplicationFactor.Code, 0, "ask for 1 or -1"},
		"no partition":                       {newTopic("empty", 0, 1), kerr.InvalidPartitions.Code, 0, "1 to 10000"},
		"too many partitions":                {newTopic("many", 10001, 1), kerr.InvalidPartitions.Code, 0, "1 to 10000"},
		"an illegal name":                    {newTopic("no spaces", 1, 1), kerr.InvalidTopicException.Code, 0, "letters"},
		"an empty name":                      {newTopic("", 1, 1), kerr.InvalidTopicException.Code, 0, "letters"},
		"a name of dots":                     {newTopic("..", 1, 1), kerr.InvalidTopicException.Code, 0, "letters"},
		"a name of 250 letters":              {newTopic(strings.Repeat("x", 250), 1, 1), kerr.InvalidTopicException.Code, 0, "249"},
		"a name of the brokers":              {newTopic("__own", 1, 1), kerr.InvalidTopicException.Code, 0, "brokers' own"},
		"replicas placed by hand":            {assigned, kerr.InvalidReplicaAssignment.Code, 0, "by hand"},
		"an unknown configuration":           {newTopic("c1", 1, 1, "colour=red"), kerr.InvalidConfig.Code, 0, "retention.ms"},
		"a retention that is no number":      {newTopic("c2", 1, 1, "retention.ms=a week"), kerr.InvalidConfig.Code, 0, "a whole number"},
		"a retention below -1":               {newTopic("c3", 1, 1, "retention.bytes=-2"), kerr.InvalidConfig.Code, 0, "from -1"},
		"a policy that is unknown":           {newTopic("c4", 1, 1, "cleanup.policy=burn"), kerr.InvalidConfig.Code, 0, "compact"},
		"a flush by time":                    {newTopic("c6", 1, 1, "flush.ms=1000"), kerr.InvalidConfig.Code, 0, "flush.messages"},
		"two replicas in sync":               {newTopic("c7", 1, 1, "min.insync.replicas=2"), kerr.InvalidConfig.Code, 0, "one replica"},
		"messages that are too large":        {newTopic("c5", 1, 1, "max.message.bytes=999999999"), kerr.InvalidConfig.Code, 0, "from 1024"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := b.dial()
			w.t = t
			dry := createRequest(c.topic)
			dry.ValidateOnly = true
			for _, req := range []*kmsg.CreateTopicsRequest{dry, createRequest(c.topic)} {
				got := call[*kmsg.CreateTopicsResponse](w, req, 7).Topics[0]
				message := ""
				if got.ErrorMessage != nil {
					message = *got.ErrorMessage
				}
				if got.ErrorCode != c.code || !strings.Contains(message, c.message) {
					t.Fatalf("validate only %v: error %d %q; want %d with %q", req.ValidateOnly, got.ErrorCode, message, c.code, c.message)
				}
				if c.code == 0 && (got.NumPartitions != c.partitions || got.ReplicationFactor != 1 || len(got.Configs) < 6) {
					t.Errorf("validate only %v: got %+v", req.ValidateOnly, got)
				}
			}
			if c.code == 0 { // it works at once
				p := produced(call[*kmsg.ProduceResponse](w, produceRequest(c.topic.Topic, -1, keyedBatch("k", "x")), 9))
				if p.ErrorCode != 0 {
					t.Errorf("the first produce is answered with %d", p.ErrorCode)
				}
			}
		})
	}
	twice := call[*kmsg.CreateTopicsResponse](b.dial(), createRequest(newTopic("twice", 1, 1), newTopic("twice", 1, 1)), 7)
	for _, topic := range twice.Topics {
		if topic.ErrorCode != kerr.InvalidRequest.Code {
			t.Errorf("a topic that is named twice is answered with %d", topic.ErrorCode)
		}
	}
}

func TestTopicsAreDeletedOrRefused(t *testing.T) {
	b := start(t)
	named, byID := b.create("named", 1), b.create("by-id", 1)
	cases := []struct {
		name  string
		topic kmsg.DeleteTopicsRequestTopic
		code  int16
	}{
		{"by name", kmsg.DeleteTopicsRequestTopic{Topic: kmsg.StringPtr("named")}, 0},
		{"again by name", kmsg.DeleteTopicsRequestTopic{Topic: kmsg.StringPtr("named")}, kerr.UnknownTopicOrPartition.Code},
		{"by the id of what is gone", kmsg.DeleteTopicsRequestTopic{TopicID: named}, kerr.UnknownTopicID.Code},
		{"by both", kmsg.DeleteTopicsRequestTopic{Topic: kmsg.StringPtr("by-id"), TopicID: byID}, kerr.InvalidRequest.Code},
		{"by id", kmsg.DeleteTopicsRequestTopic{TopicID: byID}, 0},
		{"the brokers' own", kmsg.DeleteTopicsRequestTopic{Topic: kmsg.StringPtr("__consumer_offsets")}, kerr.TopicAuthorizationFailed.Code},
	}
	w := b.dial()
	for _, c := range cases {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TimeoutMillis, req.Topics = 10000, []kmsg.DeleteTopicsRequestTopic{c.topic}
		got := call[*kmsg.DeleteTopicsResponse](w, req, 6).Topics[0]
		if got.ErrorCode != c.code {
			t.Errorf("%s: error %d (%v), want %d", c.name, got.ErrorCode, got.ErrorMessage, c.code)
		}
		if c.code == 0 && (got.Topic == nil || got.TopicID == [16]byte{}) {
			t.Errorf("%s: the response does not name the topic: %+v", c.name, got)
		}
	}
	b.create("old", 1)
	old := kmsg.NewPtrDeleteTopicsRequest()
	old.TimeoutMillis, old.TopicNames = 10000, []string{"old", "other"}
	got := call[*kmsg.DeleteTopicsResponse](w, old, 3)
	if got.Topics[0].ErrorCode != 0 || got.Topics[1].ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("an old client gets %+v", got.Topics)
	}
}

func TestPartitionsAreAddedOrRefused(t *testing.T) {
	b := start(t)
	b.create("topic", 2)
	cases := []struct {
		name  string
		topic string
		count int32
		code  int16
	}{
		{"fewer", "topic", 1, kerr.InvalidPartitions.Code},
		{"as many", "topic", 2, kerr.InvalidPartitions.Code},
		{"more", "topic", 5, 0},
		{"too many", "topic", 10001, kerr.InvalidPartitions.Code},
		{"of an unknown topic", "other", 5, kerr.UnknownTopicOrPartition.Code},
		{"of the brokers' own", "__consumer_offsets", 99, kerr.InvalidPartitions.Code},
	}
	w := b.dial()
	for _, c := range cases {
		for _, dry := range []bool{true, false} {
			req := kmsg.NewPtrCreatePartitionsRequest()
			req.TimeoutMillis, req.ValidateOnly = 10000, dry
			topic := kmsg.NewCreatePartitionsRequestTopic()
			topic.Topic, topic.Count = c.topic, c.count
			req.Topics = append(req.Topics, topic)
			if got := call[*kmsg.CreatePartitionsResponse](w, req, 3).Topics[0]; got.ErrorCode != c.code {
				t.Errorf("%s (validate only %v): error %d (%v), want %d", c.name, dry, got.ErrorCode, got.ErrorMessage, c.code)
			}
		}
	}
	req := produceRequest("topic", -1, batchOf(0, "x"))
	req.Topics[0].Partitions[0].Partition = 4
	if p := produced(call[*kmsg.ProduceResponse](w, req, 9)); p.ErrorCode != 0 {
		t.Errorf("a produce to a new partition is answered with %d", p.ErrorCode)
	}
}

// metadataRequest asks for topics by name.
func metadataRequest(create bool, names ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation, req.Topics = create, []kmsg.MetadataRequestTopic{}
	for _, n := range names {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = &n
		req.Topics = append(req.Topics, topic)
	}
	return req
}

func TestMetadataTellsWhatIsAskedFor(t *testing.T) {
	b := start(t)
	id := b.create("a", 2)
	b.create("b", 1)
	w := b.dial()
	all := kmsg.NewPtrMetadataRequest()
	all.Topics = nil
	byID := kmsg.NewPtrMetadataRequest()
	byID.Topics = []kmsg.MetadataRequestTopic{{TopicID: id}, {TopicID: [16]byte{7}}}
	empty, other := "", "b"
	unnamed := kmsg.NewPtrMetadataRequest() // as Java's client asks
	unnamed.AllowAutoTopicCreation = true
	unnamed.Topics = []kmsg.MetadataRequestTopic{{TopicID: id, Topic: &empty}, {TopicID: [16]byte{7}, Topic: &empty}}
	both := kmsg.NewPtrMetadataRequest()
	both.Topics = []kmsg.MetadataRequestTopic{{TopicID: id, Topic: &other}}
	cases := map[string]struct {
		req     *kmsg.MetadataRequest
		version int16
		want    []string // name:error:partitions
	}{
		"all":                         {all, 12, []string{"__consumer_offsets:0:2", "a:0:2", "b:0:1"}},
		"all, as old clients ask":     {metadataRequest(true), 0, []string{"__consumer_offsets:0:2", "a:0:2", "b:0:1"}},
		"none":                        {metadataRequest(false), 12, nil},
		"some, in the order asked":    {metadataRequest(false, "b", "a"), 12, []string{"b:0:1", "a:0:2"}},
		"by id":                       {byID, 12, []string{"a:0:2", ":100:0"}},
		"by id, with empty names":     {unnamed, 12, []string{"a:0:2", ":100:0"}},
		"by id, with another's name":  {both, 12, []string{"a:0:2"}},
		"an unknown one, not created": {metadataRequest(false, "x"), 12, []string{"x:3:0"}},
		"an illegal one":              {metadataRequest(true, "x y"), 12, []string{"x y:17:0"}},
		"one of the brokers' names":   {metadataRequest(true, "__x"), 12, []string{"__x:5:0"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			resp := call[*kmsg.MetadataResponse](w, c.req, c.version)
			var got []string
			for _, topic := range resp.Topics {
				name := ""
				if topic.Topic != nil {
					name = *topic.Topic
				}
				got = append(got, fmt.Sprintf("%s:%d:%d", name, topic.ErrorCode, len(topic.Partitions)))
				for i, p := range topic.Partitions {
					if p.Partition != int32(i) || p.Leader != 1 || !slices.Equal(p.Replicas, []int32{1}) || !slices.Equal(p.ISR, []int32{1}) {
						t.Errorf("%s: partition %d is %+v", name, i, p)
					}
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("topics (-want +got):\n%s", diff)
			}
			if len(resp.Brokers) != 1 || resp.Brokers[0].Host != "127.0.0.1" || c.version > 0 && resp.ControllerID != 1 {
				t.Errorf("brokers %+v, controller %d", resp.Brokers, resp.ControllerID)
			}
		})
	}
}

func TestATopicIsCreatedWhenAClientNamesIt(t *testing.T) {
	cases := map[string]struct {
		cluster, client bool
		version         int16
		code            int16
	}{
		"both allow it":                   {true, true, 12, 0},
		"an old client always allows it":  {true, false, 3, 0},
		"the client does not allow it":    {true, false, 12, kerr.UnknownTopicOrPartition.Code},
		"the cluster does not allow it":   {false, true, 12, kerr.UnknownTopicOrPartition.Code},
		"nor to an old client, of course": {false, true, 3, kerr.UnknownTopicOrPartition.Code},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := start(t, func(_ *server.Config, o *file.Options) { o.AutoCreateTopics = c.cluster })
			resp := call[*kmsg.MetadataResponse](b.dial(), metadataRequest(c.client, "new"), c.version)
			if got := resp.Topics[0]; got.ErrorCode != c.code || (len(got.Partitions) > 0) != (c.code == 0) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestConfigurationsAreDescribed(t *testing.T) {
	b := start(t)
	call[*kmsg.CreateTopicsResponse](b.dial(), createRequest(newTopic("topic", 1, 1, "retention.ms=1000")), 7)
	describe := func(kind kmsg.ConfigResourceType, name string, only ...string) kmsg.DescribeConfigsResponseResource {
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.IncludeSynonyms, req.IncludeDocumentation = true, true
		res := kmsg.NewDescribeConfigsRequestResource()
		res.ResourceType, res.ResourceName, res.ConfigNames = kind, name, only
		req.Resources = append(req.Resources, res)
		return call[*kmsg.DescribeConfigsResponse](b.dial(), req, 4).Resources[0]
	}
	var got []string
	for _, c := range describe(kmsg.ConfigResourceTypeTopic, "topic").Configs {
		if c.ReadOnly {
			continue // see TestFactsAreShownAsReadOnly
		}
		got = append(got, fmt.Sprintf("%s=%s %s", c.Name, *c.Value, c.Source))
	}
	want := []string{
		"cleanup.policy=delete DEFAULT_CONFIG",
		"delete.retention.ms=86400000 DEFAULT_CONFIG",
		"flush.messages=1 DEFAULT_CONFIG",
		"max.message.bytes=1048588 DEFAULT_CONFIG",
		"message.timestamp.type=CreateTime DEFAULT_CONFIG",
		"retention.bytes=-1 DEFAULT_CONFIG",
		"retention.ms=1000 DYNAMIC_TOPIC_CONFIG",
		"segment.bytes=134217728 DEFAULT_CONFIG",
		"segment.ms=604800000 DEFAULT_CONFIG",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the topic's configuration (-want +got):\n%s", diff)
	}
	if c := describe(kmsg.ConfigResourceTypeBroker, "1", "num.partitions").Configs; len(c) != 1 || *c[0].Value != "1" || !c[0].ReadOnly {
		t.Errorf("the broker's configuration is %+v", c)
	}
	for _, c := range append(describe(kmsg.ConfigResourceTypeBroker, "1").Configs, describe(kmsg.ConfigResourceTypeTopic, "topic").Configs...) {
		if c.Documentation == nil || *c.Documentation == "" {
			t.Errorf("nothing says what %s is", c.Name)
		}
	}
	for name, r := range map[string]kmsg.DescribeConfigsResponseResource{
		"an unknown topic": describe(kmsg.ConfigResourceTypeTopic, "other"),
		"another broker":   describe(kmsg.ConfigResourceTypeBroker, "2"),
		"another resource": describe(kmsg.ConfigResourceTypeBrokerLogger, "1"),
	} {
		if r.ErrorCode == 0 || r.ErrorMessage == nil {
			t.Errorf("%s is answered with %+v", name, r)
		}
	}
}

func TestTheClusterIsDescribed(t *testing.T) {
	b := start(t)
	req := kmsg.NewPtrDescribeClusterRequest()
	req.EndpointType = 1
	resp := call[*kmsg.DescribeClusterResponse](b.dial(), req, 1)
	if resp.ErrorCode != 0 || resp.ClusterID == "" || resp.ControllerID != 1 || len(resp.Brokers) != 1 {
		t.Errorf("got %+v", resp)
	}
	req.EndpointType = 2
	if resp := call[*kmsg.DescribeClusterResponse](b.dial(), req, 1); resp.ErrorCode != 115 {
		t.Errorf("controllers are answered with %d", resp.ErrorCode)
	}
}
