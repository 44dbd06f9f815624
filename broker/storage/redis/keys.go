// SPDX-License-Identifier: Apache-2.0

package redis

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
	// maxPrefix is how many characters the prefix of all keys may have.
	maxPrefix = 100
)

// keys are the names of a partition's keys. The part in braces is the same in all, so that they share a slot of a cluster.
type keys struct {
	log, meta, times, producers, clean, cleanTimes, open string
}

// keysOf returns a partition's keys. It fails where the topic's name or the number is illegal.
func keysOf(prefix string, p storage.Partition) (keys, error) {
	if !legalName(p.Topic, maxTopicName) || p.Topic == "." || p.Topic == ".." {
		return keys{}, fmt.Errorf("topic name %q is illegal: use 1 to %d of the characters a-z A-Z 0-9 . _ -", p.Topic, maxTopicName)
	}
	if p.Partition < 0 {
		return keys{}, fmt.Errorf("partition %d of topic %s: a partition's number is not negative", p.Partition, p.Topic)
	}
	base := prefix + ":{t/" + memberOf(p) + "}:"
	return keys{
		log: base + "log", meta: base + "meta", times: base + "times", producers: base + "producers",
		clean: base + "log.clean", cleanTimes: base + "times.clean", open: base + "log.open",
	}, nil
}

// registryKey is the set of all partitions that have a log, as memberOf has them.
func registryKey(prefix string) string { return prefix + ":logs" }

// memberOf is TOPIC/PARTITION.
func memberOf(p storage.Partition) string {
	return p.Topic + "/" + strconv.FormatInt(int64(p.Partition), 10)
}

// parseMember is memberOf's inverse; ok is false for what it does not return.
func parseMember(s string) (p storage.Partition, ok bool) {
	topic, number, ok := strings.Cut(s, "/")
	n, err := strconv.ParseInt(number, 10, 32)
	p = storage.Partition{Topic: topic, Partition: int32(n)}
	if _, illegal := keysOf("", p); !ok || err != nil || illegal != nil {
		return p, false
	}
	return p, memberOf(p) == s
}

// legalName says whether a name has 1 to limit of the characters that Kafka allows in a topic's.
func legalName(s string, limit int) bool {
	if s == "" || len(s) > limit {
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

func sortPartitions(ps []storage.Partition) {
	slices.SortFunc(ps, func(a, b storage.Partition) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}
