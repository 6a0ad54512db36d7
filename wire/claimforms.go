package wire

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// The forms below are what the messages look like as JSON. What a client never sees of a
// result travels here, and numbers keep their types.

type resultMessage struct {
	N      uint64      `json:"n"`
	Token  string      `json:"token"`
	Result *resultForm `json:"result"`
}

// plainResult is a Result as a client sees it; the fields of resultForm hide some of its own.
type plainResult Result

type resultForm struct {
	*plainResult

	ExtraInfo exactMap           `json:"reward_extra_info,omitzero"`
	Details   exactMap           `json:"details,omitzero"`
	TimingMS  map[string]float64 `json:"timing_ms,omitzero"`
	Attempt   AttemptKey         `json:"attempt"`
	// Partial is there, if empty, where the sample waits for its group.
	Partial []componentForm    `json:"partial,omitzero"`
	Members []*resultForm      `json:"members,omitzero"`
	Pending *rewards.Pending   `json:"pending,omitempty"`
	Waits   string             `json:"waits,omitempty"`
	Always  bool               `json:"always,omitempty"`
	Values  map[string]float64 `json:"values,omitzero"`
}

func formOf(r *Result) *resultForm {
	if r == nil {
		return nil
	}
	f := &resultForm{
		plainResult: (*plainResult)(r), ExtraInfo: r.ExtraInfo, Details: r.Details, TimingMS: r.TimingMS,
		Attempt: r.Attempt, Partial: componentForms(r.Partial), Pending: r.Pending, Values: r.Values,
		Waits: r.Waits, Always: r.Always,
	}
	if r.Members != nil {
		f.Members = make([]*resultForm, len(r.Members))
		for i, m := range r.Members {
			f.Members[i] = formOf(m)
		}
	}
	return f
}

func (f *resultForm) result() *Result {
	if f == nil {
		return nil
	}
	var r Result
	if f.plainResult != nil {
		r = Result(*f.plainResult)
	}
	r.ExtraInfo, r.Details, r.TimingMS = f.ExtraInfo, f.Details, f.TimingMS
	r.Attempt, r.Partial, r.Pending, r.Values = f.Attempt, componentResults(f.Partial), f.Pending, f.Values
	r.Waits, r.Always = f.Waits, f.Always
	if f.Members != nil {
		r.Members = make([]*Result, len(f.Members))
		for i, m := range f.Members {
			r.Members[i] = m.result()
		}
	}
	return &r
}

// UnmarshalJSON reads the form. The embedded pointer is to a type without a name outside of
// this package, which encoding/json does not allocate.
func (f *resultForm) UnmarshalJSON(b []byte) error {
	type form resultForm
	g := form{plainResult: new(plainResult)}
	if err := json.Unmarshal(b, &g); err != nil {
		return err
	}
	*f = resultForm(g)
	return nil
}

type componentForm struct {
	Key      string         `json:"key"`
	Status   rewards.Status `json:"status"`
	Value    float64        `json:"value,omitzero"`
	Score    scoreForm      `json:"score,omitzero"`
	Reason   string         `json:"reason,omitempty"`
	Class    rewards.Class  `json:"class,omitempty"`
	Message  string         `json:"message,omitempty"`
	Blame    rewards.Blame  `json:"blame,omitempty"`
	Always   bool           `json:"permanent,omitempty"`
	Attempts int            `json:"attempts,omitempty"`
	TookNS   time.Duration  `json:"took_ns,omitempty"`
}

type scoreForm struct {
	Value   float64   `json:"value,omitzero"`
	Steps   []float64 `json:"steps,omitzero"`
	Extra   exactMap  `json:"extra,omitzero"`
	Details exactMap  `json:"details,omitzero"`
}

// IsZero reports whether there is nothing to write.
func (s scoreForm) IsZero() bool {
	return s.Value == 0 && s.Steps == nil && s.Extra == nil && s.Details == nil
}

func componentForms(components []rewards.ComponentResult) []componentForm {
	if components == nil {
		return nil
	}
	out := make([]componentForm, len(components))
	for i, t := range components {
		out[i] = componentForm{
			Key: t.Key, Status: t.Status, Value: t.Value, Score: scoreForm{t.Score.Value, t.Score.Steps, t.Score.Extra, t.Score.Details},
			Reason: t.Reason, Class: t.Class, Message: t.Message, Blame: t.Blame, Always: t.Permanent, Attempts: t.Attempts, TookNS: t.Took,
		}
	}
	return out
}

func componentResults(forms []componentForm) []rewards.ComponentResult {
	if forms == nil {
		return nil
	}
	out := make([]rewards.ComponentResult, len(forms))
	for i, t := range forms {
		out[i] = rewards.ComponentResult{
			Key: t.Key, Status: t.Status, Value: t.Value,
			Score:  rewards.Score{Value: t.Score.Value, Steps: t.Score.Steps, Extra: t.Score.Extra, Details: t.Score.Details},
			Reason: t.Reason, Class: t.Class, Message: t.Message, Blame: t.Blame, Permanent: t.Always, Attempts: t.Attempts, Took: t.TookNS,
		}
	}
	return out
}

type payloadMessage struct {
	N      uint64          `json:"n"`
	Frames []frameForm     `json:"frames"`
	Group  *claimGroupForm `json:"group,omitempty"`
}

type frameForm struct {
	Bytes   int64           `json:"bytes"`
	CRC32C  uint32          `json:"crc32c"`
	Partial []componentForm `json:"partial,omitzero"`
}

type claimGroupForm struct {
	UID         string   `json:"uid"`
	Size        int      `json:"size"`
	LastMeanStd *float64 `json:"last_mean_std,omitempty"`

	Absent map[string]string `json:"absent,omitempty"`
}

func payloadForm(m *ClaimPayload) payloadMessage {
	form := payloadMessage{N: m.N, Frames: make([]frameForm, len(m.Frames))}
	for i, f := range m.Frames {
		form.Frames[i] = frameForm{f.Sum.Len, f.Sum.CRC32C, componentForms(f.Partial)}
	}
	if m.Group != nil {
		form.Group = &claimGroupForm{m.Group.UID, m.Group.Size, m.Group.LastMeanStd, m.Group.Absent}
	}
	return form
}

func (form *payloadMessage) into(m *ClaimPayload) error {
	if form.N == 0 || form.Group == nil && len(form.Frames) != 1 {
		return fmt.Errorf("claim %d with %d frames", form.N, len(form.Frames))
	}
	m.N, m.Frames = form.N, make([]ClaimFrame, len(form.Frames))
	for i, f := range form.Frames {
		if f.Bytes < prefixBytes+2 {
			return fmt.Errorf("frame %d has %d bytes", i, f.Bytes)
		}
		m.Frames[i] = ClaimFrame{Checksum{f.Bytes, f.CRC32C}, componentResults(f.Partial)}
	}
	if g := form.Group; g != nil {
		m.Group = &Group{UID: g.UID, Size: g.Size, LastMeanStd: g.LastMeanStd, Absent: g.Absent}
	}
	return nil
}
