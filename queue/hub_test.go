package queue

import (
	"encoding/json"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/wire"
)

// newHub is a hub without a connection, and a taker of it for each worker.
func newHub(workers ...string) (*hub, map[string]*taker) {
	h := &hub{
		bus: &bus{cfg: Config{}.WithDefaults(), attempts: newAttempts(2)}, queue: "_", work: make(chan struct{}, 1), takers: map[*taker]bool{},
	}
	all := map[string]*taker{}
	for _, w := range workers {
		all[w] = &taker{hub: h, worker: w, signal: make(chan struct{}, 1)}
		h.takers[all[w]] = true
	}
	return h, all
}

// comes has a ticket delivered.
func (h *hub) comes(t *testing.T, next wire.Ticket) wire.AttemptKey {
	t.Helper()
	next.Run, next.Gateway, next.Attempt = "r", "g", 1
	data, err := next.Encode()
	require.NoError(t, err)
	h.receive(&nats.Msg{Subject: ticketSubjects + "_", Data: data}, false)
	return next.Key()
}

func TestATicketGoesToAWorkerThatItNeedNotAvoidWhileThereIsOne(t *testing.T) {
	t.Parallel()
	h, all := newHub("slow", "fast")
	h.ask(all["slow"], 1)
	h.ask(all["fast"], 1)
	h.comes(t, wire.Ticket{ID: "a", Avoid: []string{"slow"}})
	require.Len(t, all["fast"].got, 1)
	h.comes(t, wire.Ticket{ID: "b", Avoid: []string{"slow"}})
	require.Len(t, all["slow"].got, 1, "which hands it back itself")
	require.Zero(t, h.wanted)
}

func TestATicketThatNobodyHereMayTakeSoonIsHandedOnAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ticket wire.Ticket
		closed bool
		waits  int
	}{
		"all who may ask again are too slow":      {ticket: wire.Ticket{Avoid: []string{"w"}, Aside: true}},
		"all have stopped":                        {closed: true},
		"one may ask again":                       {ticket: wire.Ticket{Aside: true}, waits: 1},
		"it must avoid them, but is in no hurry":  {ticket: wire.Ticket{Avoid: []string{"w"}}, waits: 1},
		"the one who might ask again has stopped": {ticket: wire.Ticket{Avoid: []string{"other"}, Aside: true}, closed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h, all := newHub("w")
				if c.closed {
					h.close(all["w"])
				}
				c.ticket.ID = "a"
				h.comes(t, c.ticket)
				here := func() [2]int {
					h.mu.Lock()
					defer h.mu.Unlock()
					return [2]int{len(h.ready), len(h.bus.attempts.leases)}
				}
				require.Equal(t, [2]int{c.waits, c.waits}, here())
				time.Sleep(linger)
				synctest.Wait()
				require.Equal(t, [2]int{}, here(), "nor does it wait for longer than a moment")
			})
		})
	}
}

// A place is freed while two requests are open: these are enough until they have brought what
// they can. Nobody wants anything more then, and the place that is left must be asked for all the same.
func TestAPlaceThatOpenRequestsDidNotReachIsAskedForOnceTheseAreServed(t *testing.T) {
	t.Parallel()
	h, all := newHub("a", "b")
	h.ask(all["a"], 2)
	h.asked, h.until = 2, time.Now().Add(time.Hour)
	h.lively = h.until
	h.ask(all["b"], 1)
	<-h.work
	wait, err := h.file()
	require.NoError(t, err)
	require.Greater(t, wait, time.Minute, "two of three are enough")
	h.comes(t, wire.Ticket{ID: "s"})
	h.comes(t, wire.Ticket{ID: "t"})
	require.Equal(t, [2]int{1, 0}, [2]int{h.wanted, h.asked})
	select {
	case <-h.work:
	default:
		require.Fail(t, "nobody looks whether a place is left")
	}
}

func TestATicketThatIsRevokedWhileItWaitsForAPlaceIsNotHandedOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, all := newHub("w")
		revoked := h.comes(t, wire.Ticket{ID: "a"})
		h.comes(t, wire.Ticket{ID: "b"})
		h.bus.attempts.revoke(revoked)
		got := h.ask(all["w"], 2)
		require.Len(t, got, 1)
		require.Equal(t, "b", got[0].Ticket().ID)
		h.mu.Lock()
		defer h.mu.Unlock()
		require.Len(t, h.bus.attempts.leases, 1)
		h.stale.Stop()
	})
}

func TestASourceThatClosesHandsBackWhatItsTakeHasNotFetched(t *testing.T) {
	t.Parallel()
	h, all := newHub("w")
	h.ask(all["w"], 1)
	h.comes(t, wire.Ticket{ID: "a"})
	h.close(all["w"])
	require.Empty(t, h.bus.attempts.leases)
	require.Empty(t, h.collect(all["w"]))
	require.Empty(t, h.ask(all["w"], 1), "and asks for nothing more")
	require.Zero(t, h.wanted)
}

