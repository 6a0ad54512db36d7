package loop

import "container/heap"

// ranking is a binary heap that knows where its items are, so that one can be moved or
// taken out of the middle. The zero value is empty.
type ranking[T any, O order[T]] struct{ items[T, O] }

// order is what a ranking needs of its items; its zero value must do.
type order[T any] interface {
	// before reports whether a comes first. The order must be total.
	before(a, b T) bool
	// place is where the item keeps its place in the heap, from 1; 0: it is in none.
	place(item T) *int
}

// first is the item that comes first, of a ranking that is not empty.
func (r *ranking[T, O]) first() T { return r.items[0] }

func (r *ranking[T, O]) add(item T) { heap.Push(&r.items, item) }

// remove takes an item out, if it is in.
func (r *ranking[T, O]) remove(item T) {
	if at := r.at(item); at >= 0 {
		heap.Remove(&r.items, at)
	}
}

// move puts an item where it now belongs; one that is not in is added.
func (r *ranking[T, O]) move(item T) {
	if at := r.at(item); at >= 0 {
		heap.Fix(&r.items, at)
		return
	}
	r.add(item)
}

// items is a ranking as container/heap sees it.
type items[T any, O order[T]] []T

// at is the index of an item; -1: it is not in.
func (s items[T, O]) at(item T) int {
	var o O
	return *o.place(item) - 1
}

func (s items[T, O]) Len() int { return len(s) }

func (s items[T, O]) Less(i, j int) bool {
	var o O
	return o.before(s[i], s[j])
}

func (s items[T, O]) Swap(i, j int) {
	var o O
	s[i], s[j] = s[j], s[i]
	*o.place(s[i]), *o.place(s[j]) = i+1, j+1
}

// Push is for container/heap.
func (s *items[T, O]) Push(x any) {
	var o O
	item, _ := x.(T)
	*s = append(*s, item)
	*o.place(item) = len(*s)
}

// Pop is for container/heap.
func (s *items[T, O]) Pop() any {
	var o O
	var none T
	last := len(*s) - 1
	item := (*s)[last]
	(*s)[last] = none
	*s = (*s)[:last]
	*o.place(item) = 0
	return item
}
