// SPDX-License-Identifier: Apache-2.0

package assigner

// part is a part of a group that can be balanced on its own: the subscriptions' members take the kinds' partitions, and no best balanced
// assignment gives a partition to a member outside. Each member gets level or level-1 partitions.
type part struct {
	subs, kinds []int32
	level       int32
}

// divide divides a group into parts. Loads are best balanced, that is their descending order is lexicographically smallest, if and only if
// the sum of their squares is (Frank, Murota: Discrete decreasing minimization, 2018). To find them, the decomposition algorithm (Fujishige
// 1980; Groenevelt 1991) lets every member take up to ⌈P/n⌉-1 partitions, then one more. Where partitions are left over, the members that
// these could go to, also by moving others, are full in every best assignment, and the rest have no more than that: the two
// sides are balanced each on its own.
func divide(kinds []kind, members []int32) []part {
	whole := part{}
	for k := range kinds {
		whole.kinds = append(whole.kinds, int32(k))
	}
	for s := range members {
		whole.subs = append(whole.subs, int32(s))
	}
	d := &divider{kinds: kinds, members: members, place: make([]int32, len(members))}
	todo, done := []part{whole}, []part(nil)
	for len(todo) > 0 {
		last := len(todo) - 1
		p := todo[last]
		todo = todo[:last]
		if above, below, split := d.split(&p); split {
			todo = append(todo, above, below)
		} else {
			done = append(done, p)
		}
	}
	return done
}

// divider splits parts.
type divider struct {
	kinds   []kind
	members []int32 // by subscription
	// place holds each subscription's place in the part that is split, or none.
	place []int32
}

// split splits a part in two, or sets its level if all its members can have that or one less.
func (d *divider) split(p *part) (above, below part, split bool) {
	total, members := int32(0), int32(0)
	for _, k := range p.kinds {
		total += d.kinds[k].count
	}
	for _, s := range p.subs {
		members += d.members[s]
	}
	if total == 0 {
		return part{}, part{}, false
	}
	p.level = (total + members - 1) / members
	if len(p.subs) == 1 {
		return part{}, part{}, false
	}
	n := d.network(p)
	for _, level := range []int32{p.level - 1, p.level} {
		for i, s := range p.subs {
			n.hi[i] = level * d.members[s]
		}
		n.run()
		if full := n.reachable(); full != nil {
			above, below = p.cut(full)
			if len(below.subs) > 0 {
				return above, below, true
			}
		}
	}
	return part{}, part{}, false
}

// network returns the part as a network in which each subscription is one column.
func (d *divider) network(p *part) *network {
	for i := range d.place {
		d.place[i] = none
	}
	for i, s := range p.subs {
		d.place[s] = int32(i)
	}
	kindsOf := make([][]int32, len(p.subs))
	for i, k := range p.kinds {
		for _, s := range d.kinds[k].readers {
			if at := d.place[s]; at != none {
				kindsOf[at] = append(kindsOf[at], int32(i))
			}
		}
	}
	class := make([]int32, len(p.subs))
	for i := range class {
		class[i] = int32(i)
	}
	n := newNetwork(len(p.kinds), kindsOf, class)
	n.move = 0 // so that levels sees every arc
	for i, k := range p.kinds {
		n.excess[i] = d.kinds[k].count
		n.excess[n.drain()] -= d.kinds[k].count
	}
	return n
}

// reachable returns which nodes the excess that is left could go to, nil if none is left.
func (n *network) reachable() []bool {
	n.levels()
	if len(n.search.queue) == 0 {
		return nil
	}
	reached := make([]bool, len(n.excess))
	for _, v := range n.search.queue {
		reached[v] = true
	}
	return reached
}

// cut divides a part into the nodes that were reached and the others.
func (p *part) cut(reached []bool) (above, below part) {
	for i, k := range p.kinds {
		side := &below
		if reached[i] {
			side = &above
		}
		side.kinds = append(side.kinds, k)
	}
	for i, s := range p.subs {
		side := &below
		if reached[len(p.kinds)+i] {
			side = &above
		}
		side.subs = append(side.subs, s)
	}
	return above, below
}
