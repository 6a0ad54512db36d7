package imageproc

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// noise is a picture that is hard on every filter, the same each time.
func noise(w, h int) *Picture {
	r := rand.New(rand.NewPCG(1, 2))
	p := &Picture{Width: w, Height: h, RGB: make([]byte, w*h*3)}
	for i := range p.RGB {
		p.RGB[i] = byte(r.Uint32())
	}
	return p
}

// plain is the two passes of PIL written down as simply as can be.
func plain(src *Picture, w, h int, f Filter) *Picture {
	pass := func(src *Picture, n, step, lines, line int, list []span) *Picture {
		out := &Picture{RGB: make([]byte, n*lines*3)}
		for l := range lines {
			for i, s := range list {
				for c := range 3 {
					sum := int32(half)
					for k, weight := range s.weights {
						sum += weight * int32(src.RGB[l*line*3+(s.first+k)*step*3+c])
					}
					out.RGB[(l*n+i)*3+c] = clip(sum)
				}
			}
		}
		return out
	}
	if w != src.Width {
		out := pass(src, w, 1, src.Height, src.Width, spans(src.Width, w, 0, w, f))
		out.Width, out.Height = w, src.Height
		src = out
	}
	if h != src.Height {
		turned := pass(src, h, w, w, 1, spans(src.Height, h, 0, h, f))
		out := &Picture{Width: w, Height: h, RGB: make([]byte, w*h*3)}
		for y := range h {
			for x := range w {
				copy(out.RGB[(y*w+x)*3:(y*w+x)*3+3], turned.RGB[(x*h+y)*3:])
			}
		}
		src = out
	}
	return src
}

func TestResamplingGivesWhatTheTwoPassesGiveWrittenDownSimply(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	side := func() int { return 1 + r.IntN([]int{3, 20, 120}[r.IntN(3)]) }
	for range 200 {
		src := noise(side(), side())
		w, h := side(), side()
		f := byCode()[1+r.IntN(5)]
		name := fmt.Sprintf("%d×%d to %d×%d %s", src.Width, src.Height, w, h, f)
		want := plain(src, w, h, f)
		got := Resize(src, w, h, f)
		require.Equal(t, want, got, name)
		win := window{left: r.IntN(w), top: r.IntN(h)}
		win.right, win.bottom = win.left+1+r.IntN(w-win.left), win.top+1+r.IntN(h-win.top)
		require.Equal(t, want.crop(win).RGB, resizePart(src, w, h, win, f).RGB, "%s, of which %v", name, win)
	}
}

func TestAPartOfThePictureByNearestIsThatOfTheWhole(t *testing.T) {
	t.Parallel()
	src := noise(31, 17)
	win := window{left: 3, top: 5, right: 40, bottom: 6}
	require.Equal(t, Resize(src, 45, 9, Nearest).crop(win), resizePart(src, 45, 9, win, Nearest))
}

func TestAFlatPictureStaysFlat(t *testing.T) {
	t.Parallel()
	for _, value := range []byte{0, 1, 127, 254, 255} {
		src := (&Picture{Width: 1, Height: 1, RGB: make([]byte, 3)}).place(37, 23, 50, 50, value)
		for _, f := range byCode() {
			require.Equal(t, bytes.Repeat([]byte{value}, 64*5*3), Resize(src, 64, 5, f).RGB, f)
		}
	}
}

func TestResizingToTheSameSizeCopiesNothing(t *testing.T) {
	t.Parallel()
	src := noise(8, 8)
	require.Same(t, src, Resize(src, 8, 8, Lanczos))
}

func TestResizeRefusesSizesAndFiltersThatAreNone(t *testing.T) {
	t.Parallel()
	src := noise(4, 4)
	require.Panics(t, func() { Resize(src, 0, 4, Box) })
	require.Panics(t, func() { Resize(src, 4, MaxSide+1, Box) })
	require.Panics(t, func() { Resize(src, 5, 5, "cubic") })
}
