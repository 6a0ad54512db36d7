package sim

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
)

// pool is the servers of a simulation in virtual time. Samples are submitted with
// their releases, in order; advance lets the next moment happen. All that happens
// at one moment happens before anything is started at it, so that a batch holds
// whatever was there.
type pool struct {
	cfg  DispatchConfig // complete
	draw *rand.Rand
	now  float64
	// jobs are the samples in order of submission, which is that of their release;
	// jobs[next:] are not released yet.
	jobs []job
	next int
	// began and first are when the latest submission began and its first job.
	began float64
	first int
	// work is the sum over jobs, for the mean service time; pace is how much longer
	// than its work an attempt takes on the mean server.
	work    float64
	pace    float64
	events  events
	queue   fifo
	servers []server
	classes []class // fastest first; a single one where speed does not matter
	touched []int32 // PolicyRandomBlind: the servers that may have something to start
	late    []int32 // jobs whose attempt is overdue
	backups int
	busy    float64       // seconds that servers have spent
	scored  func(job int) // called as each is scored; may be nil
	// attempts are kept by job where record is set.
	record   bool
	attempts [][]Attempt
}

// job is one sample.
type job struct {
	release, work     float64
	started, finished float64
	server            int32    // that scored it
	on                [2]int32 // the servers with an attempt of it, or nobody
	done, backedUp    bool
}

const nobody = -1

type server struct {
	speed  float64
	class  int
	jobs   []int32 // in service; empty: idle
	began  float64 // when they were started
	backup bool
	// token numbers what the server starts, so that the end of something that was
	// cancelled is known to be void.
	token uint32
	own   fifo // PolicyRandomBlind: the server's queue
}

// class is the servers of one speed.
type class struct {
	speed float64
	alive int
	idle  []int32
}

func newPool(cfg DispatchConfig) *pool {
	p := &pool{cfg: cfg, draw: rand.New(rand.NewPCG(cfg.Seed, 0x5eed))}
	speeds := cfg.speeds()
	_, total := rate(speeds)
	p.pace = float64(len(speeds)) / total
	known := []float64{1}
	if cfg.Policy == PolicySpeedWeighted {
		known = slices.Compact(slices.SortedFunc(slices.Values(speeds), func(a, b float64) int { return cmp.Compare(b, a) }))
	}
	p.classes = make([]class, len(known))
	for c := range p.classes {
		p.classes[c].speed = known[c]
	}
	p.servers = make([]server, len(speeds))
	for i, speed := range speeds {
		c := max(0, slices.Index(known, speed))
		if cfg.Policy != PolicySpeedWeighted {
			c = 0
		}
		p.servers[i] = server{speed: speed, class: c}
		p.classes[c].alive++
		p.classes[c].idle = append(p.classes[c].idle, int32(i)) //nolint:gosec // at most MaxServers
	}
	return p
}

// submit adds samples that are released at began + g, which ascends and does not
// precede what was submitted before. It returns the first one's number.
func (p *pool) submit(began float64, g, work []float64) int {
	p.began, p.first = began, len(p.jobs)
	for i := range g {
		j := job{release: began + g[i], on: [2]int32{nobody, nobody}}
		if b := p.cfg.Batch; b.Max > 0 {
			j.work = 1 / b.Rate() // its part of a full batch
		} else {
			j.work = work[i]
		}
		p.jobs = append(p.jobs, j)
		p.work += j.work
	}
	if p.record {
		p.attempts = append(p.attempts, make([][]Attempt, len(g))...)
	}
	return p.first
}

// advance lets the next moment happen; false if none is to come.
func (p *pool) advance() bool {
	at := math.Inf(1)
	if p.next < len(p.jobs) {
		at = p.jobs[p.next].release
	}
	if len(p.events) > 0 {
		at = min(at, p.events[0].at)
	}
	if math.IsInf(at, 1) {
		return false
	}
	p.now = at
	for ; p.next < len(p.jobs) && p.jobs[p.next].release <= at; p.next++ {
		p.enqueue(int32(p.next), false) //nolint:gosec // far below 2³¹
	}
	for len(p.events) > 0 && p.events[0].at <= at {
		p.happen(p.events.pop())
	}
	p.dispatch()
	return true
}

// enqueue puts a sample where its policy says; again is one that was tried before.
func (p *pool) enqueue(j int32, again bool) {
	if p.cfg.Policy != PolicyRandomBlind {
		p.queue.push(j, again)
		return
	}
	s := p.draw.IntN(len(p.servers))
	p.servers[s].own.push(j, false)
	p.touched = append(p.touched, int32(s)) //nolint:gosec // at most MaxServers
}

func (p *pool) happen(e event) {
	s := &p.servers[e.server]
	switch e.kind {
	case done:
		if e.token == s.token {
			p.complete(e.server)
		}
	case overdue:
		if e.token == s.token {
			p.late = append(p.late, s.jobs[0])
		}
	}
}

// complete ends what a server was scoring.
func (p *pool) complete(at int32) {
	s := &p.servers[at]
	for _, j := range s.jobs {
		switch {
		case p.jobs[j].done: // cannot be: the loser is cancelled when the winner ends
		case p.cfg.Failures > 0 && p.draw.Float64() < p.cfg.Failures:
			p.note(at, j, "failed")
			p.leave(at, j)
		default:
			p.note(at, j, AttemptWon)
			p.score(at, j)
		}
	}
	p.free(at)
}

// score sets a sample's result and cancels its other attempt.
func (p *pool) score(at, n int32) {
	j := &p.jobs[n]
	j.done, j.server, j.started, j.finished = true, at, p.servers[at].began, p.now
	for _, other := range j.on {
		if other != nobody && other != at {
			p.note(other, n, "late")
			p.free(other)
		}
	}
	j.on = [2]int32{nobody, nobody}
	if p.scored != nil {
		p.scored(int(n))
	}
}

// leave ends an attempt without a result; the sample is tried again unless
// another attempt of it still runs.
func (p *pool) leave(at, n int32) {
	j := &p.jobs[n]
	for i, on := range j.on {
		if on == at {
			j.on[i] = nobody
		}
	}
	if !j.done && j.on[0] == nobody && j.on[1] == nobody {
		j.backedUp = false
		p.enqueue(n, true)
	}
}

// note records an attempt that ends now.
func (p *pool) note(at, n int32, outcome string) {
	if p.record && len(p.attempts[n]) < MaxAttempts {
		s := &p.servers[at]
		p.attempts[n] = append(p.attempts[n], Attempt{
			Worker: strconv.Itoa(int(at)), Started: s.began, Ended: p.now, Backup: s.backup, Outcome: outcome,
		})
	}
}

// free makes a server idle.
func (p *pool) free(at int32) {
	s := &p.servers[at]
	p.busy += p.now - s.began
	s.jobs = s.jobs[:0]
	s.token++
	if p.cfg.Policy == PolicyRandomBlind {
		p.touched = append(p.touched, at)
		return
	}
	p.classes[s.class].idle = append(p.classes[s.class].idle, at)
}
