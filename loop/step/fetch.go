package step

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// This file is about a step's rewards as its trainer reads them: chunk by chunk, each
// given again to who asks again.

// All is the Chunk of a Fetch that returns all complete groups and hands none out.
const All = -1

// Fetch returns the answer to a fetch request, or nil if the groups of the chunk are not complete
// yet. The error wraps rewards.Malformed for a chunk too far ahead, rewards.TooLarge if step.All
// does not fit into one answer, and rewards.Expired if the step's rows were deleted.
func (b *Book) Fetch(now time.Time, run string, t wire.Fetch) (*wire.Rewards, error) {
	if st := b.Step(KeyOf(run, t.Split, t.Step)); st != nil {
		b.ask(st)
		return st.handOut(now, t)
	}
	return nil, nil
}

// handOut answers a Fetch, or returns nothing while the groups are not there.
func (st *Step) handOut(now time.Time, t wire.Fetch) (*wire.Rewards, error) {
	if st.forgotten != "" {
		return nil, fmt.Errorf("%w: the rows of step %d (%s) were dropped: %s", rewards.Expired, st.key.Step, st.key.Split, st.forgotten)
	}
	a := st.assembly
	if a == nil {
		if !st.concluded() || st.arrived > 0 {
			return nil, nil
		}
		a = newAssembly() // declared, and nobody came
		st.assembly = a
	}
	a.touched = now
	if t.Chunk == All {
		return st.read(now, t)
	}
	at := int(t.Chunk)
	if at > len(a.chunks) {
		return nil, fmt.Errorf("%w: chunk %d of step %d (%s): the next one is %d", rewards.Malformed, at, st.key.Step, st.key.Split, len(a.chunks))
	}
	if st.fails() {
		return st.failed(now, t, at), nil
	}
	if at == len(a.chunks) && !st.makeChunk(int(t.Groups), t.Order) {
		return nil, nil
	}
	ch := a.chunks[at]
	res := st.answer(t, at)
	res.Ready, res.Done, res.Groups = true, ch.done, int64(ch.groups)
	fill(res, ch.rows)
	if ch.done {
		res.Without = st.without(now)
	}
	return res, nil
}

// makeChunk appends the next chunk, if its groups are there.
func (st *Step) makeChunk(n int, order string) bool {
	a := st.assembly
	over := st.concluded()
	groups, ok := a.pick(n, order, over)
	if !ok {
		return false
	}
	ch := &chunk{groups: len(groups), done: over && len(a.left) == 0}
	ch.rows = st.rowsOf(groups, ch.done)
	a.chunks = append(a.chunks, ch)
	return true
}

// rowsOf are the rows of groups as a trainer gets them, with those that never came if the
// step is done.
func (st *Step) rowsOf(groups []*rowGroup, done bool) (rows []*Row) {
	for _, g := range groups {
		for _, r := range g.rows {
			if r.atDeadline && st.policy == wire.DeadlineShortfall && r.value() == nil {
				continue
			}
			rows = append(rows, r)
		}
	}
	if done && st.policy == wire.DeadlineMask {
		rows = append(rows, st.absent...)
	}
	slices.SortStableFunc(rows, byRow)
	return rows
}

// read answers with every group that is complete, or once the step is over with all of
// them, whether they were handed out or not, and hands nothing out.
func (st *Step) read(now time.Time, t wire.Fetch) (*wire.Rewards, error) {
	if st.fails() {
		return st.failed(now, t, 0), nil
	}
	var groups []*rowGroup
	seen, over := map[*rowGroup]bool{}, st.concluded()
	for _, r := range st.assembly.rows {
		if g := r.group; !seen[g] && (g.complete || over) {
			seen[g] = true
			groups = append(groups, g)
		}
	}
	if len(fitting(groups)) < len(groups) {
		return nil, fmt.Errorf("%w: %d groups of step %d (%s) do not fit into one answer: read them in chunks, with chunk=0 and so on", rewards.TooLarge,
			len(groups), st.key.Step, st.key.Split)
	}
	res := st.answer(t, 0)
	res.Ready, res.Done, res.Groups = true, over, int64(len(groups))
	fill(res, st.rowsOf(groups, over))
	if over {
		res.Without = st.without(now)
	}
	return res, nil
}

