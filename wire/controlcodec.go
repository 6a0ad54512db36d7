package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/rewardloop/rewardloop/rewards"
)

// ControlName returns the name of a control message that is given as a pointer, and whether a
// client sends it. For any other value the name is "".
func ControlName(v any) (name string, ofClient bool) {
	if k := controlKinds.of(v); k != nil {
		return k.name, k.from == byClient
	}
	return "", false
}

// EncodeControl returns the JSON of a control message, given as a pointer to one of the types in
// controlKinds. The field "type" comes first. The message must pass the checks of DecodeControl.
func EncodeControl(v any) ([]byte, error) {
	k := controlKinds.of(v)
	if k == nil {
		return nil, fmt.Errorf("%w: %T is not a control message", ErrUnknownType, v)
	}
	if err := check(v); err != nil {
		return nil, fmt.Errorf("%s: %w", k.name, err)
	}
	b, err := encodeControl(k.name, v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.name, err)
	}
	if err := k.fits(b); err != nil {
		return nil, refuse("", err)
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
	return appendMessage(nil, kind, v)
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

// DecodeControl reads a control message and returns a pointer to its type. DecodeControl is as
// strict as ReadHeader, and refuses repeated, unknown and wrong-case names, invalid UTF-8, integers
// beyond int64, and null for a required value. A refusal is a *FrameError.
func DecodeControl(b []byte) (any, error) {
	v, err := decodeControl(b)
	if err != nil {
		return nil, refuse("", err)
	}
	return v, nil
}

func decodeControl(b []byte) (any, error) {
	if len(b) <= MaxServerControlBytes && bytes.HasPrefix(b, []byte(resultPrefix)) {
		if r, ok := fastResult(b); ok {
			return r, nil
		}
	}
	k, err := controlKinds.read(b)
	if err != nil {
		return nil, fmt.Errorf("control message: %w", err)
	}
	v := k.empty()
	s := scanner{b: b}
	err = s.check(k.shape, true)
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.name, err)
	}
	// All names are exact and all values checked, so that nothing that
	// encoding/json would tolerate is left.
	if err := json.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", k.name, ErrValue, err)
	}
	if err := check(v); err != nil {
		return nil, fmt.Errorf("%s: %w", k.name, err)
	}
	return v, nil
}

// check checks the values of a message. What each has to check stands beside its type.
func check(v any) error {
	m, ok := v.(interface{ check() faults })
	if !ok {
		return nil
	}
	return errors.Join(m.check()...)
}

// faults are what is wrong with the values of a message.
type faults []error

// need notes a fault unless ok.
func (f *faults) need(ok bool, format string, args ...any) {
	if !ok {
		*f = append(*f, fmt.Errorf("%w: "+format, append([]any{ErrValue}, args...)...))
	}
}

func (f *faults) names(what string, list ...string) {
	for _, name := range list {
		f.need(len(name) <= MaxNameBytes, "%s of %d bytes, want at most %d", what, len(name), MaxNameBytes)
	}
}

func (f *faults) split(s rewards.Split) {
	f.need(s == "" || s == rewards.Train || s == rewards.Val, "split %q, want train or val", s)
}

func (f *faults) ids(list []string) {
	f.need(len(list) > 0, "ids must not be empty")
	bad := slices.IndexFunc(list, func(id string) bool { return id == "" || len(id) > MaxNameBytes })
	f.need(bad < 0, "id number %d must have 1 to %d bytes", bad, MaxNameBytes)
}

// credit checks counts of samples and bytes.
func (f *faults) credit(samples, bytes int64) {
	f.need(samples >= 0 && bytes >= 0, "credit of %d samples and %d bytes is negative", samples, bytes)
}
