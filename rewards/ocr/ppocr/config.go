package ppocr

import (
	"errors"

	"github.com/rewardloop/rewardloop/rewards"
)

// Mode selects whether the sizes of the reference are used.
type Mode string

const (
	// Parity gives every model inputs of the same sizes as the reference, so that the same models
	// read the same text.
	Parity Mode = "parity"
	// Fast runs the detector on a smaller picture and pads crops to a few different widths.
	// Pictures whose longer side is more than 2.5 times the shorter are read as in Parity.
	Fast Mode = "fast"
)

// Config configures a Reader. A zero field means its default.
type Config struct {
	// Profile is "rapidocr" (the default) or "paddle2".
	Profile Profile
	// Mode is "parity" (the default) or "fast".
	Mode Mode
	// FastSide is the shorter side of the detector's input in fast mode, in pixels. The input never
	// has more pixels than the reference would use. The default is 512: a picture of 512x512, which
	// RapidOCR enlarges to 736x736, keeps its size.
	FastSide int
	// FastShrink is the maximum factor by which fast mode shrinks a picture for the detector,
	// whatever FastSide is, so that small print in a large picture stays legible. The default is
	// 1.5. Of 102 lines of print of 10 to 16 pixels in pictures of 1024x1024, 13 were lost at 1.5,
	// 34 at 2, and 4 at 1.2.
	FastShrink float64
	// WidthStep is the unit of the widths of crops in fast mode: widths up to 16 × WidthStep are
	// multiples of WidthStep, wider ones are multiples of its double, and so on. The default is 32.
	// A larger step gives fewer shapes, which is faster on a GPU, and more padding.
	WidthStep int
	// WholePicture reads every picture as one line of text, without a detector, for pictures of
	// cropped text. In parity mode the picture is first resized to the profile's limits and padded
	// to the profile's width; in fast mode it is resized directly to the recogniser's height. A
	// picture that is taller than wide is not rotated.
	WholePicture bool
	// SwapRB gives the models red, green, blue instead of blue, green, red. This happens when a
	// trainer passes RGB arrays to a reader that expects BGR, as flow_grpo does.
	SwapRB bool
	// TextScore is the minimum confidence of a line, inclusive, 0 to 1. The default is 0.5. -1
	// keeps all lines, and is the default with WholePicture, because the references drop no lines
	// in that case.
	TextScore float64
	// Concurrency is the maximum number of crops of one picture that the models process at the same
	// time. The default is 8.
	Concurrency int
	// MaxPixels is the maximum number of pixels of a frame. The default is 16 Mi, a square of 4096.
	MaxPixels int
	// MaxDetectorPixels is the maximum number of pixels of the detector's input. A picture that
	// needs more, which is only possible if it is very tall or very flat, is an error of class
	// BadInput. The default is 8 Mi, for which PP-OCRv4 needs about 3 GB.
	MaxDetectorPixels int
}

// WithDefaults returns a copy of c with the default for each zero field.
func (c Config) WithDefaults() Config {
	fill(&c.Profile, RapidOCR)
	fill(&c.Mode, Parity)
	fill(&c.FastSide, 512)
	fill(&c.FastShrink, 1.5)
	fill(&c.WidthStep, 32)
	if c.WholePicture {
		fill(&c.TextScore, -1)
	}
	fill(&c.TextScore, c.Profile.constants().textScore)
	fill(&c.Concurrency, 8)
	fill(&c.MaxPixels, 16<<20)
	fill(&c.MaxDetectorPixels, 8<<20)
	return c
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate returns an error that contains every fault of c.
func (c Config) Validate() error {
	var errs rewards.Faults
	check := func(ok bool, format string, args ...any) {
		errs.Add(!ok, format, args...)
	}
	check(c.Profile == RapidOCR || c.Profile == Paddle2, "profile: %q is unknown, want %s or %s", c.Profile, RapidOCR, Paddle2)
	check(c.Mode == Parity || c.Mode == Fast, "mode: %q is unknown, want %s or %s", c.Mode, Parity, Fast)
	check(c.FastSide >= 32 && c.FastSide <= 4096, "fast_side: %d, want 32 to 4096", c.FastSide)
	check(c.FastShrink >= 1 && c.FastShrink <= 64, "fast_shrink: %v, want 1 to 64", c.FastShrink)
	check(c.WidthStep >= 8 && c.WidthStep <= 1024 && c.WidthStep%8 == 0, "width_step: %d, want a multiple of 8 from 8 to 1024", c.WidthStep)
	check(c.TextScore == -1 || (c.TextScore > 0 && c.TextScore <= 1), "text_score: %v, want more than 0 to 1, or -1", c.TextScore)
	check(c.Concurrency >= 1 && c.Concurrency <= 1024, "concurrency: %d, want 1 to 1024", c.Concurrency)
	check(c.MaxPixels >= 1 && c.MaxPixels <= 1<<29, "max_pixels: %d, want 1 to %d", c.MaxPixels, 1<<29)
	check(c.MaxDetectorPixels >= 1024 && c.MaxDetectorPixels <= 1<<28, "max_detector_pixels: %d, want 1024 to %d", c.MaxDetectorPixels, 1<<28)
	return errors.Join(errs...)
}
