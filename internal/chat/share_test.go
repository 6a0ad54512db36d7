package chat_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

// counting is an engine that numbers its answers.
func counting(n *atomic.Int64) doerFunc {
	return func(_ context.Context, c *outbound.Call) (*outbound.Answer, error) {
		return give(c, says(fmt.Sprint(n.Add(1))))
	}
}

func text(t *testing.T, c *chat.Client, r *chat.Request) string {
	t.Helper()
	reply, err := c.Chat(t.Context(), r)
	require.NoError(t, err)
	return reply.Text
}

func TestAnEqualQuestionIsAnsweredFromMemoryAndAnyOtherIsAsked(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	c := newClient(t, chat.Config{}, counting(&n))
	question := func() *chat.Request {
		r := ask(chat.Part{Image: []byte("ab"), MIME: "image/png"}, chat.Text("cd"))
		r.Model, r.TopP, r.MaxTokens, r.Extra = "m", new(0.5), 10, map[string]any{"k": 1, "l": 2}
		return r
	}
	require.Equal(t, "1", text(t, c, question()))
	reply, err := c.Chat(t.Context(), question())
	require.NoError(t, err)
	assert.Equal(t, "1", reply.Text)
	assert.True(t, reply.Cached)

	changes := []func(*chat.Request){
		func(r *chat.Request) { r.Model = "m2" },
		func(r *chat.Request) { r.Temperature, r.Seed = new(0.5), new(int64(1)) },
		func(r *chat.Request) { r.TopP = nil },
		func(r *chat.Request) { r.MaxTokens = 11 },
		func(r *chat.Request) { r.Seed = new(int64(1)) },
		func(r *chat.Request) { r.Extra["k"] = 2 },
		func(r *chat.Request) { r.ResponseFormat = &chat.Schema{} },
		func(r *chat.Request) { r.Messages[0].Role = chat.Assistant },
		func(r *chat.Request) { r.Messages[0].Parts[0].Image = []byte("aB") },
		func(r *chat.Request) { r.Messages[0].Parts[0].MIME = "image/jpeg" },
		func(r *chat.Request) { r.Messages[0].Parts[1].Text = "ce" },
		func(r *chat.Request) { r.Messages[0].Parts = append(r.Messages[0].Parts, chat.Text("")) },
		func(r *chat.Request) {
			p := r.Messages[0].Parts
			r.Messages = []chat.Message{{Role: chat.User, Parts: p[:1]}, {Role: chat.User, Parts: p[1:]}}
		},
		func(r *chat.Request) { p := r.Messages[0].Parts; p[0], p[1] = p[1], p[0] },
	}
	for i, change := range changes {
		r := question()
		change(r)
		assert.Equal(t, fmt.Sprint(i+2), text(t, c, r), "change %d", i)
	}
	assert.Equal(t, "1", text(t, c, question()))
}

func TestADrawAtRandomIsNeitherRememberedNorSharedUnlessConfigured(t *testing.T) {
	t.Parallel()
	drawn := func() *chat.Request {
		r := ask(chat.Text("?"))
		r.Temperature = new(0.7)
		return r
	}
	engines := func() *chat.Request { // the engine's own temperature
		r := ask(chat.Text("?"))
		r.Temperature = nil
		return r
	}
	for _, question := range []func() *chat.Request{drawn, engines} {
		var n atomic.Int64
		c := newClient(t, chat.Config{}, counting(&n))
		assert.Equal(t, "1", text(t, c, question()))
		assert.Equal(t, "2", text(t, c, question()))
	}
	var n atomic.Int64
	c := newClient(t, chat.Config{}, counting(&n))
	for range 2 {
		r := drawn()
		r.Seed = new(int64(3))
		assert.Equal(t, "1", text(t, c, r))
	}
}

