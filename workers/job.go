package workers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/internal/timing"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// job is one sample on one place. Its goroutine owns it; done and renewed are guarded by the
// worker's mutex.
type job struct {
	bay     *bay
	of      *Profile // by which it is scored
	place   *rewards.Place
	lease   Lease
	ticket  wire.Ticket
	done    bool      // the lease is over
	renewed time.Time // when the lease began, or was last extended
	trace   *traced   // nil: the sample is not traced
}

// score is the life of one sample on this worker, from the claim to the freed place.
func (w *Worker) score(work context.Context, j *job) {
	defer w.end(j)
	ctx, cancel := context.WithDeadline(j.lease.Context(), j.ticket.Deadline)
	defer cancel()
	defer context.AfterFunc(work, cancel)()
	start := time.Now()
	j.trace = w.traced(j.ticket)
	p, err := w.claim(ctx, j)
	if err != nil {
		w.unclaimed(j, err)
		return
	}
	claimed := time.Now()
	w.connected(claimed)
	j.trace.scores(claimed)
	res, done := w.run(ctx, j, p)
	w.count(res)
	j.trace.end(w, j, start, res)
	switch {
	case res.Waits != "":
		w.giveBack(j, res)
	case res.Outcome == rewards.OutcomeCancelled && errors.Is(ctx.Err(), context.DeadlineExceeded):
		w.release(j, j.lease.Done) // the sample has expired; given back it would only be claimed again
	case res.Outcome == rewards.OutcomeCancelled:
		w.release(j, func() { j.lease.Return(0) })
	default:
		res.TimingMS["claim"] = millis(claimed.Sub(start))
		res.TimingMS["score"] = millis(time.Since(claimed))
		w.handOver(j, res)
	}
	w.await(j, done)
	p.release() // every goroutine of the attempt has returned
}

// abandonGrace is what a scorer has to return in after its context has ended.
const abandonGrace = 100 * time.Millisecond

// await waits for the scorers of an answered sample: one that ignores its context
// keeps its place and its bytes until it returns.
func (w *Worker) await(j *job, done <-chan struct{}) {
	select {
	case <-done:
		return
	default:
	}
	t := time.NewTimer(abandonGrace)
	defer t.Stop()
	select {
	case <-done:
		return
	case <-t.C:
	}
	w.abandon(j)
	<-done
}

// unclaimed ends a job whose payload could not be had.
func (w *Worker) unclaimed(j *job, err error) {
	if errors.Is(err, wire.ErrGone) {
		w.release(j, j.lease.Done)
		return
	}
	log := w.log.Warn
	if errors.Is(err, wire.ErrUnreachable) && w.disconnected(time.Now()) {
		log = w.log.Debug // it has been said
	}
	log("claim failed; the ticket goes back", "sample_id", j.ticket.ID, "worker", w.cfg.ID, "error", err)
	w.release(j, func() { j.lease.Return(100 * time.Millisecond) })
}

const (
	// reachable is how long a claim that went well speaks for this worker's network: if
	// others fail within, it is their gateway that cannot be reached by anybody.
	reachable = 2 * time.Second
	// cutRest is how long a worker rests that reaches no gateway at all; it doubles with
	// each claim that fails, up to maxCutRest. It would otherwise draw every ticket that
	// no busy worker wants, over and over.
	cutRest    = 500 * time.Millisecond
	maxCutRest = 5 * time.Second
)

// disconnected notes that a gateway could not be reached, and reports whether this is not the
// first time in a row.
func (w *Worker) disconnected(now time.Time) (again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.aside.After(now) || now.Sub(w.reached) < reachable {
		return w.unreached > 0
	}
	pause := min(cutRest<<min(w.unreached, 8), maxCutRest)
	w.aside = now.Add(pause + rand.N(pause/2)) //nolint:gosec // a pause needs no secret randomness
	w.unreached++
	return w.unreached > 1
}

// connected notes that a payload came.
func (w *Worker) connected(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reached, w.unreached = now, 0
}

// release ends the lease, after which the heartbeat leaves it alone.
func (w *Worker) release(j *job, end func()) {
	w.mu.Lock()
	j.done = true
	w.mu.Unlock()
	end()
}

// payload is what a ticket stands for: the frame of a sample, with what its components have
// said before, or those of a group.
type payload struct {
	frame *wire.Frame
	kept  []rewards.ComponentResult
	group *wire.Group
}

func (p payload) release() {
	if p.frame != nil {
		p.frame.Release()
		return
	}
	for _, m := range p.group.Members {
		m.Frame.Release()
	}
}

