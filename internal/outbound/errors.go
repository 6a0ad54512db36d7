package outbound

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/rewardloop/rewardloop/rewards"
)

// callError is the end of a call that has no answer. It wraps its class and its cause,
// whose text it does not repeat, because that may hold secrets.
type callError struct {
	class rewards.Class
	text  string // The group, what the last attempt met, and why there is no further one.
	cause error
}

func (e *callError) Error() string { return e.text }

// Unwrap returns the class first, so that rewards.ClassOf finds it before the cause's.
func (e *callError) Unwrap() []error {
	if e.cause == nil {
		return []error{e.class}
	}
	return []error{e.class, e.cause}
}

// failure is what is wrong with one attempt, or with the wait for it.
type failure struct {
	class    rewards.Class
	text     string // May hold secrets.
	cause    error
	endpoint *endpoint // Nil: it did not come so far.
	status   int

	retry  bool       // Another attempt may succeed.
	rekey  bool       // There is another key than the one that was refused.
	after  retryAfter // What the endpoint asks for.
	health verdict
	// unserved: nothing was computed for the attempt, so that its tokens are free.
	unserved bool
}

// ended is the failure of a call whose context ended while it did what.
func ended(ctx context.Context, what string) *failure {
	err := ctx.Err()
	text := "cancelled"
	if errors.Is(err, context.DeadlineExceeded) {
		text = "the deadline passed"
	}
	f := &failure{class: rewards.ClassOf(err), text: text + " while " + what, cause: err}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		f.text += ": " + cause.Error()
	}
	return f
}

// finish makes the error of a call: its last failure, and why no attempt follows. A
// wait that ended names the attempt before, whose answer is the better reason.
func (t *try) finish(last, before *failure, why string) error {
	text, cause := last.text, last.cause
	if last.endpoint == nil && before != nil {
		text += "; before that " + before.text
		cause = errors.Join(last.cause, before.cause)
	}
	if t.sent > 1 {
		text += fmt.Sprintf(" (attempt %d of %d)", t.sent, t.g.cfg.Attempts)
	}
	if why != "" {
		text += "; " + why
	}
	text = t.g.secrets.redact(text, t.call.secrets()...)
	return &callError{class: last.class, text: "outbound: " + t.g.cfg.Name + ": " + text, cause: cause}
}

// excerptRunes is how much of an answer an error quotes.
const excerptRunes = 200

// excerpt is the beginning of an answer's body on one line, to be read by people.
func (a *attempt) excerpt(body []byte) string {
	text := a.g.secrets.redact(strings.ToValidUTF8(string(body), "?"), a.call.secrets()...) // Before it is cut: half a key is a secret too.
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
	if text == "" {
		return ""
	}
	if runes := []rune(text); len(runes) > excerptRunes {
		text = string(runes[:excerptRunes]) + "…"
	}
	return ": " + text
}
