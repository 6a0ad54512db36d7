package jpeg

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/rewardloop/rewardloop/internal/cpu"
	"github.com/rewardloop/rewardloop/rewards"
)

// Config configures a Scorer.
type Config struct {
	// Quality is PIL's quality setting, 1…100. The default is 95, as in all published uses of this
	// reward.
	Quality int
	// Divisor divides the size in kB (1000 bytes). It must be positive and finite. The default is
	// 1.
	Divisor float64
	// Negate rewards small files (compressibility) instead of large ones.
	Negate bool
	// Frames selects the frames of a video; the score is their mean. nil selects only the first
	// frame.
	Frames *rewards.FrameChoice
}

// WithDefaults returns a copy of c with the default for each zero field.
func (c Config) WithDefaults() Config {
	if c.Quality == 0 {
		c.Quality = 95
	}
	if c.Divisor == 0 {
		c.Divisor = 1
	}
	return c
}

// Validate returns an error that contains every fault of c.
func (c Config) Validate() error {
	var faults rewards.Faults
	faults.Add(c.Quality < 1 || c.Quality > 100, "quality is %d, must be 1…100", c.Quality)
	faults.Add(!(c.Divisor > 0) || math.IsInf(c.Divisor, 0), "divisor is %v, must be a positive number", c.Divisor)
	return errors.Join(faults...)
}

// Scorer rewards a picture by the size of its JPEG file. It has no state and is safe for concurrent
// use.
type Scorer struct {
	cfg Config
}

var (
	_ rewards.Scorer       = (*Scorer)(nil)
	_ rewards.ExtraFielder = (*Scorer)(nil)
	_ rewards.Queuer       = (*Scorer)(nil)
)

// Queues marks that the component's timeout starts when the component gets a CPU.
func (*Scorer) Queues() {}

// New returns a scorer. Zero fields of cfg get their defaults.
func New(cfg Config) (*Scorer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("jpeg: %w", err)
	}
	return &Scorer{cfg: cfg}, nil
}

// Score returns kB/Divisor of the sample's picture, negated if Negate is set. For a video, the
// score is the mean of the selected frames; the default is frame 0 only, as in verl-omni. Details
// holds jpeg_bytes: the exact size, or the list of sizes if there are several frames. A sample
// without a picture, or with a picture that JPEG cannot represent, is an error of class
// rewards.BadInput. Score returns within one row of MCUs after ctx ends. The picture is decoded
// when a CPU is free for the component.
func (s *Scorer) Score(ctx context.Context, sample *rewards.Sample) (rewards.Score, error) {
	visual, err := sample.Visual()
	if err != nil {
		return rewards.Score{}, err
	}
	ctx, done, err := cpu.Start(ctx)
	if err != nil {
		return rewards.Score{}, fmt.Errorf("jpeg: sample %q: %w", sample.ID, err)
	}
	defer done()
	v, err := visual.PixelsOf(ctx, rewards.FramesOr(s.cfg.Frames, rewards.FirstFrame()))
	if err != nil {
		return rewards.Score{}, fmt.Errorf("jpeg: pixels of sample %q: %w", sample.ID, err)
	}
	sizes, sum := make([]int, len(v.At)), 0.0
	for i := range v.At {
		n, err := size(ctx, v.Bytes(i), v.Width, v.Height, s.cfg.Quality)
		if err != nil {
			return rewards.Score{}, fmt.Errorf("sample %q: %w", sample.ID, err)
		}
		sizes[i], sum = n, sum+s.value(n)
	}
	if len(sizes) == 1 {
		return rewards.Score{Value: sum, Details: map[string]any{"jpeg_bytes": sizes[0]}}, nil
	}
	return rewards.Score{Value: sum / float64(len(sizes)), Details: map[string]any{"jpeg_bytes": sizes, "frames": v.Number}}, nil
}

// value divides in the order of the Python code, bytes/1000 first, so that the
// doubles are equal to the last bit.
func (s *Scorer) value(n int) float64 {
	v := float64(n) / 1000 / s.cfg.Divisor
	if s.cfg.Negate {
		return -v
	}
	return v
}

