package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/rewardloop/rewardloop/bench/report"
	"github.com/rewardloop/rewardloop/rewards"
)

// The issue's lines.
const (
	lineBeside = "healthy JPEG profile for ≥ 20 s beside a failing one that starts 5 s before: healthy throughput ≥ 0.8 of its own beside an equal CPU burner outside, " +
		"interleaved, median of 3"
	lineGap    = "healthy JPEG profile beside a failing one: no gap > 2 s"
	lineRate   = "the failing run gets its failures at ≥ 0.8 × the rate of the same function when it returns 1.0"
	lineOneBad = "raises on one of three workers only: at most 32 samples, plus those that the bad worker then holds, fail; the rest are scored"
	lineMemory = "allocates without end under memory: 512MiB"
	lineLost   = "2,000 each of cancels, takeovers and resumes against real Python processes: 0 places lost"
	lineFresh  = "2,000 each of cancels, takeovers and resumes against real Python processes: a fresh client's 200 samples then finish within 2 × alone + 5 s"
	lineResult = "exactly one final result per accepted sample"
	lineAgent  = "that class with a blocking call of one second: 256 calls in ≤ 2.5 s"
)

// The deployments: slots leave places free, so that a failing run that holds all its samples
// takes none from the healthy one.
const (
	isolationWorkers = 3
	isolationSlots   = 12 // of each worker
	healthyInFlight  = 8
	failingInFlight  = 16
)

// isolation is what a reward that fails costs others.
func isolation() Suite {
	s := Suite{
		Name: "isolation", Apart: true,
		About: fmt.Sprintf("The program rewardloop as it runs: embedded is one serve with %d workers of its own, remote one serve without and %d worker processes; each worker has %d slots, "+
			"so that all samples in flight have places. A healthy run (jpeg_compressibility of a 25 KB picture, %d in flight) is measured beside a failing run (%d in flight) that "+
			"began before (5 s at -t 20s), and beside programs outside that use as many cores, at the same niceness, as the failing run did (failing_cores: its Python processes, and what "+
			"server, workers and bench computed beyond the cost of the healthy samples); in turn, each with servers of its own. throughput is the first rate over the second; gap the "+
			"longest time between two results beside the failing run, less that beside the burner, at the worst of the repetitions. Failing is a function in Python that raises, returns NaN, kills "+
			"its process, is cancelled 0.5 ms after each submit (every second sample up to 2 ms later), or allocates up to 1 GiB under memory: 512MiB (4 in flight); a judge whose engine, a stub that takes 20 ms, answers without a score; "+
			"and a function that raises on one worker only. In the experiments named rate the failing run is alone, against the same function with good samples. cancels, takeovers and "+
			"resumes hit an async and a blocking function in turn; afterwards a fresh client sends 200 samples (alone_s: before), and then as many that wait for 2 s as there are places: one that has its "+
			"result late had no place. agent256 is a class that blocks for 1 s, and then sees its groups, with concurrency: 256; agent256_recipe the same "+
			"class in custom_reward_function.",
			isolationWorkers, isolationWorkers, isolationSlots, healthyInFlight, failingInFlight),
	}
	for _, l := range layouts() {
		for _, f := range failures() {
			if f.badWorker && l.processes == 0 {
				continue
			}
			s.Experiments = append(s.Experiments, besideExperiment(l, f))
			if f.rated {
				s.Experiments = append(s.Experiments, rateExperiment(l, f))
			}
		}
		for _, k := range storms() {
			s.Experiments = append(s.Experiments, stormExperiment(l, k))
		}
	}
	for _, a := range []struct{ name, reward string }{{"agent256", agentEntries}, {"agent256_recipe", agentRecipe}} {
		s.Experiments = append(s.Experiments, Experiment{
			Name: a.name, GoesOn: true,
			Setup: func(ctx context.Context, o Options) (Trial, error) { return newAgentTrial(ctx, o, a.reward) },
			Rows:  []Row{{Name: "calls", Issue: lineAgent, Unit: "s", Value: reading("calls_s"), Target: atMost(2.5), Beside: []string{"unscored"}}},
		})
	}
	return s
}

// failure is one way in which a run can fail.
type failure struct {
	name string
	// function of functions.py; "": the judge.
	function string
	// keys of its entry besides path and name, as YAML.
	keys string
	// cancelAfter takes each sample back so long after it was sent.
	cancelAfter time.Duration
	// inFlight is how many samples the run has in flight; 0: failingInFlight. Functions that
	// take gigabytes get few, and so does the machine that others use.
	inFlight int
	// badWorker: only the first worker fails.
	badWorker bool
	// rated: its failures are to come as fast as its scores.
	rated bool
}

// guardMessage is what functions.py says where nothing has limited its memory.
const guardMessage = "allocated 1 GiB and was not stopped"

func failures() []failure {
	return []failure{
		{name: "raises", function: "raises", rated: true},
		{name: "nan", function: "nan", rated: true},
		{name: "judge", rated: true},
		{name: "kills", function: "kills_itself"},
		{name: "cancels_at_once", function: "waits", cancelAfter: 500 * time.Microsecond},
		{name: "allocates", function: "allocates", keys: ", memory: 512MiB", inFlight: 4},
		{name: "one_bad_worker", function: "raises_here", badWorker: true},
	}
}

// The flags of samples.
const (
	flagGood = "good"
	flagBad  = "bad"
	// flagWait is the ground truth of a function that waits: seconds.
	flagWait = "0.02"
)

