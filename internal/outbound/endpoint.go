package outbound

import (
	"container/list"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/internal/redact"
	"github.com/rewardloop/rewardloop/rewards"
)

// endpoint is one URL of an upstream.
type endpoint struct {
	// Immutable.
	name  string   // The URL as people may read it, without its query.
	url   *url.URL // Without user and password.
	basic string   // What it is sent as Authorization, if the URL names a user.
	// digest stands for it where other processes can read it.
	digest string

	// Guarded by Upstream.mu.
	inFlight          int
	flights           list.List // Of time.Time: when they were sent, the oldest first.
	answered          time.Time // When it last answered anything.
	requests, retries int64
	failures          map[rewards.Class]int64
	breaker           breaker
	others            gossip
	// busyUntil is what Retry-After asked for. Others are preferred until then.
	busyUntil time.Time
	unreached bool // Nobody could connect to it, or connections broke, when it last failed.
	pace      pace
	slow      bool   // It was clearly slower than others when pick looked last.
	held      string // Why it takes no requests until Release; "": it takes them.
	unable    bool   // It will never take them.
	last      string // Its last failure, redacted, for the error of a call that finds all out of service.
}

func newEndpoint(u *url.URL, cfg UpstreamConfig) *endpoint {
	e := &endpoint{
		failures: map[rewards.Class]int64{},
		breaker:  newBreaker(cfg),
	}
	if u.User != nil {
		password, _ := u.User.Password()
		e.basic = "Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password))
	}
	e.digest = urlDigest(u)
	bare := *u
	bare.User = nil
	e.url = &bare
	named := bare
	named.RawQuery, named.ForceQuery = "", false
	e.name = redact.URL(named.String())
	return e
}

// target is the URL of a call's path below the endpoint. A path cannot leave the
// endpoint's own, because it may come from a request to the router.
func (e *endpoint) target(below string) (*url.URL, error) {
	if below == "" {
		return e.url, nil
	}
	if !strings.HasPrefix(below, "/") {
		return nil, errors.New("the call's path must begin with /")
	}
	ref, err := url.ParseRequestURI(below)
	if err != nil {
		return nil, errors.New("the call's path is not a valid path of a URL")
	}
	if clean := path.Clean(ref.Path); clean != ref.Path && clean+"/" != ref.Path {
		return nil, errors.New("the call's path has empty or dotted segments")
	}
	u := *e.url
	u.RawPath = strings.TrimSuffix(e.url.EscapedPath(), "/") + ref.EscapedPath()
	u.Path = strings.TrimSuffix(e.url.Path, "/") + ref.Path
	u.RawQuery = strings.Trim(e.url.RawQuery+"&"+ref.RawQuery, "&")
	return &u, nil
}

// choose waits until an endpoint may take the call's next attempt, and reserves it;
// settle is its counterpart. probe: the attempt is to find out whether the endpoint is
// back.
func (g *Upstream) choose(ctx context.Context, t *try) (e *endpoint, probe bool, f *failure) {
	for {
		g.mu.Lock()
		now := time.Now()
		if e = g.pick(now, t); e != nil {
			probe = e.breaker.begin()
			if probe {
				g.announce()
			}
			t.flight = e.flights.PushBack(now)
			e.inFlight++
			e.requests++
			if t.sent > 0 {
				e.retries++
			}
			g.mu.Unlock()
			if probe {
				g.urge()
			}
			return e, probe, nil
		}
		due, hope, last, known := g.nextProbe()
		changed, unable := g.changed, g.unable()
		g.mu.Unlock()
		if unable {
			f = &failure{text: fmt.Sprintf("all %d endpoints lack a feature that the judges need: %s", len(g.endpoints), last)}
			f.stays()
			return nil, false, f
		}
		if rewards.Returns(ctx) {
			return nil, false, &failure{class: rewards.Unavailable, blame: rewards.BlameDependency, waits: true, text: fmt.Sprintf(
				"all %d endpoints are out of service: %s", len(g.endpoints), last)}
		}
		end, bounded := ctx.Deadline()
		if known && bounded && hope.After(end) {
			return nil, false, &failure{class: rewards.Unavailable, blame: rewards.BlameDependency, text: fmt.Sprintf(
				"all %d endpoints are out of service and the next probe, in %s, comes after the call's deadline: %s",
				len(g.endpoints), brief(hope.Sub(now)), last)}
		}
		if !g.waitForProbe(ctx, due.Sub(now), known, changed) {
			return nil, false, ended(ctx, true, "all endpoints were out of service: "+last)
		}
	}
}

