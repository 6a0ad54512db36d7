package server

import (
	"context"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rewardloop/rewardloop/internal/strictjson"
	"github.com/rewardloop/rewardloop/server/compat"
)

// Joiner gives tests the joiner without HTTP around it.
type Joiner struct{ j *joiner }

// NewJoiner makes one.
func NewJoiner(life context.Context, cfg Config) Joiner { return Joiner{newJoiner(life, cfg)} }

// Do asks for the answer of key; score returns a body and whether it is transient.
func (j Joiner) Do(ctx context.Context, key string, score func(context.Context) ([]byte, bool)) (body []byte, begun bool, err error) {
	a, begun, err := j.j.do(ctx, keyOf([]byte(key)), func(ctx context.Context) compat.Reply {
		body, transient := score(ctx)
		return compat.Reply{Body: body, Transient: transient}
	})
	return a.Body, begun, err
}

// Wait waits for the flights.
func (j Joiner) Wait(ctx context.Context) error { return j.j.wait(ctx) }

// ParseSamples runs the parser of /v1/score.
func ParseSamples(text []byte) (n int, err error) {
	t, err := strictjson.Parse(text)
	if err != nil {
		return 0, err
	}
	p := &jsonParser{most: 100, longest: 1 << 40, request: "r"}
	if err := p.readRequest(t); err != nil {
		return 0, err
	}
	return len(p.batch.plans), p.finish()
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

// For the tests of the package alone.
type Steps = steps

var ErrPublic = errPublic

// Routes are the method and path of each route, with parameters as {name}.
func (s *Server) Routes() (list []string) {
	for _, r := range s.routes().(*gin.Engine).Routes() { //nolint:forcetypeassert // routes makes one
		parts := strings.Split(r.Path, "/")
		for i, p := range parts {
			if name, ok := strings.CutPrefix(p, ":"); ok {
				parts[i] = "{" + name + "}"
			}
		}
		list = append(list, r.Method+" "+strings.Join(parts, "/"))
	}
	return list
}
