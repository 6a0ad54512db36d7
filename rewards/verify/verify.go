package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

// maxResult is the most bytes of one result: results travel with every call of a
// scorer, an HTTP request or a frame to a Python process.
const maxResult = 64 << 10

// The kinds of verifiers.
const (
	kindHTTP    = "http"
	kindSandbox = "sandbox_fusion"
	kindCommand = "command"
)

// Spec describes a kind, for people.
type Spec struct {
	Name, Summary string
	Options       []rewards.Option
}

// Specs describes every kind.
func Specs() []Spec {
	return []Spec{
		{kindHTTP, "asks a service over HTTP; its answer, any JSON, is the result", httpDocumentation()},
		{kindSandbox, "runs the response's code on a SandboxFusion server", sandboxDocumentation()},
		{kindCommand, "runs a program of this machine in a limited process of its own (Linux)", commandDocumentation()},
	}
}

// New makes a verifier of a kind from its options, a JSON object or nil. It names
// every fault of the options and neither connects nor starts anything. Nil upstreams
// serve a configuration that asks nobody over HTTP.
func New(kind string, raw json.RawMessage, upstreams service.Upstreams) (rewards.Verifier, error) {
	var v rewards.Verifier
	var err error
	switch kind {
	case kindHTTP:
		v, err = newHTTP(raw, upstreams)
	case kindSandbox:
		v, err = newSandbox(raw, upstreams)
	case kindCommand:
		v, err = newCommand(raw)
	default:
		return nil, fmt.Errorf("verifier kind %q is unknown, want one of %s", kind, strings.Join(kinds(), ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("verifier %s: %w", kind, err)
	}
	return v, nil
}

func kinds() []string {
	var out []string
	for _, s := range Specs() {
		out = append(out, s.Name)
	}
	return out
}

// ended is the failure of a run, or of the wait for all, that a context ended.
func ended(ctx context.Context, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %w", rewards.ClassOf(ctx.Err()), fmt.Sprintf(format, args...), ctx.Err())
}
