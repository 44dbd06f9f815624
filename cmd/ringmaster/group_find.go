// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// stateDead is the state of a group that does not exist, in answers that have no error for that.
const stateDead = "Dead"

// findGroup describes a group: one of the classic protocol, or one of KIP-848, for which there is a request of its own. One of the two is nil.
func (c *client) findGroup(ctx context.Context, what, name string) (*kadm.DescribedGroup, *kadm.DescribedConsumerGroup, error) {
	groups, err := c.adm.DescribeGroups(ctx, name)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil, c.groupError(what, name, err)
	}
	switch g, ok := groups[name]; {
	case !ok, errors.Is(g.Err, kerr.GroupIDNotFound), g.Err == nil && g.State == stateDead:
		consumer, err := c.findConsumerGroup(ctx, what, name)
		return nil, consumer, err
	case g.Err != nil:
		return nil, nil, c.groupError(what, name, g.Err)
	default:
		return &g, nil, nil
	}
}

// findConsumerGroup describes a group of KIP-848. A broker without such groups has no request for them either.
func (c *client) findConsumerGroup(ctx context.Context, what, name string) (*kadm.DescribedConsumerGroup, error) {
	versions, err := c.adm.ApiVersions(ctx)
	if err != nil {
		return nil, c.explain(what, err, "")
	}
	known := false
	versions.Each(func(v kadm.BrokerApiVersions) {
		_, has := v.KeyMaxVersion(int16(kmsg.ConsumerGroupDescribe))
		known = known || has
	})
	if !known {
		return nil, errNoGroup(name)
	}
	groups, err := c.adm.DescribeConsumerGroups(ctx, name)
	if err != nil {
		return nil, c.groupError(what, name, err)
	}
	switch g, ok := groups[name]; {
	case !ok, g.Err == nil && g.State == stateDead:
		return nil, errNoGroup(name)
	case g.Err != nil:
		return nil, c.groupError(what, name, g.Err)
	default:
		return &g, nil
	}
}

// memberName is what people know a member by.
func memberName(instance *string, id string) string {
	if instance != nil && *instance != "" {
		return *instance
	}
	return id
}
