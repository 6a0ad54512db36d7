package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/queue"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// lines that promise the figures.
const (
	lineTickets = "ticket path ≥ 10,000/s over TCP on 2 cores"
	lineRemote  = "786 KB samples through gateway + remote worker ≥ 40 % of the in-process rate in the same run"
	lineWorkers = "cost per sample with 1, 10, 100 and 1,000 (light) workers within 20 %"
)

// overMachines is what it costs that workers are on other machines.
func overMachines() Suite {
	remote := sampleKind{
		name: "remote786k", bytes: 512 * 512 * 3, window: 8,
		media: rewards.Media{Kind: rewards.Image, Layout: rewards.HWC, Encoding: rewards.Raw, DType: "U8", Shape: []int{512, 512, 3}},
	}
	return Suite{
		Name: "scale",
		About: "Workers that reach the gateway's engine and payloads over loopback TCP, as those on other machines do: tickets alone (published, taken, " +
			"their lease ended), 786 KB samples against the same load with the workers in the gateway's process, and the computing time of a " +
			"small sample, of 1,000 a second, by the number of workers, whose places are 1,000 together and whose processes have up to 100 of them. Clients, gateway, NATS and " +
			"workers share the machine and the process; CPU is that of all of it.",
		Experiments: []Experiment{
			{
				Name: "tickets", Calibrations: []string{"bare_per_s"},
				Setup: newTicketTrial,
				Rows: []Row{{
					Name: "throughput", Issue: lineTickets, Unit: "/s", Value: reading("tickets_per_s"), Target: rateScaled(10_000, "bare_per_s"),
					Beside: []string{"ticket_cpu_ms", "bare_per_s"},
				}},
			},
			{
				Name:  remote.name,
				Setup: func(ctx context.Context, o Options) (Trial, error) { return newRemoteTrial(ctx, remote, o) },
				Rows: []Row{
					{
						Name: "throughput-ratio", Issue: lineRemote, Value: ratio("remote_per_s", "local_per_s"), Target: atLeast(0.4),
						Beside: []string{"remote_per_s", "local_per_s", othersCores},
					},
					{Name: "cpu", Unit: "ms", Value: reading("remote_cpu_ms"), Beside: []string{"local_cpu_ms"}},
				},
			},
			{
				Name:  "workers",
				Setup: func(_ context.Context, o Options) (Trial, error) { return &crowdTrial{o: o}, nil },
				Rows: []Row{{
					Name: "cost-ratio", Issue: lineWorkers, Value: reading("dearest_over_cheapest"), Target: atMost(1.2),
					Beside: []string{"cpu_ms_1", "cpu_ms_10", "cpu_ms_100", "cpu_ms_1000"},
				}},
			},
		},
	}
}

// ticketTrial carries tickets from a gateway to workers that claim nothing.
type ticketTrial struct {
	lasting time.Duration
	queue   *queue.Queue
	members []*queue.Member
	sources []*queue.Source
	bare    *bare
	count   int
}

// takers and takerPlaces are the workers of the ticket trial: four machines, 32 places each.
const (
	takers      = 4
	takerPlaces = 32
	takerQueue  = "_"
)

func newTicketTrial(ctx context.Context, o Options) (_ Trial, err error) {
	t := &ticketTrial{lasting: o.Lasting}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if t.bare, err = newBare(ctx, lanes); err != nil {
		return nil, err
	}
	if t.queue, err = queue.Open(ctx, queue.Config{Listen: "127.0.0.1:0", Name: "gw"}); err != nil {
		return nil, err
	}
	for i := range takers {
		m, err := queue.Join(ctx, queue.Config{URLs: []string{"nats://" + t.queue.Address()}, Name: "p" + strconv.Itoa(i)})
		if err != nil {
			return nil, err
		}
		t.members = append(t.members, m)
		s, err := m.NewSource("w"+strconv.Itoa(i), []string{takerQueue})
		if err != nil {
			return nil, err
		}
		t.sources = append(t.sources, s)
	}
	return t, nil
}

// Measure implements Trial.
func (t *ticketTrial) Measure(ctx context.Context, _ int) (Readings, error) {
	frame := make([]byte, 300)
	o, err := closedLoop(ctx, func(ctx context.Context, lane int) error { return t.bare.send(ctx, lane, frame) }, lanes, 32, t.lasting)
	if err != nil {
		return nil, err
	}
	r := Readings{"bare_per_s": o.perSecond()}
	n, took, cpu, err := t.carry(ctx)
	r["tickets_per_s"], r["ticket_cpu_ms"] = float64(n)/took.Seconds(), cpu.Seconds()*1e3/float64(n)
	return r, err
}

// carry publishes as many tickets as there are places, and another for each that is done.
func (t *ticketTrial) carry(ctx context.Context) (n int, took, cpu time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.lasting)
	defer cancel()
	free := make(chan struct{}, takers*takerPlaces)
	for range cap(free) {
		free <- struct{}{}
	}
	counts := make([]int, takers)
	before, start := used(), time.Now()
	var all sync.WaitGroup
	for i, s := range t.sources {
		s.Announce(wire.WorkerInfo{
			ID: "w" + strconv.Itoa(i), State: wire.WorkerReady, Profiles: []wire.ProfileInfo{{Queue: takerQueue, Capacity: takerPlaces, Narrow: takerPlaces}},
		})
		all.Go(func() {
			for ctx.Err() == nil {
				leases, err := s.Take(ctx, takerQueue, takerPlaces)
				if err != nil {
					return
				}
				for _, l := range leases {
					l.Done()
					counts[i]++
					free <- struct{}{}
				}
			}
		})
	}
	for err == nil {
		select {
		case <-free:
			t.count++
			err = t.queue.Publish(ctx, wire.Ticket{
				ID: "flowgrpo/120/train/8f6c2f0e_0_" + strconv.Itoa(t.count), Run: "flowgrpo", Epoch: 1 << 50, Step: 120, Queue: takerQueue, Gateway: "gw", Attempt: 1,
				Bytes: 786432, Deadline: time.Now().Add(time.Minute), Claim: "ws://10.0.0.5:8080/v1/claim", Token: "0123456789abcdef0123456789abcdef0123456789ab",
			})
			continue
		case <-ctx.Done():
		}
		break
	}
	all.Wait()
	took = time.Since(start)
	for _, c := range counts {
		n += c
	}
	if err == nil && n == 0 {
		err = fmt.Errorf("no ticket in %v", took)
	}
	return n, took, used().since(before).cpu, err
}