// fails reports whether the step has failed at its deadline.
func (st *Step) fails() bool { return st.closed && st.policy == wire.DeadlineFail && st.short() }

func (st *Step) failed(now time.Time, t wire.Fetch, at int) *wire.Rewards {
	res := st.answer(t, at)
	res.State, res.Ready, res.Done = wire.StepFailed, true, true
	res.Without = st.without(now)
	return res
}

// byRow orders rows as the trainer's batch has them.
func byRow(a, b *Row) int {
	place := func(r *Row) int64 {
		if r.index == nil {
			return math.MaxInt64
		}
		return *r.index
	}
	return cmp.Or(cmp.Compare(place(a), place(b)), strings.Compare(a.id, b.id))
}

// pick takes the groups of the next chunk; ok is false if they are not there yet.
func (a *assembly) pick(n int, order string, over bool) (groups []*rowGroup, ok bool) {
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

// answer says how the step is.
func (st *Step) answer(t wire.Fetch, at int) *wire.Rewards {
	c := st.tally()
	return &wire.Rewards{
		Req: t.Req, Split: st.key.Split, Step: st.key.Step, State: st.state(), Chunk: int64(at),
		Expected: int64(st.expected), Arrived: int64(st.arrived), Scored: c.scored, Failed: c.failed,
		Pending: int64(st.inflight), Missing: int64(max(st.expected-st.arrived, 0)),
	}
}

// Unready returns the answer to a fetch request whose wait has timed out.
func (b *Book) Unready(now time.Time, run string, t wire.Fetch) *wire.Rewards {
	key := KeyOf(run, t.Split, t.Step)
	st := b.Step(key)
	if st == nil {
		return &wire.Rewards{Req: t.Req, Split: key.Split, Step: key.Step, State: wire.StepOpen, Chunk: max(t.Chunk, 0)}
	}
	res := st.answer(t, max(int(t.Chunk), 0))
	res.Without = st.without(now)
	return res
}

// state is open, complete or short.
func (st *Step) state() string {
	switch {
	case st.short():
		return wire.StepShort
	case st.concluded():
		return wire.StepComplete
	}
	return wire.StepOpen
}

type tally struct{ scored, failed int64 }

// tally counts the results by whether there is a score.
func (st *Step) tally() (t tally) {
	for outcome, n := range st.counts {
		if outcome == rewards.Scored {
			t.scored += int64(n)
		} else {
			t.failed += int64(n)
		}
	}
	return t
}

// fill writes the columns.
func fill(res *wire.Rewards, rows []*Row) {
	n := len(rows)
	res.IDs, res.Indices, res.UIDs = make([]string, n), make([]*int64, n), make([]string, n)
	res.Scores, res.Valid, res.Outcomes = make([]*float64, n), make([]bool, n), make([]rewards.Outcome, n)
	for i, r := range rows {
		res.IDs[i], res.Indices[i], res.UIDs[i] = r.id, r.index, r.uid
		res.Scores[i], res.Valid[i], res.Outcomes[i] = r.value(), r.score != nil, r.outcome
		if len(r.steps) > 0 {
			if res.StepScores == nil {
				res.StepScores = make([][]float64, n)
			}
			res.StepScores[i] = r.steps
		}
		for name, v := range r.extra {
			x, isNumber := numeric(v)
			if !isNumber || strings.HasPrefix(name, "rewardloop/") {
				continue
			}
			if res.Components == nil {
				res.Components = map[string][]*float64{}
			}
			column := res.Components[name]
			if column == nil {
				column = make([]*float64, n)
				res.Components[name] = column
			}
			column[i] = &x
		}
	}
	for i := range res.StepScores {
		if res.StepScores[i] == nil {
			res.StepScores[i] = []float64{}
		}
	}
}

// numeric is the number of a column; a scorer that counts gives whole ones.
func numeric(v any) (x float64, isNumber bool) {
	switch n := v.(type) {
	case float64:
		return n, true
	case int64:
		return float64(n), true
	}
	return 0, false
}
