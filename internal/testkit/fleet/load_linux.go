package fleet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/internal/testkit/netlab"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Load is what is sent.
type Load struct {
	// Samples is how many, over all gateways. Defaults to 300.
	Samples int
	// Bytes of each. Defaults to 256 KiB.
	Bytes int
	// PerSecond is how many samples begin in a second. Defaults to 30.
	PerSecond float64
	// Limit is how long the whole may take. Defaults to 2 min.
	Limit time.Duration
}

// WithDefaults returns a copy with the defaults filled in.
func (l Load) WithDefaults() Load {
	l.Samples = cmp.Or(l.Samples, 300)
	l.Bytes = cmp.Or(l.Bytes, 256<<10)
	l.PerSecond = cmp.Or(l.PerSecond, 30)
	l.Limit = cmp.Or(l.Limit, 2*time.Minute)
	return l
}

// Run is a Load under way.
type Run struct {
	// Proxies stand between the clients and the gateways, one for each, in their order.
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

// Load begins to send samples, to the gateways in turn.
func (f *Fleet) Load(load Load, gateways ...*Process) *Run {
	f.t.Helper()
	load = load.WithDefaults()
	r := &Run{
		t: f.t, f: f, load: load, begun: time.Now(), grown: make(chan struct{}),
		want: map[string]float64{}, got: map[string][]answer{},
	}
	r.ctx, r.cancel = context.WithTimeout(context.WithoutCancel(f.t.Context()), load.Limit)
	f.t.Cleanup(r.close)
	for i, g := range gateways {
		p, tap := netlab.NewProxy(f.t, "", g.Addr), newTap()
		p.Tap(tap.read)
		p.Latency(netlab.Up, f.cfg.Delay)
		p.Latency(netlab.Down, f.cfg.Delay)
		c, err := client.Dial(r.ctx, client.Config{
			URL: "ws://" + p.Addr(), Run: "fleet", Client: "c" + strconv.Itoa(i), TokenFile: f.file("token"),
		})
		require.NoError(f.t, err, "gateway %s", g.Name)
		r.Proxies, r.taps, r.clients = append(r.Proxies, p), append(r.taps, tap), append(r.clients, c)
		all := c.Results(r.ctx)
		r.wg.Go(func() { // ends with the client
			for res := range all {
				r.take(res)
			}
		})
	}
	r.wg.Go(r.send) // ends with the last sample or the time limit
	return r
}

func (r *Run) close() {
	r.cancel()
	for _, c := range r.clients {
		_ = c.Close()
	}
	r.wg.Wait()
}

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
		id := "s" + strconv.Itoa(i)
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

// Reached returns when so many samples have their result.
func (r *Run) Reached(n int) {
	r.t.Helper()
	require.True(r.t, r.reach(n), "not %d of %d results within %v", n, r.load.Samples, r.load.Limit)
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

// Mark says that the fault begins now.
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

// Wait returns the report when every sample has its result or the time is up.
func (r *Run) Wait() *Report {
	r.t.Helper()
	r.reach(r.load.Samples)
	r.close() // what was handed out twice has come by now, or is on the wire
	return r.report()
}

// Report is what became of a Load.
type Report struct {
	Samples    int
	Scored     int // with the right score
	Missing    int // without a result
	Duplicates int // results the client handed out for samples that had one
	Wrong      int // scored with another file's checksum
	Failed     int // with another outcome

	Repeated int // second results on the wire, on one connection
	Resent   int // and on a later connection: the server could not know
	Conns    int // connections of all clients

	Again    int // samples that took more than one attempt
	Executed int // answers of the scorer
	Twice    int // samples it answered more than once

	Wall  time.Duration
	Gap   time.Duration // the longest time between two results
	First time.Duration // from the fault to the next result
	// Recovery is from the fault to the last result of what was in flight then.
	Recovery time.Duration
	InFlight int // how many those were

	ByWorker map[string]int // results by worker
	Faults   []string       // some of what went wrong
}

// Of counts the results of one process's workers.
func (p *Report) Of(worker *Process) int {
	n := 0
	for name, k := range p.ByWorker {
		if name == worker.Name || strings.HasPrefix(name, worker.Name+"-") {
			n += k
		}
	}
	return n
}

// maxFaults is how many are quoted.
const maxFaults = 10

func (r *Run) report() *Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &Report{Samples: r.load.Samples, ByWorker: map[string]int{}, Wall: time.Since(r.begun), InFlight: len(r.waiting)}
	for i := range r.load.Samples {
		r.judge(p, "s"+strconv.Itoa(i))
	}
	for _, err := range r.refused {
		p.fault("%v", err)
	}
	for i := 1; i < len(r.times); i++ {
		p.Gap = max(p.Gap, r.times[i].Sub(r.times[i-1]))
	}
	if i := slices.IndexFunc(r.times, r.marked.Before); i >= 0 && !r.marked.IsZero() {
		p.First = r.times[i].Sub(r.marked)
	}
	for id := range r.waiting {
		if len(r.got[id]) > 0 {
			p.Recovery = max(p.Recovery, r.got[id][0].at.Sub(r.marked))
		}
	}
	p.Twice, p.Executed = r.f.scorer.twice()
	for i, tap := range r.taps {
		same, later := tap.repeated()
		_, conns := r.Proxies[i].Conns()
		p.Repeated, p.Resent, p.Conns = p.Repeated+same, p.Resent+later, p.Conns+conns
	}
	return p
}

// judge books one sample. The caller holds mu.
func (r *Run) judge(p *Report, id string) {
	answers := r.got[id]
	if len(answers) == 0 {
		p.Missing++
		p.fault("sample %s has no result", id)
		return
	}
	p.Duplicates += len(answers) - 1
	res := answers[0].res
	p.ByWorker[res.Worker]++
	if res.Attempts > 1 {
		p.Again++
	}
	switch {
	case res.Outcome != rewards.Scored || res.RewardScore == nil:
		p.Failed++
		p.fault("sample %s is %s: %v", id, res.Outcome, res.Errors)
	case math.Abs(*res.RewardScore-r.want[id]) > 1e-12: // a bit of a CRC is 2e-10
		p.Wrong++
		p.fault("sample %s has the score %v, not %v", id, *res.RewardScore, r.want[id])
	default:
		p.Scored++
	}
}

func (p *Report) fault(format string, args ...any) {
	if len(p.Faults) < maxFaults {
		p.Faults = append(p.Faults, fmt.Sprintf(format, args...))
	}
}

// Check fails the test unless every sample was scored once and right.
func (p *Report) Check(t testing.TB) {
	t.Helper()
	if p.Scored != p.Samples || p.Missing+p.Duplicates+p.Wrong+p.Failed > 0 {
		t.Errorf("%v\n%s", p, strings.Join(p.Faults, "\n"))
	}
	if p.Conns == 1 && p.Repeated > 0 {
		t.Errorf("%d results came twice over the one connection", p.Repeated)
	}
}

// String is one line for a log.
func (p *Report) String() string {
	var by []string
	for _, w := range slices.Sorted(maps.Keys(p.ByWorker)) {
		by = append(by, fmt.Sprintf("%s %d", w, p.ByWorker[w]))
	}
	return fmt.Sprintf("%d samples: %d scored, %d missing, %d duplicate, %d wrong, %d failed; "+
		"on the wire %d repeated, %d sent again, %d connections; %d needed another attempt, %d of %d scorings were second ones; "+
		"wall %v, longest gap %v, first result after %v, %d in flight recovered after %v; %s",
		p.Samples, p.Scored, p.Missing, p.Duplicates, p.Wrong, p.Failed, p.Repeated, p.Resent, p.Conns, p.Again, p.Twice, p.Executed,
		ms(p.Wall), ms(p.Gap), ms(p.First), p.InFlight, ms(p.Recovery), strings.Join(by, ", "))
}

func ms(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
