package config

import (
	"time"

	"github.com/rewardloop/rewardloop/loop/dispatch"
	"github.com/rewardloop/rewardloop/rewards"
)

// Loop holds the settings of the section loop.
type Loop struct {
	MaxBytes          int64
	MessageBytes      int64
	CreditSamples     int
	CreditBytes       int64
	MaxAttempts       int
	SampleTimeout     time.Duration
	MaxSampleTimeout  time.Duration
	HTTPSampleTimeout time.Duration
	ComputeTimeout    time.Duration
	StepTimeout       time.Duration
	// OnStepDeadline is DeadlineMask, DeadlineFail or DeadlineShortfall.
	OnStepDeadline string
	StepBytes      int64
	StepAge        time.Duration
	Dispatch       Dispatch
	// Deterministic makes results independent of where and in what company samples are
	// scored: batches of one, no backup requests, seeds of ids.
	Deterministic bool
	NumExamine    int
	TermTimeout   time.Duration
	ClaimTimeout  time.Duration
	// UnavailableAfter is how long a sample waits while no worker takes samples of its profile;
	// 0: until a little before its deadline.
	UnavailableAfter time.Duration
	// RunWeights is the share of a run by its name; a run not named has 1.
	RunWeights   map[string]float64
	ResultsKept  int
	ResultsBytes int64
	ResultsAge   time.Duration
	ResumeGrace  time.Duration
	DrainTimeout time.Duration
	Workers      Workers
}

// Dispatch holds the settings of loop.dispatch.
type Dispatch struct {
	// Policy is one of dispatch.Policies.
	Policy      string
	BackupAfter float64
	BackupShare float64
}

// The values of Loop.OnStepDeadline; those of wire.Step.OnDeadline.
const (
	DeadlineMask      = "mask"
	DeadlineFail      = "fail"
	DeadlineShortfall = "proceed_with_shortfall"
)

// Workers holds the settings of loop.workers.
type Workers struct {
	MaxAbandoned    int
	MaxBytes        int64
	BreakerFailures int
	BreakerPause    time.Duration
	BreakerMaxPause time.Duration
}

// defaultLoop has the default of every setting.
func defaultLoop() Loop {
	return Loop{
		MaxBytes:          1 << 30,
		MessageBytes:      128 << 20,
		CreditBytes:       64 << 20,
		MaxAttempts:       3,
		SampleTimeout:     900 * time.Second,
		MaxSampleTimeout:  time.Hour,
		HTTPSampleTimeout: 110 * time.Second,
		ComputeTimeout:    55 * time.Second,
		StepTimeout:       1800 * time.Second,
		OnStepDeadline:    DeadlineMask,
		StepBytes:         256 << 20,
		StepAge:           30 * time.Minute,
		Dispatch:          Dispatch{Policy: dispatch.Random, BackupShare: 0.05},
		TermTimeout:       rewards.DefaultTermTimeout,
		ClaimTimeout:      600 * time.Second,
		RunWeights:        map[string]float64{},
		ResultsKept:       100_000,
		ResultsBytes:      64 << 20,
		ResultsAge:        10 * time.Minute,
		ResumeGrace:       time.Minute,
		DrainTimeout:      30 * time.Second,
		Workers:           Workers{BreakerFailures: 5, BreakerPause: time.Second, BreakerMaxPause: 30 * time.Second},
	}
}

