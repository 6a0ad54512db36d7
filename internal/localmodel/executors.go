package localmodel

import (
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// Foreseer is implemented by Nets that know what a device has before a model is loaded.
type Foreseer interface {
	// On is a rewards.Concurrent: the calls of any model that the device executes at a time.
	On(device string) any
}

// Executors is what executes the calls of a scorer with several models on one device: that
// of the model with the fewest calls at a time, or where none is loaded yet what the
// device will have. rewards.ConcurrencyOf says how many calls that are.
func Executors(nets infer.Nets, device string, loaded ...infer.Net) any {
	if len(loaded) > 0 {
		return rewards.Narrowest(loaded...)
	}
	if f, ok := nets.(Foreseer); ok {
		return f.On(device)
	}
	return nil
}
