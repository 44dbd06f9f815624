// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// goodTopic is a topic's value.
const goodTopic = `{"id":"fJ2dPq3WTf6Yy9fXGHcBtA","partitions":2,"config":{"retention.ms":1,"retention.bytes":-1,"cleanup.policy":"delete","max.message.bytes":2000}}`

func TestNonsenseInRedisIsNamed(t *testing.T) {
	server := start(t)
	for name, c := range map[string]struct {
		command []string
		want    string
	}{
		"a topic that is no JSON":                  {[]string{"hset", "topics", "orders", "nonsense"}, "topics: field orders"},
		"a topic without an id":                    {[]string{"hset", "topics", "orders", `{"partitions":2}`}, "topics: field orders"},
		"a topic with no partitions":               {[]string{"hset", "topics", "orders", strings.Replace(goodTopic, ":2,", ":0,", 1)}, "topics: field orders"},
		"a topic with billions of them":            {[]string{"hset", "topics", "orders", strings.Replace(goodTopic, ":2,", ":4000000000,", 1)}, "topics: field orders"},
		"a topic with an illegal name":             {[]string{"hset", "topics", "a/b", goodTopic}, "topics: field a/b"},
		"a topic with an illegal config":           {[]string{"hset", "topics", "orders", strings.Replace(goodTopic, "delete", "burn", 1)}, "cleanup.policy"},
		"leaders that are no JSON":                 {[]string{"hset", "leaders", "__consumer_offsets", "["}, "leaders: field __consumer_offsets"},
		"leaders of more partitions":               {[]string{"hset", "leaders", "__consumer_offsets", `{"leaders":[1,1,1,1,1],"epochs":[0,0,0,0,0],"since":[0,0,0,0,0]}`}, "5 leaders"},
		"leaders without epochs":                   {[]string{"hset", "leaders", "__consumer_offsets", `{"leaders":[1]}`}, "0 epochs"},
		"a leader below 1":                         {[]string{"hset", "leaders", "__consumer_offsets", `{"leaders":[0],"epochs":[0],"since":[0]}`}, "leader 0"},
		"an epoch that cannot grow":                {[]string{"hset", "leaders", "__consumer_offsets", `{"leaders":[1],"epochs":[2147483647],"since":[0]}`}, "epoch 2147483647"},
		"a broker whose id is no number":           {[]string{"hset", "brokers", "first", ""}, "brokers: a broker's id"},
		"a broker with id 0":                       {[]string{"hset", "brokers", "0", ""}, "brokers: a broker's id"},
		"a registration that is no JSON":           {[]string{"set", "broker:1", "here"}, "broker:1"},
		"a count of controllers that is no number": {[]string{"hset", "counters", "controller", "new"}, "counters"},
		"a floor that is too high":                 {[]string{"hset", "counters", "floor", "9999999999"}, "counters: floor"},
		"a deleted topic without a name":           {[]string{"hset", "deleted", "fJ2dPq3WTf6Yy9fXGHcBtA", "{}"}, "deleted: field fJ2d"},
		"a deleted topic without an id":            {[]string{"hset", "deleted", "x", `{"name":"orders"}`}, "deleted: field x"},
		"topics that are a string":                 {[]string{"set", "topics", "x"}, "topics is a string, not a hash"},
		"a cluster id that is a list":              {[]string{"lpush", "id", "x"}, "id is a list, not a string"},
		"a registration that is a hash":            {[]string{"hset", "broker:1", "x", "x"}, "broker:ID"},
		"a controller's epoch that is empty":       {[]string{"hset", "controller", "epoch", "", "broker", "1", "instance", "other"}, "controller: epoch"},
	} {
		t.Run(name, func(t *testing.T) {
			prefix := "damage" + regexp.MustCompile(`\W`).ReplaceAllString(name, "-")
			good := openMember(t, server.URL(), func(o *Options) { o.Prefix, o.NodeID = prefix, 1 })
			await(t, good.Metadata, "leaders", ledBy(1, 1))
			good.Close()
			command := slices.Clone(c.command)
			command[1] = prefix + ":{cluster}:" + command[1]
			if command[0] != "hset" {
				if _, err := server.CLI("del", command[1]); err != nil {
					t.Fatal(err)
				}
			}
			if out, err := server.CLI(command...); err != nil || strings.Contains(out, "ERR") {
				t.Fatal(out, err)
			}
			_, err := tryOpen(t, server.URL(), func(o *Options) { o.Prefix, o.NodeID, o.Lease = prefix, 1, 200*time.Millisecond })
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), prefix+":{cluster}:") {
				t.Errorf("error %v, want one that names %q and its key", err, c.want)
			}
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
		})
	}
}

