// SPDX-License-Identifier: Apache-2.0

// Package local is the storage engine that keeps every partition as a segmented commit log in a directory of the broker's volume.
//
// # Files
//
//	LOCK                          held with flock while an engine is open
//	RESERVE                       room for what makes room on a full disk; given up for that, and made anew
//	<topic>-<partition>/          one directory for each partition; the number is decimal, without leading zeros
//	  00000000000000000000.log    a segment, named by its base offset (20 digits)
//	  <base>-<next>-<pass>.log    a segment that compaction made, named also by the base of the one after it (20 digits), and
//	                              by how often it was made anew (from 1, without leading zeros)
//	  <as its segment>.index      the index of a sealed segment
//	  <as its segment>.cleaned    a segment that compaction is making; removed at the next start
//	  <as the file>.tmp           a meta, synced, producers or compacted file that is not whole yet; removed at the next start
//	  meta                        leader epoch and start offset
//	  synced                      the mark: how much was on disk at the last fsync
//	  producers                   the idempotent producers at the base of the last segment
//	  compacted                   what compaction has done, where it has done anything
//	  clean                       the clean-shutdown marker, with the state of the active segment
//	deleted~<n>/                  a partition's directory that is being deleted; removed at the next start
//
// Topic names are Kafka's, [a-zA-Z0-9._-]{1,249} other than "." and "..", so the last '-' splits a directory's name. Other names are
// left alone. The last segment is the active one, which is appended to; the others are sealed and never change. The active one is sealed, and
// another started, before an append would bring it beyond Config.SegmentBytes (Options.SegmentBytes by default, 1 GiB at most), and when it has
// the age of Config.SegmentTime, counted from its first append or, where that is later, from when the log was opened: before the next append, or
// by the check of retention.
//
// All integers are big-endian. A CRC is a CRC-32C (Castagnoli) of all bytes of the file before it.
//
// # Segment
//
// Record batches of format v2, one after the other, as their producers made and compressed them. Two fields are the log's: the base
// offset, bytes 0 to 7, and the partition leader epoch, bytes 12 to 15. A batch's CRC-32C covers it from its attributes, byte 21, on,
// so that setting them leaves it valid. With storage.Config.LogAppendTime three more are: bit 3 of the attributes, the max timestamp, bytes 35
// to 42, which is then when the batch was appended, and the CRC. Every batch's base offset is the one after the last offset of the batch before
// it, and its record count one more than its last offset delta; not so in a segment that compaction made: see there.
//
// # Index
//
//	 0  8  "RMINDEX1"
//	 8  8  base offset
//	16  8  bytes of the segment
//	24  8  the offset after its last record; of a segment that compaction made, the base of the one after it
//	32  8  its max timestamp, milliseconds since 1970; -1: none
//	40  4  CRC
//	44  4  number of entries
//	48 24n entries, one for the first batch and for the first after every IndexIntervalBytes:
//	       8 base offset of the batch, 8 its position in the segment, 8 the max timestamp of all batches before it
//	..  4  CRC
//
// It is on disk before the next segment is made. One that is missing or does not fit its segment is made anew. The active segment's
// index is in memory.
//
// # Meta
//
//	 0  8  "RMMETA01"
//	 8  4  the newest leader epoch that opened the log
//	12  8  start offset: records below it are trimmed
//	20  4  CRC
//
// It is replaced by a rename. The start offset is on disk before a segment below it is removed.
//
// # Mark
//
//	 0  8  everything below this offset is on disk
//	 8  4  CRC
//	12 12  the same again; the one that says more holds
//
// One of the two in turn is overwritten in place after every fsync of the segment, so that a crash leaves the other whole. It is not synced itself:
// after a crash of the process the mark is exact, after one of the machine it may be older. It never says more than what was synced,
// whatever a topic's Flush is.
//
// # Producers
//
//	 0  8  "RMPRODS2"
//	 8  8  an offset: what follows is the state of all batches below it
//	16  4  number of producers, in the order of their ids, each:
//	       8 producer id, 2 epoch, 1 number of batches (0 to 5), and for each of these, the oldest first:
//	       4 first and 4 last sequence number, 8 first offset, 8 the offset after the last, 8 when the log appended it,
//	       milliseconds since 1970; -1: its timestamps are the producer's
//	..  4  CRC
//
// It is replaced by a rename whenever a segment is sealed, so that recovery finds the producers by reading no more than the last segments. Its offset
// is at most the one below which everything is on disk: it says nothing of what a crash may take. And no batch at or above its offset leaves the log
// before it is replaced, and the directory synced, be it by retention, a trim, a compaction or a recovery. So compaction may drop a
// producer's newest batch: what is known of the producer is here. (Only where this file is damaged is the producer then one that is not
// known: recovery takes nothing about producers from segments that were compacted.) Where the disk has lost what was on it, and the log ends
// below its offset, recovery makes it anew.
//
// # Compacted
//
//	 0  8  "RMCOMPA1"
//	 8  8  tombstones below this offset were removed
//	16  8  how many tombstones the last pass has left
//	24  4  number of passes, the oldest first, each:
//	       8 the offset up to which it went, 8 when it ended, milliseconds since 1970
//	..  4  CRC
//
// It is replaced by a rename after every pass. One that is missing or damaged means no pass: compaction starts anew, and tombstones
// stay longer.
//
// # Clean-shutdown marker
//
//	 0  8  "RMCLEAN2"
//	 8  8  base offset of the active segment
//	16  8  its bytes
//	24  8  the offset after its last record
//	32  8  its max timestamp; -1: none
//	40  4  number of index entries, then these, as in an index
//	..  4  number of producers, then these, as in producers
//	..  4  CRC
//
// It is written last when a log is closed, and removed, and the directory synced, before a segment is written again. A start that finds
// it reads no segment.
//
// # Recovery
//
// Without the marker the last segment is read whole, and those before it that are not sealed yet: they have no index, and end above the mark.
// Each batch must have a sound header, a matching CRC and the offset that follows.
//
//   - The torn tail, which is cut off, is what follows the last sound batch of the last segment, or of the first one that does not reach
//     the next; the segments behind that are removed. Where an unsound batch has sound ones
//     behind it, and begins at or above the mark, the tail begins there: a crash of the machine may keep a later write and lose an
//     earlier one, and none of them was acknowledged.
//   - Any other unsound bytes are damage: in a sealed segment, or below the mark, or where there is no mark. They stay, are reported
//     with file, byte and offsets (storage.ErrDamaged), and are never served; everything around them is.
//
// What is above the mark is then written again and synced, because after a failed fsync Linux may hold pages as clean that are not on
// disk. So everything that is served after a recovery is on disk. Sealed segments are not read: damage there shows when it is read.
//
// Of two segments that overlap, the one of the higher pass was made of the other, which is removed. Where the last segment is one
// that compaction made, the active one was lost, and a new one takes its place.
//
// # Flush
//
// With storage.FlushSync a batch is stored, and readers see it, when it is on disk: the high watermark is what is synced. With storage.FlushOS
// it is stored when it is written. Then the segment is synced 10 s after the first write that was not (Options.FlushInterval), when it is
// full, and when the log is closed. Who starts a new segment does not wait for that: up to 8 segments may not be sealed yet, and are sealed
// in order, each after the directory is synced too, before anything behind it is. A crash of the process loses nothing. One of the machine may
// lose what is above the mark, acknowledged and served though it was: the log then ends earlier, with a whole batch, and gives the offsets to
// other records. When a topic goes from FlushOS to FlushSync, everything is on disk once the next append is acknowledged.
//
// # Reading
//
// Every read checks each batch that it returns: header, CRC-32C, and that its offset follows from the index. So no damaged byte is
// served, at a cost of less than 0.1 ms for each MiB.
//
// # Compaction
//
// A topic with storage.Config.Compact keeps, of the records with the same key, the newest. Records without a key, which came while the topic was not
// compacted, stay (Kafka drops them). Retention goes on as the config says, so that Compact with RetentionTime or RetentionBytes is Kafka's
// "compact,delete".
//
// Sealed segments alone are compacted, so all that is compacted is on disk and below the high watermark. A log is compacted when half of its
// bytes came since its last compaction, or tombstones have become due. Its active segment is sealed for that when it has 1 MiB, or an hour
// after it began. The engine looks every 15 s, as Kafka does; Engine.Compact does it all at once. One log is compacted at a time.
//
// A pass reads the keys of what has come since the last one into a map of their hashes (128 bits) and newest offsets, of 128 MiB at most
// (Options.CompactionMemoryBytes); what does not fit is left to another pass. Then it goes through all segments from the oldest on, and takes out
// every record of whose key the map has a newer one. A batch that loses some is made anew, in its compression: its length, its record count, its
// max timestamp (the newest of what is left) and its CRC change, all else stays, the other records byte for byte. A batch that loses all
// goes. So a segment that compaction made has gaps between batches, and in them: a batch's last offset delta is its record count less one, or more.
// The log's newest record on disk stays in any case, so that a reader from any offset on comes to the log's end.
//
// A tombstone goes in the first pass that comes Config.TombstoneRetention or more after the first one that had gone beyond it: since then nothing
// older of its key was left, and readers had that time to see it (KIP-534 does the same by a time in every batch).
//
// What cannot be looked into stays as it is, and so do the tombstones behind it: control batches, batches that cannot be decompressed or have more
// than 64 MiB when they are, and segments with damage, whole, so that the damage is still reported.
//
// Neighbours that together have no more than a segment's bytes become one segment. The new segment is written under its name with the ending
// .cleaned, and synced; its index is written and synced; the producers file is made to cover it; then it is renamed, and the directory synced.
// From then on it stands for the old ones, whose offsets its name covers, and they are removed; readers that have them open read on. A segment of
// which nothing goes, and that has no neighbour to merge with, is not written again. Where the disk is full the new segment is given up, and the
// next check tries again.
//
// # Appending
//
// Before anything is written, every batch must have: 61 bytes at least, and as many as it says; format v2; a matching CRC-32C; a record
// count above 0 and a last offset delta of one less; at most Config.MaxBatchBytes; a known compression; no control or transactional
// attribute; and, where it is not compressed, records that fill it exactly. Compressed records are not looked into, unless the topic is
// compacted: then every record must have a key and its offset delta, which takes decompressing at most 64 MiB for each batch, two batches at a time;
// a larger one is refused.
//
// An idempotent producer's last five batches are known: one that comes again is answered with its first offset. A producer that is not
// known may begin at any sequence number, as in Kafka, where its state may have expired (24 hours after its last append).
//
// A full disk is storage.ErrFull: what was written of the batch is cut off, and appends work again when there is room. After any other
// failed write or a failed fsync the log takes no appends until Engine.Open opens it again; what was on disk is still read.
package local
