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
// whose text it does not repeat, because that may hold secrets. finish puts its blame
// around it.
type callError struct {
	class rewards.Class
	text  string // The upstream, what the last attempt met, and why there is no further one.
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

	blame     rewards.Blame // Whose failure it is; empty: as its class says.
	permanent bool          // Every call will meet it.

	retry  bool       // Another attempt may succeed.
	waits  bool       // It is not sent as long as the upstream is down.
	rekey  bool       // There is another key than the one that was refused.
	after  retryAfter // What the endpoint asks for.
	health verdict
	// unserved: nothing was computed for the attempt, so that its tokens are free.
	unserved bool
}

// ended is the failure of a call whose context ended while it did what. It is the
// dependency's where that was asked, or kept the call from being sent.
func ended(ctx context.Context, dependency bool, what string) *failure {
	err := ctx.Err()
	text, blame := "cancelled", rewards.BlameNobody
	if errors.Is(err, context.DeadlineExceeded) {
		text = "the deadline passed"
		if dependency || rewards.Overdue(ctx) { // or other calls of the component took all its time
			blame = rewards.BlameDependency
		}
	}
	f := &failure{class: rewards.ClassOf(err), blame: blame, text: text + " while " + what, cause: err}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		f.text += ": " + cause.Error()
	}
	return f
}

// finish makes the error of a call: its last failure, and why no attempt follows. A
// wait that ended names the attempt before, whose answer is the better reason: what the
// call waits for then is another attempt.
func (t *try) finish(last, before *failure, why string) error {
	text, cause, blame := last.text, last.cause, last.blame
	if last.endpoint == nil && before != nil {
		text += "; before that " + before.text
		cause = errors.Join(last.cause, before.cause)
		if blame == rewards.BlameNobody && last.class == rewards.Timeout {
			blame = before.blame
		}
	}
	if t.sent > 1 {
		text += fmt.Sprintf(" (attempt %d of %d)", t.sent, t.g.cfg.Attempts)
	}
	if why != "" {
		text += "; " + why
	}
	text = t.g.secrets.redact(text, t.call.secrets()...)
	var err error = &callError{class: last.class, text: "outbound: " + t.g.cfg.Name + ": " + text, cause: cause}
	if t.g.waits(last, blame) {
		err = rewards.WaitsFor(t.g.cfg.Name, err)
	}
	switch {
	case last.permanent:
		return rewards.Permanent(blame, err)
	case blame == "":
		return err
	}
	return rewards.Blamed(blame, err)
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
