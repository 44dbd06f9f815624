// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/compaction"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/idempotence"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

// meta is what the hash of that name holds of a log.
//
// Invariants: start <= end, gone <= total.
type meta struct {
	epoch int32
	owner string
	// start and end are the log's offsets.
	start, end int64
	// total counts the bytes that were ever appended, and gone those of them that were removed since; it may be below 0, see output.
	total, gone int64
	// largest is the size of the largest batch that was ever appended.
	largest int64
	// epochs are where leader epochs began.
	epochs []storage.EpochStart
	// passes are what compaction has done, and cleaned is how many of gone and what it left it knows: where in total it ended.
	passes  compaction.Passes
	cleaned int64
}

// parseMeta decodes the fields of the hash under the key.
func parseMeta(key string, fields map[string]string) (*meta, error) {
	m := &meta{owner: fields["owner"]}
	epoch := int64(0)
	for name, to := range map[string]*int64{
		"epoch": &epoch, "start": &m.start, "end": &m.end, "total": &m.total, "gone": &m.gone, "largest": &m.largest,
	} {
		n, err := strconv.ParseInt(fields[name], 10, 64)
		if err != nil || n < 0 && name != "gone" {
			return nil, damaged(key, "its field %s is %.40q, and must be a number", name, fields[name])
		}
		*to = n
	}
	m.epoch = int32(epoch)
	if int64(m.epoch) != epoch || m.start > m.end || m.gone > m.total {
		return nil, damaged(key, "epoch %d, offsets %d to %d, %d of %d bytes gone do not fit each other", epoch, m.start, m.end, m.gone, m.total)
	}
	var err error
	if m.epochs, err = parseEpochs(fields["epochs"]); err != nil {
		return nil, damaged(key, "its field epochs: %v", err)
	}
	if text, ok := fields["compacted"]; ok {
		if err := m.parsePasses(text); err != nil {
			return nil, damaged(key, "its field compacted: %v", err)
		}
	}
	return m, nil
}

// parseEpochs decodes EPOCH:START, separated by spaces.
func parseEpochs(text string) ([]storage.EpochStart, error) {
	var list []storage.EpochStart
	for word := range strings.FieldsSeq(text) {
		var e storage.EpochStart
		if err := parsePair(word, &e.Epoch, &e.Offset); err != nil {
			return nil, err
		}
		if n := len(list); n > 0 && (e.Epoch <= list[n-1].Epoch || e.Offset < list[n-1].Offset) {
			return nil, fmt.Errorf("%s does not follow", word)
		}
		list = append(list, e)
	}
	return list, nil
}

// parsePair decodes A:B.
func parsePair[A int32 | int64](word string, a *A, b *int64) error {
	first, second, _ := strings.Cut(word, ":")
	bits := 64
	if _, small := any(*a).(int32); small {
		bits = 32
	}
	n, err := strconv.ParseInt(first, 10, bits)
	m, err2 := strconv.ParseInt(second, 10, 64)
	if err != nil || err2 != nil || n < 0 || m < 0 {
		return fmt.Errorf("%.40q is not two numbers", word)
	}
	*a, *b = A(n), m
	return nil
}

// formatPasses encodes what compaction has done: the offset below which tombstones have gone, how many were left, where in the total of bytes it ended, and the passes,
// UPTO:AT.
func formatPasses(p *compaction.Passes, cleaned int64) string {
	b := fmt.Appendf(nil, "%d %d %d", p.Gone, p.Left, cleaned)
	for _, d := range p.Done {
		b = fmt.Appendf(b, " %d:%d", d.UpTo, d.At)
	}
	return string(b)
}

// parsePasses is formatPasses' inverse.
func (m *meta) parsePasses(text string) error {
	words := strings.Fields(text)
	if len(words) < 3 || len(words) > 3+2*compaction.MaxPasses {
		return fmt.Errorf("it has %d words", len(words))
	}
	for i, to := range []*int64{&m.passes.Gone, &m.passes.Left, &m.cleaned} {
		n, err := strconv.ParseInt(words[i], 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("%.40q is not a number", words[i])
		}
		*to = n
	}
	for _, word := range words[3:] {
		var d compaction.Pass
		if err := parsePair(word, &d.UpTo, &d.At); err != nil {
			return err
		}
		if d.UpTo <= m.passes.UpTo() {
			return fmt.Errorf("%s does not follow", word)
		}
		m.passes.Done = append(m.passes.Done, d)
	}
	if m.passes.UpTo() > m.end {
		return fmt.Errorf("it is compacted to %d, and ends at %d", m.passes.UpTo(), m.end)
	}
	return nil
}

