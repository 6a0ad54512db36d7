package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Policies of dispatch.
const (
	// PolicyRandom is a pull queue: a sample goes to an idle server, chosen at random, or waits
	// until a server is idle.
	PolicyRandom = "random"
	// PolicyRandomBlind chooses from all servers, busy or not, when the sample is released; the
	// sample waits at that server. This is the policy of verl.
	PolicyRandomBlind = "random_blind"
	// PolicySpeedWeighted is a pull queue that prefers the fastest idle server, and leaves a slow
	// server idle if the sample finishes earlier by waiting for another one.
	PolicySpeedWeighted = "speed_weighted"
)

// DispatchConfig describes a pool of servers and the dispatch of samples to it. With zero values
// for all fields except the servers, it is a simple pull queue on servers that never fail.
type DispatchConfig struct {
	// Servers is the number of servers, all with speed 1. If Speeds is set, it contains the speed
	// of every server in seconds of work per second, and Servers is ignored.
	Servers int
	Speeds  []float64
	// Policy is PolicyRandom, PolicyRandomBlind or PolicySpeedWeighted; empty: PolicyRandom.
	Policy string
	// Stragglers makes attempts slow at random.
	Stragglers Stragglers
	// Failures is the probability that an attempt fails at its end, 0…0.5. The sample is then
	// retried at once, before all waiting samples.
	Failures float64
	// BackupAfter, times the mean service time, is the time after which an attempt gets a backup
	// request on an idle server while nothing is queued. The first to finish counts, and the other
	// attempt is cancelled. 0: never. BackupShare is the maximum share of the samples with a backup
	// request; 0 means 0.05.
	BackupAfter float64
	BackupShare float64
	// Batch makes each server a device that scores several samples at the same time.
	Batch BatchCost
	// Seed is the seed of all random draws. The same seed results in the same schedule.
	Seed uint64
}

// Stragglers makes an attempt take Factor times as long with probability Share.
type Stragglers struct {
	Share, Factor float64
}

// BatchCost describes a device that takes up to Max queued samples, and needs Fixed + PerSample·b
// seconds for b samples. If Max is 0, a server takes one sample at a time, which needs its own
// service time.
type BatchCost struct {
	Fixed, PerSample float64
	Max              int
}

// Seconds returns the time in seconds for a batch of that number of samples.
func (b BatchCost) Seconds(samples int) float64 { return b.Fixed + b.PerSample*float64(samples) }

// Rate returns the number of samples per second of one device that always has a full batch.
func (b BatchCost) Rate() float64 { return float64(b.Max) / b.Seconds(b.Max) }

const (
	maxFailures        = 0.5
	defaultBackupShare = 0.05
	maxBatch           = 1 << 16
)

// WithDefaults returns a copy of c in which the defaults are set.
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

// Validate returns an error that lists all invalid fields.
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

// Dispatch simulates one step on a pool, event by event. g and r are as in LowerBound, with r for a
// server of speed 1; with Batch, r is ignored. The schedule contains all attempts, so that its
// trace (loop/trace.FromSchedule) is measured like the trace of a run, including retries, backup
// requests and the time that they wasted.
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
