// Package outage simulates an engine with outages for the scorers of several processes, without a
// network. Each process has its own breaker.
package outage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// Engine is a service that is up or down. The zero value is up and answers immediately.
type Engine struct {
	// Takes is the duration of an answer.
	Takes time.Duration

	mu    sync.Mutex
	down  bool     // guarded by mu
	asked []string // the samples that it was asked about while it was down; guarded by mu
	calls int      // guarded by mu
}

// Down takes the engine down, or brings it up again.
func (e *Engine) Down(down bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.down = down
}

// Asked returns the samples that were sent to the engine while it was down, in order.
func (e *Engine) Asked() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.asked...)
}

// Calls returns the number of calls of the engine.
func (e *Engine) Calls() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls
}

var errRefused = errors.New("dial tcp: connection refused")

func (e *Engine) answer(ctx context.Context, id string) error {
	e.mu.Lock()
	e.calls++
	down := e.down
	if down {
		e.asked = append(e.asked, id)
	}
	e.mu.Unlock()
	if down {
		return errRefused
	}
	select {
	case <-time.After(e.Takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.down { // killed meanwhile
		return errRefused
	}
	return nil
}

// Link is the connection of one process to the engine, with a breaker. One failure opens the
// breaker for a second. Then one call is a probe; each failed probe doubles the pause, up to 4 s.
type Link struct {
	// Name is the name of the engine.
	Name string

	engine *Engine

	mu      sync.Mutex
	cut     bool // guarded by mu
	open    bool // guarded by mu
	probing bool // guarded by mu
	due     time.Time
	pause   time.Duration
	last    string
	silent  time.Duration // guarded by mu
	changed chan struct{} // closed at the next change; nil: nobody looks; guarded by mu
}

// NewLink returns a connection to the engine.
func NewLink(e *Engine) *Link {
	return &Link{Name: "e", engine: e}
}

// Cut disconnects this process from the engine, or connects it again.
func (l *Link) Cut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
}

// Silent sets the time for which the engine has not answered.
func (l *Link) Silent(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = d
}

// Dependency implements rewards.Reliant.
func (l *Link) Dependency() rewards.Dependency {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil { // in the test's bubble
		l.changed = make(chan struct{})
	}
	d := rewards.Dependency{Name: l.Name, Down: l.open, Last: l.last, Changed: l.changed, Unanswered: l.silent}
	if l.open && !l.probing {
		d.Due, d.Probe = l.due, !time.Now().Before(l.due)
	}
	return d
}

// Score calls the engine and returns 1, or a failure with the blame of the dependency.
func (l *Link) Score(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
	if !l.begin() {
		return rewards.Score{}, l.failure()
	}
	l.mu.Lock()
	cut := l.cut
	l.mu.Unlock()
	err := errRefused
	if !cut {
		err = l.engine.answer(ctx, s.ID)
	}
	if l.end(err); err != nil {
		return rewards.Score{}, l.failure()
	}
	return rewards.Score{Value: 1}, nil
}

// begin reports whether a call may be made.
func (l *Link) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.open:
		return true
	case l.probing || time.Now().Before(l.due):
		return false
	}
	l.probing = true
	l.change()
	return true
}

func (l *Link) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil && l.open:
		l.open, l.probing, l.pause = false, false, 0
	case err == nil:
		return
	case l.open && !l.probing:
		return
	default:
		l.open, l.probing, l.last = true, false, err.Error()
		l.pause = min(max(2*l.pause, time.Second), 4*time.Second)
		l.due = time.Now().Add(l.pause)
	}
	l.change()
}

// change tells those who look. The caller holds mu.
func (l *Link) change() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

func (l *Link) failure() error {
	return rewards.Blamed(rewards.BlameDependency, rewards.WaitsFor(l.Name, fmt.Errorf("%w: %s: %w", rewards.Unavailable, l.Name, errRefused)))
}
