// SPDX-License-Identifier: Apache-2.0

// Package member is how the checks of groups run a client as a member of a group: in a process of its own, which can be killed, so that members of
// several clients can share one group.
//
// A client's program is called with a bootstrap address, a prefix, and a Config as JSON. It joins the group, reads, and commits after each batch. It
// prints an Event for whatever happens to it, each as a line of JSON, until its standard input ends; then it leaves the group as the client leaves by
// itself when it is closed, and ends with 0.
package member

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// The protocols of a group.
const (
	// Eager is the classic protocol; every rebalance takes all partitions from all members.
	Eager = "eager"
	// Cooperative is the classic protocol with KIP-429: a rebalance takes only what moves.
	Cooperative = "cooperative"
	// Consumer is the protocol of KIP-848.
	Consumer = "consumer"
)

// Config is what a member is to do.
type Config struct {
	// Group is the group's id.
	Group string `json:"group"`
	// Topics are what it subscribes to; where Pattern is not empty, it subscribes to the topics that match it.
	Topics  []string `json:"topics"`
	Pattern string   `json:"pattern"`
	// Protocol is one of the above.
	Protocol string `json:"protocol"`
	// Assignor is the name of the coordinator's assigner that a member asks for (Consumer alone); empty for none.
	Assignor string `json:"assignor"`
	// Instance is its group.instance.id; empty for none.
	Instance string `json:"instance"`
	// ClientID is its client.id; empty for one that the program has chosen, or the client.
	ClientID string `json:"client_id"`
	// SessionMillis and HeartbeatMillis are in milliseconds. They are a classic member's own; with KIP-848 the coordinator says them. Where they are 0 the
	// client has its own defaults of these, and of the times between its requests.
	SessionMillis   int `json:"session_ms"`
	HeartbeatMillis int `json:"heartbeat_ms"`
	// CommitMillis, if not 0, is about how many milliseconds it waits between commits of a partition that it has, one after the other, with nothing to read. It
	// prints a Timed for each.
	CommitMillis int `json:"commit_ms"`
}

// The kinds of events.
const (
	// Assigned partitions have come to the member, Revoked ones are about to go, Lost ones have gone.
	Assigned = "assigned"
	Revoked  = "revoked"
	Lost     = "lost"
	// Read says that records were read, Committed that a commit was acknowledged.
	Read      = "read"
	Committed = "committed"
	// Timed says how long a commit took.
	Timed = "timed"
	// Failed is an error that the client gave to the program.
	Failed = "error"
)

// Partition is a topic and the number of one of its partitions.
type Partition struct {
	Topic  string `json:"topic"`
	Number int32  `json:"partition"`
}

// Event is what happened to a member.
type Event struct {
	// Time is in microseconds since 1970, of this machine's clock.
	Time int64 `json:"time"`
	// Kind is one of the above.
	Kind string `json:"event"`
	// Partitions are those of Assigned, Revoked and Lost.
	Partitions []Partition `json:"partitions,omitempty"`
	// Partition is that of Read and Committed.
	Partition
	// First and Last are the offsets of the records that were read.
	First int64 `json:"first"`
	Last  int64 `json:"last"`
	// Next is the offset that was committed.
	Next int64 `json:"next"`
	// Micros is how many microseconds the commit of Timed took.
	Micros int64 `json:"micros,omitempty"`
	// Member and Generation are the member's id and generation, or epoch, where the client says them; else empty and 0.
	Member     string `json:"member,omitempty"`
	Generation int32  `json:"generation,omitempty"`
	// Error is the client's error.
	Error string `json:"error,omitempty"`
}

// At is when the event was.
func (e Event) At() time.Time { return time.UnixMicro(e.Time) }

// Output prints a member's events. Its methods may be called by several goroutines.
type Output struct {
	mu  sync.Mutex
	out *json.Encoder
}

// Asked returns what a program is asked to do as a member, and nil where it is asked for its checks. It ends the program if that cannot be read.
func Asked() *Config {
	if len(os.Args) != 4 {
		return nil
	}
	c := &Config{}
	if err := json.Unmarshal([]byte(os.Args[3]), c); err != nil {
		fmt.Fprintln(os.Stderr, "read what the member is to do:", err)
		os.Exit(2)
	}
	return c
}

// NewOutput returns what prints to standard output.
func NewOutput() *Output { return &Output{out: json.NewEncoder(os.Stdout)} }

// Print prints an event with the time of now.
func (o *Output) Print(e Event) {
	if err := o.encode(e); err != nil {
		fmt.Fprintln(os.Stderr, "print an event:", err)
		os.Exit(1)
	}
}

func (o *Output) encode(e Event) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	e.Time = time.Now().UnixMicro() // under the lock, so that times do not fall
	return o.out.Encode(e)
}

// Moved prints that partitions came or went.
func (o *Output) Moved(kind string, topics map[string][]int32) {
	e := Event{Kind: kind}
	for topic, partitions := range topics {
		for _, p := range partitions {
			e.Partitions = append(e.Partitions, Partition{topic, p})
		}
	}
	o.Print(e)
}

// Fail prints an error.
func (o *Output) Fail(err error) { o.Print(Event{Kind: Failed, Error: err.Error()}) }

// AwaitLeave returns when the member is to leave.
func AwaitLeave() {
	_, _ = io.Copy(io.Discard, os.Stdin) // however it ends, nobody needs the member any more
}
