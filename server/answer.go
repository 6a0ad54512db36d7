package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/rewards"
)

const (
	pickleType = "application/octet-stream"
	jsonType   = "application/json"

	// retryAfter is what transient refusals ask for, in seconds. A trainer's batch
	// takes seconds, so that a shorter pause only asks again.
	retryAfter = 2

	// statusGone is nginx's code for a client that left before its answer; it is
	// seen by logs and metrics only.
	statusGone = 499
)

// answer is what goes back for one request. The same answer may go back for
// several: it is immutable.
type answer struct {
	status      int
	contentType string
	body        []byte
	// transient: another try may succeed. Such an answer is not remembered.
	transient bool
	// pause: it is this server that cannot now, and will in a moment. Retry-After says so.
	pause bool
	// reason is why there is no score, for the log; nil: there is one.
	reason *fault
	// id names the flight in the log and in X-Request-Id.
	id string
}

// fault is why a request, or a whole batch, has no scores.
type fault struct {
	status  int
	class   rewards.Class
	message string
	// failed are the indices of the samples that have no score; nil: it is about
	// the request as a whole.
	failed []int
	// pause asks the client to come again in a moment; see pauses.
	pause bool
}

func (f *fault) Error() string { return string(f.class) + ": " + f.message }

// transient reports whether another try may succeed.
func (f *fault) transient() bool {
	return f.status == http.StatusServiceUnavailable || f.status == http.StatusRequestTimeout
}

// faultf makes a fault with the status that its class has on an HTTP edge.
func faultf(class rewards.Class, format string, args ...any) *fault {
	return &fault{status: statusOf(class), class: class, message: fmt.Sprintf(format, args...), pause: pauses(class)}
}

// pauses reports whether waiting helps against a failure of that class: this server is
// busy or going, or something that a reward needs is away. Only then does an answer
// have Retry-After: urllib3, which flow_grpo's clients use with a thousand retries,
// obeys it whatever statuses it was told to retry (Retry.is_retry), and would hold a
// trainer for a day over one sample whose reward always takes too long or kills its
// process. Clients that retry a 503 by its status do so without it.
func pauses(class rewards.Class) bool {
	return class == rewards.Draining || class == rewards.OverCredit || class == rewards.Unavailable
}

// statusOf gives the status that tells clients whether to try again.
func statusOf(class rewards.Class) int {
	switch class {
	case rewards.Malformed, rewards.IDReused:
		return http.StatusBadRequest
	case rewards.TooLarge:
		return http.StatusRequestEntityTooLarge
	case rewards.Draining, rewards.Unavailable, rewards.OverCredit, rewards.Expired, rewards.Lost,
		rewards.Crashed, rewards.Timeout, rewards.Cancelled:
		return http.StatusServiceUnavailable
	}
	return http.StatusUnprocessableEntity
}

// pickled is the form of a fault on the pickle edge.
func (f *fault) pickled() answer {
	return answer{
		status: f.status, contentType: pickleType, transient: f.transient(), pause: f.pause, reason: f,
		body: pickle.EncodeError(f.Error(), f.failed),
	}
}

// json is the form of a fault everywhere else.
func (f *fault) json() answer {
	a := jsonAnswer(f.status, f.transient(), map[string]any{
		"error": f.message, "code": f.class, "failed": f.failed,
	})
	a.pause, a.reason = f.pause, f
	return a
}

// openAI is the form of a fault where OpenAI's clients read it: they show the message
// of an object, and nothing of a text.
func (f *fault) openAI() answer {
	a := jsonAnswer(f.status, f.transient(), map[string]any{
		"error": map[string]any{"message": f.message, "type": f.class, "code": f.class, "param": nil},
	})
	a.pause, a.reason = f.pause, f
	return a
}

// jsonAnswer encodes v, which must be plain data.
func jsonAnswer(status int, transient bool, v any) answer {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written as JSON","code":"internal"}`)
	}
	return answer{status: status, contentType: jsonType, transient: transient, body: append(body, '\n')}
}

// write sends an answer within the write timeout. Errors are the client's: it has left.
func (s *Server) write(c *gin.Context, a answer) {
	h := c.Writer.Header()
	h.Set("Content-Type", a.contentType)
	h.Set("Content-Length", strconv.Itoa(len(a.body)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if a.status == http.StatusServiceUnavailable && a.pause {
		h.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	if a.id != "" {
		h.Set("X-Request-Id", a.id)
	}
	s.explain(c, a)
	s.writeBy(c)
	c.Status(a.status)
	if _, err := c.Writer.Write(a.body); err != nil {
		s.log.DebugContext(c.Request.Context(), "answer not written", "route", c.FullPath(), "error", err)
	}
	c.Abort()
}

// explain logs why a request has no score, because many clients show a status or a
// KeyError and nothing of the answer.
func (s *Server) explain(c *gin.Context, a answer) {
	f := a.reason
	if f == nil || c.Request.Method != http.MethodPost {
		return
	}
	missed, ok := s.warnings.allow(time.Now())
	if !ok {
		return
	}
	failed := f.failed[:min(len(f.failed), 20)]
	s.log.WarnContext(c.Request.Context(), "a request was answered without a score",
		"route", c.FullPath(), "status", a.status, "class", string(f.class), "message", f.message, "failed", failed,
		"request_id", a.id, "remote", c.Request.RemoteAddr, "not_logged_before", missed)
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
// use the connection again. The form is that of the request's edge.
func (s *Server) refuse(c *gin.Context, f *fault) {
	// Otherwise net/http reads on before it writes, and closes the connection if
	// there is much to read.
	_ = http.NewResponseController(c.Writer).EnableFullDuplex()
	if c.Request.ContentLength > s.cfg.DiscardBytes {
		c.Header("Connection", "close")
	}
	switch {
	case s.pickles(c.Request):
		s.write(c, f.pickled())
	case routed(c.Request.URL.Path):
		s.write(c, f.openAI())
	default:
		s.write(c, f.json())
	}
	s.discard(c)
}
