// SPDX-License-Identifier: Apache-2.0

package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

func mustOpen(t *testing.T, dir string, opts Options) *Metadata {
	t.Helper()
	m, err := Open(dir, opts)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return m
}

func mustCreate(t *testing.T, m *Metadata, name string, partitions int32) {
	t.Helper()
	if err := m.CreateTopic(t.Context(), metadata.NewTopic{Name: name, Partitions: partitions}); err != nil {
		t.Fatalf("CreateTopic(%q): %v", name, err)
	}
}

func TestFirstStartMakesTheClusterAndTheOffsetsTopic(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	m := mustOpen(t, dir, Options{Host: "broker", Port: 9092, AutoCreateTopics: true})
	s := m.Snapshot()
	if s.ClusterID == "" || !s.AutoCreateTopics || s.DefaultPartitions != 1 {
		t.Errorf("snapshot = %+v", s)
	}
	if want := []metadata.Broker{{ID: 1, Host: "broker", Port: 9092}}; !cmp.Equal(s.Brokers, want) {
		t.Errorf("brokers = %v, want %v", s.Brokers, want)
	}
	offsets := s.Topics[v1alpha1.TopicConsumerOffsets]
	if offsets == nil || !offsets.Internal || len(offsets.Leaders) != 16 || offsets.Leaders[15] != 1 {
		t.Fatalf("offsets topic = %+v", offsets)
	}
	if offsets.Config.RetentionTime >= 0 {
		t.Errorf("committed offsets are kept for %v, want for ever", offsets.Config.RetentionTime)
	}

	again := mustOpen(t, dir, Options{NodeID: 7, OffsetsPartitions: 4}).Snapshot()
	if again.ClusterID != s.ClusterID {
		t.Errorf("cluster id changed from %q to %q", s.ClusterID, again.ClusterID)
	}
	if got := again.Topics[v1alpha1.TopicConsumerOffsets]; got.ID != offsets.ID || len(got.Leaders) != 16 || got.Leaders[0] != 7 {
		t.Errorf("offsets topic after a restart = %+v", got)
	}
	if other := mustOpen(t, t.TempDir(), Options{}).Snapshot(); other.ClusterID == s.ClusterID {
		t.Errorf("two clusters have the id %q", other.ClusterID)
	}
}

func TestTopicsSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	m := mustOpen(t, dir, Options{DefaultPartitions: 3})
	config := metadata.TopicConfig{
		RetentionTime: time.Hour, RetentionBytes: 1 << 20, CleanupPolicy: "delete,compact", MaxMessageBytes: 2048, TombstoneRetention: time.Minute, FlushOS: true,
		SegmentBytes: 14, SegmentTime: time.Millisecond, LogAppendTime: true,
	}
	if err := m.CreateTopic(t.Context(), metadata.NewTopic{Name: "orders", Partitions: 12, Config: config}); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, m, "Zeta.1_x-y", -1)
	if err := m.CreatePartitions(t.Context(), "orders", 13); err != nil {
		t.Fatal(err)
	}
	want := m.Snapshot()
	if n := len(want.Topics["orders"].Leaders); n != 13 {
		t.Errorf("orders has %d partitions, want 13", n)
	}
	if n := len(want.Topics["Zeta.1_x-y"].Leaders); n != 3 {
		t.Errorf("a topic of default size has %d partitions, want 3", n)
	}
	if got := want.Topics["orders"].Config; got != config {
		t.Errorf("config = %+v, want %+v", got, config)
	}
	if diff := cmp.Diff(want, mustOpen(t, dir, Options{DefaultPartitions: 3}).Snapshot()); diff != "" {
		t.Errorf("after a restart (-before +after):\n%s", diff)
	}
}

