package media_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
)

// A raw picture of planes of side×side takes side²·3 bytes decoded and nothing beside.
const side = 100

const onePicture = side * side * 3

func planes(d rewards.Decoder) *rewards.Media {
	m := &rewards.Media{
		Kind: rewards.Image, Encoding: rewards.Raw, DType: "U8", Layout: rewards.CHW, Shape: []int{3, side, side}, Data: make([]byte, onePicture),
	}
	m.SetDecoder(d)
	return m
}

// counting counts decodings.
type counting struct {
	*media.Decoder

	n atomic.Int64
}

func (c *counting) Decode(ctx context.Context, m *rewards.Media) (*rewards.Pixels, error) {
	c.n.Add(1)
	return c.Decoder.Decode(ctx, m)
}

// scored runs components on a sample of so many pictures.
func scored(t *testing.T, ctx context.Context, d rewards.Decoder, pictures int, components ...rewards.ScorerFunc) *rewards.Run {
	t.Helper()
	cfg := rewards.ManagerConfig{}
	for i, c := range components {
		cfg.Components = append(cfg.Components, rewards.Component{Key: fmt.Sprint("k", i), Weight: 1, Required: true, Scorer: c})
	}
	m, err := rewards.NewManager(cfg)
	require.NoError(t, err)
	s := &rewards.Sample{ID: "s"}
	for range pictures {
		s.Media = append(s.Media, planes(d))
	}
	return m.Run(ctx, s)
}

func TestPixelsAreBookedUntilTheComponentThatReadsThemReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := decoder(t, media.Config{})
		ctx, leave := context.WithCancel(t.Context())
		goOn := make(chan struct{})
		var run *rewards.Run
		var all sync.WaitGroup
		all.Go(func() {
			run = scored(t, ctx, d, 1, func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
				for range 3 { // again costs nothing
					if _, err := s.Media[0].Pixels(ctx); err != nil {
						return rewards.Score{}, err
					}
				}
				<-goOn // it ignores its context
				return rewards.Score{}, nil
			})
		})
		synctest.Wait()
		assert.EqualValues(t, onePicture, d.Booked())
		leave()
		all.Wait()
		assert.Equal(t, rewards.OutcomeCancelled, run.Result.Outcome)
		synctest.Wait()
		assert.EqualValues(t, onePicture, d.Booked(), "the scorer is abandoned, and still reads")
		close(goOn)
		<-run.Done()
		assert.Zero(t, d.Booked())
	})
}

func TestAPictureIsDecodedOnceForComponentsThatReadItOneAfterTheOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &counting{Decoder: decoder(t, media.Config{})}
		after := func(wait time.Duration) rewards.ScorerFunc {
			return func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
				time.Sleep(wait)
				_, err := s.Media[0].Pixels(ctx)
				return rewards.Score{}, err
			}
		}
		run := scored(t, t.Context(), d, 1, after(0), after(time.Second), after(time.Minute))
		<-run.Done()
		assert.Equal(t, rewards.Scored, run.Result.Outcome)
		assert.EqualValues(t, 1, d.n.Load())
		assert.Zero(t, d.Booked())
	})
}

func TestPixelsThatNobodyReadsMakeWayForOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &counting{Decoder: decoder(t, media.Config{BudgetBytes: 2 * onePicture})}
		waits := make([]*rewards.Run, 3) // each has read its picture, and would like to once more
		goOn := make(chan struct{})
		var all sync.WaitGroup
		for i := range waits {
			all.Go(func() {
				waits[i] = scored(t, t.Context(), d, 1, func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
					for range 2 {
						px, giveBack, err := s.Media[0].Borrow(ctx)
						if err != nil {
							return rewards.Score{}, err
						}
						assert.Len(t, px.RGB, onePicture)
						giveBack()
						giveBack()
						<-goOn
					}
					return rewards.Score{}, nil
				})
			})
		}
		synctest.Wait()
		assert.EqualValues(t, 3, d.n.Load())
		assert.EqualValues(t, 2*onePicture, d.Booked())
		close(goOn)
		all.Wait()
		for _, run := range waits {
			<-run.Done()
			assert.Equal(t, rewards.Scored, run.Result.Outcome)
		}
		assert.GreaterOrEqual(t, d.n.Load(), int64(4), "one at least was decoded again")
		assert.Zero(t, d.Booked())
	})
}

