package fair

import "time"

// Line contains the accounts of a book that wait for one thing, in the order of their turns: the
// account with the least usage is first, and of equal ones the one that has waited longest. A Line
// is not safe for concurrent use.
type Line[T any] struct {
	book    *Book[T]
	waiting heap[*Place[T]]
	came    uint64
}

// Place is the place of an account in a line. The zero Place is in no line.
type Place[T any] struct {
	account *Account[T]
	line    *Line[T]
	due     float64 // at most the account's: that grows while calls run
	came    uint64
	index   int
}

// NewLine returns an empty line.
func NewLine[T any](b *Book[T]) *Line[T] { return &Line[T]{book: b} }

// Add puts a held account into the line, at a Place that is in no line. An account may be in
// several lines, but only once in each.
func (l *Line[T]) Add(p *Place[T], a *Account[T], now time.Time) {
	l.came++
	p.account, p.line, p.due, p.came = a, l, a.due(l.book.seconds(now)), l.came
	a.places = append(a.places, p)
	l.waiting.push(p)
}

// Taken reports whether the place is in a line.
func (p *Place[T]) Taken() bool { return p.line != nil }

// Remove removes an account from the line.
func (l *Line[T]) Remove(p *Place[T]) {
	l.waiting.remove(p)
	p.account.leave(p)
	p.account, p.line = nil, nil
}

// Len returns the number of waiting accounts.
func (l *Line[T]) Len() int { return len(l.waiting) }

// InTurn yields the accounts in the order of their turns at one of that number of executors, or 0
// if the line is for something else. The account with the least usage is first, but accounts that
// already have their share of the executors come after the others; otherwise calls that hang would
// get all executors, one by one. At most as many accounts as there are executors are postponed in
// this way. Each account costs O(log n). The line must not change meanwhile.
func (l *Line[T]) InTurn(executors int, now time.Time) func(yield func(*Account[T]) bool) {
	return func(yield func(*Account[T]) bool) {
		var seen, served []*Place[T]
		defer func() {
			for _, p := range seen {
				l.waiting.push(p)
			}
		}()
		look := executors > 1 // with one, nobody's share is a whole one
		for len(l.waiting) > 0 {
			p := l.first(now)
			if look && l.book.served(p.account, float64(executors)) && (len(served) > 0 || len(l.waiting) > 1) {
				served = append(served, p)
			} else if !yield(p.account) {
				return
			}
			l.waiting.remove(p)
			seen = append(seen, p)
			if look && (len(served) == executors || len(l.waiting) == 0) {
				look = false
				for _, p := range served {
					if !yield(p.account) {
						return
					}
				}
			}
		}
	}
}

// First returns the account whose turn it is, or nil if no account waits.
func (l *Line[T]) First(executors int, now time.Time) *Account[T] {
	if len(l.waiting) == 1 { // as mostly
		return l.waiting[0].account
	}
	for a := range l.InTurn(executors, now) {
		return a
	}
	return nil
}

// first is the account that has had least, of one at least.
func (l *Line[T]) first(now time.Time) *Place[T] {
	at := l.book.seconds(now)
	for {
		p := l.waiting[0]
		if due := p.account.due(at); due > p.due {
			p.due = due
			if l.waiting.down(0) {
				continue
			}
		}
		return p
	}
}

func (p *Place[T]) less(o *Place[T]) bool {
	if p.due != o.due {
		return p.due < o.due
	}
	return p.came < o.came
}

func (p *Place[T]) at() *int { return &p.index }
