package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// trivial is the function that the doctor calls, and what for.
const (
	trivial = "def compute_score(ground_truth):\n    return ground_truth / 2\n"
	asked   = 42
)

// lookTimeout bounds the question for a version: a first start from a slow disk takes
// seconds, and what answers nothing is no Python.
const lookTimeout = 20 * time.Second

// python finds the interpreter, asks what it is, and has a function run in a process
// as reward functions do. It is required where a reward is written in Python.
func (x *exam) python(ctx context.Context) check {
	c := check{Name: "python", Required: x.usesPython(), State: stateOK}
	fail := func(err error, advice string) check {
		c.State, c.Detail, c.Advice = stateMissing, err.Error(), advice
		return c
	}
	cfg := node.Python(x.cfg.Pool.Python)
	const name = "reward functions in Python need Python 3.10 or newer: set pool.python.interpreter or REWARDLOOP_PYTHON to such a Python, or install one (on Debian: apt-get install python3)"
	path, err := exec.LookPath(cmp.Or(cfg.Interpreter, "python3"))
	if err != nil {
		return fail(err, name)
	}
	about, err := askPython(ctx, path)
	if err != nil {
		return fail(err, name)
	}
	if about.Version[0] < 3 || about.Version[0] == 3 && about.Version[1] < 10 {
		return fail(fmt.Errorf("%s is Python %s", path, about), name)
	}
	took, err := callPython(ctx, cfg)
	if err != nil {
		return fail(err, "a process of the interpreter must be able to start and to answer; see pool.python in rewardloop config print")
	}
	c.Detail = fmt.Sprintf("%s at %s, called a function %d ms after its start", about, path, took.Milliseconds())
	if c.Required && !about.NumPy && !about.Torch {
		c.State, c.Advice = stateWarn, "the interpreter has neither NumPy nor torch: functions that take pictures need one of them"
	}
	return c
}

func (x *exam) usesPython() bool {
	for _, p := range x.cfg.Profiles {
		for _, t := range p.Components {
			if t.Scorer == config.PythonScorer {
				return true
			}
		}
	}
	return false
}

// pythonIs is what an interpreter says of itself.
type pythonIs struct {
	Version []int `json:"version"`
	NumPy   bool  `json:"numpy"`
	Torch   bool  `json:"torch"`
}

// String returns the version and whether NumPy and torch are there.
func (p pythonIs) String() string {
	parts := []string{fmt.Sprintf("%d.%d.%d", p.Version[0], p.Version[1], p.Version[2])}
	if p.NumPy {
		parts = append(parts, "with numpy")
	}
	if p.Torch {
		parts = append(parts, "with torch")
	}
	return strings.Join(parts, " ")
}

// askPython does not import what it asks for: torch takes seconds.
func askPython(ctx context.Context, path string) (pythonIs, error) {
	const question = "import sys, json, importlib.util as u; " +
		"print(json.dumps({'version': sys.version_info[:3], 'numpy': bool(u.find_spec('numpy')), 'torch': bool(u.find_spec('torch'))}))"
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-c", question) //nolint:gosec // the configuration names it
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return pythonIs{}, fmt.Errorf("%s: %w: %s", path, err, strings.TrimSpace(said.String()))
	}
	var is pythonIs
	if err := json.Unmarshal(out, &is); err != nil || len(is.Version) != 3 {
		return is, fmt.Errorf("%s is not a Python interpreter: its version command answered %q", path, out)
	}
	return is, nil
}

// callPython starts a process and calls a function in it.
func callPython(ctx context.Context, cfg python.Config) (took time.Duration, err error) {
	dir, err := os.MkdirTemp("", "rewardloop-doctor-*")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "doctor_reward.py")
	if err := os.WriteFile(file, []byte(trivial), 0o600); err != nil {
		return 0, err
	}
	cfg.Processes = 1
	begun := time.Now()
	s, err := python.New(cfg, python.Options{Path: file})
	if err != nil {
		return 0, err
	}
	if c, ok := s.(rewards.Closer); ok {
		defer func() { err = errors.Join(err, c.Close()) }()
	}
	got, err := s.Score(ctx, &rewards.Sample{ID: "doctor", GroundTruth: json.RawMessage(strconv.Itoa(asked))})
	if err != nil {
		return 0, err
	}
	if got.Value != asked/2 {
		return 0, fmt.Errorf("the function computed half of %d as %v", asked, got.Value)
	}
	return time.Since(begun), nil
}
