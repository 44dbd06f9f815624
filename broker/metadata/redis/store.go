// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// keys are the names of the keys.
type keys struct {
	prefix                                                                            string
	id, counters, brokers, controller, topics, leaders, deleted, partitioner, changed string
}

func newKeys(prefix string) keys {
	p := prefix + ":{cluster}:"
	return keys{
		prefix: p, id: p + "id", counters: p + "counters", brokers: p + "brokers", controller: p + "controller", topics: p + "topics", leaders: p + "leaders",
		deleted: p + "deleted", partitioner: p + "partitioner", changed: p + "changed",
	}
}

// all are the keys of every script, in its order.
func (k *keys) all() []string {
	return []string{k.id, k.counters, k.brokers, k.controller, k.topics, k.leaders, k.deleted, k.partitioner}
}

// store calls the scripts for one cluster.
type store struct {
	client rueidis.Client
	keys   keys
	// timeout is how long a script may take.
	timeout time.Duration
	// cluster is the cluster's id. Before join it is the proposal for it.
	cluster string
}

// answer is what a script answered.
type answer struct {
	status string
	values []rueidis.RedisMessage
}

// call runs a script. Where the Redis holds another cluster, or it answers with an error or not at all, the error is ErrUnavailable, or ErrStorage where it
// has no room; then it is not known whether anything was changed.
func (s *store) call(ctx context.Context, script *rueidis.Lua, args ...string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	values, err := script.Exec(ctx, s.client, s.keys.all(), append([]string{s.cluster, s.keys.prefix}, args...)).ToArray()
	if err != nil {
		return answer{}, s.failed(ctx, err)
	}
	a := answer{}
	if len(values) > 0 {
		a.status, err = values[0].ToString()
		a.values = values[1:]
	}
	switch {
	case err != nil || a.status == "":
		return answer{}, fmt.Errorf("%w: Redis answered a script with nonsense", metadata.ErrUnavailable)
	case a.status == statusCluster:
		return answer{}, s.otherCluster(a)
	}
	return a, nil
}

// errOtherCluster says that the Redis does not hold the cluster that this broker belongs to.
var errOtherCluster = errors.New("not this broker's cluster")

func (s *store) otherCluster(a answer) error {
	has := "no cluster"
	if len(a.values) > 0 {
		if id, err := a.values[0].ToString(); err == nil && id != "" {
			has = fmt.Sprintf("cluster %q", id)
		}
	}
	return fmt.Errorf("%w: %w: Redis has %s at key %s, and this broker belongs to %q; restore its data, or restart the broker to make it part of what is there",
		metadata.ErrUnavailable, errOtherCluster, has, s.keys.id, s.cluster)
}

// failed translates an error of Redis or of the way to it.
func (s *store) failed(ctx context.Context, err error) error {
	reply, isReply := rueidis.IsRedisErr(err)
	switch {
	case !isReply:
		return fmt.Errorf("%w: ask Redis: %w", metadata.ErrUnavailable, err)
	case strings.HasPrefix(reply.Error(), "OOM ") || strings.HasPrefix(reply.Error(), "MISCONF "):
		return fmt.Errorf("%w: Redis refuses: %w", metadata.ErrStorage, err)
	case strings.HasPrefix(reply.Error(), "WRONGTYPE "):
		return fmt.Errorf("%w: %w: %w", metadata.ErrUnavailable, errDamaged, s.wrongType(ctx, err))
	case strings.Contains(reply.Error(), "not an integer"):
		return fmt.Errorf("%w: %w: key %s or %s: %w", metadata.ErrUnavailable, errDamaged, s.keys.counters, s.keys.partitioner, err)
	default:
		return fmt.Errorf("%w: Redis refuses a script on the keys %s*: %w", metadata.ErrUnavailable, s.keys.prefix, err)
	}
}

// wrongType names the key that is of another type than it must be.
func (s *store) wrongType(ctx context.Context, err error) error {
	for i, key := range s.keys.all() {
		want := "hash"
		if i == 0 {
			want = "string"
		}
		if is, err := s.client.Do(ctx, s.client.B().Type().Key(key).Build()).ToString(); err == nil && is != want && is != "none" {
			return fmt.Errorf("key %s is a %s, not a %s", key, is, want)
		}
	}
	return fmt.Errorf("a key %sbroker:ID: %w", s.keys.prefix, err)
}

// maxValue is the largest value of one topic that is taken, in bytes: far more than one of 10000 partitions needs.
const maxValue = 1 << 20

// topicValue reads a topic's value; empty where there is none.
func (s *store) topicValue(ctx context.Context, name string) (string, error) {
	a, err := s.call(ctx, look, name, strconv.Itoa(maxValue))
	if err != nil {
		return "", err
	}
	if a.status == statusOK && len(a.values) == 1 {
		if raw, err := a.values[0].ToString(); err == nil {
			return raw, nil
		}
	}
	return "", fmt.Errorf("%w: %w: key %s, field %s has more than %d bytes", metadata.ErrUnavailable, errDamaged, s.keys.topics, metadata.Clip(name), maxValue)
}
