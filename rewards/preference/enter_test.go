package preference_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
)

// bounded are graphs for which so many pictures are made ready at a time. A run takes 100 ms.
type bounded struct {
	infer.Nets

	gate *fair.Gate
}

type boundedNet struct {
	infer.Net

	gate *fair.Gate
}

func (b bounded) Net(m infer.Model) (infer.Net, error) {
	n, err := b.Nets.Net(m)
	return boundedNet{n, b.gate}, err
}

func (n boundedNet) Enter(ctx context.Context) (func(), error) {
	turn, err := n.gate.Acquire(ctx, fair.Tenant{})
	if err != nil {
		return nil, infer.Marked(infer.ErrWaiting, err)
	}
	return turn.Release, nil
}

func (n boundedNet) Infer(ctx context.Context, req infer.Request) ([]infer.Tensor, error) {
	select {
	case <-time.After(100 * time.Millisecond):
		return n.Net.Infer(ctx, req)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestWhatWaitsForAModelHoldsNoDecodedPixels(t *testing.T) {
	t.Parallel()
	const side, places = 64, 3
	folder := clipFolder(t)
	for _, name := range []string{"clipscore", "image_similarity"} {
		synctest.Test(t, func(t *testing.T) {
			decoder, err := media.New(media.Config{})
			require.NoError(t, err)
			s := scorer(t, bounded{towers(), fair.NewGate(places)}, name, object(folder, ""))
			require.NoError(t, s.(rewards.Warmer).Warm(t.Context()))
			m, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{{Key: "k", Weight: 1, Required: true, Scorer: s}}})
			require.NoError(t, err)
			var all sync.WaitGroup
			for i := range 40 {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i%2*100)*time.Second)
					defer cancel()
					sample := &rewards.Sample{ID: "s", Prompt: "a cube"}
					for range 2 {
						m := &rewards.Media{
							Kind: rewards.Image, Encoding: rewards.Raw, DType: "U8", Layout: rewards.CHW, Shape: []int{3, side, side},
							Data: make([]byte, 3*side*side),
						}
						m.SetDecoder(decoder)
						sample.Media = append(sample.Media, m)
					}
					run := m.Run(ctx, sample)
					<-run.Done()
					assert.NotEqual(t, rewards.Failed, run.Result.Outcome, "%v", run.Result.Errors)
				})
			}
			var most atomic.Int64
			all.Go(func() {
				for range 60 {
					time.Sleep(33 * time.Millisecond)
					most.Store(max(most.Load(), decoder.Booked()))
				}
			})
			all.Wait()
			each := map[string]int64{"clipscore": 3 * side * side, "image_similarity": 2 * 3 * side * side}[name]
			assert.Equal(t, places*each, most.Load(), name)
			assert.Zero(t, decoder.Booked())
		})
	}
}
