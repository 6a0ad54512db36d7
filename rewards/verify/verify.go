package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
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

// Spec describes a kind of verifier, for people.
type Spec struct {
	Name, Summary string
	Options       []rewards.Option
}

// Specs describes every kind of verifier.
func Specs() []Spec {
	return []Spec{
		{kindHTTP, "asks a service over HTTP; its answer, any JSON, is the result", httpDocumentation()},
		{kindSandbox, "runs the response's code on a SandboxFusion server", sandboxDocumentation()},
		{kindCommand, "runs a program of this machine in a limited process of its own (Linux)", commandDocumentation()},
	}
}

// New returns a verifier of the given kind with its options, a JSON object or nil. The error
// contains every fault of the options. New does not connect or start anything. upstreams may be nil
// if no verifier uses HTTP.
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

// Tools are the verifiers of a reward. Tools implements rewards.Preparer.
type Tools []Named

var (
	_ rewards.Preparer   = Tools(nil)
	_ rewards.Concurrent = Tools(nil)
	_ rewards.Reliant    = Tools(nil)
)

// Prepare implements rewards.Preparer. It runs the verifiers at the same time and returns a shallow
// copy of the sample whose extra_info contains their results under verified_results. It returns at
// the latest a second after the last deadline. The error has the class of the first required
// verifier that failed.
func (t Tools) Prepare(ctx context.Context, s *rewards.Sample) (*rewards.Sample, error) {
	out, _, err := apply(ctx, t, s)
	return out, err
}

// Concurrency returns the lowest concurrency of the verifiers, because a sample needs all of them.
func (t Tools) Concurrency() int { return rewards.ConcurrencyOf(t.narrowest()) }

// ConcurrencyReason returns the reason of the verifier with the lowest concurrency.
func (t Tools) ConcurrencyReason() string { return rewards.ConcurrencyReason(t.narrowest()) }

// Dependency returns the dependency in the worst state, because a sample needs all verifiers.
func (t Tools) Dependency() rewards.Dependency { return rewards.Worst(t.verifiers()...) }

func (t Tools) narrowest() rewards.Verifier { return rewards.Narrowest(t.verifiers()...) }

func (t Tools) verifiers() []rewards.Verifier {
	all := make([]rewards.Verifier, len(t))
	for i, n := range t {
		all[i] = n.Verifier
	}
	return all
}

// decode reads a kind's options one by one.
func decode(raw json.RawMessage, into any, known []rewards.Option) error {
	var all []string
	for _, k := range known {
		all = append(all, k.Name)
	}
	return service.Decode(raw, into, func(name string) error { // names the options
		if !slices.Contains(all, name) {
			return fmt.Errorf("unknown option; want one of %s", strings.Join(all, ", "))
		}
		return nil
	})
}

// header is what every request of a verifier carries: JSON goes and comes.
func header(a *service.Addresses) http.Header {
	h := a.RequestHeader("application/json")
	h.Set("Accept", "application/json")
	return h
}
