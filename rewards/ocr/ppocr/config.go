package ppocr

import (
	"errors"

	"github.com/rewardloop/rewardloop/rewards"
)

// Mode says what is kept of the reference's sizes.
type Mode string

const (
	// Parity gives every model the sizes that the reference would, so that the same
	// models read the same text.
	Parity Mode = "parity"
	// Fast detects on a smaller picture and pads crops to few different widths. Pictures
	// more than 2.5 times as long as wide are read as in Parity.
	Fast Mode = "fast"
)

// Config is what a Reader is made from. The zero value of a field means its default.
type Config struct {
	// Profile is "rapidocr" (default) or "paddle2".
	Profile Profile
	// Mode is "parity" (default) or "fast".
	Mode Mode
	// FastSide is the smaller side, in pixels, of what the detector gets in fast mode
	// of a picture, unless that is more than the reference would give it. Default 512:
	// pictures of 512x512, which RapidOCR makes 736x736 of, are detected as they are.
	FastSide int
	// FastShrink is the most by which fast mode makes a picture smaller for the
	// detector, whatever FastSide says: small print in a large picture stays legible.
	// Default 1.5, at which 13 of 102 lines of print of 10 to 16 pixels in pictures of
	// 1024x1024 were lost; at 2 they were 34, at 1.2 4.
	FastShrink float64
	// WidthStep is what widths of crops are a multiple of in fast mode, up to 16 times
	// it, and of its double beyond that, and so on; default 32. A larger one makes for
	// fewer shapes, which a GPU likes, and for more padding.
	WidthStep int
	// WholePicture reads every picture as one line of text, without a detector: for
	// pictures of cropped text. In parity mode the picture is brought within the profile's
	// sides first and padded to the profile's width, in fast mode it is resized to the
	// recogniser's height at once. A picture that is higher than wide is not turned.
	WholePicture bool
	// SwapRB gives the models red, green, blue instead of blue, green, red: what
	// they get where a trainer hands RGB arrays to a reader that expects BGR, as
	// flow_grpo does.
	SwapRB bool
	// TextScore is the least confidence of a line, 0 to 1; default 0.5. A line of
	// exactly that is kept. -1 keeps all, and is the default with WholePicture, where
	// the references drop nothing either.
	TextScore float64
	// Concurrency is how many crops of one picture are with the models at the same
	// time; default 8.
	Concurrency int
	// MaxPixels bounds a frame in pixels; default 16 Mi, a square of 4096.
	MaxPixels int
	// MaxDetectorPixels bounds the detector's input. A picture that needs more, which
	// only very tall and very flat ones do, is of class BadInput. Default 8 Mi,
	// with which PP-OCRv4 takes about 3 GB.
	MaxDetectorPixels int
}

// WithDefaults fills what is not set.
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

// Validate names everything that is wrong.
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
