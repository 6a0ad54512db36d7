package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/examples/trainer_modes/stub"
	"github.com/rewardloop/rewardloop/examples/trainer_modes/trainer"
	"github.com/rewardloop/rewardloop/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small are the tests' options: times in milliseconds, more samples than are scored at a time.
func small(t *testing.T) options {
	t.Helper()
	url, stop, err := serve(t.Context(), 8)
	require.NoError(t, err)
	t.Cleanup(stop)
	return options{
		url: url, prompts: 6, group: 4, batches: 3, steps: 3, seed: 5, scale: 1, order: wire.ByIndex,
		generation: 40 * time.Millisecond, logProb: 5 * time.Millisecond, update: 12 * time.Millisecond, other: time.Millisecond,
		leastDelay: time.Millisecond, mostDelay: 30 * time.Millisecond,
	}
}

// want is what a trainer without any reward loop gets: rewards by row and the policy, after
// each step, the samples of step i drawn from the policy after step i − 1 − late.
func want(t *testing.T, cfg trainer.Config, late int) (rewards [][]float64, thetas []trainer.Theta) {
	t.Helper()
	drawn := make([]trainer.Theta, cfg.Steps+1) // drawn[i] is the policy before step i
	for i := range cfg.Steps {
		step, theta := int64(i+1), drawn[i]
		from := drawn[max(i-late, 0)]
		n := cfg.Prompts * cfg.Group
		noise, got, advantages, valid := make([]trainer.Noise, n), make([]float64, n), []float64(nil), make([]bool, n)
		for row := range n {
			noise[row] = trainer.DrawNoise(cfg.Seed, step, row)
			var err error
			got[row], err = stub.Score(from.Response(&noise[row]))
			require.NoError(t, err)
			valid[row] = true
		}
		for first := 0; first < n; first += cfg.Group {
			advantages = append(advantages, trainer.Advantages(got[first:first+cfg.Group], valid[first:first+cfg.Group])...)
		}
		size := n / cfg.MiniBatches
		for first := 0; first < n; first += size {
			theta.Update(advantages[first:first+size], noise[first:first+size])
		}
		drawn[i+1] = theta
		rewards = append(rewards, got)
	}
	return rewards, drawn[1:]
}

func TestEachModeLearnsToTheBitWhatATrainerWithoutALoopLearns(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	o := small(t)
	for _, mode := range trainer.Modes() {
		late := 0
		if mode.Ahead() {
			late = 1
		}
		rewards, thetas := want(t, o.config(mode), late)
		report, err := train(t.Context(), o, mode)
		require.NoError(t, err, mode)
		require.Len(t, report.Steps, o.steps)
		for i, s := range report.Steps {
			assert.Equal(t, rewards[i], s.Rewards, "%s, step %d", mode, s.Step)
			assert.Equal(t, thetas[i], s.Theta, "%s, step %d", mode, s.Step)
			assert.Zero(t, s.Failed())
			assert.Equal(t, wire.StepComplete, s.State)
		}
	}
}

func TestInOrderOfCompletionEveryRewardIsThatOfItsResponse(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	o := small(t)
	o.order = wire.ByCompletion
	for _, mode := range trainer.Modes() {
		report, err := train(t.Context(), o, mode)
		require.NoError(t, err, mode)
		for _, s := range report.Steps {
			for row, response := range s.Responses {
				reward, err := stub.Score(response)
				require.NoError(t, err)
				assert.Equal(t, reward, s.Rewards[row], "%s, step %d, row %d", mode, s.Step, row) //nolint:testifylint // to the bit
			}
			assert.Len(t, s.Batches, 3)
			all := slices.Sorted(slices.Values(slices.Concat(s.Batches...)))
			assert.Len(t, all, 24)
			assert.Len(t, slices.Compact(all), 24, "each row in one update")
		}
	}
}