func TestAConfigurationIsChanged(t *testing.T) {
	dir := t.TempDir()
	m := mustOpen(t, dir, Options{})
	mustCreate(t, m, "orders", 1)
	changed := m.Changed()
	first := m.Snapshot()
	err := m.AlterTopicConfig(t.Context(), "orders", func(c metadata.TopicConfig) (metadata.TopicConfig, error) {
		if c != metadata.DefaultTopicConfig {
			t.Errorf("the change is given %+v", c)
		}
		c.RetentionTime, c.FlushOS, c.TombstoneRetention = time.Minute, true, 0
		return c, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := metadata.DefaultTopicConfig
	want.RetentionTime, want.FlushOS, want.TombstoneRetention = time.Minute, true, 0
	if got := m.Snapshot().Topics["orders"].Config; got != want {
		t.Errorf("config = %+v, want %+v", got, want)
	}
	if got := first.Topics["orders"].Config; got != metadata.DefaultTopicConfig {
		t.Errorf("the snapshot before has changed: %+v", got)
	}
	select {
	case <-changed:
	default:
		t.Error("nobody was told of the change")
	}
	if diff := cmp.Diff(m.Snapshot(), mustOpen(t, dir, Options{}).Snapshot()); diff != "" {
		t.Errorf("after a restart (-before +after):\n%s", diff)
	}
}

func TestChangesOfOneConfigurationAreAllKept(t *testing.T) {
	m := mustOpen(t, t.TempDir(), Options{})
	mustCreate(t, m, "orders", 1)
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			err := m.AlterTopicConfig(t.Context(), "orders", func(c metadata.TopicConfig) (metadata.TopicConfig, error) {
				c.MaxMessageBytes++
				return c, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if got, want := m.Snapshot().Topics["orders"].Config.MaxMessageBytes, metadata.DefaultTopicConfig.MaxMessageBytes+20; got != want {
		t.Errorf("20 changes of one left %d, want %d", got, want)
	}
}

func TestAFileOfABrokerThatKnewLessIsRead(t *testing.T) {
	dir := t.TempDir()
	raw := `{"version":1,"clusterID":"x","topics":[{"name":"a","id":"AAAAAAAAAAAAAAAAAAAAAA","partitions":1,"config":` +
		`{"retention.ms":1000,"retention.bytes":-1,"cleanup.policy":"delete","max.message.bytes":2000}}]}`
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte(raw), 0o600); err != nil {
		t.Fatal(err)
	}
	want := metadata.TopicConfig{
		RetentionTime: time.Second, RetentionBytes: -1, CleanupPolicy: "delete", MaxMessageBytes: 2000, TombstoneRetention: 24 * time.Hour,
		SegmentBytes: 128 << 20, SegmentTime: 168 * time.Hour,
	}
	if got := mustOpen(t, dir, Options{}).Snapshot().Topics["a"].Config; got != want {
		t.Errorf("config = %+v, want %+v", got, want)
	}
}

func TestRefusals(t *testing.T) {
	create := func(name string, partitions int32, c metadata.TopicConfig) func(context.Context, *Metadata) error {
		return func(ctx context.Context, m *Metadata) error {
			return m.CreateTopic(ctx, metadata.NewTopic{Name: name, Partitions: partitions, Config: c})
		}
	}
	configured := func(f func(*metadata.TopicConfig)) func(context.Context, *Metadata) error {
		c := metadata.DefaultTopicConfig
		f(&c)
		return create("configured", 1, c)
	}
	alter := func(name string, f func(*metadata.TopicConfig) error) func(context.Context, *Metadata) error {
		return func(ctx context.Context, m *Metadata) error {
			return m.AlterTopicConfig(ctx, name, func(c metadata.TopicConfig) (metadata.TopicConfig, error) {
				err := f(&c)
				return c, err
			})
		}
	}
	tests := map[string]struct {
		do   func(context.Context, *Metadata) error
		want error
	}{
		"a change of an unknown topic":          {alter("none", func(*metadata.TopicConfig) error { return nil }), metadata.ErrUnknownTopic},
		"a change of the brokers' own":          {alter(v1alpha1.TopicConsumerOffsets, func(*metadata.TopicConfig) error { return nil }), metadata.ErrDenied},
		"a change to what is illegal":           {alter("orders", func(c *metadata.TopicConfig) error { c.CleanupPolicy = "burn"; return nil }), metadata.ErrInvalidConfig},
		"a change that thinks better of it":     {alter("orders", func(*metadata.TopicConfig) error { return context.Canceled }), context.Canceled},
		"tombstones kept for less than no time": {configured(func(c *metadata.TopicConfig) { c.TombstoneRetention = -1 }), metadata.ErrInvalidConfig},
		"a topic that exists":                   {create("orders", 1, metadata.TopicConfig{}), metadata.ErrTopicExists},
		"an empty name":                         {create("", 1, metadata.TopicConfig{}), metadata.ErrInvalidTopic},
		"a name with a slash":                   {create("a/b", 1, metadata.TopicConfig{}), metadata.ErrInvalidTopic},
		"a name that is a dot":                  {create(".", 1, metadata.TopicConfig{}), metadata.ErrInvalidTopic},
		"a name that is two dots":               {create("..", 1, metadata.TopicConfig{}), metadata.ErrInvalidTopic},
		"a name of 250 characters":              {create(strings.Repeat("x", 250), 1, metadata.TopicConfig{}), metadata.ErrInvalidTopic},
		"a name that ends in a newline":         {create("orders\n", 1, metadata.TopicConfig{}), metadata.ErrInvalidTopic},
		"a name that is not ASCII":              {create("ordérs", 1, metadata.TopicConfig{}), metadata.ErrInvalidTopic},
		"no partitions":                         {create("none", 0, metadata.TopicConfig{}), metadata.ErrInvalidPartitions},
		"minus two partitions":                  {create("none", -2, metadata.TopicConfig{}), metadata.ErrInvalidPartitions},
		"10001 partitions":                      {create("many", 10001, metadata.TopicConfig{}), metadata.ErrInvalidPartitions},
		"an unknown cleanup policy":             {configured(func(c *metadata.TopicConfig) { c.CleanupPolicy = "burn" }), metadata.ErrInvalidConfig},
		"a message size of a byte":              {configured(func(c *metadata.TopicConfig) { c.MaxMessageBytes = 1 }), metadata.ErrInvalidConfig},
		"segments of 13 bytes":                  {configured(func(c *metadata.TopicConfig) { c.SegmentBytes = 13 }), metadata.ErrInvalidConfig},
		"segments of minus one byte":            {configured(func(c *metadata.TopicConfig) { c.SegmentBytes = -1 }), metadata.ErrInvalidConfig},
		"segments of a microsecond":             {configured(func(c *metadata.TopicConfig) { c.SegmentTime = time.Microsecond }), metadata.ErrInvalidConfig},
		"segments of less than no time":         {configured(func(c *metadata.TopicConfig) { c.SegmentTime = -time.Hour }), metadata.ErrInvalidConfig},
		"a cleanup policy twice":                {configured(func(c *metadata.TopicConfig) { c.CleanupPolicy = "delete,delete" }), metadata.ErrInvalidConfig},
		"a retention of minus two bytes":        {configured(func(c *metadata.TopicConfig) { c.RetentionBytes = -2 }), metadata.ErrInvalidConfig},
		"fewer partitions":                      {func(ctx context.Context, m *Metadata) error { return m.CreatePartitions(ctx, "orders", 3) }, metadata.ErrInvalidPartitions},
		"as many partitions as before":          {func(ctx context.Context, m *Metadata) error { return m.CreatePartitions(ctx, "orders", 4) }, metadata.ErrInvalidPartitions},
		"growing beyond 10000 partitions":       {func(ctx context.Context, m *Metadata) error { return m.CreatePartitions(ctx, "orders", 10001) }, metadata.ErrInvalidPartitions},
		"growing a topic that is not there":     {func(ctx context.Context, m *Metadata) error { return m.CreatePartitions(ctx, "none", 2) }, metadata.ErrUnknownTopic},
		"growing an internal topic": {func(ctx context.Context, m *Metadata) error {
			return m.CreatePartitions(ctx, v1alpha1.TopicConsumerOffsets, 99)
		}, metadata.ErrDenied},
		"deleting a topic that is not there": {func(ctx context.Context, m *Metadata) error { return m.DeleteTopic(ctx, "none") }, metadata.ErrUnknownTopic},
		"deleting an internal topic":         {func(ctx context.Context, m *Metadata) error { return m.DeleteTopic(ctx, v1alpha1.TopicConsumerOffsets) }, metadata.ErrDenied},
	}
	dir := t.TempDir()
	m := mustOpen(t, dir, Options{})
	mustCreate(t, m, "orders", 4)
	before, changed := m.Snapshot(), m.Changed()
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if err := tc.do(t.Context(), m); !errors.Is(err, tc.want) {
				t.Errorf("error = %v, want %v", err, tc.want)
			}
		})
	}
	if m.Snapshot() != before {
		t.Error("a refused change made another snapshot")
	}
	select {
	case <-changed:
		t.Error("a refused change woke those who wait")
	default:
	}
	if diff := cmp.Diff(before, mustOpen(t, dir, Options{}).Snapshot()); diff != "" {
		t.Errorf("refused changes are in the file (-before +after):\n%s", diff)
	}
}

