package client

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// stepKey names a step within the run.
type stepKey struct {
	split rewards.Split
	step  int64
}

func keyOf(split rewards.Split, step int64) stepKey {
	return stepKey{cmp.Or(split, rewards.Train), step}
}

func (k stepKey) String() string { return fmt.Sprintf("step %d (%s)", k.step, k.split) }

// stepNote is what the client remembers of a step that it has declared, submitted to or
// asked about. Guarded by Client.mu.
type stepNote struct {
	declared *wire.Step // said again over each resumed link; nil: nobody declared it here, or it has ended
	until    time.Time  // the deadline of the declaration; zero: the server's
	answered int64      // results since the declaration
	said     bool       // a server has heard of the step
	lost     bool       // that server is gone, and its record with it
}

// maxSteps bounds the steps that are remembered, maxDeclared those that are declared
// again after a lost connection. A trainer has two or three at a time.
const (
	maxSteps    = 256
	maxDeclared = 64
)

// idBytes is the most that the ids of one message may have: with what stands around them
// half of what the wire allows a client, so that no message is long on its way before a
// small sample.
const idBytes = 32<<10 - 256

// Declare announces a step: how many samples this client will send, or, with Total, how many the
// whole run will send. Optionally Declare also announces the ids of the samples in the order of the
// batch, the deadline of the step, and its policy at the deadline. An Expected of 0 means the
// number of ids. A long list of ids is sent in several messages. While the connection is down, the
// step is declared over the next connection. A later declaration replaces the earlier one, except
// for the ids, which are joined.
func (c *Client) Declare(s wire.Step) error {
	if s.Expected == 0 {
		s.Expected = int64(len(s.IDs))
	}
	if n := int64(len(s.IDs)); n > s.Expected {
		return fmt.Errorf("client: step %d: %d ids for %d expected samples", s.Step, n, s.Expected)
	}
	messages, err := declarations(s)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	note := c.touch(keyOf(s.Split, s.Step))
	if note.lost {
		*note = stepNote{said: c.taking()}
	}
	var known []string
	if note.declared != nil {
		known = note.declared.IDs
	}
	s.IDs = union(known, s.IDs)
	note.declared, note.until = &s, time.Time{}
	if s.DeadlineMS > 0 {
		note.until = time.Now().Add(time.Duration(s.DeadlineMS) * time.Millisecond)
	}
	c.forgetDeclared()
	if l := c.linkFor(note); l != nil {
		l.say(messages) // should it end meanwhile, the next one is told
	}
	return nil
}

// union returns the ids of both lists, each once, in their order, in memory of its own.
func union(a, b []string) []string {
	seen := make(map[string]bool, len(a)+len(b))
	var all []string
	for _, id := range slices.Concat(a, b) {
		if !seen[id] {
			seen[id] = true
			all = append(all, id)
		}
	}
	return all
}

// declarations are the messages of one declaration. Each repeats what is no id: the
// server takes the latest, and every one of them may be the only one that comes.
func declarations(s wire.Step) ([][]byte, error) {
	return splitIDs(s.IDs, func(some []string) any {
		own := s
		own.IDs = some
		return &own
	})
}

// splitIDs encodes messages that hold ids, so many in each as idBytes allow; without any
// it is one message.
func splitIDs(ids []string, message func(some []string) any) ([][]byte, error) {
	var messages [][]byte
	for {
		n := 0
		for room := idBytes; n < len(ids); n++ {
			b, _ := json.Marshal(ids[n]) //nolint:errchkjson // a string
			if room -= len(b) + 1; room < 0 && n > 0 {
				break
			}
		}
		var some []string
		if n > 0 {
			some, ids = ids[:n:n], ids[n:]
		}
		b, err := wire.EncodeControl(message(some))
		if err != nil {
			return nil, err
		}
		messages = append(messages, b)
		if len(ids) == 0 {
			return messages, nil
		}
	}
}

// say queues messages, and gives up with the connection.
func (l *link) say(messages [][]byte) {
	for _, b := range messages {
		if l.conn.Send(b) != nil {
			return
		}
	}
}

// touch returns the note of a step, making it if there is none. The oldest notes go. The
// caller holds mu.
func (c *Client) touch(key stepKey) *stepNote {
	note := c.steps[key]
	if note == nil {
		if len(c.stepLog) >= maxSteps {
			delete(c.steps, c.stepLog[0])
			c.stepLog = c.stepLog[1:]
		}
		note = &stepNote{}
		c.steps[key] = note
		c.stepLog = append(c.stepLog, key)
	}
	note.said = note.said || c.taking()
	return note
}

// taking reports whether there is a server that takes samples. The caller holds mu.
func (c *Client) taking() bool { return c.link != nil && !c.link.draining }

// linkFor returns the live link, if there is one. A draining server is told nothing of a
// step that it has not heard of: the next one has all of it. The caller holds mu.
func (c *Client) linkFor(note *stepNote) *link {
	if c.link == nil || c.link.draining && !note.said {
		return nil
	}
	return c.link
}

// forgetDeclared keeps the latest declarations. The caller holds mu.
func (c *Client) forgetDeclared() {
	kept := 0
	for _, key := range slices.Backward(c.stepLog) {
		if note := c.steps[key]; note.declared != nil {
			if kept++; kept > maxDeclared {
				note.declared = nil
			}
		}
	}
}

// settled counts a result of a step; with the last one there is nothing to declare again.
// The caller holds mu.
func (c *Client) settled(key stepKey) {
	note := c.steps[key]
	if note == nil {
		return
	}
	if note.answered++; note.declared != nil && note.answered >= note.declared.Expected {
		note.declared = nil
	}
}

// restate tells a new link of the declared steps. A server that does not know the session
// has no record of a step that its predecessor had heard of: that step is lost. The caller
// holds mu.
func (c *Client) restate(l *link, resumed bool) {
	now := time.Now()
	for _, key := range c.stepLog {
		note := c.steps[key]
		if !resumed && note.said {
			note.lost, note.declared = true, nil
		}
		note.said = true
		if note.declared == nil || !note.until.IsZero() && !note.until.After(now) {
			continue
		}
		s := *note.declared
		if !note.until.IsZero() {
			s.DeadlineMS = max(1, note.until.Sub(now).Milliseconds())
		}
		if messages, err := declarations(s); err == nil { // it was encoded before
			l.say(messages)
		}
	}
}
