// SPDX-License-Identifier: Apache-2.0

package assigner

// put adds a node to the heap.
func (s *search) put(r reached) {
	s.heap = append(s.heap, r)
	for i := len(s.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if s.heap[parent].dist <= s.heap[i].dist {
			return
		}
		s.heap[parent], s.heap[i] = s.heap[i], s.heap[parent]
		i = parent
	}
}

// next takes a node with the smallest distance from the heap, which must not be empty.
func (s *search) next() reached {
	first, last := s.heap[0], len(s.heap)-1
	s.heap[0] = s.heap[last]
	s.heap = s.heap[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return first
		}
		if child+1 < last && s.heap[child+1].dist < s.heap[child].dist {
			child++
		}
		if s.heap[i].dist <= s.heap[child].dist {
			return first
		}
		s.heap[i], s.heap[child] = s.heap[child], s.heap[i]
		i = child
	}
}