// lines collects log lines.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) contains(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), s)
}

func TestABrokerLeadsOnWhileTopicsAreDamaged(t *testing.T) {
	server := start(t)
	var log lines
	one := openMember(t, server.URL(), func(o *Options) {
		node(1)(o)
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	create(t, one.Metadata, "orders", 2)
	if out, err := server.CLI("hset", "test:{cluster}:topics", "bad", "nonsense"); err != nil || out != "1" {
		t.Fatal(out, err)
	}
	if out, err := server.CLI("hincrby", "test:{cluster}:counters", "version", "1"); err != nil {
		t.Fatal(out, err)
	}
	waitFor(t, "a line about the damage", func() bool { return log.contains("field bad") })
	end := time.Now().Add(2 * testLease)
	for time.Now().Before(end) {
		if !ledBy(2, 1)(one.Snapshot()) {
			t.Fatalf("the broker no longer leads: %v", show(one.Snapshot()))
		}
		time.Sleep(10 * time.Millisecond)
	}
	if out, err := server.CLI("hdel", "test:{cluster}:topics", "bad"); err != nil || out != "1" {
		t.Fatal(out, err)
	}
	create(t, one.Metadata, "clicks", 1)
}

func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s has not come", what)
		}
	}
}

// documentedKeys are the keys and their types in the tables of docs/redis*.md.
func documentedKeys(t *testing.T) map[string]string {
	t.Helper()
	pages, err := filepath.Glob("../../../docs/redis*.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `PREFIX:\\{cluster\\}:([^`]+)` \\| (\\w+) \\|")
	kinds := map[string]string{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range row.FindAllStringSubmatch(string(text), -1) {
			kinds[match[1]] = match[2]
		}
	}
	return kinds
}

// The documentation names the keys that there are, and no others.
func TestTheKeysAreTheDocumentedOnes(t *testing.T) {
	server := start(t)
	one := openMember(t, server.URL(), node(1))
	create(t, one.Metadata, "orders", 2)
	create(t, one.Metadata, "clicks", 2)
	if _, err := one.NextPartition(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	if err := one.DeleteTopic(t.Context(), "clicks"); err != nil {
		t.Fatal(err)
	}
	out, err := server.CLI("--scan")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{}
	for _, key := range strings.Fields(out) {
		kind, err := server.CLI("type", key)
		if err != nil {
			t.Fatal(err)
		}
		name, found := strings.CutPrefix(key, "test:{cluster}:")
		if !found {
			t.Errorf("key %s", key)
		}
		kinds[strings.Replace(name, "broker:1", "broker:ID", 1)] = kind
	}
	documented := documentedKeys(t)
	if !maps.Equal(kinds, documented) {
		t.Errorf("the keys are %v, and documented are %v", kinds, documented)
	}
}

func FuzzDecodeTopic(f *testing.F) {
	f.Add("orders", goodTopic)
	f.Add("a/b", `{"id":5}`)
	f.Fuzz(func(t *testing.T, name, raw string) {
		topic, err := decodeTopic(name, raw)
		if err != nil {
			return
		}
		again, err := topic.encode()
		if err != nil {
			t.Fatal(err)
		}
		same, err := decodeTopic(name, again)
		if err != nil {
			t.Fatalf("%q was read, and what it is written as is not: %v", raw, err)
		}
		if same.config != topic.config || same.id != topic.id || same.partitions != topic.partitions {
			t.Errorf("%+v and %+v", topic, same)
		}
	})
}

func FuzzDecodeLeaders(f *testing.F) {
	f.Add(`{"leaders":[1,2],"epochs":[0,3],"since":[1,2]}`)
	f.Add(`{"leaders":[1],"epochs":[],"since":[1]}`)
	f.Fuzz(func(t *testing.T, raw string) {
		l, err := decodeLeaders(raw, 3)
		if err != nil {
			return
		}
		topic := &topic{partitions: 3, led: l}
		if s := topic.snapshot("orders", func(int32) bool { return true }); len(s.Leaders) != 3 || s.LeaderEpoch(2) < 0 {
			t.Errorf("%+v", s)
		}
		next, _, _ := l.follow([]int32{4, 5, 6}, nil, &state{})
		for p, epoch := range next.Epochs {
			if p < len(l.Epochs) && epoch < l.Epochs[p] {
				t.Errorf("partition %d: epoch %d after %d", p, epoch, l.Epochs[p])
			}
		}
	})
}
