// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// IncrementalAlterConfigs, v0 to v1 (KIP-339).
//
//   - v1 is flexible.
//   - An entry is set, brought back to its default, or, where it is a list, gets or loses words. What is not named stays as it is.
//   - Topics can be changed; see AlterConfigs for brokers.

// incrementalAlterConfigs changes entries of the configurations of topics.
func (s *Server) incrementalAlterConfigs(ctx context.Context, r *request) kmsg.Response {
	req := bodyOf[*kmsg.IncrementalAlterConfigsRequest](r)
	resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
	resp.Version = r.version
	a := s.newAlterations(req.ValidateOnly)
	for i := range req.Resources {
		a.named[configResource{req.Resources[i].ResourceType, req.Resources[i].ResourceName}]++
	}
	for i := range req.Resources {
		in, out := &req.Resources[i], kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = in.ResourceType, in.ResourceName
		err := checkOps(in.Configs)
		code := codeInvalidRequest
		if err == nil {
			code, err = a.alter(ctx, configResource{in.ResourceType, in.ResourceName}, func(c metadata.TopicConfig) (metadata.TopicConfig, error) {
				return applyOps(c, in.Configs)
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

// checkOps refuses what could be applied to no topic's configuration.
func checkOps(entries []kmsg.IncrementalAlterConfigsRequestResourceConfig) error {
	named := make(map[string]bool, len(entries))
	for _, e := range entries {
		switch {
		case !firstNamed(named, e.Name):
			return fmt.Errorf("the request names %s more than once", clip(e.Name))
		case e.Op < kmsg.IncrementalAlterConfigOpSet || e.Op > kmsg.IncrementalAlterConfigOpSubtract:
			return fmt.Errorf("%s: operation %d is unknown", clip(e.Name), e.Op)
		case e.Value == nil && e.Op != kmsg.IncrementalAlterConfigOpDelete:
			return fmt.Errorf("%s has no value; delete it for its default", clip(e.Name))
		}
	}
	return nil
}

// applyOps makes a configuration of another one and changes that checkOps let through.
func applyOps(c metadata.TopicConfig, entries []kmsg.IncrementalAlterConfigsRequestResourceConfig) (metadata.TopicConfig, error) {
	for _, e := range entries {
		var err error
		switch e.Op {
		case kmsg.IncrementalAlterConfigOpDelete:
			err = resetTopicConfig(&c, e.Name)
		case kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract:
			err = changeListConfig(&c, e.Name, *e.Value, e.Op == kmsg.IncrementalAlterConfigOpAppend)
		default:
			err = setTopicConfig(&c, e.Name, *e.Value)
		}
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

// changeListConfig adds words to a list, or takes them out of it. A word that is there already, or is not there, changes nothing, as in Kafka.
func changeListConfig(c *metadata.TopicConfig, name, value string, add bool) error {
	t := findSetting(name)
	if t == nil {
		if _, err := findFact(name); err != nil {
			return err
		}
	}
	if t == nil || t.kind != kmsg.ConfigTypeList {
		return fmt.Errorf("%w: %s is not a list; set it to its new value", metadata.ErrInvalidConfig, name)
	}
	words := strings.Split(t.get(*c), ",")
	for word := range strings.SplitSeq(value, ",") {
		word = strings.TrimSpace(word)
		words = slices.DeleteFunc(words, func(w string) bool { return w == word })
		if add {
			words = append(words, word)
		}
	}
	return t.set(c, strings.Join(words, ","))
}
