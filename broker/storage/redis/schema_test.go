// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmaster-dev/ringmaster/broker/redisconn"
	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
	"github.com/ringmaster-dev/ringmaster/test/testredis"
)

// documented are the first two columns of a table of docs/redis.md.
func documented(t *testing.T, table string) map[string]string {
	t.Helper()
	doc, err := os.ReadFile("../../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(doc), "<!-- "+table+": begin -->")
	text, _, ok := strings.Cut(text, "<!-- "+table+": end -->")
	if !ok {
		t.Fatalf("docs/redis.md has no %s", table)
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]+) \\|").FindAllStringSubmatch(text, -1) {
		rows[m[1]] = m[2]
	}
	return rows
}

func TestTheKeysAreAsDocumented(t *testing.T) {
	ctx := context.Background()
	s := testredis.Start(t)
	e := openEngine(t, Options{Conn: redisconn.Options{URL: s.URL()}})
	l, err := e.Open(ctx, storage.Partition{Topic: "TOPIC", Partition: 0}, 4, storage.Config{Compact: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range int32(3) {
		b := enginetest.Batch{First: 1000, Producer: 9, Sequence: i, Records: []enginetest.Record{{Key: []byte("k"), Value: make([]byte, 70_000)}}}
		if _, err := l.Append(ctx, b.Encode(), storage.Synced); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Compact(time.Now()); err != nil {
		t.Fatal(err)
	}
	ask := func(args ...string) []string {
		t.Helper()
		out, err := s.CLI(args...)
		if err != nil {
			t.Fatal(out, err)
		}
		list := strings.Split(out, "\n")
		slices.Sort(list)
		return list
	}
	keys := map[string]string{}
	for _, key := range ask("keys", "*") {
		keys[strings.Replace(key, "/0}", "/PARTITION}", 1)] = ask("type", key)[0]
	}
	if diff := cmp.Diff(documented(t, "keys of a log"), keys); diff != "" {
		t.Errorf("keys (-documented +there):\n%s", diff)
	}
	var fields []string
	for field := range documented(t, "fields of meta") {
		fields = append(fields, field)
	}
	slices.Sort(fields)
	if diff := cmp.Diff(fields, ask("hkeys", "ringmaster:{t/TOPIC/0}:meta")); diff != "" {
		t.Errorf("fields of meta (-documented +there):\n%s", diff)
	}
	for what, c := range map[string]struct {
		args []string
		want string
	}{
		"the partitions":     {[]string{"smembers", "ringmaster:logs"}, `TOPIC/0`},
		"the id":             {[]string{"xrange", "ringmaster:{t/TOPIC/0}:log", "3", "+", "count", "1"}, `(?s).*3-0.*b.*`},
		"the index":          {[]string{"zrange", "ringmaster:{t/TOPIC/0}:times", "0", "-1"}, `\d{20} \d+ 1000`},
		"the producers":      {[]string{"hget", "ringmaster:{t/TOPIC/0}:producers", "9"}, `0 \d+ 0:0:1 1:1:1 2:2:1`},
		"the owner":          {[]string{"hget", "ringmaster:{t/TOPIC/0}:meta", "owner"}, `broker/[A-Z2-7]+/\d+`},
		"the epochs":         {[]string{"hget", "ringmaster:{t/TOPIC/0}:meta", "epochs"}, `4:0`},
		"what was compacted": {[]string{"hget", "ringmaster:{t/TOPIC/0}:meta", "compacted"}, `0 0 \d+ 3:\d+`},
	} {
		out, err := s.CLI(c.args...)
		if err != nil || !regexp.MustCompile(`^`+c.want+`$`).MatchString(out) {
			t.Errorf("%s: %.300q, %v; want %s", what, out, err, c.want)
		}
	}
}
