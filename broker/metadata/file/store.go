// SPDX-License-Identifier: Apache-2.0

package file

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

const (
	// FileName is the name of the file in the data directory.
	FileName = "topics.json"

	tempName    = FileName + ".tmp"
	reserveName = FileName + ".reserve"
	// reserveBytes is how much larger than the file the reserve is at least.
	reserveBytes = 32 << 10
	fileVersion  = 1
	// maxFileBytes is the largest file that is read: far more than any number of topics that one broker can serve.
	maxFileBytes = 64 << 20
)

// state is what the file holds.
type state struct {
	clusterID string
	// topics are sorted by name.
	topics []topic
	// deleted are topics whose records may still be on disk, sorted by name and id.
	deleted []metadata.Incarnation
}

// topic is a topic as the file holds it.
type topic struct {
	name       string
	id         metadata.TopicID
	partitions int32
	config     metadata.TopicConfig
	internal   bool
}

// find returns the place of a topic, or the place where it would be.
func (s *state) find(name string) (int, bool) {
	return slices.BinarySearchFunc(s.topics, name, func(t topic, n string) int { return strings.Compare(t.name, n) })
}

// sortDeleted brings the list of deleted topics in order.
func (s *state) sortDeleted() {
	slices.SortFunc(s.deleted, func(a, b metadata.Incarnation) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), bytes.Compare(a.ID[:], b.ID[:]))
	})
	s.deleted = slices.Compact(s.deleted)
}

// clone returns a copy that shares nothing with s.
func (s *state) clone() *state {
	return &state{clusterID: s.clusterID, topics: slices.Clone(s.topics), deleted: slices.Clone(s.deleted)}
}

// The file's JSON.
type (
	fileJSON struct {
		Version   int         `json:"version"`
		ClusterID string      `json:"clusterID"`
		Topics    []topicJSON `json:"topics"`
		Deleted   []goneJSON  `json:"deleted,omitempty"`
	}
	goneJSON struct {
		Name string `json:"name"`
		ID   string `json:"id"`
	}
	topicJSON struct {
		Name       string                `json:"name"`
		ID         string                `json:"id"`
		Partitions int32                 `json:"partitions"`
		Internal   bool                  `json:"internal,omitempty"`
		Config     metadata.StoredConfig `json:"config"`
	}
)

// store reads and writes the file.
type store struct {
	dir string
	// rename is os.Rename and write writeSynced; tests put a crash or a full disk in their place.
	rename func(from, to string) error
	write  func(path string, raw []byte) error
}

func (s store) path() string { return filepath.Join(s.dir, FileName) }

// load reads the file; nil where there is none. It removes what a crashed write left.
func (s store) load() (*state, error) {
	if err := os.Remove(filepath.Join(s.dir, tempName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove what an unfinished write left: %w", err)
	}
	f, err := os.Open(s.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no file is no error: it is the first start
	}
	if err != nil {
		return nil, fmt.Errorf("open metadata: %w", err)
	}
	defer f.Close() //nolint:errcheck // nothing was written
	raw, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read metadata: %w", err)
	}
	st, err := decode(raw)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged (%w): restore it from a backup, or move it away to start without topics", s.path(), err)
	}
	return st, nil
}

// save replaces the file. When it returns nil, the new file is on disk; after an error the old one still stands, but for an error of
// the last step (the sync of the directory), after which a crash may bring back either.
func (s store) save(st *state) error {
	raw, err := encode(st)
	if err != nil {
		return fmt.Errorf("encode metadata: %w", err)
	}
	err = s.replace(raw)
	if isFull(err) && os.Remove(filepath.Join(s.dir, reserveName)) == nil {
		err = s.replace(raw)
	}
	if err != nil {
		return err
	}
	s.keepReserve(len(raw))
	return nil
}

