package outbound

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/rewardloop/rewardloop/rewards"
)

// Error is the end of a call that has no answer. It wraps its class and its cause.
type Error struct {
	Class rewards.Class
	// Group is the name of the group, Endpoint the URL of the last attempt without
	// secrets, empty if there was none.
	Group, Endpoint string
	// Status is the last attempt's, 0 if it had none.
	Status int
	// Attempts counts the requests that were sent.
	Attempts int

	text  string // Without secrets.
	cause error
}

// Error names the group, what the last attempt met, and why there is no further one.
func (e *Error) Error() string { return "outbound: " + e.Group + ": " + e.text }

// Unwrap returns the class first, so that rewards.ClassOf finds it before the cause's.
func (e *Error) Unwrap() []error {
	if e.cause == nil {
		return []error{e.Class}
	}
	return []error{e.Class, e.cause}
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
func (t *try) finish(last, before *failure, why string) *Error {
	e := &Error{Class: last.class, Group: t.g.cfg.Name, Attempts: t.sent, cause: last.cause}
	text := last.text
	shown := last
	if last.endpoint == nil && before != nil {
		text += "; before that " + before.text
		e.cause = errors.Join(last.cause, before.cause)
		shown = before
	}
	if shown.endpoint != nil {
		e.Endpoint, e.Status = shown.endpoint.name, shown.status
	}
	if t.sent > 1 {
		text += fmt.Sprintf(" (attempt %d of %d)", t.sent, t.g.cfg.Attempts)
	}
	if why != "" {
		text += "; " + why
	}
	e.text = t.g.secrets.redact(text)
	return e
}

// excerptRunes is how much of an answer an error quotes.
const excerptRunes = 200

// excerpt is the beginning of an answer's body on one line, to be read by people.
func (g *Group) excerpt(body []byte) string {
	text := g.secrets.redact(strings.ToValidUTF8(string(body), "?")) // Before it is cut: half a key is a secret too.
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
