// Package ranking implements a binary heap whose items store their position, so that an item can be
// moved or removed.
package ranking

import "container/heap"

// Heap is a binary heap. Each item is in at most one heap, so that an item can be moved or removed
// from the middle in O(log n). The zero value is empty.
type Heap[T any, O order[T]] struct{ items items[T, O] }

// order is what a Heap needs of its items; its zero value must do.
type order[T any] interface {
	// Before reports whether a comes first. The order must be total.
	Before(a, b T) bool
	// Place is where the item keeps its place in the heap, from 1; 0: it is in none.
	Place(item T) *int
}

// Len returns the number of items.
func (h *Heap[T, O]) Len() int { return len(h.items) }

// First returns the first item of a heap that is not empty.
func (h *Heap[T, O]) First() T { return h.items[0] }

// Add adds an item that is in no heap.
func (h *Heap[T, O]) Add(item T) { heap.Push(&h.items, item) }

// Remove removes an item, if it is in the heap.
func (h *Heap[T, O]) Remove(item T) {
	if at := h.items.at(item); at >= 0 {
		heap.Remove(&h.items, at)
	}
}

// Move restores the order after an item has changed, or adds an item that is not in the heap.
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
