package jpeg_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/cpu"
	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/jpeg"
	"github.com/rewardloop/rewardloop/testkit/bombs"
)

// Two components read each picture, there is memory to decode one picture at a time and one CPU,
// and two runs take it from each other in the middle of a decoding.
func TestRunsThatShareACPUAndLittleMemoryDoNotWaitForEachOtherForEver(t *testing.T) {
	t.Parallel()
	file := bombs.PNGInterlaced(256)
	d, err := media.New(media.Config{BudgetBytes: 2 << 20})
	require.NoError(t, err)
	scorer, err := jpeg.New(jpeg.Config{})
	require.NoError(t, err)
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{
		{Key: "a", Weight: 1, Required: true, Scorer: scorer}, {Key: "b", Weight: 1, Required: true, Scorer: scorer},
	}})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(cpu.With(t.Context(), fair.NewGate(1)), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			picture := &rewards.Media{Kind: rewards.Image, Encoding: rewards.PNG, DType: "U8", Shape: []int{len(file)}, Data: file}
			picture.SetDecoder(d)
			run := rewards.WithTenant(ctx, rewards.Tenant{Run: fmt.Sprint("run", i%2)})
			r := m.Run(run, &rewards.Sample{ID: fmt.Sprint(i), Media: []*rewards.Media{picture}})
			<-r.Done()
			assert.Equal(t, rewards.Scored, r.Result.Outcome, "%+v", r.Result.Errors)
		})
	}
	all.Wait()
	assert.Zero(t, d.Booked())
}
