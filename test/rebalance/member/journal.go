// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// journal is a file of lines "NANOSECONDS EVENT ...": G and the partitions that were given, R those that were let go, L those that were lost, and D, the partition and the
// offset of a record. Each line is one system call, so that what was written outlives a process that is killed.
type journal struct {
	mu   sync.Mutex
	file *os.File
	line []byte
}

// openJournal makes FOLDER/POD.NANOSECONDS.log.
func openJournal(folder, pod string) (*journal, error) {
	name := filepath.Join(folder, fmt.Sprintf("%s.%d.log", pod, time.Now().UnixNano()))
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	return &journal{file: file}, nil
}

// begin starts a line; end writes it.
func (j *journal) begin(event byte) {
	j.mu.Lock()
	j.line = append(strconv.AppendInt(j.line[:0], time.Now().UnixNano(), 10), ' ', event, ' ')
}

func (j *journal) end() {
	_, err := j.file.Write(append(j.line, '\n'))
	j.mu.Unlock()
	if err != nil {
		fmt.Fprintln(os.Stderr, "member: write the journal:", err)
		os.Exit(1)
	}
}

// partitions writes that partitions were given or taken.
func (j *journal) partitions(event byte, partitions []int32) {
	if len(partitions) == 0 {
		return
	}
	j.begin(event)
	for i, p := range partitions {
		if i > 0 {
			j.line = append(j.line, ',')
		}
		j.line = strconv.AppendInt(j.line, int64(p), 10)
	}
	j.end()
}

// record writes that a record was read.
func (j *journal) record(partition int32, offset int64) {
	j.begin('D')
	j.line = strconv.AppendInt(append(strconv.AppendInt(j.line, int64(partition), 10), ' '), offset, 10)
	j.end()
}
