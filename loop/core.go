package loop

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// core is the state machine of the gateway: which sample is next, who holds it,
// when it is lost, when it is final. It has no goroutine, no clock and no I/O:
// time comes in as an argument and what has to be done outside comes back as
// effects. The manager's mutex guards all of it.
type core struct {
	cfg       Config
	runs      map[string]*run
	entries   map[sampleKey]*entry
	alarms    alarms
	arrivals  uint64
	units     int     // entries that stand for whole groups
	unclaimed int     // tickets in the engine that no worker has claimed
	vnow      float64 // virtual time of the run served last
	metrics   *metrics
	// columns remembers, by profile, the extra columns of its first result, so that
	// a sample that never reached a worker has them too.
	columns   map[string]map[string]any
	pools     pools // as of the last look
	stepBytes int64 // of all rows that are kept
	bench     bench // the workers as the dispatcher sees them
	journal   *journal
}

// effects are what the caller does after it has left the mutex.
type effects struct {
	results  []answer
	revoked  []wire.AttemptKey
	released []*wire.Frame
	wake     bool // the dispatcher has something to look at
	whole    bool // the last sample of a step has arrived
	examined []Examined
	parked   bool    // a sample has begun to wait for its group, and its credit is free
	over     []*step // steps that have just ended
}

func newCore(cfg Config, m *metrics, kept Spool) *core {
	return &core{
		cfg: cfg, metrics: m, journal: &journal{kept}, runs: map[string]*run{}, entries: map[sampleKey]*entry{}, columns: map[string]map[string]any{},
		bench: newBench(cfg.Gateway), pools: pools{out: map[string]int{}},
	}
}

// runOf returns the run of that name, making it on first sight.
func (c *core) runOf(name string, now time.Time) *run {
	r := c.runs[name]
	if r == nil {
		weight := c.cfg.Weights[name]
		if weight == 0 {
			weight = 1
		}
		r = &run{
			name: name, weight: weight, done: newMemory(c.journal), sessions: map[sessionID]*Session{},
			steps: map[stepKey]*step{}, groups: map[groupKey]*group{}, counts: map[string]uint64{},
			pace: newPaces(), lanes: map[*step]*lane{},
		}
		c.runs[name] = r
	}
	r.lastUse = now
	return r
}

// admission is a sample that asks to be scored.
type admission struct {
	run      *run
	sample   *rewards.Sample // header fields only
	frame    *wire.Frame
	owner    owner
	deadline time.Time
	profile  string
	policy   rewards.SamplePolicy
	shut     bool      // the gateway drains or has stopped: only what it knows is answered
	received time.Time // when its first byte came; zero: at once
	arrived  time.Time // when it was here whole; zero: now
}

