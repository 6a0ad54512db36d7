package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/rewardloop/rewardloop/rewards"
)

// Names of the two websocket sub-protocols.
const (
	Protocol      = "rewardloop.v1"
	ClaimProtocol = "rewardloop.claim.v1"
)

// Bounds of a control message. A client's are small; a server's may hold a result
// with details.
const (
	MaxClientControlBytes = 64 << 10
	MaxServerControlBytes = 16 << 20
)

// Hello opens a session. It is the first message of a client.
type Hello struct {
	// Run names the training run.
	Run string `json:"run"`
	// Client names the sender among the run's clients, Lane the connection among
	// the client's; one live connection per (run, client, lane).
	Client string `json:"client,omitempty"`
	Lane   int    `json:"lane,omitempty"`
	// Reward is the profile for samples that name none; empty: the default.
	Reward string `json:"reward,omitempty"`
	// Epoch joins an epoch of the run that another connection has begun; 0: the
	// current one, or a new one if the run has no live connection.
	Epoch uint64 `json:"epoch,omitempty"`
	// OnSampleFailure overrides the profile's: none, group_mean, zero or value:<x>.
	OnSampleFailure string `json:"on_sample_failure,omitempty"`
	// Resume continues a session after a lost connection.
	Resume *Resume `json:"resume,omitempty"`
}

// Resume names a session and the last result the client has.
type Resume struct {
	Session string `json:"session"`
	Got     uint64 `json:"got"`
}

// Step announces how many samples a step will have.
type Step struct {
	Split    rewards.Split `json:"split,omitempty"` // empty: train
	Step     int64         `json:"step"`
	Expected int64         `json:"expected"`
	// Total says that Expected counts the whole run's samples; without it the
	// counts of the run's clients add up.
	Total bool `json:"total,omitempty"`
	// IDs are names of samples to come, so that one that never does can be named;
	// further messages add to them.
	IDs []string `json:"ids,omitempty"`
	// DeadlineMS is when the step ends, from this message on, whatever is missing;
	// absent: the server's step_timeout after the first word of the step. OnDeadline is
	// what its rewards are then: DeadlineMask, DeadlineFail or DeadlineShortfall; empty:
	// the server's on_step_deadline.
	DeadlineMS int64  `json:"deadline_ms,omitempty"`
	OnDeadline string `json:"on_deadline,omitempty"`
}

// EndOfStep says that this client sends no more samples of the step.
type EndOfStep struct {
	Split rewards.Split `json:"split,omitempty"`
	Step  int64         `json:"step"`
}

// Cancel takes samples back.
type Cancel struct {
	IDs []string `json:"ids"`
}

// Got confirms every result up to Seq; the server forgets them.
type Got struct {
	Seq uint64 `json:"seq"`
}

// Welcome answers hello.
type Welcome struct {
	Session  string       `json:"session"`
	Epoch    uint64       `json:"epoch"`
	Resumed  bool         `json:"resumed"`
	Protocol string       `json:"protocol"`
	Credit   CreditTotals `json:"credit"`
	Limits   LimitsInfo   `json:"limits"`
	Rewards  []RewardInfo `json:"rewards"`
}

// CreditTotals counts what a client may have sent since welcome.
type CreditTotals struct {
	Samples int64 `json:"samples"`
	Bytes   int64 `json:"bytes"`
}

// LimitsInfo tells a client what will be refused.
type LimitsInfo struct {
	MessageBytes int64 `json:"message_bytes"`
	HeaderBytes  int64 `json:"header_bytes"`
	ControlBytes int64 `json:"control_bytes"`
	// InFlight bounds the samples a session has in flight; 0: by credit alone.
	InFlight int64 `json:"in_flight,omitempty"`
	// IdleMS is how long a connection may be silent before it is closed.
	IdleMS int64 `json:"idle_ms,omitempty"`
}

// RewardInfo describes a profile that the server can score with.
type RewardInfo struct {
	Name string `json:"name"`
	// Extra lists the declared fields of reward_extra_info.
	Extra []ExtraKey `json:"extra,omitempty"`
}

// ExtraKey is one declared field; Kind is number, bool or string.
type ExtraKey struct {
	Name string            `json:"name"`
	Kind rewards.FieldKind `json:"kind"`
}

