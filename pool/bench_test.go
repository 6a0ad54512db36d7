package pool_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool"
)

// instant is a runner that costs nothing: what is measured is the pool.
type instant struct{ slots int }

func (i instant) Open(context.Context, string) (pool.Runner, error) { return i, nil }
func (i instant) Slots() int                                        { return i.slots }
func (i instant) Close(context.Context) error                       { return nil }
func (i instant) Restart(context.Context) error                     { return nil }
func (i instant) Unload(context.Context, infer.Model) error         { return nil }

func (i instant) Load(context.Context, infer.Model) (infer.Info, error) { return infer.Info{}, nil }

func (i instant) Run(_ context.Context, _ infer.Model, b infer.Batch) ([]infer.Tensor, error) {
	return []infer.Tensor{infer.Floats("y", make([]float32, len(b.Names)), len(b.Names))}, nil
}

// BenchmarkInferOverhead is what the pool adds to an item, with 1 to 64 callers.
func BenchmarkInferOverhead(b *testing.B) {
	for _, callers := range []int{1, 2, 64} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			p, err := pool.New(pool.Config{}, instant{slots: 2})
			require.NoError(b, err)
			defer func() { require.NoError(b, p.Close(context.Background())) }()
			m, err := p.Model(ocr, pool.ModelOptions{})
			require.NoError(b, err)
			_, err = m.Info(b.Context())
			require.NoError(b, err)
			ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
			defer cancel()
			req := number(1, 3, 48, 320) // 184 KB, as a line of text for a recogniser
			b.ReportAllocs()
			b.ResetTimer()
			var all sync.WaitGroup
			for c := range callers {
				all.Go(func() {
					for range b.N/callers + min(1, max(0, b.N%callers-c)) {
						if _, err := m.Infer(ctx, req); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
		})
	}
}

// BenchmarkStats is a snapshot of a device with 100 batch queues.
func BenchmarkStats(b *testing.B) {
	p, err := pool.New(pool.Config{}, instant{slots: 2})
	require.NoError(b, err)
	defer func() { require.NoError(b, p.Close(context.Background())) }()
	m, err := p.Model(ocr, pool.ModelOptions{})
	require.NoError(b, err)
	for w := range 100 {
		_, err := m.Infer(b.Context(), number(1, 1+w))
		require.NoError(b, err)
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = p.Stats()
	}
}
