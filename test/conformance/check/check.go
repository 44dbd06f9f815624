// SPDX-License-Identifier: Apache-2.0

// Package check is what the runner and the checks that are written in Go share: the names of the checks, the data that every client writes
// and reads, and the lines in which a client's program says what passed.
//
// A client's program is called with a bootstrap address and a prefix for the names of its topics and groups, which no other program has. It
// prints a Client, then a Result for each check, each as a line of JSON, and ends with 0 whatever the results; anything else is the
// program's own failure. A check that the client cannot do is a Result with a reason in Skip.
package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"
)

// NoConsumerProtocol is why a client cannot do what KIP-848 has brought.
const NoConsumerProtocol = "the client has no KIP-848"

// The checks, in the order of the table in docs/clients.md.
const (
	AcksNone          = "produce acks=0"
	AcksLeader        = "produce acks=1"
	AcksAll           = "produce acks=all"
	CompressionNone   = "compression none"
	CompressionGzip   = "compression gzip"
	CompressionSnappy = "compression snappy"
	CompressionLz4    = "compression lz4"
	CompressionZstd   = "compression zstd"
	Order             = "order and offsets"
	SeekOffset        = "seek by offset"
	SeekTime          = "seek by time"
	LargeRecord       = "large record"
	Idempotent        = "idempotent producer"
	Transactional     = "transactional id refused"
	AutoCreate        = "auto-created topic"
	UnknownTopic      = "unknown topic"
	GroupNeverSeen    = "group never seen"
	GroupCommit       = "group commits"
	GroupRebalance    = "group rebalance"
	GroupDescribe     = "describe group"
	Lag               = "lag"
	GroupDelete       = "delete group"
	GroupAdminister   = "administer KIP-848 group"
	TopicCreate       = "create topic"
	TopicCreateAgain  = "create topic again"
	TopicDescribe     = "describe topic"
	PartitionsAdd     = "add partitions"
	ConfigsDescribe   = "describe configs"
	ConfigsAlter      = "alter configs"
	RecordsDelete     = "delete records"
	TopicDelete       = "delete topic"
	Advertised        = "advertised address"
)

// The checks in which several members share a group while clients come and go (package groups), in the order of the table.
const (
	GroupEager          = "group eager"
	GroupCooperative    = "group cooperative"
	GroupStatic         = "group static"
	GroupConsumer       = "group KIP-848, uniform"
	GroupConsumerRange  = "group KIP-848, range"
	GroupConsumerStatic = "group KIP-848, static"
	GroupPattern        = "group KIP-848, pattern"
	GroupMigration      = "group from classic to KIP-848 and back"
	RestartClassic      = "coordinator restart, classic"
	RestartConsumer     = "coordinator restart, KIP-848"
	ManagedEager        = "managed group, eager"
	ManagedCooperative  = "managed group, cooperative"
	ManagedConsumer     = "managed group, KIP-848"
)

// Groups are the checks of package groups.
var Groups = []string{
	GroupEager, GroupCooperative, GroupStatic, GroupConsumer, GroupConsumerRange, GroupConsumerStatic, GroupPattern, GroupMigration,
	RestartClassic, RestartConsumer, ManagedEager, ManagedCooperative, ManagedConsumer,
}

// Checks are what every client is asked to do.
var Checks = []string{
	AcksNone, AcksLeader, AcksAll, CompressionNone, CompressionGzip, CompressionSnappy, CompressionLz4, CompressionZstd,
	Order, SeekOffset, SeekTime, LargeRecord, Idempotent, Transactional, AutoCreate, UnknownTopic,
	GroupNeverSeen, GroupCommit, GroupRebalance, GroupDescribe, Lag, GroupDelete, GroupAdminister,
	TopicCreate, TopicCreateAgain, TopicDescribe, PartitionsAdd, ConfigsDescribe, ConfigsAlter, RecordsDelete, TopicDelete,
}

