package stream_test

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop/stream"
	"github.com/rewardloop/rewardloop/wire"
)

func seqs(p *peer) (list []uint64) {
	for _, r := range got[*wire.Result](p) {
		list = append(list, r.Seq)
	}
	return list
}

func TestSamplesThatComeWhileTheWriterIsBusyAreAcknowledgedTogether(t *testing.T) {
	t.Parallel()
	s, p := session("a"), &peer{busy: true}
	flow().Attach(s, p, greeting(false))
	names := []string{"a0", "a1", "a2", "a3", "a4"}
	for _, id := range names {
		s.Acknowledge(id)
	}
	require.Len(t, p.waiting, 1)
	require.NoError(t, p.Send(p.waiting[0]()))
	acks := got[*wire.Ack](p)
	require.Len(t, acks, 1)
	assert.Equal(t, names, acks[0].IDs)
	assert.Nil(t, p.waiting[0](), "each is acknowledged once")
	s.Acknowledge("later")
	require.Len(t, p.waiting, 2)
}

// A connection that ends before its writer was free has nothing to acknowledge any more:
// the client has come back over another and sends again what it has no result for.
func TestAcksAreNotToldOverAConnectionThatWasReplaced(t *testing.T) {
	t.Parallel()
	f, s := flow(), session("a")
	old, p := &peer{busy: true}, &peer{busy: true}
	f.Attach(s, old, greeting(false))
	s.Acknowledge("x")
	require.Same(t, old, f.Displace(s))
	f.Attach(s, p, greeting(true))
	s.Acknowledge("x")
	require.Nil(t, old.waiting[0]())
	require.Len(t, p.waiting, 1)
	require.NoError(t, p.Send(p.waiting[0]()))
	acks := got[*wire.Ack](p)
	require.Len(t, acks, 1)
	require.Equal(t, []string{"x"}, acks[0].IDs)
}

// Details are for people: what JSON cannot express costs them and not the score.
func TestDetailsThatCannotBeSentCostNoScore(t *testing.T) {
	t.Parallel()
	s, p := session("a"), &peer{}
	flow().Attach(s, p, greeting(false))
	a := answer("x")
	a.Result.Details = map[string]any{"curve": []any{math.Inf(1)}}
	s.Deliver(a)
	res := got[*wire.Result](p)[0]
	require.InDelta(t, 1.0, *res.RewardScore, 0)
	require.Contains(t, res.Details["error"], "details could not be encoded")
}

func TestAResumedClientGetsTheWelcomeAndThenWhatItHasNotConfirmed(t *testing.T) {
	t.Parallel()
	f, s, p := flow(), session("a"), &peer{}
	f.Attach(s, p, greeting(false))
	for i := range 3 {
		s.Deliver(answer(fmt.Sprint("x", i)))
	}
	require.Equal(t, []uint64{1, 2, 3}, seqs(p))
	_, left := f.Detach(s, p, time.Now())
	require.True(t, left)
	s.Deliver(answer("while it is away"))
	again := &peer{}
	hi := greeting(true)
	hi.Confirmed, hi.Draining = 1, true
	f.Attach(s, again, hi)
	w, ok := again.inbox[0].(*wire.Welcome)
	require.True(t, ok, "first the welcome")
	require.Equal(t, "token of a", w.Session)
	require.EqualValues(t, 1, w.Epoch)
	require.Equal(t, wire.Protocol, w.Protocol)
	require.Equal(t, wire.CreditTotals{Samples: 8, Bytes: 1 << 10}, w.Credit)
	require.Len(t, got[*wire.Draining](again), 1)
	require.Equal(t, []uint64{2, 3, 4}, seqs(again))
	require.Len(t, seqs(p), 3, "a connection that ended gets nothing")
}

func TestAnAnswerThatIsGivenAgainKeepsItsNumber(t *testing.T) {
	t.Parallel()
	f, s, other := flow(), session("a"), session("b")
	p, q := &peer{}, &peer{}
	f.Attach(s, p, greeting(false))
	f.Attach(other, q, greeting(false))
	a := answer("x")
	s.Deliver(a)
	s.Deliver(answer("y"))
	s.Deliver(a)
	require.Equal(t, []uint64{1, 2, 1}, seqs(p))
	require.Equal(t, 2, s.Unconfirmed())
	other.Deliver(a)
	require.Equal(t, []uint64{1}, seqs(q), "numbers are the session's own")
}

func TestWhatIsConfirmedOrForgottenIsNotKept(t *testing.T) {
	t.Parallel()
	f, s, p := flow(), session("a"), &peer{}
	f.Attach(s, p, greeting(false))
	answers := make([]*stream.Answer, 5)
	for i := range answers {
		answers[i] = answer(fmt.Sprint("x", i))
		s.Deliver(answers[i])
	}
	require.Equal(t, answers[:2], s.Confirm(2))
	require.Empty(t, s.Confirm(2), "each is confirmed once")
	require.Equal(t, 3, s.Unconfirmed())
	answers[2].Forget()
	s.Deliver(answer("next"))
	require.Equal(t, 3, s.Unconfirmed())
	answers[3].Forget()
	start := time.Now()
	require.False(t, s.Sweep(start.Add(time.Hour), time.Minute), "its client is there")
	require.Equal(t, 2, s.Unconfirmed())
	f.Detach(s, p, start)
	require.False(t, s.Sweep(start.Add(time.Minute), time.Minute))
	require.True(t, s.Sweep(start.Add(time.Minute+1), time.Minute))
}

//nolint:paralleltest // it measures what the process allocates
func TestConfirmingOneByOneTakesTimeAndMemoryByWhatIsConfirmed(t *testing.T) {
	const n = 20_000
	f, s, p := flow(), session("a"), &peer{}
	f.Attach(s, p, greeting(false))
	f.Detach(s, p, time.Now())
	a := answer("x")
	for range n {
		s.Deliver(&stream.Answer{Result: a.Result})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range uint64(n) {
		require.Len(t, s.Confirm(i+1), 1)
	}
	runtime.ReadMemStats(&after)
	require.Zero(t, s.Unconfirmed())
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20), "a copy of the others for each was 1.6 GB")
}
