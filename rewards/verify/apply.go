package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

// Named is a verifier of a reward with its key and settings.
type Named struct {
	// Key is the name of the verifier's result in verified_results.
	Key string
	// Required makes the sample fail if the verifier fails.
	Required bool
	// Timeout is the maximum duration of the verifier. It is at most rewards.MaxComponentTimeout
	// and defaults to DefaultTimeout.
	Timeout  time.Duration
	Verifier rewards.Verifier
}

// DefaultTimeout is the timeout of a verifier without its own timeout.
const DefaultTimeout = 30 * time.Second

// grace is how long after its deadline a verifier is waited for: a program is killed
// and reaped in it, which takes some milliseconds, or a hundred on a busy machine.
const grace = time.Second

// maxMessage bounds what is said of a failure, in bytes: it travels with the sample.
const maxMessage = 1024

// outcome is what became of one verifier.
type outcome struct {
	Key      string
	Required bool
	// Class is "" for one that answered, else what stands in verified_results.
	Class   rewards.Class
	Message string
	Took    time.Duration
}

// Check returns an error that contains every fault in the verifiers of a reward.
func Check(verifiers []Named) error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	seen := map[string]bool{}
	for i, n := range verifiers {
		switch {
		case n.Key == "":
			fault("verifier %d has no key", i+1)
		case seen[n.Key]:
			fault("verifier key %q is used twice", n.Key)
		}
		seen[n.Key] = true
		if n.Verifier == nil {
			fault("verifier %q has no function to run", n.Key)
		}
		if n.Timeout < 0 || n.Timeout > rewards.MaxComponentTimeout {
			fault("verifier %q: timeout of %v, want up to %v", n.Key, n.Timeout, rewards.MaxComponentTimeout)
		}
	}
	return errors.Join(errs...)
}

// apply runs the verifiers at once and returns a shallow copy of the sample whose
// extra_info holds their results:
//
//	"verified_results": {"sql": <result>, "facts": {"error": {"class": "timeout", "message": "…"}}}
//
// What stood there under that name is replaced; nothing else of the sample changes.
// Outcomes has one element per verifier, in order, also beside an error; it is nil
// where none ran. The error wraps the class of the first required verifier that
// failed, of ctx where that ended first, or BadInput for an extra_info that is no
// JSON object.
//
// apply returns when all have: at the latest a second after the last deadline,
// without those that heed no context. They see a copy of the sample without media
// that shares no byte with it, so that it may be released.
func apply(ctx context.Context, verifiers []Named, s *rewards.Sample) (*rewards.Sample, []outcome, error) {
	if err := Check(verifiers); err != nil {
		return nil, nil, fmt.Errorf("%w: sample %q: %w", rewards.Internal, s.ID, err)
	}
	extra, err := trusted(s.ExtraInfo)
	if err != nil {
		return nil, nil, fmt.Errorf("sample %q: %w", s.ID, err)
	}
	r := newRound(verifiers)
	err = r.run(ctx, detached(s, extra))
	if err != nil {
		return nil, r.outcomes, fmt.Errorf("sample %q: %w", s.ID, err)
	}
	out := *s
	out.ExtraInfo = append(extra, member{quoted(field), r.object()}).object()
	return &out, r.outcomes, nil
}

// detached is what verifiers see of a sample.
func detached(s *rewards.Sample, extra members) *rewards.Sample {
	out := *s
	out.Media = nil
	out.GroundTruth = bytes.Clone(s.GroundTruth)
	if s.ExtraInfo != nil {
		out.ExtraInfo = extra.object()
	}
	if s.Index != nil {
		index := *s.Index
		out.Index = &index
	}
	return &out
}

// answer is what a verifier's goroutine sends, once.
type answer struct {
	verifier int
	result   json.RawMessage
	failure  *failure // nil: there is a result
}

// failure is why a verifier has no result. Its text is bounded, whatever the
// verifier says.
type failure struct {
	key, message string
	class        rewards.Class
	cause        error
}

// Error names the verifier.
func (f *failure) Error() string { return fmt.Sprintf("verifier %q: %s", f.key, f.message) }

// Unwrap returns the class and the cause.
func (f *failure) Unwrap() []error { return []error{f.class, f.cause} }

func (n *Named) failure(err error) *failure {
	return &failure{n.Key, service.Clip(err.Error(), maxMessage), rewards.ClassOf(err), err}
}

// round is one run of all verifiers; only the goroutine of Apply uses it.
type round struct {
	verifiers []Named
	outcomes  []outcome
	results   []json.RawMessage // nil: has not answered
	overdue   []time.Time       // when it is waited for no longer
	answers   chan answer       // one place per verifier, so that an abandoned one never blocks
	start     time.Time
	failed    *failure // of the first required one that failed while the caller waited
}

