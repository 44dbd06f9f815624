// SPDX-License-Identifier: Apache-2.0

// Package storage holds the interfaces that every storage engine implements: an Engine opens a Log for each partition.
//
// A log takes whole record batches (format v2) as the producer made them, assigns their offsets, and gives them back by offset.
// Nothing above this package knows which engine it has.
package storage

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Errors of logs and engines. They are wrapped with what was being done; test with errors.Is.
var (
	// ErrOffsetOutOfRange says that an offset is below the log's start or beyond its end.
	ErrOffsetOutOfRange = errors.New("offset out of range")
	// ErrInvalidBatch says that bytes to be appended are not whole, sound record batches of format v2.
	ErrInvalidBatch = errors.New("invalid record batch")
	// ErrInvalidRecord says that a batch is sound, but has a record that the topic does not take; a RecordError says which.
	ErrInvalidRecord = errors.New("invalid record")
	// ErrBatchTooLarge says that a batch is larger than Config.MaxBatchBytes.
	ErrBatchTooLarge = errors.New("record batch too large")
	// ErrDamaged says that stored bytes fail their checksum; the message names file and offset. They are never served.
	ErrDamaged = errors.New("damaged log")
	// ErrFull says that the disk has no room; nothing was appended.
	ErrFull = errors.New("no space left for the log")
	// ErrFenced says that a newer leader epoch has opened the log.
	ErrFenced = errors.New("fenced by a newer leader epoch")
	// ErrOutOfOrderSequence says that an idempotent producer's batch does not follow its last one.
	ErrOutOfOrderSequence = errors.New("out of order sequence number")
	// ErrStaleProducerEpoch says that a batch has an older producer epoch than one already appended.
	ErrStaleProducerEpoch = errors.New("stale producer epoch")
	// ErrUnavailable says that what holds the log cannot be reached, or does not answer, for now; whether something was appended is not known. It mends itself: try
	// again.
	ErrUnavailable = errors.New("storage is unavailable")
	// ErrNotReplicated says that batches were appended, but that fewer replicas than are asked for have them in time. Readers see them.
	ErrNotReplicated = errors.New("not enough replicas have the records")
	// ErrClosed says that the log or engine is closed or its partition was deleted.
	ErrClosed = errors.New("log is closed")
)

// RecordError is an ErrInvalidRecord that names the records which the topic does not take, and so all of the append was refused.
type RecordError struct {
	// Records are the numbers of the records in their batch, from 0, ascending. Of many they are the first 100.
	Records []int32
	// Reason says why they are not taken, and what to do.
	Reason string
}

// Error gives the first record and the reason.
func (e *RecordError) Error() string {
	return fmt.Sprintf("%v: record %d %s", ErrInvalidRecord, e.Records[0], e.Reason)
}

// Unwrap is ErrInvalidRecord.
func (e *RecordError) Unwrap() error { return ErrInvalidRecord }

// Partition is a partition of a topic.
type Partition struct {
	Topic     string
	Partition int32
}

// Config is what a topic asks of its logs. The zero value of a field means its default.
type Config struct {
	// RetentionTime is how long records are kept at least. Zero: for ever.
	RetentionTime time.Duration
	// RetentionBytes is how many bytes a log may have before old segments go. Zero: no limit.
	RetentionBytes int64
	// MaxBatchBytes is the largest batch that may be appended, in bytes. Zero: 1048588.
	MaxBatchBytes int32
	// Compact says that of the records with the same key only the newest need be kept.
	Compact bool
	// TombstoneRetention is how long a tombstone, a record without a value, is kept at least once nothing that it deletes is left. Zero: 24 hours.
	TombstoneRetention time.Duration
	// Flush says when a batch counts as stored.
	Flush Flush
	// SegmentBytes is the size at which a new segment is started, of an engine that has segments: what retention removes and compaction compacts. One above
	// the engine's own limit counts as that. Zero: the engine's default.
	SegmentBytes int64
	// SegmentTime is the age at which a new segment is started, however small the old one is: on the next append, or by the engine's check of
	// retention and compaction. Zero: age alone starts none.
	SegmentTime time.Duration
	// LogAppendTime says that a record's timestamp is the time at which the log appended it, and not the one that its producer set.
	LogAppendTime bool
}

