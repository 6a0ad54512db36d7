package media_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/jpeg"
	"image/png"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
)

// bomb is a PNG of 51 bytes that declares the given size.
func bomb(width, height uint32) []byte {
	chunk := func(name string, body []byte) []byte {
		out := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
		out = append(append(out, name...), body...)
		return binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[4:]))
	}
	head := binary.BigEndian.AppendUint32(nil, width)
	head = binary.BigEndian.AppendUint32(head, height)
	head = append(head, 8, 6, 0, 0, 0)
	out := append([]byte("\x89PNG\r\n\x1a\n"), chunk("IHDR", head)...)
	return append(out, chunk("IDAT", []byte{0x78, 0x9c, 0, 0, 0, 0})...)
}

func pngOf(tb testing.TB, width, height int) []byte {
	tb.Helper()
	var buf bytes.Buffer
	require.NoError(tb, png.Encode(&buf, image.NewNRGBA(image.Rect(0, 0, width, height))))
	return buf.Bytes()
}

// free gives back what pixels have booked.
func free(p *rewards.Pixels) {
	if p != nil && p.Keeper != nil {
		p.Keeper.Release()
	}
}

func frames(kind rewards.Kind, pictures ...[]byte) *rewards.Media {
	return &rewards.Media{Kind: kind, Encoding: rewards.Frames, Frames: pictures}
}

//nolint:paralleltest // it measures what the process allocates
func TestDecoderRefusesAHugePNGHeaderWithoutAllocating(t *testing.T) {
	d := decoder(t, media.Config{})
	data := bomb(65535, 65535)
	require.Len(t, data, 51)

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := d.Decode(t.Context(), encoded(rewards.PNG, data))
	runtime.ReadMemStats(&after)

	require.ErrorIs(t, err, rewards.BadInput)
	require.ErrorContains(t, err, "65535×65535")
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
	assert.Zero(t, d.Booked())
}

func TestDecoderNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	picture := pngOf(t, 8, 8)
	scans := append([]byte("\xff\xd8\xff\xe0\x00\x02"), bytes.Repeat([]byte("\xff\xda\x00\x02"), 100)...)
	riff := []byte("RIFF\x10\x00\x00\x00WEBPVP8 \xff\xff\xff\x07zz00")
	raw := func(layout rewards.Layout, n int, shape ...int) *rewards.Media {
		return &rewards.Media{Kind: rewards.Video, Encoding: rewards.Raw, DType: "U8", Layout: layout, Shape: shape, Data: make([]byte, n)}
	}
	for name, c := range map[string]struct {
		media *rewards.Media
		want  string
	}{
		"other format":         {encoded(rewards.JPEG, picture), "the bytes are a png picture, but the sample declares jpeg"},
		"no format":            {encoded(rewards.PNG, []byte("GIF89a")), "not a PNG, JPEG or WebP"},
		"empty":                {encoded(rewards.PNG, nil), "these 0 bytes"},
		"unknown encoding":     {encoded("avi", picture), `encoding "avi"`},
		"cut off":              {encoded(rewards.PNG, picture[:40]), "cannot be decoded"},
		"cut in the header":    {encoded(rewards.PNG, picture[:20]), "header"},
		"too many scans":       {encoded(rewards.JPEG, scans), "more than 64 scans"},
		"chunk beyond the end": {encoded(rewards.WebP, riff), "claims more bytes"},
		"zero size":            {encoded(rewards.PNG, bomb(0, 5)), "png"},
		"beyond the limit":     {encoded(rewards.PNG, pngOf(t, 101, 100)), "limit of 10000 pixels"},
		"audio":                {&rewards.Media{Kind: rewards.Audio, Encoding: rewards.Raw}, `kind "audio"`},
		"no frames":            {frames(rewards.Video), "without a frame"},
		"too many frames":      {frames(rewards.Video, make([][]byte, 6)...), "limit is 5"},
		"frames of two sizes":  {frames(rewards.Video, picture, pngOf(t, 8, 9)), "frame 1 of 2"},
		"a bad frame":          {frames(rewards.Video, picture, []byte("nonsense")), "frame 1 of 2"},
		"image of frames":      {frames(rewards.Image, picture, picture), "send it as a video"},
		"floats":               {&rewards.Media{Kind: rewards.Image, Encoding: rewards.Raw, DType: "F32", Layout: rewards.HWC}, `type "F32"`},
		"no layout":            {raw("", 12, 2, 2, 3), `layout ""`},
		"wrong rank":           {raw(rewards.THWC, 12, 2, 2, 3), "does not fit"},
		"two channels":         {raw(rewards.HWC, 8, 2, 2, 2), "2 channels"},
		"short data":           {raw(rewards.HWC, 11, 2, 2, 3), "needs 12 bytes, got 11"},
		"negative size":        {raw(rewards.HWC, 12, -2, -2, 3), "no pixels"},
		"overflowing size":     {raw(rewards.HWC, 0, 1<<62, 1<<62, 3), "limit of 10000"},
		"a million frames":     {raw(rewards.TCHW, 0, 1_000_000, 3, 1, 1), "1000000 frames"},
		"raw image of many":    {&rewards.Media{Kind: rewards.Image, Encoding: rewards.Raw, DType: "U8", Layout: rewards.THWC, Shape: []int{2, 1, 1, 3}, Data: make([]byte, 6)}, "send it as a video"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := decoder(t, media.Config{MaxPixels: 10_000, MaxFrames: 5})
			p, err := d.Decode(t.Context(), c.media)
			assert.Nil(t, p)
			require.ErrorIs(t, err, rewards.BadInput)
			require.ErrorContains(t, err, c.want)
			assert.Zero(t, d.Booked())
		})
	}
}

