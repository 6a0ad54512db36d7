package stream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/loop/stream"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// talk serves a connection over which a client says hello and then does what the test says.
func talk(t *testing.T, g *gateway, then func(p *peer, h wsconn.Handler) error) (*peer, error) {
	t.Helper()
	g.session = session("a")
	p := &peer{}
	p.script = func(h wsconn.Handler) error {
		if err := h.Text([]byte(`{"type":"hello","run":"run"}`)); err != nil {
			return err
		}
		return then(p, h)
	}
	return p, stream.Serve(t.Context(), g, p)
}

func TestAConnectionThatSaysNothingIsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &peer{}
		p.script = func(wsconn.Handler) error {
			time.Sleep(11 * time.Second)
			return nil
		}
		g := &gateway{}
		require.NoError(t, stream.Serve(t.Context(), g, p))
		require.Equal(t, "no hello within 10 s", p.reason)
		require.Zero(t, g.left)
	})
}

func TestAConnectionThatHasSaidHelloStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{}
		p, err := talk(t, g, func(*peer, wsconn.Handler) error {
			time.Sleep(time.Hour)
			return nil
		})
		require.NoError(t, err)
		require.Empty(t, p.reason)
		require.Equal(t, 1, g.left)
	})
}

func TestAHelloThatIsRefusedIsAnsweredAndEndsTheConnection(t *testing.T) {
	t.Parallel()
	g := &gateway{hello: fmt.Errorf("%w: no reward named %q", rewards.UnknownReward, "none")}
	p, err := talk(t, g, func(*peer, wsconn.Handler) error { return errors.New("the connection lives") })
	var closed *wsconn.CloseError
	require.ErrorAs(t, err, &closed)
	require.Equal(t, wsconn.ClosePolicy, closed.Code)
	require.Contains(t, closed.Reason, string(rewards.UnknownReward))
	require.Equal(t, rewards.UnknownReward, got[*wire.Error](p)[0].Code)
	require.Zero(t, g.left, "it was never there")
}

func TestMessagesOutOfPlaceAreAnsweredAndTheConnectionLives(t *testing.T) {
	t.Parallel()
	g := &gateway{session: session("a"), declared: fmt.Errorf("%w: step 1 ended at its deadline", rewards.Expired)}
	p := &peer{}
	p.script = func(h wsconn.Handler) error {
		for _, bad := range []func() error{
			func() error { return h.Text([]byte(`{"type":"confirm","seq":1}`)) },
			func() error { return h.Binary(strings.NewReader("a sample")) },
			func() error { return h.Text([]byte(`{`)) },
		} {
			if err := bad(); err != nil {
				return err
			}
		}
		for _, msg := range []string{
			`{"type":"hello","run":"run"}`, `{"type":"hello","run":"run"}`, `{"type":"draining"}`, `{"type":"step","step":1,"expected":2}`,
			`{"type":"confirm","seq":7}`, `{"type":"cancel","ids":["x"]}`, `{"type":"end_of_step","step":3}`,
		} {
			if err := h.Text([]byte(msg)); err != nil {
				return err
			}
		}
		return nil
	}
	require.NoError(t, stream.Serve(t.Context(), g, p))
	var said []string
	for _, e := range got[*wire.Error](p) {
		said = append(said, e.Message)
	}
	require.Len(t, said, 6)
	for i, part := range []string{"want hello", "before hello", "", "a second hello", "is not a client's message", "ended at its deadline"} {
		assert.Contains(t, said[i], part)
	}
	require.Len(t, g.messages, 6)
	require.Empty(t, g.samples)
	require.Equal(t, []any{&wire.Confirm{Seq: 7}, &wire.Cancel{IDs: []string{"x"}}, &wire.EndOfStep{Step: 3}}, g.said)
}

// named is a refusal that says which sample it is about.
type named struct{ error }

func (named) SampleID() string { return "x" }

func (n named) Unwrap() error { return n.error }

