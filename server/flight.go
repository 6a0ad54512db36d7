package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// edge is a way in for samples over HTTP: how its bodies are bounded and read, and
// how its answers look. Another protocol is another edge and a line in routes.go.
type edge struct {
	// run is the queue its samples wait in.
	run string
	// limit bounds a body; copies is how often its size is booked.
	limit, copies int64
	// query: the URL may name the reward as ?reward=.
	query bool
	// check refuses a request by its header, before its body is read; nil: none.
	check func(*http.Request) *fault
	// score turns a body into an answer. It releases the body as soon as nothing
	// needs it any more; ctx ends when nobody waits.
	score func(ctx context.Context, req *request) answer
	// fault is the form of a refusal.
	fault func(*fault) answer
}

// request is what score is given.
type request struct {
	client      string // the name of its token
	id          string // names the flight, and begins the ids of its samples
	profile     string // from the URL; empty: the default or the body's own
	contentType string
	body        *body
	arrived     time.Time
}

// scoring is the handler of an edge.
func (s *Server) scoring(e edge) gin.HandlerFunc {
	return func(c *gin.Context) {
		arrived := time.Now()
		leave, ok := s.admission.enter()
		if !ok || s.loop.Draining() {
			if ok {
				leave()
			}
			s.refuse(c, faultf(rewards.Draining, "this gateway is draining; try again at another, or in a moment"))
			return
		}
		defer leave()
		name, f := asked(c, e.query)
		if f == nil && e.check != nil {
			f = e.check(c.Request)
		}
		var b *body
		if f == nil {
			b, f = s.readBody(c, e.limit, e.copies)
		}
		if f != nil {
			s.refuse(c, f)
			return
		}
		req := &request{client: c.GetString(clientKey), id: newID(), profile: name, contentType: c.GetHeader("Content-Type"), body: b, arrived: arrived}
		key := keyOf([]byte(e.run), []byte(req.profile), []byte(req.contentType), b.data)
		a, begun, err := s.join.do(c.Request.Context(), key, func(ctx context.Context) answer { return s.fly(ctx, e, req) })
		if !begun {
			b.release()
			s.metrics.joined.Inc()
		}
		if err != nil {
			c.Status(statusGone) // for log and metrics; nobody reads it
			c.Abort()
			return
		}
		s.write(c, a)
	}
}

