// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// DescribeConfigs, v1 to v4.
//
//   - v1 has sources and synonyms, v3 types and documentation, v4 is flexible.
//   - Topics have the configurations that can be set, and read-only ones of Kafka's that have one value here; brokers tell a few facts that tools
//     look for, which their flags or the BrokerCluster say, so they are read-only.

// source tells where a configuration's value comes from.
func (c *topicConfig) source() kmsg.ConfigSource {
	if c.value == c.def {
		return kmsg.ConfigSourceDefaultConfig
	}
	return kmsg.ConfigSourceDynamicTopicConfig
}

// describeConfigs describes the configurations of topics and brokers.
func (s *Server) describeConfigs(_ context.Context, r *request) kmsg.Response {
	req := bodyOf[*kmsg.DescribeConfigsRequest](r)
	resp := kmsg.NewPtrDescribeConfigsResponse()
	resp.Version = r.version
	type resource struct {
		kind kmsg.ConfigResourceType
		name string
	}
	named := make(map[resource]bool, len(req.Resources))
	for i := range req.Resources {
		in := &req.Resources[i]
		if !firstNamed(named, resource{in.ResourceType, in.ResourceName}) {
			continue
		}
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = in.ResourceType, in.ResourceName
		configs, code, err := s.configsOf(in)
		if err != nil {
			out.ErrorCode, out.ErrorMessage = r.code(code), optional(err.Error())
		}
		for _, c := range configs {
			if len(in.ConfigNames) == 0 || slices.Contains(in.ConfigNames, c.Name) {
				out.Configs = append(out.Configs, trimConfig(c, req))
			}
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

// trimConfig takes out what the client does not want.
func trimConfig(c kmsg.DescribeConfigsResponseResourceConfig, req *kmsg.DescribeConfigsRequest) kmsg.DescribeConfigsResponseResourceConfig {
	if !req.IncludeSynonyms {
		c.ConfigSynonyms = nil
	}
	if !req.IncludeDocumentation {
		c.Documentation = nil
	}
	return c
}

// configsOf returns all configurations of a resource, sorted by name.
func (s *Server) configsOf(in *kmsg.DescribeConfigsRequestResource) ([]kmsg.DescribeConfigsResponseResourceConfig, int16, error) {
	snap := s.snapshot()
	if snap == nil {
		return nil, codeRequestTimedOut, metadata.ErrUnavailable
	}
	switch in.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		topic := snap.Topics[in.ResourceName]
		if topic == nil {
			return nil, codeUnknownTopicOrPartition, fmt.Errorf("%w %q", metadata.ErrUnknownTopic, clip(in.ResourceName))
		}
		return describeTopicConfigs(topic.Config), codeNone, nil
	case kmsg.ConfigResourceTypeBroker:
		if in.ResourceName != "" && in.ResourceName != strconv.Itoa(int(s.cfg.NodeID)) {
			return nil, codeInvalidRequest, fmt.Errorf("this is broker %d; ask broker %q itself", s.cfg.NodeID, clip(in.ResourceName))
		}
		return s.describeBrokerConfigs(snap), codeNone, nil
	default:
		return nil, codeInvalidRequest, fmt.Errorf("resources of type %d have no configuration here; topics and brokers have", in.ResourceType)
	}
}

func describeTopicConfigs(config metadata.TopicConfig) []kmsg.DescribeConfigsResponseResourceConfig {
	var out []kmsg.DescribeConfigsResponseResourceConfig
	for _, c := range topicConfigs(config) {
		d := kmsg.NewDescribeConfigsResponseResourceConfig()
		d.Name, d.Value, d.Source, d.ConfigType, d.Documentation = c.name, &c.value, c.source(), c.kind, &c.doc
		d.ReadOnly = c.readOnly
		if d.Source != kmsg.ConfigSourceDefaultConfig {
			d.ConfigSynonyms = append(d.ConfigSynonyms, synonym(c.name, c.value, d.Source))
		}
		d.ConfigSynonyms = append(d.ConfigSynonyms, synonym(c.name, c.def, kmsg.ConfigSourceDefaultConfig))
		out = append(out, d)
	}
	return out
}

func synonym(name, value string, source kmsg.ConfigSource) kmsg.DescribeConfigsResponseResourceConfigConfigSynonym {
	syn := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
	syn.Name, syn.Value, syn.Source = name, &value, source
	return syn
}

// describeBrokerConfigs tells what tools look for in a broker's configuration, as far as it is true here.
func (s *Server) describeBrokerConfigs(snap *metadata.Snapshot) []kmsg.DescribeConfigsResponseResourceConfig {
	groups := s.cfg.Groups
	facts := []struct {
		name, value string
		kind        kmsg.ConfigType
		doc         string
	}{
		{"auto.create.topics.enable", strconv.FormatBool(snap.AutoCreateTopics), kmsg.ConfigTypeBoolean, "Whether a client that names an unknown topic creates it."},
		{"broker.id", strconv.Itoa(int(s.cfg.NodeID)), kmsg.ConfigTypeInt, "The broker's node id."},
		{"connections.max.idle.ms", formatMillis(s.cfg.IdleTimeout), kmsg.ConfigTypeLong, "How long a connection may be silent with no request under way, in milliseconds."},
		{"default.replication.factor", "1", kmsg.ConfigTypeInt, "The replication factor of a topic that is created without saying one."},
		{"delete.topic.enable", "true", kmsg.ConfigTypeBoolean, "Whether clients can delete topics."},
		{"fetch.max.bytes", strconv.Itoa(maxFetchBytes), kmsg.ConfigTypeInt, "The most bytes of records in one response; a single batch may be larger."},
		{"group.consumer.assignment.interval.ms", formatMillis(groups.AssignmentInterval), kmsg.ConfigTypeInt,
			"How long a group of the consumer protocol waits for more changes before it assigns anew, in milliseconds."},
		{"group.consumer.heartbeat.interval.ms", formatMillis(groups.ConsumerHeartbeatInterval), kmsg.ConfigTypeInt,
			"How often members of the consumer protocol are told to send a heartbeat, in milliseconds."},
		{"group.consumer.session.timeout.ms", formatMillis(groups.ConsumerSessionTimeout), kmsg.ConfigTypeInt,
			"After how long without a heartbeat a member of the consumer protocol is removed, in milliseconds."},
		{"group.initial.rebalance.delay.ms", formatMillis(groups.InitialRebalanceDelay), kmsg.ConfigTypeInt,
			"How long the first rebalance of an empty group waits for more members, in milliseconds."},
		{"group.max.session.timeout.ms", formatMillis(groups.MaxSessionTimeout), kmsg.ConfigTypeInt,
			"The longest session timeout that a member of a classic group may ask for, in milliseconds."},
		{"group.min.session.timeout.ms", formatMillis(groups.MinSessionTimeout), kmsg.ConfigTypeInt,
			"The shortest session timeout that a member of a classic group may ask for, in milliseconds."},
		{"max.connections", strconv.Itoa(s.cfg.MaxConnections), kmsg.ConfigTypeInt, "How many connections may be open at once."},
		{"max.connections.per.ip", strconv.Itoa(s.cfg.MaxConnectionsPerIP), kmsg.ConfigTypeInt, "How many of them may come from one address."},
		{"min.insync.replicas", "1", kmsg.ConfigTypeInt, "How many copies of a record there are when acks=all is answered."},
		{"node.id", strconv.Itoa(int(s.cfg.NodeID)), kmsg.ConfigTypeInt, "The broker's node id."},
		{"num.partitions", formatInt(int64(max(snap.DefaultPartitions, 1))), kmsg.ConfigTypeInt, "The number of partitions of a topic that is created without saying how many."},
		{"offsets.retention.minutes", formatInt(int64(groups.OffsetsRetention / time.Minute)), kmsg.ConfigTypeInt,
			"How long committed offsets are kept once their group is empty, or nobody in it reads their topic, in minutes."},
		{"socket.request.max.bytes", formatInt(int64(s.cfg.MaxRequestBytes)), kmsg.ConfigTypeInt, "The largest request, in bytes."},
	}
	out := make([]kmsg.DescribeConfigsResponseResourceConfig, 0, len(facts))
	for _, f := range facts {
		d := kmsg.NewDescribeConfigsResponseResourceConfig()
		d.Name, d.Value, d.ConfigType, d.ReadOnly = f.name, &f.value, f.kind, true
		d.Source, d.Documentation = kmsg.ConfigSourceStaticBrokerConfig, &f.doc
		d.ConfigSynonyms = append(d.ConfigSynonyms, synonym(f.name, f.value, d.Source))
		out = append(out, d)
	}
	return out
}
