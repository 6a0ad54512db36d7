package payload_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/queue/payload"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// openAt waits until the gateway has so many claims open.
func openAt(t *testing.T, r *rig, n float64) {
	t.Helper()
	require.Eventually(t, func() bool { return counter(t, r.reg, "rewardloop_claim_open") == n }, soon, time.Millisecond)
}

func TestATicketThatComesToAWorkerOnceMoreIsClaimedAnew(t *testing.T) {
	t.Parallel()
	r, w := newRig(t), newWorker(t)
	ticket := r.ticket("sample-1", 10)
	old, _, err := w.Claim(t.Context(), ticket, "worker-1")
	require.NoError(t, err)
	require.Eventually(t, func() bool { // its payload has arrived, as far as the gateway knows
		f, _, err := w.Claim(t.Context(), ticket, "worker-1")
		require.NoError(t, err)
		f.Release()
		r.store.mu.Lock()
		defer r.store.mu.Unlock()
		return r.store.claims["sample-1"] > 1
	}, soon, time.Millisecond)
	f, _, err := w.Claim(t.Context(), ticket, "worker-1")
	require.NoError(t, err)
	openAt(t, r, 1)
	old.Release()
	require.NoError(t, w.Finish(t.Context(), ticket, scored(ticket, "worker-1", 1)))
	openAt(t, r, 0)
	f.Release()
}

func TestAClaimThatIsGivenUpBeforeTheGatewayHasAnsweredHoldsNothing(t *testing.T) {
	t.Parallel()
	r, w := newRig(t), newWorker(t)
	ticket := r.ticket("sample-1", 10)
	r.store.hold = make(chan struct{})
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, _, err := w.Claim(ctx, ticket, "worker-1")
		failed <- err
	}()
	openAt(t, r, 1)
	cancel(errors.New("revoked"))
	require.ErrorContains(t, <-failed, "revoked")
	openAt(t, r, 0)
	close(r.store.hold)
}

func TestAGatewayLearnsWithTheNextConnectionWhatIsNoLongerWanted(t *testing.T) {
	t.Parallel()
	r, w := newRig(t, func(o *payload.ServerOptions) { o.Config.LostAfter = time.Hour }), newWorker(t)
	p := newProxy(t, r.url())
	ticket, next := p.via(r.ticket("sample-1", 10)), p.via(r.ticket("sample-2", 10))
	r.store.hold = make(chan struct{})
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, _, err := w.Claim(ctx, ticket, "worker-1")
		failed <- err
	}()
	openAt(t, r, 1)
	p.freeze() // the gateway does not hear that it is given up
	cancel(errors.New("revoked"))
	require.ErrorContains(t, <-failed, "revoked")
	p.cut()
	p.thaw()
	close(r.store.hold)
	f, _, err := w.Claim(t.Context(), next, "worker-1")
	require.NoError(t, err)
	openAt(t, r, 1)
	f.Release()
	openAt(t, r, 0)
}

func TestAClaimThatWaitsForAConnectionEndsWithItsClient(t *testing.T) {
	t.Parallel()
	r, w := newRig(t), newWorker(t)
	p := newProxy(t, r.url())
	p.fall()
	ticket := p.via(r.ticket("sample-1", 10))
	failed := make(chan error, 1)
	go func() {
		_, _, err := w.Claim(t.Context(), ticket, "worker-1")
		failed <- err
	}()
	require.Eventually(t, func() bool { return p.accepted() > 0 }, soon, time.Millisecond)
	w.Close()
	require.ErrorIs(t, <-failed, payload.ErrClosed)
}

func TestAResultThatWaitsForItsAnswerEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r, w := newRig(t), newWorker(t)
	ticket := r.ticket("sample-1", 10)
	ctx, cancel := context.WithCancelCause(t.Context())
	taking, release := make(chan struct{}), make(chan struct{})
	r.store.finish = func(*wire.Result) error {
		close(taking)
		<-release
		return nil
	}
	failed := make(chan error, 1)
	go func() { failed <- w.Finish(ctx, ticket, scored(ticket, "worker-1", 1)) }()
	<-taking
	cancel(errors.New("drained"))
	require.ErrorContains(t, <-failed, "drained")
	close(release)

	other := ticket
	other.Attempt = 2
	require.ErrorContains(t, w.Finish(t.Context(), other, scored(ticket, "worker-1", 1)), "with the ticket of")
}

func TestAGatewayThatBeganAnewIsNotAskedForeverForItsFormerClaims(t *testing.T) {
	t.Parallel()
	r, anew, w := newRig(t), newRig(t), newWorker(t)
	p := newProxy(t, r.url())
	ticket := p.via(r.ticket("sample-1", 10))
	f, _, err := w.Claim(t.Context(), ticket, "worker-1")
	require.NoError(t, err)
	p.set(func() { p.target = strings.TrimPrefix(anew.http.URL, "http://") })
	p.cut()
	require.Eventually(t, func() bool { return counter(t, w.reg, "rewardloop_claim_client_dials_total", "failed") > 0 }, soon, time.Millisecond)
	require.ErrorIs(t, w.Finish(t.Context(), ticket, scored(ticket, "worker-1", 1)), wire.ErrGone)
	require.LessOrEqual(t, counter(t, anew.reg, "rewardloop_claim_refused_total", "token"), 2.0, "once for the claim, once for the result")
	f.Release()
}

func TestTooManyConnectionsAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *payload.ServerOptions) { o.Config.MaxConns = 1 })
	f, _, err := newWorker(t).Claim(t.Context(), r.ticket("sample-1", 10), "worker-1")
	require.NoError(t, err)
	_, _, err = newWorker(t, slowly).Claim(t.Context(), r.ticket("sample-2", 10), "worker-2")
	require.ErrorIs(t, err, wire.ErrUnreachable)
	require.ErrorContains(t, err, "1 connections are open, the limit is 1")
	f.Release()
}

func TestWhatComponentsHaveSaidThatCannotBeSentIsLeftOutOrRefused(t *testing.T) {
	t.Parallel()
	r, w := newRig(t), newWorker(t)
	member := func(id, message string, details map[string]any) wire.GroupMember {
		r.store.add(t, id, 10)
		return wire.GroupMember{Frame: r.store.frames[id], Partial: []rewards.ComponentResult{{
			Key: "ocr", Status: rewards.StatusFailed, Class: rewards.Timeout, Message: message, Score: rewards.Score{Details: details},
		}}}
	}
	ticket := r.ticket("group", 10)
	ticket.Bytes = 1 << 20
	r.store.groups["group"] = &wire.Group{UID: "u", Size: 1, Members: []wire.GroupMember{member("a", "late", map[string]any{"x": math.NaN()})}}
	g, err := w.ClaimGroup(t.Context(), ticket, "worker-1")
	require.NoError(t, err)
	require.Equal(t, "late", g.Members[0].Partial[0].Message)
	require.Nil(t, g.Members[0].Partial[0].Score.Details)
	g.Members[0].Frame.Release()
	openAt(t, r, 0)

	r.store.groups["group"] = &wire.Group{UID: "u", Size: 1, Members: []wire.GroupMember{member("b", strings.Repeat("x", wire.MaxServerControlBytes), nil)}}
	_, err = w.ClaimGroup(t.Context(), ticket, "worker-1")
	require.ErrorIs(t, err, payload.ErrRefused)
	require.ErrorContains(t, err, "components cannot be sent")
	openAt(t, r, 0)
}