// The traps that clients have fallen into, in the order of the table: what program wire asks byte by byte.
const (
	TrapAPIVersions     = "ApiVersions of an unknown version gets version 0, error 35 and the whole key list"
	TrapProduceFetch    = "Produce 3 and Fetch 4 are both offered, so that librdkafka uses record batches"
	TrapRelease         = "kafka-python guesses one real release from the versions that are offered, 2.5 or later"
	TrapNodeIDs         = "node ids begin at 1, and the controller is one of the brokers"
	TrapProducerID      = "InitProducerId without a transactional id gives a producer id"
	TrapTransactional   = "InitProducerId with a transactional id is refused, not retried for ever"
	TrapOffsetFetch     = "OffsetFetch of a group never seen gives -1 per partition and no error"
	TrapTimeCompressed  = "a time is found in the middle of a compressed batch"
	TrapUnknownKey      = "a request of an unknown key ends its own connection only"
	TrapFirstBatchLarge = "a fetch of one byte still gets a whole batch"
	TrapDuplicate       = "a batch sent twice by an idempotent producer is stored once, and has its first offset"
	TrapSequenceGap     = "a gap in an idempotent producer's sequence is refused with OUT_OF_ORDER_SEQUENCE_NUMBER"
	TrapChecksum        = "a batch with a wrong checksum is refused with CORRUPT_MESSAGE"
	TrapHugeFrame       = "a frame of 2 GB that is announced ends its own connection only"
)

// Those of groups.
const (
	TrapLostJoin        = "JoinGroup and SyncGroup, sent again because the answer was lost, do not fence the member"
	TrapLostStaticJoin  = "a static member's JoinGroup, sent again because the answer was lost, makes no second member"
	TrapReturningLeader = "a static leader that returns is not told that it leads, or from JoinGroup 9 on that it need not plan (KIP-814)"
	TrapUnknownMember   = "KIP-848: a heartbeat of an unknown member gets UNKNOWN_MEMBER_ID"
	TrapWrongEpoch      = "KIP-848: a heartbeat in another epoch than the member's gets FENCED_MEMBER_EPOCH"
	TrapLostAnswer      = "KIP-848: a heartbeat, sent again because the answer was lost, is answered once more, and makes no second member"
	TrapBadHeartbeat    = "KIP-848: a heartbeat that lacks what it must say gets INVALID_REQUEST"
	TrapStaleCommit     = "KIP-848: a commit in an epoch that is over, or of a partition that was lost, gets STALE_MEMBER_EPOCH"
	TrapKeptCommit      = "KIP-848: a commit that a new epoch overtakes is taken if the member has kept the partition (KIP-1251)"
	TrapBadPattern      = "KIP-848: a pattern that is none gets INVALID_REGULAR_EXPRESSION"
	TrapBadAssignor     = "KIP-848: an assigner that there is not gets UNSUPPORTED_ASSIGNOR"
	TrapStaticReturn    = "KIP-848: a static member that leaves and returns has what it had, in the same epoch, and nobody else is told"
	TrapUsedInstance    = "KIP-848: an instance id that is in use gets UNRELEASED_INSTANCE_ID"
	TrapNotMigratable   = "KIP-848: a classic member of another protocol type gets INCONSISTENT_GROUP_PROTOCOL, one without a subscription is refused"
	TrapDescribeOther   = "KIP-848: groups are listed and described by their type, and not found by the other one's request"
	TrapDeleteUsed      = "KIP-848: a group, or an offset, that is in use is not deleted"
)

// What Apache Kafka's command-line tools are asked for besides.
const (
	ToolReset        = "kafka-consumer-groups --reset-offsets"
	ToolProducerPerf = "kafka-producer-perf-test"
	ToolConsumerPerf = "kafka-consumer-perf-test"
	ToolOffsets      = "kafka-get-offsets"
	ToolLogDirs      = "kafka-log-dirs"
	ToolAPIVersions  = "kafka-broker-api-versions"
)

// Tools are the checks of the command-line tools alone.
var Tools = []string{ToolReset, ToolProducerPerf, ToolConsumerPerf, ToolOffsets, ToolLogDirs, ToolAPIVersions}

// Traps are what program wire checks; TrapRelease is kafka-python's.
var Traps = []string{
	TrapAPIVersions, TrapProduceFetch, TrapRelease, TrapNodeIDs, TrapProducerID, TrapTransactional, TrapOffsetFetch, TrapTimeCompressed,
	TrapFirstBatchLarge, TrapDuplicate, TrapSequenceGap, TrapChecksum, TrapUnknownKey, TrapHugeFrame,
	TrapLostJoin, TrapLostStaticJoin, TrapReturningLeader, TrapUnknownMember, TrapWrongEpoch, TrapLostAnswer, TrapBadHeartbeat, TrapStaleCommit, TrapKeptCommit,
	TrapBadPattern, TrapBadAssignor, TrapStaticReturn, TrapUsedInstance, TrapNotMigratable, TrapDescribeOther, TrapDeleteUsed,
}

