package payload_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/queue/payload"
	"github.com/rewardloop/rewardloop/wire"
)

func TestAClaimGoesOverTLSAndNotWithoutItWhereTheGatewayWantsIt(t *testing.T) {
	t.Parallel()
	r := newTLSRig(t, true)
	ticket := r.ticket("sample-1", 3*512*512)
	require.True(t, strings.HasPrefix(ticket.Claim, "wss://"))
	roots := x509.NewCertPool()
	roots.AddCert(r.http.Certificate())
	w := newWorker(t, func(o *payload.ClientOptions) { o.TLS = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12} })
	f, _, err := w.Claim(t.Context(), ticket, "worker-1")
	require.NoError(t, err)
	require.Equal(t, r.store.frames["sample-1"].Sum(), f.Sum())
	f.Release()

	short := func(o *payload.ClientOptions) { o.Config.DialPatience = 100 * time.Millisecond }
	stranger := newWorker(t, short)
	_, _, err = stranger.Claim(t.Context(), ticket, "worker-1")
	require.ErrorIs(t, err, wire.ErrUnreachable, "the certificate is of nobody it knows")
	ticket.Claim = "ws" + strings.TrimPrefix(ticket.Claim, "wss")
	_, _, err = newWorker(t, short).Claim(t.Context(), ticket, "worker-1")
	require.ErrorIs(t, err, wire.ErrUnreachable)
	require.Equal(t, 1, r.store.claims["sample-1"])
}

func TestAnAddressWithoutTLSIsNotAskedWhereTLSIsWanted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := newWorker(t, func(o *payload.ClientOptions) { o.Secure = true })
	_, _, err := w.Claim(t.Context(), r.ticket("sample-1", 10), "worker-1")
	require.ErrorIs(t, err, wire.ErrUnreachable)
	require.ErrorContains(t, err, "server.tls_cert")
	require.Zero(t, r.store.claims["sample-1"])
}

func TestAClaimWhoseConnectionIsCutIsAnsweredOverTheNextWithoutCostingAnAttempt(t *testing.T) {
	t.Parallel()
	for what, size := range map[string]int{"on the small connection": 900_000, "on the bulk connection": 5 << 20} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r, w := newRig(t, func(o *payload.ServerOptions) { o.Config.LostAfter = time.Minute }), newWorker(t)
			p := newProxy(t, r.url())
			p.tap = func(conn int, at int64, _ []byte) bool { return conn == 1 && at > 500_000 }
			ticket := p.via(r.ticket("sample-1", size))
			f, _, err := w.Claim(t.Context(), ticket, "worker-1")
			require.NoError(t, err)
			require.Equal(t, r.store.frames["sample-1"].Sum(), f.Sum())
			require.NoError(t, w.Finish(t.Context(), ticket, scored(ticket, "worker-1", 1)))
			f.Release()
			require.Equal(t, 1, r.store.claims["sample-1"], "the gateway was asked once")
			require.InDelta(t, 1, counter(t, r.reg, "rewardloop_claim_resent_total"), 0)
			require.InDelta(t, 1, counter(t, w.reg, "rewardloop_claim_client_again_total", "claim"), 0)
			require.Empty(t, r.lost)
		})
	}
}

func TestCorruptBytesAreFoundAndAskedForAgain(t *testing.T) {
	t.Parallel()
	r, w := newRig(t), newWorker(t)
	p := newProxy(t, r.url())
	var always atomic.Bool
	p.tap = func(_ int, at int64, b []byte) bool {
		if from := int64(300_000); always.Load() || at <= from && from < at+int64(len(b)) {
			if len(b) > 20_000 {
				b[len(b)/2] ^= 0x40 // far from the heads of messages
			} else if !always.Load() {
				b[from-at] ^= 0x40
			}
		}
		return false
	}
	f, _, err := w.Claim(t.Context(), p.via(r.ticket("sample-1", 900_000)), "worker-1")
	require.NoError(t, err)
	require.Equal(t, r.store.frames["sample-1"].Sum(), f.Sum())
	f.Release()
	require.InDelta(t, 1, counter(t, w.reg, "rewardloop_claim_client_corrupt_total"), 0)
	require.Equal(t, 1, r.store.claims["sample-1"])
}

// slowly makes the small connection ready for a test that spoils the network.
func slowly(o *payload.ClientOptions) { o.Config.DialPatience = 100 * time.Millisecond }

func TestAGatewayThatCannotBeReachedIsSaidSoSoon(t *testing.T) {
	t.Parallel()
	r, w := newRig(t), newWorker(t, slowly)
	p := newProxy(t, r.url())
	p.fall()
	ticket := p.via(r.ticket("sample-1", 10))
	_, _, err := w.Claim(t.Context(), ticket, "worker-1")
	require.ErrorIs(t, err, wire.ErrUnreachable)
	require.NotErrorIs(t, err, wire.ErrGone)

	ticket.Claim = ""
	_, _, err = w.Claim(t.Context(), ticket, "worker-1")
	require.ErrorIs(t, err, wire.ErrUnreachable)
}

