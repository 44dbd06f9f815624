// SPDX-License-Identifier: Apache-2.0

package assigner

import "math"

// network is the flow problem of a group whose members do not all read the same topics, or prefer a zone. Partitions come from kinds (of
// which any two partitions have the same possible owners), go to columns, which are members, or all members of a subscription
// taken together, and end in the drain. A column takes as many of a kind as it likes, and from lo to hi in all.
//
// The price of a partition is lexicographic: a column that gets more of a kind than it had pays move for each, and 1 for each that is in
// another zone. run finds a flow of the least price with the primal-dual method: shortest distances from where partitions are too many to
// where they are too few (Dijkstra, over prices made non-negative by potentials), then a maximum flow over all shortest paths
// (Dinic), and so on (Ahuja, Magnanti, Orlin: Network Flows, 1993, section 9.8). Distances are few: a path is as long as the
// partitions that it moves are many.
type network struct {
	// readers holds, by kind, the classes of columns that may take it; kindsOf is its inverse, ascending.
	readers [][]reader
	kindsOf [][]int32
	// class holds each column's class, columns each class's columns in the order in which they are tried.
	class   []int32
	columns [][]int32
	// row holds where a column's entries of had and has begin: one for each kind of its class.
	row []int
	// had is how many of a kind a column had, has how many it gets. Invariant: neither is negative.
	had, has []int32
	// lo and hi bound what a column takes; drained is what it sends to the drain. Invariant: lo ≤ drained ≤ hi.
	lo, hi, drained []int32
	// excess is, by node, what came in and did not go out; run ends when none is left that can go anywhere.
	excess []int32
	// kindZone and columnZone are the zones, if zoned is set.
	zoned                bool
	kindZone, columnZone []int32
	// move is the price of a move: more than all zones can cost.
	move int64

	potential []int64
	search    search
}

// reader is a class of columns that may take a kind, and the kind's place among the class's kinds.
type reader struct{ class, place int32 }

// search is the working memory of run.
type search struct {
	dist    []int64
	level   []int32
	at      []cursor
	queue   []int32
	heap    []reached
	settled []bool
}

// cursor is how far a node's arcs were tried in a maximum flow.
type cursor struct{ outer, inner int32 }

// reached is a node and a distance at which it was reached.
type reached struct {
	dist int64
	node int32
}

// newNetwork returns a network without partitions; kindsOf holds the kinds that each class may take, ascending.
func newNetwork(kinds int, kindsOf [][]int32, class []int32) *network {
	n := &network{
		readers: make([][]reader, kinds), kindsOf: kindsOf,
		class: class, columns: make([][]int32, len(kindsOf)),
		row: make([]int, len(class)),
		lo:  make([]int32, len(class)), hi: make([]int32, len(class)), drained: make([]int32, len(class)),
		excess: make([]int32, kinds+len(class)+1),
		move:   1,
	}
	for c, list := range kindsOf {
		for place, k := range list {
			n.readers[k] = append(n.readers[k], reader{int32(c), int32(place)})
		}
	}
	entries := 0
	for col, c := range class {
		n.columns[c] = append(n.columns[c], int32(col))
		n.row[col] = entries
		entries += len(kindsOf[c])
	}
	n.had, n.has = make([]int32, entries), make([]int32, entries)
	nodes := len(n.excess)
	n.potential = make([]int64, nodes)
	n.search = search{
		dist: make([]int64, nodes), level: make([]int32, nodes), at: make([]cursor, nodes),
		queue: make([]int32, 0, nodes), settled: make([]bool, nodes),
	}
	return n
}

// column and drain return the nodes of a column and of the drain; a kind's node is its number.
func (n *network) column(col int32) int32 { return int32(len(n.readers)) + col }
func (n *network) drain() int32           { return int32(len(n.excess)) - 1 }

// prefer makes the network prefer columns in a kind's zone. It is called before run, while nobody has more than before. Taking back a
// partition of another zone earns 1, and no arc may begin with a price below zero: hence the potentials.
func (n *network) prefer(kindZone, columnZone []int32, partitions int) {
	n.zoned, n.kindZone, n.columnZone = true, kindZone, columnZone
	n.move = int64(partitions) + 2
	for k := range n.readers {
		n.potential[k] = -1
	}
}

// apart is 1 if a column is in another zone than a kind, which has one.
func (n *network) apart(k, col int32) int64 {
	if !n.zoned || n.kindZone[k] == none || n.kindZone[k] == n.columnZone[col] {
		return 0
	}
	return 1
}

// give returns how many partitions a column can take of a kind at the present price, and that price.
func (n *network) give(k, col int32, entry int) (room int32, price int64) {
	if free := n.had[entry] - n.has[entry]; free > 0 {
		return free, n.apart(k, col)
	}
	return math.MaxInt32, n.move + n.apart(k, col)
}

// takeBack returns how many partitions a column can give back of a kind at the present price, and that price.
func (n *network) takeBack(k, col int32, entry int) (room int32, price int64) {
	if more := n.has[entry] - n.had[entry]; more > 0 {
		return more, -n.move - n.apart(k, col)
	}
	return n.has[entry], -n.apart(k, col)
}

// run lets the partitions flow until no excess is left, or what is left can go nowhere.
func (n *network) run() {
	for n.distances() {
		for n.levels() {
			for v := range n.excess {
				if n.excess[v] > 0 {
					n.excess[v] -= n.push(int32(v), n.excess[v])
				}
			}
		}
	}
}

