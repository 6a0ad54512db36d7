package store

import (
	"image"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestThumbnailsTakeTheirShareOfTheCPUsWhileResultsCome(t *testing.T) {
	t.Parallel()
	begun := time.Unix(0, 0)
	now := begun
	a := allowance{share: 0.02, left: cpuBurst, at: now}
	for took := time.Duration(0); took < time.Second; took += 8 * time.Millisecond {
		now = now.Add(8*time.Millisecond + a.spend(8*time.Millisecond, now, false))
	}
	assert.InDelta(t, 49.0, now.Sub(begun).Seconds(), 1.5) // a second, less the burst, at 0.02
}

func TestThumbnailsOfAPauseAreNotOwedWhenResultsComeAgain(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	a := allowance{share: 0.02, left: cpuBurst, at: now}
	for range 300 { // some 3 s of one CPU
		now = now.Add(10 * time.Millisecond)
		assert.Zero(t, a.spend(10*time.Millisecond, now, true))
	}
	assert.LessOrEqual(t, a.spend(10*time.Millisecond, now.Add(10*time.Millisecond), false), 500*time.Millisecond)
}

func TestEachPixelOfAThumbnailIsTheMeanOfThoseItStandsFor(t *testing.T) {
	t.Parallel()
	rgb := make([]byte, 5*3*3)
	for i := range rgb {
		rgb[i] = byte(i)
	}
	out := image.NewRGBA(image.Rect(0, 0, 4, 2))
	shrink(out, image.Rect(2, 0, 4, 2), rgb, 5, 3)
	assert.Equal(t, []byte{
		0, 0, 0, 0, 0, 0, 0, 0, 2, 3, 4, 255, 9, 10, 11, 255, // columns 0 and 1 of row 0, then 2 to 4
		0, 0, 0, 0, 0, 0, 0, 0, 24, 25, 26, 255, 32, 33, 34, 255, // rows 1 and 2
	}, out.Pix)
}
