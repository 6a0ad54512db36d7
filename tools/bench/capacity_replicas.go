package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// Sizes of replicas.
const (
	replicasInFlight = 24
	replicasTake     = 100 * time.Millisecond
	replicasSlow     = 10 // times as long at the third one
	replicasPlaces   = 64
)

// replicasTrial has a judge behind two servers: one asks two equal replicas of an engine, the other a third one besides, which is slow.
type replicasTrial struct {
	takes, lasting time.Duration
	engines        []*timedEngine
	two, three     *replicasSide
	next           atomic.Int64 // call
}

// replicasSide is one of the two servers.
type replicasSide struct {
	name       string
	deployment *deployment
	client     *client.Client
}

func newReplicasTrial(ctx context.Context, o Options) (_ Trial, err error) {
	t := &replicasTrial{takes: replicasTake, lasting: o.Lasting, two: &replicasSide{name: "two"}, three: &replicasSide{name: "three"}}
	if o.Quick {
		t.takes, t.lasting = t.takes/10, time.Second
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	root, err := report.Repository()
	if err != nil {
		return nil, err
	}
	var urls []string
	for i := range 5 {
		e, err := newTimedEngine(ctx, replicasPlaces)
		if err != nil {
			return nil, err
		}
		if i == 4 {
			e.slow = replicasSlow
		}
		t.engines, urls = append(t.engines, e), append(urls, e.url())
	}
	for side, of := range map[*replicasSide][]string{t.two: urls[:2], t.three: urls[2:]} {
		side.deployment, err = deploy(ctx, root, layout{name: "embedded"}, rewardSetting{yaml: judgeProfile(replicasPlaces, of...)})
		if err != nil {
			return nil, err
		}
		if side.client, err = client.Dial(ctx, client.Config{URL: "ws://" + side.deployment.addr, Run: side.name}); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Measure implements Trial: both sides, in changing order, each after a second in which its connections are opened.
func (t *replicasTrial) Measure(ctx context.Context, rep int) (Readings, error) {
	r := Readings{}
	sides := []*replicasSide{t.two, t.three}
	for i := range sides {
		s := sides[(i+rep)%2]
		if _, err := t.load(ctx, s, time.Second); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		before := t.engines[4].asked()
		o, err := t.load(ctx, s, t.lasting)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		r[s.name+"_p99_ms"], r[s.name+"_per_s"] = o.quantile(0.99), o.perSecond()
		if s == t.three {
			r["slow_share"] = float64(t.engines[4].asked()-before) / float64(o.samples)
		}
	}
	return r, errors.Join(t.two.deployment.ended(), t.three.deployment.ended())
}

func (t *replicasTrial) load(ctx context.Context, s *replicasSide, lasting time.Duration) (outcome, error) {
	return closedLoop(ctx, func(ctx context.Context, _ int) error {
		call := int(t.next.Add(1))
		sample := judged(call, t.takes)
		f, err := s.client.Submit(ctx, &sample, 0)
		if err != nil {
			return err
		}
		res, err := f.Wait(ctx)
		if err == nil && res.RewardScore == nil {
			err = errors.New("sample " + strconv.Itoa(call) + " was not scored: " + fmt.Sprint(res.Errors))
		}
		return err
	}, 1, replicasInFlight, lasting)
}

// Close implements Trial.
func (t *replicasTrial) Close() error {
	var errs []error
	for _, s := range []*replicasSide{t.two, t.three} {
		if s.client != nil {
			errs = append(errs, s.client.Close())
		}
		if s.deployment != nil {
			s.deployment.close()
		}
	}
	for _, e := range t.engines {
		e.kill()
	}
	return errors.Join(errs...)
}
