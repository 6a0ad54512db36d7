// Package ranking is a binary heap whose items know their position, so that an item can be moved or
// removed.
package ranking

import "container/heap"

// Heap is a binary heap of items of which each is in one heap at most, so that one can be
// moved or taken out of the middle in O(log n). The zero value is empty.
type Heap[T any, O order[T]] struct{ items items[T, O] }

// order is what a Heap needs of its items; its zero value must do.
type order[T any] interface {
	// Before reports whether a comes first. The order must be total.
	Before(a, b T) bool
	// Place is where the item keeps its place in the heap, from 1; 0: it is in none.
	Place(item T) *int
}

// Len is the number of items.
func (h *Heap[T, O]) Len() int { return len(h.items) }

// First is the item that comes first, of a heap that is not empty.
func (h *Heap[T, O]) First() T { return h.items[0] }

// Add puts an item in that is in no heap.
func (h *Heap[T, O]) Add(item T) { heap.Push(&h.items, item) }

// Remove takes an item out, if it is in.
func (h *Heap[T, O]) Remove(item T) {
	if at := h.items.at(item); at >= 0 {
		heap.Remove(&h.items, at)
	}
}

// Move puts an item where it now belongs; one that is not in is added.
func (h *Heap[T, O]) Move(item T) {
	if at := h.items.at(item); at >= 0 {
		heap.Fix(&h.items, at)
		return
	}
	h.Add(item)
}

// items is a Heap as container/heap sees it.
type items[T any, O order[T]] []T

// at is the index of an item; -1: it is not in.
func (s items[T, O]) at(item T) int {
	var o O
	return *o.Place(item) - 1
}

func (s items[T, O]) Len() int { return len(s) }

func (s items[T, O]) Less(i, j int) bool {
	var o O
	return o.Before(s[i], s[j])
}

func (s items[T, O]) Swap(i, j int) {
	var o O
	s[i], s[j] = s[j], s[i]
	*o.Place(s[i]), *o.Place(s[j]) = i+1, j+1
}

// Push is for container/heap.
func (s *items[T, O]) Push(x any) {
	var o O
	item, _ := x.(T)
	*s = append(*s, item)
	*o.Place(item) = len(*s)
}

// Pop is for container/heap.
func (s *items[T, O]) Pop() any {
	var o O
	var none T
	last := len(*s) - 1
	item := (*s)[last]
	(*s)[last] = none
	*s = (*s)[:last]
	*o.Place(item) = 0
	return item
}