func TestOnlyAnAcceptedReplyIsRemembered(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	c := newClient(t, chat.Config{}, counting(&n))
	unreadable := errors.New("unreadable")
	r := ask(chat.Text("?"))
	r.Accept = func(reply chat.Reply) error {
		if reply.Text != "3" {
			return fmt.Errorf("%w: %s", unreadable, reply.Text)
		}
		return nil
	}
	for attempt := range 2 {
		r.Attempt = attempt
		reply, err := c.Chat(t.Context(), r)
		require.ErrorIs(t, err, unreadable)
		require.Nil(t, reply)
	}
	assert.Zero(t, c.Stats().Entries)
	r.Attempt = 2
	assert.Equal(t, "3", text(t, c, r))
	r.Attempt = 0
	assert.Equal(t, "3", text(t, c, r), "what was accepted at last answers the first attempt of the next")
	r.Attempt = 1
	_, err := c.Chat(t.Context(), r)
	require.ErrorIs(t, err, unreadable, "a further attempt takes nothing from memory")
	s := c.Stats()
	assert.Equal(t, [4]uint64{4, 1, 3, 0}, [4]uint64{s.Requests, s.Hits, s.Refused, s.Failures})

	other := ask(chat.Text("?"))
	other.Accept = func(chat.Reply) error { return unreadable }
	_, err = c.Chat(t.Context(), other)
	require.ErrorIs(t, err, unreadable, "a remembered reply is shown to everybody's Accept")
	assert.Equal(t, 1, c.Stats().Entries)
}

func TestMemoryIsBoundedByEntriesAndBytesAndTheOldestGoFirst(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	c := newClient(t, chat.Config{CacheEntries: 3}, counting(&n))
	for _, q := range []string{"a", "b", "c", "a", "d"} { // drives out b
		text(t, c, ask(chat.Text(q)))
	}
	assert.Equal(t, 3, c.Stats().Entries)
	assert.Equal(t, "1", text(t, c, ask(chat.Text("a"))))
	assert.Equal(t, "5", text(t, c, ask(chat.Text("b"))))

	long := newClient(t, chat.Config{CacheBytes: 100_000}, answering(says(strings.Repeat("x", 10_000))))
	for i := range 50 {
		text(t, long, ask(chat.Text(fmt.Sprint(i))))
	}
	assert.Equal(t, 9, long.Stats().Entries)
	assert.LessOrEqual(t, long.Stats().Bytes, int64(100_000))

	huge := newClient(t, chat.Config{CacheBytes: 10_000}, answering(says(strings.Repeat("x", 2_000))))
	text(t, huge, ask(chat.Text("?")))
	assert.Zero(t, huge.Stats().Entries, "more than an eighth")

	off := newClient(t, chat.Config{CacheEntries: -1}, counting(&n))
	before := n.Load()
	for range 2 {
		text(t, off, ask(chat.Text("?")))
	}
	assert.EqualValues(t, 2, n.Load()-before)
}

// gate is an engine that answers when it is let.
type gate struct {
	open     chan struct{}
	asked    atomic.Int64
	left     atomic.Int64 // calls that ended with their context
	lastBody atomic.Pointer[string]
}

func (g *gate) Do(ctx context.Context, c *outbound.Call) (*outbound.Answer, error) {
	n := g.asked.Add(1)
	select {
	case <-g.open:
		body := string(c.Body)
		g.lastBody.Store(&body)
		return give(c, says(fmt.Sprint(n)))
	case <-ctx.Done():
		g.left.Add(1)
		return nil, fmt.Errorf("asking: %w", ctx.Err())
	}
}

func TestConcurrentEqualQuestionsAreAskedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		c := newClient(t, chat.Config{}, g)
		var wg sync.WaitGroup
		var cached atomic.Int64
		for range 50 {
			wg.Go(func() {
				reply, err := c.Chat(t.Context(), ask(chat.Text("?")))
				if assert.NoError(t, err) && reply.Cached {
					cached.Add(1)
				}
			})
		}
		synctest.Wait()
		assert.EqualValues(t, 1, g.asked.Load())
		close(g.open)
		wg.Wait()
		assert.EqualValues(t, 49, cached.Load())
		s := c.Stats()
		assert.Equal(t, [2]uint64{1, 49}, [2]uint64{s.Requests, s.Joined + s.Hits})
	})
}