// isFull says whether an error means that the disk or the quota has no room.
func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// keepReserve keeps room for a file of n bytes and some growth, so that a topic can be deleted, or its retention changed, on a full disk. Where there is
// no room for that, the next save tries again.
func (s store) keepReserve(n int) {
	path, want := filepath.Join(s.dir, reserveName), int64(n+reserveBytes)
	if info, err := os.Stat(path); err == nil && info.Size() >= want {
		return
	}
	if err := s.write(path, make([]byte, want+reserveBytes)); err != nil {
		_ = os.Remove(path) // half a reserve is none
	}
}

// replace writes the file's new content beside it and puts it in its place.
func (s store) replace(raw []byte) error {
	temp := filepath.Join(s.dir, tempName)
	if err := s.write(temp, raw); err != nil {
		return fmt.Errorf("write metadata: %w", err)
	}
	if err := s.rename(temp, s.path()); err != nil {
		return fmt.Errorf("replace metadata: %w", err)
	}
	if err := syncDir(s.dir); err != nil {
		return fmt.Errorf("sync metadata's directory: %w", err)
	}
	return nil
}

func writeSynced(path string, raw []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// makeDir makes a directory that survives a crash.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func encode(st *state) ([]byte, error) {
	out := fileJSON{Version: fileVersion, ClusterID: st.clusterID, Topics: make([]topicJSON, 0, len(st.topics))}
	for _, gone := range st.deleted {
		out.Deleted = append(out.Deleted, goneJSON{Name: gone.Topic, ID: metadata.EncodeID(gone.ID)})
	}
	for _, t := range st.topics {
		out.Topics = append(out.Topics, topicJSON{
			Name:       t.name,
			ID:         metadata.EncodeID(t.id),
			Partitions: t.partitions,
			Internal:   t.internal,
			Config:     metadata.EncodeConfig(t.config),
		})
	}
	raw, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(raw, '\n'), nil
}

// decode reads the file's bytes and checks every rule that CreateTopic keeps, so that nothing above meets an impossible topic.
func decode(raw []byte) (*state, error) {
	if len(raw) > maxFileBytes {
		return nil, fmt.Errorf("larger than %d bytes", maxFileBytes)
	}
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(raw, &version); err != nil {
		return nil, err
	}
	if version.Version != fileVersion {
		return nil, fmt.Errorf("version %d is unknown, this broker reads version %d", version.Version, fileVersion)
	}
	var in fileJSON
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return nil, err
	}
	if in.ClusterID == "" {
		return nil, errors.New("clusterID is missing")
	}
	st := &state{clusterID: in.ClusterID, topics: make([]topic, 0, len(in.Topics))}
	for _, j := range in.Deleted {
		id, err := metadata.DecodeID(j.ID)
		if err := errors.Join(err, metadata.CheckName(j.Name)); err != nil {
			return nil, fmt.Errorf("deleted topic %q: %w", metadata.Clip(j.Name), err)
		}
		st.deleted = append(st.deleted, metadata.Incarnation{Topic: j.Name, ID: id})
	}
	st.sortDeleted()
	for _, j := range in.Topics {
		t, err := decodeTopic(j)
		if err != nil {
			return nil, err
		}
		i, found := st.find(t.name)
		if found {
			return nil, fmt.Errorf("topic %q is there twice", t.name)
		}
		st.topics = slices.Insert(st.topics, i, t)
	}
	return st, nil
}

func decodeTopic(j topicJSON) (topic, error) {
	id, err := metadata.DecodeID(j.ID)
	if err != nil {
		return topic{}, fmt.Errorf("topic %q: %w", j.Name, err)
	}
	config, err := j.Config.Decode()
	if err != nil {
		return topic{}, fmt.Errorf("topic %q: %w", j.Name, err)
	}
	t := topic{name: j.Name, id: id, partitions: j.Partitions, internal: j.Internal, config: config}
	if err := errors.Join(metadata.CheckName(t.name), metadata.CheckPartitions(t.name, t.partitions), metadata.CheckConfig(t.name, t.config)); err != nil {
		return topic{}, err
	}
	return t, nil
}
