package payload_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/queue/payload"
	"github.com/rewardloop/rewardloop/wire"
)

func TestATokenIsGoodForItsAttemptAndItsTimeOnly(t *testing.T) {
	t.Parallel()
	k, now := payload.NewKey(), time.Unix(1_900_000_000, 0)
	key := wire.AttemptKey{Gateway: "g", Run: "r", Epoch: 2, ID: "s", Attempt: 3}
	token := k.Sign(key, now.Add(time.Minute))
	require.NoError(t, k.Check(token, key, now))
	require.NoError(t, k.Check(token, key, now.Add(time.Minute)))
	require.ErrorIs(t, k.Check(token, key, now.Add(62*time.Second)), payload.ErrTokenExpired)
	require.ErrorIs(t, payload.NewKey().Check(token, key, now), payload.ErrToken)
	for _, other := range []wire.AttemptKey{
		{Gateway: "gr", Run: "", Epoch: 2, ID: "s", Attempt: 3},
		{Gateway: "g", Run: "r", Epoch: 2, ID: "s", Attempt: 4},
		{Gateway: "g", Run: "r", Epoch: 3, ID: "s", Attempt: 3},
		{Gateway: "g", Run: "r", Epoch: 2, ID: "t", Attempt: 3},
		{Gateway: "h", Run: "r", Epoch: 2, ID: "s", Attempt: 3},
	} {
		require.ErrorIs(t, k.Check(token, other, now), payload.ErrToken)
	}
	later := strings.Replace(token, "1900000060", "1900000061", 1)
	require.NotEqual(t, token, later)
	for _, wrong := range []string{"", "v1.", "v1..", "v1.x.", later, token[:len(token)-1], token + "A", "v2" + token[2:], strings.Repeat("v1.", 1000)} {
		require.ErrorIs(t, k.Check(wrong, key, now), payload.ErrToken, wrong)
	}
}

// opened returns a rig and a worker whose connection is there.
func opened(t *testing.T) (*rig, *worker) {
	t.Helper()
	r, w := newRig(t), newWorker(t)
	first := r.ticket("first", 10)
	f, _, err := w.Claim(t.Context(), first, "worker-1")
	require.NoError(t, err)
	require.NoError(t, w.Finish(t.Context(), first, scored(first, "worker-1", 1)))
	f.Release()
	return r, w
}

func TestWrongTokensAreRefusedBeforeAndAfterTheUpgrade(t *testing.T) {
	t.Parallel()
	r, w := opened(t)
	for what, who := range map[string]*worker{"before the upgrade": newWorker(t), "after the upgrade": w} {
		for kind, spoil := range map[string]func(*wire.Ticket){
			"of another key":     func(x *wire.Ticket) { x.Token = payload.NewKey().Sign(x.Key(), time.Now().Add(time.Minute)) },
			"of another attempt": func(x *wire.Ticket) { x.Attempt = 2 },
			"none":               func(x *wire.Ticket) { x.Token = "" },
		} {
			ticket := r.ticket("sample-1", 10)
			before := counter(t, r.reg, "rewardloop_claim_refused_total", "token")
			spoil(&ticket)
			_, _, err := who.Claim(t.Context(), ticket, "worker-1")
			require.ErrorIs(t, err, wire.ErrGone, "%s %s", kind, what)
			require.ErrorIs(t, err, payload.ErrToken, "%s %s", kind, what)
			require.ErrorIs(t, who.Finish(t.Context(), ticket, scored(ticket, "worker-1", 1)), payload.ErrToken)
			require.InDelta(t, before+2, counter(t, r.reg, "rewardloop_claim_refused_total", "token"), 0)
		}
	}
	require.Zero(t, r.store.claims["sample-1"])
	require.Len(t, r.store.taken(), 1)
}

func TestATicketOfAnotherGatewayIsGone(t *testing.T) {
	t.Parallel()
	r, w := opened(t)
	for _, who := range []*worker{newWorker(t), w} {
		ticket := r.ticket("sample-1", 10)
		ticket.Gateway = "gateway-0"
		ticket = r.sign(ticket)
		_, _, err := who.Claim(t.Context(), ticket, "worker-1")
		require.ErrorIs(t, err, wire.ErrGone)
	}
	require.InDelta(t, 2, counter(t, r.reg, "rewardloop_claim_refused_total", "gone"), 0)
}

func TestAnExpiredTokenIsGoodForAResultAndForNoClaim(t *testing.T) {
	t.Parallel()
	r, w := opened(t)
	for _, who := range []*worker{newWorker(t), w} {
		ticket := r.ticket("sample-1", 10)
		ticket.Token = r.key.Sign(ticket.Key(), time.Now().Add(-time.Hour))
		_, _, err := who.Claim(t.Context(), ticket, "worker-1")
		require.ErrorIs(t, err, wire.ErrGone)
		require.ErrorContains(t, err, "expired claim")
		require.NoError(t, who.Finish(t.Context(), ticket, scored(ticket, "worker-1", 1)))
	}
	require.InDelta(t, 2, counter(t, r.reg, "rewardloop_claim_refused_total", "expired"), 0)
	require.Len(t, r.store.taken(), 3)
}

func TestARequestWithoutAttemptOrUpgradeIsAnsweredByName(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ask := func(headers map[string]string) (int, string) {
		req := httptest.NewRequest(http.MethodGet, "/v1/claim", nil)
		for k, v := range headers {
			req.Header.Set(k, v)
		}
		rec := httptest.NewRecorder()
		r.server.ServeHTTP(rec, req)
		return rec.Code, rec.Body.String()
	}
	code, body := ask(nil)
	require.Equal(t, http.StatusUnauthorized, code)
	require.Contains(t, body, "wrong claim token")
	code, body = ask(map[string]string{"Authorization": "Bearer x", "Rewardloop-Attempt": "%"})
	require.Equal(t, http.StatusBadRequest, code)
	require.Contains(t, body, "Rewardloop-Attempt")
	ticket := r.ticket("sample-1", 10)
	key, err := json.Marshal(ticket.Key())
	require.NoError(t, err)
	code, body = ask(map[string]string{"Authorization": "Bearer " + ticket.Token, "Rewardloop-Attempt": base64.RawURLEncoding.EncodeToString(key)})
	require.Equal(t, http.StatusUpgradeRequired, code)
	require.Contains(t, body, "websocket")
}
