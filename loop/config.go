package loop

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/loop/dispatch"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Config bounds a gateway. The zero value of a field takes its default.
type Config struct {
	// Gateway names this process to workers. Defaults to a random name.
	Gateway string
	// MaxBytes bounds the bytes of all frames held plus all credit granted and not
	// yet used. A quarter of it is never granted, so that samples from inside the
	// process find room beside idle streams. Defaults to 1 GiB.
	MaxBytes int64
	// MessageBytes bounds one sample's frame. Defaults to 128 MiB.
	MessageBytes int64
	// CreditBytes and CreditSamples are what a connection may send before a buffer
	// is released again. CreditBytes defaults to 64 MiB, CreditSamples to 256 or, where that
	// is more, twice what live workers can use of the connection's profile at a time.
	CreditBytes   int64
	CreditSamples int64
	// MaxAttempts bounds how often one sample is handed to a worker. Defaults to 3.
	MaxAttempts int
	// SampleTimeout is the time from a sample's arrival to its final result when
	// the client names none. Defaults to 900 s.
	SampleTimeout time.Duration
	// MaxSampleTimeout bounds what a client may ask for. Defaults to 1 h.
	MaxSampleTimeout time.Duration
	// StepTimeout is how long a step may take from its first word or sample on. The step
	// that closes first goes first; one that was declared ends then, with whatever is
	// missing, by OnStepDeadline. Defaults to 1800 s.
	StepTimeout time.Duration
	// OnStepDeadline is wire.DeadlineMask, DeadlineFail or DeadlineShortfall, for steps
	// whose client names none. Defaults to DeadlineMask.
	OnStepDeadline string
	// StepBytes and StepAge bound what is kept of the samples of steps for trainers that
	// read them as a whole, all runs together; the oldest goes first. Default to 256 MiB
	// and 30 min.
	StepBytes int64
	StepAge   time.Duration
	// Dispatch says which worker gets a sample, and when a second one does.
	Dispatch dispatch.Config
	// Breaker says when a worker gets no more samples of a profile that it fails.
	Breaker Breaker
	// RepublishAfter is how long a ticket may lie unclaimed while a place is free
	// before it is published once more: the engine may have lost it. Defaults to 5 s.
	RepublishAfter time.Duration
	// ClaimTimeout is how long a claimed sample may stay without a result before it
	// is given to another worker although its lease says nothing; it must exceed
	// the longest term. Defaults to 600 s.
	ClaimTimeout time.Duration
	// UnavailableAfter is how long a sample waits, all its waits together, while no worker
	// takes samples of its profile, before it fails. 0: until a little before its deadline.
	UnavailableAfter time.Duration
	// Weights gives runs their share of the places under load, by run name. A run
	// that is not named weighs 1.
	Weights map[string]float64
	// KeepResults, KeepBytes and KeepFor bound what is remembered of answered
	// samples until the client confirms them. Default to 100,000, 64 MiB (per run)
	// and 10 min.
	KeepResults int
	KeepBytes   int64
	KeepFor     time.Duration
	// ResumeGrace is how long samples wait for a client of their run to come back, or to fetch
	// rewards, before they are cancelled; those of declared steps are not. Defaults to 60 s.
	ResumeGrace time.Duration
	// Profiles are the names of the rewards that may be asked for; "" is the default one.
	Profiles []string
	// Queues are the names of their queues of tickets, by profile: workers take what they
	// serve from the queue of the same name. Two names of one profile have the same queue. A
	// profile that is not named has that of its name (wire.QueueName).
	Queues map[string]string
	// GroupByPrompt are the profiles whose samples of the same prompt are one group where
	// they have a group_size and no uid.
	GroupByPrompt []string
	// NumExamine is how many samples of each step are handed to Options.Examine.
	NumExamine int
	// GroupProfiles are those of them that need whole prompt groups: a group that
	// cannot fit into MaxBytes is then refused with its first member.
	GroupProfiles []string
	// OnSampleFailure is each profile's policy, by name.
	OnSampleFailure map[string]rewards.SamplePolicy
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	c.MaxBytes = cmp.Or(c.MaxBytes, 1<<30)
	c.MessageBytes = cmp.Or(c.MessageBytes, 128<<20)
	c.CreditBytes = cmp.Or(c.CreditBytes, 64<<20)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 3)
	c.SampleTimeout = cmp.Or(c.SampleTimeout, 900*time.Second)
	c.MaxSampleTimeout = cmp.Or(c.MaxSampleTimeout, time.Hour)
	c.StepTimeout = cmp.Or(c.StepTimeout, 1800*time.Second)
	c.OnStepDeadline = cmp.Or(c.OnStepDeadline, wire.DeadlineMask)
	c.StepBytes = cmp.Or(c.StepBytes, 256<<20)
	c.StepAge = cmp.Or(c.StepAge, 30*time.Minute)
	c.Dispatch = c.Dispatch.WithDefaults()
	c.Breaker.Failures = cmp.Or(c.Breaker.Failures, 5)
	c.Breaker.Pause = cmp.Or(c.Breaker.Pause, time.Second)
	c.Breaker.MaxPause = cmp.Or(c.Breaker.MaxPause, 30*time.Second)
	c.RepublishAfter = cmp.Or(c.RepublishAfter, 5*time.Second)
	c.ClaimTimeout = cmp.Or(c.ClaimTimeout, 600*time.Second)
	c.KeepResults = cmp.Or(c.KeepResults, 100_000)
	c.KeepBytes = cmp.Or(c.KeepBytes, 64<<20)
	c.KeepFor = cmp.Or(c.KeepFor, 10*time.Minute)
	c.ResumeGrace = cmp.Or(c.ResumeGrace, time.Minute)
	if len(c.Profiles) == 0 {
		c.Profiles = []string{""}
	}
	return c
}

