package server

import (
	"container/list"
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/server/compat"
)

// flightKey names what is asked for: the digest of route, profile and body.
type flightKey [sha256.Size]byte

// keyOf digests the parts; their lengths go in too, so that no two lists of parts
// look the same.
func keyOf(parts ...[]byte) flightKey {
	h := sha256.New()
	for _, p := range parts {
		var n [8]byte
		for i := range n {
			n[i] = byte(len(p) >> (8 * i))
		}
		h.Write(n[:])
		h.Write(p)
	}
	return flightKey(h.Sum(nil))
}

// joiner lets requests with the same bytes share one flight, and keeps its answer
// for a while: clients that lost their connection, or several ranks that hold the
// same batch, do not have it scored again.
type joiner struct {
	life     context.Context //nolint:containedctx // the server's: flights outlive the request that began them
	keepFor  time.Duration
	maxCount int
	maxBytes int64
	now      func() time.Time

	flights sync.WaitGroup

	mu    sync.Mutex
	air   map[flightKey]*flight       // guarded by mu
	known map[flightKey]*list.Element // of *remembered; guarded by mu
	order *list.List                  // of *remembered, the oldest first; guarded by mu
	bytes int64                       // guarded by mu
}

// flight is one scoring that one or more requests wait for.
type flight struct {
	cancel  context.CancelFunc
	waiting int // guarded by joiner.mu
	done    chan struct{}
	answer  compat.Reply // set before done is closed
}

// remembered is an answer and when it was given.
type remembered struct {
	key    flightKey
	at     time.Time
	answer compat.Reply
}

func newJoiner(life context.Context, cfg Config) *joiner {
	return &joiner{
		life: life, keepFor: cfg.RememberFor, maxCount: cfg.RememberAnswers, maxBytes: cfg.RememberBytes, now: time.Now,
		air: map[flightKey]*flight{}, known: map[flightKey]*list.Element{}, order: list.New(),
	}
}

// do returns the answer for key: one that is remembered, that of the flight in the
// air, or that of a new flight, which runs score in a goroutine of the joiner. The
// context of score ends when the server stops or the last of those who wait has
// gone. begun says that score was called, by this call and nobody else. The error is
// ctx's, if it ended first.
func (j *joiner) do(ctx context.Context, key flightKey, score func(context.Context) compat.Reply) (a compat.Reply, begun bool, err error) {
	f, a, begun := j.board(key, score) //nolint:contextcheck // a flight outlives the request that began it
	if f == nil {
		return a, false, nil
	}
	select {
	case <-f.done:
		return f.answer, begun, nil
	case <-ctx.Done():
		j.leave(key, f)
		return compat.Reply{}, begun, ctx.Err()
	}
}

// board finds or begins the flight of key; without a flight the answer is known.
func (j *joiner) board(key flightKey, score func(context.Context) compat.Reply) (*flight, compat.Reply, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.forget()
	if el := j.known[key]; el != nil {
		return nil, el.Value.(*remembered).answer, false // the list holds nothing else
	}
	if f := j.air[key]; f != nil {
		f.waiting++
		return f, compat.Reply{}, false
	}
	ctx, cancel := context.WithCancel(j.life)
	f := &flight{cancel: cancel, waiting: 1, done: make(chan struct{})}
	j.air[key] = f
	j.flights.Go(func() { // ends when score returns; wait waits for it
		defer cancel()
		f.answer = score(ctx)
		j.land(key, f)
	})
	return f, compat.Reply{}, true
}

// leave is one request less that waits; the last one cancels the flight, and who
// comes from then on begins another.
func (j *joiner) leave(key flightKey, f *flight) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if f.waiting--; f.waiting == 0 {
		f.cancel()
		if j.air[key] == f {
			delete(j.air, key)
		}
	}
}

func (j *joiner) land(key flightKey, f *flight) {
	j.mu.Lock()
	defer j.mu.Unlock()
	close(f.done)
	if j.air[key] != f {
		return // everybody had left
	}
	delete(j.air, key)
	if f.answer.Transient || int64(len(f.answer.Body)) > j.maxBytes {
		return
	}
	j.known[key] = j.order.PushBack(&remembered{key, j.now(), f.answer})
	j.bytes += int64(len(f.answer.Body))
	j.forget()
}

// forget drops what is too old or too much. The caller holds mu.
func (j *joiner) forget() {
	for {
		el := j.order.Front()
		if el == nil {
			return
		}
		r := el.Value.(*remembered) // the list holds nothing else
		if j.now().Sub(r.at) < j.keepFor && j.order.Len() <= j.maxCount && j.bytes <= j.maxBytes {
			return
		}
		j.order.Remove(el)
		delete(j.known, r.key)
		j.bytes -= int64(len(r.answer.Body))
	}
}

// wait returns when no flight is in the air any more, or ctx ends.
func (j *joiner) wait(ctx context.Context) error {
	return waitFor(ctx, func() { j.flights.Wait() })
}

// waitFor returns when wait does, or ctx ends. wait returns with the server's life.
func waitFor(ctx context.Context, wait func()) error {
	done := make(chan struct{})
	go func() { // ends with wait
		wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
