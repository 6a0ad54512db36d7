package loop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/loop/stream"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// maxRuns bounds the runs that are remembered at once. At the bound, the one goes that was
// used longest ago of those without a connection and a sample in flight.
const maxRuns = 1024

// Serve runs the stream protocol on c until the connection ends. Serve returns nil if the client
// closed the connection normally.
func (m *Manager) Serve(ctx context.Context, c *wsconn.Conn) error {
	name, _ := ctx.Value(clientName{}).(string)
	return stream.Serve(ctx, gateway{m, name}, c)
}

// clientName is the key of As.
type clientName struct{}

// As returns a context for Serve on a connection that was authenticated with the token of that
// name. All connections of a name share flow control like a single connection, and have one label
// in the metrics.
func As(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, clientName{}, name)
}

// gateway is the Manager as the messages of one connection ask it.
type gateway struct {
	*Manager

	client string // the name of its token; empty: none was asked for
}

var _ stream.Gateway = gateway{}

// Hello implements stream.Gateway: it finds or makes the session that a hello asks for.
func (m gateway) Hello(h wire.Hello, c stream.Conn) (*stream.Session, error) {
	if err := checkRun(h.Run); err != nil {
		return nil, err
	}
	if !slices.Contains(m.rewards, h.Reward) {
		return nil, fmt.Errorf("%w: %s", rewards.UnknownReward, m.unknownReward(h.Reward))
	}
	var policy *rewards.SamplePolicy
	if h.OnSampleFailure != "" {
		p, err := rewards.ParseSamplePolicy(h.OnSampleFailure)
		if err != nil {
			return nil, fmt.Errorf("%w: on_sample_failure: %w", rewards.Malformed, err)
		}
		policy = &p
	}
	if m.spool != nil {
		_ = m.spool.Flush() // clients that begin epoch after epoch wait for the disk, too
	}
	now := time.Now()
	m.mu.Lock()
	s, displaced, resumed, fx, err := m.enter(now, h, m.client)
	if err != nil {
		m.mu.Unlock()
		return nil, err
	}
	hi := stream.Greeting{Client: m.client, Reward: h.Reward, Booked: m.bookedFor(h.Reward), Policy: policy, Welcome: m.welcome(h.Reward), Draining: m.draining}
	if resumed {
		hi.Welcome.Resumed, hi.Confirmed = true, h.Resume.Confirmed
	}
	m.flow.Attach(s, c, hi)
	m.core.alarms.clear(&m.core.runs[h.Run].alarm)
	m.mu.Unlock()
	if displaced != nil {
		m.closing.Go(func() { // the handshake takes as long as the old peer likes, at most seconds
			_ = displaced.Close(wsconn.ClosePolicy, "another connection took this client and lane")
		})
	}
	m.apply(fx)
	return s, nil
}

// checkRun refuses names that would be confused or abused.
func checkRun(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: hello needs a run", rewards.Malformed)
	case strings.HasPrefix(name, "_"):
		return fmt.Errorf("%w: run %q: names that begin with _ are reserved for the server", rewards.Malformed, name)
	}
	return nil
}

// welcome is what a client of a profile is told of this gateway. The caller holds the mutex.
func (m *Manager) welcome(reward string) wire.Welcome {
	info := make([]wire.RewardInfo, len(m.rewards))
	for i, name := range m.rewards {
		info[i] = wire.RewardInfo{Name: name}
	}
	return wire.Welcome{
		Rewards: info,
		Limits: wire.LimitsInfo{
			MessageBytes: m.cfg.MessageBytes, HeaderBytes: wire.MaxHeaderBytes, ControlBytes: wire.MaxClientControlBytes,
			InFlight: m.window(reward).Samples,
		},
	}
}

// enter decides between a known session, another one of the current epoch, and a
// new epoch. The caller holds the mutex.
func (m *Manager) enter(now time.Time, h wire.Hello, client string) (s *stream.Session, displaced stream.Conn, resumed bool, fx effects, err error) {
	if m.closed || (m.draining && !m.resumable(h)) {
		return nil, nil, false, fx, fmt.Errorf("%w: the gateway accepts nothing new", rewards.Draining)
	}
	if m.core.runs[h.Run] == nil && len(m.core.runs) >= maxRuns && !m.core.forgetOldest() {
		return nil, nil, false, fx, fmt.Errorf("%w: %d runs have a client or a sample in flight already; end some", rewards.Unavailable, maxRuns)
	}
	r := m.core.runOf(h.Run, now)
	id := stream.ID{Client: h.Client, Lane: h.Lane}
	old := r.sessions[id]
	if h.Epoch != 0 && h.Epoch != r.epoch {
		return nil, nil, false, fx, fmt.Errorf("%w: run %q is at epoch %d, not %d: the trainer of the run has restarted", rewards.Malformed, h.Run, r.epoch, h.Epoch)
	}
	if old != nil {
		displaced = m.flow.Displace(old)
	}
	if m.resumable(h) {
		return old, displaced, true, fx, nil
	}
	if r.epoch == 0 || (h.Epoch == 0 && h.Resume == nil && !r.live()) {
		m.epochs++
		fx = m.core.newEpoch(now, r, m.epochs)
		clear(r.sessions)
	}
	log := m.log
	if client != "" {
		log = log.With("token_name", client)
	}
	s = stream.NewSession(r.name, id, r.epoch, randomName()+randomName(), log)
	r.sessions[id] = s
	return s, displaced, false, fx, nil
}

// resumable reports whether the hello names a session that is still known. A draining
// gateway lets it in: its results are here. The caller holds the mutex.
func (m *Manager) resumable(h wire.Hello) bool {
	r := m.core.runs[h.Run]
	if r == nil || h.Resume == nil {
		return false
	}
	s := r.sessions[stream.ID{Client: h.Client, Lane: h.Lane}]
	return s != nil && s.Token() == h.Resume.Session && s.Epoch() == r.epoch
}

// live reports whether any client of the run is connected.
func (r *run) live() bool {
	for _, s := range r.sessions {
		if s.Live() {
			return true
		}
	}
	return false
}

// current is the session's run, or nil if that has begun a new epoch since. The caller
// holds the mutex.
func (m *Manager) current(s *stream.Session) *run {
	r := m.core.runs[s.Run()]
	if r == nil || r.epoch != s.Epoch() {
		return nil
	}
	return r
}

// Left implements stream.Gateway. What the session has in flight goes on: the client may
// resume.
func (m gateway) Left(s *stream.Session, c stream.Conn) {
	now := time.Now()
	m.mu.Lock()
	grants, left := m.flow.Detach(s, c, now)
	if r := m.current(s); left && r != nil {
		r.lastUse = now
		if !r.live() {
			m.core.alarms.put(&r.alarm, now.Add(m.cfg.ResumeGrace))
		}
	}
	m.mu.Unlock()
	grants.Send()
}

// Refused implements stream.Gateway.
func (m gateway) Refused(class rewards.Class, sample bool) {
	m.metrics.refused.WithLabelValues(string(class)).Inc()
	m.metrics.client(m.metrics.clientRefused, m.client)
	if sample {
		m.metrics.outcomes.WithLabelValues(string(rewards.Rejected)).Inc()
	}
}

// client owns the samples that a session has sent.
type client struct{ *stream.Session }

func (client) remembers() bool { return true }

func (c client) deliver(s *stored) []byte { return c.Deliver(&s.Answer) }

func (c client) expects(by int64) { c.Expects(by) }

func (c client) waits(more bool, what wire.CreditTotals) { c.Parks(more, what) }
