package loop

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/loop/dispatch"
	"github.com/rewardloop/rewardloop/loop/failures"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// This file is about what people are told of each profile: whether its samples are scored,
// and if not, why. The log, /readyz, the status page, the metric and /v1/pending say the same.

// ProgressState is the state of the scoring of a profile.
type ProgressState string

const (
	// Progressing means that a worker accepts samples of the profile. If another worker cannot
	// score the profile, Progress.Why contains the reason.
	Progressing ProgressState = "ok"
	// Slow means that there are unfinished samples of the profile but no result for a while, or
	// that the scoring is impeded; Progress.Why contains the reason.
	Slow ProgressState = "slow"
	// Failing means that workers answer samples of the profile, and every answer is a failure.
	Failing ProgressState = "failing"
	// Stopped means that no sample of the profile can be scored at the moment.
	Stopped ProgressState = "stopped"
)

// Progress reports whether samples of a profile are scored at the moment, and if not, why.
type Progress struct {
	// Reward is the profile's name; the name of the default profile is "default".
	Reward string        `json:"reward"`
	State  ProgressState `json:"state"`
	// Why is the reason of the state, empty without problems.
	Why string `json:"why,omitempty"`
	// Since is the time at which the state or the reason last changed.
	Since time.Time `json:"since"`
	// Waiting is the number of the profile's samples that no worker has, Running the number of
	// samples that workers have.
	Waiting int `json:"waiting"`
	Running int `json:"running"`
}

// silence is how long nothing may come of a profile's samples before people are told. The
// time is told in steps, each twice the one before.
const silence = 10 * time.Second

// watchEvery is how often the gateway looks at the progress of its profiles.
const watchEvery = time.Second

// watch is what is known of the progress of one profile.
type watch struct {
	Progress

	moved    time.Time // when a sample of it was last answered, or the first of those that are there came
	answered time.Time // when a sample of it was last answered
	scored   bool      // ever
	row      int       // failures in a row, of the reward and not of the sample
	last     rewards.ComponentError
	shape    string // of last
}

// failing is how many failures in a row of a reward that has scored before are told: one that
// scores half of its samples fails so many in a row once in 65,000 samples.
const failing = 16

// progressed notes that a sample of a profile was answered.
func (c *core) progressed(now time.Time, p *dispatch.Profile, res *wire.Result) {
	w := c.watching(now, p)
	if w == nil {
		return
	}
	w.moved, w.answered = now, now
	if res.Outcome == rewards.Scored {
		w.scored, w.row, w.last, w.shape = true, 0, rewards.ComponentError{}, ""
		return
	}
	i := slices.IndexFunc(res.Errors, func(e rewards.ComponentError) bool { return e.Class != rewards.Cancelled })
	if res.Outcome != rewards.Failed || i < 0 || res.Errors[i].Blame == rewards.BlameSample {
		return
	}
	w.row++
	if shape := failures.Shape(res.Errors[i].Message, res.ID); shape != w.shape || res.Errors[i].Component != w.last.Component {
		w.last, w.shape = res.Errors[i], shape
	}
}

// watching is what is known of a profile; nil: clients cannot ask for it.
func (c *core) watching(now time.Time, p *dispatch.Profile) *watch {
	w := c.watches[p]
	if w == nil && !strings.HasPrefix(p.Name(), "_") {
		w = &watch{Progress: Progress{Reward: shown(p.Name()), State: Progressing, Since: now}, moved: now}
		c.watches[p] = w
	}
	return w
}

// fails says how every sample of a profile fails; "": not every one does.
func (w *watch) fails() string {
	if w.row == 0 || w.scored && w.row < failing {
		return ""
	}
	why := "every sample fails: "
	if w.last.Component != "" {
		why += w.last.Component + ": "
	}
	return why + w.last.Message
}

// settling is how long a gateway that begins is given until its workers are there.
const settling = 3 * time.Second