func TestTheOldestRevocationIsForgottenFirst(t *testing.T) {
	t.Parallel()
	r := newRecent(2)
	key := func(i int) wire.AttemptKey { return wire.AttemptKey{ID: strconv.Itoa(i)} }
	for _, i := range []int{0, 1, 1, 2, 3} {
		r.add(key(i))
	}
	require.Equal(t, []bool{false, false, true, true}, []bool{r.has(key(0)), r.has(key(1)), r.has(key(2)), r.has(key(3))})
	require.Len(t, r.set, 2)
}

func TestRequestsLiveLongerTheMoreProcessesAsk(t *testing.T) {
	t.Parallel()
	h, _ := newHub()
	c := h.bus.cfg
	for range 100 {
		for processes, times := range map[int]float64{1: 1, calm: 1, 2 * calm: 2, 10 * calm: 10} {
			life := h.life(processes).Seconds()
			require.GreaterOrEqual(t, life, times*c.PullMin.Seconds())
			require.Less(t, life, times*c.PullMax.Seconds())
		}
		require.Equal(t, longestPull, h.life(1_000_000))
	}
}

func TestAWorkerThatCouldNotBeSeenToIsSeenToWhenItIsHeardAgain(t *testing.T) {
	t.Parallel()
	full := true
	var told []string
	p := &presence{gone: time.Minute, crowd: map[string]int{}, changed: func(w wire.WorkerInfo) bool {
		told = append(told, w.ID)
		return !full
	}}
	word := &nats.Msg{Subject: presenceSubject, Data: []byte(`{"id":"w","places":1,"state":"ready"}`)}
	p.heard(word)
	require.Empty(t, p.workers(time.Now()))
	full = false
	p.heard(word)
	p.heard(word)
	require.Equal(t, []string{"w", "w"}, told, "until it has been seen to")
	require.Len(t, p.workers(time.Now()), 1)

	k := newKeeper(nil)
	for range cap(k.news) {
		require.True(t, k.changed(wire.WorkerInfo{}))
	}
	require.False(t, k.changed(wire.WorkerInfo{}), "it does not block the connection")
	k.restored()
	k.restored()
}

// word is what a worker of two queues tells, as it comes over the network.
func word(t *testing.T, id string, used int, queues ...string) *nats.Msg {
	t.Helper()
	info := wire.WorkerInfo{ID: id, Busy: used, State: wire.WorkerReady, Scored: uint64(used)}
	for _, q := range queues {
		info.Profiles = append(info.Profiles, wire.ProfileInfo{Name: q, Queue: q, Capacity: 8, Used: map[string]int{"gw": used}})
	}
	data, err := json.Marshal(info)
	require.NoError(t, err)
	return &nats.Msg{Subject: presenceSubject, Data: data}
}

func TestAWordInWhichOnlyCountersMoveChangesNoListUntilItIsStale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		told := 0
		p := &presence{gone: 5 * time.Second, crowd: map[string]int{}, changed: func(wire.WorkerInfo) bool { told++; return true }}
		p.heard(word(t, "a", 0, "q", "r"))
		p.heard(word(t, "b", 0, "q"))
		first := p.workers(time.Now())
		require.Len(t, first, 2)
		require.Equal(t, []int{2, 1, 0}, []int{p.serving("q"), p.serving("r"), p.serving("s")})
		p.heard(word(t, "b", 3, "q"))
		require.Same(t, &first[0], &p.workers(time.Now())[0])
		time.Sleep(behind + time.Millisecond)
		second := p.workers(time.Now())
		require.NotSame(t, &first[0], &second[0])
		require.Equal(t, []int{0, 3}, []int{first[1].Profiles[0].Used["gw"], second[1].Profiles[0].Used["gw"]}, "a list that somebody has does not change")
		require.Equal(t, []uint64{first[0].Rev, first[1].Rev}, []uint64{second[0].Rev, second[1].Rev})
		require.Equal(t, 2, told)

		p.heard(word(t, "b", 3, "q", "r")) // it serves one more
		third := p.workers(time.Now())
		require.Equal(t, first[0].Rev, third[0].Rev)
		require.NotEqual(t, first[1].Rev, third[1].Rev)
		require.Equal(t, 3, told)
		require.Equal(t, []int{2, 2}, []int{p.serving("q"), p.serving("r")})

		time.Sleep(4 * time.Second)
		p.heard(word(t, "a", 0, "q", "r"))
		time.Sleep(2 * time.Second)
		require.Len(t, p.workers(time.Now()), 1, "the other one has fallen silent")
		require.Equal(t, []int{1, 1}, []int{p.serving("q"), p.serving("r")})
	})
}

