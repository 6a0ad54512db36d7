package server

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Joiner gives tests the joiner without HTTP around it.
type Joiner struct{ j *joiner }

// NewJoiner makes one.
func NewJoiner(life context.Context, cfg Config) Joiner { return Joiner{newJoiner(life, cfg)} }

// Do asks for the answer of key; score returns a body and whether it is transient.
func (j Joiner) Do(ctx context.Context, key string, score func(context.Context) ([]byte, bool)) (body []byte, begun bool, err error) {
	a, begun, err := j.j.do(ctx, keyOf([]byte(key)), func(ctx context.Context) answer {
		body, transient := score(ctx)
		return answer{body: body, transient: transient}
	})
	return a.body, begun, err
}

// Wait waits for the flights.
func (j Joiner) Wait(ctx context.Context) error { return j.j.wait(ctx) }

// ParseSamples runs the parser of /v1/score.
func ParseSamples(text []byte) (n int, err error) {
	t, err := parseJSON(text)
	if err != nil {
		return 0, err
	}
	p := &jsonParser{most: 100, longest: 1 << 40, request: "r"}
	if err := p.readRequest(t); err != nil {
		return 0, err
	}
	return len(p.batch.plans), p.finish()
}

// ReadProtocol runs the reader of a protocol's bodies and, where it takes one, the
// writer of its answers: n samples that all got the score 0.5 or, where fail, none.
func ReadProtocol(path string, text []byte, fail bool) (n int, out []byte, err error) {
	s := &Server{cfg: Config{BatchSamples: 8}.WithDefaults()}
	s.Describe([]Profile{{}, {Name: "ocr"}})
	p := map[string]protocol{
		"score": s.unirl(), "latent": s.latent(), "get_reward": s.openRLHF(), "compute": s.flowFactory(), "rm": s.slime(),
	}[path]
	b, f := p.read(&request{id: "r", body: &body{data: text}})
	if f != nil {
		return 0, nil, f
	}
	results := make([]*wire.Result, len(b.plans))
	for i, pl := range b.plans {
		half := 0.5
		results[i] = &wire.Result{Outcome: rewards.Scored, RewardScore: &half, ExtraInfo: map[string]any{"acc": half}}
		if fail || pl.refused != nil {
			results[i] = rejected(pl)
		}
		if !json.Valid(orNull(pl.sample.GroundTruth)) || !json.Valid(orNull(pl.sample.ExtraInfo)) {
			panic(fmt.Sprintf("sample %d: %q %q", i, pl.sample.GroundTruth, pl.sample.ExtraInfo))
		}
		_, _ = wire.Encode(pl.sample, wire.Options{}) // must not panic
	}
	a, f := b.answer(results)
	if f != nil {
		a = f.json()
	}
	return len(b.plans), a.body, nil
}

func orNull(text json.RawMessage) []byte {
	if text == nil {
		return []byte("null")
	}
	return text
}

// CheckCall runs the reader of routed requests.
func CheckCall(text []byte) error {
	if f := checkCall(text); f != nil {
		return f
	}
	return nil
}

// Sparse is what keeps the log readable.
type Sparse = sparse

// NewSparse lets most things through each second.
func NewSparse(most int) *Sparse { return &sparse{most: most} }

// Allow is allow.
func (s *sparse) Allow(now time.Time) (int, bool) { return s.allow(now) }

// IsOwnUser looks up whose socket a connection comes from.
var IsOwnUser = isOwnUser