func TestDecoderRefusesAPictureThatNeedsMoreThanTheWholeBudget(t *testing.T) {
	t.Parallel()
	d := decoder(t, media.Config{BudgetBytes: 1 << 20})
	_, err := d.Decode(t.Context(), encoded(rewards.PNG, pngOf(t, 400, 400)))
	require.ErrorIs(t, err, rewards.BadInput)
	require.ErrorContains(t, err, "the budget of 1048576")
	_, err = d.Decode(t.Context(), encoded(rewards.PNG, pngOf(t, 40, 40)))
	require.NoError(t, err)
}

// faulty is a context that panics or ends at its n-th look.
type faulty struct {
	context.Context //nolint:containedctx // it is one

	at, calls int
	panics    bool
}

func (f *faulty) Err() error {
	if f.calls++; f.calls < f.at {
		return nil
	}
	if f.panics {
		panic("out of order")
	}
	return context.Canceled
}

func TestDecoderGivesItsBudgetBackHoweverDecodingEnds(t *testing.T) {
	t.Parallel()
	d := decoder(t, media.Config{})
	picture := pngOf(t, 64, 64)
	for at := 1; at < 5; at++ {
		_, err := d.Decode(&faulty{Context: t.Context(), at: at, panics: true}, encoded(rewards.PNG, picture))
		require.ErrorIs(t, err, rewards.BadInput)
		require.ErrorContains(t, err, "out of order")
		assert.Zero(t, d.Booked())

		_, err = d.Decode(&faulty{Context: t.Context(), at: at}, encoded(rewards.PNG, picture))
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, rewards.Cancelled, rewards.ClassOf(err))
		assert.Zero(t, d.Booked())
	}
}

func TestDecoderKeepsItsBudgetUnderMixedLoad(t *testing.T) {
	t.Parallel()
	d := decoder(t, media.Config{BudgetBytes: 700 << 10})
	good, cut := pngOf(t, 64, 64), pngOf(t, 64, 64)[:80]
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%7 == 0 {
				cancel()
			}
			data := good
			if i%3 == 0 {
				data = cut
			}
			p, _ := d.Decode(ctx, encoded(rewards.PNG, data)) // some fail, by intent
			free(p)
		})
	}
	wg.Wait()
	assert.Zero(t, d.Booked())
}

func TestWaitingForTheBudgetEndsWithTheCallersDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := decoder(t, media.Config{BudgetBytes: 400 << 10})
		holding, release := make(chan struct{}), make(chan struct{})
		ctx := &gate{Context: t.Context(), at: 4, holding: holding, release: release}
		var wg sync.WaitGroup
		wg.Go(func() {
			p, err := d.Decode(ctx, encoded(rewards.PNG, pngOf(t, 64, 64)))
			assert.NoError(t, err) //nolint:testifylint // require must not stop a goroutine
			free(p)
		})
		<-holding // one decoding has the budget and stays in the middle of it

		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := d.Decode(short, encoded(rewards.PNG, pngOf(t, 64, 64)))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, rewards.Timeout, rewards.ClassOf(err))

		wg.Go(func() { // and one that waits longer gets its turn
			p, err := d.Decode(t.Context(), encoded(rewards.PNG, pngOf(t, 64, 64)))
			assert.NoError(t, err) //nolint:testifylint // require must not stop a goroutine
			free(p)
		})
		synctest.Wait()
		close(release)
		wg.Wait()
		assert.Zero(t, d.Booked())
	})
}

// gate is a context that stops whoever looks at it for the n-th time.
type gate struct {
	context.Context //nolint:containedctx // it is one

	at, calls        int
	holding, release chan struct{}
}

func (g *gate) Err() error {
	if g.calls++; g.calls == g.at {
		close(g.holding)
		<-g.release
	}
	return nil
}

func TestDecoderAcceptsTheScansOfARealProgressiveJPEG(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	require.NoError(t, jpeg.Encode(&buf, image.NewNRGBA(image.Rect(0, 0, 64, 64)), nil))
	d := decoder(t, media.Config{})
	_, err := d.Decode(t.Context(), encoded(rewards.JPEG, buf.Bytes()))
	require.NoError(t, err)
	_, err = d.Decode(t.Context(), encoded(rewards.JPEG, read(t, "testdata/pil/jpeg_progressive.jpg")))
	require.NoError(t, err)
}

//nolint:paralleltest // it measures what the process allocates
func TestNoDecodingAllocatesMoreThanItTakesFromTheBudget(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	const side = 2048
	photo := image.NewNRGBA(image.Rect(0, 0, side, side))
	for i := range photo.Pix {
		photo.Pix[i] = byte(i % 251)
	}
	var asJPEG, asPNG bytes.Buffer
	require.NoError(t, jpeg.Encode(&asJPEG, photo, nil))
	require.NoError(t, png.Encode(&asPNG, photo))
	// Adobe's marker says that the three components are red, green and blue.
	adobe := []byte("\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x00")
	rgb := append(append([]byte("\xff\xd8"), adobe...), asJPEG.Bytes()[2:]...)
	for name, m := range map[string]*rewards.Media{
		"jpeg": encoded(rewards.JPEG, asJPEG.Bytes()), "jpeg of RGB": encoded(rewards.JPEG, rgb), "png": encoded(rewards.PNG, asPNG.Bytes()),
	} {
		t.Run(name, func(t *testing.T) {
			d := decoder(t, media.Config{})
			var err error
			took := allocated(func() { _, err = d.Decode(t.Context(), m) })
			require.NoError(t, err)
			_, err = decoder(t, media.Config{BudgetBytes: took - 1}).Decode(t.Context(), m)
			require.ErrorContains(t, err, "the budget of", "it took %d bytes", took)
		})
	}
}
