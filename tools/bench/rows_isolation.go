package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/tools/bench/report"
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
	lineStuck  = "The isolation runs of W1 with no free places set aside, and with (h) a function that never returns (timeout: 1), (i) an engine at a closed port, " +
		"(j) one that accepts and never answers, (k) one that answers 500, (l) (i) with 3 MB of pixels a sample, 5,000 samples each: same bars"
	lineModels  = "The isolation runs with a batched model in Python as the failing and as the healthy profile: same bars"
	lineWaiting = "A dependency that is down: samples stay queued; nothing of them fails before unavailable_after"
)

// The deployments have the defaults of the product: no place is set aside for anybody.
const (
	isolationProcesses = 3 // of workers, where they are remote
	healthyInFlight    = 8
	failingInFlight    = 16
	// asyncPlaces are those of an async function in one process (docs/tuning.md).
	asyncPlaces = 256
)

// isolation is what a reward that fails costs others.
func isolation() Suite {
	s := Suite{
		Name: "isolation", Apart: true,
		About: fmt.Sprintf("The program rewardloop as it runs, with its default capacities: embedded is one serve, remote one serve without workers and %d processes of one worker each. "+
			"A healthy run (jpeg_compressibility of a 25 KB picture, %d in flight) is measured beside a failing run (%d in flight) that "+
			"began before (5 s at -t 20s), and beside programs outside that use as many cores, at the same niceness, as the failing run did (failing_cores: its Python processes, and what "+
			"server, workers and bench computed beyond the cost of the healthy samples); in turn, each with servers of its own. throughput = rate beside the failing run / rate beside "+
			"those programs (the burner). gap: in each repetition the longest time between two results beside the failing run − that beside the burner; the largest of these. Failing is a "+
			"function in Python that raises, returns NaN, kills "+
			"its process, is cancelled 0.5 ms after each submit (every second sample up to 2 ms later), or allocates up to 1 GiB under memory: 512MiB (4 in flight); a judge whose engine, "+
			"a stub that takes 20 ms, answers without a score; "+
			"and a function that raises on one worker only. model_raises, model_nan, model_kills, model_allocates and model_hangs are the same as models, which score batches of up to 16 "+
			"in one process, each beside the picture and "+
			"(beside_model, embedded) beside a model that scores its pictures. With hangs, closed_port, silent, answers_500 and closed_port_3mb the failing run has %s samples in flight or waiting (as "+
			"many fewer as -t is shorter than 20s): a function that never returns (timeout: 1), a judge at a port where nobody listens, at one that accepts and never answers, at a "+
			"server that answers 500 to everything, and the first of them with 3 MB of raw pixels a sample. Beside those that get nothing done a fresh client sends 200 pictures of its own (alone_s: before "+
			"all), and when the failing run has taken back its samples and gone, samples that wait for 2 s take all places of an async function (lost: as below; with hangs "+
			"those of its own function, too); failing_queued, failing_running and failing_waiting (those that say they are waiting for the engine) are where /v1/pending saw "+
			"the failing samples at the end. In the experiments named rate the failing run is alone, against the same function with good samples. cancels, takeovers and "+
			"resumes hit an async and a blocking function in turn; afterwards a fresh client sends 200 samples (alone_s: before), and then as many that wait for 2 s as there are places: one that has its "+
			"result late had no place. agent256 is a class that blocks for 1 s, and then sees its groups, with concurrency: 256; agent256_recipe the same "+
			"class in custom_reward_function. tracing is the healthy run alone, in turns of a 32nd of -t, on a server that sends traces of all samples to a collector and on one that does not: "+
			"processor time of the server and its workers a sample.",
			isolationProcesses, healthyInFlight, failingInFlight, report.Number(stuckSamples)),
	}
	for _, l := range layouts() {
		for _, f := range failures() {
			if f.badWorker && l.processes == 0 || f.besideModel && l.processes > 0 {
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
		s.Experiments = append(s.Experiments, tracingExperiment(l))
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
	// engine is the judge's; "": the stub that answers without a score.
	engine engineFault
	// stuck: the run has stuckSamples in flight or waiting, and what it leaves is looked at.
	stuck bool
	// pixels: each sample has stuckPixels of them.
	pixels bool
	// bomb: each sample is this picture of package bombs.
	bomb string
	// model: the function is a model in Python, which has one process and batches.
	model bool
	// besideModel: so is the healthy run's, which is measured embedded only.
	besideModel bool
}

// engineFault is what is wrong with an engine.
type engineFault string

const (
	closedPort engineFault = "closed_port" // nobody listens
	silent     engineFault = "silent"      // accepts and never answers
	answers500 engineFault = "answers_500" // to everything
)

// stuckSamples are in flight or waiting in a run that gets nothing done; stuckPixels are the
// bytes of each where it has a picture.
const (
	stuckSamples = 5000
	stuckPixels  = 1000 * 1000 * 3
)

// guardMessage is what functions.py says where nothing has limited its memory.
const guardMessage = "allocated 1 GiB and was not stopped"

func failures() []failure {
	all := []failure{
		{name: "raises", function: "raises", rated: true},
		{name: "nan", function: "nan", rated: true},
		{name: "judge", rated: true},
		{name: "kills", function: "kills_itself"},
		{name: "cancels_at_once", function: "waits", cancelAfter: 500 * time.Microsecond},
		{name: "allocates", function: "allocates", keys: ", memory: 512MiB", inFlight: 4},
		{name: "one_bad_worker", function: "raises_here", badWorker: true},
		{name: "hangs", function: "hangs", keys: ", timeout: 1", stuck: true},
		{name: string(closedPort), engine: closedPort, stuck: true},
		{name: string(silent), engine: silent, stuck: true},
		{name: string(answers500), engine: answers500, stuck: true},
		{name: string(closedPort) + "_3mb", engine: closedPort, stuck: true, pixels: true},
	}
	models := []failure{
		{name: "model_raises", function: "ModelRaises", rated: true},
		{name: "model_nan", function: "ModelNaN", rated: true},
		{name: "model_kills", function: "ModelKills"},
		{name: "model_allocates", function: "ModelAllocates", keys: ", memory: 512MiB", inFlight: 4},
		{name: "model_hangs", function: "ModelHangs", keys: ", timeout: 4", stuck: true}, // a run has a quarter of it
	}
	for _, f := range models {
		f.model = true
		f.keys += modelKeys
		all = append(all, f)
		f.name, f.besideModel, f.rated = f.name+"_beside_model", true, false
		all = append(all, f)
	}
	return all
}

// modelKeys make a class a model.
const modelKeys = ", devices: cpu, max_batch_size: 16"

// The flags of samples.
const (
	flagGood = "good"
	flagBad  = "bad"
	// flagWait is the ground truth of a function that waits: seconds.
	flagWait = "0.02"
)

// stuckLasts is the -t with which a run that gets nothing done has all of stuckSamples.
const stuckLasts = 20 * time.Second

// load is the failing run.
func (f failure) load(lasting time.Duration) isolationLoad {
	flag := flagBad
	if f.function == "waits" {
		flag = flagWait
	}
	l := textLoad("failing", "failing", flag, cmp.Or(f.inFlight, failingInFlight))
	l.cancelAfter, l.text = f.cancelAfter, guardMessage
	if f.stuck {
		l.inFlight = max(failingInFlight, int(stuckSamples*min(1, lasting.Seconds()/stuckLasts.Seconds())))
		l.takeBack, l.patience = true, overtime/2
	}
	switch {
	case f.pixels:
		l = l.with(rawPicture())
	case f.bomb != "":
		l = l.with(bombPicture(f.bomb))
	}
	if f.badWorker {
		l.patience = overtime / 2
	}
	return l
}

// setting is the configuration of both runs.
func (f failure) setting(engine string) rewardSetting {
	attempts := 1
	if f.engine != "" {
		attempts = 3 // the default
	}
	entry := fmt.Sprintf("{path: functions.py, name: %s, required: true%s}", f.function, f.keys)
	switch {
	case f.bomb != "":
		entry = `{path: "builtin://jpeg_compressibility", required: true}`
	case f.function == "":
		entry = `{path: "builtin://judge", required: true, engine: stub, template: "{prompt}", answer_retries: 0}`
	}
	healthy := `{path: "builtin://jpeg_compressibility", required: true}`
	if f.besideModel {
		healthy = fmt.Sprintf("{path: functions.py, name: ModelBrightness, required: true%s}", modelKeys)
	}
	s := rewardSetting{
		yaml: fmt.Sprintf(`engines:
  stub: {base_urls: [%q], model: stub, attempts: %d}
reward:
  reward_functions:
    size: %s
rewards:
  waits:
    reward_functions:
      it: {path: functions.py, name: waits, required: true}
  failing:
    reward_functions:
      it: %s
`, engine, attempts, healthy, entry),
	}
	if f.badWorker {
		s.files = map[string]map[string]string{"w0": {"bad": ""}}
	}
	return s
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
				Name: "failed-samples", Issue: lineOneBad, Worst: true, Value: reading("failed_samples"), Target: atMost(32 + float64(runtime.NumCPU())), // a process for each CPU
				Beside: []string{"failing_results"},
			},
			Row{Name: "scored-share", Issue: lineOneBad, Value: reading("scored_share"), Target: atLeast(0.9), Beside: []string{"failing_per_s"}})
	}
	if f.stuck {
		for i := range e.Rows {
			e.Rows[i].Issue = lineStuck
		}
		e.Rows[0].Beside = append(e.Rows[0].Beside, "failing_in_flight", "failing_queued", "failing_running", "failing_waiting")
		e.Rows = append(e.Rows, freshRow(lineStuck, "alone_s", "fresh_unscored"), lostRow(lineStuck, "lost_async", "lost_own", "busy"))
	}
	switch {
	case f.bomb != "":
		e.Rows[0].Issue = lineBomb
	case f.model:
		for i := range e.Rows {
			e.Rows[i].Issue = lineModels
		}
	}
	if f.engine != "" {
		e.Rows = append(e.Rows, Row{
			Name: "failed-samples", Issue: lineWaiting, Worst: true, Value: reading("failed_results"), Target: atMost(0), Beside: []string{"failing_results"},
		})
	}
	if strings.HasPrefix(f.name, "allocates") || strings.HasPrefix(f.name, "model_allocates") {
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
		Rows:  []Row{freshRow(lineFresh, "alone_s", "fresh_unscored", "storm_s"), lostRow(lineLost, "lost_async", "lost_blocking", "busy")},
	}
	if k.answered {
		e.Rows = append(e.Rows, Row{Name: "unanswered", Issue: lineResult, Worst: true, Value: reading("unanswered"), Target: atMost(0), Beside: []string{"done"}})
	}
	return e
}

