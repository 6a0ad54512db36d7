package ocr_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// scheduler is a reader with few executors, of which each takes a second for a frame.
type scheduler struct {
	gate *fair.Gate
	fail bool

	mu   sync.Mutex
	read map[string]int // frames by run
	open int            // turns that are not done
}

func newScheduler(executors int) *scheduler {
	return &scheduler{gate: fair.NewGate(executors), read: map[string]int{}}
}

func (*scheduler) Queues() {}

func (d *scheduler) ReadText(context.Context, *rewards.Pixels, int) ([]ocr.Line, error) {
	panic("without a turn")
}

func (d *scheduler) Turn(ctx context.Context) (ocr.Turn, error) {
	t, err := d.gate.Acquire(ctx, fair.Tenant(rewards.TenantOf(ctx)))
	if err != nil {
		return nil, err
	}
	_, cancel := rewards.Start(ctx)
	cancel()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open++
	return &place{scheduler: d, turn: t, run: rewards.TenantOf(ctx).Run}, nil
}

type place struct {
	scheduler *scheduler
	turn      fair.Turn
	run       string
}

func (s *place) Done() {
	s.turn.Release()
	s.scheduler.mu.Lock()
	defer s.scheduler.mu.Unlock()
	s.scheduler.open--
}

func (s *place) ReadText(ctx context.Context, _ *rewards.Pixels, _ int) ([]ocr.Line, error) {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.scheduler.fail {
		return nil, fmt.Errorf("%w: as told", rewards.Crashed)
	}
	s.scheduler.mu.Lock()
	defer s.scheduler.mu.Unlock()
	s.scheduler.read[s.run]++
	return []ocr.Line{{Text: "cat", Confidence: 1}}, nil
}

const turnSide = 50

// planes is a sample with an image, or a video, that has to be decoded.
func planes(d *media.Decoder, frames int) *rewards.Sample {
	m := &rewards.Media{
		Kind: rewards.Image, Encoding: rewards.Raw, DType: "U8", Layout: rewards.TCHW, Shape: []int{frames, 3, turnSide, turnSide},
		Data: make([]byte, frames*3*turnSide*turnSide),
	}
	if frames > 1 {
		m.Kind = rewards.Video
	}
	m.SetDecoder(d)
	return &rewards.Sample{ID: "s", Prompt: `"cat"`, Media: []*rewards.Media{m}}
}

func managed(t *testing.T, r ocr.TextReader, timeout time.Duration) *rewards.Manager {
	t.Helper()
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{{
		Key: "ocr", Weight: 1, Required: true, Timeout: timeout, Scorer: newScorer(t, `{}`, r),
	}}})
	require.NoError(t, err)
	return m
}

func TestWhatWaitsForAReaderHoldsNoDecodedPixels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		decoder, err := media.New(media.Config{})
		require.NoError(t, err)
		m := managed(t, newScheduler(2), 0)
		var all sync.WaitGroup
		var most atomic.Int64
		for range 50 {
			all.Go(func() {
				run := m.Run(t.Context(), planes(decoder, 1))
				<-run.Done()
				assert.Equal(t, rewards.Scored, run.Result.Outcome)
			})
		}
		all.Go(func() {
			for range 100 {
				time.Sleep(337 * time.Millisecond) // never when a second is over
				most.Store(max(most.Load(), decoder.Booked()))
			}
		})
		all.Wait()
		assert.EqualValues(t, 2*3*turnSide*turnSide, most.Load(), "of the two that are read")
		assert.Zero(t, decoder.Booked())
	})
}

func TestAReadersTurnsGoByWeightAndDecodingIsPartOfTheComponentsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		decoder, err := media.New(media.Config{})
		require.NoError(t, err)
		d := newScheduler(2)
		m := managed(t, d, 2*time.Second) // a wait is no part of it
		ctx, cancel := context.WithTimeout(t.Context(), 2000*time.Second)
		defer cancel()
		var all sync.WaitGroup
		for run, weight := range map[string]float64{"one": 1, "three": 3} {
			for range 20 {
				all.Go(func() {
					for ctx := rewards.WithTenant(ctx, rewards.Tenant{Run: run, Weight: weight}); ctx.Err() == nil; {
						r := m.Run(ctx, planes(decoder, 1))
						<-r.Done()
						assert.NotEqual(t, rewards.Failed, r.Result.Outcome, "%v", r.Result.Errors)
					}
				})
			}
		}
		all.Wait()
		assert.InEpsilon(t, 3, float64(d.read["three"])/float64(d.read["one"]), .05)
		assert.InDelta(t, 4000, d.read["three"]+d.read["one"], 10, "both executors were busy all the time")
		assert.Zero(t, d.open)
		assert.Zero(t, decoder.Booked())
	})
}

// TestVideosThatShareASmallBudgetAreAllRead has videos of which each wants as many executors
// as there are, and a budget for one of them.
func TestVideosThatShareASmallBudgetAreAllRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const frames = 12
		decoder, err := media.New(media.Config{BudgetBytes: frames * 3 * turnSide * turnSide})
		require.NoError(t, err)
		d := newScheduler(4)
		m := managed(t, d, 0)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				run := m.Run(t.Context(), planes(decoder, frames))
				<-run.Done()
				assert.Equal(t, rewards.Scored, run.Result.Outcome, "%v", run.Result.Errors)
			})
		}
		all.Wait()
		assert.Zero(t, d.open)
		assert.Zero(t, decoder.Booked())
	})
}

func TestAFrameThatFailsOrIsLeftGivesEverythingBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		decoder, err := media.New(media.Config{})
		require.NoError(t, err)
		d := newScheduler(2)
		d.fail = true
		m := managed(t, d, 0)
		var all sync.WaitGroup
		for i := range 30 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*300*time.Millisecond)
				defer cancel()
				run := m.Run(ctx, planes(decoder, 1+i%4*8))
				<-run.Done()
				assert.NotEqual(t, rewards.Scored, run.Result.Outcome)
			})
		}
		all.Wait()
		assert.Zero(t, d.open)
		assert.Zero(t, d.gate.Waiting())
		assert.Zero(t, decoder.Booked())
	})
}
