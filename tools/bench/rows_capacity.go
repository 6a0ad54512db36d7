package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// The issue's lines.
const (
	lineAsync  = "256 of async def with one second of await asyncio.sleep, defaults: ≤ 2 s"
	lineSync   = "256 of time.sleep(1) with concurrency: 256: ≤ 2.5 s"
	lineEngine = "1,024 calls to a stub engine of 1 s, concurrency: 256: ≤ 1.03 × the ideal queue fed with the client's submit times and the stub's service times, " +
		"and ≤ 1.03 × bare net/http"
	lineMixed    = "OCR + a judge of 1 s in one profile, three workers of which one is 4 × slower, 512 samples: ≤ 1.05 × ideal"
	lineWeights  = "Weights 1:3 between two runs of one profile, and of two profiles on one device: ± 5 %"
	lineOutage   = "The engine killed for 3 minutes in the middle of a step: nothing fails, nothing else slows down, the step ends within the outage + 1.1 × its rest"
	lineReplicas = "3 replicas, one slow: p99 ≤ 1.2 × the two good ones' alone"
	lineCut      = "The engine partitioned from one worker only: the others go on"
)

// capacity is whether as much is under way at a time as can be, and no more.
func capacity() Suite {
	return Suite{
		Name: "capacity", Apart: true,
		About: "The program rewardloop as it runs, with the Go client. async256 and sync256 are 256 calls of a Python function that waits for 1 s: an async def with all defaults, and " +
			"time.sleep with concurrency: 256; what a target allows beyond the wait of 1 s is scaled by bare websockets. engine1024 is a judge with 1,024 samples at an engine with concurrency: 256, " +
			"a stub in the bench's process that serves 256 at a time for 1 s each; ideal is a simulated pull queue without overhead, fed with the times at which the client began to submit " +
			"each sample and with the service times that " +
			"the stub measured; bare is net/http alone with 256 calls in flight against the same stub, in turn; on both sides the connections are " +
			"open before. mixed is a profile of a reader and a judge of 1 s, three worker processes, 512 samples at once: the reader is a function in Python that sleeps for 0.1 s, so that three " +
			"machines fit on this one, in two processes of each worker; on one worker it sleeps four times as long. Its ideal is the pull queue of those six readers, fed with the nominal times, with as many " +
			"judgements beside it as there are samples (the median of 25 seeds). replicas is a judge of 100 ms with 24 samples in flight, once at two equal servers of an engine and once at three, " +
			"of which the third takes 1 s; p99 is that of the answers to the client, slow_share the third server's part of them. weights-runs are two runs of one profile of a function " +
			"that blocks for 20 ms, weights-device two " +
			"runs with a profile of OCR each, on one ONNX session: loop.run_weights gives one run 3, both have 64 samples in flight or waiting, and off_by is the relative difference of the smaller run's share from a quarter. " +
			"outage is a declared step of 1 s a sample at a judge, 33 at a time, on three worker processes, beside 8 pictures in flight of another profile: once without a kill and once " +
			"with the engine killed for outage_s in the middle of the step; over-rest = (time from the kill to the end of the step − outage_s) / (time from the middle to the end of the " +
			"step without a kill). partition is the same step; from its middle on one worker cannot reach the engine, because its connections are reset; others = rate of the other two " +
			"workers from then on / their rate before.",
		Experiments: []Experiment{
			callsExperiment("async256", lineAsync, 2, asyncDefaults),
			callsExperiment("sync256", lineSync, 2.5, syncWritten),
			{
				Name: "engine1024", GoesOn: true, Setup: newEngineTrial,
				Rows: []Row{
					{Name: "over-ideal", Issue: lineEngine, Value: ratio("ours_s", "ours_ideal_s"), Target: atMost(1.03), Beside: []string{"ours_s", "ours_ideal_s", "bare_ideal_s", "ours_submitted_s", othersCores}},
					{Name: "over-bare", Issue: lineEngine, Value: ratio("ours_s", "bare_s"), Target: atMost(1.03), Beside: []string{"bare_s"}},
				},
			},
			{
				Name: "mixed", GoesOn: true, Setup: newMixedTrial,
				Rows: []Row{{
					Name: "over-ideal", Issue: lineMixed, Value: ratio("ours_s", "ideal_s"), Target: atMost(1.05),
					Beside: []string{"ours_s", "ideal_s", "slow_share", "ideal_slow_share", othersCores},
				}},
			},
			{
				Name: "replicas", GoesOn: true, Setup: newReplicasTrial,
				Rows: []Row{{
					Name: "p99", Issue: lineReplicas, Value: ratio("three_p99_ms", "two_p99_ms"), Target: atMost(1.2),
					Beside: []string{"three_p99_ms", "two_p99_ms", "three_per_s", "two_per_s", "slow_share"},
				}},
			},
			sharesExperiment("weights-runs", newRunsTrial),
			sharesExperiment("weights-device", newDeviceTrial),
			{
				Name: "outage", GoesOn: true, Setup: newOutageTrial,
				Rows: []Row{
					{Name: "failed", Issue: lineOutage, Worst: true, Value: reading("failed"), Target: atMost(0), Beside: []string{"samples"}},
					{Name: "over-rest", Issue: lineOutage, Value: ratio("rest_s", "plain_rest_s"), Target: atMost(1.1), Beside: []string{"outage_s", "rest_s", "plain_rest_s", "waiting"}},
					{
						Name: "neighbour", Issue: lineOutage, Value: ratio("outage_per_s", "plain_per_s"), Target: atLeast(0.8),
						Beside: []string{"outage_per_s", "plain_per_s", "outage_gap_s", "plain_gap_s", "neighbour_failed", othersCores},
					},
				},
			},
			{
				Name: "partition", GoesOn: true, Setup: newPartitionTrial,
				Rows: []Row{
					{Name: "failed", Issue: lineCut, Worst: true, Value: reading("failed"), Target: atMost(0), Beside: []string{"samples"}},
					{Name: "others", Issue: lineCut, Value: ratio("others_after_per_s", "others_before_per_s"), Target: atLeast(0.9), Beside: []string{"others_after_per_s", "others_before_per_s", "cut_after_per_s"}},
				},
			},
		},
	}
}

