// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Event is one line of a journal.
type Event struct {
	// At is when it was written, in nanoseconds since 1970 by the machine's clock; within a journal it never goes back.
	At int64 `json:"at"`
	// What is one of the constants below.
	What string `json:"what"`
	// Client tells the clients of one process apart.
	Client int `json:"client"`
	// Partitions are those that are given, let go or lost.
	Partitions []int32 `json:"partitions,omitempty"`
	// Partition and Offset are of the record that was read or acknowledged; of a commit, the offset that is committed.
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Value     string `json:"value,omitempty"`
	// Began is when a commit was sent.
	Began int64 `json:"began,omitempty"`
	// Error is why a commit was refused.
	Error string `json:"error,omitempty"`
}

// What a journal tells.
const (
	eventStart  = "start"  // the client is made
	eventGiven  = "given"  // the callback that partitions were assigned; none of their records was read before
	eventLetGo  = "letgo"  // the callback that partitions were revoked, at its end: none of their records is read after it
	eventLost   = "lost"   // the callback that partitions were lost
	eventRead   = "read"   // a record was processed
	eventCommit = "commit" // a commit was answered
	eventAcked  = "acked"  // a record was written and acknowledged
	eventStop   = "stop"   // the client has left the group, or is about to end
)

// journal is a file of events. Each is written with one system call, so that what was written outlives a process that is killed.
type journal struct {
	mu   sync.Mutex
	file *os.File
	last int64
}

// openJournal makes the journal of a process: FOLDER/POD.TIME.jsonl.
func openJournal(folder string) (*journal, error) {
	pod := os.Getenv("POD_NAME")
	if pod == "" {
		return nil, fmt.Errorf("POD_NAME is not set: give it with the downward API")
	}
	name := filepath.Join(folder, fmt.Sprintf("%s.%d.jsonl", pod, time.Now().UnixNano()))
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	return &journal{file: file}, nil
}

// write adds events, all of the same time.
func (j *journal) write(events ...Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last = max(j.last, time.Now().UnixNano())
	var lines []byte
	for _, e := range events {
		e.At = j.last
		line, err := json.Marshal(e)
		if err != nil {
			fatal("write the journal", err)
		}
		lines = append(append(lines, line...), '\n')
	}
	if _, err := j.file.Write(lines); err != nil {
		fatal("write the journal", err)
	}
}

// fatal ends the process: a witness that cannot write down what it does must not do it.
func fatal(what string, err error) {
	fmt.Fprintf(os.Stderr, "clients: %s: %v\n", what, err)
	os.Exit(1)
}
