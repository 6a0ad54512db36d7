package ort

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/subprocess"
)

// Report is the result of loading a library in a child process.
type Report struct {
	Library Library
	// Version is the version that the loaded library reports.
	Version string
	// Providers are the working providers, the best first.
	Providers []string
	// CUDA is the reason why the CUDA provider does not work. It is empty if the provider works,
	// which does not imply that there is a device.
	CUDA string
}

// probeWait bounds how long the child of a Probe may take to end.
const probeWait = 5 * time.Second

// Probe loads the library in a child process, runs the canary on the CPU, and tests the CUDA
// provider, whose libraries may be in folders. Without CUDA, Probe takes about 0.2 s.
func Probe(ctx context.Context, lib Library, folders ...string) (Report, error) {
	rep := Report{Library: lib}
	if err := built(); err != nil {
		return rep, err
	}
	o, err := NewOpener(Config{})
	if err != nil {
		return rep, err
	}
	env := environment(folders)
	if seen, set := os.LookupEnv(visibleEnv); set {
		env = append(env, visibleEnv+"="+seen)
	}
	p, err := o.procs(lib, "cpu", 1, env)
	if err != nil {
		return rep, err
	}
	if err := p.Start(ctx); err != nil {
		return rep, fmt.Errorf("%w: %w", infer.ErrUnavailable, err)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeWait)
		defer cancel()
		_ = p.Stop(end) // that the child had to be killed is no news of the library
	}()
	meta, err := json.Marshal(request{Op: opAbout})
	if err != nil {
		return rep, fmt.Errorf("%w: %w", infer.ErrUnavailable, err)
	}
	resp, err := p.Do(ctx, subprocess.Request{Name: "about ONNX Runtime", Meta: meta})
	if err != nil {
		return rep, incoming(ctx, 1, err)
	}
	a, _, err := decodeAnswer(resp.Body)
	if err != nil {
		return rep, err
	}
	if a.About == nil {
		return rep, fmt.Errorf("%w: a child process did not report its ONNX Runtime", infer.ErrFault)
	}
	rep.Version, rep.CUDA = a.About.Version, a.About.CUDA
	if rep.CUDA == "" {
		rep.Providers = append(rep.Providers, cudaProvider)
	}
	rep.Providers = append(rep.Providers, cpuProvider)
	return rep, nil
}
