// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// AlterConfigs, v0 to v2.
//
//   - v2 is flexible; the others differ in nothing that matters here.
//   - What a request says replaces all that a topic has: what is not named gets its default. IncrementalAlterConfigs (KIP-339) changes what it names
//     alone, and Kafka's own tools use that.
//   - Topics can be changed. A broker's configuration is what its flags or the BrokerCluster say.

// alterConfigs replaces the configurations of topics.
func (s *Server) alterConfigs(ctx context.Context, r *request) kmsg.Response {
	req := bodyOf[*kmsg.AlterConfigsRequest](r)
	resp := kmsg.NewPtrAlterConfigsResponse()
	resp.Version = r.version
	a := s.newAlterations(req.ValidateOnly)
	for i := range req.Resources {
		a.named[configResource{req.Resources[i].ResourceType, req.Resources[i].ResourceName}]++
	}
	for i := range req.Resources {
		in, out := &req.Resources[i], kmsg.NewAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = in.ResourceType, in.ResourceName
		err := checkEntries(in.Configs)
		code := codeInvalidRequest
		if err == nil {
			code, err = a.alter(ctx, configResource{in.ResourceType, in.ResourceName}, func(metadata.TopicConfig) (metadata.TopicConfig, error) {
				return replaceTopicConfig(in.Configs)
			})
		}
		if err != nil {
			out.ErrorCode, out.ErrorMessage = r.code(code), optional(err.Error())
		}
		resp.Resources = append(resp.Resources, out)
	}
	a.await(ctx)
	return resp
}

// checkEntries refuses what no topic's configuration could be made of.
func checkEntries(entries []kmsg.AlterConfigsRequestResourceConfig) error {
	named := make(map[string]bool, len(entries))
	for _, e := range entries {
		switch {
		case !firstNamed(named, e.Name):
			return fmt.Errorf("the request names %s more than once", clip(e.Name))
		case e.Value == nil:
			return fmt.Errorf("%s has no value; leave it out for its default", clip(e.Name))
		}
	}
	return nil
}

// replaceTopicConfig makes a configuration of entries and defaults.
func replaceTopicConfig(entries []kmsg.AlterConfigsRequestResourceConfig) (metadata.TopicConfig, error) {
	c := metadata.DefaultTopicConfig
	for _, e := range entries {
		if err := setTopicConfig(&c, e.Name, *e.Value); err != nil {
			return c, err
		}
	}
	return c, nil
}

// configResource is what a configuration belongs to.
type configResource struct {
	kind kmsg.ConfigResourceType
	name string
}

// alterations are the changes that one request asks for.
type alterations struct {
	s            *Server
	validateOnly bool
	deadline     time.Time
	// named counts how often the request names a resource.
	named map[configResource]int
	// changed are the topics that were changed, as they were before.
	changed []*metadata.Topic
}

func (s *Server) newAlterations(validateOnly bool) *alterations {
	return &alterations{s: s, validateOnly: validateOnly, deadline: time.Now().Add(minChangeTime), named: make(map[configResource]int)}
}

// alter changes one resource. The error goes with its code.
func (a *alterations) alter(ctx context.Context, res configResource, change metadata.ConfigChange) (int16, error) {
	switch {
	case a.named[res] > 1:
		return codeInvalidRequest, errors.New("the request names the resource more than once")
	case res.kind == kmsg.ConfigResourceTypeTopic:
		return a.alterTopic(ctx, res.name, change)
	case res.kind == kmsg.ConfigResourceTypeBroker:
		return codeInvalidRequest, errors.New("a broker's configuration cannot be changed over the wire: it is set in the BrokerCluster's spec.config, " +
			"or by the flags of a broker on its own")
	default:
		return codeInvalidRequest, fmt.Errorf("resources of type %d have no configuration here that can be changed; topics have", res.kind)
	}
}

// alterTopic changes one topic.
func (a *alterations) alterTopic(ctx context.Context, name string, change metadata.ConfigChange) (int16, error) {
	topic := a.s.topic(name)
	switch {
	case topic == nil:
		return codeUnknownTopicOrPartition, fmt.Errorf("%w %q", metadata.ErrUnknownTopic, clip(name))
	case topic.Internal || topic.Name == topicConsumerOffsets:
		return codePolicyViolation, fmt.Errorf("topic %s holds the brokers' own records, and its configuration stays as it is", topic.Name)
	}
	if a.validateOnly {
		_, err := change(topic.Config)
		return metadataCode(err), err
	}
	ctx, cancel := changeContext(ctx, a.deadline)
	defer cancel()
	var before, after metadata.TopicConfig
	err := a.s.cfg.Metadata.AlterTopicConfig(ctx, topic.Name, func(c metadata.TopicConfig) (metadata.TopicConfig, error) {
		var err error
		before = c
		after, err = change(c)
		return after, err
	})
	if err != nil {
		return a.s.metadataFailed(topic.Name, err), err
	}
	if after != before {
		a.s.log.Info("changed a topic's configuration", "topic", topic.Name, "changes", configChanges(before, after))
	}
	if !sameConfig(after, topic.Config) {
		a.changed = append(a.changed, topic)
	}
	return codeNone, nil
}

// configChanges says in what two configurations differ.
func configChanges(before, after metadata.TopicConfig) []string {
	var changes []string
	for _, t := range topicSettings {
		if was, is := t.get(before), t.get(after); was != is {
			changes = append(changes, fmt.Sprintf("%s: %s -> %s", t.name, was, is))
		}
	}
	return changes
}

// await waits until the server acts on the changes, so that the client that asked for them sees them. A change that is slow to arrive is made all the same.
func (a *alterations) await(ctx context.Context) {
	for _, was := range a.changed {
		a.s.awaitSnapshot(ctx, time.Until(a.deadline), func(snap *metadata.Snapshot) bool {
			now := snap.Topics[was.Name]
			return now == nil || now.ID != was.ID || !sameConfig(now.Config, was.Config)
		})
	}
}
