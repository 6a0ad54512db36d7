package engines

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

// Profiler is a tool that creates profiles.
type Profiler string

// The profilers.
const (
	Torch Profiler = "torch" // PyTorch's profiler, in the server
	Nsys  Profiler = "nsys"  // NVIDIA's Nsight Systems, under which the server runs
)

// Profile configures the profiling of servers.
type Profile struct {
	Tool Profiler
	// Servers are the numbers of the profiled servers.
	Servers []int
	// Folder is the absolute path of the folder for the profiles.
	Folder string
}

// of is the profile of a server; nil: it has none.
func (c Config) profileOf(server int) *Profile {
	if c.Profile == nil || !slices.Contains(c.Profile.Servers, server) {
		return nil
	}
	return c.Profile
}

// profiled adds to the command and the environment of a server what its profile needs. vLLM's forms are those of its documentation
// (docs/contributing/profiling.md, 0.27), SGLang's those of its benchmark_and_profiling.md.
func (p *Profile) profiled(kind Kind, name string, command, env []string) (with, environment []string) {
	if p == nil {
		return command, env
	}
	switch kind {
	case VLLM:
		settings := map[string]any{"profiler": "cuda"}
		if p.Tool == Torch {
			settings = map[string]any{"profiler": "torch", "torch_profiler_dir": filepath.Join(p.Folder, name)}
		}
		command = append(slices.Clone(command), "--profiler-config", written(settings))
	case SGLang:
		env = append(slices.Clone(env), "SGLANG_TORCH_PROFILER_DIR="+filepath.Join(p.Folder, name))
	case Transformers:
	}
	if p.Tool == Nsys {
		command = append([]string{
			"nsys", "profile", "--output", filepath.Join(p.Folder, name+"-%p"), "--force-overwrite=true", "--trace=cuda,nvtx,osrt",
			"--trace-fork-before-exec=true", "--cuda-graph-trace=node", "--capture-range=cudaProfilerApi", "--capture-range-end=repeat", "--kill=none",
		}, command...)
	}
	return command, env
}

// profileTime bounds the writing of a profile, which takes a minute for a long one.
const profileTime = 5 * time.Minute

// StartProfile starts a profile in the profiled servers that are ready. StopProfile ends the
// profile.
func (e *Engine) StartProfile(ctx context.Context) error { return e.profile(ctx, "/start_profile") }

// StopProfile ends the profile that StartProfile started; the servers write it.
func (e *Engine) StopProfile(ctx context.Context) error { return e.profile(ctx, "/stop_profile") }

func (e *Engine) profile(ctx context.Context, route string) error {
	if e.cfg.Profile == nil {
		return nil
	}
	var errs []error
	for i, said := range e.Status() {
		if e.cfg.profileOf(i) == nil || said.State != Ready {
			continue
		}
		if err := e.post(ctx, said.URL+route, profileTime); err != nil {
			errs = append(errs, fmt.Errorf("server %s: %w", said.Name, err))
		}
	}
	return errors.Join(errs...)
}

// Profiles returns the profilers that the kind supports.
func (k Kind) Profiles() []Profiler {
	switch k {
	case VLLM:
		return []Profiler{Torch, Nsys}
	case SGLang: // its route for CUDA's profiler is another one
		return []Profiler{Torch}
	case Transformers:
	}
	return nil
}
