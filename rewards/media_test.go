package rewards_test

import (
	"context"
	"errors"
	"image/color"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

// decoder takes a second for each decoding and notes how many it began.
type decoder struct {
	calls atomic.Int32
	err   error // of every decoding that is not cut short
}

func (d *decoder) Decode(ctx context.Context, _ *rewards.Media) (*rewards.Pixels, error) {
	d.calls.Add(1)
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if d.err != nil {
		return nil, d.err
	}
	return &rewards.Pixels{Width: 1, Height: 1, Count: 1, RGB: []byte{1, 2, 3}}, nil
}

func decoded(d rewards.Decoder) *rewards.Media {
	m := &rewards.Media{Kind: rewards.Image}
	m.SetDecoder(d)
	return m
}

func TestAMediaIsDecodedOnceForAllComponents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d decoder
		m := decoded(&d)
		start := time.Now()
		got := make([]*rewards.Pixels, 8)
		var wg sync.WaitGroup
		for i := range got {
			wg.Go(func() {
				px, err := m.Pixels(t.Context())
				assert.NoError(t, err)
				got[i] = px
			})
		}
		wg.Wait()
		assert.Equal(t, time.Second, time.Since(start))
		assert.EqualValues(t, 1, d.calls.Load())
		for _, px := range got {
			assert.Same(t, got[0], px)
		}
	})
}

func TestADecodingCutShortByItsCallerIsDoneAgainForTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d decoder
		m := decoded(&d)
		hurried, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := m.Pixels(hurried)
			assert.ErrorIs(t, err, context.DeadlineExceeded) //nolint:testifylint // require must not stop a goroutine
			assert.Equal(t, 300*time.Millisecond, time.Since(start))
		})
		synctest.Wait() // it is decoding
		px, err := m.Pixels(t.Context())
		require.NoError(t, err)
		assert.NotNil(t, px)
		assert.Equal(t, 1300*time.Millisecond, time.Since(start))
		assert.EqualValues(t, 2, d.calls.Load())
		wg.Wait()
	})
}

func TestACallerWhoseContextEndsDoesNotWaitForAnothersDecoding(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d decoder
		m := decoded(&d)
		var wg sync.WaitGroup
		wg.Go(func() {
			px, err := m.Pixels(t.Context())
			assert.NoError(t, err) //nolint:testifylint // require must not stop a goroutine
			assert.NotNil(t, px)
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := m.Pixels(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, rewards.Timeout, rewards.ClassOf(err))
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
		wg.Wait()
		assert.EqualValues(t, 1, d.calls.Load(), "the other's went on")
	})
}

func TestADecodersErrorIsRememberedForAllComponents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := decoder{err: rewards.BadInput}
		m := decoded(&d)
		for range 3 {
			px, err := m.Pixels(t.Context())
			require.ErrorIs(t, err, rewards.BadInput)
			assert.Nil(t, px)
		}
		assert.EqualValues(t, 1, d.calls.Load())
	})
}

// panicking panics in its first decoding only.
type panicking struct{ calls int }

func (p *panicking) Decode(context.Context, *rewards.Media) (*rewards.Pixels, error) {
	p.calls++
	if p.calls == 1 {
		panic("hostile picture")
	}
	return &rewards.Pixels{}, nil
}

func TestADecoderThatPanicsLocksNobodyOut(t *testing.T) {
	t.Parallel()
	m := decoded(&panicking{})
	assert.Panics(t, func() { _, _ = m.Pixels(t.Context()) })
	_, err := m.Pixels(t.Context())
	assert.NoError(t, err)
}

func TestPixelsWithoutADecoderSaySo(t *testing.T) {
	t.Parallel()
	var never rewards.Media
	for _, m := range []*rewards.Media{&never, decoded(nil)} {
		_, err := m.Pixels(t.Context())
		require.ErrorIs(t, err, rewards.ErrNoDecoder)
		assert.Equal(t, rewards.Internal, rewards.ClassOf(err))
	}
}

func TestFramesAndImagesAreCutFromTheTightRGB(t *testing.T) {
	t.Parallel()
	// Two frames of 2×1 pixels.
	p := &rewards.Pixels{Width: 2, Height: 1, Count: 2, RGB: []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}
	assert.Equal(t, []byte{7, 8, 9, 10, 11, 12}, p.Frame(1))
	assert.Equal(t, 6, cap(p.Frame(0)), "an append cannot reach into the next frame")
	img := p.Image(1)
	assert.Equal(t, color.NRGBA{10, 11, 12, 255}, img.NRGBAAt(1, 0))
	assert.True(t, img.Opaque())
	img.Pix[0] = 99
	assert.Equal(t, byte(7), p.RGB[6], "an image is a copy")
	assert.Panics(t, func() { p.Frame(2) })
}

func TestTheFirstVisualMediaIsTheOneScored(t *testing.T) {
	t.Parallel()
	video := &rewards.Media{Kind: rewards.Video}
	s := rewards.Sample{ID: "x", Media: []*rewards.Media{{Kind: rewards.Latent}, {Kind: rewards.Audio}, video, {Kind: rewards.Image}}}
	m, err := s.Visual()
	require.NoError(t, err)
	assert.Same(t, video, m)
	for _, media := range [][]*rewards.Media{nil, {{Kind: rewards.Audio}}} {
		s.Media = media
		_, err = s.Visual()
		require.ErrorIs(t, err, rewards.BadInput)
		assert.ErrorContains(t, err, `"x"`)
	}
}

