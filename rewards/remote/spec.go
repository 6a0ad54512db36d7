package remote

import (
	"encoding/json"
	"strings"

	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

// Names of the scorers.
const (
	httpName    = "http"
	sandboxName = "sandbox_fusion"
)

// Upstreams provides the endpoints for addresses.
type Upstreams = service.Upstreams

// UpstreamOptions are the options for endpoints.
type UpstreamOptions = service.UpstreamOptions

// Specs describes http and sandbox_fusion for a registry. If upstreams is nil, both are listed, but
// building them fails because the process makes no outgoing connections.
func Specs(upstreams Upstreams) []rewards.Spec {
	return []rewards.Spec{
		{
			Name:        httpName,
			Summary:     "score of a reward service over HTTP; protocols: " + strings.Join(protocols(), ", "),
			Options:     documentation(),
			Concurrency: "as many requests as concurrency allows (256 by default), or this process's share of this number; with batch_wait each request has up to batch samples",
			Build:       func(raw json.RawMessage) (rewards.Scorer, error) { return build(upstreams, raw) },
		},
		{
			Name:        sandboxName,
			Summary:     "share of the test cases that the response's code passes on a SandboxFusion server (verl)",
			Options:     sandboxDocumentation(),
			Concurrency: "as many samples as keep max_concurrent test cases running, or this process's share of this number",
			Build:       func(raw json.RawMessage) (rewards.Scorer, error) { return buildSandbox(upstreams, raw) },
		},
	}
}

func build(upstreams Upstreams, raw json.RawMessage) (rewards.Scorer, error) {
	o, err := parseOptions(raw)
	if err != nil {
		return nil, err
	}
	doer, err := o.Upstream(upstreams, pathOf(o.Protocol))
	if err != nil {
		return nil, err
	}
	return newScorer(&o, protocolOf(&o), doer), nil
}

func protocolOf(o *options) protocol {
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
func (o *options) fixedFields() []rewards.Field {
	switch o.Protocol {
	case latent:
		return (&drm{}).fields()
	case genEval, deepgenGenEval:
		return genEvalFields()
	}
	return nil
}
