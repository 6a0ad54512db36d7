package preference

import (
	"context"
	"errors"
	"time"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/localmodel"
	"github.com/rewardloop/rewardloop/rewards"
)

// lasting is how long a failure that another try would only repeat is answered from
// memory.
const lasting = 5 * time.Second

// remember says how long others are told of a failure to load.
func remember(err error) time.Duration {
	switch rewards.ClassOf(localmodel.Classify(context.Background(), err)) {
	case rewards.Internal, rewards.BadInput, rewards.InvalidScore, rewards.Panicked:
		return lasting
	}
	return 0
}

// passing tells whether an error says nothing about the graph.
func passing(err error) bool {
	for _, e := range []error{context.Canceled, context.DeadlineExceeded, infer.ErrTimeout, infer.ErrUnavailable, infer.ErrMemory, infer.ErrCrashed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
