package compat

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// scoreOf is the number that stands for a result: its score or, where the profile
// or the client asked for one, its fallback.
func scoreOf(r *wire.Result) (float64, bool) {
	v := r.RewardScore
	if r.Outcome != rewards.Scored {
		v = nil
	}
	if v == nil && r.Fallback != nil {
		v = r.Fallback.Value
	}
	if v == nil || math.IsNaN(*v) || math.IsInf(*v, 0) {
		return 0, false
	}
	return *v, true
}

// failureOf says why a result has no score, with the class that decides whether
// another try may help. A failure that nobody can mend decides over others: the
// second attempt at a broken picture may have met a worker that crashed.
func failureOf(r *wire.Result) (class rewards.Class, message string) {
	class, best := outcomeClass(r.Outcome)
	texts := make([]string, 0, len(r.Errors))
	for _, e := range r.Errors {
		text := e.Message
		if class := string(e.Class) + ": "; !strings.HasPrefix(text, class) {
			text = class + text
		}
		if e.Component != "" {
			text = e.Component + ": " + text
		}
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
		c := e.Class
		if e.Permanent && statusOf(c) == http.StatusServiceUnavailable {
			c = rewards.Internal // a refused key or a missing module: no client shall try again
		}
		if w := weight(c); w > best {
			class, best = c, w
		}
	}
	if len(texts) == 0 {
		texts = append(texts, "no score")
	}
	return class, strings.Join(texts, "; ")
}

// MayPass reports whether a result has no score and a retry may bring a score.
func MayPass(r *wire.Result) bool {
	class, _ := failureOf(r)
	return r.Outcome != rewards.Scored && statusOf(class) == http.StatusServiceUnavailable
}

// outcomeClass is the class of outcomes that decide whatever the errors say.
func outcomeClass(o rewards.Outcome) (class rewards.Class, weight int) {
	switch o {
	case rewards.OutcomeExpired:
		return rewards.Expired, 4
	case rewards.OutcomeWorkerLost:
		return rewards.Lost, 4
	case rewards.OutcomeCancelled:
		return rewards.Cancelled, 4
	}
	return rewards.NoScore, 0
}

// weight orders the classes of one sample's errors: those that only follow from
// others, those that may pass, those that stay.
func weight(c rewards.Class) int {
	switch {
	case c == rewards.NoScore || c == rewards.Cancelled:
		return 1
	case statusOf(c) == http.StatusServiceUnavailable:
		return 2
	}
	return 3
}

// NoneAccepted returns the fault of a request if none of its samples was accepted, else nil. The
// fault is that of the first sample for which a retry may succeed, else that of the first sample.
func NoneAccepted(results []*wire.Result) *Fault {
	var f *Fault
	failed := make([]int, len(results))
	for i, r := range results {
		if r.Outcome != rewards.Rejected {
			return nil
		}
		failed[i] = i
		class, text := failureOf(r)
		own := Faultf(class, "no sample was accepted; sample %d: %s", i, text)
		if f == nil || own.Transient() && !f.Transient() {
			f = own
		}
	}
	if f != nil {
		f.Failed = failed
	}
	return f
}

// allScores returns the score of every result, or one fault for all that have none.
func allScores(results []*wire.Result) ([]float64, *Fault) {
	scores := make([]float64, len(results))
	var f *Fault
	var why reasons
	for i, r := range results {
		v, ok := scoreOf(r)
		if ok {
			scores[i] = v
			continue
		}
		class, text := failureOf(r)
		if f == nil {
			f = &Fault{Class: class, Status: statusOf(class), Pause: true}
		} else if weight(class) > weight(f.Class) {
			f.Class, f.Status = class, statusOf(class)
		}
		f.Failed = append(f.Failed, i)
		f.Pause = f.Pause && pauses(class)
		why.add(i, text)
	}
	if f == nil {
		return scores, nil
	}
	if f.Status == http.StatusBadRequest || f.Status == http.StatusRequestEntityTooLarge {
		f.Status = http.StatusUnprocessableEntity // the request was fine, a sample of it was not
	}
	f.Message = fmt.Sprintf("%d of %d samples have no score: %s", len(f.Failed), len(results), why)
	return nil, f
}

// reasons are why samples have no score, each with the samples that it is said of: a
// traceback of a function that fails every sample is read once.
type reasons []reason

type reason struct {
	text    string
	samples []int
}

func (l *reasons) add(sample int, text string) {
	i := slices.IndexFunc(*l, func(r reason) bool { return r.text == text })
	if i < 0 {
		i = len(*l)
		*l = append(*l, reason{text: text})
	}
	(*l)[i].samples = append((*l)[i].samples, sample)
}

// String names three reasons, and three samples of each, and counts the others.
func (l reasons) String() string {
	const named = 3
	var texts []string
	others := 0
	for i, r := range l {
		if i >= named {
			others += len(r.samples)
			continue
		}
		of := fmt.Sprintf("sample %d", r.samples[0])
		if n := len(r.samples); n > 1 {
			of = "samples " + strings.Trim(strings.ReplaceAll(fmt.Sprint(r.samples[:min(n, named)]), " ", ", "), "[]")
			if n > named {
				of += fmt.Sprintf(" and %d more", n-named)
			}
		}
		texts = append(texts, of+": "+r.text)
	}
	if others > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", others))
	}
	return strings.Join(texts, "; ")
}

// number is the value of a finite number or a bool of reward_extra_info.
func number(v any) (float64, bool) {
	switch n := v.(type) {
	case float64:
		return n, !math.IsNaN(n) && !math.IsInf(n, 0)
	case int64:
		return float64(n), true
	case bool:
		if n {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}
