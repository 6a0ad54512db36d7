package server

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rewardloop/rewardloop/server/compat"
)

const (
	// retryAfter is what transient refusals ask for, in seconds. A trainer's batch
	// takes seconds, so that a shorter pause only asks again.
	retryAfter = 2

	// statusGone is nginx's code for a client that left before its answer; it is
	// seen by logs and metrics only.
	statusGone = 499
)

// write sends an answer within the write timeout. Errors are the client's: it has left.
func (s *Server) write(c *gin.Context, a compat.Reply) {
	h := c.Writer.Header()
	h.Set("Content-Type", a.ContentType)
	h.Set("Content-Length", strconv.Itoa(len(a.Body)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if a.Status == http.StatusServiceUnavailable && a.Pause {
		h.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	if a.ID != "" {
		h.Set("X-Request-Id", a.ID)
	}
	s.explain(c, a)
	s.writeBy(c)
	c.Status(a.Status)
	if _, err := c.Writer.Write(a.Body); err != nil {
		s.log.DebugContext(c.Request.Context(), "answer not written", "route", c.FullPath(), "error", err)
	}
	c.Abort()
}

// explain logs why a request has no score, because many clients show a status or a
// KeyError and nothing of the answer.
func (s *Server) explain(c *gin.Context, a compat.Reply) {
	f := a.Reason
	if f == nil || c.Request.Method != http.MethodPost {
		return
	}
	missed, ok := s.warnings.allow(time.Now())
	if !ok {
		return
	}
	failed := f.Failed[:min(len(f.Failed), 20)]
	s.log.WarnContext(c.Request.Context(), "a request was answered without a score",
		"route", c.FullPath(), "status", a.Status, "class", string(f.Class), "message", f.Message, "failed", failed,
		"request_id", a.ID, "remote", c.Request.RemoteAddr, "not_logged_before", missed)
}

// sparse lets a few things through each second, and counts the others.
type sparse struct {
	most int

	mu     sync.Mutex
	second int64 // guarded by mu
	passed int   // guarded by mu; in that second
	missed int   // guarded by mu; since the last that passed
}

// allow reports whether one more passes, and how many did not before it.
func (s *sparse) allow(now time.Time) (missed int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := now.Unix(); t != s.second {
		s.second, s.passed = t, 0
	}
	if s.passed >= s.most {
		s.missed++
		return 0, false
	}
	s.passed++
	missed, s.missed = s.missed, 0
	return missed, true
}

// writeBy sets the deadline for the answer that is about to be written. The
// server's own WriteTimeout counts from the header's arrival and spans the scoring.
func (s *Server) writeBy(c *gin.Context) {
	// A writer without deadlines, such as a recorder in a test, is no fault.
	_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Now().Add(s.cfg.WriteTimeout))
}

// refuse answers a request whose body has not been read to its end, and then reads
// on, within bounds, so that the client sees the answer instead of a reset and may
// use the connection again. The form is that of the request's protocol.
func (s *Server) refuse(c *gin.Context, f *compat.Fault) {
	// Otherwise net/http reads on before it writes, and closes the connection if
	// there is much to read.
	_ = http.NewResponseController(c.Writer).EnableFullDuplex()
	if c.Request.ContentLength > s.cfg.DiscardBytes {
		c.Header("Connection", "close")
	}
	path := c.Request.URL.Path
	switch {
	case routed(path):
		s.write(c, openAI(f))
	case c.Request.Method == http.MethodPost:
		s.write(c, compat.FormOf(path, ownPaths()...).Refusal(f))
	default:
		s.write(c, compat.JSON.Refusal(f))
	}
	s.discard(c)
}
