package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/sim"
	"github.com/rewardloop/rewardloop/loop/trace"
)

// planned runs the command and reads its JSON.
func planned(t *testing.T, args ...string) planAnswer {
	t.Helper()
	got := call(t, "", append([]string{"plan", "--json"}, args...)...)
	require.Equal(t, exitOK, got.code, got.stderr)
	var a planAnswer
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &a))
	return a
}

// plannedByTheProgram does the same in the program as it ships: simulating large steps takes
// ten times as long where races are looked for, which the small ones show as well.
func plannedByTheProgram(t *testing.T, args ...string) planAnswer {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), binary(t), append([]string{"plan", "--json"}, args...)...).Output()
	require.NoError(t, err)
	var a planAnswer
	require.NoError(t, json.Unmarshal(out, &a))
	return a
}

func (a planAnswer) row(t *testing.T, mode string, servers int) planRow {
	t.Helper()
	for _, r := range a.Rows {
		if r.Mode == mode && r.Servers == servers {
			return r
		}
	}
	t.Fatalf("no row of %s at %d", mode, servers)
	return planRow{}
}

// The published experiment: its step times, and the concurrency that would have
// made its reward free.
func TestAPlanOfThePublishedExperimentHasItsStepTimes(t *testing.T) {
	t.Parallel()
	a := plannedByTheProgram(t, "--samples", "5120", "--group", "5", "--generation", "53s", "--arrivals", "end", "--logprob", "13s", "--update", "100s",
		"--other", "26s", "--reward", "uniform:1s,40s", "--concurrency", "256,1024", "--seeds", "1")
	for servers, want := range map[int]map[string]float64{
		256:  {"batch": 614, "pipeline": 539, "one_step_off": 410, "both": 410},
		1024: {"batch": 307, "pipeline": 232, "one_step_off": 192, "both": 192},
	} {
		for mode, step := range want {
			assert.InEpsilon(t, step, a.row(t, mode, servers).Step, 0.01, "%s at %d", mode, servers)
		}
	}
	free := a.Free[0]
	require.NotNil(t, free.OneStepOff)
	assert.InEpsilon(t, 560, *free.OneStepOff, 0.05, "5120 × 20.5 s in 192 s, and the tail")
}

// A documented change from 4 GPUs to 5: 420 → 360 s/step, −8.2 % samples per GPU.
func TestAPlanShowsWhatAnotherGPUForTheRewardGivesAndCosts(t *testing.T) {
	t.Parallel()
	args := strings.Fields("--samples 512 --group 16 --generation 200s --update 160s --batch-cost 1,0.3 --max-batch 32 --rollout-gpus 4 --devices 1 --switch 18s")
	a := planned(t, args...)
	before, after := a.row(t, modeColocated, 4), a.row(t, sim.ModeStreaming, 1)
	assert.InDelta(t, 420, before.Step, 2)
	assert.InDelta(t, 363, after.Step, 4)
	assert.Equal(t, 4, before.GPUs)
	assert.Equal(t, 5, after.GPUs)
	assert.InDelta(t, -8.2, 100*(*after.SamplesPerGPU / *before.SamplesPerGPU - 1), 1.5)
	got := call(t, "", append([]string{"plan"}, args...)...)
	assert.Contains(t, got.stdout, "From 4 GPUs, colocated, to 5 with streaming: 420 →")
}

// One reward of 2 s every 0.39 s: 5.12 busy servers are the least, and at 6 a
// sample always finds one.
func TestTheAnswerIsTheFewestServersThatHideAllButOneReward(t *testing.T) {
	t.Parallel()
	a := planned(t, "--samples", "512", "--group", "16", "--generation", "200s", "--update", "100s", "--reward", "2s", "--concurrency", "5,6")
	require.NotNil(t, a.Free[0].Servers)
	assert.Equal(t, 6, *a.Free[0].Servers)
	assert.InDelta(t, 2, a.Free[0].Exposed, 1e-9)
	assert.InDelta(t, 2, a.Free[0].Latency, 1e-9)
	assert.InDelta(t, 2, a.row(t, sim.ModeStreaming, 6).Exposed, 1e-9)
	assert.Greater(t, a.row(t, sim.ModeStreaming, 5).Exposed, 2.02)
	require.NotNil(t, a.Free[0].OneStepOff)
	assert.Equal(t, 4, *a.Free[0].OneStepOff, "1024 s of rewards in 300 s")

	blind := planned(t, "--samples", "512", "--group", "16", "--reward", "2s", "--concurrency", "6", "--policy", "random_blind")
	if least := blind.Free[0].Servers; least != nil {
		assert.Greater(t, *least, 6)
	}
	got := call(t, "", "plan", "--samples", "64", "--group", "16", "--reward", "2s", "--concurrency", "6", "--stragglers", "1,10")
	assert.Contains(t, got.stdout, "the reward is never free")
}

