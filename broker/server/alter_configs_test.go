// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// configOf returns what a topic's configuration says that is not Kafka's default, or not this broker's, as name=value, sorted.
func (b *broker) configOf(topic string) []string {
	b.t.Helper()
	described, err := b.admin().DescribeTopicConfigs(b.ctx(), topic)
	if err != nil || len(described) != 1 || described[0].Err != nil {
		b.t.Fatalf("describe topic %s: %v, %+v", topic, err, described)
	}
	out := []string{}
	for _, c := range described[0].Configs {
		if c.Source != kmsg.ConfigSourceDefaultConfig {
			out = append(out, c.Key+"="+c.MaybeValue())
		}
	}
	slices.Sort(out)
	return out
}

// op is an operation of IncrementalAlterConfigs on name=value.
func op(o kadm.IncrementalOp, entry string) kadm.AlterConfig {
	name, value, has := strings.Cut(entry, "=")
	c := kadm.AlterConfig{Op: o, Name: name}
	if has {
		c.Value = &value
	}
	return c
}

const osFlush = "flush.messages=9223372036854775807"

func TestATopicsConfigurationIsChanged(t *testing.T) {
	set := func(entry string) kadm.AlterConfig { return op(kadm.SetConfig, entry) }
	cases := map[string]struct {
		created []string
		change  []kadm.AlterConfig
		want    []string
	}{
		"nothing at all":               {nil, nil, []string{}},
		"a time that records are kept": {nil, []kadm.AlterConfig{set("retention.ms=60000")}, []string{"retention.ms=60000"}},
		"every entry at once": {
			nil,
			[]kadm.AlterConfig{
				set("retention.ms=-1"), set("retention.bytes=4096"), set("cleanup.policy=compact"), set("max.message.bytes=2048"),
				set("delete.retention.ms=5000"), set(osFlush), set("segment.bytes=14"), set("segment.ms=1"), set("message.timestamp.type=LogAppendTime"),
			},
			[]string{
				"cleanup.policy=compact", "delete.retention.ms=5000", osFlush, "max.message.bytes=2048", "message.timestamp.type=LogAppendTime",
				"retention.bytes=4096", "retention.ms=-1", "segment.bytes=14", "segment.ms=1",
			},
		},
		"what is not named stays": {[]string{"retention.bytes=5000"}, []kadm.AlterConfig{set("retention.ms=1000")}, []string{"retention.bytes=5000", "retention.ms=1000"}},
		"an entry back to its default": {
			[]string{"retention.ms=1000", osFlush}, []kadm.AlterConfig{op(kadm.DeleteConfig, "retention.ms"), op(kadm.DeleteConfig, "flush.messages")}, []string{},
		},
		"a list gets a word":                  {nil, []kadm.AlterConfig{op(kadm.AppendConfig, "cleanup.policy=compact")}, []string{"cleanup.policy=delete,compact"}},
		"a list with a word twice":            {nil, []kadm.AlterConfig{set("cleanup.policy=compact,delete,compact")}, []string{"cleanup.policy=compact,delete"}},
		"the largest segments":                {nil, []kadm.AlterConfig{set("segment.bytes=2147483647")}, []string{"segment.bytes=2147483647"}},
		"segments that never get old":         {nil, []kadm.AlterConfig{set("segment.ms=9223372036854775807")}, []string{"segment.ms=9223372036854"}},
		"a list gets a word that it has":      {nil, []kadm.AlterConfig{op(kadm.AppendConfig, "cleanup.policy=delete")}, []string{}},
		"a list loses a word":                 {[]string{"cleanup.policy=compact,delete"}, []kadm.AlterConfig{op(kadm.SubtractConfig, "cleanup.policy=delete")}, []string{"cleanup.policy=compact"}},
		"a list loses a word that it has not": {nil, []kadm.AlterConfig{op(kadm.SubtractConfig, "cleanup.policy=compact")}, []string{}},
		"what is true anyway": {nil, []kadm.AlterConfig{
			set("min.insync.replicas=1"), set("compression.type=producer"), set("message.timestamp.type=CreateTime"), set("unclean.leader.election.enable=False"),
			set("preallocate=false"), op(kadm.DeleteConfig, "remote.storage.enable"),
		}, []string{}},
		"tombstones that are kept for ever": {nil, []kadm.AlterConfig{set("delete.retention.ms=9223372036854775807")}, []string{"delete.retention.ms=9223372036854"}},
	}
	b := start(t)
	i := 0
	for name, c := range cases {
		topic := fmt.Sprintf("topic-%d", i)
		i++
		t.Run(name, func(t *testing.T) {
			b := b.in(t)
			call[*kmsg.CreateTopicsResponse](b.dial(), createRequest(newTopic(topic, 1, 1, c.created...)), 7)
			before := b.configOf(topic)
			if rs, err := b.admin().ValidateAlterTopicConfigs(b.ctx(), c.change, topic); err != nil || rs[0].Err != nil {
				t.Fatalf("validate: %v, %+v", err, rs)
			}
			if diff := cmp.Diff(before, b.configOf(topic)); diff != "" {
				t.Errorf("a validation changed the topic (-before +after):\n%s", diff)
			}
			if rs, err := b.admin().AlterTopicConfigs(b.ctx(), c.change, topic); err != nil || rs[0].Err != nil {
				t.Fatalf("alter: %v, %+v", err, rs)
			}
			if diff := cmp.Diff(c.want, b.configOf(topic)); diff != "" {
				t.Errorf("configuration (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAChangeOfConfigurationIsRefused(t *testing.T) {
	set := func(entry string) kadm.AlterConfig { return op(kadm.SetConfig, entry) }
	cases := map[string]struct {
		change  []kadm.AlterConfig
		code    *kerr.Error
		message string
	}{
		"an unknown name":                        {[]kadm.AlterConfig{set("colour=red")}, kerr.InvalidConfig, "cleanup.policy, delete.retention.ms"},
		"an unknown name that is to be deleted":  {[]kadm.AlterConfig{op(kadm.DeleteConfig, "colour")}, kerr.InvalidConfig, "colour"},
		"an unknown name that is to get a word":  {[]kadm.AlterConfig{op(kadm.AppendConfig, "colour=red")}, kerr.InvalidConfig, "colour"},
		"a name of 10000 letters":                {[]kadm.AlterConfig{set(strings.Repeat("x", 10000) + "=1")}, kerr.InvalidConfig, "…"},
		"an empty name":                          {[]kadm.AlterConfig{set("=1")}, kerr.InvalidConfig, `""`},
		"no value":                               {[]kadm.AlterConfig{set("retention.ms")}, kerr.InvalidRequest, "no value"},
		"a value that is no number":              {[]kadm.AlterConfig{set("retention.ms=a week")}, kerr.InvalidConfig, "whole number"},
		"an empty value":                         {[]kadm.AlterConfig{set("cleanup.policy=")}, kerr.InvalidConfig, "compact"},
		"a good entry with a bad one":            {[]kadm.AlterConfig{set("retention.ms=1000"), set("retention.bytes=-2")}, kerr.InvalidConfig, "from -1"},
		"an entry twice":                         {[]kadm.AlterConfig{set("retention.ms=1000"), set("retention.ms=2000")}, kerr.InvalidRequest, "more than once"},
		"a word for what is no list":             {[]kadm.AlterConfig{op(kadm.AppendConfig, "retention.ms=1000")}, kerr.InvalidConfig, "not a list"},
		"the last word of a list taken away":     {[]kadm.AlterConfig{op(kadm.SubtractConfig, "cleanup.policy=delete")}, kerr.InvalidConfig, "compact"},
		"a flush of every hundredth record":      {[]kadm.AlterConfig{set("flush.messages=100")}, kerr.InvalidConfig, "9223372036854775807"},
		"a flush by time":                        {[]kadm.AlterConfig{set("flush.ms=1000")}, kerr.InvalidConfig, "flush.messages says when"},
		"two replicas in sync":                   {[]kadm.AlterConfig{set("min.insync.replicas=2")}, kerr.InvalidConfig, "can only be 1"},
		"a compression by the broker":            {[]kadm.AlterConfig{set("compression.type=zstd")}, kerr.InvalidConfig, "as the producer compressed"},
		"timestamps of nobody":                   {[]kadm.AlterConfig{set("message.timestamp.type=NoTime")}, kerr.InvalidConfig, "CreateTime or LogAppendTime"},
		"segments that are too small":            {[]kadm.AlterConfig{set("segment.bytes=13")}, kerr.InvalidConfig, "from 14 to 2147483647"},
		"segments that are too large":            {[]kadm.AlterConfig{set("segment.bytes=2147483648")}, kerr.InvalidConfig, "from 14 to 2147483647"},
		"segments of no time":                    {[]kadm.AlterConfig{set("segment.ms=0")}, kerr.InvalidConfig, "from 1"},
		"tombstones that are kept for less than": {[]kadm.AlterConfig{set("delete.retention.ms=-1")}, kerr.InvalidConfig, "from 0"},
	}
	b := start(t)
	b.create("topic", 1)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := b.in(t)
			for what, alter := range map[string]func() (kadm.AlterConfigsResponses, error){
				"validate": func() (kadm.AlterConfigsResponses, error) {
					return b.admin().ValidateAlterTopicConfigs(b.ctx(), c.change, "topic")
				},
				"alter": func() (kadm.AlterConfigsResponses, error) {
					return b.admin().AlterTopicConfigs(b.ctx(), c.change, "topic")
				},
			} {
				rs, err := alter()
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if !errors.Is(rs[0].Err, c.code) || !strings.Contains(rs[0].ErrMessage, c.message) || len(rs[0].ErrMessage) > 1000 {
					t.Errorf("%s: %v %q, want %v with %q", what, rs[0].Err, rs[0].ErrMessage, c.code, c.message)
				}
			}
			if got := b.configOf("topic"); len(got) > 0 {
				t.Errorf("a refused change left %v", got)
			}
		})
	}
}

func TestAWholeConfigurationIsReplaced(t *testing.T) {
	b := start(t)
	call[*kmsg.CreateTopicsResponse](b.dial(), createRequest(newTopic("topic", 1, 1, "retention.ms=1000", "retention.bytes=5000")), 7)
	state := []kadm.AlterConfig{op(kadm.SetConfig, "retention.ms=2000"), op(kadm.SetConfig, "min.insync.replicas=1")}
	if rs, err := b.admin().ValidateAlterTopicConfigsState(b.ctx(), []kadm.AlterConfig{op(kadm.SetConfig, "colour=red")}, "topic"); err != nil || !errors.Is(rs[0].Err, kerr.InvalidConfig) {
		t.Errorf("an unknown entry: %v, %+v", err, rs)
	}
	if rs, err := b.admin().AlterTopicConfigsState(b.ctx(), []kadm.AlterConfig{{Name: "retention.ms"}}, "topic"); err != nil || !errors.Is(rs[0].Err, kerr.InvalidRequest) {
		t.Errorf("an entry without a value: %v, %+v", err, rs)
	}
	if rs, err := b.admin().AlterTopicConfigsState(b.ctx(), append(state, state[0]), "topic"); err != nil || !errors.Is(rs[0].Err, kerr.InvalidRequest) {
		t.Errorf("an entry twice: %v, %+v", err, rs)
	}
	if rs, err := b.admin().ValidateAlterTopicConfigsState(b.ctx(), state, "topic"); err != nil || rs[0].Err != nil {
		t.Errorf("validate: %v, %+v", err, rs)
	}
	if diff := cmp.Diff([]string{"retention.bytes=5000", "retention.ms=1000"}, b.configOf("topic")); diff != "" {
		t.Errorf("before (-want +got):\n%s", diff)
	}
	if rs, err := b.admin().AlterTopicConfigsState(b.ctx(), state, "topic"); err != nil || rs[0].Err != nil {
		t.Errorf("alter: %v, %+v", err, rs)
	}
	if diff := cmp.Diff([]string{"retention.ms=2000"}, b.configOf("topic")); diff != "" {
		t.Errorf("after (-want +got):\n%s", diff)
	}
	if rs, err := b.admin().AlterTopicConfigsState(b.ctx(), nil, "topic"); err != nil || rs[0].Err != nil {
		t.Errorf("alter to nothing: %v, %+v", err, rs)
	}
	if got := b.configOf("topic"); len(got) > 0 {
		t.Errorf("after all is taken away: %v", got)
	}
}

// incremental asks for changes of resources; each sets the entry.
func incremental(entry string, resources ...kmsg.IncrementalAlterConfigsRequestResource) *kmsg.IncrementalAlterConfigsRequest {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	name, value, _ := strings.Cut(entry, "=")
	for _, r := range resources {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = name, &value
		r.Configs = append(r.Configs, c)
		req.Resources = append(req.Resources, r)
	}
	return req
}

func resource(kind kmsg.ConfigResourceType, name string) kmsg.IncrementalAlterConfigsRequestResource {
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	return r
}

func TestResourcesThatHaveNoConfigurationToChange(t *testing.T) {
	b := start(t)
	b.create("topic", 1)
	cases := map[string]struct {
		resource kmsg.IncrementalAlterConfigsRequestResource
		code     *kerr.Error
		message  string
	}{
		"an unknown topic":      {resource(kmsg.ConfigResourceTypeTopic, "other"), kerr.UnknownTopicOrPartition, "other"},
		"a topic without name":  {resource(kmsg.ConfigResourceTypeTopic, ""), kerr.UnknownTopicOrPartition, ""},
		"the brokers' own":      {resource(kmsg.ConfigResourceTypeTopic, "__consumer_offsets"), kerr.PolicyViolation, "brokers' own"},
		"a broker":              {resource(kmsg.ConfigResourceTypeBroker, "1"), kerr.InvalidRequest, "BrokerCluster"},
		"all brokers":           {resource(kmsg.ConfigResourceTypeBroker, ""), kerr.InvalidRequest, "BrokerCluster"},
		"a broker's loggers":    {resource(kmsg.ConfigResourceTypeBrokerLogger, "1"), kerr.InvalidRequest, "topics have"},
		"a group":               {resource(kmsg.ConfigResourceTypeGroupConfig, "g"), kerr.InvalidRequest, "topics have"},
		"what nobody has named": {resource(99, "x"), kerr.InvalidRequest, "topics have"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := b.in(t)
			for _, v := range []int16{0, 1} {
				got := call[*kmsg.IncrementalAlterConfigsResponse](b.dial(), incremental("retention.ms=1", c.resource), v).Resources[0]
				if got.ErrorCode != c.code.Code || got.ErrorMessage == nil || !strings.Contains(*got.ErrorMessage, c.message) {
					t.Errorf("v%d: %d %v, want %v with %q", v, got.ErrorCode, got.ErrorMessage, c.code, c.message)
				}
				if got.ResourceName != c.resource.ResourceName || got.ResourceType != c.resource.ResourceType {
					t.Errorf("v%d: the answer is for %v %q", v, got.ResourceType, got.ResourceName)
				}
			}
			old := kmsg.NewPtrAlterConfigsRequest()
			r := kmsg.NewAlterConfigsRequestResource()
			r.ResourceType, r.ResourceName = c.resource.ResourceType, c.resource.ResourceName
			old.Resources = append(old.Resources, r)
			for _, v := range []int16{0, 1, 2} {
				if got := call[*kmsg.AlterConfigsResponse](b.dial(), old, v).Resources[0]; got.ErrorCode != c.code.Code {
					t.Errorf("AlterConfigs v%d: %d, want %v", v, got.ErrorCode, c.code)
				}
			}
		})
	}
	topic := resource(kmsg.ConfigResourceTypeTopic, "topic")
	for _, got := range call[*kmsg.IncrementalAlterConfigsResponse](b.dial(), incremental("retention.ms=1", topic, topic), 1).Resources {
		if got.ErrorCode != kerr.InvalidRequest.Code {
			t.Errorf("a topic that is named twice is answered with %d", got.ErrorCode)
		}
	}
	for _, unknown := range []kmsg.IncrementalAlterConfigOp{-1, 4, 99} {
		req := incremental("retention.ms=1", topic)
		req.Resources[0].Configs[0].Op = unknown
		if got := call[*kmsg.IncrementalAlterConfigsResponse](b.dial(), req, 1).Resources[0]; got.ErrorCode != kerr.InvalidRequest.Code {
			t.Errorf("operation %d is answered with %d", unknown, got.ErrorCode)
		}
	}
	if got := call[*kmsg.IncrementalAlterConfigsResponse](b.dial(), kmsg.NewPtrIncrementalAlterConfigsRequest(), 1); len(got.Resources) > 0 {
		t.Errorf("nothing is answered with %+v", got)
	}
}

func TestManyTopicsAreChangedInOneRequest(t *testing.T) {
	b := start(t)
	var topics []kmsg.CreateTopicsRequestTopic
	var resources []kmsg.IncrementalAlterConfigsRequestResource
	for i := range 300 {
		name := fmt.Sprintf("topic-%d", i)
		topics, resources = append(topics, newTopic(name, 1, 1)), append(resources, resource(kmsg.ConfigResourceTypeTopic, name))
	}
	call[*kmsg.CreateTopicsResponse](b.dial(), createRequest(topics...), 7)
	for _, got := range call[*kmsg.IncrementalAlterConfigsResponse](b.dial(), incremental("max.message.bytes=5000", resources...), 1).Resources {
		if got.ErrorCode != 0 {
			t.Errorf("%s: error %d", got.ResourceName, got.ErrorCode)
		}
	}
	if diff := cmp.Diff([]string{"max.message.bytes=5000"}, b.configOf("topic-299")); diff != "" {
		t.Errorf("the last topic (-want +got):\n%s", diff)
	}
}

func TestChangesAtTheSameTimeAreAllMade(t *testing.T) {
	b := start(t)
	b.create("topic", 1)
	entries := []string{"retention.ms=1000", "retention.bytes=2000", "max.message.bytes=3000", "delete.retention.ms=4000", "cleanup.policy=compact", osFlush, "segment.bytes=5000", "segment.ms=6000"}
	errs := make([]error, len(entries))
	var group sync.WaitGroup
	for i, entry := range entries {
		admin := b.admin()
		group.Go(func() {
			rs, err := admin.AlterTopicConfigs(b.t.Context(), []kadm.AlterConfig{op(kadm.SetConfig, entry)}, "topic")
			if errs[i] = err; err == nil {
				errs[i] = rs[0].Err
			}
		})
	}
	group.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("%s: %v", entries[i], err)
		}
	}
	slices.Sort(entries)
	eventually(t, func() error {
		if diff := cmp.Diff(entries, b.configOf("topic")); diff != "" {
			return fmt.Errorf("configuration (-want +got):\n%s", diff)
		}
		return nil
	})
}