// freshRow is what a client that comes later notices.
func freshRow(line string, beside ...string) Row {
	return Row{
		Name: "fresh-client", Issue: line, Unit: "s", Worst: true, Value: reading("fresh_s"),
		Target: func(now, _ Readings) (report.Bound, error) {
			return report.Bound{Value: 2*lookup(now, "alone_s") + 5, Most: true, Note: "2 × " + report.Number(lookup(now, "alone_s")) + " s + 5 s"}, nil
		},
		Beside: beside,
	}
}

// lostRow counts the places that did not come back.
func lostRow(line string, beside ...string) Row {
	return Row{Name: "places-lost", Issue: line, Worst: true, Value: reading("lost"), Target: atMost(0), Beside: beside}
}

// stormProfiles are the configuration for cancels, takeovers and resumes: the default
// profile waits, blocking blocks.
const stormProfiles = `reward:
  reward_functions:
    it: {path: functions.py, name: waits, required: true}
rewards:
  blocking:
    reward_functions:
      it: {path: functions.py, name: blocks, required: true}
`

// waitFor is a sample of a profile whose function waits so long.
func waitFor(id, reward string, d time.Duration) rewards.Sample {
	return rewards.Sample{ID: id, Reward: reward, Response: "an answer", GroundTruth: fmt.Appendf(nil, "%q", fmt.Sprint(d.Seconds()))}
}
