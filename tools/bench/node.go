package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/queue"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// node is a gateway with its engine and workers behind a real socket, as serve puts
// them together, and clients that are connected to it.
type node struct {
	loop    *loop.Manager
	queue   *queue.Queue
	sources []*queue.Source
	workers []*workers.Worker
	srv     *http.Server
	addr    string
	served  chan struct{}  // closed when the listener has ended
	streams sync.WaitGroup // connections being served
	clients []*client.Client
	ids     atomic.Int64

	cfg     nodeConfig
	decoder rewards.Decoder
	mortals map[string]*mortal // by worker, with nodeConfig.mortal
	remote  *remoteSide        // with nodeConfig.processes
}

// nodeConfig is what experiments vary.
type nodeConfig struct {
	workers, places int
	lanes           int // clients
	profile         rewards.ManagerConfig
	// profileOf gives each worker a profile of its own; nil: profile for all.
	profileOf func(worker string) rewards.ManagerConfig
	loop      loop.Config
	queue     queue.Config
	// mortal says that workers can be killed.
	mortal bool
	// processes is how many processes the workers are divided over, as far as the engine and
	// the gateway can tell: they reach both over loopback TCP. 0: they are the gateway's own.
	processes int
}

// newNode starts everything and connects the clients.
func newNode(ctx context.Context, cfg nodeConfig) (_ *node, err error) {
	n := &node{served: make(chan struct{}), cfg: cfg, mortals: map[string]*mortal{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if cfg.profileOf == nil {
		n.cfg.profileOf = func(string) rewards.ManagerConfig { return cfg.profile }
	}
	if cfg.processes > 0 {
		n.remote = newRemoteSide(&n.cfg)
	}
	if n.queue, err = queue.Open(ctx, n.cfg.queue); err != nil {
		return nil, err
	}
	if n.loop, err = loop.New(loop.Options{Config: n.cfg.loop, Queue: n.queue, Presence: n.queue}); err != nil {
		return nil, err
	}
	n.loop.Start(ctx)
	if n.decoder, err = media.New(media.Config{}); err != nil {
		return nil, err
	}
	addr, err := n.listen(ctx)
	if err != nil {
		return nil, err
	}
	n.addr = addr.String()
	if n.remote != nil {
		if err := n.remote.open(ctx, n); err != nil {
			return nil, err
		}
	}
	for i := range cfg.workers {
		if err := n.startWorker(ctx, "w"+strconv.Itoa(i)); err != nil {
			return nil, err
		}
	}
	for lane := range cfg.lanes {
		c, err := client.Dial(ctx, client.Config{URL: "ws://" + n.addr, Run: "bench", Lane: lane})
		if err != nil {
			return nil, err
		}
		n.clients = append(n.clients, c)
	}
	return n, nil
}

func (n *node) startWorker(ctx context.Context, id string) error {
	m, err := rewards.NewManager(n.cfg.profileOf(id))
	if err != nil {
		return err
	}
	connect, gateway := n.queue.NewSource, workers.Gateway(n.loop)
	if n.remote != nil {
		p := n.remote.next()
		connect, gateway = p.member.NewSource, p.claims
	}
	queue := wire.QueueName("", "")
	source, err := connect(id, []string{queue})
	if err != nil {
		return err
	}
	n.sources = append(n.sources, source)
	o := workers.Options{
		Config: workers.Config{ID: id}, Source: source, Gateway: gateway,
		Profiles: map[string]workers.Profile{"": {Manager: m, Queue: queue, Capacity: n.cfg.places}}, Decoder: n.decoder,
	}
	if n.cfg.mortal {
		n.mortals[id] = &mortal{Source: source, Gateway: n.loop}
		o.Source, o.Gateway = n.mortals[id], n.mortals[id]
	}
	w, err := workers.New(o)
	if err != nil {
		return err
	}
	w.Start(ctx)
	n.workers = append(n.workers, w)
	return nil
}

func (n *node) listen(ctx context.Context) (net.Addr, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n.srv = &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n.streams.Add(1)
			defer n.streams.Done()
			if n.remote != nil && r.URL.Path == claimPath {
				n.remote.server.ServeHTTP(w, r)
				return
			}
			c, err := wsconn.Upgrade(w, r, wsconn.UpgradeConfig{Subprotocols: []string{wire.Protocol}})
			if err != nil {
				return // answered with the reason
			}
			_ = n.loop.Serve(r.Context(), c) // the client sees why it ended
		}),
	}
	go func() { // ends with Close
		defer close(n.served)
		_ = n.srv.Serve(l) // always an error: that of the end
	}()
	return l.Addr(), nil
}

// send is one round trip of a sample, which gets an id of its own.
func (n *node) send(ctx context.Context, lane int, s rewards.Sample) error {
	f, err := n.clients[lane].Submit(ctx, &s, 0)
	if err != nil {
		return err
	}
	res, err := f.Wait(ctx)
	if err != nil {
		return fmt.Errorf("sample %q: %w", s.ID, err)
	}
	if res.Outcome != rewards.Scored {
		return fmt.Errorf("sample %q: %s: %v", s.ID, res.Outcome, res.Errors)
	}
	return nil
}

// Close takes everything down, the clients first and the engine last.
func (n *node) Close() error {
	var errs []error
	for _, c := range n.clients {
		errs = append(errs, c.Close())
	}
	if n.loop != nil {
		n.loop.Stop()
	}
	if n.remote != nil {
		n.remote.stop()
	}
	if n.srv != nil {
		errs = append(errs, n.srv.Close())
		<-n.served
		n.streams.Wait()
	}
	var all sync.WaitGroup
	for _, w := range n.workers {
		all.Go(w.Stop)
	}
	all.Wait()
	for _, s := range n.sources {
		s.Disconnect()
	}
	if n.remote != nil {
		n.remote.close()
	}
	if n.queue != nil {
		n.queue.Close()
	}
	return errors.Join(errs...)
}
