package wire

import (
	"errors"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// ErrGone is what a gateway answers to the claim of a ticket whose sample needs no
// scoring any more: it was answered, cancelled, or belongs to another process's
// life. The worker gives the ticket up.
var ErrGone = errors.New("sample is gone")

// Ticket is what the engine carries in place of a sample: about 300 bytes that
// say which gateway holds the payload. The payload is claimed with it.
type Ticket struct {
	// ID and Run name the sample; Epoch tells a restarted trainer's ids from the old ones.
	ID    string `json:"id"`
	Run   string `json:"run"`
	Epoch uint64 `json:"epoch,omitempty"`
	// Step is the trainer's step, for logs.
	Step int64 `json:"step,omitempty"`
	// Reward is the profile that scores the sample; empty: the default one.
	Reward string `json:"reward,omitempty"`
	// Gateway names the process that holds the payload and takes the result.
	Gateway string `json:"gateway"`
	// Attempt counts from 1; a result of an attempt that is over is dropped.
	Attempt int `json:"attempt"`
	// Avoid names workers that hold or failed this sample; they hand the ticket
	// back while others live.
	Avoid []string `json:"avoid,omitempty"`
	// Aside says that workers in Avoid are too slow for it: they hand it back at once, for
	// a faster one is free, and ask for nothing for a moment.
	Aside bool `json:"aside,omitempty"`
	// To names the one worker that the ticket is for; empty: whoever is free.
	To string `json:"to,omitempty"`
	// Pool names the workers that it is for, which serve the same rewards; empty: all.
	Pool string `json:"pool,omitempty"`
	// Claim is the address at which another process claims the payload, and Token what it
	// shows there; both are empty for workers of the gateway's own process.
	Claim string `json:"claim,omitempty"`
	Token string `json:"token,omitempty"`
	// Bytes is the size of the frame.
	Bytes int64 `json:"bytes"`
	// Deadline is when the sample expires.
	Deadline time.Time `json:"deadline"`
	// Expect is the run's running mean service time (0: unknown): a slot that
	// fails sooner rests until it has passed, so that a worker that fails at once
	// draws no more than its share.
	Expect time.Duration `json:"expect,omitempty"`
	// Group says that the ticket is for a whole prompt group, all of whose members
	// are claimed with it.
	Group bool `json:"group,omitempty"`
}

// Group is what a worker is given for the ticket of a prompt group.
type Group struct {
	UID string
	// Size is the members' group_size; those that are not among Members never came,
	// or have ended.
	Size int
	// LastMeanStd is that of rewards.Group.
	LastMeanStd *float64
	Members     []GroupMember
}

// GroupMember is one of them: its frame, with a reference that is the worker's to
// release, and what its own terms have said.
type GroupMember struct {
	Frame   *Frame
	Partial []rewards.TermResult
}

// Key names the attempt among all of a gateway's tickets.
func (t Ticket) Key() AttemptKey {
	return AttemptKey{Gateway: t.Gateway, Run: t.Run, Epoch: t.Epoch, ID: t.ID, Attempt: t.Attempt}
}

// AttemptKey names one attempt at one sample, among those of all gateways.
type AttemptKey struct {
	Gateway string `json:"gateway,omitempty"`
	Run     string `json:"run"`
	Epoch   uint64 `json:"epoch"`
	ID      string `json:"id"`
	Attempt int    `json:"attempt"`
}

// WorkerInfo is what a worker tells of itself.
type WorkerInfo struct {
	// ID is unique among live workers.
	ID string `json:"id"`
	// Slots is how many samples it scores at once when healthy; Busy how many it
	// scores now, abandoned ones included.
	Slots int `json:"slots"`
	Busy  int `json:"busy"`
	// State is "ready", "broken" (its breaker is open, or it reaches no gateway), "sick"
	// (too many abandoned scorers) or "draining".
	State string `json:"state"`
	// Rewards names the profiles it serves.
	Rewards []string `json:"rewards,omitempty"`
	// Pool names the workers that serve the same rewards; empty: all do.
	Pool string `json:"pool,omitempty"`
	// Host is the machine it runs on, Devices and Models what it scores with there, such
	// as cuda:0 and ppocr-v4-mobile.
	Host    string   `json:"host,omitempty"`
	Devices []string `json:"devices,omitempty"`
	Models  []string `json:"models,omitempty"`
	Version string   `json:"version,omitempty"`
	// Scored and Failed count samples since its start.
	Scored uint64 `json:"scored"`
	Failed uint64 `json:"failed"`
	// Seen is when the gateway last heard of it.
	Seen time.Time `json:"seen"`
}

// States of a worker.
const (
	WorkerReady    = "ready"
	WorkerBroken   = "broken"
	WorkerSick     = "sick"
	WorkerDraining = "draining"
)
