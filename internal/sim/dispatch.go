package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Policies of dispatch.
const (
	// PolicyRandom is the pull queue: a sample goes to an idle server, drawn at random,
	// or waits until one is.
	PolicyRandom = "random"
	// PolicyRandomBlind draws from all servers, busy or not, at the sample's release;
	// there it waits. It is what verl does.
	PolicyRandomBlind = "random_blind"
	// PolicySpeedWeighted is the pull queue with the fastest idle server first, and a slow
	// one left idle where the sample would be done sooner by waiting.
	PolicySpeedWeighted = "speed_weighted"
)

// DispatchConfig is a pool of servers and how samples reach them. The zero value
// of everything but the servers is a plain pull queue on servers that never fail.
type DispatchConfig struct {
	// Servers is how many there are, all of speed 1. Speeds names each server's
	// speed instead, in seconds of work per second; then Servers is not read.
	Servers int
	Speeds  []float64
	// Policy is PolicyRandom, PolicyRandomBlind or PolicySpeedWeighted; empty is PolicyRandom.
	Policy string
	// Stragglers makes attempts slow by chance.
	Stragglers Stragglers
	// Failures is the probability that an attempt fails at its end; the sample is
	// then tried again at once, before all that wait. 0…0.5.
	Failures float64
	// BackupAfter, times the mean service time, is when an attempt has a second one
	// sent beside it, onto a server that is idle while nothing is queued; the first
	// to finish counts and the other is cancelled. 0: never. BackupShare is the most
	// of the samples that may have one; 0 is 0.05.
	BackupAfter float64
	BackupShare float64
	// Batch makes a server a device that scores several samples at once.
	Batch BatchCost
	// Seed of every draw; the same seed gives the same schedule.
	Seed uint64
}

// Stragglers draws, for every attempt, whether it takes Factor times as long:
// with probability Share.
type Stragglers struct {
	Share, Factor float64
}

// BatchCost is a device that takes what is queued, up to Max samples, and needs
// Fixed + PerSample·b seconds for b of them. With Max 0 a server takes one sample
// at a time, which needs its own service time.
type BatchCost struct {
	Fixed, PerSample float64
	Max              int
}

// Seconds is how long b samples take.
func (b BatchCost) Seconds(samples int) float64 { return b.Fixed + b.PerSample*float64(samples) }

// Rate is the samples per second of one device that always has a full batch.
func (b BatchCost) Rate() float64 { return float64(b.Max) / b.Seconds(b.Max) }

const (
	maxFailures        = 0.5
	defaultBackupShare = 0.05
	maxBatch           = 1 << 16
)

// WithDefaults fills in what was left out.
func (c DispatchConfig) WithDefaults() DispatchConfig {
	if c.Policy == "" {
		c.Policy = PolicyRandom
	}
	if len(c.Speeds) > 0 {
		c.Servers = len(c.Speeds)
	}
	if c.BackupShare == 0 {
		c.BackupShare = defaultBackupShare
	}
	if c.Stragglers.Share == 0 {
		c.Stragglers.Factor = 1
	}
	return c
}

// Validate names every fault.
func (c DispatchConfig) Validate() error {
	c = c.WithDefaults()
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("%w: "+format, append([]any{ErrLoad}, args...)...))
		}
	}
	check(c.Servers >= 1 && c.Servers <= MaxServers, "%d servers, must be 1…%d", c.Servers, MaxServers)
	if err := checkSpeeds(c.Speeds); err != nil {
		faults = append(faults, err)
	}
	known := []string{PolicyRandom, PolicyRandomBlind, PolicySpeedWeighted}
	check(slices.Contains(known, c.Policy), "policy %q, must be one of %v", c.Policy, known)
	share := func(v float64) bool { return v >= 0 && v <= 1 }
	check(share(c.Stragglers.Share), "stragglers' share is %v, must be 0…1", c.Stragglers.Share)
	check(c.Stragglers.Factor >= 1 && c.Stragglers.Factor <= 1e6, "stragglers' factor is %v, must be 1…1e6", c.Stragglers.Factor)
	check(c.Failures >= 0 && c.Failures <= maxFailures, "probability of failure is %v, must be 0…%v", c.Failures, maxFailures)
	check(IsTime(c.BackupAfter), "backup after %v mean service times, must be finite and not negative", c.BackupAfter)
	check(share(c.BackupShare), "backups of a share of %v, must be 0…1", c.BackupShare)
	check(c.BackupAfter == 0 || c.Policy != PolicyRandomBlind, "no backup requests with %s: it does not know who is idle", PolicyRandomBlind)
	check(c.BackupAfter == 0 || c.Batch.Max == 0, "no backup requests for batches")
	check(c.Batch.Max >= 0 && c.Batch.Max <= maxBatch, "batches of %d, must be 0…%d", c.Batch.Max, maxBatch)
	check(IsTime(c.Batch.Fixed) && IsTime(c.Batch.PerSample), "a batch of b costs %v + %v·b s; both must be finite and not negative", c.Batch.Fixed, c.Batch.PerSample)
	return errors.Join(faults...)
}

// speeds lists the speed of every server.
func (c DispatchConfig) speeds() []float64 {
	if len(c.Speeds) > 0 {
		return c.Speeds
	}
	return slices.Repeat([]float64{1}, c.Servers)
}

// Dispatch simulates one step on a pool, event by event. G and r are as in
// LowerBound, r on a server of speed 1; with Batch r is not read. The schedule
// names all attempts, so that its Trace is measured like one of a run: retries,
// backup requests and the seconds they wasted included.
func Dispatch(g, r []float64, cfg DispatchConfig) (Schedule, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return Schedule{}, err
	}
	if err := checkLoad(g, r, cfg.Servers); err != nil {
		return Schedule{}, err
	}
	p := newPool(cfg)
	p.record = true
	order := byRelease(g)
	sorted, work := make([]float64, len(g)), make([]float64, len(g))
	for k, i := range order {
		sorted[k], work[k] = g[i], r[i]
	}
	p.submit(0, sorted, work)
	for p.advance() { // until every sample is scored
	}
	s := newSchedule(g, min(MaxServers, cfg.Servers*max(1, cfg.Batch.Max))) // what can be in service at once
	s.Attempts = make([][]Attempt, len(g))
	for k, i := range order {
		j := p.jobs[k]
		s.Started[i], s.Finished[i], s.Server[i], s.Attempts[i] = j.started, j.finished, int(j.server), p.attempts[k]
		slices.SortStableFunc(s.Attempts[i], func(a, b Attempt) int { return cmp.Compare(a.Started, b.Started) })
		s.Makespan = max(s.Makespan, j.finished)
	}
	return s, nil
}
