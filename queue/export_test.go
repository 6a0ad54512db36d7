package queue

import (
	"context"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"
)

// FleetConfig and NewFleet make a fleet of a test's own: others have Queue.Fleet and Member.Fleet.
type FleetConfig = fleetConfig

// NewFleet joins the fleet over a connection of the test's.
func NewFleet(ctx context.Context, js jetstream.JetStream, cfg FleetConfig) (*Fleet, error) {
	cfg.Replicas = max(cfg.Replicas, 1)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return newFleet(ctx, js, cfg)
}

// Forget deletes the stream behind NATS's back.
func (f *Queue) Forget(ctx context.Context) error { return f.js.DeleteStream(ctx, streamName) }

// Lose makes NATS forget every ticket, as a broker that lost its memory would.
func (f *Queue) Lose(ctx context.Context) error {
	if err := f.Forget(ctx); err != nil {
		return err
	}
	f.keeper.restored()
	return f.settle(ctx)
}
