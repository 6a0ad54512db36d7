package vlm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/internal/imageproc"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// The tokens of Qwen2-VL round a picture and a turn.
const (
	visionStart = "<|vision_start|>"
	visionPad   = "<|image_pad|>"
	visionEnd   = "<|vision_end|>"
	turnStart   = "<|im_start|>"
	turnEnd     = "<|im_end|>"
	textEnd     = "<|endoftext|>"
	// qwenSystem is said where the conversation has no system message of its own.
	qwenSystem = "You are a helpful assistant."
)

// qwen is Qwen2-VL and Qwen2.5-VL: pictures of any size in patches, and positions on
// three axes: time, row and column.
type qwen struct {
	processor imageproc.Qwen2VL
	grid      string // what the encoder calls the sizes of its pictures
}

var _ family = (*qwen)(nil)

func openQwen(f *folder) (family, error) {
	p, err := imageproc.ParseQwen2VL(f.preprocessorJSON)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the file
	}
	if n := f.sidecar.MaxPixels; n > 0 {
		if n < p.MinPixels {
			return nil, fmt.Errorf("judge.json: max_pixels is %d, below min_pixels %d of preprocessor_config.json", n, p.MinPixels)
		}
		p.MaxPixels = n
	}
	if n := f.config.Vision.SpatialMergeSize; n > 0 && n != p.Merge {
		return nil, fmt.Errorf("config.json: spatial_merge_size is %d, but merge_size is %d in preprocessor_config.json", n, p.Merge)
	}
	return &qwen{processor: p}, nil
}

func (d *qwen) Name() string       { return "qwen2_5_vl" }
func (d *qwen) Axes() int          { return 3 }
func (d *qwen) ImageToken() string { return visionPad }
func (d *qwen) Stops() []string    { return []string{turnEnd, textEnd} }
func (d *qwen) Lead() string       { return "" }

// Bind implements family. The sizes are called grid_thw (Qwen2-VL's exports) or
// image_grid_thw (Qwen2.5-VL's).
func (d *qwen) Bind(vision infer.Info) error {
	found, err := ports(vision, "pixel_values", "image_grid_thw", "grid_thw")
	if err != nil {
		return err
	}
	if err := wanted(found["pixel_values"], "pixel_values", infer.F32, -1, 3*d.processor.Temporal*d.processor.Patch*d.processor.Patch); err != nil {
		return err
	}
	d.grid = "image_grid_thw"
	if found[d.grid] == nil && found["grid_thw"] != nil {
		d.grid = "grid_thw"
	}
	if err := wanted(found[d.grid], d.grid, infer.I64, 1, 3); err != nil {
		return err
	}
	return giving(vision)
}

// Render implements family.
func (d *qwen) Render(turns []turn) string {
	var b strings.Builder
	if len(turns) == 0 || turns[0].Role != "system" {
		b.WriteString(turnStart + "system\n" + qwenSystem + turnEnd + "\n")
	}
	for _, t := range turns {
		b.WriteString(turnStart + t.Role + "\n")
		writeParts(&b, t.Parts, visionStart+visionPad+visionEnd)
		b.WriteString(turnEnd + "\n")
	}
	b.WriteString(turnStart + "assistant\n")
	return b.String()
}

// Look implements family. The encoder has no batch axis: the patches of all pictures
// stand one behind the other. So a picture is a run by itself.
func (d *qwen) Look(px *rewards.Pixels, frame int, _ bool) (*view, error) {
	p, err := d.processor.Patches(px, frame)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names sizes and class
	}
	grid := [2]int{p.GridH / d.processor.Merge, p.GridW / d.processor.Merge}
	return &view{Grid: grid, Tokens: p.GridT * grid[0] * grid[1], Items: []infer.Request{{
		Name: "picture", Whole: true,
		Inputs: []infer.Tensor{
			d.processor.Tensor("pixel_values", p),
			{Name: d.grid, DType: infer.I64, Shape: []int{1, 3}, I64: []int64{int64(p.GridT), int64(p.GridH), int64(p.GridW)}},
		},
	}}}, nil
}

// Expand implements family.
func (d *qwen) Expand(prompt string, views []*view) string {
	return expand(prompt, visionPad, views, func(v *view) string { return strings.Repeat(visionPad, v.Tokens) })
}

// Positions implements family: transformers' get_rope_index. Text counts on alike on
// the three axes. A picture stands still in time and counts its rows and columns from
// there; the text behind it goes on after the largest of them.
func (d *qwen) Positions(ids []int64, image int64, views []*view) (*infer.Tensor, error) {
	length := len(ids)
	pos := make([]int64, 3*length)
	next, at := int64(0), 0
	for _, v := range views {
		start := slices.Index(ids[at:], image)
		if start < 0 || at+start+v.Tokens > length {
			return nil, fmt.Errorf("%w: the prompt has no room for a picture of %d tokens", rewards.Internal, v.Tokens)
		}
		for ; start > 0; start-- {
			next = put(pos, length, at, next)
			at++
		}
		rows, cols := v.Grid[0], v.Grid[1]
		for k := range v.Tokens {
			pos[at] = next
			pos[length+at] = next + int64(k/cols%rows)
			pos[2*length+at] = next + int64(k%cols)
			at++
		}
		next += int64(max(rows, cols))
	}
	for at < length {
		next = put(pos, length, at, next)
		at++
	}
	return &infer.Tensor{Name: infer.PositionIDs, DType: infer.I64, Shape: []int{3, length}, I64: pos}, nil
}

// put writes one position on the three axes, and returns the next.
func put(pos []int64, length, at int, p int64) int64 {
	pos[at], pos[length+at], pos[2*length+at] = p, p, p
	return p + 1
}
