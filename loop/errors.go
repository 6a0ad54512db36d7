package loop

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rewardloop/rewardloop/rewards"
)

var (
	// errRefused is wrapped by everything that Submit refuses; the wrapped
	// rewards.Class says why.
	errRefused = errors.New("sample refused")
	// ErrUnknown is wrapped by the error for a run or a step that the gateway does not know.
	ErrUnknown = errors.New("unknown here")
	// ErrStopped is returned after the manager has stopped.
	ErrStopped = errors.New("loop manager is stopped")
)

// refusal is the answer to one sample that was not accepted.
type refusal struct {
	id    string
	class rewards.Class
	text  string
}

func (e *refusal) Error() string {
	return fmt.Sprintf("sample %q refused: %s: %s", e.id, e.class, e.text)
}

// Reason is why, without what names the sample.
func (e *refusal) Reason() string { return e.text }

// SampleID is the sample that was not accepted.
func (e *refusal) SampleID() string { return e.id }

func (e *refusal) Unwrap() []error { return []error{errRefused, e.class} }

// refuse makes an error of a class for one sample.
func refuse(class rewards.Class, id, format string, args ...any) error {
	return &refusal{id, class, fmt.Sprintf(format, args...)}
}

// unknownReward says that no reward has a name, and which names there are.
func (m *Manager) unknownReward(name string) string {
	known := slices.DeleteFunc(slices.Clone(m.rewards), func(name string) bool { return name == "" })
	return fmt.Sprintf("no reward named %q, want one of %q", name, known)
}
