//go:build linux && fault

package main_test

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/testkit/fleet"
)

// processFaults are those of processes: killed, stopped, restarted.
func processFaults() []fault {
	const eof = "its connections close"
	return []fault{
		{name: "none", what: "none"},
		{
			name: "kill a worker", what: "kill -9 of one of two workers", within: closed, because: eof,
			happens: func(s *stage) {
				s.Mark()
				s.workers[0].Kill9()
			},
		},
		{
			name: "kill eight workers", what: "8 × kill -9 of a worker of four, each started again", workers: 4,
			load: fleet.Load{Samples: 400}, within: closed, because: eof,
			happens: func(s *stage) {
				s.Mark()
				for i := range 8 {
					w := s.workers[i%4]
					w.Kill9()
					s.Reached(40 + 40*(i+1))
					w.Start()
				}
			},
		},
		{
			name: "stop a worker", what: "SIGSTOP of one of two workers, 4 s", within: silent, because: "no connection closes",
			happens: stopped(0, 4*time.Second),
		},
		{
			name: "stop a worker past its lease", what: "SIGSTOP of one of two workers, 10 s", within: silent, because: "a lease",
			load: fleet.Load{Samples: 400}, happens: stopped(0, 10*time.Second),
		},
		{
			name: "kill the gateway", what: "kill -9 of the gateway, started again", within: closed, because: eof,
			happens: func(s *stage) {
				s.Mark()
				s.gateways[0].Kill9()
				s.gateways[0].Start()
			},
		},
		{
			name: "kill the gateway that is the broker", what: "kill -9 of a gateway with the broker inside, started again", embedded: true,
			within: closed, because: eof, happens: func(s *stage) {
				s.Mark()
				s.gateways[0].Kill9()
				s.gateways[0].Start()
			},
		},
		{
			name: "stop the gateway", what: "SIGSTOP of the gateway, 4 s", within: silent, because: "no connection closes",
			happens: func(s *stage) {
				s.Mark()
				s.gateways[0].Stop()
				s.pause(4 * time.Second)
				s.gateways[0].Cont()
			},
		},
		{
			name: "kill the broker", what: "kill -9 of the broker, started again: its stream, in memory, is lost", within: closed, because: eof,
			happens: func(s *stage) {
				s.Mark()
				s.brokers[0].Kill9()
				s.brokers[0].Start()
			},
		},
		{
			name: "stop the broker", what: "SIGSTOP of the broker, 4 s", within: silent, because: "no connection closes",
			happens: func(s *stage) {
				s.Mark()
				s.brokers[0].Stop()
				s.pause(4 * time.Second)
				s.brokers[0].Cont()
			},
		},
		{
			name: "kill the leader", what: "kill -9 of the stream's leader among three brokers, R3", brokers: 3,
			cfg: fleet.Config{Replicas: 3}, within: 15 * time.Second, because: "NATS elects a leader in 4 to 9 s",
			happens: func(s *stage) {
				leader := s.fleet.StreamLeader("RL_TICKETS")
				s.Mark()
				leader.Kill9()
			},
		},
		{
			name: "restart everything", what: "rolling restart (SIGTERM) of four workers and two gateways", workers: 4, gateways: 2,
			load: fleet.Load{Samples: 400}, within: closed, because: "the others go on",
			happens: func(s *stage) {
				s.Mark()
				for _, p := range append(s.workers, s.gateways...) {
					p.Restart()
				}
			},
		},
		{
			name: "kill gateways",
			what: "8 clients of three gateways with 4 KiB a sample, 250 a second; kill -9 of one gateway every 5 s, started again 2 s later; " +
				"every process reads another weight every second",
			gateways: 3, load: fleet.Load{Clients: 8, Samples: 20_000, Bytes: 4 << 10, PerSecond: 250, Limit: 5 * time.Minute},
			cfg: fleet.Config{ScoreLeast: time.Millisecond, ScoreMost: 10 * time.Millisecond}, within: closed, because: "its connections close",
			happens: func(s *stage) {
				s.Mark()
				for i := 0; !s.Over(); i++ {
					g := s.gateways[i%3]
					g.Kill9()
					s.reloads(2)
					g.Start()
					s.reloads(3)
				}
			},
		},
		{
			name: "come and go", what: "a worker joins, another leaves (SIGTERM)", within: closed, because: "it finishes what it has",
			happens: func(s *stage) {
				s.Mark()
				s.fleet.Worker("w3", nil)
				s.workers[0].Terminate()
				require.Zero(s.t, s.workers[0].Wait(), "%s", s.workers[0].Log())
			},
		},
	}
}

// reloads has all processes read another configuration, once a second for some seconds.
func (s *stage) reloads(seconds int) {
	s.t.Helper()
	for range seconds {
		s.fleet.Reload()
		s.pause(time.Second)
	}
}

// stopped freezes a worker for a while.
func stopped(worker int, d time.Duration) func(*stage) {
	return func(s *stage) {
		s.Mark()
		s.workers[worker].Stop()
		s.pause(d)
		s.workers[worker].Cont()
	}
}
