package store

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Row is one result with its sample.
type Row struct {
	Key        int64               `json:"key"`
	Run        string              `json:"run"`
	Epoch      string              `json:"epoch"` // a string, because the number exceeds JavaScript's integers
	Step       int64               `json:"step"`
	Split      rewards.Split       `json:"split"`
	ID         string              `json:"id"`
	Index      *int64              `json:"index"`
	UID        string              `json:"uid"`
	GroupSize  int                 `json:"group_size"`
	Reward     string              `json:"reward"`
	DataSource string              `json:"data_source"`
	Prompt     string              `json:"prompt"`
	Response   string              `json:"response"`
	Outcome    rewards.Outcome     `json:"outcome"`
	Score      *float64            `json:"score"`
	Components map[string]*float64 `json:"components"`
	Fallback   *wire.Fallback      `json:"fallback"`
	// Error is the first of Errors.
	Error    *rewards.ComponentError `json:"error"`
	Worker   string                  `json:"worker"`
	Attempts int                     `json:"attempts"`
	TimingMS map[string]float64      `json:"timing_ms"`
	Arrived  time.Time               `json:"arrived"`
	Finished time.Time               `json:"finished"`
	Config   string                  `json:"config"`
	Media    []MediaRow              `json:"media"`

	*Detail

	Header *wire.Header `json:"-"`
	Result *wire.Result `json:"-"`
	epoch  uint64
	broken error // why Header and Result are empty
}

// Detail contains the fields that only a single row has, and not the rows of a list.
type Detail struct {
	GroundTruth json.RawMessage          `json:"ground_truth"`
	ExtraInfo   json.RawMessage          `json:"extra_info"`
	Extra       map[string]any           `json:"extra"`
	Details     map[string]any           `json:"details"`
	Errors      []rewards.ComponentError `json:"errors"`
	StepScores  []float64                `json:"step_scores"`
	Group       *wire.GroupStats         `json:"group"`
	Code        *Described               `json:"code"`
}

// MediaRow describes one media of a sample.
type MediaRow struct {
	N      int          `json:"n"`
	Kind   rewards.Kind `json:"kind"`
	Frames int          `json:"frames"`
	// Width and Height are in pixels. Nil: unknown.
	Width  *int `json:"width"`
	Height *int `json:"height"`
	// Thumbnail and Full are addresses. Nil: there is none.
	Thumbnail *string `json:"thumbnail"`
	Full      *string `json:"full"`
}

// SampleKey returns the key of the row's sample.
func (r *Row) SampleKey() SampleKey { return SampleKey{r.Run, r.epoch, r.ID} }

// componentPrefix begins the columns of a reward of several functions: reward/<key>, and below it what the function returned.
const (
	componentPrefix = "reward/"
	imputedSuffix   = "/imputed"
	combined        = "combined"
)

// Components returns the values of a reward's components by their keys, nil for a component that failed, and no
// values for a reward of one function.
func Components(r *wire.Result) map[string]*float64 {
	var out map[string]*float64
	for column, v := range r.ExtraInfo {
		name, ok := strings.CutPrefix(column, componentPrefix)
		if !ok || name == combined || strings.Contains(name, "/") {
			continue
		}
		if out == nil {
			out = map[string]*float64{}
		}
		if r.ExtraInfo[column+imputedSuffix] == true { // the group's mean stands there
			v = nil
		}
		out[name] = number(v)
	}
	return out
}

// number is a value of reward_extra_info as a number; nil: it is none.
func number(v any) *float64 {
	var f float64
	switch t := v.(type) {
	case float64:
		f = t
	case int64:
		f = float64(t)
	case int:
		f = float64(t)
	case json.Number:
		n, err := t.Float64()
		if err != nil {
			return nil
		}
		f = n
	default:
		return nil
	}
	return &f
}

// shortText is how much of prompts and responses lists have.
const shortText = 2000

func shorten(s string) string {
	if len(s) <= shortText {
		return s
	}
	for i := range s {
		if i > shortText {
			return s[:i] + "…"
		}
	}
	return s
}