// load is the failing run.
func (f failure) load() isolationLoad {
	flag := flagBad
	if f.function == "waits" {
		flag = flagWait
	}
	l := textLoad("failing", "failing", flag, cmp.Or(f.inFlight, failingInFlight))
	l.cancelAfter, l.text = f.cancelAfter, guardMessage
	if f.badWorker {
		l.patience = overtime / 2
	}
	return l
}

// setting is the configuration of both runs.
func (f failure) setting(engine string) rewardSetting {
	entry := fmt.Sprintf("{path: functions.py, name: %s, required: true%s}", f.function, f.keys)
	if f.function == "" {
		entry = `{path: "builtin://judge", required: true, engine: stub, template: "{prompt}", answer_retries: 0}`
	}
	return rewardSetting{
		workers: isolationWorkers, slots: isolationSlots, badWorker: f.badWorker,
		yaml: fmt.Sprintf(`engines:
  stub: {base_urls: [%q], model: stub, attempts: 1}
reward:
  reward_functions:
    size: {path: "builtin://jpeg_compressibility", required: true}
rewards:
  failing:
    reward_functions:
      it: %s
`, engine, entry),
	}
}

func besideExperiment(l layout, f failure) Experiment {
	e := Experiment{
		Name: l.name + "-" + f.name, GoesOn: true,
		Setup: func(ctx context.Context, o Options) (Trial, error) { return newIsolationTrial(ctx, l, f, o) },
		Rows: []Row{
			{
				Name: "throughput", Issue: lineBeside, Value: ratio(besideFailing+"_per_s", besideBurner+"_per_s"), Target: atLeast(0.8),
				Beside: []string{
					besideFailing + "_per_s", besideBurner + "_per_s", besideFailing + "_failed", "failing_per_s", "failing_cores", "burner_cores", "foreign_cores", "left_behind",
				},
			},
			{
				Name: "gap", Issue: lineGap, Unit: "s", Worst: true, Target: atMost(2), Beside: []string{besideFailing + "_gap_s", besideBurner + "_gap_s"},
				Value: func(r Readings) float64 {
					return max(0, lookup(r, besideFailing+"_gap_s")-lookup(r, besideBurner+"_gap_s"))
				},
			},
		},
	}
	if f.badWorker {
		e.Rows = append(e.Rows,
			Row{
				Name: "failed-samples", Issue: lineOneBad, Worst: true, Value: reading("failed_samples"), Target: atMost(32 + isolationSlots),
				Beside: []string{"failing_results"},
			},
			Row{Name: "scored-share", Issue: lineOneBad, Value: reading("scored_share"), Target: atLeast(0.9), Beside: []string{"failing_per_s"}})
	}
	if f.name == "allocates" {
		e.Rows = append(e.Rows, Row{
			Name: "not-limited", Issue: lineMemory, Worst: true, Target: atMost(0), Beside: []string{"failing_results"},
			Value: func(r Readings) float64 {
				if lookup(r, "failing_results") == 0 {
					return 1 // no call has ended: nothing has stopped one
				}
				return lookup(r, "told")
			},
		})
	}
	return e
}

func rateExperiment(l layout, f failure) Experiment {
	return Experiment{
		Name: l.name + "-" + f.name + "-rate", GoesOn: true,
		Setup: func(ctx context.Context, o Options) (Trial, error) { return newRateTrial(ctx, l, f, o) },
		Rows: []Row{{
			Name: "failures", Issue: lineRate, Value: ratio("bad_per_s", "good_per_s"), Target: atLeast(0.8), Beside: []string{"bad_per_s", "good_per_s"},
		}},
	}
}

func stormExperiment(l layout, k storm) Experiment {
	e := Experiment{
		Name: l.name + "-" + k.name, GoesOn: true,
		Setup: func(ctx context.Context, o Options) (Trial, error) { return newStormTrial(ctx, l, k, o) },
		Rows: []Row{
			{
				Name: "fresh-client", Issue: lineFresh, Unit: "s", Worst: true, Value: reading("fresh_s"),
				Target: func(now, _ Readings) (report.Bound, error) {
					return report.Bound{Value: 2*lookup(now, "alone_s") + 5, Most: true, Note: "2 × " + report.Number(lookup(now, "alone_s")) + " s + 5 s"}, nil
				},
				Beside: []string{"alone_s", "fresh_unscored", "storm_s"},
			},
			{
				Name: "places-lost", Issue: lineLost, Worst: true, Value: reading("lost"), Target: atMost(0), Beside: []string{"lost_async", "lost_blocking", "busy"},
			},
		},
	}
	if k.answered {
		e.Rows = append(e.Rows, Row{Name: "unanswered", Issue: lineResult, Worst: true, Value: reading("unanswered"), Target: atMost(0), Beside: []string{"done"}})
	}
	return e
}

// stormProfiles are the configuration for cancels, takeovers and resumes: the default
// profile waits, blocking blocks. An async function has as many places as there are slots.
func stormProfiles(places int) string {
	return fmt.Sprintf(`pool: {python: {concurrency: %d}}
reward:
  reward_functions:
    it: {path: functions.py, name: waits, required: true}
rewards:
  blocking:
    reward_functions:
      it: {path: functions.py, name: blocks, required: true}
`, places)
}

// waitFor is a sample whose function waits so long, of the async function or the blocking one.
func waitFor(id string, blocking bool, d time.Duration) rewards.Sample {
	s := rewards.Sample{ID: id, Response: "an answer", GroundTruth: fmt.Appendf(nil, "%q", fmt.Sprint(d.Seconds()))}
	if blocking {
		s.Reward = "blocking"
	}
	return s
}
