package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// protocol is what other trainers' ways of asking for scores have in common: a body
// becomes samples, and their results an answer in JSON. Each is a file of its own,
// named after the system whose clients speak it.
type protocol struct {
	// run is the queue its samples wait in.
	run string
	// check refuses a request by its header; nil: none is refused.
	check func(*http.Request) *fault
	// read makes the samples of a body.
	read func(req *request) (*batch, *fault)
}

// batch is a request's samples and what becomes of their results.
type batch struct {
	plans []plan
	// whole: one sample without a score leaves the request without an answer, so that
	// the others are given up with the first that is not accepted.
	whole bool
	// answer makes the answer of the results, which are in the order of the plans.
	answer func(results []*wire.Result) (answer, *fault)
}

// speak is the edge of a protocol. A body counts twice, for what is decoded of it.
func (s *Server) speak(p protocol) edge {
	return edge{
		run: p.run, limit: s.cfg.JSONBytes, copies: 2, check: p.check, query: true,
		fault: func(f *fault) answer { return f.json() },
		score: func(ctx context.Context, req *request) answer {
			a, f := s.scoreProtocol(ctx, p, req)
			if f != nil {
				return f.json()
			}
			return a
		},
	}
}

func (s *Server) scoreProtocol(ctx context.Context, p protocol, req *request) (answer, *fault) {
	b, f := s.readProtocol(ctx, p, req)
	if f != nil {
		return answer{}, f
	}
	return b.answer(s.scoreAll(ctx, p.run, req, b.plans, nil, b.whole, req.body.release))
}

func (s *Server) readProtocol(ctx context.Context, p protocol, req *request) (*batch, *fault) {
	leave, err := s.turn(ctx)
	if err != nil {
		return nil, faultf(rewards.Cancelled, "the caller left")
	}
	defer leave()
	return p.read(req)
}

// asked is the reward that a URL names: in its path or, where the edge reads it, as
// ?reward=. Empty: none.
func asked(c *gin.Context, query bool) (string, *fault) {
	name := c.Param("name")
	q, ok := c.GetQuery("reward")
	if !query || !ok {
		return name, nil
	}
	if name != "" && name != q {
		return "", faultf(rewards.Malformed, "the path asks for reward %q and the query for %q", clip(name), clip(q))
	}
	return q, nil
}

// asFault is the fault of a body that cannot be read.
func asFault(err error) *fault {
	if f, ok := errors.AsType[*fault](err); ok {
		return f
	}
	return faultf(rewards.Malformed, "%v", err)
}

// tooMany is the fault of a body with more samples than one request may have.
func (s *Server) tooMany() *fault {
	return faultf(rewards.TooLarge, "more than %d samples in one request", s.cfg.BatchSamples)
}

// newPlan makes the plan of a request's sample number i.
func newPlan(req *request, reward string, i int) plan {
	return plan{sample: &rewards.Sample{ID: fmt.Sprintf("%s-%d", req.id, i), Reward: reward}}
}

// null reports whether a value is null.
func (t jsonText) null() bool { return t.kind() == 'n' }

// each calls f for the elements of an array of n; null has none. what names the
// samples that the array must have one entry for.
func (t jsonText) each(n int, what string, f func(i int, v jsonText) error) error {
	if t == nil || t.null() {
		return nil
	}
	count := 0
	err := t.array(func(i int, v jsonText) error {
		if count++; i >= n {
			return nil
		}
		return f(i, v)
	})
	if err == nil && count != n {
		err = fmt.Errorf("%d entries for %d %s", count, n, what)
	}
	return err
}

// length is the number of an array's elements. It stops counting behind most.
func (t jsonText) length(most int) (int, error) {
	n := 0
	err := t.array(func(int, jsonText) error {
		if n++; n > most {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return n, err
}

var errEnough = errors.New("enough")

// raw is a value as it stands, nil for null.
func (t jsonText) raw() json.RawMessage {
	if t == nil || t.null() {
		return nil
	}
	return json.RawMessage(t)
}

// pairs is a JSON object that keeps its order, for clients that take the first.
type pairs []pair

type pair struct {
	key   string
	value any
}

// MarshalJSON writes the object.
func (p pairs) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, it := range p {
		if i > 0 {
			out.WriteByte(',')
		}
		for n, v := range []any{it.key, it.value} {
			if n > 0 {
				out.WriteByte(':')
			}
			text, err := json.Marshal(v)
			if err != nil {
				return nil, err
			}
			out.Write(text)
		}
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// splitMetadata takes ground_truth out of an object of metadata, as the pickle edge
// does; the rest is extra_info. Both are nil where there is nothing.
func splitMetadata(v jsonText) (truth, extra json.RawMessage, err error) {
	if v.null() {
		return nil, nil, nil
	}
	var rest bytes.Buffer
	err = v.object(func(key string, v jsonText) error {
		if key == truthKey {
			truth = v.raw()
			return nil
		}
		name, _ := json.Marshal(key) // a string, which cannot fail
		rest.WriteByte(',')
		rest.Write(name)
		rest.WriteByte(':')
		rest.Write(v)
		return nil
	})
	if err == nil && rest.Len() > 0 {
		extra = rest.Bytes()
		extra[0] = '{'
		extra = append(extra, '}')
	}
	return truth, extra, err
}

// scoreColumn is the key of the score itself, among others of its kind.
const scoreColumn = "score"

// ownColumn reports whether a key of reward_extra_info is about the scoring and not
// about the sample.
func ownColumn(key string) bool { return strings.HasPrefix(key, "rewardloop/") }

// decimal is a number that is written as Python writes a float, 1.0 and not 1: a trainer
// that makes a tensor of a list would get one of integers, which has no mean.
type decimal float64

// MarshalJSON writes the number.
func (d decimal) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(float64(d))
	if err == nil && !bytes.ContainsAny(text, ".e") {
		text = append(text, ".0"...)
	}
	return text, err
}

// allOrNone answers with every sample's score, or with one fault for all.
func allOrNone(form func(scores []decimal, results []*wire.Result) any) func([]*wire.Result) (answer, *fault) {
	return func(results []*wire.Result) (answer, *fault) {
		values, f := allScores(results)
		if f != nil {
			return answer{}, f
		}
		scores := make([]decimal, len(values))
		for i, v := range values {
			scores[i] = decimal(v)
		}
		return jsonAnswer(http.StatusOK, false, form(scores, results)), nil
	}
}
