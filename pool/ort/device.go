package ort

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// visibleEnv says which CUDA devices a process sees, and in which order.
const visibleEnv = "CUDA_VISIBLE_DEVICES"

// loaderEnv names folders to the loader of libraries.
const loaderEnv = "LD_LIBRARY_PATH"

// cpuDevice is the name of the CPU.
const cpuDevice = "cpu"

// parseDevice reads "cpu" or "cuda:<n>"; n is -1 for the CPU.
func parseDevice(device string) (n int, err error) {
	if device == cpuDevice {
		return -1, nil
	}
	if s, ok := strings.CutPrefix(device, "cuda:"); ok {
		if n, err := strconv.Atoi(s); err == nil && n >= 0 && s == strconv.Itoa(n) {
			return n, nil
		}
	}
	return 0, infer.Marked(infer.ErrMissing, fmt.Errorf("%w: device %q, want cpu or cuda:<n> with n from 0", infer.ErrUnavailable, device))
}

// visible is the value of CUDA_VISIBLE_DEVICES with which a child sees device n alone.
func (c Config) visible(n int) (string, error) {
	if c.Cards == nil {
		inherited, set := os.LookupEnv(visibleEnv)
		return inheritedCard(n, inherited, set)
	}
	if n >= len(c.Cards) {
		return "", infer.Marked(infer.ErrMissing, fmt.Errorf("%w: no device cuda:%d: this process has %d cards", infer.ErrUnavailable, n, len(c.Cards)))
	}
	return c.Cards[n], nil
}

// inheritedCard is device n of this process, by the CUDA_VISIBLE_DEVICES that this process
// was given; set is whether it was given any. Its entries may be numbers or the names of
// GPUs and of parts of them (GPU-…, MIG-…); like CUDA itself it ends at the first -1.
func inheritedCard(n int, inherited string, set bool) (string, error) {
	if !set {
		return strconv.Itoa(n), nil
	}
	var seen []string
	for e := range strings.SplitSeq(inherited, ",") {
		if e = strings.TrimSpace(e); e == "" || e == "-1" {
			break
		}
		seen = append(seen, e)
	}
	if n >= len(seen) {
		return "", infer.Marked(infer.ErrMissing, fmt.Errorf("%w: no device cuda:%d: %s=%q makes %d devices visible to this process",
			infer.ErrUnavailable, n, visibleEnv, inherited, len(seen)))
	}
	return seen[n], nil
}

// environment is what a child gets: what it needs to find libraries and devices,
// and nothing else of ours, such as tokens. GOMAXPROCS: a child works on one
// thread; its garbage collector must not take every core of a large machine. Its loader looks for
// libraries in those folders as well.
func environment(folders []string, more ...string) []string {
	if at := slices.Concat(filepath.SplitList(os.Getenv(loaderEnv)), folders); len(at) > 0 {
		more = append(more, loaderEnv+"="+strings.Join(at, string(filepath.ListSeparator)))
	}
	env := []string{"LC_ALL=C.UTF-8", "GOMAXPROCS=2", "OMP_NUM_THREADS=1"}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		switch {
		case name == visibleEnv:
		case name == "PATH", name == "HOME", name == "TMPDIR", name == "GORACE", name == "GOCOVERDIR",
			strings.HasPrefix(name, "CUDA_"), strings.HasPrefix(name, "NVIDIA_"):
			env = append(env, kv)
		}
	}
	return append(env, more...)
}