// Client is a program's first line: which client it is, and the client's own version.
type Client struct {
	Client  string `json:"client"`
	Version string `json:"version"`
}

// Result is what became of one check.
type Result struct {
	// Check is one of the names above.
	Check string `json:"check"`
	// OK is whether it passed.
	OK bool `json:"ok"`
	// Skip is why the client cannot do it; OK says nothing then.
	Skip string `json:"skip,omitempty"`
	// Detail says what was wrong.
	Detail string `json:"detail,omitempty"`
}

// Show prints the result for people.
func (r Result) Show() {
	switch {
	case r.Skip != "":
		fmt.Printf("   -    %s: %s\n", r.Check, r.Skip)
	case r.OK:
		fmt.Printf("   ok   %s\n", r.Check)
	default:
		fmt.Printf("   FAIL %s: %s\n", r.Check, r.Detail)
	}
}

// limit is how long one check may take. It is for a client that hangs: most take less than a second.
const limit = 2 * time.Minute

// Program runs checks and prints what became of them.
type Program struct {
	// Bootstrap is the address to begin with, HOST:PORT.
	Bootstrap string
	// Prefix begins the name of every topic and group.
	Prefix string

	out *json.Encoder
}

// Start reads the command line and prints the first line. It ends the program if the command line is wrong.
func Start(client, version string) *Program {
	if len(os.Args) != 3 {
		fmt.Fprintf(os.Stderr, "usage: %s BOOTSTRAP PREFIX\n", os.Args[0])
		os.Exit(2)
	}
	p := &Program{Bootstrap: os.Args[1], Prefix: os.Args[2], out: json.NewEncoder(os.Stdout)}
	p.print(Client{Client: client, Version: version})
	return p
}

// Name is a topic's or group's full name.
func (p *Program) Name(of string) string { return p.Prefix + "-" + of }

// Run runs one check.
func (p *Program) Run(name string, f func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	r := Result{Check: name, OK: true}
	if err := protect(ctx, f); err != nil {
		r.OK, r.Detail = false, err.Error()
	}
	p.print(r)
}

// Skip says that the client cannot do a check.
func (p *Program) Skip(name, why string) { p.print(Result{Check: name, Skip: why}) }

// print prints a line; nobody is left to tell where that fails.
func (p *Program) print(line any) {
	if err := p.out.Encode(line); err != nil {
		fmt.Fprintln(os.Stderr, "print a result:", err)
		os.Exit(1)
	}
}

// protect calls f, and gives up on it when its time is over: not every client takes a context.
func protect(ctx context.Context, f func(ctx context.Context) error) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				done <- fmt.Errorf("panic: %v", v)
			}
		}()
		done <- f(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done: // a client that takes a context says more
		return err
	case <-time.After(2 * time.Second):
		return errors.New("no end after " + limit.String())
	}
}

// Await calls f until it returns nil or the time is over, and returns what it said last. It is for what a cluster of brokers takes a moment
// to agree on: a topic that one of them has just created, say.
func Await(ctx context.Context, f func() error) error {
	begin := time.Now()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("still after %s: %w", time.Since(begin).Round(time.Second), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Refused is what a transactional id must meet: an error that is not the end of the time.
func Refused(err error) error {
	switch {
	case err == nil:
		return errors.New("a transactional id was accepted")
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		return fmt.Errorf("no refusal, but %w", err)
	}
	return nil
}

// ModuleVersion is the version of a module that the program was built with.
func ModuleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return strings.TrimPrefix(m.Version, "v")
		}
	}
	return "unknown"
}

// Exists is what the creation of a topic that is there already must meet.
func Exists(err error) error {
	switch {
	case err == nil:
		return errors.New("the topic was created a second time")
	case strings.Contains(strings.ToLower(strings.ReplaceAll(err.Error(), "_", " ")), "already exists"):
		return nil
	}
	return fmt.Errorf("want TOPIC_ALREADY_EXISTS, not %w", err)
}

// Why is an error in a message: none where it is nil.
func Why(err error) string {
	if err == nil {
		return "none"
	}
	return err.Error()
}