func TestAQueueThatNATSMayHaveForgottenIsMadeAgain(t *testing.T) {
	t.Parallel()
	q := &queues{made: map[string]time.Time{}}
	now := time.Now()
	require.True(t, q.lacks("a", now))
	q.note("a", now)
	require.False(t, q.lacks("a", now.Add(sure)))
	require.True(t, q.lacks("a", now.Add(sure+1)), "nobody may have taken from it meanwhile")
	require.Equal(t, []string{"a"}, q.lost())
	require.True(t, q.lacks("a", now))
	for i := range mostQueues {
		q.note(strconv.Itoa(i), now)
	}
	require.True(t, q.full())
}

// Whenever they were filed, slow pulls of a queue end at the same moments, which are others
// for other queues.
func TestTheSlowPullsOfAQueueEndTogether(t *testing.T) {
	t.Parallel()
	start := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	phases := map[time.Duration]bool{}
	for q := range 100 {
		queue := "q" + strconv.Itoa(q)
		var phase time.Duration
		ends := map[time.Duration]bool{}
		for i := range 200 {
			now := start.Add(time.Duration(i) * 313 * time.Millisecond)
			life := slowLife(now, queue)
			require.GreaterOrEqual(t, life, slowEvery-slowSlack)
			require.LessOrEqual(t, life, 2*slowEvery+slowSlack)
			ends[now.Add(life).Sub(start)%slowEvery] = true
			phase = now.Add(life).Sub(start) % slowEvery
		}
		require.Len(t, ends, 1)
		phases[phase] = true
	}
	require.Len(t, phases, slowPhases)
}

func TestAQueueIsAskedOftenForASecondAfterTheLastWordOfIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHub("w")
		lively := func() bool { return time.Now().Before(h.lively) }
		require.False(t, lively())
		h.refused, h.rest = 3, time.Now().Add(time.Hour) // there was no such queue
		h.rouse(8)
		require.True(t, lively())
		require.Less(t, time.Until(h.rest), spread, "the queue is there now")
		require.Equal(t, 8, h.processes())
		time.Sleep(livelyFor - time.Millisecond)
		require.True(t, lively())
		h.comes(t, wire.Ticket{ID: "a"})
		time.Sleep(livelyFor - time.Millisecond)
		require.True(t, lively())
		time.Sleep(time.Millisecond)
		require.False(t, lively())
	})
}

func TestAGatewayThatWasSilentForAMinuteIsForgotten(t *testing.T) {
	t.Parallel()
	g := &gateways{heard: map[string]time.Time{"old": time.Now().Add(-2 * time.Minute)}}
	g.hear(&nats.Msg{Subject: gatewaySubject, Data: []byte(`{"id":"new","workers":3}`)})
	require.Contains(t, g.heard, "new")
	require.NotContains(t, g.heard, "old")
}

// entry is what the watch of a bucket tells.
type entry struct {
	jetstream.KeyValueEntry

	key, value string
}

func (e entry) Key() string                     { return e.key }
func (e entry) Value() []byte                   { return []byte(e.value) }
func (e entry) Operation() jetstream.KeyValueOp { return jetstream.KeyValuePut }

// listener counts whom it hears of.
type listener map[string]bool

func (l listener) Report() outbound.Report               { return outbound.Report{} }
func (l listener) Heard(from string, _ *outbound.Report) { l[from] = true }

func TestAFleetRemembersABoundedNumberOfProcessesAndForgetsTheSilentOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		heard := listener{}
		f := &Fleet{self: "self", members: map[string]outbound.Member{"g": heard}, known: map[string]saying{}}
		says := func(name string) {
			f.hear(t.Context(), entry{key: (&Fleet{self: name}).key(), value: `{"groups":{"g":{}}}`})
		}
		for i := range fleetMost {
			says("p" + strconv.Itoa(i))
		}
		says("one more")
		require.NotContains(t, heard, "one more")
		says("p0")
		require.Len(t, f.known, fleetMost)
		time.Sleep(fleetTTL + time.Millisecond)
		says("p1")
		says("one more")
		require.Contains(t, heard, "one more")
		require.Len(t, f.known, 2)
	})
}

func TestEveryRefusalIsCountedByWhatWasWrong(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"127.0.0.1:1 - cid:7 - authentication error - Nkey \"U\"": refusedKey,
		"Authorization Violation":                                 refusedKey,
		"Publish Violation - Nkey \"U\", Subject \"rl.gateway\"":  refusedSubject,
		"TLS handshake error: remote error: tls: bad certificate": refusedTLS,
		"JetStream resource limits exceeded for account: \"$G\"":  "",
	} {
		reason, refusal := reasonOf(text)
		require.Equal(t, want != "", refusal, text)
		if refusal {
			require.Equal(t, want, reason, text)
		}
	}
	for err, want := range map[error]string{
		nats.ErrPermissionViolation: refusedSubject, nats.ErrAuthorization: refusedKey, nats.ErrAuthExpired: refusedKey,
		nats.ErrAuthRevoked: refusedKey, nats.ErrSlowConsumer: refusedOther,
	} {
		require.Equal(t, want, reasonFor(err))
	}
}
