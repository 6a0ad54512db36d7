package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// This file has the messages of ClaimProtocol, with which a worker on another machine
// claims payloads and hands results back; docs/claim.md is the specification. Unlike
// those of Protocol they pass over names they do not know: gateways and workers of two
// releases may run side by side for a while.

// ErrUnreachable is what a claim ends with when no connection to the gateway came about.
// The gateway may well be alive: the ticket goes back, to a worker that reaches it.
var ErrUnreachable = errors.New("gateway cannot be reached")

// ErrCorrupt is a payload whose bytes are not those the gateway sent.
var ErrCorrupt = errors.New("payload differs from its checksum")

// ClaimVersion is the number of the protocol; a peer with a higher one is refused.
const ClaimVersion = 1

// Bounds of the claim protocol.
const (
	// MaxClaimResultBytes bounds a result with all it holds; details beyond it are left out.
	MaxClaimResultBytes = 4 << 20
	// MaxClaimControlBytes bounds a worker's text, MaxServerControlBytes a gateway's.
	MaxClaimControlBytes = MaxClaimResultBytes + 64<<10
	// MaxClaimChunk bounds the payload bytes of one binary message.
	MaxClaimChunk = 256 << 10
	// ClaimChunkHead is the length of the claim's number before them.
	ClaimChunkHead = 8
	// MaxTokenBytes bounds a claim token.
	MaxTokenBytes = 256

	// maxClaimName bounds names: that of a group's ticket is longer than its uid.
	maxClaimName = 2 * MaxNameBytes
)

// Reasons of a ClaimRefused. They are labels of the metric, too.
const (
	RefusedToken     = "token"     // the token is not one of this gateway's for this attempt
	RefusedExpired   = "expired"   // the token was good once; the gateway publishes the ticket anew
	RefusedGone      = "gone"      // the sample needs no scoring any more
	RefusedMalformed = "malformed" // the message breaks a rule of the protocol
	RefusedBusy      = "busy"      // too many claims are open
	RefusedFailed    = "failed"    // the gateway could not do it; another try may help
	RefusedProtocol  = "protocol"  // the peer speaks a later protocol
)

// Lanes of a worker process to one gateway.
const (
	LaneSmall = "small" // payloads up to 1 MiB, and results
	LaneBulk  = "bulk"  // larger payloads
)

// ClaimHello opens a connection; it is the worker's first message.
type ClaimHello struct {
	Protocol int    `json:"protocol"`
	Version  string `json:"version,omitempty"`
	// Session is the worker process's, chosen at random: connections with the same one
	// belong together, and one that comes back within a second was never away.
	Session string `json:"session"`
	Lane    string `json:"lane,omitempty"`
	// Wanted are the numbers of the claims that the process asks for or has open, of all up
	// to UpTo: others it has given up.
	Wanted []uint64 `json:"wanted,omitempty"`
	UpTo   uint64   `json:"up_to,omitempty"`
}

// ClaimWelcome answers it.
type ClaimWelcome struct {
	Protocol int          `json:"protocol"`
	Version  string       `json:"version,omitempty"`
	Gateway  string       `json:"gateway"`
	Shared   *ClaimShared `json:"shared,omitempty"`
}

// ClaimShared offers memory that both sides may see if they are on the same host.
type ClaimShared struct {
	// Dir holds a file "marker"; the staging files are named Prefix-0, Prefix-1, ….
	Dir    string `json:"dir"`
	Prefix string `json:"prefix"`
	Files  int    `json:"files"`
}

// ClaimProof says that the worker sees the shared memory: the content of its marker.
type ClaimProof struct {
	Marker string `json:"marker"`
}

// ClaimAsk asks for the payload of an attempt.
type ClaimAsk struct {
	// N numbers the claims and results of a worker process, from 1.
	N       uint64     `json:"n"`
	Attempt AttemptKey `json:"attempt"`
	Token   string     `json:"token"`
	Worker  string     `json:"worker"`
	Group   bool       `json:"group,omitempty"`
	// Plain wants nothing through shared memory.
	Plain bool `json:"plain,omitempty"`
}

// ClaimPayload announces the bytes of a claim.
type ClaimPayload struct {
	N      uint64
	Frames []ClaimFrame
	// Group is set for the payload of a prompt group; its Members are empty, for they
	// are the Frames.
	Group *Group
}

// ClaimFrame is one frame of a payload: what it must turn out to be, and in a group what
// the sample's own terms have said.
type ClaimFrame struct {
	Sum     Checksum
	Partial []rewards.TermResult
}

