package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/loop/dispatch"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Config configures a gateway. A field with the zero value gets its default. The fields that Keys
// lists are set by the configuration file, and Keys documents them; the other fields are set by the
// program.
type Config struct {
	// Gateway is the name of this gateway, which its tickets carry to the workers. The default is a
	// random name.
	Gateway string

	MaxBytes         int64
	MessageBytes     int64
	CreditSamples    int
	CreditBytes      int64
	MaxAttempts      int
	SampleTimeout    time.Duration
	MaxSampleTimeout time.Duration
	StepTimeout      time.Duration
	OnStepDeadline   string
	StepBytes        int64
	StepAge          time.Duration
	NumExamine       int
	ClaimTimeout     time.Duration
	UnavailableAfter time.Duration
	Weights          map[string]float64
	KeepResults      int
	KeepBytes        int64
	KeepFor          time.Duration
	ResumeGrace      time.Duration
	Dispatch         dispatch.Config
	Breaker          Breaker

	// RepublishAfter is the time after which a ticket that no worker has claimed is published again
	// although a place is free, because the queue may have lost the ticket. The default is 5 s.
	RepublishAfter time.Duration
	// Profiles are the names of the rewards that clients may request; "" is the default reward.
	// Names that begin with "_" are reserved for the process itself, and clients cannot request
	// them.
	Profiles []string
	// Queues are the names of the ticket queues by profile name. A worker takes the tickets of a
	// profile from the queue of that name. Two names of the same profile have the same queue. A
	// profile that is not in Queues has the queue wire.QueueName(name, "").
	Queues map[string]string
	// GroupByPrompt are the names of the profiles for which samples with the same prompt form one
	// group if the samples have a group_size and no uid.
	GroupByPrompt []string
	// GroupProfiles are the names of the profiles that need whole prompt groups. The first member
	// of a group that cannot fit into three quarters of MaxBytes is refused.
	GroupProfiles []string
	// OnSampleFailure maps a profile's name to its policy for failed samples.
	OnSampleFailure map[string]rewards.SamplePolicy
}

// Keys implements keys.Described for the section loop.
func (c *Config) Keys(k *keys.Set) {
	k.Size(&c.MaxBytes, "max_bytes", 1<<30, "Maximum bytes of samples in flight plus unused credit (flow control), over all clients. A quarter is never granted as credit and stays free for samples of HTTP requests.").Min(1 << 20)
	k.Size(&c.MessageBytes, "message_bytes", 128<<20, "Maximum size of one sample. A larger sample is refused. At most max_bytes.").Min(1 << 10)
	k.Int(&c.CreditSamples, "credit_samples", 0, "Maximum number of unfinished samples of one connection (flow control). 0: 256, or twice the number of samples of the reward that all workers can score at a time, whichever is more.").Max(1_000_000)
	k.Size(&c.CreditBytes, "credit_bytes", 64<<20, "Maximum bytes of unfinished samples of one connection (flow control). At most max_bytes.").Min(1 << 10)
	k.Int(&c.MaxAttempts, "max_attempts", 3, "Maximum number of workers that try a sample, one after another, when each worker disconnects or fails by a fault of the worker. Then the sample fails.").Between(1, 100)
	k.Duration(&c.SampleTimeout, "sample_timeout", 900*time.Second, "Time limit from arrival to result for a websocket sample to which the client gives no deadline.").Min(time.Second)
	k.Duration(&c.MaxSampleTimeout, "max_sample_timeout", time.Hour, "Maximum time limit that a client may set for a sample. A longer time limit is shortened for a sample of a websocket, and refused in an HTTP request.").Min(time.Second)
	k.Duration(&c.StepTimeout, "step_timeout", 1800*time.Second, "Time limit of a step from its first message or sample on. Of several steps, the step with the earliest deadline is scored first.").Min(time.Second)
	k.Choice(&c.OnStepDeadline, "on_step_deadline", []string{wire.DeadlineMask, wire.DeadlineFail, wire.DeadlineShortfall},
		"Result of a declared step with missing samples at its deadline, unless the client chooses. mask: rows marked as invalid. fail: an error. proceed_with_shortfall: the other rows only.")
	k.Size(&c.StepBytes, "step_bytes", 256<<20, "Maximum bytes of memory for results of steps that trainers fetch with one request for each step, over all runs. The oldest results are deleted first.").Min(1 << 10)
	k.Duration(&c.StepAge, "step_age", 30*time.Minute, "Time for which results of a step are kept for trainers that fetch a whole step with one request.").Min(time.Second)
	k.Int(&c.NumExamine, "num_examine", 0, "Number of samples of each step, the first that finish, that the server prints with their rewards to standard output. 0: none.").Max(10_000)
	k.Duration(&c.ClaimTimeout, "claim_timeout", 600*time.Second, "Time for which a worker may hold a sample before another worker gets the sample. At least the longest component timeout.").Min(time.Second)
	k.Duration(&c.UnavailableAfter, "unavailable_after", 0, "Maximum total time that a sample waits while no worker or engine can score its reward; then the sample fails. 0: until 10 % of its timeout (at most 5 s) before its deadline.")
	k.Weights(&c.Weights, "run_weights", "Weights by which training runs share the workers while samples of several runs wait, by name of the run, such as {ocr: 2}. A run that is not listed has weight 1.")
	k.Int(&c.KeepResults, "results_kept", 100_000, "Maximum number of results of a run that are kept for a client that reconnects.").Between(1, 10_000_000)
	k.Size(&c.KeepBytes, "results_bytes", 64<<20, "Maximum bytes of the results of a run that are kept for a client that reconnects.").Min(1 << 10)
	k.Duration(&c.KeepFor, "results_age", 10*time.Minute, "Time for which results are kept for a client that reconnects.").Min(time.Second)
	k.Duration(&c.ResumeGrace, "resume_grace", time.Minute, "Time from the disconnection of the last client of a run, or from the latest fetch of rewards, until unfinished samples of the run are cancelled. "+
		"Samples of declared steps are not cancelled.").Min(time.Second)
	k.Section("dispatch", "Choice of the worker for a sample, and backup requests.", &c.Dispatch)
	k.AtMost("message_bytes", "max_bytes")
}