// observe looks at the progress of every profile that clients may ask for, and returns those
// whose state or reason is another.
func (c *core) observe(now time.Time) (changed []Progress) {
	if c.began.IsZero() {
		c.began = now
	}
	c.observed = now
	if err := c.journal.trouble(); err != nil {
		c.refused(now, err)
	} else if now.Sub(c.stuckAt) >= unstuck {
		c.stuck = ""
	}
	waits, runs := map[*dispatch.Profile]int{}, map[*dispatch.Profile]int{}
	for _, e := range c.entries {
		switch p := e.item.Profile(); e.state {
		case queued, published:
			waits[p]++
		case running:
			runs[p]++
		}
	}
	for _, p := range c.board.Profiles() {
		w := c.watching(now, p)
		if w == nil {
			continue
		}
		if w.Waiting+w.Running == 0 {
			w.moved = now
		}
		w.Waiting, w.Running = waits[p], runs[p]
		if w.Waiting+w.Running == 0 {
			w.moved = now
		}
		state, why := c.progressOf(now, p, w)
		if state == Stopped && now.Sub(c.began) < settling {
			continue
		}
		if state != w.State || why != w.Why {
			w.State, w.Why, w.Since = state, why, now
			changed = append(changed, w.Progress)
		}
	}
	return changed
}

// progressOf says how a profile fares.
func (c *core) progressOf(now time.Time, p *dispatch.Profile, w *watch) (ProgressState, string) {
	if why := c.unserved(p.Name()); why != "" {
		return Stopped, why
	}
	if c.stuck != "" && w.Running == 0 && now.Sub(w.answered) >= unstuck {
		return Stopped, c.stuck
	} else if c.stuck != "" {
		return Slow, c.stuck // what was taken goes on, and may make room
	}
	if fails := w.fails(); fails != "" {
		if w.last.Permanent {
			return Stopped, fails
		}
		return Failing, fails
	}
	said := p.Said()
	quiet := now.Sub(w.moved)
	if quiet < silence {
		if said != "" {
			return Slow, said
		}
		return Progressing, p.Lacking()
	}
	told := silence
	for 2*told <= quiet {
		told *= 2
	}
	why := fmt.Sprintf("no result for %v", told)
	if w.Waiting > 0 && p.Free() <= 0 {
		why += ", and all capacity is in use"
	}
	if n := c.hungry(p.Name()); n > 0 {
		why += fmt.Sprintf(", connections that wait for credit: %d", n)
	}
	if said = cmp.Or(said, p.Lacking()); said != "" {
		why += ": " + said
	}
	return Slow, why
}

// Progress returns the progress of each profile that clients may request, sorted by name.
func (m *Manager) Progress() (all []Progress) {
	workers, now := m.presence.Workers(), time.Now()
	m.mu.Lock()
	m.core.survey(workers)
	changed := m.core.observe(now)
	for _, p := range m.core.board.Profiles() {
		if w := m.core.watches[p]; w != nil {
			all = append(all, w.Progress)
		}
	}
	m.mu.Unlock()
	for _, p := range changed {
		m.tellProgress(p)
	}
	slices.SortFunc(all, func(a, b Progress) int { return strings.Compare(a.Reward, b.Reward) })
	return all
}

// tellProgress logs that a profile fares otherwise than before.
func (m *Manager) tellProgress(p Progress) {
	with := []any{"reward", p.Reward, "waiting", p.Waiting, "running", p.Running}
	if p.Why != "" {
		with = append(with, "reason", p.Why)
	}
	switch {
	case p.State == Progressing && p.Why != "":
		m.log.Warn("a worker cannot score samples of a reward; other workers can", with...)
	case p.State == Progressing:
		m.log.Info("scoring of a reward has resumed", with...)
	case p.State == Failing:
		m.log.Warn("all samples of a reward fail", with...)
	case p.State == Slow:
		m.log.Warn("samples of a reward have waited too long for results", with...)
	default:
		m.log.Warn("no sample of a reward can be scored at present", with...)
	}
}

// unstuck is how long the spool must have taken samples, or could have, before people are
// told that it does: clients send what was refused after a second.
const unstuck = 3 * time.Second

// refused notes that the spool of a durable gateway takes no samples.
func (c *core) refused(now time.Time, why error) {
	c.stuck, c.stuckAt = why.Error()+"; samples wait at their clients", now
}
