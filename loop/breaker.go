package loop

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// This file is about workers that fail a profile: a breaker of (worker, profile), kept by
// the gateway because only the gateway sees what other workers make of the same profile.
//
//	closed ── Failures answers in a row blamed on the worker, or one that is permanent ──► open
//	closed ── judged answers without a score, while others score a quarter ──► open, compared
//	closed ── judged answers without a score, and no other worker to compare with ──► hushed
//	open, compared ── pause over ──► trying: one sample may go
//	hushed ── pause over, or others can be compared with ──► closed, or open
//	trying ── scored ──► closed            trying ── failed ──► open, for twice as long
//	any ── the worker starts anew ──► closed
//
// A failure blamed on the sample, the reward or a service opens nothing: it would meet the
// next worker as well. A worker that fails everything of a profile that others score is the
// exception, whatever its answers blame: a module of another version, a card that computes
// nonsense, a file that is not there.

const (
	// judged is how many of a worker's latest answers are looked at together. At worst so
	// many samples fail by a fault that is the worker's and not theirs. A reward that
	// scores a quarter of its samples gives 32 failures in a row with probability 10⁻⁴.
	judged = 32
	// compared is how many answers other workers must have for a comparison.
	compared = 4
	// hush is how long a worker whose every answer is a failure gets no more samples of
	// the profile while no other worker has answered enough to compare, and as long again
	// while others have samples to answer: a worker that fails at once would otherwise
	// draw the whole step before the first result of another one is there.
	hush = 2 * time.Second
	// sameAgain bounds the tries of one sample, as a multiple of MaxAttempts, where there
	// are fewer workers than MaxAttempts and one that has failed the sample gets it again.
	sameAgain = 2
)

// Breaker configures the circuit breakers of workers, which stop sending samples of a profile to a
// worker that keeps failing. The method Keys documents Failures.
type Breaker struct {
	Failures int
	// Pause is the time for which an open breaker gives the worker no samples, until one sample
	// tests the worker. Pause doubles with every test that fails, up to MaxPause. Pause defaults to
	// 1 s, MaxPause to 30 s.
	Pause, MaxPause time.Duration
}

// breakerState is where a record stands.
type breakerState string

const (
	closed breakerState = "closed"
	open   breakerState = "open"
	hushed breakerState = "hushed"
	trying breakerState = "trying"
)

// record is how a worker does with a profile, and its breaker. Guarded by the manager's
// mutex.
type record struct {
	worker, profile string

	answers uint32 // the latest, bit 0 the newest; 1: scored
	n       int    // how many of them there are, at most judged
	struck  int    // answers in a row that blamed the worker
	holds   int    // samples that it has and has not answered
	last    string // message of its latest failure

	state     breakerState
	compared  bool // by what others make of the profile, not by its own word
	permanent bool // until the worker starts anew
	reason    string
	since     time.Time // when it opened
	until     time.Time // when the pause is over
	pause     time.Duration
	probe     *entry // the sample that tries it, and which of its attempts
	attempt   int
}

func (r *record) note(scored bool) {
	r.answers <<= 1
	if scored {
		r.answers |= 1
	}
	r.n = min(r.n+1, judged)
}

// dark reports whether none of the latest answers is a score.
func (r *record) dark() bool { return r.n == judged && r.answers == 0 }

func (r *record) scored() int { return bits.OnesCount32(r.answers) }

// probing reports whether a sample is on its way to try the worker.
func (r *record) probing() bool {
	e := r.probe
	switch {
	case e == nil:
		return false
	case e.state == published:
		return e.attempt == r.attempt
	}
	return e.state == running && slices.ContainsFunc(e.attempts, func(a *attempt) bool {
		return a.worker == r.worker && a.number == r.attempt && a.state == claimed
	})
}

// takes reports whether the worker may get a sample of the profile.
func (r *record) takes() bool {
	return r.state == closed || r.state == trying && !r.probing()
}

// breakers are the records of all live workers.
type breakers struct {
	cfg     Breaker
	records map[string]map[string]*record // by profile and worker
	dark    map[string]int                // records without a score, by profile
	shut    map[*record]bool              // those that are not closed: hardly ever any
	started map[string]time.Time          // of the workers of the last look, by id
	news    []breakerChange
}

// breakerChange is a breaker that has moved, for the log.
type breakerChange struct {
	Worker, Profile, Reason string
	Open, Permanent         bool
	Until                   time.Time
}

