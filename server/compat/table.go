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
	// System is whose clients speak it, for people.
	System string
	// Method is GET for a protocol that asks about this server, which then takes HEAD as
	// well, and POST for one that has samples scored.
	Method string
	// Paths are the forms of its paths. {name} stands for the name of a reward.
	Paths []string
	// Run is the run that its samples belong to. Empty for a protocol without samples.
	Run string
	// Form is how its bodies are bounded and its refusals are written.
	Form Form
	// Query: the URL may name the reward as ?reward= as well.
	Query bool
	// Check refuses a request by its header, before its body is read. Nil: none is refused.
	Check func(*http.Request) *Fault
	// Read makes the samples of a body. Nil for a protocol without samples.
	Read func(*Request) (*Batch, *Fault)
	// Tell answers a question about this server. Nil for a protocol with samples.
	Tell func(*State) Reply
}

// Protocols is the table of protocols. A new one is a row here and a file with its reader.
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

// Form is how a protocol writes.
type Form int

// JSON is the form of most protocols, Pickle that of flow_grpo's.
const (
	JSON Form = iota
	Pickle
)

// Refusal writes a fault.
func (f Form) Refusal(why *Fault) Reply {
	if f == Pickle {
		return why.pickled()
	}
	return why.json()
}

// Bounds are the most bytes of a body, and how many times its size is booked: JSON
// counts twice, for what is decoded of it.
func (f Form) Bounds(l Limits) (limit, copies int64) {
	if f == Pickle {
		return l.PickleBytes, 1
	}
	return l.JSONBytes, 2
}

// Limits bound the requests of all protocols; server.Config says what each is.
type Limits struct {
	Samples                int // of one request
	PickleBytes, JSONBytes int64
	// ComputeTimeout is the time that samples of Flow-Factory's clients have.
	ComputeTimeout time.Duration
}

// State is what a protocol without samples may tell of this server.
type State struct {
	Reward   string // from the path; empty: none is named
	Rewards  []Reward
	Workers  []wire.WorkerInfo
	Draining bool
}

// Find finds the protocol with samples that a path belongs to, and the reward that the
// path names. The URLs of clients are written by people and normalised by client
// libraries: "//" is "/", and "/scorers/ocr/" is "/scorers/ocr".
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

// FormOf is the form in which a POST to a path is refused, so that its client can read
// why: verl-omni's client fails on anything but a pickle in a way that ends its retries.
// A path that nobody knows counts as one for pickles, because the URLs of their clients
// are free text. known are the beginnings of paths that are this server's own.
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
