package step

import (
	"maps"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Summary is the state of the samples of a step.
type Summary struct {
	Split    rewards.Split           `json:"split"`
	Step     int64                   `json:"step"`
	Expected int                     `json:"expected,omitempty"`
	Ended    bool                    `json:"ended,omitempty"`
	Arrived  int                     `json:"arrived"`
	InFlight int                     `json:"in_flight"`
	Outcomes map[rewards.Outcome]int `json:"outcomes"`
	// ArrivalMS is the time from the beginning of the step to the arrival of the last sample,
	// ExposedMS the time from there to the latest result, in milliseconds: the time for which a
	// trainer waits after its rollout.
	ArrivalMS float64 `json:"arrival_ms"`
	ExposedMS float64 `json:"exposed_ms"`
}

// Detail describes a step, including the samples that have no result yet.
type Detail struct {
	Summary

	Run string `json:"run"`
	// State is "open", "complete" or "short". Forgotten is the reason why the rows of the step were
	// deleted; empty: they were not.
	State     string `json:"state"`
	Forgotten string `json:"forgotten,omitempty"`
	// Deadline is the deadline of a declared step, and OnDeadline selects its rewards at the
	// deadline.
	Deadline   *time.Time `json:"deadline,omitempty"`
	OnDeadline string     `json:"on_deadline"`
	Missing    int        `json:"missing"`
	// Without lists up to 256 samples without a result of their own, in order of arrival.
	Without []wire.Missing `json:"without"`
	// GroupsReady is the number of complete groups that were not handed out. Chunks is the number
	// of chunks that were handed out.
	GroupsReady int `json:"groups_ready"`
	Chunks      int `json:"chunks"`
	// RowsBytes is the approximate size of the step's rows in bytes.
	RowsBytes int64 `json:"rows_bytes"`
}

// Summary returns the state of the step's samples.
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

// Detail returns a detailed description of the step.
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