func TestClaimsWaitForTheConnectionThatIsBeingMade(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := newWorker(t, func(o *payload.ClientOptions) {
		o.Config.BackoffMin, o.Config.BackoffMax = 500*time.Millisecond, 500*time.Millisecond // a busy machine needs that to begin all
	})
	p := newProxy(t, r.url())
	p.fall()
	ctx, cancel := context.WithCancel(t.Context())
	var tasks sync.WaitGroup
	tickets := make([]wire.Ticket, 50)
	for i := range tickets {
		tickets[i] = p.via(r.ticket(name("sample", i), 10))
	}
	tasks.Go(func() { // keeps the connection trying
		ticket := p.via(r.ticket("result", 10))
		assert.Error(t, w.Finish(ctx, ticket, scored(ticket, "worker-1", 1)))
	})
	require.Eventually(t, func() bool { return p.accepted() > 0 }, soon, time.Millisecond)
	require.Eventually(t, func() bool { return counter(t, w.reg, "rewardloop_claim_client_dials_total", "failed") > 0 }, soon, time.Millisecond)
	before := p.accepted()
	var failed sync.WaitGroup
	for _, ticket := range tickets {
		failed.Go(func() {
			_, _, err := w.Claim(t.Context(), ticket, "worker-1")
			assert.ErrorIs(t, err, wire.ErrUnreachable)
		})
	}
	failed.Wait()
	require.Less(t, p.accepted()-before, 20, "fifty claims make few attempts")
	cancel()
	tasks.Wait()
}

func TestAGatewayThatIsNeitherReachedNorHeardOfIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var asked atomic.Value
	w := newWorker(t, func(o *payload.ClientOptions) {
		o.Alive = func(gateway string) bool { asked.Store(gateway); return false }
	})
	p := newProxy(t, r.url())
	ticket := p.via(r.ticket("sample-1", 10))
	f, _, err := w.Claim(t.Context(), ticket, "worker-1")
	require.NoError(t, err, "it is there, whoever has not heard of it")
	p.fall()
	require.ErrorIs(t, w.Finish(t.Context(), ticket, scored(ticket, "worker-1", 1)), wire.ErrGone)
	_, _, err = w.Claim(t.Context(), ticket, "worker-1")
	require.ErrorIs(t, err, wire.ErrGone)
	require.Equal(t, gatewayName, asked.Load())
	f.Release()
}

func TestAResultIsSentUntilTheGatewayHasTakenIt(t *testing.T) {
	t.Parallel()
	r, w := newRig(t, func(o *payload.ServerOptions) { o.Config.LostAfter = time.Minute }), newWorker(t)
	p := newProxy(t, r.url())
	ticket := p.via(r.ticket("sample-1", 10))
	f, _, err := w.Claim(t.Context(), ticket, "worker-1")
	require.NoError(t, err)
	r.store.finish = func(*wire.Result) error {
		if r.store.finishes == 1 {
			p.cut() // the answer does not arrive
		}
		return nil
	}
	require.NoError(t, w.Finish(t.Context(), ticket, scored(ticket, "worker-1", 1)))
	require.Len(t, r.store.taken(), 2, "the loop drops the second as late")
	require.InDelta(t, 1, counter(t, w.reg, "rewardloop_claim_client_again_total", "result"), 0)

	r.store.finish = func(*wire.Result) error { return errors.New("the gateway is stopped") }
	require.ErrorIs(t, w.Finish(t.Context(), ticket, scored(ticket, "worker-1", 1)), payload.ErrRefused)
	f.Release()
}

func TestAWorkerThatVanishesIsLostOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *payload.ServerOptions) { o.Config.LostAfter = 50 * time.Millisecond })
	w := newWorker(t)
	p := newProxy(t, r.url())
	var frames []*wire.Frame
	for i, by := range []string{"b", "a", "b", "c", "d"} {
		ticket := p.via(r.ticket(name("sample", i), 100+i*600_000))
		f, _, err := w.Claim(t.Context(), ticket, by)
		require.NoError(t, err)
		switch by {
		case "c":
			require.NoError(t, w.Finish(t.Context(), ticket, scored(ticket, by, 1)))
		case "d":
			f.Release()
			require.Eventually(t, func() bool { return counter(t, r.reg, "rewardloop_claim_open") == 3 }, soon, time.Millisecond)
			continue
		}
		frames = append(frames, f)
	}
	p.fall()
	require.Equal(t, []string{"a", "b"}, <-r.lost)
	require.InDelta(t, 2, counter(t, r.reg, "rewardloop_claim_workers_lost_total"), 0)
	require.InDelta(t, 0, counter(t, r.reg, "rewardloop_claim_open"), 0)
	for _, f := range frames {
		f.Release()
	}
	w.Close()
	r.server.Close()
	require.Empty(t, r.lost)
}