func TestASampleThatIsRefusedIsAnsweredByItsID(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection reset")
	for name, c := range map[string]struct {
		err            error
		result, error_ int
		ends           bool
	}{
		"the gateway names it":  {named{rewards.OverCredit}, 1, 0, false},
		"its header was read":   {&wire.FrameError{ID: "x", Class: rewards.TooLarge}, 1, 0, false},
		"its header is garbage": {&wire.FrameError{Class: rewards.Malformed}, 0, 1, false},
		"nobody names it":       {rewards.Malformed, 0, 1, false},
		"the socket broke":      {broken, 0, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &gateway{receive: func(io.Reader) error { return c.err }}
			p, err := talk(t, g, func(_ *peer, h wsconn.Handler) error { return h.Binary(strings.NewReader("")) })
			if c.ends {
				require.ErrorIs(t, err, broken)
			} else {
				require.NoError(t, err)
			}
			results := got[*wire.Result](p)
			require.Len(t, results, c.result)
			require.Len(t, g.samples, c.result)
			for _, r := range results {
				require.Equal(t, "x", r.ID)
				require.Equal(t, rewards.Rejected, r.Outcome)
				require.Zero(t, r.Seq, "a refusal is no result of the sample")
			}
			require.Len(t, got[*wire.Error](p), c.error_)
			require.Len(t, g.messages, c.error_)
		})
	}
}

// chunk is one of a single sample.
func chunk(q *wire.Fetch, id string) *wire.Rewards {
	return &wire.Rewards{
		Req: q.Req, Split: rewards.Train, Step: q.Step, State: "complete", Ready: true, IDs: []string{id}, Indices: []*int64{nil}, UIDs: []string{""},
		Scores: []*float64{new(1.0)}, Valid: []bool{true}, Outcomes: []rewards.Outcome{rewards.Scored},
	}
}

func TestQuestionsForRewardsAreBoundedAndEndWithTheConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{rewards: func(ctx context.Context, q *wire.Fetch) (*wire.Rewards, error) {
			switch q.Step {
			case 1:
				return chunk(q, "a"), nil
			case 2:
				return chunk(q, strings.Repeat("x", 7<<20)), nil
			case 3:
				return nil, nil // it has stopped
			case 4:
				return nil, errors.New("of no class")
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		p, err := talk(t, g, func(_ *peer, h wsconn.Handler) error {
			for step := range int64(4) {
				if err := h.Text(text(t, &wire.Fetch{Req: uint64(step + 1), Step: step + 1})); err != nil { //nolint:gosec // small
					return err
				}
			}
			synctest.Wait()
			for i := range 70 {
				if err := h.Text(text(t, &wire.Fetch{Req: uint64(100 + i), Step: 5, WaitMS: 60_000})); err != nil {
					return err
				}
			}
			synctest.Wait()
			return nil
		})
		require.NoError(t, err)
		answers := got[*wire.Rewards](p)
		require.Len(t, answers, 1)
		require.EqualValues(t, 1, answers[0].Req)
		codes := map[uint64]rewards.Class{}
		for _, e := range got[*wire.Error](p) {
			codes[e.Req] = e.Code
		}
		want := map[uint64]rewards.Class{2: rewards.TooLarge, 4: rewards.Unavailable}
		for i := range uint64(6) {
			want[164+i] = rewards.Unavailable // 64 may be open
		}
		require.Equal(t, want, codes)
	})
}

func TestAPhaseIsAnsweredWhenWhatItAsksForIsDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{}
		p, err := talk(t, g, func(_ *peer, h wsconn.Handler) error {
			for i, name := range []string{wire.PhaseReward, wire.PhaseRollout} {
				if err := h.Text(text(t, &wire.Phase{Req: uint64(i) + 1, Name: name})); err != nil {
					return err
				}
				synctest.Wait()
			}
			return h.Text([]byte(`{"type":"phase","req":3,"name":"sleep"}`))
		})
		require.NoError(t, err)
		require.Equal(t, []string{"a reward", "a rollout"}, g.phases)
		answers := got[*wire.Phased](p)
		require.Equal(t, &wire.Phased{Req: 1, Name: wire.PhaseReward}, answers[0])
		require.Equal(t, &wire.Phased{Req: 2, Name: wire.PhaseRollout, Why: "an engine holds memory"}, answers[1])
		require.Contains(t, got[*wire.Error](p)[0].Message, `the phase is "sleep", want rollout or reward`)
	})
}