// fill makes the row of what was kept. A damaged row says so in its error.
func (r *Row) fill(head, result []byte, err error, whole bool) {
	var f *wire.Frame
	if err == nil {
		f, err = wire.Restore(head, nil)
	}
	if err == nil {
		r.Header = f.Header()
		r.Result, err = wire.DecodeResult(result)
	}
	if r.broken = err; err != nil {
		r.Header, r.Result = new(wire.Header), &wire.Result{ID: r.ID, Outcome: r.Outcome}
		r.Error = &rewards.ComponentError{Class: rewards.Internal, Message: "the store's row is damaged: " + err.Error()}
	}
	s, res := &r.Header.Sample, r.Result
	if res.RewardScore != nil {
		r.Score = res.RewardScore // the column has no negative zero
	}
	r.Index, r.GroupSize, r.DataSource, r.Prompt, r.Response = s.Index, s.GroupSize, s.DataSource, s.Prompt, s.Response
	r.Components, r.Fallback, r.Worker, r.Attempts, r.TimingMS, r.Config = Components(res), res.Fallback, res.Worker, res.Attempts, res.TimingMS, res.Config
	if r.Components == nil {
		r.Components = map[string]*float64{}
	}
	if r.TimingMS == nil {
		r.TimingMS = map[string]float64{}
	}
	if len(res.Errors) > 0 {
		r.Error = &res.Errors[0]
	}
	r.Arrived = r.Finished.Add(-time.Duration(r.TimingMS["total"] * float64(time.Millisecond)))
	r.Media = make([]MediaRow, len(s.Media))
	for i, m := range s.Media {
		r.Media[i] = describe(r.Header, i, m)
	}
	if whole {
		r.detail()
		return
	}
	r.Prompt, r.Response = shorten(r.Prompt), shorten(r.Response)
}

// Whole returns a copy of the row with the fields of a single row.
func (r *Row) Whole() *Row {
	own := *r
	own.Prompt, own.Response = r.Header.Sample.Prompt, r.Header.Sample.Response
	own.detail()
	return &own
}

func (r *Row) detail() {
	s, res := &r.Header.Sample, r.Result
	r.Detail = &Detail{
		GroundTruth: orNullJSON(s.GroundTruth), ExtraInfo: orNullJSON(s.ExtraInfo), Extra: res.ExtraInfo, Details: res.Details, Errors: res.Errors,
		StepScores: res.StepScores, Group: res.Group,
	}
	if r.Errors == nil {
		r.Errors = []rewards.ComponentError{}
	}
}

func orNullJSON(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

// describe is what a header says of a media.
func describe(h *wire.Header, n int, m *rewards.Media) MediaRow {
	row := MediaRow{N: n, Kind: m.Kind, Frames: 1}
	size := func(frames, height, width int) {
		if frames >= 0 {
			row.Frames = m.Shape[frames]
		}
		row.Height, row.Width = &m.Shape[height], &m.Shape[width]
	}
	switch {
	case m.Encoding == rewards.Frames:
		row.Frames = h.Parts(n)
	case m.Encoding != rewards.Raw:
	case m.Layout == rewards.HWC && len(m.Shape) == 3:
		size(-1, 0, 1)
	case m.Layout == rewards.CHW && len(m.Shape) == 3:
		size(-1, 1, 2)
	case m.Layout == rewards.THWC && len(m.Shape) == 4:
		size(0, 1, 2)
	case m.Layout == rewards.TCHW && len(m.Shape) == 4:
		size(0, 2, 3)
	case m.Layout == rewards.CTHW && len(m.Shape) == 4:
		size(1, 2, 3)
	}
	return row
}

// addresses says where the media are that are kept.
func (r *Row) addresses(thumbs map[int]thumbnail, full bool) {
	base := "/v1/results/" + strconv.FormatInt(r.Key, 10) + "/media/"
	for i := range r.Media {
		m := &r.Media[i]
		at := base + strconv.Itoa(m.N)
		if t, ok := thumbs[m.N]; ok {
			m.Thumbnail, m.Frames, m.Width, m.Height = &at, t.frames, &t.width, &t.height
		}
		if full {
			whole := at + "?full=1"
			m.Full = &whole
		}
	}
}

// ComponentNames returns the names of the components of rows, sorted.
func ComponentNames(rows []*Row) []string {
	seen := map[string]bool{}
	for _, r := range rows {
		for name := range r.Components {
			seen[name] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}