func TestAnAskerWhoLeavesDoesNotTakeTheOthersAnswerAlong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		c := newClient(t, chat.Config{}, g)
		picture := []byte("the pixels of a sample")
		question := func() *chat.Request { return ask(chat.Part{Image: picture, MIME: "image/png"}) }

		asker, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := c.Chat(asker, question())
			if assert.ErrorIs(t, err, context.Canceled) {
				copy(picture, "poisoned after its end") // as a released buffer is
			}
		})
		synctest.Wait()
		wg.Go(func() {
			r := ask(chat.Part{Image: []byte("the pixels of a sample"), MIME: "image/png"})
			reply, err := c.Chat(t.Context(), r)
			if assert.NoError(t, err) {
				assert.Equal(t, "1", reply.Text)
			}
		})
		synctest.Wait()
		waiter, goAway := context.WithCancel(t.Context())
		wg.Go(func() {
			_, err := c.Chat(waiter, ask(chat.Part{Image: []byte("the pixels of a sample"), MIME: "image/png"}))
			assert.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		leave()
		goAway()
		synctest.Wait()
		assert.EqualValues(t, 1, g.asked.Load())
		assert.Zero(t, g.left.Load())
		close(g.open)
		wg.Wait()
		assert.Contains(t, *g.lastBody.Load(), "dGhlIHBpeGVscyBvZiBhIHNhbXBsZQ==", "built before the asker left")
	})
}

func TestTheLastOneToLeaveEndsTheCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		c := newClient(t, chat.Config{}, g)
		ctx, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, err := c.Chat(ctx, ask(chat.Text("?")))
				assert.ErrorIs(t, err, context.Canceled)
			})
		}
		synctest.Wait()
		leave()
		wg.Wait()
		synctest.Wait()
		assert.EqualValues(t, 1, g.left.Load())
		close(g.open)
		assert.Equal(t, "2", text(t, c, ask(chat.Text("?"))), "asked again, for the first call has no answer")
	})
}

func TestAFailureIsSharedAndNotRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		fail := make(chan struct{})
		c := newClient(t, chat.Config{}, doerFunc(func(_ context.Context, call *outbound.Call) (*outbound.Answer, error) {
			if n.Add(1) > 1 {
				return give(call, says("4"))
			}
			<-fail
			panic("a fault in the doer")
		}))
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, err := c.Chat(t.Context(), ask(chat.Text("?")))
				assert.ErrorIs(t, err, rewards.Panicked)
			})
		}
		synctest.Wait()
		close(fail)
		wg.Wait()
		assert.Equal(t, "4", text(t, c, ask(chat.Text("?"))))
	})
}

func TestEqualFurtherAttemptsAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		c := newClient(t, chat.Config{}, g)
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				r := ask(chat.Text("?"))
				r.Attempt = i % 2
				_, err := c.Chat(t.Context(), r)
				assert.NoError(t, err)
			})
		}
		synctest.Wait()
		assert.EqualValues(t, 2, g.asked.Load())
		close(g.open)
		wg.Wait()
	})
}

func TestCloseEndsWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		c := newClient(t, chat.Config{}, g)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := c.Chat(t.Context(), ask(chat.Text("?")))
			assert.Error(t, err)
		})
		synctest.Wait()
		require.NoError(t, c.Close())
		wg.Wait()
		require.NoError(t, c.Close(), "twice is no fault")
		drawn := ask(chat.Text("?"))
		drawn.Temperature = new(1.0)
		for _, r := range []*chat.Request{ask(chat.Text("?")), drawn} {
			_, err := c.Chat(t.Context(), r)
			require.ErrorIs(t, err, rewards.Unavailable)
		}
	})
}

func TestAnAcceptThatPanicsLeavesNobodyBehind(t *testing.T) {
	t.Parallel()
	c := newClient(t, chat.Config{}, answering(says("4")))
	r := ask(chat.Text("?"))
	r.Accept = func(chat.Reply) error { panic("a fault in a scorer") }
	assert.Panics(t, func() { _, _ = c.Chat(t.Context(), r) })
	r.Accept = nil
	assert.Equal(t, "4", text(t, c, r))
}

func TestAContextThatHasEndedAsksNothing(t *testing.T) {
	t.Parallel()
	c := newClient(t, chat.Config{}, answering(says("4")))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Chat(ctx, ask(chat.Text("?")))
	require.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, c.Stats().Requests)
}
