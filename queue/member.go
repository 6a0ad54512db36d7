package queue

import (
	"context"
	"errors"
)

// Member is the side of a process that has workers and no gateway.
type Member struct {
	*bus

	gateways *gateways
}

// Join connects to a NATS server that gateways use.
func Join(ctx context.Context, cfg Config) (_ *Member, err error) {
	cfg = cfg.WithDefaults()
	if len(cfg.URLs) == 0 {
		return nil, errors.New("queue: a worker needs the address of NATS: nats://host:port of a gateway's nats_listen, or of nats-server")
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m := &Member{}
	back := make(chan struct{}) // closed when gateways is set
	if m.bus, err = openBus(ctx, cfg, workerInbox, func() {
		if <-back; m.gateways != nil {
			m.gateways.again()
		}
	}); err != nil {
		return nil, err
	}
	m.gateways, err = listen(m.nc, cfg.Gone)
	close(back)
	if err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

// NewSource connects a worker to the queues of NATS that it takes from, which a gateway
// makes when it hears the worker name them.
func (m *Member) NewSource(worker string, queues []string) (*Source, error) {
	return newSource(m.bus, worker, queues)
}

// Alive reports whether a gateway has been heard of late, or could not have been.
func (m *Member) Alive(gateway string) bool { return m.gateways.alive(gateway) }

// Connected reports whether NATS can be reached now.
func (m *Member) Connected() bool { return m.nc.IsConnected() }

// Fleet makes what limits and breakers of all processes are shared by. It must be closed
// before the Member.
func (m *Member) Fleet(ctx context.Context) (*Fleet, error) { return m.openFleet(ctx, false) }

// Close ends the connection. Sources must have been closed before.
func (m *Member) Close() { m.close() }
