package fleet

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// Report is the result of a Load.
type Report struct {
	Samples    int
	Scored     int // samples with the right score
	Missing    int // samples without a result
	Duplicates int // further results that the client returned for samples with a result
	Wrong      int // samples with a wrong score
	Failed     int // samples with another outcome

	Repeated int // repeated results on the same connection
	Resent   int // repeated results on a later connection, which the server cannot avoid
	Conns    int // connections of all clients

	Again    int // samples that took more than one attempt
	Executed int // number of scorings
	Twice    int // samples that were scored more than once

	Wall  time.Duration
	Gap   time.Duration // the longest time between two results
	First time.Duration // time from the fault to the next result
	// Recovery is the time from the fault to the last result of the samples in flight at the fault.
	Recovery time.Duration
	InFlight int // number of these samples

	ByWorker map[string]int // number of results by worker
	Configs  int            // number of configurations that samples were scored with
	Faults   []string       // descriptions of the first failures
}

// Of returns the number of results from the workers of one process.
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
	configs := map[string]bool{}
	for i := range r.load.Samples {
		id := r.id(i)
		r.judge(p, id)
		for _, a := range r.got[id] {
			configs[a.res.Config] = true
		}
	}
	p.Configs = len(configs)
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

// Check fails the test unless every sample was scored once and correctly.
func (p *Report) Check(t testing.TB) {
	t.Helper()
	if p.Scored != p.Samples || p.Missing+p.Duplicates+p.Wrong+p.Failed > 0 {
		t.Errorf("%v\n%s", p, strings.Join(p.Faults, "\n"))
	}
	if p.Conns == 1 && p.Repeated > 0 {
		t.Errorf("%d results came twice over the one connection", p.Repeated)
	}
}

// String returns one line for a log.
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
