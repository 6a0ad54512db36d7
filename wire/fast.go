package wire

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// The messages of every sample, a ticket and a result, are written and read here
// without reflection: encoding/json took 15 % of a 25 KB sample's whole way. The
// bytes are those of encoding/json, and what these readers do not know they leave to
// the general ones, so that there is one definition of what is refused.

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
		w.out = append(w.out, `,"errors":`...)
		w.general(r.Errors)
	}
	if r.Substitute != nil {
		w.out = append(w.out, `,"substitute":`...)
		w.general(r.Substitute)
	}
	if len(r.TimingMS) > 0 {
		writeMap(&w, `,"timing_ms":`, r.TimingMS, w.number)
	}
	if r.Worker != "" {
		w.out = append(w.out, `,"worker":`...)
		w.text(r.Worker)
	}
	w.out = append(w.out, `,"attempts":`...)
	w.out = strconv.AppendInt(w.out, int64(r.Attempts), 10)
	if r.Group != nil {
		w.out = append(w.out, `,"group":`...)
		w.general(r.Group)
	}
	return append(w.out, '}'), w.err
}

// appendAck writes the message of an ack.
func appendAck(out []byte, a *Ack) ([]byte, error) {
	w := jsonWriter{out: append(out, `{"type":"ack","ids":[`...)}
	for i, id := range a.IDs {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.text(id)
	}
	return append(w.out, "]}"...), w.err
}

// jsonWriter writes what encoding/json writes with SetEscapeHTML(false).
type jsonWriter struct {
	out []byte
	err error // the first one
}

// general writes any value the general way.
func (w *jsonWriter) general(v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		if w.err == nil {
			w.err = err
		}
		return
	}
	w.out = append(w.out, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}

func (w *jsonWriter) any(v any) {
	switch v := v.(type) {
	case nil:
		w.out = append(w.out, "null"...)
	case bool:
		w.out = strconv.AppendBool(w.out, v)
	case string:
		w.text(v)
	case float64:
		w.number(v)
	case int64:
		w.out = strconv.AppendInt(w.out, v, 10)
	default:
		w.general(v)
	}
}

// text writes a string; one that is not plain ASCII the general way.
func (w *jsonWriter) text(s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			w.general(s)
			return
		}
	}
	w.out = append(w.out, '"')
	w.out = append(w.out, s...)
	w.out = append(w.out, '"')
}

// number writes a number; very large and very small ones, and what is none, the
// general way.
func (w *jsonWriter) number(v float64) {
	if abs := math.Abs(v); abs != 0 && !(abs >= 1e-6 && abs < 1e21) {
		w.general(v)
		return
	}
	w.out = strconv.AppendFloat(w.out, v, 'f', -1, 64)
}

// writeMap writes a name and a map in the order of its keys.
func writeMap[V any](w *jsonWriter, name string, m map[string]V, value func(V)) {
	keys := make([]string, 0, 16)
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	w.out = append(w.out, name...)
	sep := byte('{')
	for _, k := range keys {
		w.out = append(w.out, sep)
		w.text(k)
		w.out = append(w.out, ':')
		value(m[k])
		sep = ','
	}
	w.out = append(w.out, '}')
}

// resultPrefix begins every result that appendResult writes.
const resultPrefix = `{"type":"result",`

// fastResult reads a result with scalars only. It returns false for everything else,
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
		case "timing_ms":
			r.TimingMS, err = readMap(&s, s.float64)
		case "worker":
			r.Worker, err = s.string()
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
	return r, err == nil && s.end() == nil && seen == required && r.Type == "result" && checkControl(r) == nil
}

// string reads a string into memory of its own.
func (s *scanner) string() (string, error) {
	b, err := s.str()
	return string(b), err
}

// scalar reads a number, a string, a boolean or null.
func (s *scanner) scalar() (any, error) {
	switch c := s.space(); {
	case c == '"':
		return s.string()
	case c == '-' || '0' <= c && c <= '9':
		return s.float64()
	case c == '{' || c == '[':
		return nil, errSlow
	}
	start := s.i
	if err := s.literal(); err != nil {
		return nil, err
	}
	switch s.b[start] {
	case 't':
		return true, nil
	case 'f':
		return false, nil
	}
	return nil, nil //nolint:nilnil // null is a value
}

