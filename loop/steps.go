package loop

import (
	"fmt"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/internal/sim"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// stepKey names a step within a run.
type stepKey struct {
	split rewards.Split
	step  int64
}

// stepKeyOf is the step of a sample; a sample without a split is one of the training.
func stepKeyOf(s *rewards.Sample) stepKey { return keyOfStep(s.Split, s.Step) }

func keyOfStep(split rewards.Split, n int64) stepKey {
	if split == "" {
		split = rewards.Train
	}
	return stepKey{split, n}
}

// step is what has become of one step's samples. Guarded by the manager's mutex.
type step struct {
	key      stepKey
	run      *run
	closes   time.Time // orders the queue; the deadline, once somebody has declared the step
	first    time.Time
	last     time.Time // arrival of the latest sample
	finished time.Time // latest final result
	expected int       // declared; 0: unknown
	declared map[sessionID]int
	ended    bool // a client said that it sends no more
	arrived  int
	inflight int
	examined int // samples that people look at
	counts   map[rewards.Outcome]int
	stats    stepStats

	// Of the rewards as a whole (assembly.go).
	assembly  *assembly      // nil until the first sample of a websocket, and once forgotten
	forgotten string         // why the rows are gone; empty: they are not
	names     map[string]int // declared ids, and their place
	alarm     alarm          // the deadline
	policy    string         // at the deadline
	closed    bool           // the deadline has ended it
	absent    []*row         // rows of samples that had not come by then
	told      bool           // its end was reported
	slots     int            // the most live ones while its samples were scored
	report    *sim.Report    // once it is over
}

// whole reports whether all that is to come of the step has arrived.
func (st *step) whole() bool {
	return st.closed || st.ended || st.expected > 0 && st.arrived >= st.expected
}

// concluded reports whether nothing of the step is open any more.
func (st *step) concluded() bool { return st.whole() && st.inflight == 0 }

// short reports whether the deadline left samples without a result of their own.
func (st *step) short() bool {
	if !st.closed {
		return false
	}
	return len(st.absent) > 0 || st.expected > st.arrived || st.assembly != nil && slices.ContainsFunc(st.assembly.rows, func(r *row) bool { return r.atDeadline })
}

// keptSteps and keptGroups bound what a run remembers for the status page.
const (
	keptSteps  = 64
	keptGroups = 4096
)

// stepOf returns a run's record of a step, making it on the first sample, and
// forgets the oldest steps that nothing is in flight for.
func (c *core) stepOf(r *run, key stepKey, now time.Time) *step {
	if st := r.steps[key]; st != nil {
		return st
	}
	st := &step{
		key: key, run: r, first: now, closes: now.Add(c.cfg.StepTimeout), counts: map[rewards.Outcome]int{},
		alarm: alarm{index: -1}, policy: c.cfg.OnStepDeadline,
	}
	st.alarm.step = st
	r.steps[key] = st
	r.stepLog = append(r.stepLog, st)
	if len(r.stepLog) > keptSteps {
		for i, old := range r.stepLog {
			if old.inflight == 0 && old != st {
				c.forgetStep(old, fmt.Sprintf("%d later steps have begun", keptSteps))
				delete(r.steps, old.key)
				r.stepLog = append(r.stepLog[:i], r.stepLog[i+1:]...)
				break
			}
		}
	}
	return st
}

// maxNames bounds the ids that a step may be told of.
const maxNames = 1 << 17

// declare takes a client's word about a step: how many samples of it there are, their
// names, and when it ends.
func (c *core) declare(now time.Time, r *run, from sessionID, msg *wire.Step) (effects, error) {
	st := c.stepOf(r, keyOfStep(msg.Split, msg.Step), now)
	if st.closed {
		return effects{}, fmt.Errorf("%w: step %d (%s) ended at its deadline", rewards.Expired, st.key.step, st.key.split)
	}
	if len(st.names)+len(msg.IDs) > maxNames {
		return effects{}, fmt.Errorf("%w: more than %d ids for step %d", rewards.TooLarge, maxNames, st.key.step)
	}
	if st.names == nil && len(msg.IDs) > 0 {
		st.names = make(map[string]int, len(msg.IDs))
	}
	for _, id := range msg.IDs {
		if _, known := st.names[id]; !known {
			st.names[id] = len(st.names)
			c.stepBytes += int64(len(id)) + 64
		}
	}
	if msg.Total {
		st.expected, st.declared = int(msg.Expected), nil
	} else {
		if st.declared == nil {
			st.declared = map[sessionID]int{}
		}
		st.declared[from] = int(msg.Expected)
		st.expected = 0
		for _, n := range st.declared {
			st.expected += n
		}
	}
	if msg.OnDeadline != "" {
		st.policy = msg.OnDeadline
	}
	if msg.DeadlineMS > 0 {
		st.closes = now.Add(time.Duration(msg.DeadlineMS) * time.Millisecond)
		r.queue.reorder()
	}
	if st.expected > 0 {
		c.alarms.set(&st.alarm, st.closes)
	}
	return c.whole(now, st), nil
}

// endStep takes a client's word that it sends no more.
func (c *core) endStep(now time.Time, r *run, msg *wire.EndOfStep) effects {
	st := c.stepOf(r, keyOfStep(msg.Split, msg.Step), now)
	st.ended = true
	if st.inflight > 0 {
		c.alarms.set(&st.alarm, st.closes)
	}
	return c.whole(now, st)
}

// whole says what is to be done after a word about a step.
func (c *core) whole(now time.Time, st *step) effects {
	fx := effects{whole: st.arrived > 0 && st.whole(), wake: true}
	c.noteOver(now, st, &fx)
	st.run.progress()
	return fx
}

// closeStep ends a step at its deadline: whatever is in flight expires now, and nothing
// more is taken in.
func (c *core) closeStep(now time.Time, st *step, fx *effects) {
	c.alarms.clear(&st.alarm)
	if st.concluded() {
		return
	}
	st.closed = true
	var open []*entry
	for _, e := range c.entries {
		if e.step == st {
			open = append(open, e)
		}
	}
	slices.SortFunc(open, func(a, b *entry) int { return int(a.order) - int(b.order) }) //nolint:gosec // counts
	for _, e := range open {
		if e.state != final {
			e.deadline = now
			c.look(now, e, nil, fx)
		}
	}
	st.findAbsent()
	c.metrics.stepsShort.Inc()
	c.noteOver(now, st, fx)
	st.run.progress()
}

// lateness begins the message of a sample whose time has passed.
func (e *entry) lateness() string {
	if e.step.closed {
		return fmt.Sprintf("step %d (%s) ended at its deadline, %v after the sample had come; ",
			e.step.key.step, e.step.key.split, e.deadline.Sub(e.arrived).Round(time.Millisecond))
	}
	return fmt.Sprintf("no result within %v; ", e.deadline.Sub(e.arrived))
}

// findAbsent makes rows of the samples that never came, as far as they are known: by
// their declared ids, else by the rows that nobody has filled.
func (st *step) findAbsent() {
	missing := st.expected - st.arrived
	if missing <= 0 {
		return
	}
	a := st.assembly
	if a == nil {
		a = newAssembly()
		st.assembly = a
	}
	placed := len(st.names) == st.expected // the ids were declared in the order of the batch
	for _, r := range a.rows {
		if at, known := st.names[r.id]; !known || r.index == nil || *r.index != int64(at) {
			placed = false
		}
	}
	if len(st.names) > 0 {
		for id, at := range st.names {
			if a.byID[id] != nil {
				continue
			}
			r := &row{id: id, outcome: rewards.OutcomeExpired, atDeadline: true}
			if placed {
				r.index = new(int64(at))
			}
			st.absent = append(st.absent, r)
		}
	} else if len(a.byIndex) == len(a.rows) {
		for i := range int64(st.expected) {
			if a.byIndex[i] == nil && len(st.absent) < missing {
				st.absent = append(st.absent, &row{index: new(i), outcome: rewards.OutcomeExpired, atDeadline: true})
			}
		}
	}
	slices.SortFunc(st.absent, byRow)
}

// assemble makes the row of a sample that has arrived, where somebody may ask for the
// step as a whole: over a websocket.
func (c *core) assemble(e *entry, s *rewards.Sample, received time.Time) {
	st := e.step
	if !e.owner.remembers() || st.forgotten != "" {
		return
	}
	if st.assembly == nil {
		st.assembly = newAssembly()
	}
	if received.IsZero() {
		received = e.arrived
	}
	if received.Before(st.first) {
		st.first = received
	}
	before := st.assembly.bytes
	e.row = st.assembly.add(e, s, received)
	c.stepBytes += st.assembly.bytes - before
}

// assembled takes a final result into its step.
func (c *core) assembled(now time.Time, e *entry, res *wire.Result, fx *effects) {
	st := e.step
	st.slots = max(st.slots, c.pools.slots)
	if e.row != nil && st.assembly != nil && st.forgotten == "" {
		before := st.assembly.bytes
		if st.assembly.finish(now, e, res) {
			st.run.progress()
		}
		c.stepBytes += st.assembly.bytes - before
		c.trimSteps(now)
	}
	c.noteOver(now, st, fx)
}

// noteOver reports the end of a step, once.
func (c *core) noteOver(_ time.Time, st *step, fx *effects) {
	if st.told || !st.concluded() || st.arrived == 0 && !st.closed {
		return
	}
	st.told = true
	c.alarms.clear(&st.alarm)
	st.run.progress()
	if st.assembly != nil {
		fx.over = append(fx.over, st)
	}
}

// trimSteps forgets the rows of the steps that nobody has touched for longest until the
// rest is within Config.StepBytes; steps with samples in flight go last.
func (c *core) trimSteps(time.Time) {
	for c.stepBytes > c.cfg.StepBytes {
		var victim *step
		for _, r := range c.runs {
			for _, st := range r.stepLog {
				if st.assembly == nil || victim != nil && !before(st, victim) {
					continue
				}
				victim = st
			}
		}
		if victim == nil {
			return
		}
		c.forgetStep(victim, fmt.Sprintf("loop.step_bytes = %d is full", c.cfg.StepBytes))
	}
}

// before reports whether a's rows are to be forgotten before b's.
func before(a, b *step) bool {
	if (a.inflight == 0) != (b.inflight == 0) {
		return a.inflight == 0
	}
	return a.assembly.touched.Before(b.assembly.touched)
}

// forgetStep drops a step's rows.
func (c *core) forgetStep(st *step, why string) {
	c.alarms.clear(&st.alarm)
	if st.inflight > 0 && st.expected > 0 && !st.closed {
		c.alarms.set(&st.alarm, st.closes) // its deadline stands
	}
	for id := range st.names {
		c.stepBytes -= int64(len(id)) + 64
	}
	st.names = nil
	if st.assembly == nil {
		return
	}
	c.stepBytes -= st.assembly.bytes
	for _, r := range st.assembly.rows {
		if r.entry != nil {
			r.entry.row, r.entry.handout = nil, nil
		}
	}
	st.assembly, st.absent, st.forgotten = nil, nil, why
	c.metrics.stepsForgotten.Inc()
	st.run.progress()
}

// groupOf returns the run's record of a prompt group, making it on the first
// member, and forgets the oldest closed groups.
func (r *run) groupOf(key groupKey, size int, now time.Time) (g *group, fresh bool) {
	if g := r.groups[key]; g != nil {
		g.size = max(g.size, size)
		return g, false
	}
	g = newGroup(key, size, now)
	r.groups[key] = g
	r.groupLog = append(r.groupLog, g)
	for len(r.groupLog) > keptGroups && r.groupLog[0].closed {
		delete(r.groups, r.groupLog[0].key)
		r.groupLog = r.groupLog[1:]
	}
	return g, true
}