// section is the table of the settings of loop.
func (l *Loop) section() section {
	return section{
		name: "loop", doc: "How samples are accepted, queued and answered.",
		settings: []setting{
			size("max_bytes", &l.MaxBytes, 1<<20, "Bytes of samples in flight and of credit not yet used, all clients together."),
			size("message_bytes", &l.MessageBytes, 1<<10, "The largest sample. At most max_bytes."),
			integer("credit_samples", &l.CreditSamples, 0, 1_000_000, "Samples one connection may send ahead of those whose buffers are free again. 0: 256, or twice what live workers can use of its profile at a time, whichever is more."),
			size("credit_bytes", &l.CreditBytes, 1<<10, "Bytes one connection may send ahead. At most max_bytes."),
			integer("max_attempts", &l.MaxAttempts, 1, 100, "How many workers may fail a sample by a fault of their own, or vanish with it, before it fails."),
			period("sample_timeout", &l.SampleTimeout, time.Second, "From arrival to result, for samples of the websocket that name no deadline."),
			period("http_sample_timeout", &l.HTTPSampleTimeout, time.Second, "The same for HTTP requests; flow_grpo's clients give up at 120 s."),
			period("compute_timeout", &l.ComputeTimeout, time.Second, "The same for POST /compute; Flow-Factory's client gives up at 60 s."),
			period("max_sample_timeout", &l.MaxSampleTimeout, time.Second, "The longest deadline a client may ask for."),
			period("step_timeout", &l.StepTimeout, time.Second, "How long a step may take; the one that closes first goes first."),
			choice("on_step_deadline", &l.OnStepDeadline, []string{DeadlineMask, DeadlineFail, DeadlineShortfall},
				"What a declared step's rewards are when its time is over with samples missing: those rows masked, an error, or the step without them."),
			size("step_bytes", &l.StepBytes, 1<<10, "Bytes of the rows of steps that trainers read as a whole, all runs together."),
			period("step_age", &l.StepAge, time.Second, "Age of such rows."),
			toggle("deterministic", &l.Deterministic, "Results do not depend on which worker scores a sample, or beside which others: onnx runs batches of one, "+
				"nothing is asked for twice, and questions to a judge without a seed have one of the sample's id. Slower."),
			integer("num_examine", &l.NumExamine, 0, 10_000, "Samples of each step that are printed with their rewards."),
			period("term_timeout", &l.TermTimeout, time.Millisecond, "One scorer on one sample, retries included, where its entry has no timeout."),
			period("claim_timeout", &l.ClaimTimeout, time.Second, "How long a worker may keep a sample before another gets it. At least the longest term."),
			period("unavailable_after", &l.UnavailableAfter, 0, "How long a sample waits, all its waits together, while no worker takes samples of its profile because an engine or a service "+
				"is down or no worker is there, before it fails. 0: until 5 s, or a tenth of its time if that is less, before its deadline."),
			weights("run_weights", &l.RunWeights, "Shares of training runs by name, such as {ocr: 2}; a run not named has 1."),
			integer("results_kept", &l.ResultsKept, 1, 10_000_000, "Results of a run kept for a client that comes back."),
			size("results_bytes", &l.ResultsBytes, 1<<10, "Bytes of such results of a run."),
			period("results_age", &l.ResultsAge, time.Second, "Age of such results."),
			period("resume_grace", &l.ResumeGrace, time.Second, "Time for which samples wait for a client of their run to connect again, or to fetch rewards, before they are cancelled. Samples of declared steps are not."),
			period("drain_timeout", &l.DrainTimeout, 0, "How long a process that was told to stop finishes what it has."),
		},
		sections: []section{{
			name: "dispatch", doc: "Which worker gets a sample, and when a second one does.",
			settings: []setting{
				dispatchPolicy(&l.Dispatch.Policy, "random: one of the free slots. "+
					"speed_weighted: as random, but clearly slower workers do not get the last samples of a step."),
				factor("backup_after", &l.Dispatch.BackupAfter, 0, 1e6, "How many times the usual service time a sample may run, once its step is all here, before "+
					"an idle worker is asked, too. 0: never. 2.5 is a good start where asking twice does no harm."),
				factor("backup_share", &l.Dispatch.BackupShare, 1e-6, 1, "The most samples of a step that are asked for twice, as a part of all."),
			},
		}, {
			name: "workers", doc: "The reward-loop workers of this process; reward.num_workers is their number.",
			settings: []setting{
				integer("max_abandoned", &l.Workers.MaxAbandoned, 0, 65536, "Scorer calls of a profile that may overrun their deadline on a worker before it takes no more samples of that profile. 0: half of its capacity for the profile."),
				size("max_bytes", &l.Workers.MaxBytes, 0, "Most bytes of samples that a worker has at a time. 0: its part of a quarter of the memory that the process may have, at least loop.message_bytes."),
				integer("breaker_failures", &l.Workers.BreakerFailures, 1, 65536, "Failures in a row of one worker at one profile, blamed on the worker, after which it gets no samples of that profile."),
				period("breaker_pause", &l.Workers.BreakerPause, time.Millisecond, "How long a worker gets no samples of a profile that it failed before one sample tries it; doubles with each that fails."),
				period("breaker_max_pause", &l.Workers.BreakerMaxPause, time.Millisecond, "The longest such pause. At least breaker_pause."),
			},
		}},
	}
}

// dispatchPolicy is choice for loop.dispatch.policy, which could be verl's choice in earlier
// releases.
func dispatchPolicy(p *string, doc string) setting {
	s := choice("policy", p, dispatch.Policies(), doc)
	known := s.decode
	s.decode = func(r *reader, v value) {
		if !v.null() && v.node.Value == "random_blind" {
			r.fault(v, "random_blind has been removed: write %s or %s; `rewardloop plan --policy random_blind,random` still compares it, in a simulation", dispatch.Random, dispatch.SpeedWeighted)
			return
		}
		known(r, v)
	}
	return s
}

// loop checks what no single key of the section can be wrong about.
func (r *reader) loop(l Loop) {
	r.atMost("loop.message_bytes", "loop.max_bytes", l.MessageBytes, l.MaxBytes, formatSize)
	r.atMost("loop.credit_bytes", "loop.max_bytes", l.CreditBytes, l.MaxBytes, formatSize)
	period := func(n int64) string { return formatDuration(time.Duration(n)) }
	r.atMost("loop.sample_timeout", "loop.max_sample_timeout", int64(l.SampleTimeout), int64(l.MaxSampleTimeout), period)
	r.atMost("loop.http_sample_timeout", "loop.max_sample_timeout", int64(l.HTTPSampleTimeout), int64(l.MaxSampleTimeout), period)
	r.atMost("loop.compute_timeout", "loop.max_sample_timeout", int64(l.ComputeTimeout), int64(l.MaxSampleTimeout), period)
	r.atMost("loop.term_timeout", "loop.claim_timeout", int64(l.TermTimeout), int64(l.ClaimTimeout), period)
	r.atMost("loop.workers.breaker_pause", "loop.workers.breaker_max_pause",
		int64(l.Workers.BreakerPause), int64(l.Workers.BreakerMaxPause), period)
	if d := l.Dispatch; d.BackupAfter > 0 {
		if l.Deterministic {
			r.noteAt(r.places["loop.dispatch.backup_after"], "loop.dispatch.backup_after", "without effect beside loop.deterministic: of two answers the first would count")
		}
		if d.BackupAfter < 1 {
			r.faultAt("loop.dispatch.backup_after", "want 0 (never), or 1 and more times the usual service time, got %v", d.BackupAfter)
		}
	}
}

// atMost is a fault of the smaller setting, or of the larger if only that was
// written.
func (r *reader) atMost(small, large string, a, b int64, show func(int64) string) {
	if a <= b {
		return
	}
	at, word, other, bound := small, "most", large, b
	if _, written := r.places[small]; !written {
		at, word, other, bound = large, "least", small, a
	}
	r.faultAt(at, "want at %s %s, which is %s", word, show(bound), other)
}