// fly scores a request in the goroutine of its flight. A panic is this request's
// alone: 503, because another build or another moment may do better, and because
// clients of the pickle edge retry a 500 for hours.
func (s *Server) fly(ctx context.Context, e edge, req *request) (a answer) {
	defer req.body.release()
	defer func() {
		if p := recover(); p != nil {
			s.log.ErrorContext(ctx, "panic while scoring a request", "request_id", req.id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			a = e.fault(&fault{status: http.StatusServiceUnavailable, class: rewards.Panicked, message: "the server failed on request " + req.id})
		}
		a.id = req.id
	}()
	return e.score(ctx, req)
}

// plan is a sample on its way: what to submit, or why not.
type plan struct {
	sample  *rewards.Sample
	timeout time.Duration // 0: the server's
	refused *fault
}

// scoreAll submits the plans and returns one result for each, in their order.
// release is called when the samples' bytes are not needed any more. atOnce gives
// all up with the first sample that the loop does not take, for edges whose batch
// then fails as a whole. When ctx ends, what is in flight is cancelled.
func (s *Server) scoreAll(ctx context.Context, run string, req *request, plans []plan, policy *rewards.SamplePolicy, atOnce bool, release func()) []*wire.Result {
	results := make([]*wire.Result, len(plans))
	futures := make([]*loop.Future, len(plans))
	longest := s.cfg.SampleTimeout
	stop := false
	for i, p := range plans {
		if p.refused != nil || stop {
			results[i] = rejected(p)
			continue
		}
		timeout := p.timeout
		if timeout == 0 {
			timeout = s.cfg.SampleTimeout
		}
		longest = max(longest, timeout)
		f, err := s.loop.Submit(ctx, loop.Submission{
			Run: run, Client: req.client, Sample: p.sample, Timeout: max(time.Until(req.arrived.Add(timeout)), time.Millisecond), Policy: policy,
		})
		if err != nil {
			results[i] = notTaken(p, err)
			stop = atOnce
			continue
		}
		futures[i] = f
		p.sample.Media = nil // the loop has its own copy; the body can go
	}
	release()
	if stop {
		for _, f := range futures {
			if f != nil {
				f.Cancel("another sample of the batch was not accepted") //nolint:contextcheck // the loop has its own
			}
		}
	}
	// The loop answers every sample by its deadline; the grace is for a loop that
	// does not keep its word.
	const grace = 5 * time.Second
	ctx, cancel := context.WithDeadline(ctx, req.arrived.Add(longest+grace))
	defer cancel()
	for i, f := range futures {
		if f == nil {
			continue
		}
		res, err := f.Wait(ctx)
		if err != nil {
			res = missing(plans[i], err)
		}
		results[i] = res
	}
	return results
}

// rejected is the result of a plan that was never submitted.
func rejected(p plan) *wire.Result {
	f := p.refused
	if f == nil {
		f = faultf(rewards.Cancelled, "another sample of the batch was not accepted")
	}
	return result(p, rewards.Rejected, f.class, f.message)
}

// notTaken is the result of a sample that the loop refused.
func notTaken(p plan, err error) *wire.Result {
	class := rewards.ClassOf(err)
	if errors.Is(err, loop.ErrStopped) {
		class = rewards.Draining
	}
	return result(p, rewards.Rejected, class, err.Error())
}

// missing is the result of a sample that nobody waits for any more.
func missing(p plan, err error) *wire.Result {
	if errors.Is(err, context.DeadlineExceeded) {
		return result(p, rewards.OutcomeExpired, rewards.Expired, "no result within the deadline")
	}
	return result(p, rewards.OutcomeCancelled, rewards.Cancelled, "the caller left")
}

func result(p plan, outcome rewards.Outcome, class rewards.Class, message string) *wire.Result {
	res := &wire.Result{Outcome: outcome, Errors: []rewards.TermError{{Class: class, Message: message}}}
	if p.sample != nil {
		res.ID = p.sample.ID
	}
	return res
}

// scoreOf is the number that stands for a result: its score or, where the profile
// or the client asked for one, its substitute.
func scoreOf(r *wire.Result) (float64, bool) {
	v := r.RewardScore
	if r.Outcome != rewards.Scored {
		v = nil
	}
	if v == nil && r.Substitute != nil {
		v = r.Substitute.Value
	}
	if v == nil || math.IsNaN(*v) || math.IsInf(*v, 0) {
		return 0, false
	}
	return *v, true
}

// failureOf says why a result has no score, with the class that decides whether
// another try may help. A failure that nobody can mend decides over others: the
// second attempt at a broken picture may have met a worker that crashed.
func failureOf(r *wire.Result) (class rewards.Class, message string) {
	class, best := outcomeClass(r.Outcome)
	texts := make([]string, 0, len(r.Errors))
	for _, e := range r.Errors {
		text := e.Message
		if class := string(e.Class) + ": "; !strings.HasPrefix(text, class) {
			text = class + text
		}
		if e.Term != "" {
			text = e.Term + ": " + text
		}
		texts = append(texts, text)
		c := e.Class
		if e.Permanent && statusOf(c) == http.StatusServiceUnavailable {
			c = rewards.Internal // a refused key or a missing module: no client shall try again
		}
		if w := weight(c); w > best {
			class, best = c, w
		}
	}
	if len(texts) == 0 {
		texts = append(texts, "no score")
	}
	return class, strings.Join(texts, "; ")
}

// outcomeClass is the class of outcomes that decide whatever the errors say.
func outcomeClass(o rewards.Outcome) (class rewards.Class, weight int) {
	switch o {
	case rewards.OutcomeExpired:
		return rewards.Expired, 4
	case rewards.OutcomeWorkerLost:
		return rewards.Lost, 4
	case rewards.OutcomeCancelled:
		return rewards.Cancelled, 4
	}
	return rewards.NoScore, 0
}

// weight orders the classes of one sample's errors: those that only follow from
// others, those that may pass, those that stay.
func weight(c rewards.Class) int {
	switch {
	case c == rewards.NoScore || c == rewards.Cancelled:
		return 1
	case statusOf(c) == http.StatusServiceUnavailable:
		return 2
	}
	return 3
}

// newID makes the name of a flight.
func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// turn waits for a turn to decode: the most hostile body within the limits takes
// 64 MiB and four times its length while it is decoded.
func (s *Server) turn(ctx context.Context) (leave func(), err error) {
	select {
	case s.decoders <- struct{}{}:
		return func() { <-s.decoders }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
