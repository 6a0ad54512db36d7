//go:build linux && fault

package main_test

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/testkit/fleet"
	"github.com/rewardloop/rewardloop/testkit/netlab"
)

// cut is how long nothing passes; longer than a lease.
const cut = 8 * time.Second

// networkFaults are those between processes that are well.
func networkFaults() []fault {
	long := fleet.Load{Samples: 400}
	return []fault{
		{
			name: "link down", what: "link of one of two workers down, 8 s", hosts: true, load: long, within: silent, because: "a lease",
			happens: during((*netlab.Host).Down),
		},
		{
			name: "input cut", what: "one worker hears nothing, 8 s", hosts: true, needs: []netlab.Ability{netlab.Drop}, load: long,
			within: silent, because: "a lease", happens: during((*netlab.Host).DropInput),
		},
		{
			name: "output cut", what: "one worker is not heard, 8 s", hosts: true, needs: []netlab.Ability{netlab.Drop}, load: long,
			within: silent, because: "a lease", happens: during((*netlab.Host).DropOutput),
		},
		{
			name: "loss", what: "one worker loses 5 % of the packets sent to it, 8 s", hosts: true, needs: []netlab.Ability{netlab.Lose},
			load: long, within: silent, because: "a lease", happens: during(func(h *netlab.Host) { h.Loss(5) }),
		},
		{
			name: "narrow link", what: "40 Mbit/s to one worker, 8 s", hosts: true, needs: []netlab.Ability{netlab.Limit}, load: long,
			within: closed, because: "nothing is lost", happens: during(func(h *netlab.Host) { h.Rate(40e6) }),
		},
		{
			name: "far away", what: "50 ms each way between client, gateway, broker and workers", cfg: fleet.Config{Delay: 50 * time.Millisecond},
		},
		{
			name: "claims cut", what: "the workers' connections to the gateway reset five times", cfg: fleet.Config{Proxied: true},
			within: closed, because: "they reconnect",
			happens: func(s *stage) {
				s.Mark()
				for i := range 5 {
					s.fleet.Way("g1").Cut()
					s.Reached(40 + 40*(i+1))
				}
			},
		},
		{
			name: "claims corrupt", what: "a bit flipped in five reads of the payloads that workers fetch", cfg: fleet.Config{Proxied: true},
			within: closed, because: "they are fetched again",
			happens: func(s *stage) {
				s.Mark()
				for i := range 5 {
					s.fleet.Way("g1").Corrupt(netlab.Down, 1)
					s.Reached(40 + 40*(i+1))
				}
				require.True(s.t, s.fleet.Way("g1").Corrupted(netlab.Down), "not all bits were flipped")
			},
		},
		{
			name: "claims frozen", what: "nothing passes from gateway to workers, 8 s, and no connection closes; the broker is reachable", cfg: fleet.Config{Proxied: true},
			load: long, within: cut + closed, because: "the outage",
			happens: func(s *stage) {
				s.Mark()
				s.fleet.Way("g1").Freeze(netlab.Down)
				s.pause(cut)
				s.fleet.Way("g1").Thaw(netlab.Down)
			},
		},
		{
			name: "broker frozen", what: "nothing passes to the broker, 8 s, and no connection closes", cfg: fleet.Config{Proxied: true},
			load: long, within: cut + closed, because: "the outage",
			happens: func(s *stage) {
				s.Mark()
				s.fleet.Way("nats1").Freeze(netlab.Up)
				s.pause(cut)
				s.fleet.Way("nats1").Thaw(netlab.Up)
			},
		},
		{
			name: "client cut", what: "the client's connection reset five times", within: closed, because: "it reconnects",
			happens: func(s *stage) {
				s.Mark()
				for i := range 5 {
					s.Proxies[0].Cut()
					s.Reached(40 + 40*(i+1))
				}
			},
		},
		{
			name: "client refused", what: "the client's connection reset and the next ones refused, 3 s", within: 3*time.Second + closed,
			because: "the outage, and pauses between dials",
			happens: func(s *stage) {
				s.Mark()
				s.Proxies[0].Refuse(true)
				s.Proxies[0].Cut()
				s.pause(3 * time.Second)
				s.Proxies[0].Refuse(false)
			},
		},
		{
			name: "client frozen", what: "nothing passes between client and gateway, 8 s, and no connection closes", within: cut + closed, because: "the outage",
			load: long,
			happens: func(s *stage) {
				s.Mark()
				for _, d := range []netlab.Direction{netlab.Up, netlab.Down} {
					s.Proxies[0].Freeze(d)
				}
				s.pause(cut)
				for _, d := range []netlab.Direction{netlab.Up, netlab.Down} {
					s.Proxies[0].Thaw(d)
				}
			},
		},
	}
}

// during makes a fault of the first worker's host and heals it after the time of a cut.
func during(fault func(*netlab.Host)) func(*stage) {
	return func(s *stage) {
		s.Mark()
		fault(s.hosts[0])
		s.pause(cut)
		s.hosts[0].Heal()
	}
}