func callsExperiment(name, line string, most float64, yaml string) Experiment {
	return Experiment{
		Name: name, GoesOn: true, CalibratedAs: "tickets",
		Setup: func(ctx context.Context, o Options) (Trial, error) { return newCallsTrial(ctx, o, yaml) },
		Rows: []Row{{
			Name: "calls", Issue: line, Unit: "s", Value: reading("calls_s"), Target: beyondScaled(most, "waits_s", "bare_per_s"),
			Beside: []string{"waits_s", "first_s", "unscored", "bare_per_s"},
		}},
	}
}

func sharesExperiment(name string, setup func(context.Context, Options) (Trial, error)) Experiment {
	return Experiment{
		Name: name, GoesOn: true, Setup: setup,
		Rows: []Row{{
			Name: "off-by", Issue: lineWeights, Value: reading("off_by"), Target: atMost(0.05),
			Beside: []string{"light_per_s", "heavy_per_s", "one_sample", "failed"},
		}},
	}
}

// beyondScaled bounds a time of which a part only passes, as the reading says: the rest grows
// on a machine that is slower than the reference by the calibration, which is a rate.
func beyondScaled(most float64, passes, calibration string) Target {
	return func(now, reference Readings) (report.Bound, error) {
		f, note, err := slowness(now, reference, calibration)
		waits := lookup(now, passes)
		return report.Bound{Value: waits + (most-waits)/f, Most: true, Note: note}, err
	}
}

// The profiles of async256 and sync256.
const (
	asyncDefaults = `reward:
  reward_functions:
    it: {path: functions.py, name: waits, required: true}
`
	syncWritten = `reward:
  reward_functions:
    it: {path: functions.py, name: blocks, required: true, concurrency: 256}
`
)

// engineCalls are made of an engine that serves enginePlaces at a time.
const (
	engineCalls  = 1024
	enginePlaces = 256
)

// judgeProfile is a judge that asks the servers of an engine at their addresses, concurrency at a time, for as
// long as the prompt says.
func judgeProfile(concurrency int, urls ...string) string {
	return fmt.Sprintf(`engines:
  stub: {base_urls: [%s], model: stub, concurrency: %d}
reward:
  reward_functions:
    judge: {path: "builtin://judge", required: true, engine: stub, template: "{prompt}"}
`, strings.Join(urls, ", "), concurrency)
}

// mixedProfile is a reader in two processes of each worker, beside a judge.
func mixedProfile(url string) string {
	return fmt.Sprintf(`pool: {python: {processes: %d}}
`, mixedReaders) + judgeProfile(enginePlaces, url) + `    reader: {path: functions.py, name: reads, required: true}
`
}

// Sizes of mixed.
const (
	mixedSamples = 512
	mixedWorkers = 3
	mixedReaders = 2 // processes of each worker
	mixedReads   = 100 * time.Millisecond
	mixedJudges  = time.Second
	mixedSlow    = 4 // times as long on one worker
)

// Sizes of the shares.
const (
	sharesInFlight = 64
	sharesBlock    = 20 * time.Millisecond
	lightRun       = "light"
	heavyRun       = "heavy" // has three times the weight
	heavyWeight    = 3
)

const runsProfile = `loop: {run_weights: {heavy: 3}}
reward:
  reward_functions:
    it: {path: functions.py, name: blocks, required: true}
`

const deviceProfiles = `loop: {run_weights: {heavy: 3}}
pool: {onnx: {slots: 1}}
reward:
  reward_functions:
    it: {path: "builtin://ocr", reader: ppocr, required: true, bare_ground_truth: true}
rewards:
  other:
    reward_functions:
      it: {path: "builtin://ocr", reader: ppocr, required: true, bare_ground_truth: true}
`

// outageProfiles is the judge beside a profile that needs no engine. Each program has a key of
// its own for the engine, so that the engine can tell them apart.
func outageProfiles(url string, concurrency int) string {
	return fmt.Sprintf(`engines:
  stub: {base_urls: [%q], model: stub, concurrency: %d, key_file: engine.key}
reward:
  reward_functions:
    size: {path: "builtin://jpeg_compressibility", required: true}
rewards:
  judged:
    reward_functions:
      judge: {path: "builtin://judge", required: true, engine: stub, template: "{prompt}"}
`, url, concurrency)
}
