package media_test

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
)

// pixels is a video whose every frame differs: a gradient with some noise.
func pixels(w, h, frames int) *rewards.Pixels {
	p := &rewards.Pixels{Width: w, Height: h, Count: frames, RGB: make([]byte, w*h*frames*3)}
	noise := uint32(1)
	for i := range p.RGB {
		noise = noise*1664525 + 1013904223
		at := i / 3
		p.RGB[i] = byte(at%w*200/w + at/w%h*40/h + int(noise>>29) + i%3*4 + at/(w*h)) // below 256
	}
	return p
}

func TestAPNGHoldsExactlyThePixelsOfItsFrame(t *testing.T) {
	t.Parallel()
	d := decoder(t, media.Config{})
	for _, size := range [][2]int{{1, 1}, {7, 5}, {64, 48}, {333, 1}} {
		p := pixels(size[0], size[1], 3)
		for frame := range p.Count {
			file, err := media.EncodePNG(p, frame)
			require.NoError(t, err)
			got, err := d.Decode(t.Context(), encoded(rewards.PNG, file))
			require.NoError(t, err)
			require.Equal(t, p.Frame(frame), got.RGB, "%v frame %d", size, frame)
			require.Equal(t, size[0], got.Width)
			require.Equal(t, size[1], got.Height)
		}
	}
}

func TestAPNGIsEightBitTrueColourWithoutAlpha(t *testing.T) {
	t.Parallel()
	file, err := media.EncodePNG(pixels(16, 9, 1), 0)
	require.NoError(t, err)
	header := file[8+4 : 8+4+4+13] // After the signature and the length: "IHDR" and its fields.
	require.Equal(t, "IHDR", string(header[:4]))
	require.EqualValues(t, 16, binary.BigEndian.Uint32(header[4:]))
	require.EqualValues(t, 9, binary.BigEndian.Uint32(header[8:]))
	require.Equal(t, []byte{8, 2}, header[12:14], "8 bits, colour type 2: RGB")
}

func TestAJPEGIsTheOneThatTheStandardLibraryWritesOfTheFrame(t *testing.T) {
	t.Parallel()
	p := pixels(33, 17, 2)
	for _, quality := range []int{1, 75, 100} {
		want := image.NewRGBA(image.Rect(0, 0, p.Width, p.Height))
		frame := p.Frame(1)
		for i := range p.Width * p.Height {
			want.Set(i%p.Width, i/p.Width, color.RGBA{frame[3*i], frame[3*i+1], frame[3*i+2], 255})
		}
		var b bytes.Buffer
		require.NoError(t, jpeg.Encode(&b, want, &jpeg.Options{Quality: quality}))
		got, err := media.EncodeJPEG(p, 1, quality)
		require.NoError(t, err)
		require.Equal(t, b.Bytes(), got)
	}
}

func TestAFrameThatIsNotThereCannotBeEncoded(t *testing.T) {
	t.Parallel()
	short := pixels(4, 4, 1)
	short.RGB = short.RGB[:47]
	for name, c := range map[string]struct {
		p     *rewards.Pixels
		frame int
		want  string
	}{
		"negative":  {pixels(2, 2, 1), -1, "frame -1 of a picture of 1 frames"},
		"too high":  {pixels(2, 2, 3), 3, "frame 3 of a picture of 3 frames"},
		"no frames": {&rewards.Pixels{}, 0, "frame 0 of a picture of 0 frames"},
		"no pixels": {&rewards.Pixels{Count: 1}, 0, "0 bytes of RGB for 1 frames of 0×0"},
		"too short": {short, 0, "47 bytes of RGB for 1 frames of 4×4"},
	} {
		_, err := media.EncodePNG(c.p, c.frame)
		require.ErrorIs(t, err, rewards.BadInput, name)
		require.ErrorContains(t, err, c.want, name)
		_, err = media.EncodeJPEG(c.p, c.frame, 75)
		require.ErrorIs(t, err, rewards.BadInput, name)
		require.ErrorContains(t, err, c.want, name)
	}
}

func TestAJPEGRefusesWhatItCannotHold(t *testing.T) {
	t.Parallel()
	for _, quality := range []int{-1, 0, 101} {
		_, err := media.EncodeJPEG(pixels(2, 2, 1), 0, quality)
		require.ErrorIs(t, err, rewards.Internal)
	}
	_, err := media.EncodeJPEG(pixels(65_536, 1, 1), 0, 75)
	require.ErrorIs(t, err, rewards.BadInput)
}

// Buffers go from picture to picture and from size to size: what one call
// returned must not change under the next.
func TestEncodedPicturesDoNotShareTheirBytes(t *testing.T) {
	t.Parallel()
	for worker := range 4 {
		t.Run(strconv.Itoa(worker), func(t *testing.T) {
			t.Parallel()
			p := pixels(20+7*worker, 30-5*worker, 2)
			first, err := media.EncodePNG(p, 0)
			require.NoError(t, err)
			kept := bytes.Clone(first)
			for range 20 {
				second, err := media.EncodePNG(p, 1)
				require.NoError(t, err)
				_, err = media.EncodeJPEG(p, 1, 90)
				require.NoError(t, err)
				img, err := png.Decode(bytes.NewReader(second))
				require.NoError(t, err)
				require.Equal(t, p.Frame(1), media.ToRGB(img).RGB)
			}
			require.Equal(t, kept, first)
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	p := pixels(512, 512, 1)
	for name, encode := range map[string]func() ([]byte, error){
		"png":     func() ([]byte, error) { return media.EncodePNG(p, 0) },
		"jpeg 75": func() ([]byte, error) { return media.EncodeJPEG(p, 0, 75) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			size := 0
			for b.Loop() {
				file, err := encode()
				if err != nil {
					b.Fatal(err)
				}
				size = len(file)
			}
			b.ReportMetric(float64(size)/1000, "kB")
		})
	}
}
