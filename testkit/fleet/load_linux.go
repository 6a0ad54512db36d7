package fleet

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/netlab"
	"github.com/rewardloop/rewardloop/wire"
)

// Load configures the samples that are sent.
type Load struct {
	// Run is the name of the run, with which the ids of its samples begin. The default is "fleet".
	Run string
	// Samples is the number of samples, over all gateways. The default is 300.
	Samples int
	// Bytes is the size of each sample. The default is 256 KiB.
	Bytes int
	// PerSecond is how many samples are sent per second. The default is 30.
	PerSecond float64
	// Limit is the maximum duration of the load. The default is 2 min.
	Limit time.Duration
	// Clients is the number of clients, each with the addresses of all gateways, beginning with a
	// different gateway. 0 means one client for each gateway, behind a proxy.
	Clients int
}

// WithDefaults returns a copy with the defaults filled in.
func (l Load) WithDefaults() Load {
	l.Run = cmp.Or(l.Run, "fleet")
	l.Samples = cmp.Or(l.Samples, 300)
	l.Bytes = cmp.Or(l.Bytes, 256<<10)
	l.PerSecond = cmp.Or(l.PerSecond, 30)
	l.Limit = cmp.Or(l.Limit, 2*time.Minute)
	return l
}

// Run is a Load in progress.
type Run struct {
	// Proxies are the proxies between the clients and the gateways, one for each client, in order.
	Proxies []*netlab.Proxy

	t       testing.TB
	f       *Fleet
	load    Load
	begun   time.Time
	ctx     context.Context //nolint:containedctx // the load's time limit; all its goroutines hang on it
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	clients []*client.Client
	taps    []*tap

	mu      sync.Mutex
	grown   chan struct{}       // closed and replaced with each result; guarded by mu
	want    map[string]float64  // the score of each sample submitted; guarded by mu
	got     map[string][]answer // guarded by mu
	times   []time.Time         // of results, in order; guarded by mu
	answers int                 // ids with a result; guarded by mu
	marked  time.Time           // of the fault; guarded by mu
	waiting map[string]bool     // what was submitted and unanswered then; guarded by mu
	refused []error             // submissions that failed; guarded by mu
}

// answer is one result as the client handed it out.
type answer struct {
	at  time.Time
	res *wire.Result
}

// Load starts to send samples, to the gateways in turn.
func (f *Fleet) Load(load Load, gateways ...*Process) *Run {
	f.t.Helper()
	load = load.WithDefaults()
	r := &Run{
		t: f.t, f: f, load: load, begun: time.Now(), grown: make(chan struct{}),
		want: map[string]float64{}, got: map[string][]answer{},
	}
	r.ctx, r.cancel = context.WithTimeout(context.WithoutCancel(f.t.Context()), load.Limit)
	f.t.Cleanup(r.close)
	for i := range load.Clients {
		urls := make([]string, len(gateways))
		for k := range gateways {
			urls[k] = "ws://" + gateways[(i+k)%len(gateways)].Addr
		}
		r.dial(i, strings.Join(urls, ","))
	}
	if load.Clients == 0 {
		for i, g := range gateways {
			p, tap := netlab.NewProxy(f.t, "", g.Addr), newTap()
			p.Tap(tap.read)
			p.Latency(netlab.Up, f.cfg.Delay)
			p.Latency(netlab.Down, f.cfg.Delay)
			r.Proxies, r.taps = append(r.Proxies, p), append(r.taps, tap)
			r.dial(i, "ws://"+p.Addr())
		}
	}
	r.wg.Go(r.send) // ends with the last sample or the time limit
	return r
}

// dial adds a client.
func (r *Run) dial(i int, url string) {
	r.t.Helper()
	c, err := client.Dial(r.ctx, client.Config{URL: url, Run: r.load.Run, Client: "c" + strconv.Itoa(i), TokenFile: r.f.file("token")})
	require.NoError(r.t, err)
	r.clients = append(r.clients, c)
	all := c.Results(r.ctx)
	r.wg.Go(func() { // ends with the client
		for res := range all {
			r.take(res)
		}
	})
}

func (r *Run) close() {
	r.cancel()
	for _, c := range r.clients {
		_ = c.Close()
	}
	r.wg.Wait()
}

// id is that of a sample of the load.
func (r *Run) id(i int) string { return r.load.Run + "-" + strconv.Itoa(i) }

// send submits the samples at an even pace.
func (r *Run) send() {
	pace := time.NewTicker(time.Duration(float64(time.Second) / r.load.PerSecond))
	defer pace.Stop()
	for i := range r.load.Samples {
		select {
		case <-pace.C:
		case <-r.ctx.Done():
			return
		}
		id := r.id(i)
		file, err := picture(r.load.Bytes)
		if err == nil {
			r.mu.Lock()
			r.want[id] = checksum(file)
			r.mu.Unlock()
			_, err = r.clients[i%len(r.clients)].Submit(r.ctx, &rewards.Sample{
				ID:    id,
				Media: []*rewards.Media{{Kind: rewards.Image, Encoding: rewards.PNG, DType: "U8", Shape: []int{len(file)}, Data: file}},
			}, 0)
		}
		if err != nil {
			r.mu.Lock()
			r.refused = append(r.refused, fmt.Errorf("sample %s: %w", id, err))
			r.mu.Unlock()
		}
	}
}

// take notes a result.
func (r *Run) take(res *wire.Result) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got[res.ID] = append(r.got[res.ID], answer{now, res})
	r.times = append(r.times, now)
	r.answers = len(r.got)
	close(r.grown)
	r.grown = make(chan struct{})
}

// Reached waits until n samples have a result.
func (r *Run) Reached(n int) {
	r.t.Helper()
	require.True(r.t, r.reach(n), "not %d of %d results within %v", n, r.load.Samples, r.load.Limit)
}

// Over reports whether every sample has a result, or Load.Limit has passed.
func (r *Run) Over() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answers >= r.load.Samples || r.ctx.Err() != nil
}

func (r *Run) reach(n int) bool {
	for {
		r.mu.Lock()
		answers, grown := r.answers, r.grown
		r.mu.Unlock()
		if answers >= n {
			return true
		}
		select {
		case <-grown:
		case <-r.ctx.Done():
			return false
		}
	}
}

// Mark records that the fault begins now.
func (r *Run) Mark() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.marked, r.waiting = time.Now(), map[string]bool{}
	for id := range r.want {
		if len(r.got[id]) == 0 {
			r.waiting[id] = true
		}
	}
}

// Wait returns the report when every sample has a result or Load.Limit has passed.
func (r *Run) Wait() *Report {
	r.t.Helper()
	r.reach(r.load.Samples)
	r.close() // what was handed out twice has come by now, or is on the wire
	return r.report()
}

// Answered returns the ids of the samples that have a result.
func (r *Run) Answered() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make([]string, 0, len(r.got))
	for id := range r.got {
		ids = append(ids, id)
	}
	return ids
}

// Acknowledged returns the ids of the samples that a gateway has acknowledged.
func (r *Run) Acknowledged() []string {
	var ids []string
	for _, t := range r.taps {
		t.mu.Lock()
		for id := range t.acked {
			ids = append(ids, id)
		}
		t.mu.Unlock()
	}
	return ids
}

// Leave ends the clients for good, even if they still wait for results.
func (r *Run) Leave() { r.close() }
