package loop

import (
	"math"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// This file is about a step's rewards on their way to its trainer. Every sample that
// came over a websocket has a row; the rows of a prompt group make a unit that is handed
// out whole, once: when the trainer asks for the next chunk and enough groups are
// complete, or when the step is over and there will be no more. A chunk keeps its rows,
// so that a trainer whose connection broke asks for it again.
//
// The life of a step: open, while samples come and are scored; over, once everything
// that was declared has come and has its result, or at the step's deadline, which ends
// whatever is still in flight; forgotten, when its rows are too old or too many, after
// which a trainer that asks is told so.

// assembly is one step's rows. Guarded by the manager's mutex.
type assembly struct {
	rows    []*row // in order of arrival
	byID    map[string]*row
	groups  map[string]*rowGroup // by uid; the latest of that name
	byIndex map[int64]*rowGroup
	left    []*rowGroup // not handed out, in order of arrival
	ready   []*rowGroup // likewise, and complete, in order of completion
	next    int64       // the lowest index that was not handed out in order of index
	given   map[int64]bool
	chunks  []*chunk
	bytes   int64
	touched time.Time // latest arrival, result or reading
}

// rowGroup is what is handed out as a whole: a prompt group, or a sample without one.
type rowGroup struct {
	uid      string
	size     int // members that are to come, as far as is known
	rows     []*row
	final    int
	complete bool
	given    bool
}

// lowest is the group's lowest row, for the order by index; one without comes last.
func (g *rowGroup) lowest() int64 {
	low := int64(math.MaxInt64)
	for _, r := range g.rows {
		if r.index != nil {
			low = min(low, *r.index)
		}
	}
	return low
}

// chunk is what was handed out under one number.
type chunk struct {
	rows   []*row
	groups int
	done   bool
}

func newAssembly() *assembly {
	return &assembly{byID: map[string]*row{}, groups: map[string]*rowGroup{}, byIndex: map[int64]*rowGroup{}, given: map[int64]bool{}}
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
	if received.Before(st.first) {
		st.first = received
	}
	before := st.assembly.bytes
	e.row = st.assembly.add(e, s, received)
	c.stepBytes += st.assembly.bytes - before
}

// rowBytes is what a row costs beside its names and its columns.
const rowBytes = 512

// add makes the row of a sample that has arrived.
func (a *assembly) add(e *entry, s *rewards.Sample, received time.Time) *row {
	r := &row{id: e.key.id, index: s.Index, entry: e, received: received, queued: e.arrived}
	size := 1
	name := "\x00" + r.id // a uid holds no NUL from a client that means well; one that does not hurts itself
	if s.HasGroup() {
		r.uid, size, name = s.UID, s.GroupSize, s.UID
	}
	g := a.groups[name]
	if g == nil || g.complete { // a latecomer is a group of its own
		if g != nil {
			size = 1
		}
		g = &rowGroup{uid: r.uid}
		a.groups[name] = g
		a.left = append(a.left, g)
	}
	g.size = max(g.size, size)
	g.rows = append(g.rows, r)
	a.rows = append(a.rows, r)
	a.byID[r.id] = r
	if r.index != nil {
		a.byIndex[*r.index] = g
	}
	e.handout = g
	a.bytes += rowBytes + int64(2*len(r.id)+len(r.uid))
	a.touched = e.arrived
	return r
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
		c.trimSteps()
	}
	c.noteOver(st, fx)
}

// finish makes an entry's row final and reports whether that completed its group.
func (a *assembly) finish(now time.Time, e *entry, res *wire.Result) bool {
	a.bytes += e.row.settle(now, res)
	a.touched = now
	g := e.handout
	if g.final++; g.final < len(g.rows) || g.final < g.size || g.complete {
		return false
	}
	g.complete = true
	if !g.given {
		a.ready = append(a.ready, g)
	}
	return true
}

// findAbsent makes rows of the samples that never came, as far as they are known: by
// their declared ids, else by the rows that nobody has filled, where these are no more
// than maxNames.
func (c *core) findAbsent(now time.Time, st *step) {
	missing := st.expected - st.arrived
	if missing <= 0 || st.forgotten != "" {
		return
	}
	a := st.assembly
	if a == nil {
		a = newAssembly()
		a.touched = now
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
	} else if len(a.byIndex) == len(a.rows) && st.expected <= maxNames {
		for i := range int64(st.expected) {
			if a.byIndex[i] == nil && len(st.absent) < missing {
				st.absent = append(st.absent, &row{index: new(i), outcome: rewards.OutcomeExpired, atDeadline: true})
			}
		}
	}
	slices.SortFunc(st.absent, byRow)
	size := int64(len(st.absent)) * rowBytes
	a.bytes += size
	c.stepBytes += size
}
