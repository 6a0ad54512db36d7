package preference

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// selfTestFile is the name of the self-test in a model's folder.
const selfTestFile = "selftest.json"

const (
	maxSelfTest  = 8 << 20 // bytes of the file
	maxCases     = 16
	maxTestSide  = 64
	maxTolerance = 1
	// defaultTolerance is that of a case that names none.
	defaultTolerance = 1e-3
)

// selfCase is a question to a model and what its exporter computed as the answer.
type selfCase struct {
	width, height    int
	rgb              []byte
	prompt, response string
	// imageEmbeds and textEmbeds have length 1; nil: not compared.
	imageEmbeds, textEmbeds []float64
	// score is the logit of an embedding model, logit_scale·cos + logit_bias, or what the
	// sidecar makes of a graph's output; nil: not compared.
	score     *float64
	tolerance float64
}

// readSelfTest reads selftest.json of a folder; without the file there are no cases.
func readSelfTest(folder string, side *sidecar) ([]selfCase, error) {
	data, err := readFile(filepath.Join(folder, selfTestFile), maxSelfTest)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", infer.ErrModel, err)
	}
	cases, err := parseSelfTest(data, side)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", infer.ErrModel, filepath.Join(folder, selfTestFile), err)
	}
	return cases, nil
}

// parseSelfTest reads the cases and names everything that is wrong with them.
func parseSelfTest(data []byte, side *sidecar) ([]selfCase, error) {
	r := &reader{}
	format := 0
	var out []selfCase
	r.object("", data, fields{
		"format": &format,
		"cases": func(at string, raw json.RawMessage) {
			var list []json.RawMessage
			r.value(at, raw, &list)
			r.check(len(list) >= 1 && len(list) <= maxCases, "%s has %d entries, want 1 to %d", at, len(list), maxCases)
			for i, raw := range list[:min(len(list), maxCases)] {
				out = append(out, r.selfCase(fmt.Sprintf("%s[%d]", at, i), raw, side))
			}
		},
	})
	r.check(format == 1, "format is %d, want 1", format)
	return out, errors.Join(r.faults...)
}

func (r *reader) selfCase(at string, data json.RawMessage, side *sidecar) selfCase {
	c := selfCase{tolerance: defaultTolerance}
	r.object(at, data, fields{
		"width": &c.width, "height": &c.height, "rgb": &c.rgb, "prompt": &c.prompt, "response": &c.response,
		"image_embeds": &c.imageEmbeds, "text_embeds": &c.textEmbeds, "tolerance": &c.tolerance,
		"score": func(at string, raw json.RawMessage) {
			c.score = new(float64)
			r.value(at, raw, c.score)
		},
	})
	if side.Image != nil {
		fits := c.width >= 1 && c.width <= maxTestSide && c.height >= 1 && c.height <= maxTestSide && len(c.rgb) == c.width*c.height*3
		r.check(fits, "%s: a picture of %dx%d in %d bytes, want sides of 1 to %d and 3 bytes a pixel", at, c.width, c.height, len(c.rgb), maxTestSide)
	}
	r.check(c.tolerance > 0 && c.tolerance <= maxTolerance, "%s.tolerance is %v, want above 0 to %d", at, c.tolerance, maxTolerance)
	r.check(c.score != nil || c.imageEmbeds != nil || c.textEmbeds != nil, "%s has no values to compare: want score, image_embeds or text_embeds", at)
	embeds := side.Kind == kindTwoTower || side.Kind == kindCombined
	r.check(embeds || c.imageEmbeds == nil && c.textEmbeds == nil, "%s has embeddings, but kind %s has none", at, side.Kind)
	r.check(!embeds || c.score == nil || side.LogitScale != nil, "%s.score needs logit_scale in %s", at, sidecarFile)
	return c
}

// selfTest asks the cases and compares the answers with those that PyTorch gave when the
// model was exported.
func (e *network) selfTest(ctx context.Context, folder string) error {
	cases, err := readSelfTest(folder, e.side)
	if err != nil {
		return err
	}
	for i, c := range cases {
		if err := e.check(ctx, fmt.Sprintf("self-test %d", i), c); err != nil {
			return fmt.Errorf("%s, case %d: %w", filepath.Join(folder, selfTestFile), i, err)
		}
	}
	return nil
}

func (e *network) check(ctx context.Context, item string, c selfCase) error {
	var px *rewards.Pixels
	if e.side.Image != nil {
		px = &rewards.Pixels{Width: c.width, Height: c.height, Count: 1, RGB: c.rgb}
	}
	var t *tokens
	if e.words != nil {
		made, err := e.words.encode("", c.prompt, c.response)
		if err != nil {
			return err
		}
		t = &made
	}
	switch e.side.Kind {
	case kindTwoTower:
		image, err := e.picture(ctx, item, px, 0, nil)
		if err != nil {
			return err
		}
		text, err := e.sentence(ctx, item, *t)
		if err != nil {
			return err
		}
		return e.compare(c, image, text)
	case kindCombined:
		image, text, err := e.both(ctx, item, px, 0, *t)
		if err != nil {
			return err
		}
		return e.compare(c, image, text)
	}
	var in *infer.Tensor
	if px != nil {
		var err error
		if in, err = e.tensor(px, 0); err != nil {
			return err
		}
	}
	got, err := e.output(ctx, item, in, t)
	if err != nil {
		return err
	}
	return c.near("score", []float64{got.value}, []float64{*c.score})
}

func (e *network) compare(c selfCase, image, text embedding) error {
	if c.imageEmbeds != nil {
		if err := c.near("image_embeds", image.unit(), c.imageEmbeds); err != nil {
			return err
		}
	}
	if c.textEmbeds != nil {
		if err := c.near("text_embeds", text.unit(), c.textEmbeds); err != nil {
			return err
		}
	}
	if c.score == nil {
		return nil
	}
	return c.near("score", []float64{*e.side.LogitScale*cosine(image, text) + e.side.LogitBias}, []float64{*c.score})
}

// unit is the embedding with length 1.
func (v embedding) unit() []float64 {
	out := make([]float64, len(v.values))
	for i, x := range v.values {
		out[i] = float64(x) / v.norm
	}
	return out
}

// near compares what the model answers with what is expected: no number may be off by more
// than the tolerance, which is by the largest expected number where that is above 1.
func (c selfCase) near(what string, got, want []float64) error {
	const remedy = "the folder is damaged, its files belong to different models, or the runtime computes different results: fetch or export the model again, or set selftest: false to use the model nevertheless"
	if len(got) != len(want) {
		return fmt.Errorf("%w: %s has %d numbers, want %d; %s", infer.ErrModel, what, len(got), len(want), remedy)
	}
	top, off, worst := 1.0, 0.0, 0
	for i := range want {
		top = max(top, math.Abs(want[i]))
		if o := math.Abs(got[i] - want[i]); o > off || math.IsNaN(o) { // after NaN nothing is larger
			off, worst = o, i
		}
	}
	if !(off <= c.tolerance*top) {
		return fmt.Errorf("%w: %s[%d] is %.6g, want %.6g: the difference is %.2g, want at most %.2g; %s", infer.ErrModel, what, worst, got[worst], want[worst], off, c.tolerance*top, remedy)
	}
	return nil
}
