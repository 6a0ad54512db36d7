package main

import (
	"context"
	"strconv"
	"time"

	"github.com/rewardloop/rewardloop/queue"
	"github.com/rewardloop/rewardloop/queue/payload"
	"github.com/rewardloop/rewardloop/wire"
)

const claimPath = "/v1/claim"

// remoteSide is what a node needs for workers that are not in its process.
type remoteSide struct {
	key       *payload.Key
	name      string
	server    *payload.Server
	processes []process
	turn      int // the process that the next worker is in
}

// process has workers, and connections of its own to engine and gateway.
type process struct {
	member *queue.Member
	claims *payload.Client
}

// newRemoteSide has a node's engine listen, and its tickets name where they are claimed.
func newRemoteSide(cfg *nodeConfig) *remoteSide {
	a := &remoteSide{key: payload.NewKey(), name: "bench"}
	cfg.loop.Gateway, cfg.queue.Name, cfg.queue.Listen = a.name, a.name, "127.0.0.1:0"
	cfg.queue.Sign = func(k wire.AttemptKey) string { return a.key.Sign(k, time.Now().Add(time.Minute)) }
	return a
}

// open takes claims, and connects the processes.
func (a *remoteSide) open(ctx context.Context, n *node) (err error) {
	n.queue.Advertise("ws://" + n.addr + claimPath)
	if a.server, err = payload.NewServer(payload.ServerOptions{Gateway: n.loop, Name: a.name, Key: a.key}); err != nil {
		return err
	}
	for i := range n.cfg.processes {
		var p process
		if p.member, err = queue.Join(ctx, queue.Config{URLs: []string{"nats://" + n.queue.Address()}, Name: "p" + strconv.Itoa(i)}); err != nil {
			return err
		}
		a.processes = append(a.processes, p)
		if p.claims, err = payload.NewClient(payload.ClientOptions{Buffers: new(wire.Buffers), Alive: p.member.Alive}); err != nil {
			return err
		}
		a.processes[i] = p
	}
	return nil
}

// next is the process that the next worker is in.
func (a *remoteSide) next() process {
	p := a.processes[a.turn%len(a.processes)]
	a.turn++
	return p
}

// stop ends the gateway's side.
func (a *remoteSide) stop() {
	if a.server != nil {
		a.server.Close()
	}
}

// close ends the processes, whose workers have stopped.
func (a *remoteSide) close() {
	for _, p := range a.processes {
		if p.claims != nil {
			p.claims.Close()
		}
		p.member.Close()
	}
}