func TestAWorkerThatComesBackInTimeWasNeverAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *payload.ServerOptions) { o.Config.LostAfter = 30 * time.Second })
	w := newWorker(t)
	p := newProxy(t, r.url())
	ticket := p.via(r.ticket("sample-1", 10))
	f, _, err := w.Claim(t.Context(), ticket, "worker-1")
	require.NoError(t, err)
	for range 3 {
		n := p.accepted()
		p.cut() // nothing is on its way, and yet it dials again
		require.Eventually(t, func() bool {
			return p.accepted() > n && counter(t, r.reg, "rewardloop_claim_connections") == 1
		}, soon, time.Millisecond)
	}
	require.NoError(t, w.Finish(t.Context(), ticket, scored(ticket, "worker-1", 1)))
	f.Release()
	require.Empty(t, r.lost)
}

// A process that is stopped keeps its connections open and says nothing.
func TestAStoppedProcessIsFoundByItsSilenceAndItsLateResultIsTheGatewaysToRefuse(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *payload.ServerOptions) {
		o.Config.ReadTimeout, o.Config.PingInterval, o.Config.LostAfter = 200*time.Millisecond, 50*time.Millisecond, 10*time.Millisecond
	})
	w := newWorker(t)
	p := newProxy(t, r.url())
	ticket := p.via(r.ticket("sample-1", 10))
	f, _, err := w.Claim(t.Context(), ticket, "zombie")
	require.NoError(t, err)
	p.freeze()
	require.Equal(t, []string{"zombie"}, <-r.lost)
	r.store.mu.Lock()
	r.store.finish = func(*wire.Result) error { return wire.ErrGone }
	r.store.mu.Unlock()
	p.thaw()
	require.ErrorIs(t, w.Finish(t.Context(), ticket, scored(ticket, "zombie", 1)), wire.ErrGone)
	require.Empty(t, r.store.taken())
	f.Release()
}

func TestAWorkerThatSaysByeIsNotLostUnlessItHasClaims(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *payload.ServerOptions) { o.Config.LostAfter = time.Hour })
	idle := newWorker(t)
	ticket := r.ticket("sample-1", 10)
	f, _, err := idle.Claim(t.Context(), ticket, "idle")
	require.NoError(t, err)
	require.NoError(t, idle.Finish(t.Context(), ticket, scored(ticket, "idle", 1)))
	f.Release()
	idle.Close()
	require.Eventually(t, func() bool { return counter(t, r.reg, "rewardloop_claim_connections") == 0 }, soon, time.Millisecond)
	require.Empty(t, r.lost)

	busy := newWorker(t)
	f, _, err = busy.Claim(t.Context(), ticket, "busy")
	require.NoError(t, err)
	busy.Close()
	require.Equal(t, []string{"busy"}, <-r.lost, "at once: it will not come back")
	f.Release()
	_, _, err = busy.Claim(t.Context(), ticket, "busy")
	require.ErrorIs(t, err, payload.ErrClosed)
	require.ErrorIs(t, busy.Finish(t.Context(), ticket, scored(ticket, "busy", 1)), payload.ErrClosed)
}

func TestAClientThatIsClosedAmidClaimsEndsThem(t *testing.T) {
	t.Parallel()
	r, w := newRig(t), newWorker(t)
	p := newProxy(t, r.url())
	small, large := p.via(r.ticket("small", 10)), p.via(r.ticket("large", 20<<20))
	r.store.hold = make(chan struct{})
	errs := make(chan error, 2)
	for _, ticket := range []wire.Ticket{small, large} {
		go func() {
			_, _, err := w.Claim(t.Context(), ticket, "worker-1")
			errs <- err
		}()
	}
	require.Eventually(t, func() bool { return counter(t, r.reg, "rewardloop_claim_open") == 2 }, soon, time.Millisecond)
	w.Close()
	require.ErrorIs(t, <-errs, payload.ErrClosed)
	require.ErrorIs(t, <-errs, payload.ErrClosed)
	close(r.store.hold)
}

func TestAGatewayThatStopsEndsItsClaims(t *testing.T) {
	t.Parallel()
	r, w := newRig(t), newWorker(t, slowly)
	unpoisoned(r, w, 30<<20)
	p := newProxy(t, r.url())
	p.tap = func(_ int, at int64, _ []byte) bool {
		if at > 1<<20 {
			go r.server.Close()
		}
		return false
	}
	_, _, err := w.Claim(t.Context(), p.via(r.ticket("large", 30<<20)), "worker-1")
	require.ErrorIs(t, err, wire.ErrUnreachable)
	require.Empty(t, r.lost)
}
