package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// jsonEdge is POST /v1/score. The body is JSON, either one sample or
//
//	{"samples": [sample…], "reward": "ocr", "on_sample_failure": "value:0", "deadline_ms": 60000}
//
// where all but samples is optional and stands for every sample that does not say
// otherwise. A sample has the fields of the stream's (docs/wire.md), all optional:
//
//	{"id", "step", "split", "index", "uid", "group_size", "reward", "data_source",
//	 "prompt", "response", "ground_truth", "extra_info", "deadline_ms",
//	 "images": [picture…], "videos": [{"frames": [picture…], "fps": 8}]}
//
// A picture is {"b64": "…"}, or {"file": "name"} in a multipart/form-data body: a
// part "samples" holds the JSON, every other part a file under its name. JPEG, PNG
// and WebP are told apart by their bytes; a raw tensor says {"encoding": "raw",
// "layout": "HWC", "dtype": "U8", "shape": [512, 512, 3]} beside its bytes. A
// sample without an id is given one. The members of a group (uid, group_size) must
// all be in one request.
//
// The answer is 200 with {"results": [result…]} in the order of the samples, each
// as on the stream (docs/wire.md, "result"); a sample that could not be scored has
// its outcome and its errors there, and the others have their scores. Any other
// status means that no sample was accepted: {"error", "code", "failed"} with 400 for
// a body that is not as above, 413, 422 if no sample would be accepted a second time
// either, 503 with Retry-After if one may.
func (s *Server) jsonEdge() edge {
	return edge{
		run: "_score", limit: s.cfg.JSONBytes, copies: 2,
		fault: func(f *fault) answer { return f.json() },
		score: func(ctx context.Context, req *request) answer {
			a, f := s.scoreJSON(ctx, req)
			if f != nil {
				return f.json()
			}
			return a
		},
	}
}

func (s *Server) scoreJSON(ctx context.Context, req *request) (answer, *fault) {
	batch, f := s.readJSON(ctx, req)
	if f != nil {
		return answer{}, f
	}
	results := s.scoreAll(ctx, s.jsonEdge().run, req, batch.plans, batch.policy, false, req.body.release)
	if f := noneAccepted(results); f != nil {
		return answer{}, f
	}
	texts := make([]rawJSON, len(results))
	passing := false
	for i, r := range results {
		own := *r
		own.ID = batch.ids[i]
		if own.Group != nil {
			g := *own.Group
			g.UID = batch.uids[i]
			own.Group = &g
		}
		if own.Outcome != rewards.Scored {
			class, _ := failureOf(r)
			passing = passing || statusOf(class) == http.StatusServiceUnavailable
		}
		text, err := wire.EncodeControl(&own)
		if err != nil {
			text, _ = wire.EncodeControl(&wire.Result{ // of constants and a checked id; it cannot fail
				ID: own.ID, Outcome: rewards.Failed, Attempts: own.Attempts,
				Errors: []rewards.TermError{{Class: rewards.Internal, Message: "the result cannot be written: " + clip(err.Error())}},
			})
		}
		texts[i] = text
	}
	return jsonAnswer(http.StatusOK, passing, map[string]any{"results": texts}), nil
}

// rawJSON is encoded JSON.
type rawJSON []byte

// MarshalJSON returns it as it is.
func (j rawJSON) MarshalJSON() ([]byte, error) { return j, nil }

// noneAccepted is the fault of a request none of whose samples was accepted: that of the
// first that may be in a moment, else of the first.
func noneAccepted(results []*wire.Result) *fault {
	var f *fault
	failed := make([]int, len(results))
	for i, r := range results {
		if r.Outcome != rewards.Rejected {
			return nil
		}
		failed[i] = i
		class, text := failureOf(r)
		own := faultf(class, "no sample was accepted; sample %d: %s", i, text)
		if f == nil || own.transient() && !f.transient() {
			f = own
		}
	}
	if f != nil {
		f.failed = failed
	}
	return f
}

// jsonBatch is a request's samples and what its client calls them.
type jsonBatch struct {
	plans     []plan
	ids, uids []string
	policy    *rewards.SamplePolicy
	reward    string
	deadline  time.Duration
}

// readJSON makes the samples of a body.
func (s *Server) readJSON(ctx context.Context, req *request) (*jsonBatch, *fault) {
	leave, err := s.turn(ctx)
	if err != nil {
		return nil, faultf(rewards.Cancelled, "the caller left")
	}
	defer leave()
	text, files, err := splitBody(req)
	if err != nil {
		return nil, faultf(rewards.Malformed, "%v", err)
	}
	t, err := parseJSON(text)
	if err != nil {
		return nil, faultf(rewards.Malformed, "%v", err)
	}
	p := &jsonParser{most: s.cfg.BatchSamples, longest: s.cfg.MaxSampleTimeout, files: files, request: req.id}
	if err := p.readRequest(t); err != nil {
		if f, ok := errors.AsType[*fault](err); ok {
			return nil, f
		}
		return nil, faultf(rewards.Malformed, "%v", err)
	}
	if err := p.finish(); err != nil {
		return nil, faultf(rewards.Malformed, "%v", err)
	}
	return &p.batch, nil
}

// splitBody takes a multipart body apart; any other is JSON as a whole.
func splitBody(req *request) (text []byte, files map[string]*file, err error) {
	kind, params, err := mime.ParseMediaType(req.contentType)
	if err != nil && req.contentType != "" {
		return nil, nil, fmt.Errorf("content-type %q: %w", clip(req.contentType), err)
	}
	if kind != "multipart/form-data" {
		return req.body.data, nil, nil
	}
	files = map[string]*file{}
	for mr := multipart.NewReader(bytes.NewReader(req.body.data), params["boundary"]); ; {
		part, err := mr.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, fmt.Errorf("multipart: %w", err)
		}
		name := part.FormName()
		data, err := io.ReadAll(part)
		if err != nil {
			return nil, nil, fmt.Errorf("multipart %q: %w", clip(name), err)
		}
		switch {
		case name == "":
			return nil, nil, errors.New("multipart: a part has no name")
		case files[name] != nil || (name == samplesPart && text != nil):
			return nil, nil, fmt.Errorf("multipart: two parts are named %q", clip(name))
		case name == samplesPart:
			text = data
		default:
			files[name] = &file{data: data}
		}
	}
	if text == nil {
		return nil, nil, fmt.Errorf("multipart: no part is named %q", samplesPart)
	}
	return text, files, nil
}

// samplesPart is the multipart part that holds the JSON.
const samplesPart = "samples"

// file is a part that pictures refer to.
type file struct {
	data []byte
	used bool
}

// decodeBase64 decodes the inside of a JSON string in place of an allocation for
// the string; standard alphabet, padded.
func decodeBase64(t jsonText) ([]byte, error) {
	if t.kind() != '"' {
		return nil, fmt.Errorf("want base64, found %s", t.short())
	}
	text := t[1 : len(t)-1]
	if bytes.IndexByte(text, '\\') >= 0 { // "\/" is how some write a slash
		s, err := t.str()
		if err != nil {
			return nil, err
		}
		text = []byte(s)
	}
	out := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Strict().Decode(out, text)
	if err != nil {
		return nil, fmt.Errorf("base64: %w", err)
	}
	return out[:n], nil
}