func TestLimitsThemselvesAreAllowed(t *testing.T) {
	m := mustOpen(t, t.TempDir(), Options{})
	mustCreate(t, m, strings.Repeat("x", 249), 10000)
	mustCreate(t, m, "...", 1)
}

func TestAChangeWakesThoseWhoWait(t *testing.T) {
	m := mustOpen(t, t.TempDir(), Options{})
	changed := m.Changed()
	before := m.Snapshot()
	mustCreate(t, m, "orders", 1)
	select {
	case <-changed:
	default:
		t.Fatal("the channel is open after a change")
	}
	if _, there := before.Topics["orders"]; there {
		t.Error("the old snapshot changed")
	}
	select {
	case <-m.Changed():
		t.Error("the next channel is closed before a change")
	default:
	}
}

func TestConcurrentChangesAreAllKept(t *testing.T) {
	dir := t.TempDir()
	m := mustOpen(t, dir, Options{})
	const n = 16
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := m.CreateTopic(t.Context(), metadata.NewTopic{Name: fmt.Sprintf("t%d", i), Partitions: 1}); err != nil {
				t.Error(err)
			}
			_ = m.Snapshot().Topics["t0"]
		})
	}
	wg.Wait()
	if got := len(mustOpen(t, dir, Options{}).Snapshot().Topics); got != n+1 {
		t.Errorf("%d topics, want %d", got, n+1)
	}
}

