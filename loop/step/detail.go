package step

import (
	"maps"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Summary is what has become of one step's samples.
type Summary struct {
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
}

// Detail is one step, and who it waits for.
type Detail struct {
	Summary

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
}

// Summary says how far the step has come.
func (st *Step) Summary() Summary {
	s := Summary{
		Split: st.key.Split, Step: st.key.Step, Expected: st.expected, Ended: st.ended, Arrived: st.arrived,
		InFlight: st.inflight, Outcomes: maps.Clone(st.counts), ArrivalMS: millis(st.last.Sub(st.first)),
	}
	if st.finished.After(st.last) {
		s.ExposedMS = millis(st.finished.Sub(st.last))
	}
	return s
}

// Detail says it in full.
func (st *Step) Detail(now time.Time) Detail {
	d := Detail{
		Summary: st.Summary(), Run: st.key.Run, State: st.state(), Forgotten: st.forgotten, OnDeadline: st.policy,
		Missing: max(st.expected-st.arrived, 0), Without: st.without(now),
	}
	if st.expected > 0 {
		d.Deadline = new(st.closes)
	}
	if a := st.assembly; a != nil {
		for _, g := range a.ready {
			if !g.given {
				d.GroupsReady++
			}
		}
		d.Chunks, d.RowsBytes = len(a.chunks), a.bytes
	}
	return d
}