func TestAChangedConfigurationCountsAtOnceAndAfterARestart(t *testing.T) {
	dir := t.TempDir()
	b := startIn(t, dir)
	b.create("topic", 1)
	large := func() int16 {
		return produced(call[*kmsg.ProduceResponse](b.dial(), produceRequest("topic", -1, batchOf(0, strings.Repeat("x", 4000))), 9)).ErrorCode
	}
	if code := large(); code != 0 {
		t.Fatalf("a batch of 4 kB is answered with %d", code)
	}
	if rs, err := b.admin().AlterTopicConfigs(b.ctx(), []kadm.AlterConfig{op(kadm.SetConfig, "max.message.bytes=2000")}, "topic"); err != nil || rs[0].Err != nil {
		t.Fatalf("alter: %v, %+v", err, rs)
	}
	eventually(t, func() error { // the open log gets it right after the answer
		if code := large(); code != kerr.MessageTooLarge.Code {
			return fmt.Errorf("a batch that is too large now is answered with %d", code)
		}
		return nil
	})
	b.stop()
	b = startIn(t, dir)
	if code := large(); code != kerr.MessageTooLarge.Code {
		t.Errorf("after a restart it is answered with %d", code)
	}
}

func TestAMetadataSourceThatCannotChangeATopicSaysWhy(t *testing.T) {
	s := newScript()
	b := start(t, s.in)
	s.topic("topic", 1, metadata.DefaultTopicConfig, 1)
	b.becomes("topic", 0, 0)
	change := []kadm.AlterConfig{op(kadm.SetConfig, "retention.ms=1000")}
	for err, want := range map[error]*kerr.Error{
		metadata.ErrUnavailable:   kerr.RequestTimedOut,
		metadata.ErrDenied:        kerr.PolicyViolation,
		metadata.ErrUnknownTopic:  kerr.UnknownTopicOrPartition,
		metadata.ErrInvalidConfig: kerr.InvalidConfig,
	} {
		s.alter = func(string, metadata.ConfigChange) error { return fmt.Errorf("%w: because", err) }
		rs, failed := b.admin().AlterTopicConfigs(b.ctx(), change, "topic")
		if failed != nil || !errors.Is(rs[0].Err, want) || !strings.HasSuffix(rs[0].ErrMessage, "because") {
			t.Errorf("%v: %v, %+v", err, failed, rs)
		}
	}
}

