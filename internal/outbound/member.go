package outbound

import (
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var _ Member = (*member)(nil)

// member is an upstream's part in a fleet: it turns what the processes want into shares,
// and hands on what they say of endpoints. It has no goroutine: the fleet calls it each
// FleetPeriod, and calls of the upstream look whether it has gone partitioned.
type member struct {
	// Immutable.
	upstream *Upstream
	self     string
	urge     func()
	guest    bool // Report.Guest

	mu    sync.Mutex // No other lock is taken under it.
	seq   uint64
	sent  [8]time.Time // When the reports of the last numbers were asked for.
	asked time.Time    // When the last one was.
	// heard is when the last report of its own that was heard back was said.
	heard       time.Time
	partitioned bool
	peers       []peer // In the order of their names; itself is one from when it heard itself.

	requests, tokens, places limit
	full                     struct{ first, last time.Time } // When the process had all places it might have.
}

// peer is a process that shares the upstream.
type peer struct {
	name string
	last time.Time // When it was heard.
	// wants are its wishes for requests, tokens and places; used are the places it has.
	wants [3]float64
	used  float64
	full  int64 // Report.Full
	guest bool
}

// limit is one of the three that are shared.
type limit struct {
	total  float64 // 0: none.
	demand demand
	window window
}

// want counts what calls ask of the rate, shared or not.
type want struct {
	requests, tokens        atomic.Int64 // All that came.
	waiting, waitingTokens  atomic.Int64
	lastRequests, lastToken int64 // As of the last report; guarded by member.mu.
}

func (w *want) begin(tokens int) {
	w.requests.Add(1)
	w.tokens.Add(int64(tokens))
	w.waiting.Add(1)
	w.waitingTokens.Add(int64(tokens))
}

func (w *want) end(tokens int) {
	w.waiting.Add(-1)
	w.waitingTokens.Add(-int64(tokens))
}

// join makes the upstream share its limits. What it has saved up is cut to what a newcomer
// has: a tenth of its part.
func (g *Upstream) join(f Fleet, guest bool, key string) {
	now := time.Now()
	m := &member{upstream: g, self: f.Self(), urge: f.Urge, guest: guest, heard: now, asked: now}
	m.requests.total, m.tokens.total, m.places.total = g.cfg.RPM, g.cfg.TPM, float64(g.cfg.Concurrency)
	// The first report of its own will tell it of the others; unless that comes at once
	// nobody knows how many start together.
	m.start(now, unheard)
	g.member.Store(m)
	leave := f.Join(key, m)
	g.leave.Store(&leave)
	m.settle()
	g.rate.share(m.rates)
	g.underWay.resize(m.part)
	f.Urge()
}

// start sets the shares of a newcomer among n. The first ones are replaced when more is
// known.
func (m *member) start(now time.Time, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.limits() {
		l.window = window{}
		l.window.set(now, equally*l.total/float64(n))
	}
}

// settle gives a newcomer that knows the others already its tenth of a part at once.
func (m *member) settle() {
	m.mu.Lock()
	n := len(m.peers)
	m.mu.Unlock()
	if n > 0 {
		m.start(time.Now(), n+1)
	}
}

func (m *member) limits() [3]*limit { return [3]*limit{&m.requests, &m.tokens, &m.places} }

// fullHold is how long a process that used all its places is taken to do so: when it has more, a
// report later, it may not have filled them yet.
const fullHold = FleetPeriod + shareHold

// Report implements Member.
func (m *member) Report() Report {
	now := time.Now()
	held, peak := m.upstream.underWay.peak()
	open, alive := m.upstream.news(now)
	if m.upstream.down() != "" { // what it could use is of use to the others
		peak = 0
	}
	m.mu.Lock()
	m.seq++
	m.sent[m.seq%uint64(len(m.sent))] = now
	w, since := &m.upstream.want, now.Sub(m.asked)
	m.asked = now
	requests, tokens := w.requests.Load(), w.tokens.Load()
	// Places are wanted at a time, not in a time: their peak is remembered, and fades.
	m.places.demand.rate = max(float64(peak), m.places.demand.rate*math.Exp(-since.Seconds()/smoothing.Seconds()))
	r := Report{
		Seq: m.seq, Guest: m.guest, Used: held, Open: open, Alive: alive,
		Requests: m.requests.demand.of(float64(requests-w.lastRequests), float64(w.waiting.Load()), since),
		Tokens:   m.tokens.demand.of(float64(tokens-w.lastToken), float64(w.waitingTokens.Load()), since),
		Places:   m.places.demand.tell(m.places.demand.rate), Full: m.fullFor(now, peak),
	}
	w.lastRequests, w.lastToken = requests, tokens
	gone := m.expire(now)
	m.mu.Unlock()
	for _, name := range gone {
		m.upstream.told(now, m.self, name, nil)
	}
	m.apply()
	return r
}

// fullFor is how long the process has had all places that it may, in milliseconds, 1 at least;
// 0: it does not. The caller holds mu.
func (m *member) fullFor(now time.Time, peak int) int64 {
	if float64(peak) >= max(1, math.Floor(m.places.window.least(now))) {
		if now.Sub(m.full.last) > fullHold {
			m.full.first = now
		}
		m.full.last = now
	}
	if peak == 0 || now.Sub(m.full.last) > fullHold {
		return 0
	}
	return m.full.last.Sub(m.full.first).Milliseconds() + 1
}

// Heard implements Member.
func (m *member) Heard(from string, r *Report) {
	now := time.Now()
	m.mu.Lock()
	counts := m.note(now, from, r)
	m.review(now)
	m.mu.Unlock()
	if counts && from != m.self {
		m.upstream.told(now, m.self, from, r)
	}
	m.apply()
}

// apply lets those who wait look at the shares again.
func (m *member) apply() {
	m.upstream.rate.look()
	m.upstream.underWay.look()
}

// note keeps what a process said, unless there are too many. The caller holds mu.
func (m *member) note(now time.Time, from string, r *Report) (counts bool) {
	at, known := slices.BinarySearchFunc(m.peers, from, func(p peer, name string) int { return strings.Compare(p.name, name) })
	if r == nil {
		if known && from != m.self {
			m.peers = slices.Delete(m.peers, at, at+1)
		}
		return true
	}
	if from == m.self && r.Seq <= m.seq && m.seq-r.Seq < uint64(len(m.sent)) {
		if said := m.sent[r.Seq%uint64(len(m.sent))]; said.After(m.heard) {
			m.heard = said
		}
	}
	if !known {
		if len(m.peers) >= maxPeers {
			return false
		}
		m.peers = slices.Insert(m.peers, at, peer{name: from})
	}
	m.peers[at].last = now
	m.peers[at].wants = [3]float64{sane(r.Requests), sane(r.Tokens), sane(r.Places)}
	m.peers[at].guest, m.peers[at].full = r.Guest, r.Full
	m.peers[at].used = min(max(float64(r.Used), 0), 1<<20)
	return true
}

// expire forgets the processes of which no report comes any more, and names them. One that hears
// nothing itself forgets nobody. The caller holds mu.
func (m *member) expire(now time.Time) (gone []string) {
	if m.listen(now); m.partitioned {
		return nil
	}
	m.peers = slices.DeleteFunc(m.peers, func(p peer) bool {
		if p.name == m.self || now.Sub(p.last) < silence {
			return false
		}
		gone = append(gone, p.name)
		return true
	})
	if len(gone) > 0 {
		m.review(now)
	}
	return gone
}

// listen finds out whether the process has gone partitioned, or hears again. Its share is then
// the limit by the last known number of processes. The caller holds mu.
func (m *member) listen(now time.Time) {
	silent := now.Sub(m.heard) > shareHold
	switch {
	case silent && !m.partitioned:
		m.partitioned = true
		n := len(m.peers)
		if i := slices.IndexFunc(m.peers, func(p peer) bool { return p.name == m.self }); i < 0 {
			n = unheard
		}
		for _, l := range m.limits() {
			l.window.set(m.heard.Add(shareHold), l.total/float64(max(n, 2)))
		}
	case !silent && m.partitioned:
		m.partitioned = false
		for i := range m.peers { // It could not hear them.
			m.peers[i].last = now
		}
	}
}

// review divides the limits anew. The caller holds mu.
func (m *member) review(now time.Time) {
	m.listen(now)
	me := slices.IndexFunc(m.peers, func(p peer) bool { return p.name == m.self })
	if m.partitioned || me < 0 {
		return
	}
	wishes := make([]wish, len(m.peers))
	for i, l := range m.limits() {
		if l.total == 0 {
			continue
		}
		for j, p := range m.peers {
			wishes[j] = wish{wants: p.wants[i]}
			if l == &m.places {
				wishes[j].used, wishes[j].full, wishes[j].guest = p.used, p.full, p.guest
			}
		}
		if l == &m.places {
			l.window.set(now, float64(divideWhole(int(l.total), wishes)[me]))
		} else {
			l.window.set(now, divide(l.total, wishes)[me])
		}
	}
}

// rates are the shares of requests and tokens a minute.
func (m *member) rates(now time.Time) (rpm, tpm float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listen(now)
	return m.requests.window.least(now), m.tokens.window.least(now)
}

// part is the share of the requests in flight.
func (m *member) part(now time.Time) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listen(now)
	return max(1, int(m.places.window.least(now)))
}

// figures are the number of processes that are known, and whether this one is partitioned.
func (m *member) figures(now time.Time) (processes int, partitioned bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listen(now)
	return len(m.peers), m.partitioned
}
