// SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
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

// segmentName is the name of the segment whose first record has the offset; ext is .log or .index.
func segmentName(base int64, ext string) string { return fmt.Sprintf("%020d%s", base, ext) }

// parseSegmentName is segmentName's inverse.
func parseSegmentName(name, ext string) (base int64, ok bool) {
	digits, found := strings.CutSuffix(name, ext)
	if !found || len(digits) != 20 {
		return 0, false
	}
	base, err := strconv.ParseInt(digits, 10, 64)
	return base, err == nil && base >= 0 && segmentName(base, ext) == name
}
