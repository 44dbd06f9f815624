// SPDX-License-Identifier: Apache-2.0

// Package redis is the storage engine that keeps every partition's log in Redis or Valkey: one server, a primary that Sentinel watches, or a cluster.
//
// docs/redis.md has the keys and their fields, what a log needs in memory, and what can be lost; docs/adr/0014-logs-in-redis-are-streams.md says why it is so.
//
// # Ownership
//
// Whoever opens a log becomes its owner: leader epoch and a name that is given once, both of which every script compares with the log's meta. The owner alone knows the
// log's end, its producers and its index without asking, so it can decide about offsets and sequence numbers before it asks, and Redis checks that it is right. A log
// that another has opened is storage.ErrFenced for whatever would change it, until Engine.Open takes it again; one that another has deleted is storage.ErrClosed, and
// no append makes it anew.
//
// Where an answer is lost, or Redis is found to have something else than is known (a failover has lost the log's end), the log is in doubt: appends are
// storage.ErrUnavailable, and the log is opened again under a new name, with backoff, until that succeeds. What was sent under the old name and comes late is refused.
// Reads go on meanwhile.
//
// # What is stored
//
// A batch is stored when Redis has answered, whatever storage.Config.Flush says: that is the server's appendfsync. With Options.MinReplicas an append that waits for
// storage.Synced waits for the replicas too, and is storage.ErrNotReplicated where they are late; readers see the batch in any case.
//
// # Reading
//
// A read asks for about as many batches as go into the bytes that are wanted, from what batches have on average. Where they differ so much that this could be more than
// four times as many bytes, a script counts them. Every batch is checked: header, length, offsets, CRC-32C. There are no segments; retention goes by the entries of the
// index.
//
// # Compaction
//
// A log with storage.Config.Compact is compacted as in package local: when half of its bytes came since the last time, or tombstones have become due. The new log is
// made beside the old one, of what the owner sends and, for runs of batches that stay as they are, of their ids alone. A last script adds what was appended meanwhile
// and puts the new log in the place of the old one. Where nothing is to be removed nothing is made.
package redis
