package loop

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/loop/stats"
	"github.com/rewardloop/rewardloop/loop/step"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// groupKey names a prompt group within a run and epoch.
type groupKey struct {
	step  step.Key
	uid   string
	epoch uint64
}

// keptGroups bounds the groups that a run remembers for the status page.
const keptGroups = 4096

// group is a prompt group: it closes when group_size members have settled, or at
// the deadline of its first member. Members that wait for its means are held
// until then. Guarded by the manager's mutex.
type group struct {
	key    groupKey
	step   *step.Step
	size   int
	opened time.Time
	// deadline is that of the first member.
	deadline time.Time
	alarm    alarm
	closed   bool
	arrived  int
	members  map[string]*member // by id, until it closes
	settled  int
	stats    wire.GroupStats // once closed
	means    map[string]float64
	mean     *float64

	// Of a group that is scored as a whole (gather.go): the members that wait for it,
	// the reward that does it, and whether it is too late to join them.
	waiting map[string]*entry
	profile string
	begun   bool
	unit    *entry // in the queue or with a worker
	// lastMeanStd is stats.LastMeanStd when it began: every attempt sees the same.
	lastMeanStd *float64
	absent      map[string]string // rewards.Group.Absent, likewise
}

// member is one sample of a group, by id.
type member struct {
	settled bool // scored, failed, or held
	scored  bool
	reward  float64
	values  map[string]float64 // of the components that have one
	waiting *entry
	kept    bool // in the spool
}

func newGroup(key groupKey, size int, now time.Time) *group {
	// Memory is for members that have come: the size is a client's word, up to 2³¹ - 1.
	g := &group{key: key, size: size, opened: now, members: map[string]*member{}, waiting: map[string]*entry{}}
	g.alarm = alarm{group: g}
	return g
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

// join adds a member that has arrived.
func (g *group) join(id string) {
	if g.members[id] != nil {
		return
	}
	g.arrived++
	if !g.closed {
		g.members[id] = &member{}
	}
}

// settle records how a member ended, or that it is held, and reports whether the
// group is now complete.
func (g *group) settle(id string, m member) (complete bool) {
	old := g.members[id]
	if old == nil || g.closed {
		return false
	}
	if !old.settled {
		g.settled++
	}
	m.settled, m.kept = true, m.kept || old.kept
	*old = m
	return g.settled >= g.size
}

// closeGroup finishes a group and everything that waited for it.
func (c *core) closeGroup(now time.Time, g *group, fx *effects) {
	if g.closed {
		return
	}
	c.alarms.clear(&g.alarm)
	spread := g.spread()
	kept := g.kept()
	for _, e := range g.close() {
		c.finalise(now, e, fx)
	}
	c.journal.left(g, kept) // last: who is still to be answered needs them
	if c.book.Has(g.step) { // else the step of that name is another one by now
		c.stats.NoteGroup(stats.Key(g.key.step), &g.stats, spread)
	}
}

// close computes the means by component over the members that have a value, finishes
// the held members, and then the statistics over all scored ones. It returns the
// held entries, whose results are now complete but for their finalisation.
func (g *group) close() []*entry {
	g.closed = true
	g.means = g.componentMeans()
	var waiting []*entry
	for _, m := range g.ordered() {
		if m.waiting == nil {
			continue
		}
		waiting = append(waiting, m.waiting)
		if finishPending(m.waiting.result, g.means) || m.waiting.result.RewardScore != nil {
			m.scored, m.reward = true, *m.waiting.result.RewardScore
		}
	}
	g.describe()
	for _, e := range waiting {
		if e.result.RewardScore == nil {
			e.result.Fallback = fallback(e.policy, g.mean)
		}
		e.result.Group = &g.stats
	}
	slices.SortFunc(waiting, func(a, b *entry) int { return cmp.Compare(a.order, b.order) })
	g.members = nil // thousands of closed groups are remembered, for the page only
	return waiting
}

// ordered are the members by id: sums of floats depend on their order, and statistics
// of the same rewards shall be the same.
func (g *group) ordered() []*member {
	all := make([]*member, 0, len(g.members))
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		all = append(all, g.members[id])
	}
	return all
}

// spread is that of each component's own values over the members of a group that is about
// to close.
func (g *group) spread() stats.Spread {
	s := stats.Spread{}
	for _, m := range g.ordered() {
		for component, v := range m.values {
			s.Add(component, v)
		}
	}
	return s
}

// average is the mean of what was added. That of equal values is the value to the last bit, which
// a sum divided by a count is not: trainers drop groups whose rewards are all equal, and a mean that
// stands in for a score must not keep such a group.
type average struct {
	n    int
	mean float64
}

func (a *average) add(v float64) {
	a.n++
	a.mean += (v - a.mean) / float64(a.n)
}

func (g *group) componentMeans() map[string]float64 {
	averages := map[string]average{}
	for _, m := range g.ordered() {
		for key, v := range m.values {
			a := averages[key]
			a.add(v)
			averages[key] = a
		}
	}
	means := make(map[string]float64, len(averages))
	for key, a := range averages {
		means[key] = a.mean
	}
	return means
}

// memberOf is what a sample's result means to its group.
func memberOf(res *wire.Result) member {
	m := member{values: res.Values}
	if res.RewardScore != nil {
		m.scored, m.reward = true, *res.RewardScore
	}
	return m
}

// meanNow is the mean of the rewards that stand so far.
func (g *group) meanNow() *float64 {
	var a average
	for _, m := range g.ordered() {
		if m.scored {
			a.add(m.reward)
		}
	}
	if a.n == 0 {
		return nil
	}
	return &a.mean
}

// finishPending turns a pending result into a scored one, or into a failed one if
// the whole group has no value for it. It reports whether a reward stands.
func finishPending(r *wire.Result, means map[string]float64) bool {
	p := r.Pending
	if p == nil {
		return false
	}
	r.Pending, r.StepScores = nil, nil
	done, ok := p.Resolve(r.ExtraInfo, func(key string) (float64, bool) { v, found := means[key]; return v, found })
	if !ok {
		r.Outcome = rewards.Failed
		r.Errors = append(r.Errors, rewards.ComponentError{
			Class: rewards.NoScore, Message: fmt.Sprintf("no member of the group has a value for the %d failed components", len(p.Want)),
		})
		return false
	}
	r.RewardScore, r.StepScores = &done.Score, done.Steps
	if done.Fault != nil {
		r.Errors = append(r.Errors, *done.Fault)
	}
	return true
}

// describe fills the statistics of a closed group.
func (g *group) describe() {
	st := wire.GroupStats{UID: g.key.uid, Size: g.size, Missing: max(0, g.size-len(g.members))}
	var a average
	var squares float64
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, m := range g.ordered() {
		switch {
		case m.scored:
			st.Scored++
			a.add(m.reward)
			lo, hi = min(lo, m.reward), max(hi, m.reward)
		case m.settled:
			st.Failed++
		default:
			st.Missing++
		}
	}
	if n := float64(st.Scored); n > 0 {
		mean := a.mean
		for _, m := range g.ordered() {
			if m.scored {
				squares += (m.reward - mean) * (m.reward - mean)
			}
		}
		std := math.Sqrt(squares / n)
		st.ZeroStd = st.Scored > 1 && lo == hi
		if !math.IsInf(mean, 0) && !math.IsNaN(mean) { // rewards near the largest number: JSON has no infinity
			st.Mean, g.mean = &mean, &mean
		}
		if !math.IsInf(squares, 0) && !math.IsNaN(squares) {
			st.Std = &std
		}
	}
	g.stats = st
}
