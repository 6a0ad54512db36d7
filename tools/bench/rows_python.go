package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
	"github.com/rewardloop/rewardloop/tools/bench/cputime"
	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// lines that promise the figures.
const (
	lineClient   = "Python client, raw 512×512×3, no-op reward: ≥ 400 samples/s with one process on 2 cores (or 60 % of a bare websockets client in the same run)"
	lineFunction = "a trivial Python reward function: ≥ 1,000 calls/s for small payloads, ≥ 200/s for 786 KB; p99 reported"
)

// inPython is what trainers and reward functions in Python cost.
func inPython() Suite {
	p99 := Row{Name: "p99", Unit: "ms", Value: reading("ours_p99_ms"), Beside: []string{"ours_p50_ms"}}
	function := func(name, function string, perSecond float64, s *rewards.Sample) Experiment {
		return Experiment{
			Name: name,
			Rows: []Row{
				{Name: "calls", Issue: lineFunction, Unit: "/s", Value: reading("ours_per_s"), Target: atLeast(perSecond), Beside: []string{othersCores}},
				p99,
			},
			Setup: func(ctx context.Context, o Options) (Trial, error) { return newFunctionTrial(ctx, o, function, s) },
		}
	}
	clientP99 := p99
	clientP99.Beside = []string{"ours_p50_ms", "bare_p99_ms"}
	return Suite{
		Name: "python", Apart: true,
		About: "The Python client (one process, 32 raw pictures in flight) against a gateway of this process with a reward that touches " +
			"nothing, beside websockets alone against gorilla alone. A trivial reward function in as many Python processes as there are " +
			"cores, two calls waiting for each, measured at the scorer: the call, the pixels as a NumPy array, and the answer.",
		Experiments: []Experiment{
			{
				Name: "pyclient786k", Setup: newClientTrial,
				Rows: []Row{
					{
						Name: "throughput", Issue: lineClient, Unit: "/s", Value: reading("ours_per_s"), Target: orShare(400, 0.6, "bare_per_s"),
						Beside: []string{"bare_per_s", othersCores},
					},
					{Name: "ratio", Value: ratio("ours_per_s", "bare_per_s")},
					clientP99,
					{Name: "cpu", Unit: "ms", Value: reading("ours_cpu_ms"), Beside: []string{"bare_cpu_ms"}},
				},
			},
			function("pyfunction", "nothing", 1000, &rewards.Sample{ID: "small", GroundTruth: json.RawMessage(`"open until late"`)}),
			function("pyfunction786k", "first_byte", 200, &rewards.Sample{ID: "picture", Media: []*rewards.Media{{
				Kind: rewards.Image, Layout: rewards.CHW, Encoding: rewards.Raw, DType: "U8", Shape: []int{3, 512, 512}, Data: make([]byte, 3*512*512),
			}}}),
		},
	}
}

// orShare is a rate, or a share of the calibration where that is less.
func orShare(v, share float64, calibration string) Target {
	return func(now, _ Readings) (report.Bound, error) {
		least := share * lookup(now, calibration)
		if !(least > 0) {
			return report.Bound{}, fmt.Errorf("calibration %s is %v, it must be above 0", calibration, now[calibration])
		}
		if least >= v {
			return report.Bound{Value: v}, nil
		}
		return report.Bound{Value: least, Note: fmt.Sprintf("%v of %s, which is less than %v/s", share, calibration, v)}, nil
	}
}

// interpreter is REWARDLOOP_PYTHON, the project's own environment, or python3.
func interpreter(root string) string {
	own := filepath.Join(root, ".venv", "bin", "python")
	if _, err := os.Stat(own); err != nil {
		own = "python3"
	}
	return cmp.Or(os.Getenv("REWARDLOOP_PYTHON"), own)
}

// clientTrial has a gateway and the calibration's server; the clients are processes
// that each measurement starts.
type clientTrial struct {
	root    string
	node    *node
	bare    *bare
	lasting time.Duration
}