// ExtraFields returns nil, because the scorer has no extra columns.
func (s *Scorer) ExtraFields() []rewards.Field { return nil }

// The presets: the code bases whose scale jpeg_compressibility takes.
const (
	flowGRPO = "flow_grpo"
	verlOmni = "verl_omni"
	ddpo     = "ddpo_pytorch"
)

// divisorOf returns what a preset divides kB by.
func divisorOf(preset string) (float64, error) {
	switch preset {
	case flowGRPO, verlOmni:
		return 500, nil
	case ddpo:
		return 1, nil
	}
	known := []string{flowGRPO, verlOmni, ddpo}
	return 0, fmt.Errorf("unknown preset %q, want one of %s", preset, strings.Join(known, ", "))
}

// Specs describes jpeg_compressibility and jpeg_incompressibility for a registry.
func Specs() []rewards.Spec {
	frames := rewards.FramesOption("first")
	quality := rewards.Option{Name: "quality", Type: "int", Default: "95", Doc: "quality of the JPEG file, 1 to 100"}
	return []rewards.Spec{
		{
			Name:    "jpeg_compressibility",
			Summary: "minus the size of the picture as JPEG in kB, scaled: smooth pictures score high",
			Options: []rewards.Option{
				quality, frames,
				{Name: "preset", Type: "string", Default: flowGRPO, Doc: "formula: flow_grpo and verl_omni, −kB/500; ddpo_pytorch, −kB"},
				{Name: "divisor", Type: "number", Default: "the preset's", Doc: "number that the size in kB is divided by, in place of the preset's"},
			},
			Build: buildCompressibility,
		},
		{
			Name:    "jpeg_incompressibility",
			Summary: "size of the picture as JPEG in kB: detailed pictures score high",
			Options: []rewards.Option{
				quality, frames,
				{Name: "divisor", Type: "number", Default: "1", Doc: "number that the size in kB is divided by"},
			},
			Build: buildIncompressibility,
		},
	}
}

func buildCompressibility(raw json.RawMessage) (rewards.Scorer, error) {
	opt := struct {
		Quality int      `json:"quality"`
		Preset  string   `json:"preset"`
		Divisor *float64 `json:"divisor"`

		Frames *rewards.FrameChoice `json:"frames"`
	}{Quality: 95}
	if err := rewards.DecodeOptions(raw, &opt); err != nil {
		return nil, err
	}
	cfg := Config{Quality: opt.Quality, Negate: true, Frames: opt.Frames}
	var faults []error
	switch {
	case opt.Divisor != nil && opt.Preset != "":
		faults = append(faults, errors.New("preset and divisor both set the scale; keep one"))
		cfg.Divisor = *opt.Divisor
	case opt.Divisor != nil:
		cfg.Divisor = *opt.Divisor
	default:
		d, err := divisorOf(cmp.Or(opt.Preset, flowGRPO))
		if err != nil {
			faults = append(faults, err)
			d = 1 // of no effect: it only lets Validate report the other faults
		}
		cfg.Divisor = d
	}
	return build(cfg, faults...)
}

func buildIncompressibility(raw json.RawMessage) (rewards.Scorer, error) {
	opt := struct {
		Quality int     `json:"quality"`
		Divisor float64 `json:"divisor"`

		Frames *rewards.FrameChoice `json:"frames"`
	}{Quality: 95, Divisor: 1}
	if err := rewards.DecodeOptions(raw, &opt); err != nil {
		return nil, err
	}
	return build(Config{Quality: opt.Quality, Divisor: opt.Divisor, Frames: opt.Frames})
}

// build makes the scorer of written options. Their zeros were written, not left
// out, so no default replaces them.
func build(cfg Config, faults ...error) (rewards.Scorer, error) {
	if err := errors.Join(append(faults, cfg.Validate())...); err != nil {
		return nil, err
	}
	return &Scorer{cfg: cfg}, nil
}
