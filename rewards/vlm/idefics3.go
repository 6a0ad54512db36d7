package vlm

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/internal/imageproc"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// The tokens of Idefics3 and SmolVLM round a picture.
const (
	fakeToken   = "<fake_token_around_image>"
	globalToken = "<global-img>"
	imageToken  = "<image>"
	endOfTurn   = "<end_of_utterance>"
)

// idefics3 is Idefics3 and SmolVLM: square tiles of a fixed size, each of which takes
// the same number of tokens.
type idefics3 struct {
	whole, split imageproc.Idefics3 // how a picture is shown in one tile, and in several
	opening      string             // the token every prompt begins with
	tokens       int                // of a tile
	flat         bool               // the encoder takes [B,3,S,S] and not [B,N,3,S,S]
	masked       bool               // the encoder takes pixel_attention_mask
}

var _ family = (*idefics3)(nil)

func openIdefics3(f *folder) (family, error) {
	p, err := imageproc.ParseIdefics3(f.preprocessorJSON, f.processorJSON)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the file
	}
	d := &idefics3{whole: p, split: p, opening: cmp.Or(f.tokenizerConfig.BOS.text, "<|im_start|>")}
	if edge := f.sidecar.LongestEdge; edge > 0 {
		at := &d.whole
		if f.sidecar.Split {
			at = &d.split
		}
		at.LongestEdge = edge
	}
	d.tokens, err = f.tileTokens(p)
	return d, err
}

// tileTokens is how many tokens a tile takes: as processor_config.json says, or as the
// vision encoder's patches and the pixel shuffle behind it make it.
func (f *folder) tileTokens(p imageproc.Idefics3) (int, error) {
	c, made := f.config, 0
	if v := c.Vision; v.ImageSize > 0 && v.PatchSize > 0 && c.ScaleFactor > 0 {
		side := v.ImageSize / v.PatchSize
		made = side * side / (c.ScaleFactor * c.ScaleFactor)
	}
	switch {
	case p.SeqLen == 0 && made == 0:
		return 0, errors.New("neither processor_config.json (image_seq_len) nor config.json (vision_config, scale_factor) has the number of tokens of a tile")
	case p.SeqLen > 0 && made > 0 && p.SeqLen != made:
		return 0, fmt.Errorf("processor_config.json: image_seq_len is %d, but a tile has %d tokens by config.json", p.SeqLen, made)
	case max(p.SeqLen, made) > maxContext:
		return 0, fmt.Errorf("a tile has %d tokens, want at most %d", max(p.SeqLen, made), maxContext)
	}
	return max(p.SeqLen, made), nil
}

func (d *idefics3) Name() string       { return "idefics3" }
func (d *idefics3) Axes() int          { return 1 }
func (d *idefics3) ImageToken() string { return imageToken }
func (d *idefics3) Stops() []string    { return []string{endOfTurn} }
func (d *idefics3) Lead() string       { return " " }

// Bind implements family. A tile is an item of its own, so that the tiles of all
// pictures share batches: the encoder must take any number of pictures of one tile.
func (d *idefics3) Bind(vision infer.Info) error {
	found, err := ports(vision, "pixel_values", "pixel_attention_mask")
	if err != nil {
		return err
	}
	pixels, size := found["pixel_values"], d.whole.Size
	shape := []int{-1, 1, 3, size, size}
	masks := []int{-1, 1, size, size}
	if d.flat = pixels != nil && len(pixels.Shape) == 4; d.flat {
		shape, masks = []int{-1, 3, size, size}, []int{-1, size, size}
	}
	if err := wanted(pixels, "pixel_values", infer.F32, shape...); err != nil {
		return err
	}
	if mask := found["pixel_attention_mask"]; mask != nil {
		d.masked = true
		if err := wanted(mask, mask.Name, infer.Bool, masks...); err != nil {
			return err
		}
	}
	return giving(vision)
}

// Render implements family: SmolVLM's template, and that of Idefics3, which begins with
// another token.
func (d *idefics3) Render(turns []turn) string {
	var b strings.Builder
	b.WriteString(d.opening)
	for _, t := range turns {
		b.WriteString(capitalised(t.Role))
		b.WriteByte(':')
		if len(t.Parts) == 0 || !t.Parts[0].Image {
			b.WriteByte(' ')
		}
		writeParts(&b, t.Parts, imageToken)
		b.WriteString(endOfTurn + "\n")
	}
	b.WriteString("Assistant:")
	return b.String()
}

func capitalised(role string) string {
	if role == "" {
		return ""
	}
	return strings.ToUpper(role[:1]) + role[1:]
}

func writeParts(b *strings.Builder, parts []part, picture string) {
	for _, p := range parts {
		if p.Image {
			b.WriteString(picture)
		} else {
			b.WriteString(p.Text)
		}
	}
}

// Look implements family.
func (d *idefics3) Look(px *rewards.Pixels, frame int, split bool) (*view, error) {
	p := d.whole
	if split {
		p = d.split
	}
	t, err := p.Tiles(px, frame, split)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names sizes and class
	}
	var axis []int // of the tiles of a picture, where the encoder has one
	if !d.flat {
		axis = []int{1}
	}
	pixels := p.Tensor("pixel_values", t)
	mask := infer.Tensor{Name: "pixel_attention_mask", DType: infer.Bool, Shape: append(slices.Clip(axis), t.Size, t.Size)}
	if d.masked {
		mask.U8 = bytes.Repeat([]byte{1}, t.Size*t.Size)
	}
	v := &view{Grid: [2]int{t.Rows, t.Cols}, Tokens: t.Count * d.tokens}
	n := 3 * t.Size * t.Size
	for i := range t.Count {
		tile := pixels
		tile.Shape, tile.U8 = append(slices.Clip(axis), 3, t.Size, t.Size), t.CHW[i*n:(i+1)*n]
		inputs := []infer.Tensor{tile}
		if d.masked {
			inputs = append(inputs, mask)
		}
		v.Items = append(v.Items, infer.Request{Name: "tile " + strconv.Itoa(i), Inputs: inputs})
	}
	return v, nil
}

// Expand implements family, as transformers' Idefics3Processor writes it: the tiles row
// by row, and at last the whole picture.
func (d *idefics3) Expand(prompt string, views []*view) string {
	image := strings.Repeat(imageToken, d.tokens)
	return expand(prompt, imageToken, views, func(v *view) string {
		var b strings.Builder
		rows, cols := v.Grid[0], v.Grid[1]
		for r := range rows {
			for c := range cols {
				b.WriteString(fakeToken + "<row_" + strconv.Itoa(r+1) + "_col_" + strconv.Itoa(c+1) + ">")
				b.WriteString(image)
			}
			b.WriteByte('\n')
		}
		if rows > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(fakeToken + globalToken)
		b.WriteString(image)
		b.WriteString(fakeToken)
		return b.String()
	})
}

// Positions implements family: they are those of any text.
func (d *idefics3) Positions([]int64, int64, []*view) (*infer.Tensor, error) {
	return nil, nil //nolint:nilnil // nil are the usual positions
}