func TestAPlanReplaysARecordedStep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g, r := make([]float64, 60), make([]float64, 60)
	for i := range g {
		g[i], r[i] = float64(i)/2, 1+float64(i%7)
	}
	s, err := sim.IdealQueue(g, r, 5)
	require.NoError(t, err)
	recorded := trace.FromSchedule(s)
	recorded.Update = 10
	for i := range recorded.Spans { // rows of a group do not stand together
		recorded.Spans[i].UID = string(rune('a' + i%15))
	}
	recorded.Spans = append(recorded.Spans, trace.Span{ID: "failed", UID: "z", Generated: 1, Outcome: "failed"})
	path := filepath.Join(dir, "step.json")
	require.NoError(t, writeWhole(path, recorded.Write))
	a := planned(t, "--trace", path)
	row := a.row(t, sim.ModeStreaming, 5)
	assert.InDelta(t, s.Exposed(), row.Exposed, 1e-9)
	assert.InDelta(t, s.Makespan+10, row.Step, 1e-9)
	got := call(t, "", "plan", "--trace", path)
	assert.Contains(t, got.stdout, "60 samples a step in groups of 4")
	assert.Contains(t, got.stdout, "left out, because never scored: 1 sample of the trace")
	again := planned(t, "--trace", path, "--reward", "1s", "--concurrency", "2")
	assert.InDelta(t, 1, again.row(t, sim.ModeStreaming, 2).Exposed, 1e-9, "other rewards for the same rollout")
}

func TestASavedStepOfAPlanIsATrace(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "step.json")
	a := planned(t, "--samples", "64", "--group", "16", "--generation", "20s", "--reward", "2s", "--concurrency", "8", "--failures", "0.2", "--save", path)
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	recorded, err := trace.ReadTrace(f)
	require.NoError(t, err)
	rep, err := trace.Measure(recorded)
	require.NoError(t, err)
	assert.Equal(t, 64, rep.Samples)
	assert.Positive(t, rep.Retries)
	assert.InDelta(t, a.row(t, sim.ModeStreaming, 8).Exposed, rep.Exposed, 10)
}

func TestALargePlanIsAnsweredInSeconds(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short, and it simulates a million samples")
	}
	began := time.Now()
	a := plannedByTheProgram(t, "--samples", "50000", "--group", "10", "--generation", "300s", "--update", "100s", "--reward", "uniform:1s,40s",
		"--concurrency", "4096", "--rollout-gpus", "2000", "--reward-gpus", "50")
	t.Logf("50,000 samples in %v", time.Since(began).Round(time.Millisecond))
	require.NotNil(t, a.Free[0].Servers)
	assert.InEpsilon(t, 3417, *a.Free[0].Servers, 0.02, "50,000 × 20.5 s in 300 s")
}

func TestAPlanThatMakesNoSenseIsRefusedByName(t *testing.T) {
	t.Parallel()
	for says, args := range map[string][]string{
		"the time of a reward is missing":      {},
		`--reward "x"`:                         {"--reward", "x"},
		`--reward "uniform:3s,1s": the second`: {"--reward", "uniform:3s,1s"},
		`--reward "lognormal:1s,9": σ is 9`:    {"--reward", "lognormal:1s,9"},
		`no distribution is named "gamma"`:     {"--reward", "gamma:1s,2s"},
		`"-1s" is negative`:                    {"--reward", "-1s"},
		"two numbers are needed":               {"--reward", "normal:1s"},
		"--samples is 0":                       {"--reward", "1s", "--samples", "0"},
		"--samples is 9999999":                 {"--reward", "1s", "--samples", "9999999"},
		"--group is 7":                         {"--reward", "1s", "--group", "7"},
		"--mini-batches is 33":                 {"--reward", "1s", "--mini-batches", "33"},
		"--update is negative":                 {"--reward", "1s", "--update", "-1s"},
		`--arrivals "bursts:0"`:                {"--reward", "1s", "--arrivals", "bursts:0"},
		`--arrivals "late"`:                    {"--reward", "1s", "--arrivals", "late"},
		`--concurrency "8,x": "x"`:             {"--reward", "1s", "--concurrency", "8,x"},
		"--concurrency has 17 values":          {"--reward", "1s", "--concurrency", strings.Repeat("1,", 16) + "1"},
		"--batch-cost goes with --devices":     {"--reward", "1s", "--batch-cost", "1,1"},
		`--batch-cost "1"`:                     {"--batch-cost", "1"},
		`--batch-cost "0,0"`:                   {"--batch-cost", "0,0"},
		"--max-batch is 0":                     {"--batch-cost", "1,1", "--max-batch", "0"},
		"go with --batch-cost":                 {"--reward", "1s", "--devices", "2"},
		`policy "fastest"`:                     {"--reward", "1s", "--policy", "fastest"},
		`--slow "2,3"`:                         {"--reward", "1s", "--slow", "2,3"},
		`--stragglers "x"`:                     {"--reward", "1s", "--stragglers", "x"},
		"stragglers' factor is 0.5":            {"--reward", "1s", "--stragglers", "0.1,0.5"},
		"probability of failure is 0.9":        {"--reward", "1s", "--failures", "0.9"},
		"--within is -1":                       {"--reward", "1s", "--within", "-1"},
		"--seeds is -1":                        {"--reward", "1s", "--seeds", "-1"},
		"want a product of at most 33554432":   {"--reward", "1s", "--samples", "1048576", "--group", "1", "--seeds", "100"},
		"no such file":                         {"--trace", "missing.json"},
		"--samples and --trace":                {"--trace", "missing.json", "--samples", "5"},
		`unexpected "now"`:                     {"--reward", "1s", "now"},
	} {
		got := call(t, "", append([]string{"plan"}, args...)...)
		require.Equal(t, exitUsage, got.code, says)
		require.Contains(t, got.stderr, says)
		require.Empty(t, got.stdout)
	}
	nowhere := call(t, "", "plan", "--reward", "1s", "--samples", "16", "--save", filepath.Join(t.TempDir(), "no", "step.json"))
	require.Equal(t, exitFailure, nowhere.code)
}

