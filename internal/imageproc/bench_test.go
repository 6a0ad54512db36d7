//go:build unix

package imageproc

import (
	"fmt"
	"image"
	"syscall"
	"testing"

	"github.com/disintegration/imaging"

	"github.com/rewardloop/rewardloop/rewards"
)

// cpu is the user and system time of the process in nanoseconds.
func cpu(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// byImaging resizes with package imaging, which takes and gives NRGBA.
func byImaging(src *Picture, w, h int, f imaging.ResampleFilter) *Picture {
	img := image.NewNRGBA(image.Rect(0, 0, src.Width, src.Height))
	for s, d := 0, 0; s < len(src.RGB); s, d = s+3, d+4 {
		img.Pix[d], img.Pix[d+1], img.Pix[d+2], img.Pix[d+3] = src.RGB[s], src.RGB[s+1], src.RGB[s+2], 255
	}
	img = imaging.Resize(img, w, h, f)
	out := &Picture{Width: w, Height: h, RGB: make([]byte, w*h*3)}
	for s, d := 0, 0; d < len(out.RGB); s, d = s+4, d+3 {
		out.RGB[d], out.RGB[d+1], out.RGB[d+2] = img.Pix[s], img.Pix[s+1], img.Pix[s+2]
	}
	return out
}

// measure runs f and reports the processor time it takes, on all cores together.
func measure(b *testing.B, f func()) {
	b.Helper()
	b.ReportAllocs()
	before := cpu(b)
	for b.Loop() {
		f()
	}
	b.ReportMetric(float64(cpu(b)-before)/1e6/float64(b.N), "cpu-ms/op")
}

// BenchmarkResize is what the comment on Resize speaks of.
func BenchmarkResize(b *testing.B) {
	for _, side := range []int{512, 1024} {
		src := noise(side, side)
		for f, theirs := range map[Filter]imaging.ResampleFilter{Bilinear: imaging.Linear, Bicubic: imaging.CatmullRom, Lanczos: imaging.Lanczos} {
			whole := window{right: 224, bottom: 224}
			b.Run(fmt.Sprintf("%s/%d/ours", f, side), func(b *testing.B) { measure(b, func() { resample(src, 224, 224, whole, f) }) })
			b.Run(fmt.Sprintf("%s/%d/imaging", f, side), func(b *testing.B) { measure(b, func() { byImaging(src, 224, 224, theirs) }) })
		}
	}
}

// BenchmarkProcessors is a whole picture of 1024×1024 to a model's bytes.
func BenchmarkProcessors(b *testing.B) {
	src := noise(1024, 1024)
	px := &rewards.Pixels{Width: 1024, Height: 1024, Count: 1, RGB: src.RGB}
	clip, err := FromPreprocessor([]byte(`{"image_processor_type":"CLIPImageProcessor"}`))
	if err != nil {
		b.Fatal(err)
	}
	tiles, err := ParseIdefics3([]byte(`{"image_processor_type":"Idefics3ImageProcessor","size":{"longest_edge":2048},"max_image_size":{"longest_edge":512}}`), nil)
	if err != nil {
		b.Fatal(err)
	}
	patches, err := ParseQwen2VL([]byte(`{"image_processor_type":"Qwen2VLImageProcessor","max_pixels":401408}`))
	if err != nil {
		b.Fatal(err)
	}
	for name, f := range map[string]func() error{
		"clip": func() error {
			p, err := clip.Apply(px, 0)
			if err == nil {
				clip.Tensor("pixel_values", p)
			}
			return err
		},
		"idefics3/split": func() error { _, err := tiles.Tiles(px, 0, true); return err },
		"idefics3/whole": func() error { _, err := tiles.Tiles(px, 0, false); return err },
		"qwen2vl":        func() error { _, err := patches.Patches(px, 0); return err },
	} {
		b.Run(name, func(b *testing.B) {
			measure(b, func() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}