// admit takes a sample in, attaches a known one to its new owner, or answers one
// that is finished. The caller's reference to the frame passes to the core only if
// taken is true.
func (c *core) admit(now time.Time, a admission) (taken bool, fx effects, err error) {
	key := sampleKey{run: a.run.name, epoch: a.run.epoch, id: a.sample.ID}
	if strings.HasPrefix(key.id, unitMark) {
		return false, fx, refuse(rewards.Malformed, key.id, "ids that begin so are the gateway's own")
	}
	sum := a.frame.Sum()
	if e := c.entries[key]; e != nil {
		if !a.owner.remembers() {
			return false, fx, refuse(rewards.IDReused, key.id, "the id is in flight in run %q", key.run)
		}
		if e.sum != sum {
			return false, fx, refuse(rewards.IDReused, key.id, "the id is in flight with other bytes (%d, now %d)", e.sum.Len, sum.Len)
		}
		e.owner.expects(-1)
		e.owner = a.owner
		e.owner.expects(1)
		return false, fx, nil
	}
	if s := a.run.done.get(key); s != nil {
		if s.sum != sum {
			return false, fx, refuse(rewards.IDReused, key.id, "the id was answered for other bytes (%d, now %d)", s.sum.Len, sum.Len)
		}
		fx.results = append(fx.results, answer{s, a.owner})
		return false, fx, nil
	}
	if g := int64(a.sample.GroupSize); a.sample.HasGroup() && slices.Contains(c.cfg.GroupProfiles, a.profile) && g*a.frame.Size() > c.cfg.MaxBytes-c.cfg.MaxBytes/4 {
		return false, fx, refuse(rewards.TooLarge, key.id, "the %d members of group %q, %d bytes each, do not fit into three quarters of loop.max_bytes = %d, "+
			"where all of them wait for the last", g, a.sample.UID, a.frame.Size(), c.cfg.MaxBytes)
	}
	if st := a.run.steps[stepKeyOf(a.sample)]; st != nil && st.closed {
		return false, fx, refuse(rewards.Expired, key.id, "step %d (%s) ended at its deadline, %v before it came", st.key.step, st.key.split, now.Sub(st.closes).Round(time.Millisecond))
	}
	if a.shut { // since its bytes were booked
		return false, fx, refuse(rewards.Draining, key.id, "the gateway accepts nothing new")
	}
	c.insert(now, key, sum, a)
	fx.wake = true
	fx.whole = c.entries[key].step.whole()
	return true, fx, nil
}

// knows reports whether a sample is in flight or its answer remembered.
func (c *core) knows(key sampleKey) bool {
	if c.entries[key] != nil {
		return true
	}
	r := c.runs[key.run]
	return r != nil && r.done.get(key) != nil
}

func (c *core) insert(now time.Time, key sampleKey, sum wire.Checksum, a admission) {
	s := a.sample
	if s.UID == "" && s.GroupSize > 1 && slices.Contains(c.cfg.GroupByPrompt, a.profile) {
		own := *s
		own.UID = rewards.PromptUID(s.Prompt)
		s = &own
	}
	c.arrivals++
	arrived := a.arrived
	if arrived.IsZero() {
		arrived = now
	}
	e := &entry{
		key: key, frame: a.frame, sum: sum, run: a.run, order: c.arrivals, index: s.Index, profile: a.profile,
		policy: a.policy, arrived: arrived, deadline: a.deadline, bytes: a.frame.Size(), owner: a.owner,
		state: queued, attempt: 1, issued: 1, heapIndex: -1, stepIndex: -1, alarm: alarm{index: -1},
	}
	e.alarm.entry = e
	e.step = c.stepOf(a.run, stepKeyOf(s), now)
	e.step.arrived++
	c.assemble(e, s, a.received)
	e.step.inflight++
	e.step.last = now
	if s.HasGroup() {
		g, fresh := a.run.groupOf(groupKey{e.step.key, s.UID, key.epoch}, s.GroupSize, now)
		if fresh {
			g.step, g.deadline = e.step, e.deadline
			c.alarms.set(&g.alarm, e.deadline)
		}
		g.join(key.id)
		e.group = g
	}
	c.entries[key] = e
	c.alarms.set(&e.alarm, e.deadline)
	c.enqueue(e)
	a.run.inflight++
	e.owner.expects(1)
}

// enqueue puts an entry into its run's queue. A run that was idle starts at the
// virtual time of now: idling earns no credit.
func (c *core) enqueue(e *entry) {
	if e.run.queue.Len() == 0 {
		e.run.vtime = math.Max(e.run.vtime, c.vnow)
	}
	e.state = queued
	e.run.queue.add(e)
	e.run.laneOf(e.step).add(e)
	if c.cfg.Dispatch.Policy == RandomBlind {
		c.bench.blind.drawing = append(c.bench.blind.drawing, e)
	}
}

// dequeue takes an entry out of its run's queue.
func (c *core) dequeue(e *entry) {
	e.run.queue.remove(e)
	e.run.laneOf(e.step).remove(e)
	c.bench.blind.leave(e)
}