// Close implements Trial.
func (t *ticketTrial) Close() error {
	for _, s := range t.sources {
		s.Disconnect()
	}
	for _, m := range t.members {
		m.Close()
	}
	if t.queue != nil {
		t.queue.Close()
	}
	if t.bare != nil {
		return t.bare.Close()
	}
	return nil
}

// remoteTrial has the same samples scored by workers in the gateway's process, and by
// workers that are elsewhere.
type remoteTrial struct {
	samples       *transportTrial // whose pictures both get
	local, remote *node
}

func newRemoteTrial(ctx context.Context, p sampleKind, o Options) (_ Trial, err error) {
	t := &remoteTrial{samples: &transportTrial{p: p, lasting: o.Lasting, profile: o.Profile}}
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // pictures, not secrets
	for range ring {
		data := make([]byte, p.bytes)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		t.samples.pictures = append(t.samples.pictures, data)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if t.local, err = newNode(ctx, noopNode(lanes)); err != nil {
		return nil, err
	}
	cfg := noopNode(lanes)
	cfg.processes = 2
	t.remote, err = newNode(ctx, cfg)
	return t, err
}

// Measure implements Trial.
func (t *remoteTrial) Measure(ctx context.Context, rep int) (Readings, error) {
	r := Readings{}
	sides := []struct {
		name string
		node *node
	}{{"local", t.local}, {"remote", t.remote}}
	for i := range sides {
		s := sides[(i+rep)%2]
		send := func(ctx context.Context, lane int) error {
			return s.node.send(ctx, lane, t.samples.sample(s.node.ids.Add(1)))
		}
		if err := t.samples.warm(ctx, send); err != nil {
			return nil, err
		}
		var o outcome
		err := profiled(t.samples.profile, t.samples.p.name+"-"+s.name, rep, func() (err error) {
			o, err = closedLoop(ctx, send, lanes, t.samples.p.window, t.samples.lasting)
			return err
		})
		if err != nil {
			return nil, err
		}
		r[s.name+"_per_s"] = o.perSecond()
		r[s.name+"_cpu_ms"] = o.used.cpu.Seconds() * 1e3 / float64(o.samples)
		r[othersCores] = max(r[othersCores], o.others())
	}
	return r, nil
}

// Close implements Trial.
func (t *remoteTrial) Close() error {
	var errs []error
	for _, n := range []*node{t.local, t.remote} {
		if n != nil {
			errs = append(errs, n.Close())
		}
	}
	return errors.Join(errs...)
}

// crowdTrial compares numbers of workers.
type crowdTrial struct{ o Options }

// crowdPlaces are those of all workers together, crowdProcess is the most workers that are
// in one process, and crowdRate how many samples there are a second: fewer than any of them
// can take, so that all do the same work.
const (
	crowdPlaces  = 1000
	crowdProcess = 100
	crowdRate    = 1000
)

// Measure implements Trial. Each number of workers is set up anew: a thousand that are
// idle would cost the others something.
func (t *crowdTrial) Measure(ctx context.Context, rep int) (Readings, error) {
	r := Readings{}
	least, most := math.Inf(1), 0.0
	for _, n := range []int{1, 10, 100, 1000} {
		cpu, err := t.cost(ctx, n, rep)
		if err != nil {
			return nil, fmt.Errorf("%d workers: %w", n, err)
		}
		r["cpu_ms_"+strconv.Itoa(n)] = cpu
		least, most = min(least, cpu), max(most, cpu)
	}
	r["dearest_over_cheapest"] = most / least
	return r, nil
}

// cost is the computing time of a sample, in ms.
func (t *crowdTrial) cost(ctx context.Context, workers, rep int) (float64, error) {
	cfg := noopNode(lanes)
	cfg.workers, cfg.places, cfg.processes = workers, crowdPlaces/workers, (workers+crowdProcess-1)/crowdProcess
	n, err := newNode(ctx, cfg)
	if err != nil {
		return 0, err
	}
	send := func(ctx context.Context, lane int) error {
		id := n.ids.Add(1)
		row := id % 512
		return n.send(ctx, lane, rewards.Sample{ID: "s" + strconv.FormatInt(id, 10), Step: id / 512, Index: &row, Prompt: "How much is 3 + 4?", Response: "The answer is 7."})
	}
	o, err := closedLoop(ctx, send, lanes, 64, t.o.Lasting/3) // pools fill, connections open
	if err == nil {
		err = profiled(t.o.Profile, "workers-"+strconv.Itoa(workers), rep, func() (err error) {
			o, err = openLoop(ctx, send, lanes, crowdRate, t.o.Lasting, uint64(rep)) //nolint:gosec // counts from 0
			return err
		})
	}
	if err = errors.Join(err, n.Close()); err != nil {
		return 0, err
	}
	return o.used.cpu.Seconds() * 1e3 / float64(o.samples), nil
}

// Close implements Trial.
func (t *crowdTrial) Close() error { return nil }