func TestDeletedTopicsAreListedUntilTheirRecordsAreGone(t *testing.T) {
	dir := t.TempDir()
	m := mustOpen(t, dir, Options{})
	for range 2 { // two lives of one name
		mustCreate(t, m, "orders", 1)
		if err := m.DeleteTopic(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
	}
	mustCreate(t, m, "orders", 1)
	purge := m.Snapshot().Purge
	if len(purge) != 2 || purge[0].ID == purge[1].ID {
		t.Fatalf("purge = %v, want two lives of orders", purge)
	}
	m = mustOpen(t, dir, Options{})
	if diff := cmp.Diff(purge, m.Snapshot().Purge); diff != "" {
		t.Errorf("after a restart (-before +after):\n%s", diff)
	}
	if err := m.Purged(t.Context(), purge[:1]); err != nil {
		t.Fatal(err)
	}
	unknown := []metadata.Incarnation{{Topic: "never", ID: metadata.TopicID{1}}}
	before := m.Snapshot()
	if err := m.Purged(t.Context(), unknown); err != nil || m.Snapshot() != before {
		t.Errorf("Purged of what nobody asked for = %v", err)
	}
	m = mustOpen(t, dir, Options{})
	if diff := cmp.Diff(purge[1:], m.Snapshot().Purge); diff != "" {
		t.Errorf("after one was purged (-want +got):\n%s", diff)
	}
	if m.Snapshot().Topics["orders"] == nil {
		t.Error("the living topic is gone")
	}
}

func TestACrashBetweenWriteAndRename(t *testing.T) {
	dir := t.TempDir()
	crash := errors.New("crash")
	var crashing bool
	s := store{dir: dir, write: writeSynced, rename: func(from, to string) error {
		if crashing {
			return crash
		}
		return os.Rename(from, to)
	}}
	m, err := open(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	mustCreate(t, m, "orders", 1)
	before := m.Snapshot()
	crashing = true
	if err := m.CreateTopic(t.Context(), metadata.NewTopic{Name: "lost", Partitions: 1}); !errors.Is(err, metadata.ErrStorage) || !errors.Is(err, crash) {
		t.Errorf("CreateTopic = %v", err)
	}
	if m.Snapshot() != before {
		t.Error("a topic that is not on disk is in the snapshot")
	}
	temp := filepath.Join(dir, tempName)
	if _, err := os.Stat(temp); err != nil {
		t.Fatalf("the crash left no temporary file: %v", err)
	}
	if diff := cmp.Diff(before, mustOpen(t, dir, Options{}).Snapshot()); diff != "" {
		t.Errorf("after the crash (-before +after):\n%s", diff)
	}
	if _, err := os.Stat(temp); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary file is still there: %v", err)
	}
}

func TestADamagedFileIsOneErrorThatNamesIt(t *testing.T) {
	good := func(t *testing.T) []byte {
		dir := t.TempDir()
		mustCreate(t, mustOpen(t, dir, Options{}), "orders", 3)
		raw, err := os.ReadFile(filepath.Join(dir, FileName))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	replace := func(old, with string) func(*testing.T) []byte {
		return func(t *testing.T) []byte {
			raw := string(good(t))
			if !strings.Contains(raw, old) {
				t.Fatalf("%q is not in\n%s", old, raw)
			}
			return []byte(strings.Replace(raw, old, with, 1))
		}
	}
	tests := map[string]struct {
		raw  func(*testing.T) []byte
		want string
	}{
		"an empty file":             {func(*testing.T) []byte { return nil }, "unexpected end of JSON input"},
		"half a file":               {func(t *testing.T) []byte { raw := good(t); return raw[:len(raw)/2] }, "unexpected end of JSON input"},
		"zeros":                     {func(*testing.T) []byte { return make([]byte, 512) }, "invalid character"},
		"a later version":           {replace(`"version": 1`, `"version": 2`), "version 2 is unknown"},
		"no cluster id":             {replace(`"clusterID"`, `"clusterid2"`), "clusterid2"},
		"an id that is no id":       {replace(`"id": "`, `"id": "x`), "16 bytes"},
		"a topic without partition": {replace(`"partitions": 3`, `"partitions": 0`), "invalid number of partitions"},
		"too many partitions":       {replace(`"partitions": 3`, `"partitions": 2000000000`), "invalid number of partitions"},
		"an illegal name":           {replace(`"orders"`, `"or/ders"`), "invalid topic name"},
		"a topic that is there twice": {replace(`"orders"`, `"`+v1alpha1.TopicConsumerOffsets+`"`),
			"twice"},
		"segments of 13 bytes":             {replace(`"segment.bytes": 134217728`, `"segment.bytes": 13`), "segment.bytes"},
		"segments of more than 32 bits":    {replace(`"segment.bytes": 134217728`, `"segment.bytes": 2147483648`), "segment.bytes"},
		"segments of minus a time":         {replace(`"segment.ms": 604800000`, `"segment.ms": -1`), "segment.ms"},
		"segments beyond all time":         {replace(`"segment.ms": 604800000`, `"segment.ms": 9223372036854775807`), "segment.ms"},
		"timestamps that nobody knows":     {replace(`"CreateTime"`, `"NoTime"`), "message.timestamp.type"},
		"a flush that nobody knows":        {replace(`"flush.messages": 1`, `"flush.messages": 100`), "flush.messages"},
		"tombstones kept for minus a time": {replace(`"delete.retention.ms": 86400000`, `"delete.retention.ms": -1`), "delete.retention.ms"},
		"tombstones kept beyond all time":  {replace(`"delete.retention.ms": 86400000`, `"delete.retention.ms": 9223372036854775807`), "delete.retention.ms"},
		"a field that nobody knows":        {replace(`"partitions": 3`, `"partitions": 3, "colour": "red"`), "colour"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, FileName)
			if err := os.WriteFile(path, tc.raw(t), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Open(dir, Options{})
			if err == nil {
				t.Fatal("a damaged file was accepted")
			}
			for _, want := range []string{path, tc.want, "restore it"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q has more than one line", err)
			}
		})
	}
}

func TestADirectoryThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"a file in place of the directory": file, "a directory below a file": filepath.Join(file, "data")} {
		t.Run(name, func(t *testing.T) {
			if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), file) {
				t.Errorf("Open = %v, want an error that names %s", err, file)
			}
		})
	}
}

