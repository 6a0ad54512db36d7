package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"time"

	"github.com/rewardloop/rewardloop/internal/strictjson"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server/compat"
	"github.com/rewardloop/rewardloop/wire"
)

// readScore reads POST /v1/score, our own protocol. The body is JSON, either one
// sample or
//
//	{"samples": [sample…], "reward": "ocr", "on_sample_failure": "value:0", "deadline_ms": 60000}
//
// where all but samples is optional and stands for every sample that does not say
// otherwise. A sample has the fields of the stream's (docs/wire.md), all optional:
//
//	{"id", "step", "split", "index", "uid", "group_size", "reward", "data_source",
//	 "prompt", "response", "ground_truth", "extra_info", "deadline_ms",
//	 "traceparent", "images": [picture…], "videos": [{"frames": [picture…], "fps": 8} or {"b64"|"file": …}], "audios": [{"b64"|"file": …}]}
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
func (s *Server) readScore(req *compat.Request) (*compat.Batch, *compat.Fault) {
	text, files, err := splitBody(req)
	if err != nil {
		return nil, compat.AsFault(err)
	}
	t, err := strictjson.Parse(text)
	if err != nil {
		return nil, compat.AsFault(err)
	}
	p := &jsonParser{most: s.cfg.BatchSamples, longest: s.cfg.MaxSampleTimeout, files: files, request: req.ID}
	if err = p.readRequest(t); err == nil {
		err = p.finish()
	}
	if err != nil {
		return nil, compat.AsFault(err)
	}
	b := p.batch // without the files, whose bytes are the samples' own now
	return &compat.Batch{Plans: b.plans, Policy: b.policy, Answer: b.answer}, nil
}

// answer writes all results, whatever their outcome.
func (b *jsonBatch) answer(results []*wire.Result) (compat.Reply, *compat.Fault) {
	if f := compat.NoneAccepted(results); f != nil {
		return compat.Reply{}, f
	}
	texts := make([]json.RawMessage, len(results))
	passing := false
	for i, r := range results {
		own := *r
		own.ID = b.ids[i]
		if own.Group != nil {
			g := *own.Group
			g.UID = b.uids[i]
			own.Group = &g
		}
		passing = passing || compat.MayPass(r)
		text, err := wire.EncodeControl(&own)
		if err != nil {
			text, _ = wire.EncodeControl(&wire.Result{ // of constants and a checked id; it cannot fail
				ID: own.ID, Outcome: rewards.Failed, Attempts: own.Attempts,
				Errors: []rewards.ComponentError{{Class: rewards.Internal, Message: "the result cannot be written: " + strictjson.Clip(err.Error())}},
			})
		}
		texts[i] = text
	}
	return compat.JSONReply(http.StatusOK, passing, map[string]any{"results": texts}), nil
}

// jsonBatch is a request's samples and what its client calls them.
type jsonBatch struct {
	plans     []compat.Plan
	ids, uids []string
	policy    *rewards.SamplePolicy
	reward    string
	deadline  time.Duration
}

// splitBody takes a multipart body apart; any other is JSON as a whole.
func splitBody(req *compat.Request) (text []byte, files map[string]*file, err error) {
	kind, params, err := mime.ParseMediaType(req.ContentType)
	if err != nil && req.ContentType != "" {
		return nil, nil, fmt.Errorf("content-type %q: %w", strictjson.Clip(req.ContentType), err)
	}
	if kind != "multipart/form-data" {
		return req.Body, nil, nil
	}
	files = map[string]*file{}
	for mr := multipart.NewReader(bytes.NewReader(req.Body), params["boundary"]); ; {
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
			return nil, nil, fmt.Errorf("multipart %q: %w", strictjson.Clip(name), err)
		}
		switch {
		case name == "":
			return nil, nil, errors.New("multipart: a part has no name")
		case files[name] != nil || (name == samplesPart && text != nil):
			return nil, nil, fmt.Errorf("multipart: two parts are named %q", strictjson.Clip(name))
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
