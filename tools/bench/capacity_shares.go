package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// sharesTrial has two runs behind a server that cannot do as much as either sends.
type sharesTrial struct {
	deployment *deployment
	light      isolationLoad
	heavy      isolationLoad
	lasting    time.Duration
}

// newRunsTrial has two runs of one profile.
func newRunsTrial(ctx context.Context, o Options) (Trial, error) {
	load := func(run string) isolationLoad {
		return isolationLoad{run: run, inFlight: sharesInFlight, sample: func(i int64) rewards.Sample {
			return waitFor(strconv.FormatInt(i, 10), "", sharesBlock)
		}}
	}
	return newSharesTrial(ctx, runsProfile, load(lightRun), load(heavyRun), o.Lasting)
}

// newDeviceTrial has two runs with a profile each, on one session.
func newDeviceTrial(ctx context.Context, o Options) (Trial, error) {
	root, err := report.Repository()
	if err != nil {
		return nil, err
	}
	file, err := os.ReadFile(filepath.Join(root, "testdata", "golden", "ocr", "g00_0.jpg"))
	if err != nil {
		return nil, err
	}
	load := func(run, reward string) isolationLoad {
		l := textLoad(run, reward, flagGood, sharesInFlight)
		return l.with(&rewards.Media{Kind: rewards.Image, Encoding: rewards.JPEG, DType: "U8", Shape: []int{len(file)}, Data: file})
	}
	lasting := o.Lasting
	if !o.Quick {
		lasting *= 4 // a picture takes a tenth of a second
	}
	return newSharesTrial(ctx, deviceProfiles, load(lightRun, "other"), load(heavyRun, ""), lasting)
}

func newSharesTrial(ctx context.Context, yaml string, light, heavy isolationLoad, lasting time.Duration) (Trial, error) {
	root, err := report.Repository()
	if err != nil {
		return nil, err
	}
	light.takeBack, heavy.takeBack = true, true
	light.patience, heavy.patience = overtime/2, overtime/2
	t := &sharesTrial{light: light, heavy: heavy, lasting: max(lasting, time.Second)}
	t.deployment, err = deploy(ctx, root, layout{name: "embedded"}, rewardSetting{yaml: yaml})
	return t, err
}

// Measure implements Trial.
func (t *sharesTrial) Measure(ctx context.Context, _ int) (_ Readings, err error) {
	runs := make([]*loading, 2)
	for i, load := range []isolationLoad{t.light, t.heavy} {
		if runs[i], err = load.begin(ctx, t.deployment.addr); err != nil {
			break
		}
		defer func() { err = errors.Join(err, runs[i].stop()) }()
	}
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, t.lasting/4); err != nil {
		return nil, err
	}
	for _, g := range runs {
		g.open(time.Now())
	}
	err = sleep(ctx, t.lasting)
	for _, g := range runs {
		g.close(time.Now())
	}
	if err != nil {
		return nil, err
	}
	light, heavy := float64(runs[0].scored), float64(runs[1].scored)
	failed := runs[0].failures() + runs[1].failures()
	if light+heavy == 0 {
		return nil, fmt.Errorf("no sample was scored in %v: %s%s", t.lasting, runs[0].quote, runs[1].quote)
	}
	fair := 1.0 / (1 + heavyWeight)
	return Readings{
		"off_by":      math.Abs(light/(light+heavy)/fair - 1),
		"one_sample":  1 / (fair * (light + heavy)), // what one sample more changes
		"light_per_s": light / t.lasting.Seconds(), "heavy_per_s": heavy / t.lasting.Seconds(), "failed": float64(failed),
	}, t.deployment.ended()
}

// Close implements Trial.
func (t *sharesTrial) Close() error {
	t.deployment.close()
	return nil
}
