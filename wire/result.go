package wire

import (
	"strconv"

	"github.com/rewardloop/rewardloop/rewards"
)

// Result is the only final answer to a sample, from the worker to the gateway and from the gateway
// to the client (a text message whose "type" is "result").
type Result struct {
	Type string `json:"type"` // always "result"
	ID   string `json:"id"`
	// Seq is the number of the result within the session, from 1. A Confirm confirms all results up
	// to its Seq.
	Seq     uint64          `json:"seq"`
	Outcome rewards.Outcome `json:"outcome"`
	// RewardScore is nil unless the outcome is scored.
	RewardScore *float64 `json:"reward_score"`
	// StepScores are process rewards, one for each step of the response, in order. Nil: the reward
	// has none, or the outcome is not scored.
	StepScores []float64 `json:"step_scores,omitempty"`
	// ExtraInfo contains only scalars: number, bool, string, or null for a number that is absent.
	ExtraInfo map[string]any `json:"reward_extra_info,omitempty"`
	// Details contains everything else that the scorers returned, and is not for the trainer's
	// batch.
	Details map[string]any `json:"details,omitempty"`
	// Errors are all failures of the sample's attempts, with the component if a component failed.
	Errors []rewards.ComponentError `json:"errors,omitempty"`
	// Fallback is the value in place of a missing score, if the profile or the client requested
	// one. The score itself stays nil.
	Fallback *Fallback `json:"fallback,omitempty"`
	// TimingMS contains milliseconds by stage: queue, claim, score, total, component/<key>, and, if
	// these stages took place, decode, batch_wait and infer as sums over the components.
	TimingMS map[string]float64 `json:"timing_ms,omitempty"`
	Worker   string             `json:"worker,omitempty"`
	// Config is a digest of the configuration and weights of the reward that scored the sample.
	// Empty: no worker has returned a result for the sample.
	Config   string `json:"config,omitempty"`
	Attempts int    `json:"attempts"`
	// Group contains the statistics of the prompt group once it is complete.
	Group *GroupStats `json:"group,omitempty"`

	// The following fields are exchanged only between worker and gateway. Clients never get them.

	Attempt AttemptKey `json:"-"`
	// Partial are the results of the sample's own components, if the sample has to wait for its
	// group or for the dependency Waits. No other result field is decided then.
	Partial []rewards.ComponentResult `json:"-"`
	// Waits is the dependency that is down, if a worker returns the sample for that reason. The
	// sample is queued again with the finished components, and the attempt does not count. The
	// outcome is cancelled. Always means that all samples of the profile wait for this dependency
	// on that worker.
	Waits  string `json:"-"`
	Always bool   `json:"-"`
	// Members are the results of a whole group, in the answer to the ticket of the group.
	Members []*Result        `json:"-"`
	Pending *rewards.Pending `json:"-"`
	// Values are the component values of a scored sample, for the group's means.
	Values map[string]float64 `json:"-"`
}

func (m *Result) check() (f faults) {
	f.need(m.ID != "", "id must not be empty")
	f.need(m.Outcome != "", "outcome must not be empty")
	f.need((m.RewardScore != nil) == (m.Outcome == rewards.Scored), "reward_score is for outcome scored only, not for %q", m.Outcome)
	f.need(m.RewardScore != nil || len(m.StepScores) == 0, "step_scores are for outcome scored only, not for %q", m.Outcome)
	f.need(len(m.StepScores) <= rewards.MaxSteps, "%d step_scores, want at most %d", len(m.StepScores), rewards.MaxSteps)
	return f
}

// Fallback is the replacement for the score of a failed sample.
type Fallback struct {
	// Policy is group_mean, zero or value.
	Policy string `json:"policy"`
	// Value is null if the policy has no value: the group has no member with a score.
	Value *float64 `json:"value"`
}

// GroupStats are the statistics of a prompt group that is complete.
type GroupStats struct {
	UID    string `json:"uid"`
	Size   int    `json:"size"`
	Scored int    `json:"scored"`
	Failed int    `json:"failed"`
	// Mean and Std (population) are those of the scored members' rewards; null if no member has a
	// score.
	Mean *float64 `json:"mean"`
	Std  *float64 `json:"std"`
	// ZeroStd means that two or more members have a score and all scores are equal, so that the
	// group has no learning signal.
	ZeroStd bool `json:"zero_std"`
	// Missing is the number of members that did not arrive before the group's deadline.
	Missing int `json:"missing"`
}

// A result is written and read here without reflection, as a ticket is in ticket.go:
// encoding/json took 15 % of a 25 KB sample's whole way. The bytes are those of
// encoding/json, and what the fast reader does not know it leaves to the general one, so
// that there is one definition of what is refused.