func newBreakers(cfg Breaker) breakers {
	return breakers{cfg: cfg, records: map[string]map[string]*record{}, dark: map[string]int{}, shut: map[*record]bool{}, started: map[string]time.Time{}}
}

func (b *breakers) of(worker, profile string) *record {
	by := b.records[profile]
	if by == nil {
		by = map[string]*record{}
		b.records[profile] = by
	}
	r := by[worker]
	if r == nil {
		r = &record{worker: worker, profile: profile, state: closed}
		by[worker] = r
	}
	return r
}

// Any implements dispatch.Breakers.
func (b *breakers) Any() bool { return len(b.shut) > 0 }

// Places implements dispatch.Breakers: a worker whose breaker is open has no place, and one
// that is being tried has one.
func (b *breakers) Places(worker, profile string, capacity int) int {
	switch r := b.records[profile][worker]; {
	case r == nil || r.state == closed:
		return capacity
	case r.takes():
		return min(capacity, 1)
	}
	return 0
}

// move puts a record into another state.
func (b *breakers) move(r *record, to breakerState) {
	was := r.state
	r.state = to
	if to != closed {
		b.shut[r] = true
	} else {
		delete(b.shut, r)
		r.struck, r.pause, r.until, r.compared, r.permanent, r.probe = 0, 0, time.Time{}, false, false, nil
	}
	if to == open || to == closed && (was == open || was == trying) {
		b.news = append(b.news, breakerChange{r.worker, r.profile, r.reason, to == open, r.permanent, r.until})
	}
}

// trip opens a breaker, for twice as long as the last time.
func (b *breakers) trip(now time.Time, r *record) {
	if r.state == closed || r.state == hushed {
		r.since = now
	}
	r.pause = min(max(2*r.pause, b.cfg.Pause), b.cfg.MaxPause)
	r.until = now.Add(r.pause)
	r.probe = nil
	b.move(r, open)
}

// tick lets one sample try each worker whose pause is over.
func (b *breakers) tick(now time.Time) {
	for r := range b.shut {
		switch {
		case r.permanent || r.until.After(now):
		case r.state == open:
			b.move(r, trying)
		case r.state == hushed && b.others(r):
			r.until = now.Add(hush)
		case r.state == hushed:
			b.forgive(r)
		}
	}
}

// others reports whether another worker has samples of the profile to answer.
func (b *breakers) others(r *record) bool {
	for _, o := range b.records[r.profile] {
		if o != r && o.holds > 0 {
			return true
		}
	}
	return false
}

// holds notes that a worker has so many samples of the profile more.
func (b *breakers) holds(worker, profile string, more int) {
	r := b.of(worker, profile)
	r.holds = max(r.holds+more, 0)
}

// forgive forgets what a record says.
func (b *breakers) forgive(r *record) {
	if r.dark() {
		b.dark[r.profile]--
	}
	r.n, r.answers = 0, 0
	b.move(r, closed)
}

// list are the records that are not closed, by profile and worker.
func (b *breakers) list() []*record {
	if len(b.shut) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Keys(b.shut), func(x, y *record) int {
		return cmp.Or(strings.Compare(x.profile, y.profile), strings.Compare(x.worker, y.worker))
	})
}

// due is when the next pause is over; zero: there is none.
func (b *breakers) due() (at time.Time) {
	for r := range b.shut {
		if (r.state == open && !r.permanent || r.state == hushed) && (at.IsZero() || r.until.Before(at)) {
			at = r.until
		}
	}
	return at
}

// meet compares the live workers with those of the last look: one that has gone, or has
// started anew under the same name, has no record any more.
func (b *breakers) meet(workers []wire.WorkerInfo) {
	same := len(workers) == len(b.started)
	for i := range workers {
		at, known := b.started[workers[i].ID]
		same = same && known && at.Equal(workers[i].Started)
	}
	if same {
		return
	}
	now := make(map[string]time.Time, len(workers))
	for i := range workers {
		now[workers[i].ID] = workers[i].Started
	}
	for profile, by := range b.records {
		for worker, r := range by {
			at, here := now[worker]
			if was, known := b.started[worker]; here && (!known || was.Equal(at)) {
				continue
			}
			if r.dark() {
				b.dark[profile]--
			}
			delete(b.shut, r)
			delete(by, worker)
		}
		if len(by) == 0 {
			delete(b.records, profile)
			delete(b.dark, profile)
		}
	}
	b.started = now
}

