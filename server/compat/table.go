package compat

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/wire"
)

// Protocol is one protocol of another system.
type Protocol struct {
	// System is the name of the system, for people.
	System string
	// Method is POST for a protocol with samples, and GET for a protocol that queries this server,
	// which then also accepts HEAD.
	Method string
	// Paths are the patterns of its paths. {name} is the place of the name of a reward.
	Paths []string
	// Run is the run of its samples. Empty for a protocol without samples.
	Run string
	// Form determines the limit of its bodies and the format of its refusals.
	Form Form
	// Query means that the URL may also contain the name of the reward as ?reward=.
	Query bool
	// Check refuses a request by its header, before its body is read. Nil: no request is refused.
	Check func(*http.Request) *Fault
	// Read makes samples of a body. Nil for a protocol without samples.
	Read func(*Request) (*Batch, *Fault)
	// Tell answers a query about this server. Nil for a protocol with samples.
	Tell func(*State) Reply
}

// Protocols returns the table of protocols. A new protocol needs a row in this table and a file
// with its reader.
func Protocols() []Protocol {
	const post, get = http.MethodPost, http.MethodGet
	return []Protocol{
		{System: "flow_grpo, deepgen, verl-omni (http_scorer), ddpo-pytorch (LLaVA-server)", Method: post, Paths: []string{"/", "/scorers/{name}"}, Run: "_pickle", Form: Pickle, Read: readPickle},
		{System: "UniRL", Method: post, Paths: []string{"/score"}, Run: "_unirl", Query: true, Read: readUniRL},
		{System: "verl-omni (latent_http_scorer)", Method: post, Paths: []string{"/latent", "/latent/{name}"}, Run: "_latent", Query: true, Check: checkVersion, Read: readLatent},
		{System: "OpenRLHF", Method: post, Paths: []string{"/get_reward", "/get_reward/{name}"}, Run: "_openrlhf", Query: true, Read: readOpenRLHF},
		{System: "Flow-Factory", Method: post, Paths: []string{"/compute", "/compute/{name}", "/scorers/{name}/compute"}, Run: "_flow_factory", Query: true, Read: readFlowFactory},
		{System: "slime", Method: post, Paths: []string{"/rm", "/rm/{name}"}, Run: "_slime", Query: true, Read: readSlime},
		{System: "UniRL, Flow-Factory", Method: get, Paths: []string{"/health", "/scorers/{name}/health"}, Tell: tellHealth},
		{System: "UniRL", Method: get, Paths: []string{"/rewards"}, Tell: tellRewards},
	}
}

// Form is the data format of a protocol.
type Form int

// JSON is the format of most protocols, Pickle that of flow_grpo.
const (
	JSON Form = iota
	Pickle
)

// Refusal returns the reply for a fault.
func (f Form) Refusal(why *Fault) Reply {
	if f == Pickle {
		return why.pickled()
	}
	return why.json()
}

// Bounds returns the maximum size of a body in bytes, and how many times the size of a body counts
// for the memory budget. JSON counts twice, because of the decoded data.
func (f Form) Bounds(l Limits) (limit, copies int64) {
	if f == Pickle {
		return l.PickleBytes, 1
	}
	return l.JSONBytes, 2
}

// Limits are the limits of the requests of all protocols; server.Config describes them.
type Limits struct {
	Samples                int // of one request
	PickleBytes, JSONBytes int64
	// ComputeTimeout is the time limit of samples of Flow-Factory's clients.
	ComputeTimeout time.Duration
}

// State is the state of the server for a protocol without samples.
type State struct {
	Reward   string // from the path; empty: the path contains no name
	Rewards  []Reward
	Workers  []wire.WorkerInfo
	Draining bool
}

// Find returns the protocol with samples to which a path belongs, and the name of the reward in the
// path. People write the URLs of clients, and client libraries normalise them: "//" is treated as
// "/", and "/scorers/ocr/" as "/scorers/ocr".
func Find(path string) (p Protocol, name string, ok bool) {
	for _, p := range Protocols() {
		for _, form := range p.Paths {
			if name, rest, ok := match(form, path); ok && rest == 0 && p.Method == http.MethodPost {
				return p, name, true
			}
		}
	}
	return Protocol{}, "", false
}

// FormOf returns the form in which a POST to a path is refused, so that its client can read the
// reason: verl-omni's client fails on any answer other than a pickle in a way that ends its
// retries. An unknown path gets pickles, because users of the pickle clients may write any URL.
// known are the prefixes of paths that belong to this server's own API.
func FormOf(path string, known ...string) Form {
	for _, p := range Protocols() {
		if p.Form == JSON {
			known = append(known, p.Paths...)
		}
	}
	if slices.ContainsFunc(known, func(form string) bool { _, _, ok := match(form, path); return ok }) {
		return JSON
	}
	return Pickle
}

// match compares a path, slashes aside, with a form. rest is the number of parts of the
// path behind those of the form.
func match(form, path string) (name string, rest int, ok bool) {
	want, have := parts(form), parts(path)
	if len(have) < len(want) {
		return "", 0, false
	}
	for i, part := range want {
		switch part {
		case "{name}":
			name = have[i]
		case have[i]:
		default:
			return "", 0, false
		}
	}
	return name, len(have) - len(want), true
}

// parts are what stands between the slashes of a path.
func parts(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}