// Credit raises the totals. They are cumulative: a repeat changes nothing.
type Credit struct {
	Samples int64 `json:"samples"`
	Bytes   int64 `json:"bytes"`
}

// Ack says that this gateway process answers for the samples.
type Ack struct {
	IDs []string `json:"ids"`
}

// Error is a refusal that is not a sample's result: of a control message, or of a
// frame whose id could not be read. ID is set where one is known.
type Error struct {
	Code    rewards.Class `json:"code"`
	Message string        `json:"message"`
	ID      string        `json:"id,omitempty"`
	// Req is that of a Take that was refused.
	Req uint64 `json:"req,omitempty"`
}

// Draining says that the server accepts nothing new and finishes what it has.
type Draining struct{}

// kindOf returns the type field of a control message, "" for anything else.
func kindOf(v any) string {
	switch v.(type) {
	case *Hello:
		return "hello"
	case *Step:
		return "step"
	case *EndOfStep:
		return "end_of_step"
	case *Cancel:
		return "cancel"
	case *Got:
		return "got"
	case *Take:
		return "take"
	case *Rewards:
		return "rewards"
	case *Welcome:
		return "welcome"
	case *Credit:
		return "credit"
	case *Ack:
		return "ack"
	case *Result:
		return "result"
	case *Error:
		return "error"
	case *Draining:
		return "draining"
	}
	return ""
}

// newControl returns an empty message of a kind, nil for an unknown one.
func newControl(kind string) any {
	switch kind {
	case "hello":
		return new(Hello)
	case "step":
		return new(Step)
	case "end_of_step":
		return new(EndOfStep)
	case "cancel":
		return new(Cancel)
	case "got":
		return new(Got)
	case "take":
		return new(Take)
	case "rewards":
		return new(Rewards)
	case "welcome":
		return new(Welcome)
	case "credit":
		return new(Credit)
	case "ack":
		return new(Ack)
	case "result":
		return new(Result)
	case "error":
		return new(Error)
	case "draining":
		return new(Draining)
	}
	return nil
}

// maxControl returns the most bytes a message of a kind may have.
func maxControl(kind string) int {
	switch kind {
	case "hello", "step", "end_of_step", "cancel", "got", "take":
		return MaxClientControlBytes
	}
	return MaxServerControlBytes
}

// EncodeControl returns the JSON of a control message, given as a pointer to one
// of the types of this file or to a Result. Its field "type" comes first. The
// same checks hold as in DecodeControl.
func EncodeControl(v any) ([]byte, error) {
	kind := kindOf(v)
	if kind == "" {
		return nil, fmt.Errorf("%w: %T is no control message", ErrUnknownType, v)
	}
	if err := checkControl(v); err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	b, err := encodeControl(kind, v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	if most := maxControl(kind); len(b) > most {
		return nil, refuse("", fmt.Errorf("%w: %s of %d bytes, the limit is %d", ErrTooLarge, kind, len(b), most))
	}
	return b, nil
}

func encodeControl(kind string, v any) ([]byte, error) {
	switch m := v.(type) {
	case *Result:
		return appendResult(make([]byte, 0, 512), m)
	case *Ack:
		return appendAck(make([]byte, 0, 64), m)
	}
	// The '{' that the encoder writes is overwritten below.
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	out.WriteString(`{"type":"` + kind + `"`)
	head := out.Len()
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	b := bytes.TrimSuffix(out.Bytes(), []byte("\n"))
	b[head] = ','
	if string(b[head:]) == ",}" {
		b = append(b[:head], '}')
	}
	return b, nil
}

// DecodeControl reads a control message and returns a pointer to its type. It is
// as strict as the frame's header: no repeated, unknown or wrong-case names, no
// invalid UTF-8, no integer beyond int64, no null where a value is needed. A
// refusal is a *FrameError.
func DecodeControl(b []byte) (any, error) {
	v, err := decodeControl(b)
	if err != nil {
		return nil, refuse("", err)
	}
	return v, nil
}

func decodeControl(b []byte) (any, error) {
	if len(b) > MaxServerControlBytes {
		return nil, fmt.Errorf("%w: control message of %d bytes, the limit is %d", ErrTooLarge, len(b), MaxServerControlBytes)
	}
	if bytes.HasPrefix(b, []byte(resultPrefix)) {
		if r, ok := fastResult(b); ok {
			return r, nil
		}
	}
	kind, err := controlKind(b)
	if err != nil {
		return nil, fmt.Errorf("control message: %w", err)
	}
	v := newControl(kind)
	if v == nil {
		return nil, fmt.Errorf("%w %q", ErrUnknownType, clip([]byte(kind)))
	}
	if most := maxControl(kind); len(b) > most {
		return nil, fmt.Errorf("%w: %s of %d bytes, the limit is %d", ErrTooLarge, kind, len(b), most)
	}
	s := scanner{b: b}
	err = s.check(reflect.TypeOf(v).Elem(), true)
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	// All names are exact and all values checked, so that nothing that
	// encoding/json would tolerate is left.
	if err := json.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", kind, ErrValue, err)
	}
	if err := checkControl(v); err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	return v, nil
}

