// SPDX-License-Identifier: Apache-2.0

package assigner

import (
	"cmp"
	"slices"
)

// start deals out partitions when nobody had any: of each kind, a class of columns gets a part as large as its part of the room that is left, so that
// no kind ends up with few members. All arcs to columns have the same price then, so that any beginning is as good; the potentials
// make that price 0. What does not fit is left to run.
func (n *network) start() {
	kinds := int32(len(n.readers))
	for v := kinds; v <= n.drain(); v++ {
		n.potential[v] = n.move
	}
	room, turn := make([]int64, len(n.columns)), make([]int, len(n.columns))
	for col, c := range n.class {
		room[c] += int64(max(0, -n.excess[n.column(int32(col))]))
	}
	for k, readers := range n.readers {
		total, count := int64(0), int64(n.excess[k])
		for _, r := range readers {
			total += room[r.class]
		}
		for _, r := range readers {
			if room[r.class] == 0 {
				continue
			}
			part := min(room[r.class], count*room[r.class]/total)
			columns := n.columns[r.class]
			for left := part; left > 0; {
				col := columns[turn[r.class]]
				if node := n.column(col); n.excess[node] < 0 {
					n.has[n.row[col]+int(r.place)]++
					n.excess[node]++
					left--
				}
				turn[r.class] = (turn[r.class] + 1) % len(columns)
			}
			room[r.class] -= part
			n.excess[k] -= int32(part)
		}
	}
}

// mix lets the members of a class, and a zone, exchange what they newly get, so that each gets some of every kind. It costs nothing: their loads
// stay, and nobody gets more of what it gave up, for that would have been a better flow.
func (n *network) mix() {
	for _, columns := range n.columns {
		if n.zoned {
			columns = slices.Clone(columns)
			slices.SortStableFunc(columns, func(a, b int32) int { return cmp.Compare(n.columnZone[a], n.columnZone[b]) })
		}
		for len(columns) > 0 {
			same := 1
			for same < len(columns) && (!n.zoned || n.columnZone[columns[same]] == n.columnZone[columns[0]]) {
				same++
			}
			n.mixColumns(columns[:same])
			columns = columns[same:]
		}
	}
}

// mixColumns takes from columns of one class what they newly get, and deals it out again, a kind after the other, to those that got most first.
func (n *network) mixColumns(columns []int32) {
	type taker struct{ column, need int32 }
	var takers []taker
	extra := make([]int32, len(n.kindsOf[n.class[columns[0]]]))
	for _, col := range columns {
		need := int32(0)
		for place := range extra {
			entry := n.row[col] + place
			if more := n.has[entry] - n.had[entry]; more > 0 {
				n.has[entry] -= more
				extra[place] += more
				need += more
			}
		}
		if need > 0 {
			takers = append(takers, taker{col, need})
		}
	}
	slices.SortStableFunc(takers, func(a, b taker) int { return cmp.Compare(b.need, a.need) })
	turn := 0
	for place, left := range extra {
		for range left {
			if turn == len(takers) || takers[turn].need == 0 {
				turn = 0
			}
			n.has[n.row[takers[turn].column]+place]++
			takers[turn].need--
			turn++
		}
	}
}
