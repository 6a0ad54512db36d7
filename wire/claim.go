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

// ErrUnreachable is the error of a claim if no connection to the gateway could be opened. The
// gateway may still be running, so the ticket is returned for a worker that can reach the gateway.
var ErrUnreachable = errors.New("gateway cannot be reached")

// ErrCorrupt is the error of a payload whose bytes differ from those that the gateway sent.
var ErrCorrupt = errors.New("payload differs from its checksum")

// ClaimVersion is the version of the claim protocol. A peer with another version is refused.
const ClaimVersion = 1

// Limits of the claim protocol.
const (
	// MaxClaimResultBytes limits a result with all its fields; longer details are left out.
	MaxClaimResultBytes = 4 << 20
	// MaxClaimControlBytes limits a text message of a worker. MaxServerControlBytes limits that of
	// a gateway.
	MaxClaimControlBytes = MaxClaimResultBytes + 64<<10
	// MaxClaimChunk limits the payload bytes of one binary message.
	MaxClaimChunk = 256 << 10
	// ClaimChunkHead is the length of the claim's number in front of the payload bytes.
	ClaimChunkHead = 8
	// MaxTokenBytes limits the length of a claim token.
	MaxTokenBytes = 256

	// maxClaimName bounds names: that of a group's ticket is longer than its uid.
	maxClaimName = 2 * MaxNameBytes
)

// Reasons of a ClaimRefused, and values of the label reason of the metric.
const (
	RefusedToken     = "token"     // the token is not from this gateway for this attempt
	RefusedExpired   = "expired"   // the token has expired; the gateway publishes a new ticket
	RefusedGone      = "gone"      // the sample no longer needs a score
	RefusedMalformed = "malformed" // the message violates the protocol
	RefusedBusy      = "busy"      // too many claims are open
	RefusedFailed    = "failed"    // the gateway failed; a retry may succeed
	RefusedProtocol  = "protocol"  // the peer has another version of the protocol
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

// ClaimHello opens a connection, as the first message of a worker.
type ClaimHello struct {
	Protocol int    `json:"protocol"`
	Version  string `json:"version,omitempty"`
	// Session is a random name of the worker process. Connections with the same name belong to the
	// same process. A session that reconnects within a second is treated as if it had stayed
	// connected.
	Session string `json:"session"`
	// Wanted are the numbers of the claims that the process waits for or has open. The process has
	// given up all other claims up to UpTo.
	Wanted []uint64 `json:"wanted,omitempty"`
	UpTo   uint64   `json:"up_to,omitempty"`
}

func (m *ClaimHello) check() (f faults) {
	f.length("session", m.Session, 1)
	f.length("version", m.Version, 0)
	return f
}

// ClaimWelcome answers a ClaimHello.
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

// ClaimAsk requests the payload of an attempt.
type ClaimAsk struct {
	// N is the number of the claim. A worker process counts its claims and results from 1.
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
	// Group is set for the payload of a prompt group. Group.Members is empty, because the Frames
	// contain the members.
	Group *Group
}

// ClaimFrame is one frame of a payload. Sum is the checksum that the received frame must have.
// Partial are results of the sample's components: in a group those of the member's own components,
// otherwise those that were finished when a worker returned the sample because another component
// waits for a dependency.
type ClaimFrame struct {
	Sum     Checksum
	Partial []rewards.ComponentResult
}

// ClaimConfirm confirms that the payloads of the claims have arrived as announced.
type ClaimConfirm struct {
	N []uint64 `json:"n"`
}

// ClaimDrop declares that the worker has given up the claims, before or after their payloads have
// arrived.
type ClaimDrop struct {
	N []uint64 `json:"n"`
}

// ClaimResult delivers a result.
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

// ClaimOK answers a ClaimResult: from now on the gateway is responsible for the sample.
type ClaimOK struct {
	N uint64 `json:"n"`
}

// ClaimRefused answers a ClaimAsk or a ClaimResult, or a ClaimHello if N is 0.
type ClaimRefused struct {
	N       uint64 `json:"n,omitempty"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

func (m *ClaimRefused) check() (f faults) {
	f.need(m.Reason != "", "reason must not be empty")
	return f
}

// ClaimBye declares that the worker process ends and does not reconnect.
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
