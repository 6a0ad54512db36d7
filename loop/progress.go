package loop

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/loop/dispatch"
)

// This file is about what people are told of each profile: whether its samples are scored,
// and if not, why. The log, /readyz, the status page, the metric and /v1/pending say the same.

// ProgressState is how a profile's samples fare.
type ProgressState string

const (
	// Progressing: a worker takes samples of the profile.
	Progressing ProgressState = "ok"
	// Slow: workers have samples of the profile, and nothing has come of them for a while.
	Slow ProgressState = "slow"
	// Stopped: no sample of the profile can be scored at the moment.
	Stopped ProgressState = "stopped"
)

// Progress says whether samples of a profile are scored at the moment, and if not, why.
type Progress struct {
	// Reward is the profile's name; the default one is named default.
	Reward string        `json:"reward"`
	State  ProgressState `json:"state"`
	// Why is empty where all is well.
	Why string `json:"why,omitempty"`
	// Since is when the state and the reason were first so.
	Since time.Time `json:"since"`
	// Waiting is how many of its samples no worker has, Running how many workers have.
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
}

// progressed notes that a sample of a profile was answered.
func (c *core) progressed(now time.Time, p *dispatch.Profile) {
	if w := c.watches[p]; w != nil {
		w.moved, w.answered = now, now
	}
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
		if strings.HasPrefix(p.Name(), "_") {
			continue
		}
		w := c.watches[p]
		if w == nil {
			w = &watch{Progress: Progress{Reward: shown(p.Name()), State: Progressing, Since: now}, moved: now}
			c.watches[p] = w
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
	said := p.Said()
	quiet := now.Sub(w.moved)
	if quiet < silence {
		if said != "" {
			return Slow, said
		}
		return Progressing, ""
	}
	told := silence
	for 2*told <= quiet {
		told *= 2
	}
	why := fmt.Sprintf("no result for %v", told)
	if w.Waiting > 0 && p.Free() <= 0 {
		why += ", and all capacity is in use"
	}
	return Slow, strings.Join(append([]string{why}, some(said)...), ": ")
}

func some(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

// Progress returns how each profile fares that clients may ask for, in the order of names.
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
	switch p.State {
	case Progressing:
		m.log.Info("samples of a reward are scored again", with...)
	case Slow:
		m.log.Warn("nothing comes of samples of a reward", with...)
	case Stopped:
		m.log.Warn("samples of a reward cannot be scored", with...)
	}
}

// unstuck is how long the spool must have taken samples, or could have, before people are
// told that it does: clients send what was refused after a second.
const unstuck = 3 * time.Second

// refused notes that the spool of a durable gateway takes no samples.
func (c *core) refused(now time.Time, why error) {
	c.stuck, c.stuckAt = why.Error()+"; samples wait at their clients", now
}
