// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// maxState is how many bytes all of a cluster's metadata may have.
const maxState = 64 << 20

// state is what Redis holds of a cluster. It is never changed once it is made.
type state struct {
	// fresh says that the reading broker was not registered before.
	fresh bool
	// now is Redis' time.
	now              time.Time
	version, members int64
	floor            int32
	controller       controller
	// brokers are sorted by id.
	brokers []broker
	topics  map[string]*topic
	// deleted are sorted by topic and id.
	deleted []gone
}

// controller is the broker that shares partitions out.
type controller struct {
	broker   int32
	instance string
	epoch    int64
	// left is how long its lease lasts.
	left time.Duration
}

// registration is what a broker says of itself.
type registration struct {
	Host     string `json:"host"`
	Port     int32  `json:"port"`
	Instance string `json:"instance"`
	Since    int64  `json:"since"`
}

// broker is a broker that registered.
type broker struct {
	id int32
	registration
	// takenIn is the instance that the controller has taken in under this id; empty for none.
	takenIn string
	// live says that it is registered, and left how long that lasts.
	live bool
	left time.Duration
}

// topic is a topic as it is stored.
type topic struct {
	// raw is its value in topics, and rawLeaders in leaders.
	raw, rawLeaders string
	id              metadata.TopicID
	partitions      int32
	internal        bool
	config          metadata.TopicConfig
	led             leaders
}

// The values' JSON.
type (
	topicJSON struct {
		ID         string                `json:"id"`
		Partitions int32                 `json:"partitions"`
		Internal   bool                  `json:"internal,omitempty"`
		Config     metadata.StoredConfig `json:"config"`
	}
	// leaders are of the same length, by partition: the leader, its epoch, and since when it leads. There may be fewer than partitions.
	leaders struct {
		Leaders []int32 `json:"leaders"`
		Epochs  []int32 `json:"epochs"`
		Since   []int64 `json:"since"`
	}
	goneJSON struct {
		Name     string `json:"name"`
		Instance string `json:"instance"`
	}
)

// gone is a deleted topic, and the broker process that removes its records.
type gone struct {
	metadata.Incarnation
	instance string
}

// find returns a broker.
func (s *state) find(id int32) (broker, bool) {
	i, found := slices.BinarySearchFunc(s.brokers, id, func(b broker, id int32) int { return cmp.Compare(b.id, id) })
	if !found {
		return broker{}, false
	}
	return s.brokers[i], true
}

// leads says whether a broker's process may lead the partitions that are given to its id: it is registered, and the controller knows it.
func (b *broker) leads() bool { return b.live && b.takenIn == b.Instance }

// errDamaged says that Redis holds what no broker wrote.
var errDamaged = errors.New("the metadata in Redis are damaged")

// reader reads an answer's values, and keeps the first error, which names the key.
type reader struct {
	keys *keys
	err  error
}

func (r *reader) fail(key, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: key %s: %s", errDamaged, key, fmt.Sprintf(format, args...))
	}
}

// integer reads a number from 0 to most.
func (r *reader) integer(key, what, text string, most int64) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > most {
		r.fail(key, "%s is %q, not a number from 0 to %d", what, metadata.Clip(text), most)
		return 0
	}
	return n
}

// flat reads a list of strings, of n columns.
func (r *reader) flat(m rueidis.RedisMessage, n int) []string {
	values, err := m.ToArray()
	out := make([]string, 0, len(values))
	for i := range values {
		text, textErr := values[i].ToString()
		if textErr != nil { // integers and nothing at all
			number, numberErr := values[i].ToInt64()
			text = strconv.FormatInt(number, 10)
			err = errors.Join(err, numberErr)
		}
		out = append(out, text)
	}
	if err != nil || len(out)%n != 0 {
		r.fail(r.keys.prefix+"*", "Redis answered a script with nonsense")
		return nil
	}
	return out
}

// readState reads the answer of renew. Where the version is prev's, the topics are too. An error names the key that is damaged.
func readState(k *keys, a answer, prev *state) (*state, error) {
	r := &reader{keys: k}
	if len(a.values) < 7 {
		return nil, fmt.Errorf("%w: Redis answered a script with nonsense", errDamaged)
	}
	s := &state{}
	var head []string
	for _, m := range a.values[:5] {
		text, err := m.ToString()
		if err != nil {
			var n int64
			if n, err = m.ToInt64(); err == nil {
				text = strconv.FormatInt(n, 10)
			}
		}
		head = append(head, text)
	}
	s.fresh = head[0] == "1"
	s.now = time.UnixMilli(r.integer(k.counters, "the time", head[1], math.MaxInt64))
	s.version = r.integer(k.counters, "version", head[2], math.MaxInt64)
	s.members = r.integer(k.counters, "members", head[3], math.MaxInt64)
	s.floor = int32(r.integer(k.counters, "floor", head[4], math.MaxInt32))
	if c := r.flat(a.values[5], 4); len(c) == 4 {
		s.controller = controller{
			broker: int32(r.integer(k.controller, "broker", c[0], math.MaxInt32)), instance: c[1], epoch: r.integer(k.controller, "epoch", c[2], math.MaxInt64),
			left: r.lease(c[3]),
		}
	}
	r.brokers(s, r.flat(a.values[6], 4))
	switch {
	case len(a.values) >= 10:
		r.topics(s, r.flat(a.values[7], 2), r.flat(a.values[8], 2), prev)
		r.deleted(s, r.flat(a.values[9], 2))
	case prev != nil && prev.version == s.version:
		s.topics, s.deleted = prev.topics, prev.deleted
	default:
		r.fail(k.counters, "Redis left the topics out")
	}
	return s, r.err
}

