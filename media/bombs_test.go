package media_test

import (
	"context"
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/bombs"
	"github.com/rewardloop/rewardloop/testkit/race"
)

// allocated is what f allocates, in bytes.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// bombCase is what is sent, and what becomes of it.
type bombCase struct {
	data []byte
	want string // of its error; "": it has pixels
}

var bombCases = sync.OnceValue(func() map[string]bombCase {
	all := bombs.All(2048)
	return map[string]bombCase{
		"webp_groups":      {all["webp_groups"](), ""},
		"png16_interlaced": {all["png16_interlaced"](), ""},
		"jpeg_scans":       {all["jpeg_scans"](), ""},
		"jpeg_scans_large": {all["jpeg_scans_large"](), "64 scans of 4096×4096 pixels"},
		"png_65535":        {all["png_65535"](), "65535×65535"},
		"zlib_tail":        {all["zlib_tail"](), "too much pixel data"},
	}
})

//nolint:paralleltest // it measures what the process allocates
func TestABombTakesNoMoreThanWasBooked(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	for name, c := range bombCases() {
		t.Run(name, func(t *testing.T) {
			require.Less(t, len(c.data), 512<<10)
			m := frames(rewards.Image, c.data)
			d := decoder(t, media.Config{})
			var err error
			took := allocated(func() {
				var p *rewards.Pixels
				p, err = d.Decode(t.Context(), m)
				free(p)
			})
			t.Logf("%d bytes as a file, %d to decode", len(c.data), took)
			assert.Zero(t, d.Booked())
			if c.want != "" {
				require.ErrorIs(t, err, rewards.BadInput)
				require.ErrorContains(t, err, c.want)
				assert.Less(t, took, int64(2<<20))
				return
			}
			require.NoError(t, err)
			_, err = decoder(t, media.Config{BudgetBytes: took - 1}).Decode(t.Context(), m)
			require.ErrorIs(t, err, rewards.BadInput)
			require.ErrorContains(t, err, "the budget of")
		})
	}
}

// heapBytes is what the heap takes, with garbage that was not collected.
func heapBytes() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() + s[1].Value.Uint64())
}

// atATime is how many bombs are decoded at a time: 16. Under the race detector, with which each takes
// seconds, as many as are far beyond the budget: of 80 MiB, or of 190 MiB.
func atATime(name string) int {
	switch {
	case !race.Enabled:
		return 16
	case name == "webp_groups":
		return 3
	}
	return 6
}

//nolint:paralleltest // it measures the heap of the process
func TestBombsDecodedAtATimeStayWithinTheBudgetWithTheirGarbage(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	const budget = 250 << 20
	for name, c := range bombCases() {
		t.Run(name, func(t *testing.T) {
			runtime.GC()
			before := heapBytes()
			d := decoder(t, media.Config{BudgetBytes: budget})
			stop, watched := make(chan struct{}), make(chan int64)
			go func() {
				var most int64
				look := time.NewTicker(time.Millisecond)
				defer look.Stop()
				for {
					select {
					case <-look.C:
						most = max(most, heapBytes()-before)
					case <-stop:
						watched <- most
						return
					}
				}
			}()
			var all sync.WaitGroup
			for range atATime(name) {
				all.Go(func() {
					p, err := d.Decode(t.Context(), frames(rewards.Image, c.data))
					assert.Equal(t, c.want == "", err == nil, "%v", err)
					free(p)
				})
			}
			all.Wait()
			close(stop)
			most := <-watched
			t.Logf("%d MiB", most>>20)
			assert.Less(t, most, int64(budget+64<<20))
			assert.Zero(t, d.Booked())
		})
	}
}

func TestADecodingOfManyScansEndsWithItsContext(t *testing.T) {
	t.Parallel()
	d := decoder(t, media.Config{})
	picture := bombs.JPEGScans(64, 64)
	looks := &faulty{Context: t.Context(), at: 1 << 30}
	p, err := d.Decode(looks, encoded(rewards.JPEG, picture))
	require.NoError(t, err)
	free(p)
	assert.Greater(t, looks.calls, 64, "the context is looked at before each scan")
	_, err = d.Decode(&faulty{Context: t.Context(), at: looks.calls - 2}, encoded(rewards.JPEG, picture))
	require.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, d.Booked())
}

//nolint:paralleltest // it measures what the process allocates
func TestATransparentColorOfAGrayPNGIsBooked(t *testing.T) {
	for _, depth := range []byte{8, 16} {
		data := bombs.PNGTransparentGray(2048, depth)
		var took int64
		d := decoder(t, media.Config{})
		took = allocated(func() {
			p, err := d.Decode(t.Context(), encoded(rewards.PNG, data))
			require.NoError(t, err)
			free(p)
		})
		_, err := decoder(t, media.Config{BudgetBytes: took - 1}).Decode(t.Context(), encoded(rewards.PNG, data))
		require.ErrorContains(t, err, "the budget of", "%d bits", depth)
	}
}
