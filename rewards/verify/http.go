package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

// httpOptions are those of the kind http.
type httpOptions struct {
	service.Addresses
	// Request is an object with placeholders in its texts.
	Request json.RawMessage `json:"request"`
}

func httpDocumentation() []rewards.Option {
	return append(service.AddressOptions(), rewards.Option{
		Name: "request", Type: "object", Default: "required",
		Doc: "body of the POST request, with placeholders such as {response} and {extra_info.key} in its texts",
	})
}

// httpVerifier asks a service.
type httpVerifier struct {
	doer     outbound.Doer
	header   http.Header
	template *template
}

func newHTTP(raw json.RawMessage, upstreams service.Upstreams) (rewards.Verifier, error) {
	var o httpOptions
	err := decode(raw, &o, httpDocumentation())
	var f service.Faults
	o.Validate(&f)
	f.Add(len(o.Request) == 0, "request", "is missing: give the request as an object")
	h := &httpVerifier{header: header(&o.Addresses)}
	if len(o.Request) > 0 {
		var wrong error
		h.template, wrong = parseTemplate(o.Request)
		f.Check("request", wrong)
	}
	if err := errors.Join(err, f.Err()); err != nil {
		return nil, err
	}
	h.doer, err = o.Upstream(upstreams, "")
	return h, err
}

// Concurrency is how many requests at a time the service gets.
func (h *httpVerifier) Concurrency() int { return rewards.ConcurrencyOf(h.doer) }

// Dependency is the service.
func (h *httpVerifier) Dependency() rewards.Dependency { return rewards.DependencyOf(h.doer) }

// ConcurrencyReason is the service's.
func (h *httpVerifier) ConcurrencyReason() string { return rewards.ConcurrencyReason(h.doer) }

// Verify returns the service's answer as it is. What the sample lacks is BadInput and
// nothing is sent; an answer that is not JSON may come whole another time.
func (h *httpVerifier) Verify(ctx context.Context, s *rewards.Sample) (json.RawMessage, error) {
	body, err := h.template.render(s)
	if err != nil {
		return nil, err
	}
	a, err := h.doer.Do(ctx, &outbound.Call{
		Header: h.header, Body: body, MaxBytes: maxResult, Check: checkJSON,
	})
	if err != nil {
		return nil, err // it names endpoint, status and cause, and carries its class
	}
	return bytes.TrimSpace(a.Body), nil
}

// checkJSON refuses an answer that is not JSON: it may come whole another time.
func checkJSON(a *outbound.Answer) error {
	if !json.Valid(a.Body) {
		return fmt.Errorf("%w: the answer of %s is not JSON: %s", rewards.Unavailable, a.Endpoint, service.Quote(a.Body))
	}
	return nil
}