func newClientTrial(ctx context.Context, o Options) (_ Trial, err error) {
	t := &clientTrial{lasting: o.Lasting}
	if t.root, err = report.Repository(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if t.node, err = newNode(ctx, noopNode(0)); err != nil {
		return nil, err
	}
	t.bare, err = newBare(ctx, 0)
	return t, err
}

// loaded is what load.py prints.
type loaded struct {
	PerS  float64 `json:"per_s"`
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
	CPUMS float64 `json:"cpu_ms"`
}

// Measure implements Trial: the client and the bare one, in changing order.
func (t *clientTrial) Measure(ctx context.Context, rep int) (Readings, error) {
	r := Readings{}
	sides := []struct{ name, load, addr string }{{"ours", "client", t.node.addr}, {"bare", "bare", t.bare.addr}}
	for i := range sides {
		s := sides[(i+rep)%2]
		var l loaded
		others, err := t.load(ctx, s.load, s.addr, &l)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.load, err)
		}
		r[s.name+"_per_s"], r[s.name+"_p50_ms"], r[s.name+"_p99_ms"], r[s.name+"_cpu_ms"] = l.PerS, l.P50MS, l.P99MS, l.CPUMS
		r[othersCores] = max(r[othersCores], others)
	}
	return r, nil
}

// load runs load.py and says how many cores were kept busy by neither of us.
func (t *clientTrial) load(ctx context.Context, side, addr string, into *loaded) (others float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*t.lasting+overtime)
	defer cancel()
	script := filepath.Join(t.root, "python", "bench", "load.py")
	cmd := exec.CommandContext(ctx, interpreter(t.root), script, side, "ws://"+addr, strconv.FormatFloat(t.lasting.Seconds(), 'f', -1, 64)) //nolint:gosec // who runs it names it
	cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(t.root, "python"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	before, start := used(), time.Now()
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", cmd.Path, err, strings.TrimSpace(stderr.String()))
	}
	o := outcome{took: time.Since(start), used: used().since(before)}
	o.used.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return o.others(), json.Unmarshal(out, into)
}

// Close implements Trial.
func (t *clientTrial) Close() error {
	var errs []error
	if t.node != nil {
		errs = append(errs, t.node.Close())
	}
	if t.bare != nil {
		errs = append(errs, t.bare.Close())
	}
	return errors.Join(errs...)
}

// functionTrial has the processes of one function running.
type functionTrial struct {
	scorer  rewards.Scorer
	sample  *rewards.Sample
	lasting time.Duration
}

func newFunctionTrial(ctx context.Context, o Options, function string, s *rewards.Sample) (Trial, error) {
	root, err := report.Repository()
	if err != nil {
		return nil, err
	}
	scorer, err := python.New(python.Config{Interpreter: interpreter(root)}, python.Options{
		Path: filepath.Join(root, "python", "bench", "functions.py"), Name: function, ExtraKeys: map[string]rewards.FieldKind{},
	})
	if err != nil {
		return nil, err
	}
	t := &functionTrial{scorer: scorer, sample: s, lasting: o.Lasting}
	if w, ok := scorer.(rewards.Warmer); ok {
		err = w.Warm(ctx)
	}
	if err == nil {
		_, err = scorer.Score(ctx, s) // imports NumPy where it is needed
	}
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Measure implements Trial.
func (t *functionTrial) Measure(ctx context.Context, _ int) (Readings, error) {
	call := func(ctx context.Context, _ int) error {
		_, err := t.scorer.Score(ctx, t.sample)
		return err
	}
	window := 2 * runtime.NumCPU()
	if _, err := closedLoop(ctx, call, 1, window, t.lasting/6); err != nil {
		return nil, err
	}
	hosts := t.processesCPU()
	o, err := closedLoop(ctx, call, 1, window, t.lasting)
	if err != nil {
		return nil, err
	}
	o.used.cpu += t.processesCPU() - hosts
	return Readings{
		"ours_per_s": o.perSecond(), "ours_p50_ms": o.quantile(0.5), "ours_p99_ms": o.quantile(0.99), othersCores: o.others(),
	}, nil
}

// processesCPU is what the function's processes have computed so far.
func (t *functionTrial) processesCPU() time.Duration {
	var sum time.Duration
	if s, ok := t.scorer.(interface{ Stats() python.Stats }); ok {
		for _, pid := range s.Stats().PIDs {
			sum += cputime.Process(pid)
		}
	}
	return sum
}

// Close implements Trial.
func (t *functionTrial) Close() error {
	if c, ok := t.scorer.(rewards.Closer); ok {
		return c.Close()
	}
	return nil
}