// controlKind returns the type field. It reads no further; check sees the rest.
func controlKind(b []byte) (string, error) {
	s := scanner{b: b}
	kind := ""
	err := s.object(func(key []byte) (err error) {
		if string(key) == "type" {
			if kind, err = s.text(); err == nil {
				err = errFound
			}
			return err
		}
		_, err = s.value()
		return err
	})
	switch {
	case errors.Is(err, errFound):
		return kind, nil
	case err == nil:
		return "", fmt.Errorf("%w: it needs a type", ErrMissing)
	}
	return "", err
}

// check walks a value and compares its names with the tags of t. Where t is an
// interface any value goes.
func (s *scanner) check(t reflect.Type, top bool) error {
	if t.Kind() == reflect.Pointer {
		if s.space() == 'n' {
			return s.literal()
		}
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Struct:
		return s.checkStruct(t, top)
	case reflect.Slice:
		return s.array(func() error { return s.check(t.Elem(), false) })
	case reflect.Map:
		return s.object(func([]byte) error { return s.check(t.Elem(), false) })
	case reflect.Interface:
	default:
		if s.space() == 'n' {
			return s.fail(ErrValue, "null; leave the name out")
		}
	}
	_, err := s.value()
	return err
}

// checkStruct walks an object and compares its names with the fields of t. A field
// without omitempty must be there: absence is not zero.
func (s *scanner) checkStruct(t reflect.Type, top bool) error {
	fields := fieldsOf(t)
	var seen uint64
	err := s.object(func(key []byte) error {
		for i := range fields {
			if fields[i].name == string(key) {
				seen |= 1 << i
				return s.check(fields[i].typ, false)
			}
		}
		if top && string(key) == "type" {
			_, err := s.str()
			return err
		}
		return s.fail(ErrUnknownName, "%q", clip(key))
	})
	if err != nil {
		return err
	}
	for i := range fields {
		if seen&(1<<i) == 0 && fields[i].required {
			return s.fail(ErrMissing, "%q, in the object that ends", fields[i].name)
		}
	}
	return nil
}

// field is what a JSON tag says.
type field struct {
	name     string
	typ      reflect.Type
	required bool
}

// fieldCache holds the fields of every struct that was read: reflect takes longer
// over a type than the scanner over a message.
var fieldCache sync.Map //nolint:gochecknoglobals // a table of our own types, the same for everybody

// fieldsOf returns the fields of a struct that have a JSON name; at most 64.
func fieldsOf(t reflect.Type) []field {
	if known, ok := fieldCache.Load(t); ok {
		return known.([]field)
	}
	var fields []field
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			fields = append(fields, field{name, f.Type, options == ""})
		}
	}
	fieldCache.Store(t, fields)
	return fields
}

