package outbound

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// underWay bounds the requests in flight. Who comes first is served first. Unlike a
// semaphore of fixed size its size may change while all are taken.
type underWay struct {
	mu    sync.Mutex
	size  func(time.Time) int
	held  int
	queue *list.List // Of chan struct{}, which is closed when a place was given.
	most  int        // Held and waiting, since peak was asked for.
}

func newUnderWay(size int) *underWay {
	return &underWay{size: func(time.Time) int { return size }, queue: list.New()}
}

// try takes a place if there is one that nobody waits for.
func (s *underWay) try() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.give()
	if s.queue.Len() > 0 || s.held >= s.size(time.Now()) {
		return false
	}
	s.held++
	s.note()
	return true
}

// acquire waits for a place, or returns ctx's error.
func (s *underWay) acquire(ctx context.Context) error {
	given := make(chan struct{})
	s.mu.Lock()
	e := s.queue.PushBack(given)
	s.note()
	s.give()
	s.mu.Unlock()
	select {
	case <-given:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-given: // in between; it goes to the next
		s.held--
		s.give()
	default:
		s.queue.Remove(e)
	}
	return ctx.Err()
}

func (s *underWay) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held--
	s.give()
}

// give hands out what is free. The caller holds mu.
func (s *underWay) give() {
	if s.queue.Len() == 0 {
		return
	}
	for size := s.size(time.Now()); s.held < size && s.queue.Len() > 0; {
		given := s.queue.Remove(s.queue.Front())
		s.held++
		close(given.(chan struct{})) // only acquire fills the queue
	}
}

// note keeps the peak. The caller holds mu.
func (s *underWay) note() { s.most = max(s.most, s.held+s.queue.Len()) }

// resize makes size the bound from now on.
func (s *underWay) resize(size func(time.Time) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size = size
	s.give()
}

// look gives out what a change of the size has freed.
func (s *underWay) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.give()
}

// peak returns how many places are taken, and how many were wanted at a time since the
// last call.
func (s *underWay) peak() (held, wanted int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted = s.most
	s.most = 0
	s.note()
	return s.held, wanted
}

// bound is how many may be in flight now.
func (s *underWay) bound() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size(time.Now())
}
