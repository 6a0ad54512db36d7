package wire

import (
	"errors"
	"strconv"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// ErrGone means that a gateway refused the claim of a ticket whose sample no longer needs a score: the sample
// has its result, was cancelled, or belongs to an earlier process. The worker drops the ticket.
var ErrGone = errors.New("the sample needs no score any more: it was answered, was cancelled, or its gateway has restarted")

// Ticket is the message that represents a sample in the queue: about 300 bytes with the gateway that holds the
// payload. A worker claims the payload with the ticket.
type Ticket struct {
	// ID and Run identify the sample; Epoch distinguishes the ids of a restarted trainer from the earlier ones.
	ID    string `json:"id"`
	Run   string `json:"run"`
	Epoch uint64 `json:"epoch,omitempty"`
	// Step is the trainer's step, for logs.
	Step int64 `json:"step,omitempty"`
	// Reward is the profile that scores the sample; empty: the default one.
	Reward string `json:"reward,omitempty"`
	// Gateway is the name of the process that holds the payload and accepts the result.
	Gateway string `json:"gateway"`
	// Attempt counts from 1. The result of an attempt that has ended is dropped.
	Attempt int `json:"attempt"`
	// Avoid are the names of workers that hold this sample or failed to score it. These workers return the
	// ticket while other workers are live.
	Avoid []string `json:"avoid,omitempty"`
	// Aside means that the workers in Avoid are too slow for the sample. These workers return the ticket
	// immediately, because a faster worker is free, and request no ticket for a moment.
	Aside bool `json:"aside,omitempty"`
	// Queue is the queue that carries the ticket: QueueName of its profile. The field is taken from the subject
	// of the message.
	Queue string `json:"-"`
	// Weight is the weight of the sample's run for executors that several runs share. 0 means 1.
	Weight float64 `json:"weight,omitempty"`
	// Claim is the address at which another process claims the payload, and Token its authorization. Both are
	// empty for workers in the gateway's own process.
	Claim string `json:"claim,omitempty"`
	Token string `json:"token,omitempty"`
	// Bytes is the size of the frame.
	Bytes int64 `json:"bytes"`
	// Deadline is when the sample expires.
	Deadline time.Time `json:"deadline"`
	// Group means that the ticket is for a whole prompt group. All its members are claimed with the ticket.
	Group bool `json:"group,omitempty"`
	// Traceparent is the sample's span at the gateway, if the sample is traced. The span of the attempt is
	// derived from that span (internal/tracing).
	Traceparent string `json:"traceparent,omitempty"`
}

// Group is the payload for the ticket of a prompt group.
type Group struct {
	UID string
	// Size is the members' group_size. Members that are not in Members never arrived, or have ended.
	Size int
	// LastMeanStd and Absent are those of rewards.Group.
	LastMeanStd *float64
	Absent      map[string]string
	Members     []GroupMember
}

// GroupMember is a member of a Group: its frame, with a reference that the worker must release, and the results
// of its own components.
type GroupMember struct {
	Frame   *Frame
	Partial []rewards.ComponentResult
}

// Key returns the key of the ticket's attempt.
func (t Ticket) Key() AttemptKey {
	return AttemptKey{Gateway: t.Gateway, Run: t.Run, Epoch: t.Epoch, ID: t.ID, Attempt: t.Attempt}
}

// AttemptKey identifies one attempt at one sample, among the attempts of all gateways.
type AttemptKey struct {
	Gateway string `json:"gateway,omitempty"`
	Run     string `json:"run"`
	Epoch   uint64 `json:"epoch"`
	ID      string `json:"id"`
	Attempt int    `json:"attempt"`
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
	if t.Weight != 0 && t.Weight != 1 {
		field(`,"weight":`)
		w.number(t.Weight)
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
	if t.Group {
		field(`,"group":true`)
	}
	if t.Traceparent != "" {
		field(`,"traceparent":`)
		w.text(t.Traceparent)
	}
	return append(w.out, '}'), w.err
}

// DecodeTicket reads a ticket's JSON. Unknown names, which may come from another release, are ignored.
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
		case "weight":
			t.Weight, err = s.float64()
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
		case "group":
			var raw []byte
			raw, err = s.value()
			t.Group = string(raw) == "true"
		case "traceparent":
			t.Traceparent, err = s.string()
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
