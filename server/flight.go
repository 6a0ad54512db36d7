package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rewardloop/rewardloop/internal/strictjson"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/loop/stream"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server/compat"
	"github.com/rewardloop/rewardloop/wire"
)

// scoring is a request that waits for scores.
type scoring struct {
	compat.Request

	protocol compat.Protocol
	client   string // the name of its token
	body     *body
	arrived  time.Time
	trace    string // the W3C trace context of the request; empty: it has none
}

// score is the route of a protocol with samples.
func (s *Server) score(p compat.Protocol) gin.HandlerFunc {
	limit, copies := p.Form.Bounds(s.limits)
	return func(c *gin.Context) {
		arrived := time.Now()
		leave, ok := s.admission.enter()
		if !ok || s.loop.Draining() {
			if ok {
				leave()
			}
			s.refuse(c, compat.Faultf(rewards.Draining, "this gateway is draining; send the request to another gateway, or try again in a moment"))
			return
		}
		defer leave()
		name, f := asked(c, p.Query)
		if f == nil && p.Check != nil {
			f = p.Check(c.Request)
		}
		var b *body
		if f == nil {
			b, f = s.readBody(c, limit, copies)
		}
		if f != nil {
			s.refuse(c, f)
			return
		}
		req := &scoring{
			Request:  compat.Request{ID: newID(), Reward: name, ContentType: c.GetHeader("Content-Type"), Body: b.data, Rewards: s.askable(), Limits: s.limits},
			protocol: p, client: c.GetString(clientKey), body: b, arrived: arrived, trace: traceparent(c.Request),
		}
		key := keyOf([]byte(p.Run), []byte(name), []byte(req.ContentType), b.data)
		a, begun, err := s.join.do(c.Request.Context(), key, func(ctx context.Context) compat.Reply { return s.fly(ctx, req) })
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

// asked is the reward that a URL names: in its path or, where the protocol allows it, as
// ?reward=. Empty: none.
func asked(c *gin.Context, query bool) (string, *compat.Fault) {
	name := c.Param("name")
	q, ok := c.GetQuery("reward")
	if !query || !ok {
		return name, nil
	}
	if name != "" && name != q {
		return "", compat.Faultf(rewards.Malformed, "the path asks for reward %q and the query for %q", strictjson.Clip(name), strictjson.Clip(q))
	}
	return q, nil
}

// fly scores a request in the goroutine of its flight. A panic is this request's
// alone: 503, because another build or another moment may do better, and because
// clients of flow_grpo's protocol retry a 500 for hours.
func (s *Server) fly(ctx context.Context, req *scoring) (a compat.Reply) {
	defer req.release()
	defer func() {
		if p := recover(); p != nil {
			s.log.ErrorContext(ctx, "panic while scoring a request", "request_id", req.ID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			a = req.protocol.Form.Refusal(&compat.Fault{Status: http.StatusServiceUnavailable, Class: rewards.Panicked, Message: "the server failed on request " + req.ID})
		}
		a.ID = req.ID
	}()
	b, f := s.read(ctx, req)
	if f == nil {
		a, f = b.Answer(s.scoreAll(ctx, req, b))
	}
	if f != nil {
		return req.protocol.Form.Refusal(f)
	}
	return a
}

// read makes the samples of a request when it is its turn to decode.
func (s *Server) read(ctx context.Context, req *scoring) (*compat.Batch, *compat.Fault) {
	leave, err := s.turn(ctx)
	if err != nil {
		return nil, compat.Faultf(rewards.Cancelled, "the client closed the request")
	}
	defer leave()
	return req.protocol.Read(&req.Request)
}

// release gives the body's memory back.
func (r *scoring) release() {
	r.Body = nil
	r.body.release()
}

// scoreAll submits a batch and returns one result for each plan, in their order. The
// body is released as soon as the samples' bytes are not needed any more. When ctx ends,
// what is in flight is cancelled.
func (s *Server) scoreAll(ctx context.Context, req *scoring, b *compat.Batch) []*wire.Result {
	plans := b.Plans
	results := make([]*wire.Result, len(plans))
	futures := make([]*loop.Future, len(plans))
	longest := s.cfg.SampleTimeout
	stop := false
	for i, p := range plans {
		if p.Refused != nil || stop {
			results[i] = rejected(p)
			continue
		}
		if p.Sample.Traceparent == "" {
			p.Sample.Traceparent = req.trace
		}
		timeout := p.Timeout
		if timeout == 0 {
			timeout = s.cfg.SampleTimeout
		}
		longest = max(longest, timeout)
		f, err := s.loop.Submit(ctx, loop.Submission{
			Run: req.protocol.Run, Client: req.client, Sample: p.Sample, Timeout: max(time.Until(req.arrived.Add(timeout)), time.Millisecond), Policy: b.Policy,
		})
		if err != nil {
			results[i] = notTaken(p, err)
			stop = b.Whole
			continue
		}
		futures[i] = f
		p.Sample.Media = nil // the loop has its own copy; the body can go
	}
	req.release()
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
func rejected(p compat.Plan) *wire.Result {
	f := p.Refused
	if f == nil {
		f = compat.Faultf(rewards.Cancelled, "another sample of the batch was not accepted")
	}
	return result(p, rewards.Rejected, f.Class, f.Message)
}

// notTaken is the result of a sample that the loop refused.
func notTaken(p compat.Plan, err error) *wire.Result {
	class := rewards.ClassOf(err)
	if errors.Is(err, loop.ErrStopped) {
		class = rewards.Draining
	}
	return result(p, rewards.Rejected, class, stream.Reason(err))
}

// missing is the result of a sample that nobody waits for any more.
func missing(p compat.Plan, err error) *wire.Result {
	if errors.Is(err, context.DeadlineExceeded) {
		return result(p, rewards.OutcomeExpired, rewards.Expired, "no result within the deadline")
	}
	return result(p, rewards.OutcomeCancelled, rewards.Cancelled, "the client closed the request")
}

func result(p compat.Plan, outcome rewards.Outcome, class rewards.Class, message string) *wire.Result {
	res := &wire.Result{Outcome: outcome, Errors: []rewards.ComponentError{{Class: class, Message: message}}}
	if p.Sample != nil {
		res.ID = p.Sample.ID
	}
	return res
}

// traceparent is the trace context of a request. One that is none is passed over, as the standard says.
func traceparent(r *http.Request) string {
	text := r.Header.Get("Traceparent")
	if text == "" || wire.CheckTraceparent(text) != nil {
		return ""
	}
	return text
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
