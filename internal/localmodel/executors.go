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

// Concurrency says of a scorer that runs models here what decides how many of its calls
// are executed at a time, for people.
const Concurrency = "on the CPU a call for each session (pool.onnx.slots, one for each CPU), on a card twice its largest batch (pool.onnx.max_batch, 32)"

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