// The page's commands are run, in its order and in one folder, and print what it
// shows below them.
func TestEveryExampleOfThePlanPageIsTrue(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "plan.md"))
	require.NoError(t, err)
	bin, dir, ran := binary(t), t.TempDir(), 0
	blocks := regexp.MustCompile("(?s)```(sh|text)\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	out := ""
	for _, b := range blocks {
		if b[1] == "text" {
			for line := range strings.Lines(b[2]) {
				if strings.TrimSpace(line) != "…" {
					require.Contains(t, out, line, "docs/plan.md shows a line that the command does not print:\n%s", out)
				}
			}
			continue
		}
		if strings.Contains(b[2], "--server") {
			continue // needs a server that has recorded a step
		}
		ran++
		sh := exec.Command("sh", "-ec", b[2])
		sh.Dir = dir
		sh.Env = append(os.Environ(), "PATH="+filepath.Dir(bin)+":"+os.Getenv("PATH"))
		text, err := sh.CombinedOutput()
		require.NoError(t, err, "%s\n%s", b[2], text)
		out = string(text)
	}
	require.GreaterOrEqual(t, ran, 4)
}

func TestAPlanOfMediaSaysWhatTheyAskOfTheGateway(t *testing.T) {
	t.Parallel()
	got := call(t, "", "plan", "--json", "--media", "81x480x832", "--processes", "64", "--samples", "512", "--generation", "200s")
	require.Equal(t, exitOK, got.code, got.stderr)
	var p mediaPlan
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &p))
	assert.Equal(t, int64(81*480*832*3), p.SampleBytes)
	assert.InDelta(t, 512*81*480*832*3/200.0, p.BytesPerSecond, 1)
	assert.Equal(t, int64(128<<20), p.MessageBytes, "the default is enough")
	assert.GreaterOrEqual(t, p.MaxBytes/4*3, 64*p.SampleBytes, "three quarters of it are credit")
	assert.Equal(t, int64(8), p.Ahead)

	text := call(t, "", "plan", "--media", "81x480x832", "--processes", "64").stdout
	for _, part := range []string{"97 MB each, 49.7 GB for the 512 of a step", "248 MB/s (1.99 Gbit/s)", "loop.max_bytes=8GiB", "loop.message_bytes=128MiB"} {
		assert.Contains(t, text, part)
	}
	assert.Contains(t, call(t, "", "plan", "--media", "25KiB").stdout, "enough for one\n           of each process")
	assert.Contains(t, call(t, "", "plan", "--media", "200MiB", "--processes", "1").stdout, "loop.message_bytes=256MiB")
	for _, wrong := range []string{"x", "0x4", "-1x4x4", "1x2x3x4", "huge", "0", "99999999x99999999", "1e30"} {
		got := call(t, "", "plan", "--media", wrong)
		assert.Equal(t, exitUsage, got.code, wrong)
		assert.Contains(t, got.stderr, "such as 81x480x832", wrong)
	}
	assert.Contains(t, call(t, "", "plan", "--media", "25KiB", "--reward", "2s").stderr, "--reward has no effect with --media")
	assert.Contains(t, call(t, "", "plan", "--processes", "4").stderr, "--processes has an effect only with --media")
}

// A gateway with what plan says takes such samples from as many clients.
func TestWhatAPlanOfMediaSaysIsAcceptedAsConfiguration(t *testing.T) {
	t.Parallel()
	got := call(t, "", "plan", "--json", "--media", "300MiB", "--processes", "9")
	var p mediaPlan
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &p))
	checked := call(t, "", "config", "check", "reward.custom_reward_function.path=builtin://length",
		fmt.Sprintf("loop.max_bytes=%d", p.MaxBytes), fmt.Sprintf("loop.message_bytes=%d", p.MessageBytes))
	assert.Equal(t, exitOK, checked.code, checked.stderr)
}
