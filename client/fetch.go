package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/wire"
)

var (
	// ErrStepLost means that the step's record was lost with the gateway that assembled the step.
	ErrStepLost = errors.New("the gateway that assembled the step has stopped, and its rows of the step are lost; " +
		"the results that arrived are in their Futures: to call Rewards, declare and submit the step again")
	// ErrStepFailed means that a step missed its deadline under wire.DeadlineFail. The Rewards are
	// returned together with this error.
	ErrStepFailed = errors.New("the step failed at its deadline")
	// ErrTooManyFetches means that 64 requests have no answer yet.
	ErrTooManyFetches = errors.New("too many fetches without an answer")
	// ErrNoAnswer means that a server did not answer a request in time.
	ErrNoAnswer = errors.New("no answer")
	// ErrBadAnswer means that an answer violates the protocol.
	ErrBadAnswer = errors.New("the server's answer violates the protocol")
)

const (
	// maxFetches is how many questions may be without an answer.
	maxFetches = 64
	// answerGrace is how long an answer may take beyond the wait that was asked for, from
	// its sending on: the rows of a large step are some megabytes of JSON.
	answerGrace = 30 * time.Second
	// chunksWait is how long the server waits at a time for Chunks, unless it is told.
	chunksWait = 30 * time.Second
)

// fetch is a question without an answer. Guarded by Client.mu but for done.
type fetch struct {
	ask  wire.Fetch
	text []byte
	late *time.Timer // runs from its sending on; nil while it waits for a connection
	sent *link       // the latest that it went over
	done chan struct{}
	res  *wire.Rewards // set before done is closed
	err  error         // likewise
}

// Rewards requests one chunk of a step's rewards and waits for the answer until ctx ends. Rewards
// sets t.Req itself. In an answer with Ready false the groups were not complete within WaitMS: call
// Rewards again. A lost connection is not an error: the request is repeated over the next
// connection, and a chunk that was handed out before has the same rows.
//
// The error is ErrStepFailed, with the samples without a result in its text and with the answer
// beside it; ErrStepLost if the server was restarted; the class of the server's error, such as
// rewards.Expired if the server no longer has the rows; ErrTooManyFetches; ErrNoAnswer 30 s after
// WaitMS; ErrBadAnswer; ErrClosed or ErrLost; or that of ctx.
func (c *Client) Rewards(ctx context.Context, t wire.Fetch) (*wire.Rewards, error) {
	key := keyOf(t.Split, t.Step)
	wrap := func(err error) error { return fmt.Errorf("client: rewards of %v, chunk %d: %w", key, t.Chunk, err) }
	q, err := c.ask(key, t)
	if err != nil {
		return nil, wrap(err)
	}
	select {
	case <-q.done:
	case <-ctx.Done():
		c.mu.Lock()
		c.answer(q, nil, ctx.Err()) // unless it has just come
		c.mu.Unlock()
	}
	if q.err != nil {
		return nil, wrap(q.err)
	}
	if q.res.State == wire.StepFailed {
		return q.res, wrap(fmt.Errorf("%w: %s", ErrStepFailed, absentees(q.res)))
	}
	return q.res, nil
}

// Chunks yields the chunks of a step from t.Chunk to the last chunk, each as soon as its groups are
// complete. WaitMS is how long the server waits for each request, 30 s by default. If the step has
// no deadline, Chunks waits until ctx ends. The last chunk of a step with missing samples may have
// no rows. Chunks ends after the first error; ErrStepFailed is yielded together with the answer of
// Rewards.
func (c *Client) Chunks(ctx context.Context, t wire.Fetch) iter.Seq2[*wire.Rewards, error] {
	t.WaitMS = cmp.Or(t.WaitMS, chunksWait.Milliseconds())
	return func(yield func(*wire.Rewards, error) bool) {
		for t := t; ; {
			asked := time.Now()
			r, err := c.Rewards(ctx, t)
			if err != nil {
				yield(r, err)
				return
			}
			if !r.Ready && !r.Done {
				if err := unhurried(ctx, asked, t.WaitMS); err != nil {
					yield(nil, fmt.Errorf("client: rewards of %v, chunk %d: %w", keyOf(t.Split, t.Step), t.Chunk, err))
					return
				}
				continue
			}
			if !yield(r, nil) || r.Done {
				return
			}
			t.Chunk++
		}
	}
}

