package python_test

import (
	"bytes"
	"context"
	"image"
	"image/png"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// flood has callers of a tenant ask for a word until ctx ends, and adds up what the
// function says of its time.
func flood(ctx context.Context, all *sync.WaitGroup, s rewards.Scorer, tenant rewards.Tenant, callers int, word string) *atomic.Int64 {
	var n atomic.Int64
	for range callers {
		all.Go(func() {
			for ctx := rewards.WithTenant(ctx, tenant); ctx.Err() == nil; {
				if got, err := s.Score(ctx, asks(word)); err == nil {
					n.Add(int64(got.Extra["took"].(float64) * 1e9))
				}
			}
		})
	}
	return &n
}

func TestProcessesServeTheRunsOfAProfileByWeight(t *testing.T) {
	t.Parallel()
	s := process(t, python.Config{Processes: 2}, python.Options{Name: "threaded"})
	warm(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	one := flood(ctx, &all, s, rewards.Tenant{Profile: "p", Run: "one", Weight: 1}, 12, "wait0.02")
	three := flood(ctx, &all, s, rewards.Tenant{Profile: "p", Run: "three", Weight: 3}, 6, "wait0.02")
	require.Eventually(t, func() bool { return stats(s).Alive == 2 }, 20*time.Second, time.Millisecond)
	ones, threes := one.Load(), three.Load()
	require.Eventually(t, func() bool { return one.Load()+three.Load()-ones-threes >= int64(8*time.Second) }, time.Minute, time.Millisecond)
	// See internal/subprocess: on a busy machine a part of each turn is not counted here.
	assert.InDelta(t, 3, float64(three.Load()-threes)/float64(one.Load()-ones), 1)
	cancel()
	all.Wait()
	assert.Zero(t, stats(s).Waiting)
}

func TestARunThatFloodsLeavesOrHangsTakesNoMoreThanItsShareOfAFunctionsProcesses(t *testing.T) {
	t.Parallel()
	s := process(t, python.Config{Processes: 2}, python.Options{Name: "threaded"})
	warm(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	fine := flood(ctx, &all, s, rewards.Tenant{Run: "fine"}, 4, "wait0.005")
	require.Eventually(t, func() bool { return stats(s).Alive == 2 && fine.Load() > int64(50*time.Millisecond) }, 20*time.Second, time.Millisecond)
	hangs := rewards.WithTenant(ctx, rewards.Tenant{Run: "hangs"})
	for range 4 {
		all.Go(func() { _, _ = s.Score(hangs, asks("hang")) })
	}
	for i := range 20 { // half of them leave, and the process of the others is killed
		all.Go(func() {
			for ctx := rewards.WithTenant(ctx, rewards.Tenant{Run: []string{"leaves", "late"}[i%2]}); ctx.Err() == nil; {
				brief, leave := context.WithCancel(ctx)
				if i%2 == 0 {
					time.AfterFunc(time.Millisecond, leave)
				} else {
					brief, leave = context.WithTimeout(ctx, time.Millisecond)
				}
				_, _ = s.Score(brief, asks("wait0.005"))
				leave()
			}
		})
	}
	before := fine.Load()
	require.Eventually(t, func() bool { return fine.Load() > before+int64(time.Second) }, time.Minute, time.Millisecond)
	cancel()
	all.Wait()
	assert.Zero(t, stats(s).Waiting)
}

func TestFunctionsHaveProcessesByTheWeightOfTheirRuns(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		weight float64
		want   [2]int // processes
	}{
		"of equal weight": {1, [2]int{3, 2}}, // who had them first keeps the odd one
		"of three times":  {3, [2]int{1, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := functions(t, python.Config{Processes: 4}, `"name": "quick"`, `"name": "threaded"`)
			first, second := all[0], all[1]
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var calls sync.WaitGroup
			floods := func(s rewards.Scorer, profile, word string, weight float64) {
				for range 12 {
					calls.Go(func() {
						for ctx := rewards.WithTenant(ctx, rewards.Tenant{Profile: profile, Weight: weight}); ctx.Err() == nil; {
							_, _ = s.Score(ctx, asks(word))
						}
					})
				}
			}
			floods(first, "first", "go", 1)
			require.Eventually(t, func() bool { return stats(first).Alive == 4 }, 30*time.Second, time.Millisecond, "all that are spare")
			floods(second, "second", "wait0.005", tt.weight)
			require.Eventually(t, func() bool { return [2]int{stats(first).Alive, stats(second).Alive} == tt.want }, time.Minute, time.Millisecond)
			assert.Never(t, func() bool { return stats(first).Alive+stats(second).Alive > 5 }, 500*time.Millisecond, 10*time.Millisecond, "and it stays so")
			assert.Equal(t, tt.want, [2]int{stats(first).Alive, stats(second).Alive})
			cancel()
			calls.Wait()
			assert.Zero(t, stats(first).Crashes+stats(second).Crashes)
			assert.Zero(t, stats(first).Restarts, "what was ceded was not lost")
		})
	}
}

// picture is a sample of a PNG that a process gets as pixels.
func picture(t *testing.T, d *media.Decoder, side int) *rewards.Sample {
	t.Helper()
	var file bytes.Buffer
	require.NoError(t, png.Encode(&file, image.NewNRGBA(image.Rect(0, 0, side, side))))
	m := &rewards.Media{Kind: rewards.Image, Encoding: rewards.PNG, DType: "U8", Data: file.Bytes(), Shape: []int{file.Len()}}
	m.SetDecoder(d)
	s := asks("wait0.1")
	s.Media = []*rewards.Media{m}
	return s
}

func TestWhatWaitsForAProcessHoldsNoDecodedPixels(t *testing.T) {
	t.Parallel()
	const side = 64
	decoder, err := media.New(media.Config{})
	require.NoError(t, err)
	s := process(t, python.Config{Processes: 1}, python.Options{Name: "threaded"})
	warm(t, s)
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{{Key: "k", Weight: 1, Required: true, Scorer: s}}})
	require.NoError(t, err)
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			run := m.Run(t.Context(), picture(t, decoder, side))
			<-run.Done()
			assert.Equal(t, rewards.Scored, run.Result.Outcome, "%v", run.Result.Errors)
		})
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		all.Wait()
	}()
	// One is in the process, one may just have left it, and one is being decoded: that books
	// 8 bytes a pixel and 4 MiB besides.
	const most = 2*3*side*side + 8*(side+31)*(side+31) + 3*side*side + 4<<20
	for waiting := true; waiting; {
		select {
		case <-over:
			waiting = false
		case <-time.After(time.Millisecond):
			assert.LessOrEqual(t, decoder.Booked(), int64(most))
		}
	}
	assert.Zero(t, decoder.Booked())
}

func TestASampleThatIsLeftOrCannotBeDecodedGivesItsPlaceBack(t *testing.T) {
	t.Parallel()
	decoder, err := media.New(media.Config{MaxPixels: 100})
	require.NoError(t, err)
	s := process(t, python.Config{Processes: 1}, python.Options{Name: "threaded"})
	warm(t, s)
	for range 3 {
		_, err = score(t, s, picture(t, decoder, 64))
		require.ErrorIs(t, err, rewards.BadInput)
	}
	_, err = score(t, s, asks("wait0"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return stats(s).Running == 0 }, 20*time.Second, time.Millisecond)
	assert.Zero(t, decoder.Booked())
	assert.Zero(t, stats(s).Restarts)
}