func TestTheTruthIsAJSONString(t *testing.T) {
	t.Parallel()
	texts := map[string]string{`"yes"`: "yes", `""`: "", `"a\"bü\n"`: "a\"bü\n", " \n\t\"spaced\" ": "spaced"}
	for raw, want := range texts {
		got, ok := (&rewards.Sample{GroundTruth: []byte(raw)}).Truth()
		assert.True(t, ok, raw)
		assert.Equal(t, want, got)
	}
	for _, raw := range []string{"", " ", "null", "3", `["a"]`, `{"a":"b"}`, `"open`, `"a" "b"`} {
		got, ok := (&rewards.Sample{GroundTruth: []byte(raw)}).Truth()
		assert.False(t, ok, raw)
		assert.Empty(t, got)
	}
}

func TestAGroupHasANameAndTwoMembers(t *testing.T) {
	t.Parallel()
	assert.True(t, (&rewards.Sample{UID: "u", GroupSize: 2}).HasGroup())
	assert.False(t, (&rewards.Sample{UID: "u", GroupSize: 1}).HasGroup())
	assert.False(t, (&rewards.Sample{UID: "u"}).HasGroup())
	assert.False(t, (&rewards.Sample{GroupSize: 2}).HasGroup())
}

func TestTheClassOfAnErrorIsTheOneItWraps(t *testing.T) {
	t.Parallel()
	wrapped := func(err error) error { return errors.Join(errors.New("more"), err) }
	tests := map[rewards.Class]error{
		"":                  nil,
		rewards.BadInput:    wrapped(rewards.BadInput),
		rewards.Timeout:     wrapped(context.DeadlineExceeded),
		rewards.Cancelled:   wrapped(context.Canceled),
		rewards.Internal:    errBroken,
		rewards.Unavailable: errors.Join(rewards.Unavailable, context.DeadlineExceeded),
	}
	for want, err := range tests {
		assert.Equal(t, want, rewards.ClassOf(err), "%v", err)
	}
	require.EqualError(t, rewards.Crashed, "crashed")
	require.EqualError(t, rewards.Skip("no video"), "skipped: no video")
}

// executor computes one thing at a time.
type executor chan struct{}

func (x executor) Yield(context.Context) error { return nil }

func (x executor) Pause() func(context.Context) error {
	<-x
	return x.begin
}

func (x executor) begin(ctx context.Context) error {
	select {
	case x <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waiting decodes as those do that wait for memory: without the executor.
type waiting struct{ decoder }

func (w *waiting) Decode(ctx context.Context, m *rewards.Media) (px *rewards.Pixels, err error) {
	ended := rewards.Aside(ctx, func() { px, err = w.decoder.Decode(ctx, m) })
	return px, errors.Join(err, ended)
}

func TestPixelsAreGivenBackAlthoughTheNextReaderWaitsForTheSameExecutor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x, m, start := make(executor, 1), decoded(new(waiting)), time.Now()
		ctx, cancel := context.WithTimeout(rewards.WithTurn(t.Context(), x), time.Minute)
		defer cancel()
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if !assert.NoError(t, x.begin(ctx)) { //nolint:testifylint // require must not stop a goroutine
					return
				}
				defer func() { <-x }()
				_, giveBack, err := m.Borrow(ctx)
				if assert.NoError(t, err) {
					giveBack()
				}
			})
		}
		both.Wait()
		assert.Equal(t, time.Second, time.Since(start))
	})
}

// cabinet keeps what is parked, and drops every third.
type cabinet struct{ parked, dropped int }

func (c *cabinet) Park(*rewards.Pixels) { c.parked++ }
func (c *cabinet) Release()             {}

func (c *cabinet) Take() *rewards.Pixels {
	if c.dropped++; c.dropped%3 == 0 {
		return nil
	}
	return &rewards.Pixels{Width: 1, Keeper: c}
}

// kept decodes into pixels that a cabinet keeps, and panics at first.
type kept struct {
	cabinet cabinet
	calls   atomic.Int32
}

func (k *kept) Decode(context.Context, *rewards.Media) (*rewards.Pixels, error) {
	if k.calls.Add(1) == 1 {
		panic("no such format")
	}
	return &rewards.Pixels{Width: 1, Keeper: &k.cabinet}, nil
}

func TestWhoBorrowsHasPixelsWhileOthersGiveThemBack(t *testing.T) {
	t.Parallel()
	d := new(kept)
	m := decoded(d)
	require.Panics(t, func() { _, _, _ = m.Borrow(t.Context()) })
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 2000 {
				px, giveBack, err := m.Borrow(t.Context())
				if !assert.NoError(t, err) || !assert.NotNil(t, px) { //nolint:testifylint // require must not stop a goroutine
					return
				}
				giveBack()
			}
		})
	}
	all.Wait()
	assert.Greater(t, d.calls.Load(), int32(1))
}
