package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/queue"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/jpeg"
)

// A picture of coloured checks and its size at quality 95 as PIL writes it, one of
// the rows in rewards/jpeg/testdata.
const (
	knownWidth, knownHeight = 64, 47
	knownBytes              = 4086
)

func jpegSize() check {
	c := check{Name: "jpeg", Required: true, State: stateOK}
	rgb := make([]byte, 0, 3*knownWidth*knownHeight)
	for y := range knownHeight {
		for x := range knownWidth {
			for channel := range 3 {
				rgb = append(rgb, byte(255*((x/(3+channel)+y/5)&1)))
			}
		}
	}
	n, err := jpeg.Size(rgb, knownWidth, knownHeight, 95)
	switch {
	case err != nil:
		c.State, c.Detail = stateMissing, err.Error()
	case n != knownBytes:
		c.State, c.Detail = stateMissing, fmt.Sprintf("the test picture as JPEG has %d bytes, want %d", n, knownBytes)
	default:
		c.Detail = fmt.Sprintf("the test picture as JPEG has %d bytes, as with PIL", n)
	}
	if err != nil || n != knownBytes {
		c.Advice = "this binary computes wrong results on this machine: build rewardloop on this machine, and report the fault"
	}
	return c
}

// tickets starts what carries tickets inside of a process.
func tickets(ctx context.Context) check {
	c := check{Name: "queue", Required: true, State: stateOK}
	begun := time.Now()
	f, err := queue.Open(ctx, queue.Config{})
	if err != nil {
		c.State, c.Detail, c.Advice = stateMissing, err.Error(), "the check only needs a writable folder for temporary files"
		return c
	}
	c.Detail = fmt.Sprintf("started in %d ms", time.Since(begun).Milliseconds())
	f.Close()
	return c
}

// selfTest sends one picture from the gateway through the queue to a worker and back.
func selfTest(ctx context.Context) check {
	c := check{Name: "whole path", Required: true, State: stateOK}
	took, err := throughAll(ctx)
	if err != nil {
		c.State, c.Detail, c.Advice = stateMissing, err.Error(), "see the checks above; if they pass, report the fault"
		return c
	}
	c.Detail = fmt.Sprintf("a test picture got the expected score in %.1f ms", float64(took.Microseconds())/1000)
	return c
}

func throughAll(ctx context.Context) (time.Duration, error) {
	cfg, err := config.Load("", []string{
		"++reward.num_workers=1", "++reward.custom_reward_function.path=builtin://jpeg_incompressibility",
	}, nil)
	if err != nil {
		return 0, err
	}
	n, err := node.New(node.Options{Config: cfg, Version: release(), NoServer: true})
	if err != nil {
		return 0, err
	}
	if err := n.Start(ctx); err != nil {
		return 0, err
	}
	defer n.Stop()
	begun := time.Now()
	err = n.SelfTest(ctx)
	return time.Since(begun), err
}

// rewards readies every reward of the configuration, as serve does before it listens.
func (x *exam) rewards(ctx context.Context) []check {
	failed := func(name string, err error) check {
		return check{
			Name: name, Required: true, State: stateMissing, Detail: err.Error(),
			Advice: "serve would not start; rewardloop scorers lists the rewards and their options",
		}
	}
	cfg := *x.cfg // functions that ask the reward router are made, and find nobody there
	cfg.RouterAddress = cmp.Or(cfg.RouterAddress, "127.0.0.1:0")
	s, err := node.NewScorers(&cfg, nil)
	if err != nil {
		return []check{failed("rewards", err)}
	}
	defer s.Close() // children are killed if they do not end by themselves
	managers, err := config.BuildManagers(&cfg, s.Registry)
	if err != nil {
		return []check{failed("rewards", err)}
	}
	var out []check
	for _, name := range slices.Sorted(maps.Keys(managers)) {
		m := managers[name]
		begun := time.Now()
		if err := m.Warm(ctx); err != nil {
			out = append(out, failed("reward "+name, errors.Join(err, m.Close())))
			continue
		}
		ms := time.Since(begun).Milliseconds()
		out = append(out, check{
			Name: "reward " + name, Required: true, State: stateOK, MS: float64(ms),
			Detail: fmt.Sprintf("%s: ready after %d ms", strings.Join(m.Components(), ", "), ms),
		})
		out = append(out, functions(name, m.TryKnown(ctx))...)
		if err := m.Close(); err != nil {
			out = append(out, failed("reward "+name, err))
		}
	}
	return append(out, servers(ctx, s, managers)...)
}

// functions says what came of the calls of a reward's functions with known samples.
func functions(reward string, tried []rewards.Tried) (out []check) {
	for _, t := range tried {
		c := check{
			Name: "function " + reward + "/" + t.Component, Required: !t.Optional, State: stateOK, MS: float64(t.Took.Milliseconds()),
			Detail: fmt.Sprintf("scores a test sample with %s %s", article(t.Kind), t.Kind),
		}
		if t.Err != nil {
			c.State, c.Advice = stateWarn, node.Means(t)
			c.Detail = fmt.Sprintf("does not score a test sample with %s %s: %v", article(t.Kind), t.Kind, t.Err)
		}
		if t.Lacks != "" {
			c.State = stateMissing
		}
		if t.Optional {
			c.Detail = "optional: " + c.Detail
		}
		out = append(out, c)
	}
	return out
}

// article is that of a word.
func article(word string) string {
	if strings.ContainsAny(word[:min(1, len(word))], "aeiou") {
		return "an"
	}
	return "a"
}

// servers looks at the engines and services that the configuration names.
func servers(ctx context.Context, s *node.Scorers, managers map[string]*rewards.Manager) (out []check) {
	for _, p := range s.Engines.Programs() {
		c := check{Name: "engine " + p.Engine, Required: !node.Optional(managers, p.Engine), State: stateOK, Detail: "serve starts " + p.Path}
		if p.Err != nil {
			c.State, c.Detail = stateMissing, p.Err.Error()
			c.Advice = "install the engine on PATH, or set interpreter beside rollout.name to a Python that has the engine"
		}
		out = append(out, c)
	}
	for _, f := range s.Engines.Look(ctx, false) {
		if f.Held { // serve starts it
			continue
		}
		c := check{Name: "server " + f.Upstream, Required: !node.Optional(managers, f.Upstream), State: stateOK, Detail: f.Endpoint + " answers"}
		if f.Err != nil {
			c.State, c.Detail = stateMissing, f.Err.Error()
			c.Advice = "start the server, or correct its address in the configuration; samples that need the server wait until it answers"
		}
		if !c.Required {
			c.Detail = "optional: " + c.Detail
		}
		out = append(out, c)
	}
	return out
}