func TestNothingIsWrittenWhereNothingChanged(t *testing.T) {
	dir := t.TempDir()
	mustCreate(t, mustOpen(t, dir, Options{}), "orders", 1)
	s := store{dir: dir, write: writeSynced, rename: func(string, string) error { return errors.New("a write") }}
	if _, err := open(s, Options{}); err != nil {
		t.Errorf("opening an unchanged file: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"version":1,"clusterID":"x","topics":[{"name":"a","id":"AAAAAAAAAAAAAAAAAAAAAA","partitions":1,"config":{"retention.ms":0,` +
		`"retention.bytes":5,"cleanup.policy":"delete,compact","max.message.bytes":2000,"delete.retention.ms":0,"flush.messages":9223372036854775807,` +
		`"segment.bytes":14,"segment.ms":1,"message.timestamp.type":"LogAppendTime"}}]}`))
	f.Add([]byte(`{"version":1,"clusterID":"x","topics":[]}`))
	f.Add([]byte(`{"version":1,"clusterID":"x","topics":[{"name":"a","id":"AAAAAAAAAAAAAAAAAAAAAA","partitions":1,` +
		`"config":{"retention.ms":-1,"retention.bytes":-1,"cleanup.policy":"delete","max.message.bytes":2000}}],"deleted":[{"name":"b","id":"AAAAAAAAAAAAAAAAAAAAAA"},{"name":"a","id":"AAAAAAAAAAAAAAAAAAAAAA"}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		st, err := decode(raw)
		if err != nil {
			return
		}
		out, err := encode(st)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decode(out)
		if err != nil {
			t.Fatalf("what was encoded cannot be decoded: %v\n%s", err, out)
		}
		if diff := cmp.Diff(st, again, cmp.AllowUnexported(state{}, topic{})); diff != "" {
			t.Errorf("(-first +second):\n%s", diff)
		}
	})
}