// Flush says when a batch counts as stored: readers see it, and an Append that waits for Synced returns.
type Flush int8

const (
	// FlushSync counts a batch as stored when it is on disk.
	FlushSync Flush = iota
	// FlushOS counts a batch as stored when the operating system has it, which writes it to disk in its own time: a crash of the machine, but not one of the
	// broker, may lose what was acknowledged.
	FlushOS
)

// Durability says what Append waits for.
type Durability int8

const (
	// Written waits until the batch is written, but not until it is on disk.
	Written Durability = iota
	// Synced waits until the batch is stored, as Config.Flush has it.
	Synced
)

// Engine opens logs.
type Engine interface {
	// Open opens a partition's log, and creates it if there is none. Opening a log that is open gives the same log with the new
	// epoch and config, unless its storage has failed since: then it is closed, and opened and recovered anew. An older epoch than
	// before is ErrFenced.
	Open(ctx context.Context, p Partition, leaderEpoch int32, c Config) (Log, error)
	// List returns the partitions that have a log, sorted by topic, then number.
	List(ctx context.Context) ([]Partition, error)
	// Delete closes a partition's log and removes its records. Deleting what does not exist is no error.
	Delete(ctx context.Context, p Partition) error
	// Close closes every log. What was appended is on disk when it returns.
	Close() error
}

// Log is the log of one partition. Its methods may be called from several goroutines.
type Log interface {
	// Append appends one or more whole batches in one piece and returns the offset of its first record. It sets the base offset and the leader epoch in
	// batches, which belongs to Append until it returns, and checks every length and CRC-32C before it writes anything. A batch that an idempotent producer
	// sends again is not appended again: its first offset is returned. With Config.LogAppendTime it also sets bit 3 of a batch's attributes and, for the time
	// at which it was appended, the max timestamp: in a batch that was sent again those of the one that is in the log, whatever the Config is now.
	Append(ctx context.Context, batches []byte, d Durability) (base int64, err error)
	// AppendThen is Append for whoever does not wait: it calls done once, perhaps before it returns, with what Append would return. batches belongs to
	// the log until then. Appends that are begun one after the other are done in that order in the log. done must not block.
	AppendThen(batches []byte, d Durability, done func(base int64, err error))
	// Read returns whole batches from the one that holds offset on, up to the high watermark. It returns at most maxBytes, but at least one
	// batch where there is one, and none at the high watermark. The caller closes them. The first batch may start below offset, and, where
	// compaction has removed the record at offset, above it.
	Read(ctx context.Context, offset int64, maxBytes int) (Batches, error)
	// OffsetForTime returns the first record whose timestamp is ts (milliseconds since 1970) or later, with its timestamp; ok is false
	// where there is none.
	OffsetForTime(ctx context.Context, ts int64) (offset, timestamp int64, ok bool, err error)
	// StartOffset is the offset of the oldest record, or EndOffset where there is none.
	StartOffset() int64
	// HighWatermark is the offset after the newest record that is stored, as Config.Flush has it. Readers see nothing beyond it.
	HighWatermark() int64
	// EndOffset is the offset that the next record gets.
	EndOffset() int64
	// Trim removes the records below offset from the reader's view, and their segments when all of one is below it.
	Trim(ctx context.Context, offset int64) error
	// Size is the number of bytes of the log.
	Size() int64
	// Subscribe makes the log send on c, without blocking, whenever its high watermark grows or it is closed. cancel ends that.
	Subscribe(c chan<- struct{}) (cancel func())
}

// EpochLog is a Log that knows of its leader epochs. A log whose leader never changes need not.
type EpochLog interface {
	Log
	// Epochs returns the leader epochs in which the log was opened, where each began: ascending, the last one the log's own. Of those that ended before the log's
	// start the last one alone need be there. It is empty where nothing is known.
	Epochs() []EpochStart
}

// EpochStart is a leader epoch, and the offset of the first record that was, or is to be, appended in it.
type EpochStart struct {
	Epoch  int32
	Offset int64
}
