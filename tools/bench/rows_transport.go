package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strconv"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// lines that promise the figures.
const (
	lineRatio = "raw 512×512×3 samples through all layers with a no-op reward ≥ 50 % of a bare gorilla round trip of the same frames"
	lineRaw   = "expected ≥ 1,000/s on 2 cores"
	lineJPEG  = "10,000/s at 25 KB"
	lineTail  = "p99 at half that load ≤ bare p99 + 10 ms"
	// Of 1,000 connections of which 990 are idle a simulation shows the windows.
	lineIdleConnections = "throughput as a paired row with 64 connections of which 60 idle"
	lineBytes           = "bytes allocated per sample ≤ 64 KiB at 25 KB and at 786 KB"
)

// transport is the whole way of a sample: client, websocket, gateway, engine, worker,
// reward manager with a scorer that touches nothing, and the result's way back.
func transport() Suite {
	raw := sampleKind{
		name: "raw786k", bytes: 512 * 512 * 3, window: 8,
		media: rewards.Media{Kind: rewards.Image, Layout: rewards.HWC, Encoding: rewards.Raw, DType: "U8", Shape: []int{512, 512, 3}},
	}
	jpeg := sampleKind{
		name: "jpeg25k", bytes: 25_000, window: 32,
		media: rewards.Media{Kind: rewards.Image, Encoding: rewards.JPEG, DType: "U8"},
	}
	ratioRow := Row{
		Name: "throughput-ratio", Value: ratio("ours_per_s", "bare_per_s"), Beside: []string{"ours_per_s", "bare_per_s"},
	}
	promised := ratioRow
	promised.Issue, promised.Target = lineRatio, atLeast(0.5)
	return Suite{
		Name: "transport",
		About: "A sample's whole way with a reward that touches nothing: client, loopback websocket, gateway, embedded engine, worker, " +
			"and the result back, against gorilla alone with the same frames, connections and samples in flight. Client and server share the " +
			"machine and the process; CPU and allocations are those of the whole process. Half load is a Poisson process at half of the " +
			"throughput of the same repetition; latency counts from the moment a sample was to be sent. Workers and their places are those that " +
			"serve has by default. idle60 is the throughput of four connections with raw786k's samples beside 60 idle ones that have sent one sample each / that of four alone.",
		Experiments: []Experiment{
			raw.experiment(append([]Row{promised}, raw.rows(1000, lineRaw)...)),
			jpeg.experiment(append([]Row{ratioRow}, jpeg.rows(10_000, lineJPEG)...)),
			{
				Name: "idle60", Setup: func(ctx context.Context, o Options) (Trial, error) { return newIdleConnections(ctx, raw, o) },
				Rows: []Row{{
					Name: "throughput-ratio", Issue: lineIdleConnections, Value: ratio("beside_per_s", "alone_per_s"), Target: atLeast(0.9),
					Beside: []string{"beside_per_s", "alone_per_s", othersCores},
				}},
			},
		},
	}
}

// sampleKind is a kind of sample and how it is offered.
type sampleKind struct {
	name   string
	bytes  int
	window int // samples in flight on each connection at full load
	media  rewards.Media
}

// lanes is how many connections offer samples, of ours and of the calibration's.
const lanes = 4

func (p sampleKind) experiment(rows []Row) Experiment {
	return Experiment{
		Name: p.name, Rows: rows, Calibrations: []string{"bare_per_s"},
		Setup: func(ctx context.Context, o Options) (Trial, error) { return newTransportTrial(ctx, p, o) },
	}
}

func (p sampleKind) rows(perSecond float64, line string) []Row {
	return []Row{
		{
			Name: "throughput", Issue: line, Unit: "/s", Value: reading("ours_per_s"), Target: rateScaled(perSecond, "bare_per_s"),
			Beside: []string{"bare_per_s", "ours_p99_full_ms", "bare_p99_full_ms", othersCores},
		},
		{
			Name: "p99-at-half-load", Issue: lineTail, Unit: "ms", Value: difference("ours_p99_ms", "bare_p99_ms"), Target: atMost(10),
			Beside: []string{"half_load_per_s", "ours_p99_ms", "bare_p99_ms", "ours_p50_ms", "bare_p50_ms"},
		},
		{
			Name: "allocated", Issue: lineBytes, Unit: "KiB", Value: reading("ours_kib"), Target: atMost(64),
			Beside: []string{"bare_kib", "ours_allocs", "bare_allocs"},
		},
		{Name: "cpu", Unit: "ms", Value: reading("ours_cpu_ms"), Beside: []string{"bare_cpu_ms"}},
	}
}

// ring is how many pictures take turns, so that neither side works from the cache.
const ring = 32

// transportTrial has both sides set up; they never run at the same time.
type transportTrial struct {
	p        sampleKind
	node     *node
	bare     *bare
	pictures [][]byte
	frames   [][]byte // the same pictures as whole frames
	lasting  time.Duration
	profile  string
}

