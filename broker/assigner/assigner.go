// SPDX-License-Identifier: Apache-2.0

// Package assigner decides which member of a consumer group reads which partitions.
//
// Every assigner is pure: the same input gives the same output, byte for byte, whatever the order of the input. The package
// imports the standard library alone.
package assigner

// Partition is a partition of a topic.
type Partition struct {
	Topic     string
	Partition int32
}

// Member is a member of a group.
type Member struct {
	// ID identifies the member within the group.
	ID string
	// Topics are the topics that the member reads, in any order.
	Topics []string
	// Zone is where the member runs, empty if that is not known.
	Zone string
}

// Assignment holds the partitions of each member, by member id. A member without partitions is present with none.
// Partitions are sorted by topic, then number.
type Assignment map[string][]Partition

// Input is what an assignment is computed from.
type Input struct {
	// Members are the members, in any order; ids must be unique.
	Members []Member
	// Partitions holds the number of partitions of each topic. A topic that a member reads and that is not here has none.
	Partitions map[string]int32
	// Previous is the assignment to start from, nil for none. It may name members and partitions that no longer exist, and even name a
	// partition twice; what does not hold any more is ignored, and of two owners the one with the smaller id counts.
	Previous Assignment
	// Weights holds how much work each partition is, by topic and number, such as its byte rate or lag; nil if all are the same. A partition
	// beyond a slice's end, or of a topic that is not here, weighs as much as the others on average. See Quantize. ConsistentHash and
	// Sticky balance the members' weights instead of their numbers of partitions; the others ignore them.
	Weights map[string][]int64
	// Zones holds the zone of each partition's leader, by topic and number; an empty one, or one beyond the slice's end, is not known. Among
	// plans of equal balance and moves, ConsistentHash and Sticky take one in which the most partitions have their leader in their owner's
	// zone. The others ignore it, and so do these where partitions differ in weight.
	Zones map[string][]string
}

// Assigner computes assignments.
type Assigner interface {
	// Name is the assigner's name, as in ConsumerGroup.spec.assigner.
	Name() string
	// Assign gives every partition that a member reads exactly one owner among the members that read its topic.
	Assign(in Input) Assignment
}
