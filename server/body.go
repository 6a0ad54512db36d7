package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rewardloop/rewardloop/internal/strictjson"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server/compat"
)

// budget bounds the bytes of all request bodies. Nobody waits for it: who finds it
// empty is told to come again.
type budget struct {
	mu   sync.Mutex
	held int64 // guarded by mu
	max  int64
}

func (b *budget) take(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.max-b.held {
		return false
	}
	b.held += n
	return true
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= n
}

func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}

// body is a request body in memory. Its owner releases it when nothing refers to
// the bytes any more.
type body struct {
	data   []byte
	budget *budget
	booked int64
}

// release gives the memory back; further calls do nothing. It is called by the
// body's one owner.
func (b *body) release() {
	b.budget.give(b.booked)
	b.booked, b.data = 0, nil
}

// firstBuffer is what is allocated before anything has arrived: a claimed length
// costs nothing until bytes follow it.
const firstBuffer = 256 << 10

// readBody reads a body of at most limit bytes within the body timeout and books
// copies times its size.
func (s *Server) readBody(c *gin.Context, limit, copies int64) (*body, *compat.Fault) {
	r := c.Request
	if enc := r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return nil, &compat.Fault{
			Status: http.StatusUnsupportedMediaType, Class: rewards.Malformed,
			Message: "content-encoding " + strictjson.Clip(enc) + ": send the body as it is",
		}
	}
	if r.ContentLength > limit {
		return nil, compat.Faultf(rewards.TooLarge, "a body of %d bytes; the limit is %d", r.ContentLength, limit)
	}
	b := &body{budget: &s.bodies}
	most := limit
	if r.ContentLength >= 0 {
		most = r.ContentLength
	}
	if f := b.fill(r.Body, most, copies); f != nil {
		b.release()
		return nil, f
	}
	// The deadline, set when the request came, is the connection's and must not
	// outlast the body: while the samples are scored net/http reads on, to notice
	// a client that leaves.
	_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Time{})
	return b, nil
}

// fill reads r to its end and grows as bytes arrive; most is the most of them.
func (b *body) fill(r io.Reader, most, copies int64) *compat.Fault {
	grow := func(to int64) *compat.Fault {
		if !b.budget.take((to - int64(cap(b.data))) * copies) {
			return compat.Faultf(rewards.Unavailable, "the bodies of other requests fill the %d bytes for request bodies; try again in a moment", b.budget.max)
		}
		b.booked += (to - int64(cap(b.data))) * copies
		// Exact, so that cap is what was booked.
		next := make([]byte, len(b.data), to)
		copy(next, b.data)
		b.data = next
		return nil
	}
	var beyond [1]byte // tells too much from just enough
	for {
		if size := int64(cap(b.data)); int64(len(b.data)) == size && size < most {
			if f := grow(min(max(4*size, firstBuffer), most)); f != nil {
				return f
			}
		}
		space := b.data[len(b.data):cap(b.data)]
		full := len(space) == 0
		if full {
			space = beyond[:]
		}
		n, err := r.Read(space)
		if full && n > 0 {
			return compat.Faultf(rewards.TooLarge, "a body of more than %d bytes", most)
		}
		b.data = b.data[:len(b.data)+n]
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return &compat.Fault{Status: http.StatusRequestTimeout, Class: rewards.Timeout, Message: "the body did not arrive in time"}
		case err != nil:
			return compat.Faultf(rewards.Malformed, "reading the body: %v", err)
		}
	}
}

// discard reads and drops what is left of a refused request's body. A client that
// waits for "100 Continue" sends none.
func (s *Server) discard(c *gin.Context) {
	r := c.Request
	if r.Body == nil || r.Body == http.NoBody || r.Header.Get("Expect") != "" {
		return
	}
	rc := http.NewResponseController(c.Writer)
	if rc.Flush() != nil { // the answer goes first
		return
	}
	_ = rc.SetReadDeadline(time.Now().Add(s.cfg.DiscardTimeout))
	if _, err := io.CopyN(io.Discard, r.Body, s.cfg.DiscardBytes); err != nil && !errors.Is(err, io.EOF) {
		s.log.DebugContext(context.WithoutCancel(r.Context()), "refused body not read to its end", "route", c.FullPath(), "error", err)
	}
}
