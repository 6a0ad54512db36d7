package media_test

import (
	"testing"

	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/bombs"
)

func FuzzDecode(f *testing.F) {
	for _, name := range pilPictures(f) {
		f.Add(read(f, name), uint8(0), uint16(0), uint16(0))
	}
	f.Add(bomb(65535, 65535), uint8(1), uint16(0), uint16(0))
	f.Add(bombs.JPEGScans(64, 64), uint8(2), uint16(0), uint16(0))
	f.Add(make([]byte, 24), uint8(4), uint16(2), uint16(4))
	encodings := []rewards.Encoding{rewards.Frames, rewards.PNG, rewards.JPEG, rewards.WebP, rewards.Raw}
	layouts := []rewards.Layout{rewards.HWC, rewards.CHW, rewards.THWC, rewards.TCHW, rewards.CTHW}
	f.Fuzz(func(t *testing.T, data []byte, how uint8, a, b uint16) {
		d := decoder(t, media.Config{MaxPixels: 1 << 14, MaxFrames: 4, BudgetBytes: 8 << 20})
		m := &rewards.Media{Kind: rewards.Video, Encoding: encodings[int(how)%len(encodings)], DType: "U8", Data: data}
		m.Layout = layouts[int(how>>4)%len(layouts)]
		for range len(m.Layout) - 2 {
			m.Shape = append(m.Shape, int(a))
		}
		m.Shape = append(m.Shape, int(b), len(data)/max(1, int(a)*int(b)))
		if m.Encoding == rewards.Frames {
			m.Frames = [][]byte{data, data}
		}
		p, err := d.Decode(t.Context(), m)
		free(p)
		if d.Booked() != 0 {
			t.Fatalf("%d bytes of the budget are gone", d.Booked())
		}
		switch {
		case err != nil && rewards.ClassOf(err) != rewards.BadInput:
			t.Fatalf("class %s: %v", rewards.ClassOf(err), err)
		case err == nil && (p.Width < 1 || p.Height < 1 || len(p.RGB) != p.Count*p.Width*p.Height*3):
			t.Fatalf("%d frames of %d×%d in %d bytes", p.Count, p.Width, p.Height, len(p.RGB))
		}
	})
}