// checkControl checks the values of a control message.
func checkControl(v any) error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrValue}, args...)...))
		}
	}
	names := func(kind string, list ...string) {
		for _, name := range list {
			need(len(name) <= MaxNameBytes, "%s of %d bytes, at most %d", kind, len(name), MaxNameBytes)
		}
	}
	splits := func(s rewards.Split) {
		need(s == "" || s == rewards.Train || s == rewards.Val, "split %q, want train or val", s)
	}
	ids := func(list []string) {
		need(len(list) > 0, "ids must not be empty")
		bad := slices.IndexFunc(list, func(id string) bool { return id == "" || len(id) > MaxNameBytes })
		need(bad < 0, "id number %d must have 1 to %d bytes", bad, MaxNameBytes)
	}
	switch m := v.(type) {
	case *Hello:
		need(m.Run != "", "run must not be empty")
		names("a name", m.Run, m.Client, m.Reward, m.OnSampleFailure)
		need(m.Lane >= 0 && m.Lane < 1<<16, "lane is %d, want 0 to %d", m.Lane, 1<<16-1)
		if _, err := rewards.ParseSamplePolicy(m.OnSampleFailure); err != nil {
			errs = append(errs, fmt.Errorf("%w: on_sample_failure: %w", ErrValue, err))
		}
		if m.Resume != nil {
			need(m.Resume.Session != "", "resume.session must not be empty")
			names("resume.session", m.Resume.Session)
		}
	case *Step:
		splits(m.Split)
		need(m.Expected >= 0 && m.Expected <= 1<<31-1, "expected is %d, want 0 to %d", m.Expected, 1<<31-1)
		need(m.DeadlineMS >= 0 && m.DeadlineMS <= MaxDeadline.Milliseconds(), "deadline_ms is %d, want 0 to %d", m.DeadlineMS, MaxDeadline.Milliseconds())
		need(slices.Contains([]string{"", DeadlineMask, DeadlineFail, DeadlineShortfall}, m.OnDeadline),
			"on_deadline %q, want %s, %s or %s", m.OnDeadline, DeadlineMask, DeadlineFail, DeadlineShortfall)
		if m.IDs != nil {
			ids(m.IDs)
		}
	case *Take:
		splits(m.Split)
		need(m.Req > 0, "req must be 1 or more")
		need(m.Chunk >= 0 && m.Groups >= 0, "chunk %d and groups %d must not be negative", m.Chunk, m.Groups)
		need(m.WaitMS >= 0 && m.WaitMS <= MaxTakeWaitMS, "wait_ms is %d, want 0 to %d", m.WaitMS, MaxTakeWaitMS)
		need(slices.Contains([]string{"", ByCompletion, ByIndex}, m.Order), "order %q, want %s or %s", m.Order, ByCompletion, ByIndex)
	case *Rewards:
		splits(m.Split)
		n := len(m.IDs)
		need(len(m.Indices) == n && len(m.UIDs) == n && len(m.Scores) == n && len(m.Valid) == n && len(m.Outcomes) == n,
			"columns of %d ids, %d indices, %d uids, %d rm_scores, %d rm_valid and %d outcomes are not equally long",
			n, len(m.Indices), len(m.UIDs), len(m.Scores), len(m.Valid), len(m.Outcomes))
		need(len(m.StepScores) == 0 || len(m.StepScores) == n, "%d step_scores for %d rows", len(m.StepScores), n)
		for name, column := range m.Components {
			need(len(column) == n, "component %q has %d values for %d rows", name, len(column), n)
		}
	case *EndOfStep:
		splits(m.Split)
	case *Cancel:
		ids(m.IDs)
	case *Ack:
		ids(m.IDs)
	case *Credit:
		need(m.Samples >= 0 && m.Bytes >= 0, "credit of %d samples and %d bytes is negative", m.Samples, m.Bytes)
	case *Welcome:
		need(m.Session != "", "session must not be empty")
		need(m.Credit.Samples >= 0 && m.Credit.Bytes >= 0, "credit of %d samples and %d bytes is negative", m.Credit.Samples, m.Credit.Bytes)
	case *Result:
		need(m.ID != "", "id must not be empty")
		need(m.Outcome != "", "outcome must not be empty")
		need((m.RewardScore != nil) == (m.Outcome == rewards.Scored), "reward_score belongs to outcome scored and to no other, not to %q", m.Outcome)
		need(m.RewardScore != nil || len(m.StepScores) == 0, "step_scores belong to outcome scored and to no other, not to %q", m.Outcome)
		need(len(m.StepScores) <= rewards.MaxSteps, "%d step_scores, at most %d", len(m.StepScores), rewards.MaxSteps)
	case *Error:
		need(m.Code != "", "code must not be empty")
	}
	return errors.Join(errs...)
}