// waitForProbe returns when a probe is due or an endpoint's state has changed, with
// false if ctx ended.
func (g *Upstream) waitForProbe(ctx context.Context, d time.Duration, known bool, changed <-chan struct{}) bool {
	var due <-chan time.Time
	if known {
		timer := time.NewTimer(d)
		defer timer.Stop()
		due = timer.C
	}
	g.stalled.Add(1)
	defer g.stalled.Add(-1)
	select {
	case <-ctx.Done():
		return false
	case <-changed:
	case <-due:
	}
	return true
}

// pick returns the endpoint for the next attempt, nil if none may take it. The caller
// holds mu.
//
// A probe that is due goes first, because nothing else brings an endpoint back, but
// only to a call that has not failed yet, while others are in service. Among these the
// order is: not asked to be left alone, fewest attempts of this call, not slow, that which
// the calls that are near have unless it has clearly more to do, least in flight, chance.
func (g *Upstream) pick(now time.Time, t *try) *endpoint {
	var best, due *endpoint
	ties := 0
	var fastest time.Duration
	for _, e := range g.endpoints {
		if e.inService() {
			fastest = e.pace.faster(fastest)
		}
	}
	explores := rand.IntN(exploreEvery) == 0 // no secret
	for _, e := range g.endpoints {
		switch {
		case e.held != "":
			continue
		case e.breaker.probeDue(now):
			if due == nil || e.breaker.due.Before(due.breaker.due) {
				due = e
			}
			continue
		case e.breaker.state != Closed:
			continue
		}
		e.slow = !explores && e.pace.slow(fastest)
		switch c := t.compare(now, e, best); {
		case c < 0:
			best, ties = e, 1
		case c == 0:
			if ties++; rand.IntN(ties) == 0 { // no secret
				best = e
			}
		}
	}
	if due != nil && (best == nil || t.sent == 0) {
		return due
	}
	if near := g.near(t, best); near != nil {
		return near
	}
	return best
}

// near is the endpoint that calls like this one have, if it is as good as best and has not
// clearly more to do: each endpoint that is there draws a number for the name, and the highest
// wins. Those of an endpoint that is lost are spread over the others. The caller holds mu.
func (g *Upstream) near(t *try, best *endpoint) (near *endpoint) {
	if t.call.Near == "" || best == nil || t.sent > 0 || len(g.endpoints) == 1 {
		return nil
	}
	var most uint64
	for _, e := range g.endpoints {
		if !e.inService() || e.slow {
			continue
		}
		var h maphash.Hash
		h.SetSeed(g.seed)
		_, _ = h.WriteString(e.name) // never fails
		_, _ = h.WriteString(t.call.Near)
		if n := h.Sum64(); near == nil || n > most {
			near, most = e, n
		}
	}
	if near == nil || near.inFlight > best.inFlight+best.inFlight/4+nearSlack {
		return nil
	}
	return near
}

// nearSlack is how many more requests than the least loaded endpoint one may have and still get
// the calls that are near to it, beside a quarter of those.
const nearSlack = 2

// compare is negative where a is the better choice.
func (t *try) compare(now time.Time, a, b *endpoint) int {
	if b == nil {
		return -1
	}
	if x, y := a.busyUntil.After(now), b.busyUntil.After(now); x != y {
		if y {
			return -1
		}
		return 1
	}
	if x, y := t.times(a), t.times(b); x != y {
		return x - y
	}
	if a.slow != b.slow {
		if b.slow {
			return -1
		}
		return 1
	}
	return a.inFlight - b.inFlight
}

