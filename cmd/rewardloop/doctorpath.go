package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/fabric"
	"github.com/rewardloop/rewardloop/internal/node"
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
		c.State, c.Detail = stateMissing, fmt.Sprintf("the known picture has %d bytes, not %d", n, knownBytes)
	default:
		c.Detail = fmt.Sprintf("the known picture has %d bytes, as PIL writes it", n)
	}
	if err != nil || n != knownBytes {
		c.Advice = "this binary computes wrongly on this machine: build it here, and report it"
	}
	return c
}

// engine starts what carries tickets inside of a process.
func engine(ctx context.Context) check {
	c := check{Name: "engine", Required: true, State: stateOK}
	begun := time.Now()
	f, err := fabric.Open(ctx, fabric.Config{})
	if err != nil {
		c.State, c.Detail, c.Advice = stateMissing, err.Error(), "it needs the folder for temporary files, and nothing else"
		return c
	}
	c.Detail = fmt.Sprintf("started in %d ms", time.Since(begun).Milliseconds())
	f.Close()
	return c
}

// selfTest sends one picture from the gateway through the engine to a worker and back.
func selfTest(ctx context.Context) check {
	c := check{Name: "whole path", Required: true, State: stateOK}
	took, err := throughAll(ctx)
	if err != nil {
		c.State, c.Detail, c.Advice = stateMissing, err.Error(), "see the checks above; if they are well, report it"
		return c
	}
	c.Detail = fmt.Sprintf("a known picture came back with its known score in %.1f ms", float64(took.Microseconds())/1000)
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
	s, err := node.NewScorers(x.cfg, nil)
	if err != nil {
		return []check{failed("rewards", err)}
	}
	defer s.Close() // children are killed if they do not end by themselves
	managers, err := config.BuildManagers(x.cfg, s.Registry)
	if err != nil {
		return []check{failed("rewards", err)}
	}
	var out []check
	for _, name := range slices.Sorted(maps.Keys(managers)) {
		m := managers[name]
		begun := time.Now()
		err := errors.Join(m.Warm(ctx), m.Close())
		if err != nil {
			out = append(out, failed("reward "+name, err))
			continue
		}
		ms := time.Since(begun).Milliseconds()
		out = append(out, check{
			Name: "reward " + name, Required: true, State: stateOK, MS: float64(ms),
			Detail: fmt.Sprintf("%s: ready after %d ms", strings.Join(m.Terms(), ", "), ms),
		})
	}
	return append(out, servers(ctx, s)...)
}

// servers looks at the engines and services that the configuration names.
func servers(ctx context.Context, s *node.Scorers) (out []check) {
	for _, f := range s.Engines.Look(ctx, false) {
		c := check{Name: "server " + f.Group, Required: true, State: stateOK, Detail: f.Endpoint + " answers"}
		if f.Err != nil {
			c.State, c.Detail = stateMissing, f.Err.Error()
			c.Advice = "start it, or mend its address in the configuration; samples that need it wait until it answers"
		}
		out = append(out, c)
	}
	return out
}