// Keys implements keys.Described for the keys of Breaker in the section loop.workers.
func (b *Breaker) Keys(k *keys.Set) {
	k.Int(&b.Failures, "breaker_failures", 5, "Number of consecutive failures of a worker for one reward, caused by the worker, after which the circuit breaker gives the worker no samples of the reward for 1 s to 30 s.").Between(1, 65536)
}

// WithDefaults returns a copy of c in which the defaults are set.
func (c Config) WithDefaults() Config {
	keys.Fill(&c, &c.Breaker)
	c.Breaker.Pause = cmp.Or(c.Breaker.Pause, time.Second)
	c.Breaker.MaxPause = cmp.Or(c.Breaker.MaxPause, 30*time.Second)
	c.RepublishAfter = cmp.Or(c.RepublishAfter, 5*time.Second)
	if len(c.Profiles) == 0 {
		c.Profiles = []string{""}
	}
	return c
}

// Validate returns an error that lists all invalid fields.
func (c Config) Validate() error {
	err := keys.Validate("loop", &c, &c.Breaker)
	if b := c.Breaker; b.Pause <= 0 || b.MaxPause < b.Pause {
		err = errors.Join(err, fmt.Errorf("loop: breaker: pauses from %v to %v, want more than 0, the shorter first", b.Pause, b.MaxPause))
	}
	return err
}

// defaultCredit is how many samples a connection may send at least.
const defaultCredit = 256

// profileBytes bounds what sessions of one profile hold and may send: where clients may ask
// for several profiles, half of the memory, but no less than one message.
func (c Config) profileBytes() int64 {
	asked := map[string]bool{}
	for name, queue := range c.queues() {
		if !strings.HasPrefix(name, "_") { // those are the process's own
			asked[queue] = true
		}
	}
	if len(asked) < 2 {
		return c.MaxBytes
	}
	return max(c.MaxBytes/2, c.MessageBytes)
}

// queues are those of all profiles.
func (c Config) queues() map[string]string {
	all := make(map[string]string, len(c.Profiles))
	for _, name := range c.Profiles {
		all[name] = cmp.Or(c.Queues[name], wire.QueueName(name, ""))
	}
	return all
}

// Queue carries tickets to free places of workers. A Queue decides which place gets a ticket, but
// not which ticket is next. Package queue contains the implementation.
type Queue interface {
	// Publish hands a ticket to the queue. An error means that the queue did not accept the ticket.
	// A ticket may be published again with the same attempt; a worker that claims the second copy
	// of an answered ticket gets wire.ErrGone.
	Publish(ctx context.Context, t wire.Ticket) error
	// Revoke withdraws an attempt. An unclaimed ticket is removed from the queue; the context of a
	// claimed ticket's lease is cancelled. Revoke is a hint: correctness does not depend on it.
	Revoke(ctx context.Context, key wire.AttemptKey) error
}

// Presence reports which workers are live.
type Presence interface {
	// Workers returns the live workers in a fixed order. Workers must be cheap, because every round
	// of dispatch calls it.
	Workers() []wire.WorkerInfo
}