// formatProducer encodes a producer: its epoch, when it last appended, and its last batches, the oldest first, each as its first sequence number, first offset, number
// of records and, where the log gave it its time, that.
func formatProducer(p *idempotence.Producer) string {
	b := make([]byte, 0, 192)
	b = strconv.AppendInt(b, int64(p.Epoch), 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, p.LastSeen.UnixMilli(), 10)
	for i := range p.Count {
		s := &p.Batches[i]
		b = append(b, ' ')
		b = strconv.AppendInt(b, int64(s.FirstSequence), 10)
		b = append(b, ':')
		b = strconv.AppendInt(b, s.Base, 10)
		b = append(b, ':')
		b = strconv.AppendInt(b, s.Next-s.Base, 10)
		if s.Appended != recordbatch.NoTime {
			b = append(b, ':')
			b = strconv.AppendInt(b, s.Appended, 10)
		}
	}
	return string(b)
}

// parseProducer is formatProducer's inverse.
func parseProducer(text string) (*idempotence.Producer, error) {
	words := strings.Fields(text)
	if len(words) < 2 || len(words) > 2+idempotence.KeptBatches {
		return nil, fmt.Errorf("it has %d words", len(words))
	}
	epoch, err := strconv.ParseInt(words[0], 10, 16)
	seen, err2 := strconv.ParseInt(words[1], 10, 64)
	if err != nil || err2 != nil || epoch < 0 {
		return nil, fmt.Errorf("%.40q is not a producer epoch and a time", text)
	}
	p := &idempotence.Producer{Epoch: int16(epoch), LastSeen: time.UnixMilli(seen)}
	for _, word := range words[2:] {
		s, err := parseSent(word)
		if err != nil {
			return nil, err
		}
		p.Add(s)
	}
	return p, nil
}

// parseSent decodes a batch of a producer.
func parseSent(word string) (idempotence.Sent, error) {
	numbers := []int64{0, 0, 0, recordbatch.NoTime}
	parts := strings.Split(word, ":")
	if len(parts) != 3 && len(parts) != 4 {
		return idempotence.Sent{}, fmt.Errorf("%.40q is not a batch", word)
	}
	for i, part := range parts {
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil || n < 0 {
			return idempotence.Sent{}, fmt.Errorf("%.40q is not a batch", word)
		}
		numbers[i] = n
	}
	s, ok := idempotence.NewSent(numbers[0], numbers[1], numbers[2], numbers[3])
	if !ok {
		return s, fmt.Errorf("%.40q is not a batch", word)
	}
	return s, nil
}

// timeEntry is an entry of the index: what holds of the log up to the offset next.
type timeEntry struct {
	next int64
	// bytes is the total when the batch before next was appended.
	bytes int64
	// maxTime is the newest timestamp between the entry before this one and next, milliseconds since 1970. The entry's score is that of all batches up to next.
	maxTime int64
}

// member is the entry as the index has it; entries of the same score are sorted by it.
func (e timeEntry) member() string { return fmt.Sprintf("%020d %d %d", e.next, e.bytes, e.maxTime) }

// parseTimeEntry is member's inverse.
func parseTimeEntry(key, member string) (timeEntry, error) {
	var numbers [3]int64
	words := strings.Fields(member)
	if len(words) == len(numbers) {
		for i, word := range words {
			n, err := strconv.ParseInt(word, 10, 64)
			if err != nil {
				break
			}
			numbers[i] = n
		}
	}
	e := timeEntry{next: numbers[0], bytes: numbers[1], maxTime: numbers[2]}
	if e.next <= 0 || e.member() != member {
		return e, damaged(key, "its entry %.80q is none of an index", member)
	}
	return e, nil
}

// parseTimeEntries decodes entries, which must ascend.
func parseTimeEntries(key string, members []string) ([]timeEntry, error) {
	list := make([]timeEntry, len(members))
	for i, member := range members {
		var err error
		if list[i], err = parseTimeEntry(key, member); err != nil {
			return nil, err
		}
	}
	if !slices.IsSortedFunc(list, func(a, b timeEntry) int { return int(a.next - b.next) }) {
		return nil, damaged(key, "its entries do not ascend")
	}
	return list, nil
}