// times is how often the call was sent to e.
func (t *try) times(e *endpoint) int {
	n := 0
	for _, x := range t.tried {
		if x == e {
			n++
		}
	}
	return n
}

// nextProbe is when the next endpoint may be probed, and what is wrong with it. It is
// not known while all are being probed. hope is when one may be back: due, or earlier
// where another process probes. The caller holds mu.
func (g *Upstream) nextProbe() (due, hope time.Time, last string, known bool) {
	for _, e := range g.endpoints {
		if last == "" {
			last = e.why()
		}
		b := &e.breaker
		if b.state != Open || e.held != "" {
			continue
		}
		if !known || b.due.Before(due) {
			due, last = b.due, e.why()
		}
		first := b.due
		if !b.hope.IsZero() {
			first = earlier(b.hope, first)
		}
		if !known || first.Before(hope) {
			hope = first
		}
		known = true
	}
	return due, hope, last, known
}

// down says what is wrong with the first endpoint; "" where one is in service.
func (g *Upstream) down() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.endpoints {
		if e.inService() {
			return ""
		}
	}
	return g.endpoints[0].why()
}

// why says what is wrong with the endpoint. The caller holds the upstream's mu.
func (e *endpoint) why() string {
	if e.held != "" {
		return e.name + ": " + e.held
	}
	if e.breaker.told {
		return e.name + ": another process found it out of service"
	}
	return e.last
}

// elsewhere reports whether an endpoint other than e is in service and not busy.
func (g *Upstream) elsewhere(now time.Time, e *endpoint) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, other := range g.endpoints {
		if other != e && other.inService() && !other.busyUntil.After(now) {
			return true
		}
	}
	return false
}

// settle ends what choose began for a request of t. answer and f are nil for an attempt
// whose Check panicked: the endpoint did answer.
func (g *Upstream) settle(e *endpoint, probe bool, t *try, answer *Answer, f *failure) {
	c, health := t.call, alive
	if answer != nil && answer.Status >= 500 { // The caller wanted it; it is no sign of health.
		health = ill
	}
	last, suspect := "", g.suspect(c.Body, answer, f)
	if f != nil {
		health, last = f.health, g.secrets.redact(f.text, c.secrets()...)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	e.inFlight--
	if at, ok := e.flights.Remove(t.flight).(time.Time); ok && f == nil && !probe {
		e.pace.took(now.Sub(at))
	}
	if f == nil || f.status != 0 {
		e.answered = now
	}
	if f != nil {
		e.failures[f.class]++
		e.last = last
		if f.after.asked {
			e.busyUntil = now.Add(f.after.wait)
		}
		if cut := f.status == 0 && f.class == rewards.Unavailable; health == ill && (cut || !probe) {
			e.unreached = cut
		}
	}
	changed := e.breaker.end(probe, health, suspect, now)
	switch health {
	case alive:
		e.others.answered = now
		if e.others.refute() {
			g.urge()
		}
	case ill:
		// What another process says as well needs no further proof.
		if suspect == 0 && e.breaker.state == Closed && e.others.stands() {
			e.breaker.open(now)
			changed = true
		}
	case unknown:
	}
	if changed {
		g.announce()
		g.urge()
	}
}

// announce tells those who wait that an endpoint's state has changed. The caller holds mu.
func (g *Upstream) announce() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// urge has the fleet told soon.
func (g *Upstream) urge() {
	if m := g.member.Load(); m != nil {
		m.urge()
	}
}

// suspect names a request that was answered with 500, by its body: a server says 500
// of itself and of a request it chokes on alike, unlike 502, 503 and 504. 0: another
// answer, or nothing to tell requests apart by.
func (g *Upstream) suspect(body []byte, answer *Answer, f *failure) uint64 {
	failed := answer != nil && answer.Status == http.StatusInternalServerError ||
		f != nil && f.status == http.StatusInternalServerError
	if !failed || len(body) == 0 {
		return 0
	}
	return maphash.Bytes(g.seed, body)
}
