package dispatch

import (
	"slices"
	"time"
)

// Run contains one training run's share of the places of one profile, and the service times of its
// samples of that profile.
type Run struct {
	name   string
	weight float64
	queued int // samples that wait for a ticket
	// backingOff are those that wait for a dependency as well, and are not among queued.
	backingOff int
	// vtime is the time the run has had divided by its weight: the run with the smallest is
	// served next. A ticket is charged the run's mean service time when it is published and
	// corrected when its result comes.
	vtime float64
	mean  time.Duration // running mean of the service time of one attempt
	n     int           // how many it is of
	pace  *paces
	// stepQueues are the steps with samples on their way.
	stepQueues map[Step]*stepQueue
}

func newRun(name string, weight float64) *Run {
	return &Run{name: name, weight: weight, pace: newPaces(), stepQueues: map[Step]*stepQueue{}}
}

// Queued returns the number of the run's samples that wait for a ticket, without those that back
// off.
func (r *Run) Queued() int { return r.queued }

// Mean returns the running mean of the service time of one attempt, and the number of attempts that
// were observed; both are 0 before the first attempt.
func (r *Run) Mean() (mean time.Duration, n int) { return r.mean, r.n }

// StepQueues returns the number of the run's steps that have samples in flight, or had some until
// recently.
func (r *Run) StepQueues() int { return len(r.stepQueues) }

// precedes reports whether r is served before o.
func (r *Run) precedes(o *Run) bool {
	return r.vtime < o.vtime || r.vtime == o.vtime && r.name < o.name
}

// defaultService is what a run's first tickets are charged before it has a mean.
const defaultService = 100 * time.Millisecond

// Charge adds the expected service time of a ticket to the run's account, and returns it.
func (r *Run) Charge() time.Duration {
	d := r.mean
	if d == 0 {
		d = defaultService
	}
	r.vtime += d.Seconds() / r.weight
	return d
}

// Refund replaces the charge for a ticket by the time took that the ticket really used, and sets
// *charged to 0.
func (r *Run) Refund(charged *time.Duration, took time.Duration) {
	r.vtime += (took - *charged).Seconds() / r.weight
	*charged = 0
}

// Observe adds the service time of a result to the mean: the arithmetic mean of the first 16
// results, then an exponential mean over about 16 samples.
func (r *Run) Observe(took time.Duration) {
	r.n++
	r.mean += (took - r.mean) / time.Duration(min(r.n, 16))
}

// ObservePace adds the service time of a result to the estimated speeds of the run and of the
// worker.
func (r *Run) ObservePace(worker string, took time.Duration) { r.pace.observe(worker, took) }

// maxStepQueues bounds the step queues of a run whose steps never end.
const maxStepQueues = 128

// stepQueueOf returns the step queue of a step, making it on first sight.
func (r *Run) stepQueueOf(st Step) *stepQueue {
	l := r.stepQueues[st]
	if l == nil {
		if len(r.stepQueues) >= maxStepQueues {
			for old := range r.stepQueues {
				if old.InFlight() == 0 {
					delete(r.stepQueues, old)
				}
			}
		}
		l = &stepQueue{step: st}
		r.stepQueues[st] = l
	}
	return l
}

// next is the run's sample that is served next; nil: there is none.
func (r *Run) next() Sample {
	var best Sample
	for _, l := range r.stepQueues {
		if s := l.next(); s != nil && (best == nil || compare(s, best) < 0) {
			best = s
		}
	}
	return best
}

// waitingStepQueues are those with samples in the queue, in the order in which they are served.
func (r *Run) waitingStepQueues() []*stepQueue {
	var out []*stepQueue
	for _, l := range r.stepQueues {
		if l.samples.Len() > 0 {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b *stepQueue) int { return compare(a.next(), b.next()) })
	return out
}