func TestAStepWithFailingSamplesEndsAndNothingIsLearnedFromThem(t *testing.T) {
	t.Parallel()
	o := small(t)
	failing := map[int]int{2: 400, 17: 418, 18: 500, 19: 422, 16: 400} // a whole group, too
	for _, mode := range trainer.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			cfg := o.config(mode)
			cfg.Steps = 2
			cfg.Truth = func(_ int64, row int, delay time.Duration) json.RawMessage {
				b, err := json.Marshal(stub.Truth{WaitMS: float64(delay) / 1e6, Status: failing[row]})
				assert.NoError(t, err)
				return b
			}
			c, err := client.Dial(t.Context(), client.Config{URL: o.url, Run: "failing-" + string(mode)})
			require.NoError(t, err)
			report, err := trainer.Run(t.Context(), c, cfg)
			require.NoError(t, err, mode)
			require.NoError(t, c.Close())
			for _, s := range report.Steps {
				assert.Equal(t, len(failing), s.Failed())
				for row := range s.Valid {
					_, fails := failing[row]
					assert.Equal(t, !fails, s.Valid[row], "%s, row %d", mode, row)
					if fails {
						assert.Zero(t, s.Advantages[row])
						assert.Zero(t, s.Rewards[row])
					}
				}
				assert.NotZero(t, s.Advantages[3], "the others of its group are compared with each other")
				assert.NotEqual(t, trainer.Theta{}, s.Theta)
			}
		})
	}
}

func TestAStepWhoseSamplesHangEndsAtItsDeadlineAndNamesThem(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	o := small(t)
	for _, mode := range trainer.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			cfg := o.config(mode)
			cfg.Steps, cfg.StepDeadline = 1, 3*time.Second
			cfg.Truth = func(_ int64, row int, delay time.Duration) json.RawMessage {
				b, err := json.Marshal(stub.Truth{WaitMS: float64(delay) / 1e6, Hang: row == 7})
				assert.NoError(t, err)
				return b
			}
			c, err := client.Dial(t.Context(), client.Config{URL: o.url, Run: "hanging-" + string(mode)})
			require.NoError(t, err)
			report, err := trainer.Run(t.Context(), c, cfg)
			require.NoError(t, err)
			require.NoError(t, c.Close())
			s := report.Steps[0]
			assert.Equal(t, wire.StepShort, s.State)
			assert.Equal(t, 1, s.Failed())
			assert.False(t, s.Valid[7])
			assert.Zero(t, s.Advantages[7])
			require.NotEmpty(t, s.Without)
			assert.Equal(t, "1/7", s.Without[0].ID)
			assert.Less(t, s.End, 10*time.Second)
		})
	}
}

func TestTheExamplePrintsATableOfItsModes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	o := small(t)
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, o))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 1+len(trainer.Modes()), out.String())
	for i, mode := range trainer.Modes() {
		as := map[trainer.Mode]string{trainer.Batch: "-", trainer.OneStepOff: "-", trainer.Both: "as one_step_off"}[mode]
		if as == "" {
			as = "as batch"
		}
		assert.Regexp(t, `^\s*`+string(mode)+`\s+\d\.\d{3}\s+\d\.\d{3}\s+-?\d+\.\d %\s+-\d\.\d{4}\s+0\s+`+as+`$`, strings.TrimSpace(lines[i+1]))
	}
	o.scale = 0
	require.ErrorContains(t, run(t.Context(), &out, o), "--scale")
	o = options{url: "ws://127.0.0.1:1", scale: 1, prompts: 1, group: 1, batches: 1, steps: 1, order: wire.ByIndex}
	require.ErrorContains(t, run(t.Context(), &out, o), "batch: ")
}

func TestTheStubAloneIsServedUntilInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, out, options{stub: "127.0.0.1:0", scale: 1}) }()
	url, err := bufio.NewReader(in).ReadString('\n')
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, strings.TrimSpace(url), strings.NewReader(`{"response":"0.5 -0.5 1 0"}`))
	require.NoError(t, err)
	transport := &http.Transport{}
	resp, err := transport.RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, "-1", string(body))
	transport.CloseIdleConnections()
	cancel()
	require.NoError(t, <-ended)
	require.Error(t, run(t.Context(), io.Discard, options{stub: "nowhere", scale: 1}))
}