// Validate reports everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	positive := func(name string, v int64) {
		if v <= 0 {
			errs = append(errs, fmt.Errorf("loop: %s must be positive, not %d", name, v))
		}
	}
	positive("max_bytes", c.MaxBytes)
	positive("message_bytes", c.MessageBytes)
	positive("credit_bytes", c.CreditBytes)
	if c.CreditSamples < 0 {
		errs = append(errs, fmt.Errorf("loop: credit_samples must not be negative, not %d", c.CreditSamples))
	}
	positive("max_attempts", int64(c.MaxAttempts))
	positive("sample_timeout", int64(c.SampleTimeout))
	positive("step_timeout", int64(c.StepTimeout))
	positive("step_bytes", c.StepBytes)
	positive("step_age", int64(c.StepAge))
	if !slices.Contains([]string{wire.DeadlineMask, wire.DeadlineFail, wire.DeadlineShortfall}, c.OnStepDeadline) {
		errs = append(errs, fmt.Errorf("loop: on_step_deadline is %q, want %s, %s or %s", c.OnStepDeadline, wire.DeadlineMask, wire.DeadlineFail, wire.DeadlineShortfall))
	}
	if c.UnavailableAfter < 0 {
		errs = append(errs, fmt.Errorf("loop: unavailable_after must not be negative, not %v", c.UnavailableAfter))
	}
	positive("keep_results", int64(c.KeepResults))
	positive("resume_grace", int64(c.ResumeGrace))
	positive("breaker.failures", int64(c.Breaker.Failures))
	positive("breaker.pause", int64(c.Breaker.Pause))
	positive("breaker.max_pause", int64(c.Breaker.MaxPause))
	errs = append(errs, c.Dispatch.Validate())
	if c.MessageBytes > c.MaxBytes {
		errs = append(errs, fmt.Errorf("loop: message_bytes (%d) exceeds max_bytes (%d): such a sample could never be held", c.MessageBytes, c.MaxBytes))
	}
	for run, w := range c.Weights {
		if !(w > 0) {
			errs = append(errs, fmt.Errorf("loop: the weight of run %q must be positive, not %v", run, w))
		}
	}
	return errors.Join(errs...)
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
