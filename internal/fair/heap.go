package fair

// element is what a heap holds; at is where it keeps its own place in the heap.
type element[E any] interface {
	less(o E) bool
	at() *int
}

// heap is a binary heap whose elements know where they are, so that any of them can be moved
// or taken out. Package container/heap would need an interface value for each element.
type heap[E element[E]] []E

func (h *heap[E]) push(e E) {
	*e.at() = len(*h)
	*h = append(*h, e)
	h.up(len(*h) - 1)
}

func (h *heap[E]) remove(e E) {
	i, last := *e.at(), len(*h)-1
	h.swap(i, last)
	var none E
	(*h)[last] = none
	*h = (*h)[:last]
	if i < last {
		h.fix((*h)[i])
	}
}

// fix puts an element that has changed where it belongs.
func (h *heap[E]) fix(e E) {
	if i := *e.at(); !h.down(i) {
		h.up(i)
	}
}

func (h *heap[E]) swap(i, j int) {
	s := *h
	s[i], s[j] = s[j], s[i]
	*s[i].at(), *s[j].at() = i, j
}

func (h *heap[E]) up(i int) {
	s := *h
	for i > 0 {
		parent := (i - 1) / 2
		if !s[i].less(s[parent]) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

// down reports whether the element has moved.
func (h *heap[E]) down(i int) bool {
	s, from := *h, i
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(s); c++ {
			if s[c].less(s[least]) {
				least = c
			}
		}
		if least == i {
			return i != from
		}
		h.swap(i, least)
		i = least
	}
}
