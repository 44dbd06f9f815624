// SPDX-License-Identifier: Apache-2.0

// Package judge holds what a run's consumers wrote down against what a managed group promises. It knows nothing of a cluster: its evidence is the
// journals that the programs of test/clients keep, all by one machine's clock, and what the run itself did to them.
package judge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// What a journal tells; test/clients says when each is written.
const (
	Start  = "start"
	Given  = "given"
	LetGo  = "letgo"
	Lost   = "lost"
	Read   = "read"
	Commit = "commit"
	Acked  = "acked"
	Stop   = "stop"
)

// Event is one line of a journal. Times are nanoseconds since 1970.
type Event struct {
	At         int64   `json:"at"`
	What       string  `json:"what"`
	Client     int     `json:"client"`
	Partitions []int32 `json:"partitions"`
	Partition  int32   `json:"partition"`
	Offset     int64   `json:"offset"`
	Value      string  `json:"value"`
	Began      int64   `json:"began"`
	Error      string  `json:"error"`
}

// Process is a run of a pod's program: what it wrote down, and when it ended if it could not write that down itself.
type Process struct {
	Pod    string
	Name   string // of its journal
	Events []Event
	// Died is when it was killed; 0 where it was not. A process that was killed believes in nothing any more.
	Died int64
}

// Folder reads the journals of a folder as they grow.
type Folder struct {
	path    string
	files   map[string]*tail
	ordered []*Process
}

type tail struct {
	process *Process
	read    int64
	rest    []byte
}

// NewFolder returns the journals of a folder.
func NewFolder(path string) *Folder { return &Folder{path: path, files: map[string]*tail{}} }

// Refresh reads what was written since it was called last.
func (f *Folder) Refresh() error {
	names, err := filepath.Glob(filepath.Join(f.path, "*.jsonl"))
	if err != nil {
		return fmt.Errorf("list the journals: %w", err)
	}
	for _, name := range names {
		t := f.files[name]
		if t == nil {
			pod, _, _ := strings.Cut(filepath.Base(name), ".")
			t = &tail{process: &Process{Pod: pod, Name: filepath.Base(name)}}
			f.files[name] = t
			f.ordered = append(f.ordered, t.process)
		}
		if err := t.refresh(name); err != nil {
			return fmt.Errorf("read the journal %s: %w", name, err)
		}
	}
	return nil
}

func (t *tail) refresh(name string) error {
	file, err := os.Open(filepath.Clean(name))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it was only read
	if _, err := file.Seek(t.read, io.SeekStart); err != nil {
		return err
	}
	more, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	t.read += int64(len(more))
	t.rest = append(t.rest, more...)
	for {
		line, rest, whole := bytes.Cut(t.rest, []byte{'\n'})
		if !whole {
			return nil
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return errors.Join(fmt.Errorf("the line %q", line), err)
		}
		t.process.Events = append(t.process.Events, e)
		t.rest = rest
	}
}

// Processes returns the processes whose pod's name is accepted, in the order in which their journals were found.
func (f *Folder) Processes(accept func(pod string) bool) []*Process {
	var out []*Process
	for _, p := range f.ordered {
		if accept(p.Pod) {
			out = append(out, p)
		}
	}
	return out
}

// Newest returns a pod's process that began last, or nil.
func (f *Folder) Newest(pod string) *Process {
	var newest *Process
	for _, p := range f.ordered {
		if p.Pod == pod && (newest == nil || p.Name > newest.Name) {
			newest = p
		}
	}
	return newest
}

func clock(at int64) string { return time.Unix(0, at).UTC().Format("15:04:05.000") }
