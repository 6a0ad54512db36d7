package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// NextChunk is the Chunk of a Take for whichever comes next. Who asks so cannot ask again
// for what was lost on the way; a client counts.
const NextChunk = -1

// Rewards waits for the next chunk of a step's rewards, or gives one again that was
// handed out. Epoch 0 means the run's current one. It returns by t.WaitMS at the latest,
// with Ready false where the chunk is not there yet, and earlier if ctx ends.
//
// The error wraps ErrUnknown for a run nobody knows, rewards.Malformed for that and for a
// chunk too far ahead, rewards.Expired where the step's rows were forgotten, and ErrStopped.
func (m *Manager) Rewards(ctx context.Context, run string, epoch uint64, t wire.Take) (*wire.Rewards, error) {
	timer := time.NewTimer(time.Duration(min(t.WaitMS, wire.MaxTakeWaitMS)) * time.Millisecond)
	defer timer.Stop()
	for last := t.WaitMS <= 0; ; {
		res, news, err := m.take(run, epoch, t, last)
		if res != nil || err != nil {
			return res, err
		}
		select {
		case <-news:
		case <-timer.C:
			last = true
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func unknownRun(run string) error {
	return fmt.Errorf("%w: %w: run %q", rewards.Malformed, ErrUnknown, run)
}

// take is one look. Without an answer it returns what to wait for.
func (m *Manager) take(run string, epoch uint64, t wire.Take, last bool) (*wire.Rewards, <-chan struct{}, error) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, nil, ErrStopped
	}
	r := m.core.runs[run]
	switch {
	case r == nil:
		return nil, nil, unknownRun(run)
	case epoch != 0 && epoch != r.epoch:
		return nil, nil, errEpoch(run)
	}
	st := r.steps[keyOfStep(t.Split, t.Step)]
	if st != nil {
		res, err := st.handOut(now, t)
		if res != nil || err != nil {
			return res, nil, err
		}
	}
	if last {
		return unready(now, st, t), nil, nil
	}
	if r.news == nil {
		r.news = make(chan struct{})
	}
	return nil, r.news, nil
}

// handOut answers a Take, or returns nothing while the groups are not there.
func (st *step) handOut(now time.Time, t wire.Take) (*wire.Rewards, error) {
	if st.forgotten != "" {
		return nil, fmt.Errorf("%w: the rows of step %d (%s) were dropped: %s", rewards.Expired, st.key.step, st.key.split, st.forgotten)
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
	at := int(t.Chunk)
	if t.Chunk == NextChunk {
		at = len(a.chunks)
	}
	if at > len(a.chunks) {
		return nil, fmt.Errorf("%w: chunk %d of step %d (%s): the next one is %d", rewards.Malformed, at, st.key.step, st.key.split, len(a.chunks))
	}
	if st.closed && st.policy == wire.DeadlineFail && st.short() {
		res := st.answer(t, at)
		res.State, res.Ready, res.Done = wire.StepFailed, true, true
		res.Without = st.without(now)
		return res, nil
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
func (st *step) makeChunk(n int, order string) bool {
	a := st.assembly
	over := st.concluded()
	groups, ok := a.take(n, order, over)
	if !ok {
		return false
	}
	ch := &chunk{groups: len(groups), done: over && len(a.left) == 0}
	for _, g := range groups {
		for _, r := range g.rows {
			if r.atDeadline && st.policy == wire.DeadlineShortfall && r.value() == nil {
				continue
			}
			ch.rows = append(ch.rows, r)
		}
	}
	if ch.done && st.policy == wire.DeadlineMask {
		ch.rows = append(ch.rows, st.absent...)
	}
	slices.SortStableFunc(ch.rows, byRow)
	a.chunks = append(a.chunks, ch)
	return true
}

// byRow orders rows as the trainer's batch has them.
func byRow(a, b *row) int {
	place := func(r *row) int64 {
		if r.index == nil {
			return math.MaxInt64
		}
		return *r.index
	}
	return cmp.Or(cmp.Compare(place(a), place(b)), strings.Compare(a.id, b.id))
}

// answer says how the step is.
func (st *step) answer(t wire.Take, at int) *wire.Rewards {
	c := st.tally()
	return &wire.Rewards{
		Req: t.Req, Split: st.key.split, Step: st.key.step, State: st.assemblyState(), Chunk: int64(at),
		Expected: int64(st.expected), Arrived: int64(st.arrived), Scored: c.scored, Failed: c.failed,
		Pending: int64(st.inflight), Missing: int64(max(st.expected-st.arrived, 0)),
	}
}

// unready answers a Take whose wait is over.
func unready(now time.Time, st *step, t wire.Take) *wire.Rewards {
	if st == nil {
		key := keyOfStep(t.Split, t.Step)
		return &wire.Rewards{Req: t.Req, Split: key.split, Step: key.step, State: wire.StepOpen, Chunk: max(t.Chunk, 0)}
	}
	at := int(t.Chunk)
	if t.Chunk == NextChunk && st.assembly != nil {
		at = len(st.assembly.chunks)
	}
	res := st.answer(t, max(at, 0))
	res.Without = st.without(now)
	return res
}

// assemblyState is open, complete or short.
func (st *step) assemblyState() string {
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
func (st *step) tally() (t tally) {
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
func fill(res *wire.Rewards, rows []*row) {
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
			x, ok := v.(float64)
			if !ok || strings.HasPrefix(name, "rewardloop/") {
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

// maxWithout bounds the samples that an answer names.
const maxWithout = 256

// without names the samples that have no result of their own.
func (st *step) without(now time.Time) []wire.Missing {
	var out []wire.Missing
	known := 0
	for _, r := range st.absent {
		known++
		out = append(out, wire.Missing{ID: r.id, Index: r.index, Stage: stageAbsent})
	}
	if a := st.assembly; a != nil {
		for _, r := range a.rows {
			if e := r.entry; e != nil || r.atDeadline {
				out = append(out, r.missing(now))
			}
		}
		if !st.closed {
			out = append(out, st.notCome()...)
		} else if known < st.expected-st.arrived {
			out = append(out, a.incomplete()...)
		}
	}
	return out[:min(len(out), maxWithout)]
}

const stageAbsent = "not arrived"

// missing describes a sample in flight, or one that the step's deadline ended.
func (r *row) missing(now time.Time) wire.Missing {
	m := wire.Missing{ID: r.id, Index: r.index, UID: r.uid, Worker: r.worker}
	if e := r.entry; e != nil {
		m.Stage, m.AgeMS = string(e.state), millis(now.Sub(e.arrived))
		if n := len(e.holders); n > 0 {
			m.Worker = e.holders[n-1].worker
		}
		return m
	}
	m.Stage, m.AgeMS = "expired", millis(r.returned.Sub(r.queued))
	if n := len(r.attempts); n > 0 {
		m.Worker = r.attempts[n-1].worker
	}
	return m
}

// notCome names the declared ids of an open step that have not come.
func (st *step) notCome() []wire.Missing {
	var ids []string
	for id := range st.names {
		if st.assembly.byID[id] == nil {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return st.names[a] - st.names[b] })
	out := make([]wire.Missing, 0, min(len(ids), maxWithout))
	for _, id := range ids[:min(len(ids), maxWithout)] {
		out = append(out, wire.Missing{ID: id, Stage: stageAbsent})
	}
	return out
}

// incomplete names the groups whose members have not all come.
func (a *assembly) incomplete() []wire.Missing {
	var out []wire.Missing
	for _, g := range a.groups {
		if n := g.size - len(g.rows); n > 0 && g.uid != "" {
			out = append(out, wire.Missing{UID: g.uid, Stage: stageAbsent, Members: int64(n)})
		}
	}
	slices.SortFunc(out, func(x, y wire.Missing) int { return strings.Compare(x.UID, y.UID) })
	return out
}

// maxAnswerBytes is what goes into a connection's outbox, of 8 MiB, beside results.
const maxAnswerBytes = 6 << 20

// maxTakes bounds the questions that one connection may have open.
const maxTakes = 64

// take answers a client's question when its chunk is there.
func (st *stream) take(t *wire.Take) error {
	if st.open.Add(1) > maxTakes {
		st.open.Add(-1)
		return st.refuseTake(t, fmt.Errorf("%w: %d takes are open on this connection", rewards.Unavailable, maxTakes))
	}
	session := st.session
	st.takes.Go(func() { // ends with its wait or with the connection
		defer st.open.Add(-1)
		res, err := st.m.Rewards(st.ctx, session.run.name, session.epoch, *t)
		var b []byte
		if err == nil {
			b, err = wire.EncodeControl(res)
		}
		if len(b) > maxAnswerBytes { // one group alone is as large
			err = fmt.Errorf("%w: chunk %d has %d bytes and an answer holds %d: read it over HTTP", rewards.TooLarge, t.Chunk, len(b), maxAnswerBytes)
		}
		if errors.Is(err, ErrStopped) {
			return // Stop ends the connection, and the next gateway says what became of the step
		}
		if err != nil {
			if st.ctx.Err() == nil {
				_ = st.refuseTake(t, err) // the reader sees a connection that ends
			}
			return
		}
		_ = st.conn.Send(b) // likewise
	})
	return nil
}

// refuseTake answers a question that has no answer.
func (st *stream) refuseTake(t *wire.Take, err error) error {
	class := rewards.ClassOf(err)
	if class == rewards.Internal {
		class = rewards.Unavailable
	}
	b, encErr := wire.EncodeControl(&wire.Error{Code: class, Message: err.Error(), Req: t.Req})
	if encErr != nil {
		return encErr
	}
	return st.conn.Send(b)
}