// unhurried pauses where a server did not wait as it was asked to, so that it is not
// asked without end.
func unhurried(ctx context.Context, asked time.Time, waitMS int64) error {
	if time.Since(asked) >= time.Duration(waitMS)*time.Millisecond/2 {
		return nil
	}
	select {
	case <-time.After(100 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ask numbers a question and sends it, now or over the next link.
func (c *Client) ask(key stepKey, t wire.Fetch) (*fetch, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch note := c.steps[key]; {
	case c.err != nil:
		return nil, c.err
	case len(c.fetches) >= maxFetches:
		return nil, fmt.Errorf("%w: %d, the limit", ErrTooManyFetches, maxFetches)
	case note != nil && note.lost:
		return nil, ErrStepLost
	}
	t.Req = c.req + 1
	text, err := wire.EncodeControl(&t)
	if err != nil {
		return nil, err
	}
	c.req++
	note := c.touch(key)
	q := &fetch{ask: t, text: text, done: make(chan struct{})}
	c.fetches[t.Req] = q
	if l := c.linkFor(note); l != nil {
		c.put(l, q)
	}
	return q, nil
}

// asking reports whether a question was sent over the live link and has no answer. The
// caller holds mu.
func (c *Client) asking() bool {
	for _, q := range c.fetches {
		if q.sent == c.link {
			return true
		}
	}
	return false
}

// put sends a question over a link, and waits for its answer from now on. The caller
// holds mu.
func (c *Client) put(l *link, q *fetch) {
	q.still()
	if l.conn.Send(q.text) != nil {
		return // the link has ended: the next one carries it
	}
	q.sent = l
	within := time.Duration(q.ask.WaitMS)*time.Millisecond + c.grace
	q.late = time.AfterFunc(within, func() { // stopped with the answer, or with the link
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.link != l {
			return // it is asked again
		}
		err := fmt.Errorf("%w within %v", ErrNoAnswer, within)
		if n := len(c.problems); n > 0 {
			err = fmt.Errorf("%w; the server's latest error: %v", err, c.problems[n-1]) //nolint:errorlint // it may be of something else
		}
		c.answer(q, nil, err)
	})
}

// still stops the clock of a question.
func (q *fetch) still() {
	if q.late != nil {
		q.late.Stop()
		q.late = nil
	}
}

// askAgain sends over a new link what has no answer. What a gateway knew that is gone
// nobody can answer. The caller holds mu and has called restate.
func (c *Client) askAgain(l *link) {
	for _, q := range c.fetches {
		if note := c.steps[keyOf(q.ask.Split, q.ask.Step)]; note != nil && note.lost {
			c.answer(q, nil, ErrStepLost)
			continue
		}
		c.put(l, q)
	}
}

// answer settles a question, once. The caller holds mu.
func (c *Client) answer(q *fetch, r *wire.Rewards, err error) {
	if c.fetches[q.ask.Req] != q {
		return
	}
	q.still()
	delete(c.fetches, q.ask.Req)
	q.res, q.err = r, err
	close(q.done)
	c.stir() // it may have been the last thing that kept the client at a draining server
}

// rewards takes an answer. One that nobody waits for any more is dropped; one to what was
// never asked, or about something else, is a problem of the server's.
func (c *Client) rewards(r *wire.Rewards) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.fetches[r.Req]
	switch {
	case q == nil:
		if r.Req == 0 || r.Req > c.req {
			c.problem(fmt.Errorf("%w: rewards for question %d, which was not asked", ErrBadAnswer, r.Req))
		}
		return
	case keyOf(r.Split, r.Step) != keyOf(q.ask.Split, q.ask.Step) || r.Chunk != q.ask.Chunk:
		err := fmt.Errorf("%w: question %d was answered with chunk %d of %v", ErrBadAnswer, r.Req, r.Chunk, keyOf(r.Split, r.Step))
		c.problem(err)
		c.answer(q, nil, err)
		return
	}
	if note := c.steps[keyOf(r.Split, r.Step)]; note != nil && r.State != wire.StepOpen {
		note.declared = nil // it has ended
	}
	c.answer(q, r, nil)
}

// garbled settles the question that an unreadable answer belongs to, so that a server
// that answers so again and again is not asked over one connection after the other. It
// reports whether msg was such an answer.
func (c *Client) garbled(msg []byte, why error) bool {
	if !bytes.HasPrefix(msg, []byte(`{"type":"rewards",`)) {
		return false
	}
	var m struct {
		Req uint64 `json:"req"`
	}
	if json.Unmarshal(msg, &m) != nil {
		return false
	}
	err := fmt.Errorf("%w: %w", ErrBadAnswer, why)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problem(err)
	if q := c.fetches[m.Req]; q != nil {
		c.answer(q, nil, err)
	}
	return true
}

// refused settles a question that the server refuses.
func (c *Client) refused(req uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.fetches[req]; q != nil {
		c.answer(q, nil, err)
	}
}

// maxNamed is how many missing samples an error names; a server names maxWithout at most.
const (
	maxNamed   = 8
	maxWithout = 256
)

// absentees says how many samples have no result, and names the first of them.
func absentees(r *wire.Rewards) string {
	var names []string
	known := int64(0)
	for _, m := range r.Without {
		known += max(1, m.Members)
		if len(names) < maxNamed {
			names = append(names, absentee(m))
		}
	}
	total := max(r.Missing+r.Pending, known)
	out := fmt.Sprintf("%d of %d samples have no result", total, max(r.Expected, r.Arrived))
	if len(r.Without) >= maxWithout {
		out = "at least " + out
	}
	if len(names) == 0 {
		return out
	}
	named := int64(0)
	for _, m := range r.Without[:len(names)] {
		named += max(1, m.Members)
	}
	out += ": " + strings.Join(names, ", ")
	if total > named {
		out += fmt.Sprintf(" and %d more", total-named)
	}
	return out
}

// absentee names one: by its id, else by its row, else by its group.
func absentee(m wire.Missing) string {
	name := "a sample"
	switch {
	case m.ID != "":
		name = fmt.Sprintf("%q", m.ID)
	case m.Index != nil:
		name = fmt.Sprintf("row %d", *m.Index)
	case m.UID != "":
		name = fmt.Sprintf("%d of group %q", max(1, m.Members), m.UID)
	}
	if m.Stage != "" {
		name += " (" + m.Stage + ")"
	}
	return name
}