// judge takes a worker's answer in and reports whether another worker is to try.
func (c *core) judge(now time.Time, e *entry, a attempt, res *wire.Result) (elsewhere bool) {
	b := &c.breakers
	r := b.of(a.worker, e.profile)
	probe := r.state == trying && r.probe == e && r.attempt == a.number
	before := r.dark()
	good := res.Outcome == rewards.Scored || res.Partial != nil
	r.note(good)
	if after := r.dark(); after != before {
		b.dark[e.profile] += map[bool]int{true: 1, false: -1}[after]
	}
	why := failureOf(res)
	if !good {
		r.last = why.Message
	}
	switch {
	case good:
		r.struck = 0
		if r.state != closed {
			b.move(r, closed)
		}
	case why.Blame == rewards.BlameWorker:
		elsewhere = true
		if probe {
			e.bounces++
		}
		r.reason = r.last
		r.struck++
		if why.Permanent && !r.permanent {
			r.permanent, r.compared = true, false
			b.trip(now, r)
		} else if probe || r.state == closed && r.struck >= b.cfg.Failures {
			b.trip(now, r)
		}
	case r.compared && r.state != closed:
		elsewhere = true
		if probe {
			r.reason = r.darkness()
			b.trip(now, r)
		}
	case why.Blame == rewards.BlameReward:
		r.struck = 0
		if probe { // the worker works; what it runs fails
			b.move(r, closed)
		}
	case probe: // says nothing about the worker
		r.probe = nil
	}
	if b.dark[e.profile] > 0 {
		c.compare(now, e.profile)
		elsewhere = elsewhere || !good && (r.compared || r.state == hushed)
	}
	return elsewhere
}

// darkness is the reason of a breaker that a comparison has opened.
func (r *record) darkness() string {
	return fmt.Sprintf("the last %d samples of the worker got no score, while other workers score; the latest failure: %s", judged, r.last)
}

// compare opens the breakers of workers that fail everything of a profile while others
// score at least a quarter of it, and closes them where others do no better.
func (c *core) compare(now time.Time, profile string) {
	b := &c.breakers
	by := b.records[profile]
	answers, scored, others := 0, 0, 0
	for _, worker := range c.board.Profile(profile).Workers() {
		others++
		if r := by[worker]; r != nil {
			answers += r.n
			scored += r.scored()
		}
	}
	for _, r := range by {
		if !r.dark() || r.permanent || r.state != closed && r.state != hushed && !r.compared {
			continue
		}
		n := answers - r.n // those that scored nothing are not among scored
		switch {
		case n >= compared && 4*scored >= n:
			if !r.compared {
				r.compared, r.reason = true, r.darkness()
				b.trip(now, r)
			}
		case n >= compared:
			if r.state != closed {
				b.move(r, closed)
			}
		case others > 1 && r.state == closed:
			r.until = now.Add(hush)
			b.move(r, hushed)
		}
	}
}

// failureOf is the failure that decided about a result, of a group's that of its first
// member; empty: it has none.
func failureOf(res *wire.Result) rewards.ComponentError {
	if errs := firstErrors(res); res.Outcome != rewards.Scored && len(errs) > 0 {
		return errs[0]
	}
	return rewards.ComponentError{}
}

// another reports whether a sample that a worker failed may be tried by another: the workers
// that have failed it, but for the backup's, are fewer than MaxAttempts. The only worker of
// a profile gets it again, too, until its breaker is open.
func (e *entry) another(cfg *Config, a attempt) bool {
	failed := len(e.avoid)
	if !slices.Contains(e.avoid, a.worker) {
		failed++
	}
	e.backup.failed = e.backup.failed || a.backup
	if e.backup.failed {
		failed--
	}
	return failed < cfg.MaxAttempts && e.claims-e.bounces < sameAgain*cfg.MaxAttempts
}

// unsent notes that a ticket was not taken: it tries no worker, and may go elsewhere next.
func (b *breakers) unsent(e *entry) {
	for r := range b.shut {
		if r.probe == e {
			r.probe = nil
		}
	}
}

// sent notes that a ticket is on its way, and which worker it tries: one that may get a single sample of the profile. The others of the profile that may get none are
// returned, for the ticket's Avoid.
func (c *core) sent(e *entry, t *wire.Ticket) (avoid []string) {
	tried := false
	for _, r := range c.breakers.list() {
		switch {
		case r.profile != e.profile:
		case r.state == trying && r.probe == e && r.attempt == t.Attempt:
			tried = true
		case r.takes() && !tried && e.item.Profile().Serves(r.worker):
			tried = true
			r.probe, r.attempt = e, t.Attempt
		default:
			avoid = append(avoid, r.worker)
		}
	}
	return avoid
}
