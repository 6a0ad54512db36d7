package loop_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/loop/dispatch"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/memqueue"
	"github.com/rewardloop/rewardloop/testkit/race"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// trial is one step of a trainer whose samples come at known times to workers of known
// speeds, on the gateway and workers that ship, in fake time.
type trial struct {
	seed    uint64
	workers int
	places  int // of each worker; 0: 1
	samples int // 0: 512
	bursts  int // samples that come together; 0: 1
	// load is what the samples need of what the workers can do while they come; 0: 0.9.
	load float64
	// size is a sample's own part of its service time, noise an attempt's; each has a
	// mean of about 1. nil: always 1.
	size, noise func(*rand.Rand) float64
	// slow is the part of the workers that take three times as long.
	slow float64
	// undeclared: nobody says how many samples there are.
	undeclared bool
	dispatch   dispatch.Config
	// during is called when the samples begin to come; nil: nothing happens.
	during func(r *rig.Rig, e *memqueue.Queue)
	steps  int // one after the other, the last of which counts; 0: 1
}

// Times of a step: samples come for 200 s, and the update takes 160 s after that.
const (
	rolloutTime = 200.0
	updateTime  = 160.0
	trialLease  = 15 * time.Second // as in package queue
)

// outcome of a trial. Times are in seconds since the step began.
type outcome struct {
	end    float64 // of the last sample
	bound  float64 // F*, of the samples' own times on the fastest worker
	unit   float64 // mean service time
	scored int

	sent, won, wasted float64 // backups; the last in seconds
}

// over is the step's time over the bound's.
func (o outcome) over() float64 { return (o.end + updateTime) / (o.bound + updateTime) }

// factor is how much longer worker i takes.
func (tr trial) factor(i int) float64 {
	if i < int(math.Round(tr.slow*float64(tr.workers))) {
		return 3
	}
	return 1
}

func (tr trial) speed() float64 {
	var sum float64
	for i := range tr.workers {
		sum += float64(tr.places) / tr.factor(i)
	}
	return sum
}

func (tr trial) withDefaults() trial {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&tr.places, 1)
	def(&tr.samples, 512)
	def(&tr.bursts, 1)
	def(&tr.steps, 1)
	if tr.load == 0 {
		tr.load = 0.9
	}
	one := func(*rand.Rand) float64 { return 1 }
	if tr.size == nil {
		tr.size = one
	}
	if tr.noise == nil {
		tr.noise = one
	}
	return tr
}

// load draws when the samples come and what each takes.
func (tr trial) draw(step int) (g, r []float64, unit float64) {
	rng := rand.New(rand.NewPCG(tr.seed, 11+uint64(step)))
	unit = tr.load * tr.speed() * rolloutTime / float64(tr.samples)
	for i := range tr.samples {
		g = append(g, rolloutTime*float64((i/tr.bursts+1)*tr.bursts)/float64(tr.samples))
		r = append(r, unit*tr.size(rng))
	}
	return g, r, unit
}

// lowerBound is sim.LowerBound where workers differ: no sample is scored sooner than by
// the fastest worker, and the work from any sample on takes all of them together.
func lowerBound(g, r []float64, speed float64) float64 {
	var bound, work float64
	for i, released := range slices.Backward(g) { // they are in order of release
		work += r[i]
		bound = max(bound, released+r[i], released+work/speed)
	}
	return bound
}

// run plays the trial.
func (tr trial) run(t *testing.T) (out outcome) {
	t.Helper()
	tr = tr.withDefaults()
	synctest.Test(t, func(t *testing.T) { out = tr.play(t) })
	return out
}

