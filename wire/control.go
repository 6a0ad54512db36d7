package wire

import (
	"fmt"
	"slices"

	"github.com/rewardloop/rewardloop/rewards"
)

// Names of the two websocket sub-protocols.
const (
	Protocol      = "rewardloop.v1"
	ClaimProtocol = "rewardloop.claim.v1"
)

// Limits of a control message. Those of a client are small; those of a server may contain a result
// with details.
const (
	MaxClientControlBytes = 64 << 10
	MaxServerControlBytes = 16 << 20
)

// controlKinds are the messages of Protocol. messages.json says the same of them.
//
//nolint:gochecknoglobals // a table
var controlKinds = kinds{
	message[Hello]("hello", byClient),
	message[Step]("step", byClient),
	message[EndOfStep]("end_of_step", byClient),
	message[Phase]("phase", byClient),
	message[Cancel]("cancel", byClient),
	message[Confirm]("confirm", byClient),
	message[Want]("want", byClient),
	message[Yield]("yield", byClient),
	message[Fetch]("fetch", byClient),
	message[Rewards]("rewards", byGateway),
	message[Phased]("phased", byGateway),
	message[Welcome]("welcome", byGateway),
	message[Credit]("credit", byGateway),
	message[Reclaim]("reclaim", byGateway),
	message[Ack]("ack", byGateway),
	message[Result]("result", byGateway),
	message[Error]("error", byGateway),
	message[Draining]("draining", byGateway),
}

// Hello opens a session. It is the first message of a client.
type Hello struct {
	// Run is the name of the training run.
	Run string `json:"run"`
	// Client is the name of the sender within the run, Lane the number of the client's connection.
	// There is one live connection per (run, client, lane).
	Client string `json:"client,omitempty"`
	Lane   int    `json:"lane,omitempty"`
	// Reward is the profile for samples without a profile. Empty: the default profile.
	Reward string `json:"reward,omitempty"`
	// Epoch joins an epoch of the run that another connection has begun. 0: the current epoch, or a
	// new epoch if the run has no live connection.
	Epoch uint64 `json:"epoch,omitempty"`
	// OnSampleFailure overrides the profile's failure policy: none, group_mean, zero or value:<x>.
	OnSampleFailure string `json:"on_sample_failure,omitempty"`
	// Resume continues a session after a lost connection.
	Resume *Resume `json:"resume,omitempty"`
}

func (m *Hello) check() (f faults) {
	f.need(m.Run != "", "run must not be empty")
	f.names("a name", m.Run, m.Client, m.Reward, m.OnSampleFailure)
	f.need(m.Lane >= 0 && m.Lane < 1<<16, "lane is %d, want 0 to %d", m.Lane, 1<<16-1)
	if _, err := rewards.ParseSamplePolicy(m.OnSampleFailure); err != nil {
		f = append(f, fmt.Errorf("%w: on_sample_failure: %w", ErrValue, err))
	}
	if m.Resume != nil {
		f.need(m.Resume.Session != "", "resume.session must not be empty")
		f.names("resume.session", m.Resume.Session)
	}
	return f
}

// Resume contains the session to resume and the number of the last result that the client has.
type Resume struct {
	Session   string `json:"session"`
	Confirmed uint64 `json:"confirmed"`
}

// Step announces how many samples a step will have.
type Step struct {
	Split    rewards.Split `json:"split,omitempty"` // empty: train
	Step     int64         `json:"step"`
	Expected int64         `json:"expected"`
	// Total means that Expected counts the step's samples from all clients of the run. Without
	// Total the numbers of the run's clients are added.
	Total bool `json:"total,omitempty"`
	// IDs are ids of expected samples, so that the server can name a sample that never arrives.
	// Further messages add ids.
	IDs []string `json:"ids,omitempty"`
	// DeadlineMS is the time from this message to the deadline of the step, at which the step ends
	// even if samples are missing. 0: the server's step_timeout after the first message about the
	// step. OnDeadline is the policy at the deadline: DeadlineMask, DeadlineFail or
	// DeadlineShortfall. Empty: the server's on_step_deadline.
	DeadlineMS int64  `json:"deadline_ms,omitempty"`
	OnDeadline string `json:"on_deadline,omitempty"`
}

func (m *Step) check() (f faults) {
	f.split(m.Split)
	f.need(m.Expected >= 0 && m.Expected <= 1<<31-1, "expected is %d, want 0 to %d", m.Expected, 1<<31-1)
	f.need(m.DeadlineMS >= 0 && m.DeadlineMS <= MaxDeadline.Milliseconds(), "deadline_ms is %d, want 0 to %d", m.DeadlineMS, MaxDeadline.Milliseconds())
	f.need(slices.Contains([]string{"", DeadlineMask, DeadlineFail, DeadlineShortfall}, m.OnDeadline),
		"on_deadline %q, want %s, %s or %s", m.OnDeadline, DeadlineMask, DeadlineFail, DeadlineShortfall)
	if m.IDs != nil {
		f.ids(m.IDs)
	}
	return f
}

// EndOfStep announces that this client sends no more samples of the step.
type EndOfStep struct {
	Split rewards.Split `json:"split,omitempty"`
	Step  int64         `json:"step"`
}

func (m *EndOfStep) check() (f faults) {
	f.split(m.Split)
	return f
}