func newRound(verifiers []Named) *round {
	r := &round{
		verifiers: verifiers, outcomes: make([]outcome, len(verifiers)), results: make([]json.RawMessage, len(verifiers)),
		overdue: make([]time.Time, len(verifiers)), answers: make(chan answer, len(verifiers)), start: time.Now(),
	}
	for i, n := range verifiers {
		r.outcomes[i] = outcome{Key: n.Key, Required: n.Required}
		r.overdue[i] = r.start.Add(n.timeout() + grace)
	}
	return r
}

func (n *Named) timeout() time.Duration {
	if n.Timeout == 0 {
		return DefaultTimeout
	}
	return n.Timeout
}

// run asks all and waits for all: a required one that fails, and the end of ctx, end
// the others.
func (r *round) run(caller context.Context, s *rewards.Sample) error {
	ctx, cancel := context.WithCancel(caller)
	defer cancel()
	for i := range r.verifiers {
		n := &r.verifiers[i]
		go func() { // ends with its verifier, which this loop waits for
			a := answer{i, nil, n.failure(fmt.Errorf("%w: the verifier ended its goroutine (runtime.Goexit)", rewards.Panicked))}
			defer func() { r.answers <- a }()
			a.result, a.failure = n.ask(ctx, s)
		}()
	}
	over := ctx.Done()
	for {
		next, waiting := r.next()
		if !waiting {
			break
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case a := <-r.answers:
			r.take(a, caller.Err() != nil)
		case <-timer.C:
			r.giveUp(caller.Err() != nil)
		case <-over:
			over = nil
			r.hurry()
		}
		timer.Stop()
		if r.failed != nil {
			cancel()
		}
	}
	switch {
	case r.failed != nil:
		return r.failed
	case caller.Err() != nil:
		return ended(caller, "while the verifiers ran")
	}
	return nil
}

// ask runs one verifier and judges what it returned; a panic in either (an error's own
// methods are the verifier's code too) is a failure.
func (n *Named) ask(ctx context.Context, s *rewards.Sample) (result json.RawMessage, failed *failure) {
	ctx, cancel := context.WithTimeout(ctx, n.timeout())
	defer cancel()
	own := *s // what one does to its sample no other sees
	err := rewards.Guard(func() error {
		found, err := n.Verifier.Verify(ctx, &own)
		if err == nil {
			found, err = checked(found)
		}
		if err != nil {
			failed = n.failure(err)
			return nil
		}
		result = found
		return nil
	})
	if err != nil {
		return nil, n.failure(err)
	}
	return result, failed
}

// next is when the first of those that have not answered is overdue.
func (r *round) next() (at time.Time, waiting bool) {
	for i, t := range r.overdue {
		if r.results[i] == nil && (!waiting || t.Before(at)) {
			at, waiting = t, true
		}
	}
	return at, waiting
}

// hurry gives everybody no more than the grace from now on.
func (r *round) hurry() {
	soon := time.Now().Add(grace)
	for i, t := range r.overdue {
		if soon.Before(t) {
			r.overdue[i] = soon
		}
	}
}

// take notes an answer. One that comes after its verifier was given up counts for
// nothing, and who fails because the caller has gone has not decided anything.
func (r *round) take(a answer, gone bool) {
	if r.results[a.verifier] != nil {
		return
	}
	o := &r.outcomes[a.verifier]
	o.Took = time.Since(r.start)
	if a.failure == nil {
		r.results[a.verifier] = a.result
		return
	}
	o.Class, o.Message = a.failure.class, a.failure.message
	r.results[a.verifier] = failureValue(o.Class, o.Message)
	if o.Required && r.failed == nil && !gone {
		r.failed = a.failure
	}
}

// giveUp fails those that are overdue. On a machine so busy that this goroutine
// itself is late, answers may lie unread: they count.
func (r *round) giveUp(gone bool) {
	for len(r.answers) > 0 { // nobody else receives
		r.take(<-r.answers, gone)
	}
	for i, t := range r.overdue {
		if r.results[i] == nil && !time.Now().Before(t) {
			err := fmt.Errorf("%w: the verifier ignored its context for %v and still runs", rewards.Timeout, grace)
			r.take(answer{i, nil, r.verifiers[i].failure(err)}, gone)
		}
	}
}

// object is the value of verified_results.
func (r *round) object() json.RawMessage {
	out := make(members, len(r.verifiers))
	for i, n := range r.verifiers {
		out[i] = member{quoted(n.Key), r.results[i]}
	}
	return out.object()
}