func (w *Worker) claim(ctx context.Context, j *job) (p payload, err error) {
	if j.ticket.Group {
		p.group, err = w.gateway.ClaimGroup(ctx, j.ticket, w.cfg.ID)
	} else {
		p.frame, p.kept, err = w.gateway.Claim(ctx, j.ticket, w.cfg.ID)
	}
	return p, err
}

// run scores the payload. The channel is closed when no goroutine uses it any more.
func (w *Worker) run(ctx context.Context, j *job, p payload) (*wire.Result, <-chan struct{}) {
	manager := j.of.Manager
	if !slices.Contains(j.bay.names, j.ticket.Reward) {
		closed := make(chan struct{})
		close(closed)
		return w.result(j, &rewards.Result{Outcome: rewards.Failed, Errors: []rewards.ComponentError{{
			Class: rewards.UnknownReward, Message: fmt.Sprintf("worker %s serves no reward named %q", w.cfg.ID, j.ticket.Reward),
			Blame: rewards.BlameWorker, Permanent: true,
		}}}), closed
	}
	ctx, stages := timing.WithStages(rewards.WithTenant(ctx, rewards.Tenant{Profile: j.bay.name, Run: j.ticket.Run, Weight: j.ticket.Weight, Contended: j.bay.contend}))
	j.trace.watch(stages)
	if p.group != nil {
		res, done := w.runGroup(ctx, j, manager, p.group, stages)
		note(res, stages)
		return res, done
	}
	run := manager.Run(ctx, w.sample(j, p.frame, stages), w.finished(j), rewards.Return(), rewards.Kept(p.kept))
	res := w.result(j, &run.Result)
	j.trace.components(run.Result.Components)
	if res.Waits != "" {
		return res, run.Done()
	}
	for _, t := range run.Result.Components {
		res.TimingMS["component/"+t.Key] = millis(t.Took)
		w.metrics.component.WithLabelValues(j.ticket.Reward, t.Key, string(t.Status)).Observe(t.Took.Seconds())
	}
	note(res, stages)
	return res, run.Done()
}

// finished frees what a component occupies when it is finished with the sample.
func (w *Worker) finished(j *job) rewards.RunOption {
	return rewards.OnEnd(func(component int) {
		j.place.End(component)
		w.mu.Lock()
		w.stir(j.bay)
		w.mu.Unlock()
	})
}

// note puts what the stages took beside the result.
func note(res *wire.Result, stages *timing.Stages) {
	for stage, took := range stages.Took() {
		res.TimingMS[stage] = millis(took)
	}
}

// timed is a decoder whose time is told.
type timed struct {
	rewards.Decoder
	stages *timing.Stages
}

// Decode implements rewards.Decoder.
func (d timed) Decode(ctx context.Context, m *rewards.Media) (*rewards.Pixels, error) {
	start := time.Now()
	px, err := d.Decoder.Decode(ctx, m)
	d.stages.Add(timing.Decode, start, time.Now())
	return px, err
}

// DecodeFrames implements rewards.Chooser. A decoder that cannot choose decodes all: rewards picks.
func (d timed) DecodeFrames(ctx context.Context, m *rewards.Media, frames rewards.FrameChoice) (*rewards.Pixels, error) {
	chooser, ok := d.Decoder.(rewards.Chooser)
	if !ok {
		return d.Decode(ctx, m)
	}
	start := time.Now()
	px, err := chooser.DecodeFrames(ctx, m, frames)
	d.stages.Add(timing.Decode, start, time.Now())
	return px, err
}

// Sound implements rewards.Listener.
func (d timed) Sound(ctx context.Context, m *rewards.Media) (*rewards.Sound, error) {
	l, ok := d.Decoder.(rewards.Listener)
	if !ok {
		return nil, fmt.Errorf("%w: %w", rewards.Internal, rewards.ErrNoDecoder)
	}
	start := time.Now()
	s, err := l.Sound(ctx, m)
	d.stages.Add(timing.Decode, start, time.Now())
	return s, err
}

// sample is the sample of a frame, ready to be scored.
func (w *Worker) sample(j *job, frame *wire.Frame, stages *timing.Stages) *rewards.Sample {
	s := frame.Sample()
	s.Run, s.Reward = j.ticket.Run, j.ticket.Reward
	for _, m := range s.Media {
		m.SetDecoder(timed{w.decoder, stages})
	}
	return s
}

