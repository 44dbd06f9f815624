// SPDX-License-Identifier: Apache-2.0

package local

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

const (
	maxTopicName = 249
	maxFileName  = 255 // Linux's NAME_MAX
)

// dirName is the name of a partition's directory. It fails where the topic's name is illegal or the whole is too long for a file.
func dirName(p storage.Partition) (string, error) {
	if !legalTopic(p.Topic) {
		return "", fmt.Errorf("topic name %q is illegal: use 1 to %d of the characters a-z A-Z 0-9 . _ -", p.Topic, maxTopicName)
	}
	if p.Partition < 0 {
		return "", fmt.Errorf("partition %d of topic %s: a partition's number is not negative", p.Partition, p.Topic)
	}
	name := p.Topic + "-" + strconv.FormatInt(int64(p.Partition), 10)
	if len(name) > maxFileName {
		return "", fmt.Errorf("partition %s: a topic with so many partitions needs a name of at most %d characters", name,
			maxTopicName-(len(name)-maxFileName))
	}
	return name, nil
}

// parseDirName is dirName's inverse; ok is false for every name that dirName does not return.
func parseDirName(name string) (p storage.Partition, ok bool) {
	i := strings.LastIndexByte(name, '-')
	if i < 0 {
		return p, false
	}
	n, err := strconv.ParseInt(name[i+1:], 10, 32)
	if err != nil {
		return p, false
	}
	p = storage.Partition{Topic: name[:i], Partition: int32(n)}
	again, err := dirName(p)
	return p, err == nil && again == name
}

// legalTopic says whether Kafka allows the name, which is also a legal part of a file name.
func legalTopic(s string) bool {
	if s == "" || len(s) > maxTopicName || s == "." || s == ".." {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// segmentName is what the name of a segment's file says of it.
type segmentName struct {
	base int64
	// pass is how often compaction made the segment anew, and next the base of the segment after it; both are 0 where it never did.
	// Invariant: of two segments of a log that overlap, the one of the higher pass was made of the other, and covers it whole.
	pass int64
	next int64
}

// file is the name of the segment's file; ext is .log or .index.
func (n segmentName) file(ext string) string {
	if n.pass == 0 {
		return fmt.Sprintf("%020d%s", n.base, ext)
	}
	return fmt.Sprintf("%020d-%020d-%d%s", n.base, n.next, n.pass, ext)
}

// parseSegmentName is file's inverse.
func parseSegmentName(file, ext string) (n segmentName, ok bool) {
	stem, ok := strings.CutSuffix(file, ext)
	if !ok || len(stem) < 20 {
		return n, false
	}
	parts := strings.Split(stem, "-")
	var numbers [3]int64
	for i, part := range parts {
		if i == len(numbers) {
			return n, false
		}
		var err error
		if numbers[i], err = strconv.ParseInt(part, 10, 64); err != nil {
			return n, false
		}
	}
	n = segmentName{base: numbers[0], next: numbers[1], pass: numbers[2]}
	return n, n.base >= 0 && n.file(ext) == file && (len(parts) == 1 || n.next > n.base && n.pass > 0)
}

// superseded splits the names of a log's segments, which it sorts, into those that make up the log and those that compaction made others of.
func superseded(names []segmentName) (current, old []segmentName) {
	slices.SortFunc(names, func(a, b segmentName) int {
		return cmp.Or(cmp.Compare(a.base, b.base), cmp.Compare(b.pass, a.pass))
	})
	covered := segmentName{}
	for _, n := range names {
		if n.base < covered.next && n.pass < covered.pass {
			old = append(old, n)
			continue
		}
		current = append(current, n)
		if n.pass > 0 {
			covered = n
		}
	}
	return current, old
}
