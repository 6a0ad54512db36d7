package media_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
)

// tensor is a raw video in which every element tells where it is.
func tensor(layout rewards.Layout, frames, channels, height, width int) *rewards.Media {
	sizes := map[byte]int{'T': frames, 'C': channels, 'H': height, 'W': width}
	m := &rewards.Media{Kind: rewards.Video, Encoding: rewards.Raw, DType: "U8", Layout: layout}
	n := 1
	for i := range len(layout) {
		m.Shape = append(m.Shape, sizes[layout[i]])
		n *= sizes[layout[i]]
	}
	for flat := range n {
		at := map[byte]int{}
		for i, rest := len(layout)-1, flat; i >= 0; i-- {
			at[layout[i]] = rest % m.Shape[i]
			rest /= m.Shape[i]
		}
		m.Data = append(m.Data, element(at['T'], at['C'], at['H'], at['W']))
	}
	return m
}

func element(t, c, y, x int) byte { return byte(t*101 + c*53 + y*11 + x*3) }

func TestDecoderReadsEveryRawLayout(t *testing.T) {
	t.Parallel()
	d := decoder(t, media.Config{})
	for _, layout := range []rewards.Layout{rewards.HWC, rewards.CHW, rewards.THWC, rewards.TCHW, rewards.CTHW} {
		for _, channels := range []int{1, 3, 4} {
			for _, size := range [][2]int{{5, 7}, {1, 1}, {1, 4}, {4, 1}} {
				t.Run(fmt.Sprintf("%s %d %v", layout, channels, size), func(t *testing.T) {
					t.Parallel()
					frames := 1
					if strings.Contains(string(layout), "T") {
						frames = 3
					}
					p, err := d.Decode(t.Context(), tensor(layout, frames, channels, size[0], size[1]))
					require.NoError(t, err)
					require.Equal(t, []int{frames, size[0], size[1]}, []int{p.Count, p.Height, p.Width})
					var want []byte
					for f := range frames {
						for y := range size[0] {
							for x := range size[1] {
								for c := range 3 {
									want = append(want, element(f, min(c, channels-1), y, x))
								}
							}
						}
					}
					assert.Equal(t, want, p.RGB)
				})
			}
		}
	}
}

func TestDecoderDoesNotCopyRGBThatIsTightAlready(t *testing.T) {
	t.Parallel()
	d := decoder(t, media.Config{})
	for _, layout := range []rewards.Layout{rewards.HWC, rewards.THWC} {
		m := tensor(layout, 1, 3, 4, 5)
		p, err := d.Decode(t.Context(), m)
		require.NoError(t, err)
		assert.Same(t, &m.Data[0], &p.RGB[0])
	}
}

func TestDecoderReadsAVideoOfEncodedFrames(t *testing.T) {
	t.Parallel()
	d := decoder(t, media.Config{})
	names := []string{"png_rgb", "webp_lossless", "png_palette"}
	m := &rewards.Media{Kind: rewards.Video, Encoding: rewards.Frames}
	var want []byte
	for _, n := range names {
		ext := ".png"
		if n == "webp_lossless" {
			ext = ".webp"
		}
		m.Frames = append(m.Frames, read(t, "testdata/pil/"+n+ext))
		want = append(want, read(t, "testdata/pil/"+n+".rgb")...)
	}
	p, err := d.Decode(t.Context(), m)
	require.NoError(t, err)
	assert.Equal(t, 3, p.Count)
	assert.Equal(t, want, p.RGB)
}

func BenchmarkDecode(b *testing.B) {
	d := decoder(b, media.Config{})
	picture := pngOf(b, 512, 512)
	for name, m := range map[string]*rewards.Media{
		"HWC": tensor(rewards.HWC, 1, 3, 512, 512),
		"CHW": tensor(rewards.CHW, 1, 3, 512, 512),
		"PNG": encoded(rewards.PNG, picture),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(512 * 512 * 3)
			b.ReportAllocs()
			for b.Loop() {
				p, err := d.Decode(b.Context(), m)
				if err != nil {
					b.Fatal(err)
				}
				free(p)
			}
		})
	}
}