// arcs calls visit with every arc out of a node that has room, and its price less the potentials, until visit returns false.
func (n *network) arcs(v int32, visit func(to int32, price int64) bool) {
	kinds, drain := int32(len(n.readers)), n.drain()
	base := n.potential[v]
	switch {
	case v < kinds:
		for _, r := range n.readers[v] {
			for _, col := range n.columns[r.class] {
				_, price := n.give(v, col, n.row[col]+int(r.place))
				if !visit(kinds+col, price+base-n.potential[kinds+col]) {
					return
				}
			}
		}
	case v < drain:
		col := v - kinds
		if n.drained[col] < n.hi[col] && !visit(drain, base-n.potential[drain]) {
			return
		}
		for place, k := range n.kindsOf[n.class[col]] {
			if room, price := n.takeBack(k, col, n.row[col]+place); room > 0 && !visit(k, price+base-n.potential[k]) {
				return
			}
		}
	default:
		for col := range n.class {
			if n.drained[col] > n.lo[col] && !visit(kinds+int32(col), base-n.potential[kinds+int32(col)]) {
				return
			}
		}
	}
}

// distances computes the nodes' distances from those with too many partitions, and adds them to the potentials, so that arcs of shortest
// paths have the price 0. It reports whether a node with too few can be reached.
func (n *network) distances() bool {
	s := &n.search
	s.heap = s.heap[:0]
	for v := range s.dist {
		s.dist[v], s.settled[v] = math.MaxInt64, false
		if n.excess[v] > 0 {
			s.dist[v] = 0
			s.put(reached{0, int32(v)})
		}
	}
	nearest := int64(math.MaxInt64)
	for len(s.heap) > 0 {
		r := s.next()
		if r.dist > nearest {
			break
		}
		if s.settled[r.node] {
			continue
		}
		s.settled[r.node] = true
		if n.excess[r.node] < 0 {
			nearest = r.dist
		}
		n.arcs(r.node, func(to int32, price int64) bool {
			if d := r.dist + price; d < s.dist[to] {
				s.dist[to] = d
				s.put(reached{d, to})
			}
			return true
		})
	}
	if nearest == math.MaxInt64 {
		return false
	}
	for v := range s.dist {
		n.potential[v] += min(s.dist[v], nearest)
	}
	return true
}

// levels numbers the nodes by their distance in arcs of the price 0 from those with too many partitions, and reports whether one with too
// few was found.
func (n *network) levels() bool {
	s := &n.search
	s.queue = s.queue[:0]
	for v := range s.level {
		s.level[v], s.at[v] = none, cursor{}
		if n.excess[v] > 0 {
			s.level[v] = 0
			s.queue = append(s.queue, int32(v))
		}
	}
	found := false
	for i := 0; i < len(s.queue); i++ {
		v := s.queue[i]
		if n.excess[v] < 0 {
			found = true
		}
		n.arcs(v, func(to int32, price int64) bool {
			if price == 0 && s.level[to] == none {
				s.level[to] = s.level[v] + 1
				s.queue = append(s.queue, to)
			}
			return true
		})
	}
	return found
}

// push sends up to limit partitions from a node down the levels, and returns how many arrived where there are too few.
func (n *network) push(v, limit int32) int32 {
	pushed := int32(0)
	if n.excess[v] < 0 {
		pushed = min(limit, -n.excess[v])
		n.excess[v] += pushed
	}
	kinds, drain := int32(len(n.readers)), n.drain()
	at := &n.search.at[v]
	switch {
	case pushed == limit:
	case v < kinds:
		for ; int(at.outer) < len(n.readers[v]); at.outer, at.inner = at.outer+1, 0 {
			r := n.readers[v][at.outer]
			for columns := n.columns[r.class]; int(at.inner) < len(columns); at.inner++ {
				col := columns[at.inner]
				entry := n.row[col] + int(r.place)
				room, price := n.give(v, col, entry)
				got := n.step(v, kinds+col, price, min(room, limit-pushed))
				n.has[entry] += got
				if pushed += got; pushed == limit {
					return pushed
				}
			}
		}
	case v < drain:
		col := v - kinds
		list := n.kindsOf[n.class[col]]
		for ; int(at.outer) <= len(list); at.outer++ {
			var got int32
			if at.outer == 0 {
				got = n.step(v, drain, 0, min(n.hi[col]-n.drained[col], limit-pushed))
				n.drained[col] += got
			} else {
				k, entry := list[at.outer-1], n.row[col]+int(at.outer-1)
				room, price := n.takeBack(k, col, entry)
				got = n.step(v, k, price, min(room, limit-pushed))
				n.has[entry] -= got
			}
			if pushed += got; pushed == limit {
				return pushed
			}
		}
	default:
		for ; int(at.outer) < len(n.class); at.outer++ {
			col := at.outer
			got := n.step(v, kinds+col, 0, min(n.drained[col]-n.lo[col], limit-pushed))
			n.drained[col] -= got
			if pushed += got; pushed == limit {
				return pushed
			}
		}
	}
	return pushed
}

// step sends up to limit partitions along an arc if it leads one level down at the price 0.
func (n *network) step(from, to int32, price int64, limit int32) int32 {
	if limit <= 0 || n.search.level[to] != n.search.level[from]+1 || price+n.potential[from]-n.potential[to] != 0 {
		return 0
	}
	return n.push(to, limit)
}
