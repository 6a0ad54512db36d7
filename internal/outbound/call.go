package outbound

import (
	"context"
	"net/http"
)

// Call is one request to an upstream of endpoints.
type Call struct {
	// Method is "POST" where it is empty.
	Method string
	// Path follows the endpoint's URL: "/v1/chat/completions"; empty: the URL as it is.
	Path string
	// Header is sent as it is, but for what is the connection's; Authorization is the
	// upstream's own. All values but those of harmless names are cut out of errors.
	Header http.Header
	// Body is sent again with every attempt; it must not change until Do returns.
	Body []byte
	// Tokens is what the call is booked with in the upstream's tokens per minute, an
	// estimate; Spent corrects it. 0: the upstream has no such limit, or nobody knows.
	Tokens int
	// MaxBytes bounds the answer's body; 0: the upstream's own bound.
	MaxBytes int64
	// Check says what is wrong with an answer of status 2xx, and is asked before
	// anybody sees it: an error that blames the dependency, not permanently, makes the
	// call go on to another attempt, as a status of 503 does. Nil: every answer of
	// status 2xx is right.
	Check func(*Answer) error
	// Statuses are beyond 2xx those that are answers to the caller and not failures,
	// for a router that hands a 400 on. Nil: none.
	Statuses func(status int) bool
}

// Answer is what an endpoint said.
type Answer struct {
	Status int
	Header http.Header
	// Body is all of it, at most the bound of the call.
	Body []byte
	// Endpoint is the URL of the endpoint that gave it, without secrets.
	Endpoint string
	// Attempts counts the requests that were sent for it, itself included.
	Attempts int
}

// Doer sends calls. Upstream is one; scorers that need no more say so by taking it.
//
// Do returns an answer that Check was content with, or an error that wraps a
// rewards.Class: Unavailable for what may pass (no connection, 408, 429, 5xx, a
// broken body), Timeout where ctx or the attempt's time ended, Cancelled where ctx was
// cancelled, BadInput for 400, 413 and 422, InvalidScore as Check says, Internal for
// what another attempt would only repeat (other 4xx, a redirect, a body beyond its
// bound, an address that is not allowed, a path or header that cannot be sent).
// Its text names endpoint, status and the beginning of the answer, and never a secret;
// rewards.BlameOf says whose failure it is. Do calls rewards.Start when the call has a
// place.
type Doer interface {
	Do(ctx context.Context, c *Call) (*Answer, error)
}