func readMap[V any](s *scanner, value func() (V, error)) (map[string]V, error) {
	m := make(map[string]V, 8)
	err := s.object(func(key []byte) error {
		v, err := value()
		m[string(key)] = v
		return err
	})
	return m, err
}

// Encode returns the ticket's JSON.
func (t Ticket) Encode() ([]byte, error) {
	w := jsonWriter{out: make([]byte, 0, 320)}
	field := func(name string) { w.out = append(w.out, name...) }
	field(`{"id":`)
	w.text(t.ID)
	field(`,"run":`)
	w.text(t.Run)
	if t.Epoch != 0 {
		field(`,"epoch":`)
		w.out = strconv.AppendUint(w.out, t.Epoch, 10)
	}
	if t.Step != 0 {
		field(`,"step":`)
		w.out = strconv.AppendInt(w.out, t.Step, 10)
	}
	if t.Reward != "" {
		field(`,"reward":`)
		w.text(t.Reward)
	}
	field(`,"gateway":`)
	w.text(t.Gateway)
	field(`,"attempt":`)
	w.out = strconv.AppendInt(w.out, int64(t.Attempt), 10)
	if len(t.Avoid) > 0 {
		field(`,"avoid":`)
		w.general(t.Avoid)
	}
	if t.Aside {
		field(`,"aside":true`)
	}
	if t.To != "" {
		field(`,"to":`)
		w.text(t.To)
	}
	if t.Pool != "" {
		field(`,"pool":`)
		w.text(t.Pool)
	}
	if t.Claim != "" {
		field(`,"claim":`)
		w.text(t.Claim)
	}
	if t.Token != "" {
		field(`,"token":`)
		w.text(t.Token)
	}
	field(`,"bytes":`)
	w.out = strconv.AppendInt(w.out, t.Bytes, 10)
	field(`,"deadline":"`)
	var err error
	if w.out, err = t.Deadline.AppendText(w.out); err != nil {
		return nil, err
	}
	field(`"`)
	if t.Expect != 0 {
		field(`,"expect":`)
		w.out = strconv.AppendInt(w.out, int64(t.Expect), 10)
	}
	if t.Group {
		field(`,"group":true`)
	}
	return append(w.out, '}'), w.err
}

// DecodeTicket reads a ticket's JSON. Names it does not know are another release's
// and are passed over.
func DecodeTicket(b []byte) (t Ticket, err error) {
	s := scanner{b: b}
	number := func(set func(int64)) error {
		n, err := s.int64()
		set(n)
		return err
	}
	err = s.object(func(key []byte) (err error) {
		switch string(key) {
		case "id":
			t.ID, err = s.string()
		case "run":
			t.Run, err = s.string()
		case "epoch":
			err = number(func(n int64) { t.Epoch = uint64(n) }) //nolint:gosec // written by Encode
		case "step":
			t.Step, err = s.int64()
		case "reward":
			t.Reward, err = s.string()
		case "gateway":
			t.Gateway, err = s.string()
		case "attempt":
			err = number(func(n int64) { t.Attempt = int(n) })
		case "avoid":
			err = s.array(func() error {
				name, err := s.string()
				t.Avoid = append(t.Avoid, name)
				return err
			})
		case "aside":
			var raw []byte
			raw, err = s.value()
			t.Aside = string(raw) == "true"
		case "to":
			t.To, err = s.string()
		case "pool":
			t.Pool, err = s.string()
		case "claim":
			t.Claim, err = s.string()
		case "token":
			t.Token, err = s.string()
		case "bytes":
			t.Bytes, err = s.int64()
		case "deadline":
			var text []byte
			if text, err = s.str(); err == nil {
				err = t.Deadline.UnmarshalText(text)
			}
		case "expect":
			err = number(func(n int64) { t.Expect = time.Duration(n) })
		case "group":
			var raw []byte
			raw, err = s.value()
			t.Group = string(raw) == "true"
		default:
			_, err = s.value()
		}
		return err
	})
	if err == nil {
		err = s.end()
	}
	return t, err
}
