package loop

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/internal/sim"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// PendingSample is one accepted sample without a final result.
type PendingSample struct {
	ID      string   `json:"id"`
	Run     string   `json:"run"`
	Step    int64    `json:"step"`
	Stage   string   `json:"stage"` // queued, published, running, gathered, held
	Attempt int      `json:"attempt"`
	Workers []string `json:"workers,omitempty"`
	Group   string   `json:"group,omitempty"`
	// Waits says for whom a gathered sample waits, and of a queued one why no worker gets it.
	Waits    string    `json:"waits,omitempty"`
	Bytes    int64     `json:"bytes"`
	AgeMS    float64   `json:"age_ms"`
	Deadline time.Time `json:"deadline"`
	// LastError is why the previous attempt failed.
	LastError string `json:"last_error,omitempty"`
}

// RunState is one run at a glance.
type RunState struct {
	Run      string            `json:"run"`
	Epoch    uint64            `json:"epoch"`
	Weight   float64           `json:"weight"`
	Clients  int               `json:"clients"`
	Queued   int               `json:"queued"`
	InFlight int               `json:"in_flight"`
	MeanMS   float64           `json:"mean_ms"`
	Outcomes map[string]uint64 `json:"outcomes"`
	Steps    []StepState       `json:"steps"`
	Groups   []GroupState      `json:"groups"`
}

// StepState is what has become of one step's samples.
type StepState struct {
	Split    rewards.Split           `json:"split"`
	Step     int64                   `json:"step"`
	Expected int                     `json:"expected,omitempty"`
	Ended    bool                    `json:"ended,omitempty"`
	Arrived  int                     `json:"arrived"`
	InFlight int                     `json:"in_flight"`
	Outcomes map[rewards.Outcome]int `json:"outcomes"`
	// ArrivalMS is from the first sample's arrival to the last one's, ExposedMS from
	// there to the latest result: what a trainer would wait after its rollout.
	ArrivalMS float64 `json:"arrival_ms"`
	ExposedMS float64 `json:"exposed_ms"`
	// Stats describe the values, column by column, the reward itself first; MoreColumns
	// says that there are columns beyond the 16 that are kept.
	Stats       []ColumnStats `json:"stats,omitempty"`
	MoreColumns bool          `json:"more_columns,omitempty"`
}

// StepDetail is one step, and who it waits for.
type StepDetail struct {
	StepState

	Run string `json:"run"`
	// State is open, complete or short; Forgotten says why the rows are gone.
	State     string `json:"state"`
	Forgotten string `json:"forgotten,omitempty"`
	// Deadline is when a declared step ends, and OnDeadline what its rewards are then.
	Deadline   *time.Time `json:"deadline,omitempty"`
	OnDeadline string     `json:"on_deadline"`
	Missing    int        `json:"missing"`
	// Without names samples without a result, those longest here first.
	Without []wire.Missing `json:"without"`
	// GroupsReady are complete and not handed out; Chunks were.
	GroupsReady int `json:"groups_ready"`
	Chunks      int `json:"chunks"`
	// RowsBytes is what is kept of it.
	RowsBytes int64 `json:"rows_bytes"`
	// Report holds the step against what was possible, once it is over.
	Report *sim.Report `json:"report,omitempty"`
}

// Step returns one step in full. The error wraps ErrUnknown.
func (m *Manager) Step(run string, split rewards.Split, n int64) (StepDetail, error) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	st, err := m.known(run, split, n)
	if err != nil && st == nil {
		return StepDetail{}, err
	}
	d := StepDetail{
		StepState: st.state(), Run: run, State: st.assemblyState(), Forgotten: st.forgotten, OnDeadline: st.policy,
		Missing: max(st.expected-st.arrived, 0), Without: st.without(now), Report: st.report,
	}
	if st.expected > 0 {
		d.Deadline = &st.closes
	}
	if a := st.assembly; a != nil {
		for _, g := range a.ready {
			if !g.given {
				d.GroupsReady++
			}
		}
		d.Chunks, d.RowsBytes = len(a.chunks), a.bytes
	}
	return d, nil
}