func TestComponentsThatReadSeveralPicturesAtOnceDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const together = 3
		d := decoder(t, media.Config{BudgetBytes: together * onePicture})
		var most atomic.Int64
		reads := func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) { //nolint:unparam // a ScorerFunc
			for _, m := range s.Media {
				if _, err := m.Pixels(ctx); err != nil {
					return rewards.Score{}, err
				}
				most.Store(max(most.Load(), d.Booked()))
				time.Sleep(time.Second) // the others have begun as well
			}
			return rewards.Score{}, nil
		}
		start := time.Now()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				run := scored(t, t.Context(), d, together, reads)
				<-run.Done()
				assert.Equal(t, rewards.Scored, run.Result.Outcome, "%v", run.Result.Errors)
			})
		}
		all.Wait()
		assert.LessOrEqual(t, time.Since(start), 30*time.Second, "one after the other at worst")
		assert.LessOrEqual(t, most.Load(), int64(2*together*onePicture))
		assert.Zero(t, d.Booked())
	})
}

func TestPicturesThatAreReadTogetherHaveTheWholeBudgetAtMost(t *testing.T) {
	t.Parallel()
	d := decoder(t, media.Config{BudgetBytes: 3 * onePicture})
	run := scored(t, t.Context(), d, 7, func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
		for _, m := range s.Media {
			if _, err := m.Pixels(ctx); err != nil {
				return rewards.Score{}, err
			}
		}
		return rewards.Score{}, nil
	})
	<-run.Done()
	require.Len(t, run.Result.Errors, 1)
	assert.Equal(t, rewards.BadInput, run.Result.Errors[0].Class)
	assert.Contains(t, run.Result.Errors[0].Message, "more than the budget of 90000 bytes")
	assert.Zero(t, d.Booked())
}

func TestTenantsTakeTurnsAtTheBudgetByWeight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := decoder(t, media.Config{BudgetBytes: onePicture})
		ctx, leave := context.WithTimeout(t.Context(), 10*time.Minute)
		defer leave()
		var all sync.WaitGroup
		flood := func(run string, weight float64, callers int) *atomic.Int64 {
			var n atomic.Int64
			for range callers {
				all.Go(func() {
					for ctx := rewards.WithTenant(ctx, rewards.Tenant{Run: run, Weight: weight}); ctx.Err() == nil; {
						<-scored(t, ctx, d, 1, func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
							if _, err := s.Media[0].Pixels(ctx); err != nil {
								return rewards.Score{}, err
							}
							n.Add(1)
							time.Sleep(time.Second)
							return rewards.Score{}, nil
						}).Done()
					}
				})
			}
			return &n
		}
		one, three := flood("one", 1, 40), flood("three", 3, 5)
		all.Wait()
		assert.InEpsilon(t, 3, float64(three.Load())/float64(one.Load()), .05)
		assert.Zero(t, d.Booked())
	})
}

// TestTheBudgetIsKeptAndGivenBackWhateverHappens lets components that read, wait, leave and fail
// share a small budget.
func TestTheBudgetIsKeptAndGivenBackWhateverHappens(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			const total = 4 * onePicture
			d := decoder(t, media.Config{BudgetBytes: total})
			var all sync.WaitGroup
			for i := range 60 {
				all.Go(func() {
					r := rand.New(rand.NewPCG(seed, uint64(i)))
					ctx := rewards.WithTenant(t.Context(), rewards.Tenant{Run: fmt.Sprint(i % 3)})
					if r.IntN(3) == 0 {
						var leave context.CancelFunc
						ctx, leave = context.WithTimeout(ctx, time.Duration(r.IntN(3000))*time.Millisecond)
						defer leave()
					}
					reads := func(seed uint64) rewards.ScorerFunc {
						return func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
							r := rand.New(rand.NewPCG(seed, uint64(i)))
							for range 1 + r.IntN(5) {
								m := s.Media[r.IntN(len(s.Media))]
								px, giveBack, err := m.Borrow(ctx)
								if err != nil {
									return rewards.Score{}, err
								}
								if r.IntN(2) == 0 {
									_, err = m.Pixels(ctx)
								}
								time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
								assert.Len(t, px.RGB, onePicture)
								assert.LessOrEqual(t, d.Booked(), int64(2*total))
								giveBack()
								if err != nil {
									return rewards.Score{}, err
								}
								if r.IntN(9) == 0 {
									panic("out of order")
								}
							}
							return rewards.Score{}, nil
						}
					}
					<-scored(t, ctx, d, 1+r.IntN(4), reads(seed+1), reads(seed+2), reads(seed+3)).Done()
				})
			}
			all.Wait()
			assert.Zero(t, d.Booked(), "seed %d", seed)
		})
	}
}
