package outbound_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
)

// bus brings every word to every process, in one order, each with its own delay.
type bus struct {
	mu   sync.Mutex
	all  []*process
	last []letter
}

type letter struct {
	from, upstream string
	report         *outbound.Report
	at             time.Time
}

// process is one with its own transport. It lives until stop, within a bubble.
type process struct {
	name string
	bus  *bus
	lag  func() time.Duration // Of a word on its way here; nil: none.
	tr   *outbound.Transport
	urge chan struct{}
	post chan letter
	quit context.CancelFunc
	done sync.WaitGroup

	mu       sync.Mutex
	upstream string
	member   outbound.Member
	cut      bool // It neither hears nor is heard.
	stopped  bool // Its clock stands still.
}

var _ outbound.Fleet = (*process)(nil)

// start makes a process of the bus; g is its upstream. One whose name begins with guest is one.
func (b *bus) start(t *testing.T, name string, cfg outbound.UpstreamConfig, trip tripFunc) (p *process, g *outbound.Upstream) {
	t.Helper()
	return b.startLate(t, name, cfg, trip, nil)
}

func (b *bus) startLate(t *testing.T, name string, cfg outbound.UpstreamConfig, trip tripFunc, lag func() time.Duration) (p *process, g *outbound.Upstream) {
	t.Helper()
	if cfg.URLs == nil {
		cfg.URLs = []string{"http://a"}
	}
	p = &process{name: name, bus: b, lag: lag, tr: outbound.NewTestTransport(trip), urge: make(chan struct{}, 1), post: make(chan letter, 1<<16)}
	g, err := p.tr.Upstream(cfg)
	require.NoError(t, err)
	ctx, quit := context.WithCancel(t.Context())
	p.quit = quit
	p.tr.Join(p, strings.HasPrefix(name, "guest"))
	b.mu.Lock()
	b.all = append(b.all, p)
	b.mu.Unlock()
	p.done.Go(func() { p.speak(ctx) })
	p.done.Go(func() { p.listen(ctx) })
	t.Cleanup(p.kill)
	return p, g
}

func (p *process) Self() string { return p.name }

func (p *process) Urge() {
	select {
	case p.urge <- struct{}{}:
	default:
	}
}

func (p *process) Join(upstream string, m outbound.Member) (leave func()) {
	p.mu.Lock()
	p.upstream, p.member = upstream, m
	p.mu.Unlock()
	p.bus.mu.Lock()
	known := p.bus.last
	p.bus.mu.Unlock()
	for _, l := range known {
		if l.upstream == upstream {
			m.Heard(l.from, l.report)
		}
	}
	return func() {
		p.mu.Lock()
		p.member = nil
		p.mu.Unlock()
		p.bus.send(letter{from: p.name, upstream: upstream})
	}
}

// set cuts a process off, or stops it as a signal would.
func (p *process) set(cut, stopped bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.stopped = cut, stopped
}

// kill ends the process without a word.
func (p *process) kill() {
	p.quit()
	p.done.Wait()
}

func (p *process) speak(ctx context.Context) {
	tick := time.NewTicker(outbound.FleetPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-p.urge:
		}
		p.mu.Lock()
		m, upstream, cut, stopped := p.member, p.upstream, p.cut, p.stopped
		p.mu.Unlock()
		if m == nil || stopped {
			continue
		}
		if r := m.Report(); !cut {
			p.bus.send(letter{from: p.name, upstream: upstream, report: &r})
		}
	}
}

func (b *bus) send(l letter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.at = time.Now()
	b.last = append(b.last, l)
	if len(b.last) > 64 {
		b.last = b.last[1:]
	}
	for _, p := range b.all {
		p.post <- l
	}
}

func (p *process) listen(ctx context.Context) {
	for {
		var l letter
		select {
		case <-ctx.Done():
			return
		case l = <-p.post:
		}
		if p.lag != nil {
			time.Sleep(time.Until(l.at.Add(p.lag()))) // Of the bubble.
		}
		p.mu.Lock()
		m, ok := p.member, p.upstream == l.upstream && !p.cut && !p.stopped
		p.mu.Unlock()
		if m != nil && ok {
			m.Heard(l.from, l.report)
		}
	}
}
