package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
)

// tried is what try --json prints.
type tried struct {
	Entry    string `json:"entry"`
	Reward   string `json:"reward"`
	Path     string `json:"path"`
	Function string `json:"function,omitempty"`
	// Scored says that every sample has a score.
	Scored bool `json:"scored"`
	// Known says that the sample is the known one of its kind.
	Known   bool          `json:"known_sample"`
	Samples []triedSample `json:"samples"`
	// Columns are those of the first sample, as the trainer gets them.
	Columns map[string]any `json:"reward_extra_info"`
	Time    triedTime      `json:"time"`
	// Runs says how many samples run at a time, and on what; Reader who reads texts.
	Runs      string        `json:"runs,omitempty"`
	Reader    string        `json:"reader,omitempty"`
	Processes []triedMemory `json:"processes"`
	Cards     []triedCard   `json:"cards"`
}

type triedSample struct {
	Score   *float64       `json:"reward_score"`
	Outcome string         `json:"outcome"`
	Steps   []float64      `json:"step_scores,omitempty"`
	Details map[string]any `json:"details,omitempty"`
	Errors  []triedError   `json:"errors,omitempty"`
}

type triedError struct {
	rewards.ComponentError

	Do string `json:"do"`
}

type triedTime struct {
	LoadMS   float64    `json:"load_ms"`
	FirstMS  float64    `json:"first_call_ms"`
	SecondMS *float64   `json:"second_call_ms"` // null: there was none
	Together []together `json:"together,omitempty"`
}

// together is what several samples took at once.
type together struct {
	Samples  int     `json:"samples"`
	MS       float64 `json:"ms"`
	SampleMS float64 `json:"ms_per_sample"`
	Batches  uint64  `json:"batches,omitempty"` // that a device ran; 0: nothing runs in batches
}

// triedMemory is what the processes of one kind had.
type triedMemory struct {
	What string `json:"what"`
	PIDs []int  `json:"pids"`
	// Peak is the sum of the most that each of them had in memory, in bytes; 0: nobody knows.
	Peak int64 `json:"peak_bytes"`
}

// triedCard is what models take of a card, in bytes.
type triedCard struct {
	Device string `json:"device"`
	Model  string `json:"model"`
	Bytes  int64  `json:"bytes"`
}

// failWith is a run that came to no sample. Why has the class and the blame, if it is not err itself.
func (r *tried) failWith(t *trialEntry, err error, why ...error) {
	of := errors.Join(append(why, err)...)
	if len(why) > 0 {
		of = why[0]
	}
	blame, permanent := rewards.BlameOf(of)
	said := rewards.ComponentError{Class: rewards.ClassOf(of), Message: err.Error(), Blame: blame, Permanent: permanent}
	outcome := rewards.Failed
	if said.Class == rewards.BadInput || said.Class == rewards.TooLarge {
		outcome = rewards.Rejected
	}
	r.Samples = []triedSample{{Outcome: string(outcome), Errors: []triedError{{said, tryAdvice(said, t)}}}}
}

// about says where the entry runs and what it has.
func (r *tried) about(n *node.Node, t *trialEntry) {
	for _, c := range n.Capacities() {
		for _, x := range c.Components {
			if x.Key == t.component.Key {
				r.Runs = fmt.Sprintf("%d at a time: %s", x.Concurrency, x.Reason)
			}
		}
	}
	r.Reader = strings.Join(readersOf(t.cfg), "; ")
	children := n.Children()
	for _, what := range slices.Sorted(maps.Keys(children)) {
		if c := children[what]; len(c.PIDs) > 0 || c.Requests > 0 {
			r.Processes = append(r.Processes, triedMemory{what, append([]int{}, c.PIDs...), peakOf(c.PIDs)})
		}
	}
	for _, d := range n.Pool().Devices {
		for _, m := range d.Models {
			if device := m.Model.Device; m.Loaded && m.Bytes > 0 && strings.HasPrefix(d.Device, "cuda") {
				r.Cards = append(r.Cards, triedCard{cmp.Or(d.Device, device), m.Model.Name, m.Bytes})
			}
		}
	}
}

