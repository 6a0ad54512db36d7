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

// Report is what a child process saw of a library that it loaded.
type Report struct {
	Library Library
	// Version that the library gives itself.
	Version string
	// Providers that work, the best first.
	Providers []string
	// CUDA is why the CUDA provider does not work; "" if it does. It says nothing of
	// whether there is a device.
	CUDA string
}

// probeWait bounds how long the child of a Probe may take to end.
const probeWait = 5 * time.Second

// Probe has a child process load the library, run the canary on the CPU and try
// the CUDA provider, whose libraries may lie in those folders. It takes some 0.2 s without CUDA.
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