func newTransportTrial(ctx context.Context, p sampleKind, o Options) (_ Trial, err error) {
	t := &transportTrial{p: p, lasting: o.Lasting, profile: o.Profile}
	if err := t.prepare(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if t.node, err = newNode(ctx, noopNode(lanes)); err != nil {
		return nil, err
	}
	if t.bare, err = newBare(ctx, lanes); err != nil {
		return nil, err
	}
	return t, nil
}

// prepare draws the pictures.
func (t *transportTrial) prepare() error {
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // pictures, not secrets
	for i := range ring {
		data := make([]byte, t.p.bytes)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		t.pictures = append(t.pictures, data)
		s := t.sample(int64(i))
		msg, err := wire.Encode(&s, wire.Options{})
		if err != nil {
			return err
		}
		t.frames = append(t.frames, msg.Bytes())
	}
	return nil
}

// noopNode has the workers and places that serve has by default, and a reward that
// touches nothing.
func noopNode(lanes int) nodeConfig {
	noop := rewards.ScorerFunc(func(context.Context, *rewards.Sample) (rewards.Score, error) { return rewards.Score{Value: 1}, nil })
	return nodeConfig{
		workers: 8, places: max(1, (4*runtime.NumCPU()+7)/8), lanes: lanes,
		profile: rewards.ManagerConfig{Components: []rewards.Component{{Key: "noop", Weight: 1, Required: true, Scorer: noop}}},
	}
}

// warm fills the side's pools of buffers, which the garbage collector has emptied
// while the other side ran.
func (t *transportTrial) warm(ctx context.Context, do roundTrip) error {
	_, err := closedLoop(ctx, do, lanes, t.p.window, t.lasting/6)
	return err
}

// sample is number i of a trainer that has 512 samples in a step, 16 of each prompt.
func (t *transportTrial) sample(i int64) rewards.Sample {
	row := i % 512
	m := t.p.media
	m.Data = t.pictures[i%ring]
	if m.Encoding != rewards.Raw {
		m.Shape = []int{len(m.Data)}
	}
	return rewards.Sample{
		ID: "s" + strconv.FormatInt(i, 10), Step: i / 512, Index: &row, UID: "p" + strconv.FormatInt(i/16, 10), GroupSize: 16,
		DataSource: "ocr", Prompt: `A street at night with a sign that says "open until late", rain, reflections on the road`,
		GroundTruth: []byte(`"open until late"`), Media: []*rewards.Media{&m},
	}
}

func (t *transportTrial) ours(ctx context.Context, lane int) error {
	return t.node.send(ctx, lane, t.sample(t.node.ids.Add(1)))
}

func (t *transportTrial) theirs(ctx context.Context, lane int) error {
	return t.bare.send(ctx, lane, t.frames[t.node.ids.Add(1)%ring])
}

// Measure implements Trial: full load on both sides, then half of ours on both.
func (t *transportTrial) Measure(ctx context.Context, rep int) (Readings, error) {
	r := Readings{}
	full := func(do roundTrip) (o outcome, err error) { return closedLoop(ctx, do, lanes, t.p.window, t.lasting) }
	half := func(do roundTrip) (o outcome, err error) {
		return openLoop(ctx, do, lanes, r["half_load_per_s"], t.lasting, uint64(rep)) //nolint:gosec // counts from 0
	}
	if err := t.both(ctx, r, rep, "full", full, func(side string, o outcome) {
		n := float64(o.samples)
		r[side+"_per_s"] = o.perSecond()
		r[side+"_p99_full_ms"] = o.quantile(0.99)
		r[side+"_cpu_ms"] = o.used.cpu.Seconds() * 1e3 / n
		r[side+"_kib"] = float64(o.used.bytes) / 1024 / n
		r[side+"_allocs"] = float64(o.used.allocs) / n
	}); err != nil {
		return nil, err
	}
	r["half_load_per_s"] = r["ours_per_s"] / 2
	err := t.both(ctx, r, rep, "half", half, func(side string, o outcome) {
		r[side+"_p50_ms"], r[side+"_p99_ms"] = o.quantile(0.5), o.quantile(0.99)
	})
	return r, err
}

// both puts a load on both sides, the one first that was last in the repetition before.
func (t *transportTrial) both(ctx context.Context, r Readings, rep int, name string, load func(roundTrip) (outcome, error), note func(side string, o outcome)) error {
	sides := []struct {
		name string
		do   roundTrip
	}{{"ours", t.ours}, {"bare", t.theirs}}
	for i := range sides {
		s := sides[(i+rep)%2]
		if err := t.warm(ctx, s.do); err != nil {
			return err
		}
		profile := t.profile
		if s.name == "bare" {
			profile = ""
		}
		var o outcome
		if err := profiled(profile, t.p.name+"-"+name, rep, func() (err error) { o, err = load(s.do); return err }); err != nil {
			return err
		}
		note(s.name, o)
		r[othersCores] = max(r[othersCores], o.others())
	}
	return nil
}

// Close implements Trial.
func (t *transportTrial) Close() error {
	var errs []error
	if t.node != nil {
		errs = append(errs, t.node.Close())
	}
	if t.bare != nil {
		errs = append(errs, t.bare.Close())
	}
	return errors.Join(errs...)
}