// lease reads how many milliseconds a key lasts; one that has no end, which no broker wrote, for the longest.
func (r *reader) lease(text string) time.Duration {
	ms, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil || ms < -1:
		return 0
	case ms == -1 || ms > maxLease.Milliseconds():
		return maxLease
	}
	return time.Duration(ms) * time.Millisecond
}

func (r *reader) brokers(s *state, list []string) {
	for i := 0; i+3 < len(list); i += 4 {
		b := broker{id: int32(r.integer(r.keys.brokers, "a broker's id", list[i], math.MaxInt32)), takenIn: list[i+1], left: r.lease(list[i+3])}
		if b.id == 0 {
			r.fail(r.keys.brokers, "a broker's id is 0")
		}
		if raw := list[i+2]; raw != "" {
			b.live = true
			if err := json.Unmarshal([]byte(raw), &b.registration); err != nil || b.Host == "" || b.Port < 1 || b.Port > 65535 || b.Instance == "" {
				r.fail(r.keys.broker(b.id), "%q is no registration of a broker", metadata.Clip(raw))
			}
		}
		s.brokers = append(s.brokers, b)
	}
	slices.SortFunc(s.brokers, func(a, b broker) int { return cmp.Compare(a.id, b.id) })
}

func (k *keys) broker(id int32) string { return k.prefix + "broker:" + strconv.Itoa(int(id)) }

// topics reads topics and their leaders. What is as in prev is not read again.
func (r *reader) topics(s *state, list, led []string, prev *state) {
	s.topics = make(map[string]*topic, len(list)/2)
	leadersOf := make(map[string]string, len(led)/2)
	for i := 0; i+1 < len(led); i += 2 {
		leadersOf[led[i]] = led[i+1]
	}
	for i := 0; i+1 < len(list); i += 2 {
		name, raw := list[i], list[i+1]
		if prev != nil {
			if old := prev.topics[name]; old != nil && old.raw == raw && old.rawLeaders == leadersOf[name] {
				s.topics[name] = old
				continue
			}
		}
		t, err := decodeTopic(name, raw)
		if err != nil {
			r.fail(r.keys.topics, "field %s: %v", metadata.Clip(name), err)
			return
		}
		t.rawLeaders = leadersOf[name]
		if t.led, err = decodeLeaders(t.rawLeaders, t.partitions); err != nil {
			r.fail(r.keys.leaders, "field %s: %v", metadata.Clip(name), err)
			return
		}
		s.topics[name] = t
	}
}

// decodeTopic reads a topic's value, and checks every rule that CreateTopic keeps.
func decodeTopic(name, raw string) (*topic, error) {
	var j topicJSON
	if err := json.Unmarshal([]byte(raw), &j); err != nil {
		return nil, fmt.Errorf("%q: %w", metadata.Clip(raw), err)
	}
	id, err := metadata.DecodeID(j.ID)
	if err != nil {
		return nil, err
	}
	config, err := j.Config.Decode()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(metadata.CheckName(name), metadata.CheckPartitions(name, j.Partitions), metadata.CheckConfig(name, config)); err != nil {
		return nil, err
	}
	return &topic{raw: raw, id: id, partitions: j.Partitions, internal: j.Internal, config: config}, nil
}

// encode writes a topic's value.
func (t *topic) encode() (string, error) {
	raw, err := json.Marshal(topicJSON{ID: metadata.EncodeID(t.id), Partitions: t.partitions, Internal: t.internal, Config: metadata.EncodeConfig(t.config)})
	return string(raw), err
}

// decodeLeaders reads the leaders of a topic of so many partitions; none where raw is empty.
func decodeLeaders(raw string, partitions int32) (leaders, error) {
	var l leaders
	if raw == "" {
		return l, nil
	}
	if len(raw) > maxValue {
		return l, fmt.Errorf("it has %d bytes", len(raw))
	}
	if err := json.Unmarshal([]byte(raw), &l); err != nil {
		return leaders{}, fmt.Errorf("%q: %w", metadata.Clip(raw), err)
	}
	if n := len(l.Leaders); n > int(partitions) || len(l.Epochs) != n || len(l.Since) != n {
		return leaders{}, fmt.Errorf("there are %d leaders, %d epochs and %d times for %d partitions", n, len(l.Epochs), len(l.Since), partitions)
	}
	for p, leader := range l.Leaders {
		if leader < 1 || l.Epochs[p] < 0 || l.Epochs[p] == math.MaxInt32 || l.Since[p] < 0 {
			return leaders{}, fmt.Errorf("partition %d has leader %d of epoch %d since %d", p, leader, l.Epochs[p], l.Since[p])
		}
	}
	return l, nil
}

func (r *reader) deleted(s *state, list []string) {
	for i := 0; i+1 < len(list); i += 2 {
		id, err := metadata.DecodeID(list[i])
		var j goneJSON
		err = errors.Join(err, json.Unmarshal([]byte(list[i+1]), &j))
		if err := errors.Join(err, metadata.CheckName(j.Name)); err != nil {
			r.fail(r.keys.deleted, "field %s: %v", metadata.Clip(list[i]), err)
			return
		}
		s.deleted = append(s.deleted, gone{Incarnation: metadata.Incarnation{Topic: j.Name, ID: id}, instance: j.Instance})
	}
	slices.SortFunc(s.deleted, func(a, b gone) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), slices.Compare(a.ID[:], b.ID[:]))
	})
}