// python finds an interpreter with what python/rewardloop needs: that of
// REWARDLOOP_PYTHON, of .venv at the root of the repository, or on PATH.
func python(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	interpreter := os.Getenv("REWARDLOOP_PYTHON")
	if interpreter == "" {
		interpreter = filepath.Join("..", "..", ".venv", "bin", "python")
		if _, err := os.Stat(interpreter); err != nil {
			interpreter = "python3"
		}
	}
	if err := exec.CommandContext(t.Context(), interpreter, "-c", "import numpy, websockets").Run(); err != nil {
		t.Skipf("SKIPPED: %s lacks NumPy or websockets (%v): the Python example was not tried; name a Python that has them in REWARDLOOP_PYTHON", interpreter, err)
	}
	return interpreter
}

// pythonTrains runs the trainer in Python and returns what it prints.
func pythonTrains(t *testing.T, interpreter string, args ...string) []byte {
	t.Helper()
	package_, err := filepath.Abs(filepath.Join("..", "..", "python"))
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), interpreter, append([]string{"trainer_modes.py"}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+package_, "PYTHONDONTWRITEBYTECODE=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s", &stderr)
	return out
}

// told is a step in the words of trainer_modes.py --json.
type told struct {
	Mode       trainer.Mode  `json:"mode"`
	Step       int64         `json:"step"`
	Rewards    []float64     `json:"rewards"`
	Advantages []float64     `json:"advantages"`
	Theta      trainer.Theta `json:"theta"`
	Failed     int           `json:"failed"`
}

func TestTheTrainerInPythonLearnsTheSameToTheBit(t *testing.T) {
	t.Parallel()
	interpreter := python(t)
	o := small(t)
	o.steps = 2
	for i, order := range []string{wire.ByIndex, wire.ByCompletion} {
		o.order = order
		out := pythonTrains(t, interpreter, "--json", "--url", o.url, "--prompts", fmt.Sprint(o.prompts), "--group", fmt.Sprint(o.group),
			"--mini-batches", fmt.Sprint(o.batches), "--steps", fmt.Sprint(o.steps), "--seed", fmt.Sprint(o.seed), "--scale", "1", "--order", order,
			"--generation", "0.04", "--log-prob", "0.005", "--update", "0.012", "--other", "0.001", "--least", "0.001", "--most", "0.03")
		d := json.NewDecoder(bytes.NewReader(out))
		for _, mode := range trainer.Modes() {
			cfg := o.config(mode)
			late := 0
			if mode.Ahead() {
				late = 1
			}
			rewards, thetas := want(t, cfg, late)
			for step := range o.steps {
				var s told
				require.NoError(t, d.Decode(&s), "%s", out)
				assert.Equal(t, mode, s.Mode)
				assert.EqualValues(t, step+1, s.Step)
				assert.Zero(t, s.Failed)
				if i == 0 || !mode.Pipelines() {
					assert.Equal(t, thetas[step], s.Theta, "%s, step %d", mode, step+1)
				}
				if i == 0 || step == 0 || !mode.Pipelines() { // drawn from a policy that does not depend on the order
					assert.Equal(t, rewards[step], s.Rewards, "%s, step %d", mode, step+1)
				}
			}
		}
		assert.False(t, d.More())
	}
}

func TestTheTrainerInPythonPrintsTheSameTable(t *testing.T) {
	t.Parallel()
	interpreter := python(t)
	o := small(t)
	out := string(pythonTrains(t, interpreter, "--url", o.url, "--prompts", "4", "--steps", "2", "--scale", "5000"))
	for _, mode := range trainer.Modes() {
		assert.Regexp(t, `(?m)^\s*`+string(mode)+`\s+\d\.\d{3}\s+\d\.\d{3}\s+-?\d+\.\d %\s+-\d\.\d{4}\s+0\s+(-|as \w+)$`, out)
	}
}
