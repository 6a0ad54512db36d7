package loop

import (
	"cmp"
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

// take picks the groups of the next chunk; ok is false if they are not there yet.
func (a *assembly) take(n int, order string, over bool) (groups []*rowGroup, ok bool) {
	switch {
	case over:
		groups = a.remaining(order)
		if n > 0 && len(groups) > n {
			groups = groups[:n]
		}
	case n == 0:
		return nil, false
	case order == wire.ByIndex:
		if groups = a.inOrder(n); len(groups) < n {
			return nil, false
		}
	default:
		a.ready = slices.DeleteFunc(a.ready, func(g *rowGroup) bool { return g.given })
		if len(a.ready) < n {
			return nil, false
		}
		groups = slices.Clone(a.ready[:n])
	}
	groups = fitting(groups)
	for _, g := range groups {
		g.given = true
		for _, r := range g.rows {
			if r.index != nil {
				a.given[*r.index] = true
			}
		}
	}
	a.left = slices.DeleteFunc(a.left, func(g *rowGroup) bool { return g.given })
	return groups, true
}

// maxChunkBytes bounds what an answer with a chunk's rows takes as JSON, about; a
// connection's outbox holds 8 MiB.
const maxChunkBytes = 4 << 20

// fitting are the first groups that fit into one answer, one at least.
func fitting(groups []*rowGroup) []*rowGroup {
	var size int
	for i, g := range groups {
		for _, r := range g.rows {
			size += 96 + 2*len(r.id) + 2*len(r.uid) + 24*(len(r.extra)+len(r.steps))
		}
		if size > maxChunkBytes && i > 0 {
			return groups[:i]
		}
	}
	return groups
}

// remaining are all groups of a step that is over: those that are complete first, in
// order of completion, or by index.
func (a *assembly) remaining(order string) []*rowGroup {
	if order == wire.ByIndex {
		return slices.SortedStableFunc(slices.Values(a.left), func(x, y *rowGroup) int { return cmp.Compare(x.lowest(), y.lowest()) })
	}
	out := slices.DeleteFunc(slices.Clone(a.ready), func(g *rowGroup) bool { return g.given })
	for _, g := range a.left {
		if !g.complete {
			out = append(out, g)
		}
	}
	return out
}

// inOrder returns the n groups with the lowest rows that were not handed out, as far as
// each is complete: rows count from 0, and the group that holds the lowest missing one is
// next.
func (a *assembly) inOrder(n int) []*rowGroup {
	var out []*rowGroup
	chosen := map[*rowGroup]bool{}
	for a.given[a.next] {
		a.next++
	}
	for at := a.next; len(out) < n; at++ {
		if a.given[at] {
			continue
		}
		g := a.byIndex[at]
		if g == nil || !g.complete {
			break
		}
		if !chosen[g] {
			chosen[g] = true
			out = append(out, g)
		}
	}
	return out
}