// ClaimStaged says that the next Bytes of a claim lie at the beginning of a staging file.
type ClaimStaged struct {
	N     uint64 `json:"n"`
	File  int    `json:"file"`
	Bytes int    `json:"bytes"`
}

// ClaimCopied gives a staging file back.
type ClaimCopied struct {
	File int `json:"file"`
}

// ClaimGot says that the payloads of claims have arrived as announced.
type ClaimGot struct {
	N []uint64 `json:"n"`
}

// ClaimDrop ends the worker's interest in claims, whether their payloads are on their way
// or long there: it has given the samples up.
type ClaimDrop struct {
	N []uint64 `json:"n"`
}

// ClaimResult hands a result over.
type ClaimResult struct {
	N      uint64
	Token  string
	Result *Result
}

// ClaimOK answers a ClaimResult: the gateway answers for the sample from here on.
type ClaimOK struct {
	N uint64 `json:"n"`
}

// ClaimRefused answers a ClaimAsk or a ClaimResult, or, with N 0, a ClaimHello.
type ClaimRefused struct {
	N       uint64 `json:"n,omitempty"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// ClaimBye says that the worker ends and does not come back.
type ClaimBye struct{}

// claimKind returns the type field of a message, "" for anything else.
func claimKind(v any) string {
	switch v.(type) {
	case *ClaimHello:
		return "hello"
	case *ClaimWelcome:
		return "welcome"
	case *ClaimProof:
		return "proof"
	case *ClaimAsk:
		return "claim"
	case *ClaimPayload:
		return "payload"
	case *ClaimStaged:
		return "staged"
	case *ClaimCopied:
		return "copied"
	case *ClaimGot:
		return "got"
	case *ClaimDrop:
		return "drop"
	case *ClaimResult:
		return "result"
	case *ClaimOK:
		return "ok"
	case *ClaimRefused:
		return "refused"
	case *ClaimBye:
		return "bye"
	}
	return ""
}

// newClaim returns an empty message of a kind, nil for an unknown one.
func newClaim(kind string) any {
	switch kind {
	case "hello":
		return new(ClaimHello)
	case "welcome":
		return new(ClaimWelcome)
	case "proof":
		return new(ClaimProof)
	case "claim":
		return new(ClaimAsk)
	case "payload":
		return new(ClaimPayload)
	case "staged":
		return new(ClaimStaged)
	case "copied":
		return new(ClaimCopied)
	case "got":
		return new(ClaimGot)
	case "drop":
		return new(ClaimDrop)
	case "result":
		return new(ClaimResult)
	case "ok":
		return new(ClaimOK)
	case "refused":
		return new(ClaimRefused)
	case "bye":
		return new(ClaimBye)
	}
	return nil
}

// EncodeClaim returns the JSON of a message of the claim protocol, given as a pointer. Its
// field "type" comes first. NaN and ±Inf have no form and are an error.
func EncodeClaim(v any) ([]byte, error) {
	kind := claimKind(v)
	if kind == "" {
		return nil, fmt.Errorf("%w: %T is no message of the claim protocol", ErrUnknownType, v)
	}
	var form any
	switch m := v.(type) {
	case *ClaimPayload:
		form = payloadForm(m)
	case *ClaimResult:
		form = resultMessage{N: m.N, Token: m.Token, Result: formOf(m.Result)}
	default:
		form = v
	}
	w := jsonWriter{out: append(make([]byte, 0, 256), `{"type":"`+kind+`"`...)}
	head := len(w.out)
	if w.general(form); w.err != nil {
		return nil, fmt.Errorf("%s: %w: %w", kind, ErrValue, w.err)
	}
	if string(w.out[head:]) == "{}" {
		return append(w.out[:head], '}'), nil
	}
	w.out[head] = ','
	return w.out, nil
}

// EncodeClaimResult returns the message of a result that fits MaxClaimResultBytes whatever
// the result holds: details that JSON cannot express or that are too long give way to a note,
// and a result that cannot be expressed without them becomes a failure of class internal.
func EncodeClaimResult(n uint64, token string, res *Result) ([]byte, error) {
	m := ClaimResult{N: n, Token: token, Result: res}
	b, err := encodeFitting(&m)
	if err == nil {
		return b, nil
	}
	m.Result = undetailed(res, "left out on the way to the gateway: "+err.Error())
	if b, err = encodeFitting(&m); err == nil {
		return b, nil
	}
	m.Result = &Result{
		ID: res.ID, Outcome: rewards.Failed, Worker: res.Worker, Attempt: res.Attempt,
		Errors: []rewards.TermError{{Class: rewards.Internal, Message: "the result cannot be handed over: " + err.Error()}},
	}
	return encodeFitting(&m)
}

func encodeFitting(m *ClaimResult) ([]byte, error) {
	b, err := EncodeClaim(m)
	if err == nil && len(b) > MaxClaimResultBytes {
		err = fmt.Errorf("%w: result of %d bytes, the limit is %d", ErrTooLarge, len(b), MaxClaimResultBytes)
	}
	return b, err
}

// undetailed returns a copy of a result with a note in place of all details.
func undetailed(res *Result, note string) *Result {
	out := *res
	out.Details = map[string]any{"error": note}
	out.Partial = WithoutDetails(res.Partial)
	if res.Members != nil {
		out.Members = make([]*Result, len(res.Members))
		for i, m := range res.Members {
			out.Members[i] = undetailed(m, note)
		}
	}
	return &out
}

// WithoutDetails returns a copy of what terms have said, less their details.
func WithoutDetails(terms []rewards.TermResult) []rewards.TermResult {
	if terms == nil {
		return nil
	}
	out := append([]rewards.TermResult{}, terms...)
	for i := range out {
		out[i].Score.Details = nil
	}
	return out
}

// DecodeClaim reads a message of the claim protocol and returns a pointer to its type.
// Names it does not know are passed over. A refusal is a *FrameError.
func DecodeClaim(b []byte) (any, error) {
	v, err := decodeClaim(b)
	if err != nil {
		return nil, refuse("", err)
	}
	return v, nil
}

func decodeClaim(b []byte) (any, error) {
	if len(b) > MaxServerControlBytes {
		return nil, fmt.Errorf("%w: message of %d bytes, the limit is %d", ErrTooLarge, len(b), MaxServerControlBytes)
	}
	kind, err := controlKind(b)
	if err != nil {
		return nil, fmt.Errorf("claim message: %w", err)
	}
	v := newClaim(kind)
	switch m := v.(type) {
	case nil:
		return nil, fmt.Errorf("%w %q", ErrUnknownType, clip([]byte(kind)))
	case *ClaimPayload:
		var form payloadMessage
		if err = json.Unmarshal(b, &form); err == nil {
			err = form.into(m)
		}
	case *ClaimResult:
		var form resultMessage
		if err = json.Unmarshal(b, &form); err == nil {
			m.N, m.Token, m.Result = form.N, form.Token, form.Result.result()
		}
	default:
		err = json.Unmarshal(b, v)
	}
	if err == nil {
		err = checkClaim(v)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", kind, ErrValue, err)
	}
	return v, nil
}

// checkClaim checks the values of a message that came.
func checkClaim(v any) error {
	name := func(what, s string, least int) error {
		if len(s) < least || len(s) > maxClaimName {
			return fmt.Errorf("%s of %d bytes, want %d to %d", what, len(s), least, maxClaimName)
		}
		return nil
	}
	attempt := func(n uint64, k AttemptKey, token, worker string) error {
		if n == 0 || len(token) > MaxTokenBytes || k.Attempt < 1 {
			return fmt.Errorf("claim number %d, attempt %d, token of %d bytes: want 1 or more, 1 or more, at most %d", n, k.Attempt, len(token), MaxTokenBytes)
		}
		return errors.Join(name("gateway", k.Gateway, 0), name("run", k.Run, 0), name("id", k.ID, 1), name("worker", worker, 1))
	}
	switch m := v.(type) {
	case *ClaimHello:
		return errors.Join(name("session", m.Session, 1), name("version", m.Version, 0), name("lane", m.Lane, 0))
	case *ClaimWelcome:
		return errors.Join(name("gateway", m.Gateway, 0), name("version", m.Version, 0))
	case *ClaimAsk:
		return attempt(m.N, m.Attempt, m.Token, m.Worker)
	case *ClaimResult:
		if err := checkClaimed(m.Result, 0); err != nil {
			return err
		}
		return attempt(m.N, m.Result.Attempt, m.Token, m.Result.Worker)
	case *ClaimStaged:
		if m.File < 0 || m.Bytes < 1 {
			return fmt.Errorf("%d bytes in file %d", m.Bytes, m.File)
		}
	case *ClaimRefused:
		if m.Reason == "" {
			return errors.New("it needs a reason")
		}
	}
	return nil
}

// checkClaimed checks a result that a worker hands over, or one of its members.
func checkClaimed(r *Result, level int) error {
	switch {
	case r == nil:
		return errors.New("there is no result")
	case r.ID == "" || len(r.ID) > maxClaimName:
		return fmt.Errorf("id of %d bytes, want 1 to %d", len(r.ID), maxClaimName)
	case level == 0 && r.ID != r.Attempt.ID:
		return fmt.Errorf("result of %q for an attempt at %q", r.ID, r.Attempt.ID)
	case level > 0 && r.Members != nil:
		return errors.New("a member has members")
	case r.RewardScore != nil && r.Outcome != rewards.Scored:
		return fmt.Errorf("reward_score belongs to outcome scored, not to %q", r.Outcome)
	case r.RewardScore == nil && r.Outcome == rewards.Scored && r.Pending == nil && len(r.Members) == 0:
		return errors.New("outcome scored needs a reward_score")
	case len(r.StepScores) > rewards.MaxSteps:
		return fmt.Errorf("%d step_scores, at most %d", len(r.StepScores), rewards.MaxSteps)
	}
	for _, m := range r.Members {
		if err := checkClaimed(m, level+1); err != nil {
			return fmt.Errorf("member: %w", err)
		}
	}
	return nil
}

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
	Partial []termForm         `json:"partial,omitzero"`
	Members []*resultForm      `json:"members,omitzero"`
	Pending *rewards.Pending   `json:"pending,omitempty"`
	Values  map[string]float64 `json:"values,omitzero"`
}

func formOf(r *Result) *resultForm {
	if r == nil {
		return nil
	}
	f := &resultForm{
		plainResult: (*plainResult)(r), ExtraInfo: r.ExtraInfo, Details: r.Details, TimingMS: r.TimingMS,
		Attempt: r.Attempt, Partial: termForms(r.Partial), Pending: r.Pending, Values: r.Values,
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
	r.Attempt, r.Partial, r.Pending, r.Values = f.Attempt, termResults(f.Partial), f.Pending, f.Values
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

type termForm struct {
	Key      string         `json:"key"`
	Status   rewards.Status `json:"status"`
	Value    float64        `json:"value,omitzero"`
	Score    scoreForm      `json:"score,omitzero"`
	Reason   string         `json:"reason,omitempty"`
	Class    rewards.Class  `json:"class,omitempty"`
	Message  string         `json:"message,omitempty"`
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

func termForms(terms []rewards.TermResult) []termForm {
	if terms == nil {
		return nil
	}
	out := make([]termForm, len(terms))
	for i, t := range terms {
		out[i] = termForm{
			Key: t.Key, Status: t.Status, Value: t.Value, Score: scoreForm{t.Score.Value, t.Score.Steps, t.Score.Extra, t.Score.Details},
			Reason: t.Reason, Class: t.Class, Message: t.Message, Attempts: t.Attempts, TookNS: t.Took,
		}
	}
	return out
}

func termResults(forms []termForm) []rewards.TermResult {
	if forms == nil {
		return nil
	}
	out := make([]rewards.TermResult, len(forms))
	for i, t := range forms {
		out[i] = rewards.TermResult{
			Key: t.Key, Status: t.Status, Value: t.Value,
			Score:  rewards.Score{Value: t.Score.Value, Steps: t.Score.Steps, Extra: t.Score.Extra, Details: t.Score.Details},
			Reason: t.Reason, Class: t.Class, Message: t.Message, Attempts: t.Attempts, Took: t.TookNS,
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
	Bytes   int64      `json:"bytes"`
	CRC32C  uint32     `json:"crc32c"`
	Partial []termForm `json:"partial,omitzero"`
}

type claimGroupForm struct {
	UID         string   `json:"uid"`
	Size        int      `json:"size"`
	LastMeanStd *float64 `json:"last_mean_std,omitempty"`
}

func payloadForm(m *ClaimPayload) payloadMessage {
	form := payloadMessage{N: m.N, Frames: make([]frameForm, len(m.Frames))}
	for i, f := range m.Frames {
		form.Frames[i] = frameForm{f.Sum.Len, f.Sum.CRC32C, termForms(f.Partial)}
	}
	if m.Group != nil {
		form.Group = &claimGroupForm{m.Group.UID, m.Group.Size, m.Group.LastMeanStd}
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
		m.Frames[i] = ClaimFrame{Checksum{f.Bytes, f.CRC32C}, termResults(f.Partial)}
	}
	if g := form.Group; g != nil {
		m.Group = &Group{UID: g.UID, Size: g.Size, LastMeanStd: g.LastMeanStd}
	}
	return nil
}
