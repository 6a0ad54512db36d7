package loop

import (
	"fmt"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// This file is about profiles that no worker takes samples of, and what people are told of
// the breakers behind that.

// hopeless reports whether every live worker that serves the profile has said that it
// never can, and why.
func (c *core) hopeless(profile string) (rewards.ComponentError, bool) {
	if len(c.breakers.shut) == 0 {
		return rewards.ComponentError{}, false
	}
	reason, some := "", false
	for _, worker := range c.board.Profile(profile).Workers() {
		r := c.breakers.records[profile][worker]
		if r == nil || !r.permanent {
			return rewards.ComponentError{}, false
		}
		reason, some = r.reason, true
	}
	return rewards.ComponentError{
		Class: rewards.Unavailable, Blame: rewards.BlameWorker, Permanent: true,
		Message: fmt.Sprintf("no worker can score the profile %q until one is restarted: %s", shown(profile), reason),
	}, some
}

// unserved says why no live worker takes samples of a profile; "" if one does.
func (c *core) unserved(profile string) string {
	if why := c.board.Profile(profile).Unserved(); why != "" {
		return why
	}
	if len(c.breakers.shut) == 0 {
		return ""
	}
	workers := c.board.Profile(profile).Workers()
	var r *record
	for _, worker := range workers {
		if r = c.breakers.records[profile][worker]; r == nil || r.state == closed || r.state == trying && r.reason == "" {
			return ""
		}
	}
	return fmt.Sprintf("no worker serves the profile %q at the moment: the breakers of all %d are open; worker %s: %s",
		shown(profile), len(workers), r.worker, r.reason)
}

// BreakerInfo describes an open circuit breaker: a worker that gets no samples of a profile.
type BreakerInfo struct {
	Worker string `json:"worker"`
	Reward string `json:"reward"`
	// State is "open"; "trying", while one sample tests the worker or is about to; or "hushed", if
	// the worker failed all samples, and no other worker has answered enough samples for a
	// comparison.
	State  string `json:"state"`
	Reason string `json:"reason"`
	// Permanent means that the breaker closes only after a restart of the worker.
	Permanent bool      `json:"permanent,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	// Until is the earliest time at which the next sample tests the worker.
	Until time.Time `json:"until,omitzero"`
}

// Breakers returns the breakers that are not closed, sorted by profile and worker.
func (m *Manager) Breakers() []BreakerInfo {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []BreakerInfo
	for _, r := range m.core.breakers.list() {
		out = append(out, BreakerInfo{r.worker, shown(r.profile), string(r.state), r.reason, r.permanent, r.since, r.until})
	}
	return out
}

// tell logs a breaker that has moved.
func (m *Manager) tell(b breakerChange) {
	switch {
	case !b.Open:
		m.log.Info("a worker gets samples of a reward again", "worker", b.Worker, "reward", shown(b.Profile))
	case b.Permanent:
		m.log.Error("a worker cannot score a reward; the worker gets no samples of the reward until the worker is restarted",
			"worker", b.Worker, "reward", shown(b.Profile), "reason", b.Reason)
	default:
		m.log.Warn("a worker gets no samples of a reward for a while, because attempts of the worker failed; then one sample tests the worker",
			"worker", b.Worker, "reward", shown(b.Profile), "reason", b.Reason, "until", b.Until)
	}
}

// shown is the name of a profile for people.
func shown(profile string) string {
	if profile == "" {
		return "default"
	}
	return profile
}