// GroupState is one prompt group, open or closed.
type GroupState struct {
	Split   rewards.Split    `json:"split"`
	Step    int64            `json:"step"`
	UID     string           `json:"uid"`
	Size    int              `json:"size"`
	Arrived int              `json:"arrived"`
	Settled int              `json:"settled"`
	Closed  bool             `json:"closed"`
	Stats   *wire.GroupStats `json:"stats,omitempty"` // once closed
}

// Pending returns up to limit samples without a result, the oldest first, and how
// many there are.
func (m *Manager) Pending(limit int) ([]PendingSample, int) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	all := slices.SortedFunc(maps.Values(m.core.entries), func(a, b *entry) int { return cmp.Compare(a.order, b.order) })
	all = slices.DeleteFunc(all, func(e *entry) bool { return e.unit != nil })
	list := make([]PendingSample, 0, min(limit, len(all)))
	unserved := map[string]string{} // by profile
	for _, e := range all[:min(limit, len(all))] {
		p := PendingSample{
			ID: e.key.id, Run: e.key.run, Step: e.step.key.step, Stage: string(e.state), Attempt: e.attempt,
			Bytes: e.bytes, AgeMS: millis(now.Sub(e.arrived)), Deadline: e.deadline,
		}
		if e.group != nil {
			p.Group = e.group.key.uid
		}
		if e.state == queued {
			why, known := unserved[e.profile]
			if !known {
				why = m.core.unserved(e.profile)
				unserved[e.profile] = why
			}
			p.Waits = why
		}
		if e.state == gathered {
			p.Waits = e.awaited()
			if unit := e.group.unit; unit != nil {
				for _, h := range unit.holders {
					p.Workers = append(p.Workers, h.worker)
				}
			}
		}
		for _, h := range e.holders {
			p.Workers = append(p.Workers, h.worker)
		}
		if n := len(e.errors); n > 0 {
			p.LastError = e.errors[n-1].Message
		}
		list = append(list, p)
	}
	return list, len(all)
}

// Runs returns every run, by name, with its latest steps and groups, the newest first.
func (m *Manager) Runs(groups int) []RunState {
	runs := m.runs(groups)
	for _, r := range runs {
		for _, st := range r.Steps {
			for i := range st.Stats {
				st.Stats[i].finish()
			}
		}
	}
	return runs
}

// runs is Runs but for the quantiles, which nobody need wait for.
func (m *Manager) runs(groups int) []RunState {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := slices.Sorted(maps.Keys(m.core.runs))
	out := make([]RunState, 0, len(names))
	for _, name := range names {
		r := m.core.runs[name]
		st := RunState{
			Run: name, Epoch: r.epoch, Weight: r.share.Weight(), Queued: r.share.Queued(), InFlight: r.inflight,
			MeanMS: millis(r.share.Mean()), Outcomes: maps.Clone(r.counts),
		}
		for _, s := range r.sessions {
			if s.Live() {
				st.Clients++
			}
		}
		for _, s := range slices.Backward(r.stepLog) {
			state := s.state()
			state.Stats, state.MoreColumns = r.rewardStats(s), s.stats.more
			st.Steps = append(st.Steps, state)
		}
		for _, g := range slices.Backward(r.groupLog) {
			if len(st.Groups) == groups {
				break
			}
			st.Groups = append(st.Groups, g.state())
		}
		out = append(out, st)
	}
	return out
}

func (s *step) state() StepState {
	st := StepState{
		Split: s.key.split, Step: s.key.step, Expected: s.expected, Ended: s.ended, Arrived: s.arrived,
		InFlight: s.inflight, Outcomes: maps.Clone(s.counts), ArrivalMS: millis(s.last.Sub(s.first)),
	}
	if s.finished.After(s.last) {
		st.ExposedMS = millis(s.finished.Sub(s.last))
	}
	return st
}

func (g *group) state() GroupState {
	st := GroupState{
		Split: g.key.step.split, Step: g.key.step.step, UID: g.key.uid, Size: g.size, Arrived: g.arrived,
		Settled: g.settled, Closed: g.closed,
	}
	if g.closed {
		stats := g.stats
		st.Stats = &stats
	}
	return st
}
