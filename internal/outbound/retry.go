package outbound

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// retryAfter is what an endpoint asks for: to be left alone for some time.
type retryAfter struct {
	asked bool
	wait  time.Duration // 0 or more.
}

// parseRetryAfter reads the headers of an answer (RFC 9110 §10.2.3): seconds, with a
// fraction where a server is so kind, or a date, which is taken relative to the
// answer's own Date so that the two clocks need not agree. What cannot be read is as
// if it were not there. The wait is cut at most.
func parseRetryAfter(h http.Header, now time.Time, most time.Duration) retryAfter {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		return retryAfter{}
	}
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		if math.IsNaN(seconds) || seconds < 0 {
			return retryAfter{}
		}
		return retryAfter{asked: true, wait: time.Duration(min(seconds*float64(time.Second), float64(most)))}
	}
	date, err := http.ParseTime(text)
	if err != nil {
		return retryAfter{}
	}
	if sent, err := http.ParseTime(h.Get("Date")); err == nil {
		now = sent
	}
	return retryAfter{asked: true, wait: min(max(date.Sub(now), 0), most)}
}

// backoff is the pause after the nth failed attempt: anything up to base·2^(n-1), at
// most longest. All of it is random ("full jitter"), because those who failed together
// must not come back together.
func backoff(n int, base, longest time.Duration) time.Duration {
	bound := longest
	if shift := n - 1; shift < 32 && base < longest>>shift {
		bound = base << shift
	}
	if bound <= 0 {
		return 0
	}
	return rand.N(bound) // no secret
}

// again decides whether a failed attempt is followed by another, and after what pause.
// why says why not, where the failure alone does not.
func (t *try) again(ctx context.Context, f *failure) (pause time.Duration, why string, ok bool) {
	g := t.g
	now := time.Now()
	if f.rekey && !t.rekeyed {
		t.rekeyed = true
		return 0, "", true
	}
	if !f.retry || ctx.Err() != nil || t.sent >= g.cfg.Attempts {
		return 0, "", false
	}
	if rewards.Returns(ctx) && !g.usable(now) {
		f.waits = true
		return 0, "", false
	}
	pause = backoff(t.sent, g.cfg.BackoffMin, g.cfg.BackoffMax)
	if f.after.asked && !g.elsewhere(now, f.endpoint) {
		// The random part stays: those who were told the same must not return together.
		pause += f.after.wait
	}
	if end, has := ctx.Deadline(); has && !now.Add(pause).Before(end) {
		return 0, "no time for another attempt, which would be in " + brief(pause), false
	}
	if !g.budget.spend(now) {
		return 0, "no retry, because more than a fifth of the calls were retried already", false
	}
	return pause, "", true
}

// brief is a duration to be read by people.
func brief(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
