package workers

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// This file is about engines and services that are down. A profile of which every sample
// needs one takes no samples meanwhile: they wait in the gateway, where they cost no place
// and no deadline of a component. When a call may find out whether it is back, one sample is
// taken, by one worker of the process; what it meets is the dependency's breaker.

// outage is what a profile waits for, guarded by the worker's mutex.
type outage struct {
	state string // wire.WorkerWaiting or WorkerTrying; "": it takes samples
	waits string // for people; "": all is well
	probe *job   // the sample that finds out; nil: none
}

const (
	// lookEvery is how often a dependency is looked at without its having told of a change.
	lookEvery = time.Second
	// turn is by how much later than the one before it a worker of the same process takes the
	// sample that finds out whether a dependency is back: mostly the first one has by then.
	turn = 250 * time.Millisecond
)

// watch keeps a profile's outage up to date.
func (w *Worker) watch(ctx context.Context, b *bay) {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	for {
		cases := []reflect.SelectCase{
			{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())},
			{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(timer.C)},
		}
		for _, d := range b.now.Load().Manager.Dependencies() { // before the look, which sees what happens after it
			if d.Changed != nil {
				cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(d.Changed)})
			}
		}
		timer.Reset(w.look(b))
		if chosen, _, _ := reflect.Select(cases); chosen == 0 {
			return
		}
	}
}

// look brings a profile's outage up to date, announces it if it is another, and returns when
// to look again.
func (w *Worker) look(b *bay) (again time.Duration) {
	if !b.reliant {
		return lookEvery
	}
	d, always := b.now.Load().Manager.Waits()
	now := time.Now()
	mine := d.Due.Add(time.Duration(w.cfg.Index) * turn)
	again = lookEvery
	w.mu.Lock()
	was := b.outage
	switch {
	case !always:
		b.outage.state = ""
	case b.outage.probe != nil, d.Probe && !mine.After(now):
		b.outage.state = wire.WorkerTrying
	default:
		b.outage.state = wire.WorkerWaiting
		if !d.Due.IsZero() {
			again = max(min(again, mine.Sub(now)), time.Millisecond)
		}
	}
	b.outage.waits = waitsFor(d)
	is := b.outage.state
	changed := was.state != is || was.waits != b.outage.waits
	if changed {
		w.stir(b)
	}
	w.mu.Unlock()
	if changed {
		w.announce()
		w.tell(b, was.state, is, d)
	}
	return again
}

// tell logs that a profile begins or ends to wait. The workers of a process share what they
// know of a dependency, so the first one speaks for all.
func (w *Worker) tell(b *bay, was, is string, d rewards.Dependency) {
	switch {
	case w.cfg.Index > 0:
	case was == "" && is != "":
		w.log.Warn("an engine, a service or another dependency of a reward is not available; samples of the reward wait in the gateway",
			"worker", w.cfg.ID, "reward", b.name, "dependency", d.Name, "error", d.Last)
	case was != "" && is == "":
		w.log.Info("the worker takes samples of a reward again", "worker", w.cfg.ID, "reward", b.name)
	}
}

// waitsFor says what is wrong with a dependency. The time is told in steps, each twice the
// one before, because every word of a worker that differs costs its gateways a look.
func waitsFor(d rewards.Dependency) string {
	switch {
	case d.Name == "":
		return ""
	case d.Down && d.Held != "":
		return "waiting for " + d.Name + ": " + d.Held
	case d.Down:
		return "waiting for " + d.Name
	}
	told := rewards.Unanswered
	for 2*told <= d.Unanswered {
		told *= 2
	}
	return fmt.Sprintf("calls at %s, no answer for %v", d.Name, told)
}

// giveBack hands a sample to the gateway that waits for a dependency, with what is finished
// of it. What the worker takes now is announced before: the gateway asks at once.
func (w *Worker) giveBack(j *job, res *wire.Result) {
	b := j.bay
	w.mu.Lock()
	if b.outage.probe == j {
		b.outage.probe = nil
	}
	w.mu.Unlock()
	w.look(b)
	w.mu.Lock()
	res.Always = b.outage.state != ""
	w.mu.Unlock()
	w.handOver(j, res)
}