// runGroup scores a whole prompt group. Its result has those of the members; its
// outcome is scored if that of any member is.
func (w *Worker) runGroup(ctx context.Context, j *job, manager *rewards.Manager, g *wire.Group, stages *timing.Stages) (*wire.Result, <-chan struct{}) {
	members := make([]rewards.GroupMember, len(g.Members))
	for i, m := range g.Members {
		members[i] = rewards.GroupMember{Sample: w.sample(j, m.Frame, stages), Components: m.Partial}
	}
	run := manager.RunGroup(ctx, members, g.Size, g.LastMeanStd, w.finished(j), rewards.Return(), rewards.Absent(g.Absent))
	res := w.result(j, &rewards.Result{Outcome: rewards.Failed})
	if len(run.Results) > 0 {
		j.trace.components(run.Results[0].Components) // a group's are those of each member
	}
	for i := range run.Results {
		m := w.result(j, &run.Results[i])
		m.ID = members[i].Sample.ID
		for _, t := range run.Results[i].Components {
			m.TimingMS["component/"+t.Key] = millis(t.Took)
		}
		res.Members = append(res.Members, m)
		switch m.Outcome {
		case rewards.OutcomeCancelled:
			if m.Waits != "" { // and so do the others
				res.Waits, res.Errors = m.Waits, m.Errors
				continue
			}
			res.Outcome, res.Members = rewards.OutcomeCancelled, nil
			return res, run.Done()
		case rewards.Scored:
			res.Outcome, res.Errors = rewards.Scored, nil
		case rewards.Failed:
			if res.Outcome == rewards.Failed && res.Errors == nil {
				res.Errors = m.Errors
			}
		}
	}
	if res.Waits != "" {
		res.Outcome = rewards.OutcomeCancelled
	}
	return res, run.Done()
}

// result brings a manager's answer into the form the gateway takes.
func (w *Worker) result(j *job, r *rewards.Result) *wire.Result {
	res := &wire.Result{
		ID: j.ticket.ID, Outcome: r.Outcome, ExtraInfo: r.Extra, Details: r.Details, Errors: r.Errors,
		TimingMS: make(map[string]float64, 4+len(r.Components)), Worker: w.cfg.ID, Config: j.of.Config, Attempt: j.ticket.Key(), Pending: r.Pending,
		Partial: r.Partial, Waits: r.Waits,
	}
	if r.Outcome == rewards.Scored && r.Pending == nil {
		res.RewardScore = &r.Score
	}
	if r.Outcome == rewards.Scored {
		res.StepScores = r.Steps
	}
	for _, t := range r.Components {
		if t.Status == rewards.StatusOK {
			if res.Values == nil {
				res.Values = make(map[string]float64, len(r.Components))
			}
			res.Values[t.Key] = t.Value
		}
	}
	return res
}

// finishTimeout bounds the handing over of one result.
const finishTimeout = 10 * time.Second

// handOver gives the result to the gateway and ends the lease, in this order: a
// worker that dies between the two only causes a result that is dropped as late.
func (w *Worker) handOver(j *job, res *wire.Result) {
	ctx, cancel := context.WithTimeout(context.Background(), finishTimeout)
	defer cancel()
	if err := w.gateway.Finish(ctx, j.ticket, res); err != nil && !errors.Is(err, wire.ErrGone) {
		w.log.Warn("the gateway did not accept a result; the ticket returns to the queue", "sample_id", j.ticket.ID, "worker", w.cfg.ID, "error", err)
		w.release(j, func() { j.lease.Return(time.Second) })
		return
	}
	w.release(j, j.lease.Done)
}

// count counts an attempt by its outcome. What a failure says of this worker the gateway
// decides, which sees the others as well.
func (w *Worker) count(res *wire.Result) {
	label := string(res.Outcome)
	switch {
	case res.Waits != "":
		label = "returned"
	case res.Partial != nil:
		label = "waiting_for_group" // its group's answer counts once more
	}
	w.metrics.samples.WithLabelValues(label).Inc()
	if res.Waits != "" { // it was not tried
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if res.Outcome == rewards.Scored || res.Partial != nil {
		w.scored++
	} else {
		w.failed++
	}
}

// abandon marks a job whose scorer overran: it keeps its place and its bytes until
// it returns.
func (w *Worker) abandon(j *job) {
	w.mu.Lock()
	w.jobs[j] = true
	j.bay.abandoned++
	n := j.bay.abandoned
	w.mu.Unlock()
	w.ended()
	w.metrics.abandoned.Inc()
	w.log.Warn("a scorer passed its deadline and is still running", "sample_id", j.ticket.ID, "worker", w.cfg.ID, "reward", j.bay.name, "abandoned", n)
	w.announce()
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