// print writes it for people.
func (r *tried) print(e *env) {
	w := e.stdout
	line := func(name, format string, args ...any) {
		text := strings.ReplaceAll(strings.TrimRight(fmt.Sprintf(format, args...), "\n"), "\n", "\n           ")
		fmt.Fprintf(w, "%-10s %s\n", name, e.secrets.Text(text))
	}
	entry := r.Path
	if r.Function != "" {
		entry += ", " + r.Function
	}
	line("entry", "%s: %s", r.Entry, entry)
	if r.Known {
		line("sample", "known: none was given, so it is one that serve calls functions with")
	}
	for i, s := range r.Samples {
		name := "score"
		if len(r.Samples) > 1 {
			name = fmt.Sprintf("score %d", i+1)
		}
		if s.Score == nil {
			line(name, "%s", e.colour(red, "none, "+s.Outcome))
		} else {
			line(name, "%s", e.colour(green, fmt.Sprint(*s.Score)))
		}
		if i > 0 && len(s.Errors) > 0 && slices.Equal(s.Errors, r.Samples[i-1].Errors) {
			line("failed", "as the sample before")
			continue
		}
		for _, x := range s.Errors {
			blame := cmp.Or(string(x.Blame), "nobody")
			line("failed", "%s, blame %s: %s", x.Class, blame, x.Message)
			line("  do", "%s", x.Do)
		}
		if len(s.Steps) > 0 {
			line("steps", "%v", s.Steps)
		}
		if len(s.Details) > 0 {
			line("details", "%s", clipTo(jsonOf(s.Details), 2000))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Columns)) {
		v := r.Columns[name]
		if v == nil || strings.HasPrefix(name, "rewardloop/") || strings.HasSuffix(name, "/imputed") && v == false {
			continue // the loop's own, and what says nothing
		}
		line("column", "%s = %s", name, jsonOf(v))
	}
	r.printTimes(line)
	r.printWhere(line)
}

func (r *tried) printTimes(line func(name, format string, args ...any)) {
	t := r.Time
	if t.LoadMS == 0 && t.FirstMS == 0 {
		return // it did not come to that
	}
	text := fmt.Sprintf("load %s, first call %s", shownMS(t.LoadMS), shownMS(t.FirstMS))
	if t.SecondMS != nil {
		text += ", second call " + shownMS(*t.SecondMS)
	}
	line("time", "%s", text)
	for _, x := range t.Together {
		batches := ""
		if x.Batches > 0 {
			batches = fmt.Sprintf(", batches: %d", x.Batches)
		}
		line("", "%d at once: %s, %s a sample%s", x.Samples, shownMS(x.MS), shownMS(x.SampleMS), batches)
	}
}

func (r *tried) printWhere(line func(name, format string, args ...any)) {
	if r.Runs != "" {
		line("runs", "%s", r.Runs)
	}
	if r.Reader != "" {
		line("reader", "%s", r.Reader)
	}
	if r.Runs != "" && len(r.Processes) == 0 {
		line("memory", "no process of its own: it runs inside of rewardloop")
	}
	for _, p := range r.Processes {
		ids := strings.Trim(fmt.Sprint(p.PIDs), "[]")
		switch {
		case len(p.PIDs) == 0:
			line("memory", "not known: the processes of %s have ended", p.What)
		case p.Peak == 0:
			line("memory", "not known: %s, process %s", p.What, ids)
		default:
			line("memory", "%.0f MiB at the peak: %s, process %s", float64(p.Peak)/(1<<20), p.What, ids)
		}
	}
	for _, c := range r.Cards {
		line("card", "%.0f MiB of %s, %s", float64(c.Bytes)/(1<<20), c.Device, c.Model)
	}
}

func shownMS(ms float64) string {
	switch {
	case ms >= 10000:
		return fmt.Sprintf("%.1f s", ms/1000)
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.2g ms", ms)
}

func jsonOf(value any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return fmt.Sprint(value)
	}
	return strings.TrimSpace(b.String())
}

// clipTo shortens a text that is printed.
func clipTo(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + " …"
}