// Phases of a trainer that shares its GPU memory with the scorers (pool.colocated).
const (
	// PhaseRollout is the time in which the trainer has the memory. No sample is scored.
	PhaseRollout = "rollout"
	// PhaseReward is the time in which samples are scored.
	PhaseReward = "reward"
)

// Phase announces that the client's run has begun a phase of its training.
type Phase struct {
	// Req is the number that the client gives to the message. The answer has the same number.
	Req  uint64 `json:"req"`
	Name string `json:"name"`
}

func (m *Phase) check() (f faults) {
	f.need(m.Name == PhaseRollout || m.Name == PhaseReward, "the phase is %q, want %s or %s", m.Name, PhaseRollout, PhaseReward)
	return f
}

// Phased answers a Phase whose change is complete. In the phase rollout the memory has been freed.
// In the phase reward the memory is being allocated, and samples are scored from now on.
type Phased struct {
	Req  uint64 `json:"req"`
	Name string `json:"name"`
	// Why describes what was not completed. Empty: the change is complete.
	Why string `json:"why,omitempty"`
}

func (m *Phased) check() (f faults) {
	f.need(m.Name == PhaseRollout || m.Name == PhaseReward, "the phase is %q, want %s or %s", m.Name, PhaseRollout, PhaseReward)
	return f
}

// Cancel cancels samples.
type Cancel struct {
	IDs []string `json:"ids"`
}

func (m *Cancel) check() (f faults) {
	f.ids(m.IDs)
	return f
}

// Confirm confirms every result up to Seq. The server deletes these results.
type Confirm struct {
	Seq uint64 `json:"seq"`
}

// Want contains how many samples and bytes a client has ready to send beyond its credit. Each Want
// replaces the previous one.
type Want struct {
	Samples int64 `json:"samples"`
	Bytes   int64 `json:"bytes"`
}

func (m *Want) check() (f faults) {
	f.credit(m.Samples, m.Bytes)
	return f
}

// Yield returns credit that a client does not need, as totals since the welcome. The client counts
// this credit as sent.
type Yield struct {
	Samples int64 `json:"samples"`
	Bytes   int64 `json:"bytes"`
}

func (m *Yield) check() (f faults) {
	f.credit(m.Samples, m.Bytes)
	return f
}

// Welcome answers Hello.
type Welcome struct {
	Session  string       `json:"session"`
	Epoch    uint64       `json:"epoch"`
	Resumed  bool         `json:"resumed"`
	Protocol string       `json:"protocol"`
	Credit   CreditTotals `json:"credit"`
	Limits   LimitsInfo   `json:"limits"`
	Rewards  []RewardInfo `json:"rewards"`
}

func (m *Welcome) check() (f faults) {
	f.need(m.Session != "", "session must not be empty")
	f.credit(m.Credit.Samples, m.Credit.Bytes)
	return f
}

// CreditTotals are the numbers of samples and bytes that a client may have sent since the welcome.
type CreditTotals struct {
	Samples int64 `json:"samples"`
	Bytes   int64 `json:"bytes"`
}

// LimitsInfo contains the limits beyond which the server refuses messages.
type LimitsInfo struct {
	MessageBytes int64 `json:"message_bytes"`
	HeaderBytes  int64 `json:"header_bytes"`
	ControlBytes int64 `json:"control_bytes"`
	// InFlight limits the samples that a session has in flight. 0: only credit limits them.
	InFlight int64 `json:"in_flight,omitempty"`
	// IdleMS is how long a connection may be silent before it is closed.
	IdleMS int64 `json:"idle_ms,omitempty"`
}

// RewardInfo describes a profile that the server can score with.
type RewardInfo struct {
	Name string `json:"name"`
	// Extra lists the declared fields of reward_extra_info.
	Extra []ExtraKey `json:"extra,omitempty"`
}

// ExtraKey is one declared field of reward_extra_info. Kind is number, bool or string.
type ExtraKey struct {
	Name string            `json:"name"`
	Kind rewards.FieldKind `json:"kind"`
}

// Credit raises the totals. The totals are cumulative: a repeated message has no effect.
type Credit struct {
	Samples int64 `json:"samples"`
	Bytes   int64 `json:"bytes"`
}

func (m *Credit) check() (f faults) {
	f.credit(m.Samples, m.Bytes)
	return f
}

// Reclaim requests the credit that a client does not need. The client answers with a Yield. Without
// an answer the server takes back all unused credit.
type Reclaim struct{}

// Ack confirms that this gateway process has accepted the samples and guarantees a result for each.
type Ack struct {
	IDs []string `json:"ids"`
}

func (m *Ack) check() (f faults) {
	f.ids(m.IDs)
	return f
}

// Error is a refusal that is not the result of a sample: that of a control message, or of a frame
// whose id could not be read. ID is set if an id is known.
type Error struct {
	Code    rewards.Class `json:"code"`
	Message string        `json:"message"`
	ID      string        `json:"id,omitempty"`
	// Req is the number of the Fetch that was refused.
	Req uint64 `json:"req,omitempty"`
}

func (m *Error) check() (f faults) {
	f.need(m.Code != "", "code must not be empty")
	return f
}

// Draining announces that the server accepts no new samples and finishes the samples in flight.
type Draining struct{}
