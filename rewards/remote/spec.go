package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

// Names of the scorers.
const (
	httpName    = "http"
	sandboxName = "sandbox_fusion"
)

// Groups gives the endpoints behind addresses. Group must not connect. Scorers
// that name the same addresses and key should be given the same Doer, so that its
// limits hold for all of them.
type Groups interface {
	Group(urls []string, o GroupOptions) (outbound.Doer, error)
}

// GroupOptions are what a scorer's options say of its endpoints; zero: the group's
// own default.
type GroupOptions struct {
	// KeyFile holds the bearer token; empty: none is sent.
	KeyFile string
	// Concurrency is the most requests at a time, RPM the most in a minute.
	Concurrency int
	RPM         float64
	// Timeout bounds one request, Attempts counts those of one call.
	Timeout  time.Duration
	Attempts int
}

// Specs describes http and sandbox_fusion for a registry. With nil groups both are
// listed, and building them says that nothing goes out from here.
func Specs(groups Groups) []rewards.Spec {
	return []rewards.Spec{
		{
			Name:    httpName,
			Summary: "asks a reward service over HTTP: " + strings.Join(protocols(), ", "),
			Options: documentation(),
			Build:   func(raw json.RawMessage) (rewards.Scorer, error) { return build(groups, raw) },
		},
		{
			Name:    sandboxName,
			Summary: "share of the test cases that the response's code passes on a SandboxFusion server (verl)",
			Options: sandboxDocumentation(),
			Build:   func(raw json.RawMessage) (rewards.Scorer, error) { return buildSandbox(groups, raw) },
		},
	}
}

var errNoGroups = errors.New("no HTTP goes out from here: the program was built without endpoint groups")

func build(groups Groups, raw json.RawMessage) (rewards.Scorer, error) {
	o, err := parseOptions(raw)
	if err != nil {
		return nil, err
	}
	doer, err := o.group(groups, pathOf(o.Protocol))
	if err != nil {
		return nil, err
	}
	return newScorer(&o, protocolOf(&o), doer), nil
}

// group asks for the endpoints.
func (a *Addresses) group(groups Groups, path string) (outbound.Doer, error) {
	if groups == nil {
		return nil, errNoGroups
	}
	urls := make([]string, len(a.all()))
	for i, u := range a.all() {
		urls[i] = withoutPath(u, path)
	}
	doer, err := groups.Group(urls, GroupOptions{
		KeyFile: a.KeyFile, Concurrency: a.Concurrency, RPM: a.RPM,
		Timeout: time.Duration(a.AttemptTimeout), Attempts: a.Attempts,
	})
	if err != nil {
		return nil, fmt.Errorf("addresses: %w", err)
	}
	return doer, nil
}

// withoutPath takes the path at which the service listens off an address: it may be
// written with it or without.
func withoutPath(address, path string) string {
	u, err := url.Parse(address)
	if err != nil || path == "" {
		return address
	}
	u.RawPath = ""
	u.Path = strings.TrimRight(strings.TrimSuffix(strings.TrimRight(u.Path, "/"), path), "/")
	return u.String()
}

func protocolOf(o *Options) protocol {
	switch o.Protocol {
	case latent:
		return newDRM(o)
	case uniRL:
		return newUni(o)
	case flowFactory:
		return newFactory(o)
	case slime:
		return newSlime(o)
	case openRLHF:
		return newRLHF(o)
	case cosmos:
		return newCosmos(o)
	case generic:
		return newAnyJSON(o)
	}
	return newPickled(o)
}

// fixedFields are the columns that the protocol has without extras.
func (o *Options) fixedFields() []rewards.Field {
	switch o.Protocol {
	case latent:
		return (&drm{}).fields()
	case genEval, deepgenGenEval:
		return genEvalFields()
	}
	return nil
}