func (tr trial) play(t *testing.T) outcome {
	t.Helper()
	e := memqueue.New(tr.seed, trialLease)
	times := make([][]float64, tr.steps)
	var mu sync.Mutex
	server := rand.New(rand.NewPCG(tr.seed, 12))
	r := rig.New(t, rig.Options{
		Queue: e, Source: func(id string) workers.Source { return e.NewSource(id) }, Workers: tr.workers,
		Worker: rig.Settings{Places: tr.places},
		Loop: loop.Config{
			Gateway: fmt.Sprint("gw", tr.seed), Dispatch: tr.dispatch, CreditSamples: 100_000, MaxBytes: 4 << 30, CreditBytes: 1 << 30,
			SampleTimeout: time.Hour, StepTimeout: 3 * time.Hour, ClaimTimeout: time.Hour,
		},
		Profiles: map[string]*rewards.Manager{"": nil},
		ProfilesOf: func(worker string) map[string]*rewards.Manager {
			n, err := strconv.Atoi(strings.TrimPrefix(worker, "w"))
			require.NoError(t, err)
			factor := tr.factor(n)
			m, err := rewards.NewManager(rewards.ManagerConfig{Timeout: time.Hour, Components: []rewards.Component{component(
				func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
					mu.Lock()
					d := times[s.Step][*s.Index] * factor * tr.noise(server)
					mu.Unlock()
					return rewards.Score{Value: 1}, pause(ctx, time.Duration(d*float64(time.Second)))
				},
			)}})
			require.NoError(t, err)
			return map[string]*rewards.Manager{"": m}
		},
	})
	p := &clock{m: r.Manager, more: make(chan struct{}, 1)}
	session, err := r.Manager.Attach(wire.Hello{Run: "run", Client: "a"}, p)
	require.NoError(t, err)
	time.Sleep(100 * time.Millisecond) // the workers are there
	var out outcome
	for step := range tr.steps {
		g, service, unit := tr.draw(step)
		mu.Lock()
		times[step] = service
		mu.Unlock()
		start := time.Now()
		p.begin(tr.samples)
		if !tr.undeclared {
			r.Manager.Declare(session, wire.Step{Step: int64(step), Expected: int64(tr.samples), Total: true})
		}
		if step == tr.steps-1 && tr.during != nil {
			go tr.during(r, e) // ends by itself, within the bubble
		}
		for i := range g {
			time.Sleep(time.Until(start.Add(time.Duration(g[i] * float64(time.Second)))))
			s := rig.Sample(fmt.Sprintf("%d-%d", step, i), 3)
			s.Step, s.Index = int64(step), new(int64(i))
			msg, err := wire.Encode(s, wire.Options{})
			require.NoError(t, err)
			require.NoError(t, r.Manager.Receive(session, bytes.NewReader(msg.Bytes())))
		}
		end := p.wait(t)
		out = outcome{end: end.Sub(start).Seconds(), bound: lowerBound(g, service, tr.speed()), unit: unit, scored: p.scored}
		r.Manager.Confirm(session, p.seq)
	}
	out.sent, out.won, out.wasted = r.Manager.Backups()
	r.Manager.Detach(session, p)
	r.Stop()
	e.Close()
	time.Sleep(2 * time.Hour) // scorers of dead workers
	return out
}

// clock is a trainer's connection that notes when results come.
type clock struct {
	m    *loop.Manager
	more chan struct{}

	mu     sync.Mutex
	left   int
	scored int
	seq    uint64
	last   time.Time
}

func (c *clock) Close(int, string) error { return nil }

// SendLater implements stream.Conn.
func (c *clock) SendLater(later func() []byte) error {
	if b := later(); b != nil {
		return c.Send(b)
	}
	return nil
}

// Send implements stream.Conn.
func (c *clock) Send(b []byte) error {
	v, err := wire.DecodeControl(b)
	if err != nil {
		return err
	}
	res, ok := v.(*wire.Result)
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left--
	c.seq = max(c.seq, res.Seq)
	if res.Outcome == rewards.Scored {
		c.scored++
	}
	c.last = time.Now()
	if c.left == 0 {
		c.more <- struct{}{}
	}
	return nil
}

func (c *clock) begin(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left, c.scored = n, 0
}

func (c *clock) wait(t *testing.T) time.Time {
	t.Helper()
	select {
	case <-c.more:
	case <-time.After(2 * time.Hour):
		require.Fail(t, "the step did not end within two hours")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// Distributions of service times, of mean 1.
func uniform(rng *rand.Rand) float64 { return 0.8 + 0.4*rng.Float64() }

func logNormal(rng *rand.Rand) float64 { return math.Exp(rng.NormFloat64() - 0.5) }

// straggling is 2 % of attempts that take as long as ten samples do on average.
func straggling(rng *rand.Rand) float64 {
	if rng.Float64() < 0.02 {
		return 10
	}
	return 0.8 / 0.98
}

// trials is how many seeds a figure is the median of: REWARDLOOP_TRIALS, else 5, or one
// where each costs more.
func (tr trial) trials() int {
	if n, err := strconv.Atoi(os.Getenv("REWARDLOOP_TRIALS")); err == nil && n > 0 {
		return n
	}
	switch {
	case !race.Enabled && !testing.Short():
		return 5
	case tr.workers > 16:
		return 1
	}
	return 3
}

// median plays a trial with several seeds, and returns the median of what it is told to
// look at.
func (tr trial) median(t *testing.T, of func(outcome) float64) float64 {
	t.Helper()
	var all []float64
	for seed := range tr.trials() {
		tr.seed = uint64(seed) + 1
		o := tr.run(t)
		require.Equal(t, tr.withDefaults().samples, o.scored)
		all = append(all, of(o))
	}
	slices.Sort(all)
	return all[len(all)/2]
}
