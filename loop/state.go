package loop

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/loop/stats"
	"github.com/rewardloop/rewardloop/loop/step"
	"github.com/rewardloop/rewardloop/loop/stream"
	"github.com/rewardloop/rewardloop/loop/trace"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// PendingSample is an accepted sample without a final result.
type PendingSample struct {
	ID      string   `json:"id"`
	Run     string   `json:"run"`
	Step    int64    `json:"step"`
	Stage   string   `json:"stage"` // queued, published, running, waiting_for_group, waiting_for_group_mean
	Attempt int      `json:"attempt"`
	Workers []string `json:"workers,omitempty"`
	Group   string   `json:"group,omitempty"`
	// Waits is the reason why a sample waits: the missing members for a sample that waits for its
	// group, or the reason why no worker gets a queued sample.
	Waits    string    `json:"waits,omitempty"`
	Bytes    int64     `json:"bytes"`
	AgeMS    float64   `json:"age_ms"`
	Deadline time.Time `json:"deadline"`
	// LastError is the error of the previous attempt.
	LastError string `json:"last_error,omitempty"`
}

// RunState is a summary of a run.
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

// StepState is the state of the samples of a step.
type StepState struct {
	step.Summary

	// Stats describes the values of each column, the reward first. MoreColumns reports whether
	// there are columns beyond the 16 that are kept.
	Stats       []stats.ColumnStats `json:"stats,omitempty"`
	MoreColumns bool                `json:"more_columns,omitempty"`
}

// StepDetail describes a step in detail, including the samples that have no result yet.
type StepDetail struct {
	step.Detail

	// Report compares the step with the best possible one. Report is nil until the step has ended.
	Report *trace.Report `json:"report,omitempty"`
}

// GroupState is the state of a prompt group, open or closed.
type GroupState struct {
	Split   rewards.Split    `json:"split"`
	Step    int64            `json:"step"`
	UID     string           `json:"uid"`
	Size    int              `json:"size"`
	Arrived int              `json:"arrived"`
	Settled int              `json:"settled"`
	Closed  bool             `json:"closed"`
	Stats   *wire.GroupStats `json:"stats,omitempty"` // nil until the group is closed
}

// Pending returns up to limit samples without a result, the oldest first, and the total number of
// such samples.
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
			ID: e.key.id, Run: e.key.run, Step: e.step.Key().Step, Stage: string(e.state), Attempt: e.attempt,
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
			p.Waits, p.LastError = why, m.core.lastOutage(e).Message
			if awaits := e.awaits(); awaits != "" {
				p.Waits = awaits
			}
		}
		if e.state == awaitsGroup {
			p.Waits = e.awaited()
			if unit := e.group.unit; unit != nil {
				if awaits := unit.awaits(); awaits != "" {
					p.Waits, p.LastError = awaits, m.core.lastOutage(unit).Message
				}
				for _, a := range unit.attempts {
					p.Workers = append(p.Workers, a.worker)
				}
			}
		}
		for _, a := range e.attempts {
			p.Workers = append(p.Workers, a.worker)
		}
		if n := len(e.errors); n > 0 && p.LastError == "" {
			p.LastError = e.errors[n-1].Message
		}
		list = append(list, p)
	}
	return list, len(all)
}

// Runs returns all runs, sorted by name, each with its latest steps and up to groups of its latest
// prompt groups, the newest first.
func (m *Manager) Runs(groups int) []RunState {
	runs := m.runs(groups)
	for _, r := range runs {
		for _, st := range r.Steps {
			for i := range st.Stats {
				st.Stats[i].Finish()
			}
		}
	}
	return runs
}

// runs is Runs but for the quantiles, which nobody need wait for.
func (m *Manager) runs(groups int) []RunState {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(m.core.runs)), hidden)
	out := make([]RunState, 0, len(names))
	for _, name := range names {
		r := m.core.runs[name]
		queued, mean := m.core.board.Of(name)
		st := RunState{
			Run: name, Epoch: r.epoch, Weight: r.weight, Queued: queued, InFlight: r.inflight, MeanMS: millis(mean), Outcomes: maps.Clone(r.counts),
		}
		for _, s := range r.sessions {
			if s.Live() {
				st.Clients++
			}
		}
		for s := range m.core.book.Newest(name) {
			state := StepState{Summary: s.Summary()}
			state.Stats, state.MoreColumns = m.core.stats.Columns(stats.Key(s.Key()))
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

// Hidden is the prefix of the names of runs that the process uses for its own checks. These runs
// are in no list.
const Hidden = "__"

func hidden(run string) bool { return strings.HasPrefix(run, Hidden) }

func (g *group) state() GroupState {
	st := GroupState{
		Split: g.key.step.Split, Step: g.key.step.Step, UID: g.key.uid, Size: g.size, Arrived: g.arrived,
		Settled: g.settled, Closed: g.closed,
	}
	if g.closed {
		closed := g.stats
		st.Stats = &closed
	}
	return st
}

// run is one training run: its queue, its share, and what it remembers. All of it
// is guarded by the manager's mutex.
type run struct {
	name   string
	weight float64
	epoch  uint64

	inflight int // accepted, not final
	sessions map[stream.ID]*stream.Session
	done     *memory
	groups   map[groupKey]*group
	groupLog []*group // in order of first arrival; bounded

	counts  map[string]uint64 // final results by outcome
	lastUse time.Time
	alarm   alarm // set while no client is connected: when its samples are cancelled
}
