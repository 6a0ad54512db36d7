package fabric

import "context"

// Lose makes the engine forget every ticket, as a broker that lost its memory would.
func (f *Fabric) Lose(ctx context.Context) error {
	if err := f.js.DeleteStream(ctx, streamName); err != nil {
		return err
	}
	f.keeper.lost()
	return f.settle(ctx)
}
