package wire

import (
	"errors"
	"fmt"

	"github.com/rewardloop/rewardloop/rewards"
)

// This file has the messages of ClaimProtocol, with which a worker on another machine
// claims payloads and hands results back; docs/claim.md is the specification. Unlike
// those of Protocol they pass over names they do not know: gateways and workers of two
// releases may run side by side for a while. claimcodec.go encodes them, claimforms.go has
// the JSON of those whose types are not their own form.

// ErrUnreachable is what a claim ends with when no connection to the gateway came about.
// The gateway may well be alive: the ticket goes back, to a worker that reaches it.
var ErrUnreachable = errors.New("gateway cannot be reached")

// ErrCorrupt is a payload whose bytes are not those the gateway sent.
var ErrCorrupt = errors.New("payload differs from its checksum")

// ClaimVersion is the number of the protocol; a peer with another one is refused.
const ClaimVersion = 1

// Bounds of the claim protocol.
const (
	// MaxClaimResultBytes bounds a result with all it holds; details beyond it are left out.
	MaxClaimResultBytes = 4 << 20
	// MaxClaimControlBytes bounds a worker's text, MaxServerControlBytes a gateway's.
	MaxClaimControlBytes = MaxClaimResultBytes + 64<<10
	// MaxClaimChunk bounds the payload bytes of one binary message.
	MaxClaimChunk = 256 << 10
	// ClaimChunkHead is the length of the claim's number before them.
	ClaimChunkHead = 8
	// MaxTokenBytes bounds a claim token.
	MaxTokenBytes = 256

	// maxClaimName bounds names: that of a group's ticket is longer than its uid.
	maxClaimName = 2 * MaxNameBytes
)

// Reasons of a ClaimRefused. They are labels of the metric, too.
const (
	RefusedToken     = "token"     // the token is not one of this gateway's for this attempt
	RefusedExpired   = "expired"   // the token was good once; the gateway publishes the ticket anew
	RefusedGone      = "gone"      // the sample needs no scoring any more
	RefusedMalformed = "malformed" // the message breaks a rule of the protocol
	RefusedBusy      = "busy"      // too many claims are open
	RefusedFailed    = "failed"    // the gateway could not do it; another try may help
	RefusedProtocol  = "protocol"  // the peer speaks another protocol
)

// claimKinds are the messages of ClaimProtocol. messages.json says the same of them.
//
//nolint:gochecknoglobals // a table
var claimKinds = kinds{
	message[ClaimHello]("hello", byWorker),
	message[ClaimWelcome]("welcome", byGateway),
	message[ClaimAsk]("claim", byWorker),
	message[ClaimPayload]("payload", byGateway),
	message[ClaimConfirm]("confirm", byWorker),
	message[ClaimDrop]("drop", byWorker),
	message[ClaimResult]("result", byWorker),
	message[ClaimOK]("ok", byGateway),
	message[ClaimRefused]("refused", byGateway),
	message[ClaimBye]("bye", byWorker),
}

// ClaimHello opens a connection; it is the worker's first message.
type ClaimHello struct {
	Protocol int    `json:"protocol"`
	Version  string `json:"version,omitempty"`
	// Session is the worker process's, chosen at random: connections with the same one
	// belong together, and one that comes back within a second was never away.
	Session string `json:"session"`
	// Wanted are the numbers of the claims that the process asks for or has open, of all up
	// to UpTo: others it has given up.
	Wanted []uint64 `json:"wanted,omitempty"`
	UpTo   uint64   `json:"up_to,omitempty"`
}

func (m *ClaimHello) check() (f faults) {
	f.length("session", m.Session, 1)
	f.length("version", m.Version, 0)
	return f
}

// ClaimWelcome answers it.
type ClaimWelcome struct {
	Protocol int    `json:"protocol"`
	Version  string `json:"version,omitempty"`
	Gateway  string `json:"gateway"`
}

func (m *ClaimWelcome) check() (f faults) {
	f.length("gateway", m.Gateway, 0)
	f.length("version", m.Version, 0)
	return f
}

// ClaimAsk asks for the payload of an attempt.
type ClaimAsk struct {
	// N numbers the claims and results of a worker process, from 1.
	N       uint64     `json:"n"`
	Attempt AttemptKey `json:"attempt"`
	Token   string     `json:"token"`
	Worker  string     `json:"worker"`
	Group   bool       `json:"group,omitempty"`
}

func (m *ClaimAsk) check() (f faults) {
	f.attempt(m.N, m.Attempt, m.Token, m.Worker)
	return f
}

// ClaimPayload announces the bytes of a claim.
type ClaimPayload struct {
	N      uint64
	Frames []ClaimFrame
	// Group is set for the payload of a prompt group; its Members are empty, for they
	// are the Frames.
	Group *Group
}

// ClaimFrame is one frame of a payload: what it must turn out to be, and what components of the
// sample have said before: in a group its own, else those that were finished when it was
// returned because another waits for a dependency.
type ClaimFrame struct {
	Sum     Checksum
	Partial []rewards.ComponentResult
}

// ClaimConfirm says that the payloads of claims have arrived as announced.
type ClaimConfirm struct {
	N []uint64 `json:"n"`
}

// ClaimDrop ends the worker's interest in claims, whether their payloads are on their way
// or long there: it has given the samples up.
type ClaimDrop struct {
	N []uint64 `json:"n"`
}

// ClaimResult hands a result over.
type ClaimResult struct {
	N      uint64
	Token  string
	Result *Result
}

func (m *ClaimResult) check() (f faults) {
	if err := checkClaimed(m.Result, 0); err != nil {
		return faults{fmt.Errorf("%w: %w", ErrValue, err)}
	}
	f.attempt(m.N, m.Result.Attempt, m.Token, m.Result.Worker)
	return f
}

// ClaimOK answers a ClaimResult: from here on the gateway is responsible for the sample.
type ClaimOK struct {
	N uint64 `json:"n"`
}

// ClaimRefused answers a ClaimAsk or a ClaimResult, or, with N 0, a ClaimHello.
type ClaimRefused struct {
	N       uint64 `json:"n,omitempty"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

func (m *ClaimRefused) check() (f faults) {
	f.need(m.Reason != "", "reason must not be empty")
	return f
}

// ClaimBye says that the worker ends and does not come back.
type ClaimBye struct{}

// length checks a name of the claim protocol.
func (f *faults) length(what, s string, least int) {
	f.need(len(s) >= least && len(s) <= maxClaimName, "%s of %d bytes, want %d to %d", what, len(s), least, maxClaimName)
}

// attempt checks what a claim or a result is of.
func (f *faults) attempt(n uint64, k AttemptKey, token, worker string) {
	f.need(n > 0, "claim number 0, want 1 or more")
	f.need(k.Attempt > 0, "attempt %d, want 1 or more", k.Attempt)
	f.need(len(token) <= MaxTokenBytes, "token of %d bytes, want at most %d", len(token), MaxTokenBytes)
	f.length("gateway", k.Gateway, 0)
	f.length("run", k.Run, 0)
	f.length("id", k.ID, 1)
	f.length("worker", worker, 1)
}
