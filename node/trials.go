package node

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

// trial is a question as those of one scorer are, with which its engine is tried when it starts.
// What the engine does not do then fails the scorer's questions at once, and those of nobody else.
type trial struct {
	at    chat.Endpoint
	what  string // that is asked for, for people
	try   func(ctx context.Context, doer outbound.Doer) (lacks, err error)
	mu    sync.Mutex
	lacks error // guarded by mu
}

// err says that the engine cannot do what the scorer asks for.
func (t *trial) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lacks == nil {
		return nil
	}
	return rewards.Permanent(rewards.BlameDependency, fmt.Errorf("%w: engine %s lacks a feature that the judges need: %w", rewards.Internal, t.at.Engine, t.lacks))
}

// set notes what a try has found, and reports whether it is another thing than before.
func (t *trial) set(lacks error) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed = (lacks == nil) != (t.lacks == nil)
	t.lacks = lacks
	return changed
}

// addTrial notes how an engine is to be tried.
func (e *Engines) addTrial(t *trial) *trial {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.trials = append(e.trials, t)
	return t
}

// of are the trials of an engine.
func (e *Engines) trialsOf(engine string) (out []*trial) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.trials {
		if t.at.Engine == engine {
			out = append(out, t)
		}
	}
	return out
}

// try tries an engine with a question of each of its scorers. unable says that it does nothing of
// what is asked; err why that is not known.
func (e *Engines) try(ctx context.Context, engine string, doer outbound.Doer) (unable, err error) {
	trials := e.trialsOf(engine)
	var all []error
	for _, t := range trials {
		lacks, err := t.try(ctx, doer)
		if err != nil {
			return nil, err
		}
		if lacks != nil {
			all = append(all, lacks)
		}
		if t.set(lacks) && lacks != nil {
			e.log.ErrorContext(ctx, "an engine lacks a feature that a scorer needs; all samples of the scorer fail", "engine", engine, "asked_for", t.what, "error", lacks)
		}
	}
	if len(trials) > 0 && len(all) == len(trials) {
		return errors.Join(all...), nil
	}
	return nil, nil
}

// able asks an engine that can do what is asked, and no other.
type able struct {
	*chat.Client
	ask   chat.Chatter
	trial *trial
}

// Chat implements chat.Chatter.
func (a able) Chat(ctx context.Context, r *chat.Request) (*chat.Reply, error) {
	if err := a.trial.err(); err != nil {
		return nil, err
	}
	return a.ask.Chat(ctx, r)
}

// ableDoer is able for a scorer that does not chat.
type ableDoer struct {
	*outbound.Switch
	trial *trial
}

// Do implements outbound.Doer.
func (a ableDoer) Do(ctx context.Context, c *outbound.Call) (*outbound.Answer, error) {
	if err := a.trial.err(); err != nil {
		return nil, err
	}
	return a.Switch.Do(ctx, c)
}