func TestFactsAreShownAsReadOnly(t *testing.T) {
	b := start(t)
	b.create("topic", 1)
	req := kmsg.NewPtrDescribeConfigsRequest()
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, "topic"
	req.Resources = append(req.Resources, res)
	readOnly, names := map[string]string{}, []string{}
	for _, c := range call[*kmsg.DescribeConfigsResponse](b.dial(), req, 4).Resources[0].Configs {
		names = append(names, c.Name)
		if c.ReadOnly {
			readOnly[c.Name] = *c.Value
		}
	}
	if !slices.IsSorted(names) {
		t.Errorf("names are not sorted: %v", names)
	}
	for name, value := range map[string]string{
		"min.insync.replicas": "1", "compression.type": "producer", "flush.ms": fmt.Sprint(int64(math.MaxInt64)),
	} {
		if readOnly[name] != value {
			t.Errorf("%s is %q, read-only; want %q", name, readOnly[name], value)
		}
	}
	if _, found := readOnly["retention.ms"]; found {
		t.Error("retention.ms is read-only")
	}
}

// Not every metadata source keeps the order of cleanup policies, so the answer does not wait for a change of that alone; where it is kept it is soon seen.
func TestAListIsPutInAnotherOrder(t *testing.T) {
	b := start(t)
	call[*kmsg.CreateTopicsResponse](b.dial(), createRequest(newTopic("x", 1, 1, "cleanup.policy=compact,delete")), 7)
	change := []kadm.AlterConfig{op(kadm.SetConfig, "cleanup.policy=delete, compact")}
	if rs, err := b.admin().AlterTopicConfigs(b.ctx(), change, "x"); err != nil || rs[0].Err != nil {
		t.Fatalf("alter: %v, %+v", err, rs)
	}
	eventually(t, func() error {
		if diff := cmp.Diff([]string{"cleanup.policy=delete,compact"}, b.configOf("x")); diff != "" {
			return fmt.Errorf("configuration (-want +got):\n%s", diff)
		}
		return nil
	})
}
