package loop

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/internal/sim"
	"github.com/rewardloop/rewardloop/loop/stream"
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
	declared map[stream.ID]int
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

// stepOf returns a run's record of a step, making it on the first sample, and
// forgets the oldest steps that nothing is in flight for.
func (c *core) stepOf(r *run, key stepKey, now time.Time) *step {
	if st := r.steps[key]; st != nil {
		return st
	}
	st := &step{
		key: key, run: r, first: now, closes: now.Add(c.cfg.StepTimeout), counts: map[rewards.Outcome]int{},
		policy: c.cfg.OnStepDeadline,
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

// declare takes a client's word about a step.
func (m *Manager) declare(s *stream.Session, msg *wire.Step) error {
	m.mu.Lock()
	r := m.current(s)
	if r == nil {
		m.mu.Unlock()
		return errEpoch(s.Run())
	}
	fx, err := m.core.declare(time.Now(), r, s.ID(), msg)
	m.mu.Unlock()
	m.apply(fx)
	return err
}

// endStep takes a client's word that it sends no more of a step.
func (m *Manager) endStep(s *stream.Session, msg *wire.EndOfStep) error {
	m.mu.Lock()
	r := m.current(s)
	if r == nil {
		m.mu.Unlock()
		return errEpoch(s.Run())
	}
	fx := m.core.endStep(time.Now(), r, msg)
	m.mu.Unlock()
	m.apply(fx)
	return nil
}

func errEpoch(run string) error {
	return fmt.Errorf("%w: run %q has begun a new epoch on another connection", rewards.Malformed, run)
}

// maxNames bounds the ids that a step may be told of, and the rows that are made at its
// deadline for samples without one.
const maxNames = 1 << 17

// declare takes a client's word about a step: how many samples of it there are, their
// names, and when it ends.
func (c *core) declare(now time.Time, r *run, from stream.ID, msg *wire.Step) (effects, error) {
	st := c.stepOf(r, keyOfStep(msg.Split, msg.Step), now)
	if st.closed {
		return effects{}, fmt.Errorf("%w: step %d (%s) ended at its deadline", rewards.Expired, st.key.step, st.key.split)
	}
	if err := c.name(st, msg.IDs); err != nil {
		return effects{}, err
	}
	if msg.Total {
		st.expected, st.declared = int(msg.Expected), nil
	} else {
		if st.declared == nil {
			st.declared = map[stream.ID]int{}
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
	}
	if st.expected > 0 {
		c.alarms.put(&st.alarm, st.closes)
	}
	return c.heard(st), nil
}

// name notes the ids of samples that are to come, and their places: whoever comes back
// says again what was said before.
func (c *core) name(st *step, ids []string) error {
	fresh := make(map[string]int, len(ids))
	var size int64
	for _, id := range ids {
		_, known := st.names[id]
		if _, again := fresh[id]; !known && !again {
			fresh[id] = len(st.names) + len(fresh)
			size += nameBytes(id)
		}
	}
	if len(st.names)+len(fresh) > maxNames {
		return fmt.Errorf("%w: more than %d ids for step %d (%s)", rewards.TooLarge, maxNames, st.key.step, st.key.split)
	}
	c.stepBytes += size
	c.trimSteps()
	if c.stepBytes > c.cfg.StepBytes {
		c.stepBytes -= size
		return fmt.Errorf("%w: the ids of step %d (%s) do not fit beside those of other steps into loop.step_bytes = %d: declare it without ids, or raise that",
			rewards.TooLarge, st.key.step, st.key.split, c.cfg.StepBytes)
	}
	if st.names == nil && len(fresh) > 0 {
		st.names = make(map[string]int, len(fresh))
	}
	maps.Copy(st.names, fresh)
	return nil
}

// nameBytes is what a declared id costs.
func nameBytes(id string) int64 { return int64(len(id)) + 64 }

// endStep takes a client's word that it sends no more.
func (c *core) endStep(now time.Time, r *run, msg *wire.EndOfStep) effects {
	st := c.stepOf(r, keyOfStep(msg.Split, msg.Step), now)
	st.ended = true
	if st.inflight > 0 {
		c.alarms.put(&st.alarm, st.closes)
	}
	return c.heard(st)
}

// heard says what is to be done after a word about a step.
func (c *core) heard(st *step) effects {
	fx := effects{whole: st.arrived > 0 && st.whole(), wake: true}
	c.noteOver(st, &fx)
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
	for _, e := range c.all() {
		if e.step == st && e.state != final {
			e.deadline = now
			c.look(now, e, nil, fx)
		}
	}
	c.findAbsent(now, st)
	c.metrics.stepsShort.Inc()
	c.noteOver(st, fx)
	c.trimSteps()
	st.run.progress()
}

// noteOver reports the end of a step, once.
func (c *core) noteOver(st *step, fx *effects) {
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