// appendResult writes the message of a result. Whatever is rare goes through
// encoding/json.
func appendResult(out []byte, r *Result) ([]byte, error) {
	w := jsonWriter{out: out}
	w.out = append(w.out, `{"type":"result","id":`...)
	w.text(r.ID)
	w.out = append(w.out, `,"seq":`...)
	w.out = strconv.AppendUint(w.out, r.Seq, 10)
	w.out = append(w.out, `,"outcome":`...)
	w.text(string(r.Outcome))
	w.out = append(w.out, `,"reward_score":`...)
	if r.RewardScore == nil {
		w.out = append(w.out, "null"...)
	} else {
		w.number(*r.RewardScore)
	}
	if len(r.StepScores) > 0 {
		sep := `,"step_scores":[`
		for _, v := range r.StepScores {
			w.out = append(w.out, sep...)
			w.number(v)
			sep = ","
		}
		w.out = append(w.out, ']')
	}
	if len(r.ExtraInfo) > 0 {
		writeMap(&w, `,"reward_extra_info":`, r.ExtraInfo, w.any)
	}
	if len(r.Details) > 0 {
		writeMap(&w, `,"details":`, r.Details, w.any)
	}
	if len(r.Errors) > 0 {
		sep := `,"errors":[`
		for i := range r.Errors {
			w.out = append(w.out, sep...)
			appendError(&w, &r.Errors[i])
			sep = ","
		}
		w.out = append(w.out, ']')
	}
	if r.Fallback != nil {
		w.out = append(w.out, `,"fallback":`...)
		w.general(r.Fallback)
	}
	if len(r.TimingMS) > 0 {
		writeMap(&w, `,"timing_ms":`, r.TimingMS, w.number)
	}
	if r.Worker != "" {
		w.out = append(w.out, `,"worker":`...)
		w.text(r.Worker)
	}
	if r.Config != "" {
		w.out = append(w.out, `,"config":`...)
		w.text(r.Config)
	}
	w.out = append(w.out, `,"attempts":`...)
	w.out = strconv.AppendInt(w.out, int64(r.Attempts), 10)
	if r.Group != nil {
		w.out = append(w.out, `,"group":`...)
		w.general(r.Group)
	}
	return append(w.out, '}'), w.err
}

// appendError writes a failure. A reward that fails is as frequent as one that scores.
func appendError(w *jsonWriter, e *rewards.ComponentError) {
	w.out = append(w.out, '{')
	if e.Component != "" {
		w.out = append(w.out, `"component":`...)
		w.text(e.Component)
		w.out = append(w.out, ',')
	}
	w.out = append(w.out, `"class":`...)
	w.text(string(e.Class))
	w.out = append(w.out, `,"message":`...)
	w.text(e.Message)
	if e.Blame != "" {
		w.out = append(w.out, `,"blame":`...)
		w.text(string(e.Blame))
	}
	if e.Permanent {
		w.out = append(w.out, `,"permanent":true`...)
	}
	if e.Attempts != 0 {
		w.out = append(w.out, `,"attempts":`...)
		w.out = strconv.AppendInt(w.out, int64(e.Attempts), 10)
	}
	w.out = append(w.out, '}')
}

// readComponentError reads a failure that appendError wrote; errSlow leaves anything else to the
// general way.
func readComponentError(s *scanner) (e rewards.ComponentError, err error) {
	seen := 0
	err = s.object(func(key []byte) (err error) {
		var v string
		switch string(key) {
		case "component":
			e.Component, err = s.string()
		case "class":
			seen |= 1
			v, err = s.string()
			e.Class = rewards.Class(v)
		case "message":
			seen |= 2
			e.Message, err = s.string()
		case "blame":
			v, err = s.string()
			e.Blame = rewards.Blame(v)
		case "permanent":
			if s.space() != 't' {
				return errSlow
			}
			e.Permanent, err = true, s.literal()
		case "attempts":
			var n int64
			n, err = s.int64()
			e.Attempts = int(n)
		default:
			return errSlow
		}
		return err
	})
	if err == nil && seen != 3 {
		err = errSlow
	}
	return e, err
}

// resultPrefix begins every result that appendResult writes.
const resultPrefix = `{"type":"result",`

// fastResult reads a result of scalars and errors. It returns false for everything else,
// faults included: the general way decides about those.
func fastResult(b []byte) (*Result, bool) {
	r := &Result{}
	s := scanner{b: b}
	const id, seq, outcome, score, attempts, required = 1, 2, 4, 8, 16, 31
	seen := 0
	err := s.object(func(key []byte) (err error) {
		switch string(key) {
		case "type":
			r.Type, err = s.string()
		case "id":
			seen |= id
			r.ID, err = s.string()
		case "seq":
			seen |= seq
			if s.space() == '-' {
				return errSlow
			}
			var n int64
			n, err = s.int64()
			r.Seq = uint64(n) //nolint:gosec // not negative
		case "outcome":
			seen |= outcome
			var v string
			v, err = s.string()
			r.Outcome = rewards.Outcome(v)
		case "reward_score":
			seen |= score
			if s.space() == 'n' {
				return s.literal()
			}
			var v float64
			v, err = s.float64()
			r.RewardScore = &v
		case "step_scores":
			r.StepScores = make([]float64, 0, 8)
			err = s.array(func() error {
				v, err := s.float64()
				r.StepScores = append(r.StepScores, v)
				return err
			})
		case "reward_extra_info":
			r.ExtraInfo, err = readMap(&s, s.scalar)
		case "errors":
			r.Errors = make([]rewards.ComponentError, 0, 1)
			err = s.array(func() error {
				e, err := readComponentError(&s)
				r.Errors = append(r.Errors, e)
				return err
			})
		case "timing_ms":
			r.TimingMS, err = readMap(&s, s.float64)
		case "worker":
			r.Worker, err = s.string()
		case "config":
			r.Config, err = s.string()
		case "attempts":
			seen |= attempts
			var n int64
			n, err = s.int64()
			r.Attempts = int(n)
		default:
			return errSlow
		}
		return err
	})
	return r, err == nil && s.end() == nil && seen == required && r.Type == "result" && check(r) == nil
}