// next picks the sample whose ticket is to be published, or none if the engine
// holds as many unclaimed tickets as there are live slots for what waits.
func (c *core) next(now time.Time, workers []wire.WorkerInfo) (wire.Ticket, bool) {
	c.pools.survey(workers)
	if c.unclaimed >= c.pools.slots {
		return wire.Ticket{}, false
	}
	e, slow := c.choose(now, workers)
	if e == nil {
		return c.backup(now, workers)
	}
	c.dequeue(e)
	c.vnow = e.run.vtime
	e.charged = c.charge(e.run)
	e.state, e.published = published, now
	c.aim(e, slow)
	e.pool = c.pool(e.profile)
	c.ticketOut(e.pool)
	c.alarms.set(&e.alarm, earliest(e.deadline, now.Add(c.cfg.RepublishAfter)))
	return c.ticket(e, e.attempt, workers), true
}

// turn is the sample that is served next: of the runs with samples that may go, the first
// of the one that has had the least of its share.
func (c *core) turn() *entry {
	var best *entry
	for _, r := range c.runs {
		if r.queue.Len() == 0 || best != nil && !r.precedes(best.run) {
			continue
		}
		if e := r.queue.first(c.pools.room); e != nil {
			best = e
		}
	}
	return best
}

// charge books what a ticket of the run is expected to cost.
func (c *core) charge(r *run) time.Duration {
	d := r.expected()
	r.vtime += d.Seconds() / r.weight
	return d
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// ticket describes an attempt at the entry. Workers to avoid are named only while
// another one is ready.
func (c *core) ticket(e *entry, attempt int, workers []wire.WorkerInfo) wire.Ticket {
	t := wire.Ticket{
		ID: e.key.id, Run: e.key.run, Epoch: e.key.epoch, Step: e.step.key.step, Reward: e.profile, Gateway: c.cfg.Gateway,
		Attempt: attempt, Bytes: e.bytes, Deadline: e.deadline, Expect: e.run.mean, Group: e.unit != nil,
		To: e.to, Pool: e.pool,
	}
	if e.spare.out && attempt == e.spare.attempt {
		t.Pool = e.spare.pool
	}
	if t.To != "" {
		return t
	}
	avoid := e.avoid
	for _, h := range e.holders {
		avoid = append(slices.Clip(avoid), h.worker)
	}
	if len(e.slow) > 0 {
		avoid, t.Aside = append(slices.Clip(avoid), e.slow...), true
	}
	for _, w := range workers {
		if w.State == wire.WorkerReady && !slices.Contains(avoid, w.ID) {
			t.Avoid = slices.Clone(avoid)
			break
		}
	}
	return t
}

// unpublish takes a ticket back that the engine did not accept.
func (c *core) unpublish(t wire.Ticket) {
	e := c.entries[sampleKey{t.Run, t.Epoch, t.ID}]
	switch {
	case e == nil:
	case e.spare.out && e.spare.attempt == t.Attempt && e.state == running:
		c.dropSpare(e)
	case e.state == published && e.attempt == t.Attempt:
		c.ticketIn(e.pool)
		c.refund(e, &e.charged, 0)
		c.unaim(e)
		c.enqueue(e)
		c.alarms.set(&e.alarm, e.deadline)
	}
}

// refund replaces the charge for a ticket by what it really took.
func (c *core) refund(e *entry, charged *time.Duration, took time.Duration) {
	e.run.vtime += (took - *charged).Seconds() / e.run.weight
	*charged = 0
}

// claim hands the payload to a worker: its start notice. The frame, or the frames of
// a group, have a reference of their own.
func (c *core) claim(now time.Time, t wire.Ticket, worker string) (*wire.Frame, *wire.Group, effects, error) {
	e := c.entries[sampleKey{t.Run, t.Epoch, t.ID}]
	if e == nil || !e.open(t.Attempt) || t.Group != (e.unit != nil) {
		return nil, nil, effects{}, wire.ErrGone
	}
	backup := t.Attempt == e.spare.attempt
	if gone, fx := c.exhausted(now, e, backup, worker); gone {
		return nil, nil, fx, wire.ErrGone
	}
	switch {
	case e.state == published && backup: // it was promoted
		c.ticketIn(e.pool)
		e.spare.charged, e.charged = e.charged, 0
	case e.state == published:
		c.ticketIn(e.pool)
	case backup && e.spare.out:
		c.ticketIn(e.spare.pool)
		e.spare.out = false
	}
	if e.claimed.IsZero() {
		e.claimed = now
	}
	e.state, e.refused = running, time.Time{}
	c.unaim(e)
	if backup {
		e.spare.claims++
	} else {
		e.claims++
	}
	if _, again := c.dismiss(e, worker); again {
		c.metrics.redelivered.Inc()
	}
	c.hold(e, holder{worker: worker, attempt: t.Attempt, since: now, backup: backup})
	c.watch(e)
	if e.unit != nil {
		return nil, e.unit.payload(), effects{wake: true}, nil
	}
	e.frame.Retain()
	return e.frame, nil, effects{wake: true}, nil
}

// lose ends a sample whose workers kept vanishing.
func (c *core) lose(now time.Time, e *entry) effects {
	var fx effects
	errs := []rewards.TermError{{
		Class: rewards.Lost, Message: fmt.Sprintf("handed out %d times and never answered", e.claims), Attempts: e.claims,
	}}
	if e.unit != nil {
		c.failGroup(now, e, rewards.OutcomeWorkerLost, errs, &fx)
		return fx
	}
	c.settle(now, e, &wire.Result{Outcome: rewards.OutcomeWorkerLost, Errors: errs}, &fx)
	return fx
}

// finish takes a worker's answer. The first one that counts wins; later ones are
// counted and dropped. A failure that another attempt may mend sends the sample
// back to its queue.
func (c *core) finish(now time.Time, res *wire.Result) effects {
	var fx effects
	e := c.entries[sampleKey{res.Attempt.Run, res.Attempt.Epoch, res.ID}]
	if e == nil || e.state == held || e.state == gathered {
		c.metrics.late.Inc()
		return fx
	}
	h, held := c.answered(e, res)
	if held {
		c.account(now, e, h, res)
	}
	switch {
	case e.unit != nil:
		c.finishGroup(now, e, res, held && e.state == running, &fx)
	case res.Outcome == rewards.Scored:
		c.settle(now, e, res, &fx)
	case res.Partial != nil:
		c.gather(now, e, res, &fx)
	case !held || e.state != running:
		c.metrics.late.Inc() // a failure of an attempt that is over says nothing
	case res.Outcome == rewards.OutcomeCancelled:
		c.again(e, &fx)
	case retryable(res) && (e.claims < c.cfg.MaxAttempts || e.elsewhere()) && now.Before(e.deadline):
		e.errors = append(e.errors, res.Errors...)
		e.avoid = append(e.avoid, res.Worker)
		c.metrics.retries.Inc()
		c.again(e, &fx)
	default:
		c.settle(now, e, res, &fx)
	}
	return fx
}

// retryable reports whether another worker may do better: every class that says
// something about the worker rather than about the sample.
func retryable(res *wire.Result) bool {
	if len(res.Errors) == 0 {
		return false
	}
	switch res.Errors[0].Class { // the one that decided
	case rewards.Crashed, rewards.Unavailable, rewards.Timeout, rewards.Panicked, rewards.Internal:
		return true
	}
	return false
}

// again queues the entry for its next attempt, unless another holder is still at it.
// A holder whose lease has lapsed is not waited for: it may be dead.
func (c *core) again(e *entry, fx *effects) {
	fx.wake = true
	if e.elsewhere() {
		if !e.spare.out || slices.ContainsFunc(e.holders, func(h holder) bool { return !h.lapsed }) {
			c.watch(e)
			return
		}
		c.promote(e)
		return
	}
	c.unrank(e)
	e.issued++
	e.attempt = e.issued
	e.spare.attempt = 0 // it has had its backup
	c.enqueue(e)
	c.alarms.set(&e.alarm, e.deadline)
}

// settle ends the scoring of a sample: its result is final, unless it waits for
// its prompt group.
func (c *core) settle(now time.Time, e *entry, res *wire.Result, fx *effects) {
	c.examine(e, res)
	c.withdraw(now, e, fx)
	c.complete(e, res)
	e.result = res
	g := e.group
	if g == nil {
		res.Substitute = substituteFor(e, res, nil)
		if res.Pending != nil { // a worker saw a group that the gateway does not
			finishPending(res, nil)
		}
		c.finalise(now, e, fx)
		return
	}
	taken := res.Outcome == rewards.OutcomeCancelled // its client wants nothing in its place
	waits := res.Pending != nil || (res.Outcome != rewards.Scored && !taken && e.policy.Policy == rewards.PolicyGroupMean)
	if g.closed || !waits {
		c.settleClosed(now, e, fx)
		return
	}
	e.state = held
	c.alarms.set(&e.alarm, e.deadline)
	if g.settle(e.key.id, member{values: res.Values, held: e}) {
		c.closeGroup(now, g, fx)
		return
	}
	c.proceed(now, g, fx)
}

// settleClosed ends a sample that need not, or can no longer, wait for its group.
func (c *core) settleClosed(now time.Time, e *entry, fx *effects) {
	g, res := e.group, e.result
	if g.closed {
		finishPending(res, g.means)
		res.Substitute = substituteFor(e, res, g.mean)
		res.Group = &g.stats
	} else {
		res.Substitute = substituteFor(e, res, nil)
	}
	m := member{values: res.Values}
	if res.RewardScore != nil {
		m.scored, m.reward = true, *res.RewardScore
	}
	complete := g.settle(e.key.id, m)
	if complete { // this very member completes it: its result carries the statistics
		c.closeGroup(now, g, fx)
		res.Group = &g.stats
	}
	c.finalise(now, e, fx)
	c.proceed(now, g, fx)
}

func substituteFor(e *entry, res *wire.Result, mean *float64) *wire.Substitute {
	if res.RewardScore != nil || res.Pending != nil {
		return nil
	}
	return substitute(e.policy, mean)
}

// closeGroup finishes a group and everything that waited for it.
func (c *core) closeGroup(now time.Time, g *group, fx *effects) {
	if g.closed {
		return
	}
	c.alarms.clear(&g.alarm)
	spreads := g.spreads()
	kept := g.kept()
	for _, e := range g.close() {
		c.finalise(now, e, fx)
	}
	c.journal.left(g, kept) // last: who is still to be answered needs them
	g.step.stats.noteGroup(&g.stats, spreads)
}

// withdraw takes the entry out of wherever it is, and lets its frame go.
func (c *core) withdraw(now time.Time, e *entry, fx *effects) {
	if e.state == gathered {
		c.leave(now, e, fx)
	}
	c.recall(now, e, fx)
	if e.frame != nil {
		fx.released = append(fx.released, e.frame)
		e.frame = nil
	}
}

// recall takes the entry out of the queue, the engine and the workers' hands.
func (c *core) recall(now time.Time, e *entry, fx *effects) {
	switch e.state {
	case queued:
		c.dequeue(e)
	case published:
		c.ticketIn(e.pool)
		c.refund(e, &e.charged, 0)
		c.unaim(e)
		fx.revoked = append(fx.revoked, c.keyOf(e, e.attempt))
	}
	if e.spare.out && e.state == running {
		fx.revoked = append(fx.revoked, c.keyOf(e, e.spare.attempt))
		c.dropSpare(e)
	}
	c.unrank(e)
	own := len(fx.revoked)
	for len(e.holders) > 0 { // the sample's one answer is there, or nobody wants it any more
		h := c.letGo(e, 0)
		e.tried(h, now, string(rewards.OutcomeCancelled))
		if key := c.keyOf(e, h.attempt); !slices.Contains(fx.revoked[own:], key) {
			fx.revoked = append(fx.revoked, key)
		}
		if h.lapsed {
			continue
		}
		took := now.Sub(h.since)
		c.refund(e, e.chargedFor(h), took)
		if e.spare.sent {
			c.metrics.backupSeconds.Add(took.Seconds())
		}
	}
	fx.wake = true
}

// complete fills what the gateway knows better than the worker.
func (c *core) complete(e *entry, res *wire.Result) {
	res.Type, res.ID, res.Attempts = "result", e.key.id, e.claims
	if len(e.errors) > 0 {
		res.Errors = append(slices.Clone(e.errors), res.Errors...)
		if res.Outcome != rewards.Scored { // the failure that decided stays first
			n := len(e.errors)
			res.Errors = append(slices.Clone(res.Errors[n:]), res.Errors[:n]...)
		}
	}
	if len(res.ExtraInfo) > len(c.columns[e.profile]) { // a first success may know more than a failure before it
		c.columns[e.profile] = absent(res.ExtraInfo)
	}
	if res.ExtraInfo == nil {
		res.ExtraInfo = maps.Clone(c.columns[e.profile])
		if res.ExtraInfo == nil {
			res.ExtraInfo = map[string]any{}
		}
	}
}

// absent is the same columns without values.
func absent(extra map[string]any) map[string]any {
	empty := make(map[string]any, len(extra))
	for k, v := range extra {
		empty[k] = nil
		if _, text := v.(string); text {
			empty[k] = ""
		}
	}
	return empty
}

// finalise makes the held or settled result the one final result of the sample.
func (c *core) finalise(now time.Time, e *entry, fx *effects) {
	res := e.result
	e.state = final
	e.owner.expects(-1)
	delete(c.entries, e.key)
	c.alarms.clear(&e.alarm)
	e.run.inflight--
	e.run.counts[string(res.Outcome)]++
	e.step.inflight--
	e.step.counts[res.Outcome]++
	e.step.finished = now
	e.run.noteResult(e.step, res)
	c.assembled(now, e, res, fx)
	queue := now.Sub(e.arrived)
	if !e.claimed.IsZero() {
		queue = e.claimed.Sub(e.arrived)
	}
	total := now.Sub(e.arrived)
	if res.TimingMS == nil {
		res.TimingMS = map[string]float64{}
	}
	res.TimingMS["queue"], res.TimingMS["total"] = millis(queue), millis(total)
	res.ExtraInfo["rewardloop/valid"] = res.RewardScore != nil
	res.ExtraInfo["rewardloop/attempts"] = int64(e.claims)
	res.ExtraInfo["rewardloop/queue_ms"] = millis(queue)
	res.ExtraInfo["rewardloop/latency_ms"] = millis(total)
	s := &stored{key: e.key, sum: e.sum, res: res, size: sizeOf(res), at: now}
	if e.owner.remembers() {
		e.run.done.add(s)
		c.journal.joined(e) // first: a group that lacks an answered member would wait for it
		c.journal.answered(s)
	}
	if n := e.run.done.trim(&c.cfg, now); n > 0 {
		c.metrics.forgotten.Add(float64(n))
	}
	c.metrics.outcomes.WithLabelValues(string(res.Outcome)).Inc()
	c.metrics.stage.WithLabelValues("queue").Observe(queue.Seconds())
	c.metrics.stage.WithLabelValues("total").Observe(total.Seconds())
	fx.results = append(fx.results, answer{s, e.owner})
	if e.examined != nil {
		fx.examined = append(fx.examined, Examined{e.examined, res})
	}
}

func millis(d time.Duration) float64 { return math.Round(d.Seconds()*1e6) / 1e3 }

// sizeOf estimates what a remembered result costs.
func sizeOf(r *wire.Result) int64 {
	size := int64(512 + len(r.ID) + 8*len(r.StepScores))
	for k, v := range r.ExtraInfo {
		size += int64(len(k)) + 24
		if s, ok := v.(string); ok {
			size += int64(len(s))
		}
	}
	for _, e := range r.Errors {
		size += int64(len(e.Message)) + 64
	}
	return size + detailSize(r.Details, 0)
}

// detailSize walks the details, which scorers bound themselves, to a fixed depth.
func detailSize(v any, depth int) int64 {
	switch t := v.(type) {
	case string:
		return int64(len(t)) + 16
	case map[string]any:
		var n int64
		for k, x := range t {
			if depth < 6 {
				n += int64(len(k)) + 16 + detailSize(x, depth+1)
			}
		}
		return n
	case []any:
		var n int64
		for _, x := range t {
			if depth < 6 {
				n += detailSize(x, depth+1)
			}
		}
		return n
	}
	return 64
}

// cancel ends samples that their client takes back.
func (c *core) cancel(now time.Time, r *run, ids []string, reason string) effects {
	var fx effects
	for _, id := range ids {
		if e := c.entries[sampleKey{r.name, r.epoch, id}]; e != nil && e.state != held {
			c.settle(now, e, &wire.Result{
				Outcome: rewards.OutcomeCancelled, Errors: []rewards.TermError{{Class: rewards.Cancelled, Message: reason}},
			}, &fx)
		}
	}
	return fx
}

// newEpoch forgets everything of a run: its trainer started anew and may use its
// ids again.
func (c *core) newEpoch(now time.Time, r *run, epoch uint64) effects {
	var fx effects
	for key, e := range c.entries {
		if key.run == r.name {
			c.withdraw(now, e, &fx)
			e.owner.expects(-1)
			c.alarms.clear(&e.alarm)
			delete(c.entries, key)
			c.metrics.outcomes.WithLabelValues(string(rewards.OutcomeCancelled)).Inc()
		}
	}
	for _, g := range r.groups {
		c.alarms.clear(&g.alarm)
	}
	r.epoch, r.inflight, r.done = epoch, 0, newMemory(c.journal)
	c.journal.begins(r)
	for _, st := range r.stepLog {
		c.forgetStep(st, "the run began anew")
	}
	r.steps, r.stepLog = map[stepKey]*step{}, nil
	r.progress()
	r.groups, r.groupLog = map[groupKey]*group{}, nil
	clear(r.lanes)
	return fx
}

// tick handles everything whose time has come and returns when to come back.
func (c *core) tick(now time.Time, workers []wire.WorkerInfo) (again []wire.Ticket, fx effects, next time.Time) {
	c.bench.fresh, c.bench.due = false, time.Time{}
	for len(c.alarms) > 0 && !c.alarms[0].at.After(now) {
		a := c.alarms[0]
		if a.group != nil {
			c.lookAtGroup(now, a.group, &fx)
			continue
		}
		if a.step != nil {
			c.closeStep(now, a.step, &fx)
			continue
		}
		if t, republish := c.look(now, a.entry, workers, &fx); republish {
			again = append(again, t)
		}
	}
	c.reconsider(now, workers, &fx)
	if len(c.alarms) > 0 {
		next = c.alarms[0].at
	}
	return again, fx, next
}

// lookAtGroup decides about a group whose alarm went off. It always moves or clears the
// alarm.
func (c *core) lookAtGroup(now time.Time, g *group, fx *effects) {
	switch {
	case len(g.waiting) > 0 && !g.begun: // the others have had their time
		c.begin(now, g, fx)
	case g.unit != nil: // whoever scores it ends it, by the deadline of a member
		c.alarms.clear(&g.alarm)
	default:
		c.closeGroup(now, g, fx)
		c.alarms.clear(&g.alarm)
	}
}

// look decides about one entry whose alarm went off. It always moves or clears the
// alarm.
func (c *core) look(now time.Time, e *entry, workers []wire.WorkerInfo, fx *effects) (wire.Ticket, bool) {
	switch {
	case e.state == held:
		c.releaseHeld(now, e, fx)
	case !now.Before(e.deadline) && e.unit != nil:
		c.failGroup(now, e, rewards.OutcomeExpired, []rewards.TermError{{
			Class: rewards.Expired, Message: fmt.Sprintf("group %q was not scored before the deadline of a member; it was %s", e.unit.key.uid, e.state),
		}}, fx)
	case !now.Before(e.deadline):
		where := "it was " + string(e.state)
		if n := len(e.holders); n > 0 {
			where += " on " + e.holders[n-1].worker
		}
		if e.state == gathered {
			where = e.awaited()
		}
		c.settle(now, e, &wire.Result{
			Outcome: rewards.OutcomeExpired,
			Errors: []rewards.TermError{{
				Class: rewards.Expired, Message: e.lateness() + where,
			}},
		}, fx)
		if e.state == held { // its group may outlive it, its deadline does not
			c.releaseHeld(now, e, fx)
		}
	case e.state == published:
		c.alarms.set(&e.alarm, earliest(e.deadline, now.Add(c.cfg.RepublishAfter)))
		c.pools.survey(workers)
		if !c.pools.live(e.pool) && c.pools.served(e.profile) { // its pool is gone, and another one could score it
			c.takeBack(now, e, fx)
		} else if idle(workers) {
			c.metrics.republished.Inc()
			return c.ticket(e, e.attempt, workers), true
		}
	case e.state == running:
		c.overdue(now, e, fx)
	default:
		c.alarms.set(&e.alarm, e.deadline)
	}
	return wire.Ticket{}, false
}

// releaseHeld finishes a held entry at its own deadline with what its group has by now.
func (c *core) releaseHeld(now time.Time, e *entry, fx *effects) {
	g := e.group
	means := g.termMeans()
	finishPending(e.result, means)
	m := member{values: e.result.Values}
	if e.result.RewardScore != nil {
		m.scored, m.reward = true, *e.result.RewardScore
	}
	g.settle(e.key.id, m)
	e.result.Substitute = substituteFor(e, e.result, g.meanNow())
	c.finalise(now, e, fx)
}

// meanNow is the mean of the rewards that stand so far.
func (g *group) meanNow() *float64 {
	var sum float64
	n := 0
	for _, m := range g.members {
		if m.scored {
			sum += m.reward
			n++
		}
	}
	if n == 0 {
		return nil
	}
	mean := sum / float64(n)
	return &mean
}

// idle reports whether any ready worker has a free slot.
func idle(workers []wire.WorkerInfo) bool {
	for _, w := range workers {
		if w.State == wire.WorkerReady && w.Busy < w.Slots {
			return true
		}
	}
	return false
}

// queued reports whether a sample waits for workers that are there.
func (c *core) queued() bool {
	for _, r := range c.runs {
		if r.queue.Len() > 0 && r.queue.first(c.pools.served) != nil {
			return true
		}
	}
	return false
}

// waiting reports whether any sample is queued, or in the engine for some workers only:
// who is there may change without a word.
func (c *core) waiting() bool {
	if len(c.bench.aimed) > 0 {
		return true
	}
	for _, r := range c.runs {
		if r.queue.Len() > 0 {
			return true
		}
	}
	return false
}

// abort ends a sample because the gateway does, held or not.
func (c *core) abort(now time.Time, e *entry, reason string, fx *effects) {
	if e.state == held {
		c.releaseHeld(now, e, fx)
		return
	}
	if e.unit != nil {
		c.drop(now, e.unit, fx)
		return
	}
	if e.state == gathered {
		c.leave(now, e, fx)
		e.state = running // without holders: out of everybody's hands
	}
	e.group = nil // nobody waits any more
	c.settle(now, e, &wire.Result{
		Outcome: rewards.OutcomeCancelled, Errors: []rewards.TermError{{Class: rewards.Cancelled, Message: reason}},
	}, fx)
}
