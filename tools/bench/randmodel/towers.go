package randmodel

import (
	"math"
)

// Tower are the sizes of a transformer.
type Tower struct {
	Layers, Width, Heads, Inner int
}

// CLIP are the sizes of a CLIP.
type CLIP struct {
	Vision, Text     Tower
	Picture, Patch   int // pixels
	Words, Positions int // tokens
	Projected        int
}

// Base32 is openai/clip-vit-base-patch32, but for its vocabulary, which is that of the tokenizer.
func Base32(words int) CLIP {
	return CLIP{
		Vision: Tower{12, 768, 12, 3072}, Text: Tower{12, 512, 8, 2048},
		Picture: 224, Patch: 32, Words: words, Positions: 77, Projected: 512,
	}
}

// TinyCLIP has the form of a CLIP and costs little.
func TinyCLIP(words int) CLIP {
	return CLIP{
		Vision: Tower{2, 32, 2, 64}, Text: Tower{2, 32, 2, 64},
		Picture: 64, Patch: 16, Words: words, Positions: 77, Projected: 16,
	}
}

// WriteVision writes the tower that looks: pixel_values F32 [B, 3, P, P] to image_embeds F32
// [B, D]. Weights are of the type floats; those of Float16 are those of Float32, rounded.
func (c CLIP) WriteVision(path string, floats DType) error {
	g := newGraph(floats, 1)
	side, w := c.Picture/c.Patch, c.Vision.Width
	x := g.in("pixel_values", -1, 3, c.Picture, c.Picture)
	x = g.patches(x, c.Patch, w, side*side)
	first := g.do("Expand", g.weight(0.5, 0, 1, 1, w), g.op("Concat", []string{g.size(x, 0), g.ints(1, int64(w))}, attribute{"axis", 0}))
	x = g.op("Concat", []string{first, x}, attribute{"axis", 1})
	x = g.do("Add", x, g.weight(0.02, 0, 1, side*side+1, w))
	x = g.norm(x, w)
	for range c.Vision.Layers {
		x = g.layer(x, c.Vision, "", quickGELU)
	}
	x = g.op("Gather", []string{x, g.scalar(0)}, attribute{"axis", 1})
	x = g.do("MatMul", g.norm(x, w), g.weight(1/math.Sqrt(float64(w)), 0, w, c.Projected))
	g.out(x, "image_embeds", -1, c.Projected)
	return g.write(path)
}

// WriteText writes the tower that reads: input_ids I64 [B, L] to text_embeds F32 [B, D], read at
// the token with the highest number, as CLIP does.
func (c CLIP) WriteText(path string, floats DType) error {
	g := newGraph(floats, 2)
	w := c.Text.Width
	ids := g.input("input_ids", Int64, -1, c.Positions)
	x := g.do("Gather", g.weight(0.5, 0, c.Words, w), ids)
	x = g.do("Add", x, g.weight(0.02, 0, 1, c.Positions, w))
	late := make([]float32, c.Positions*c.Positions)
	for i := range late {
		if i%c.Positions > i/c.Positions {
			late[i] = -1e4
		}
	}
	bias := g.table(late, c.Positions, c.Positions)
	for range c.Text.Layers {
		x = g.layer(x, c.Text, bias, quickGELU)
	}
	x = g.norm(x, w)
	end := g.op("ArgMax", []string{ids}, attribute{"axis", 1}, attribute{"keepdims", 1})
	x = g.op("GatherND", []string{x, end}, attribute{"batch_dims", 1})
	x = g.do("MatMul", x, g.weight(1/math.Sqrt(float64(w)), 0, w, c.Projected))
	g.out(x, "text_embeds", -1, c.Projected)
	return g.write(path)
}

// in is an input of float32, in the graph's own type.
func (g *graph) in(name string, shape ...int) string {
	x := g.input(name, Float32, shape...)
	if g.floats != Float32 {
		x = g.cast(x, g.floats)
	}
	return x
}

// out is an output of float32.
func (g *graph) out(x, name string, shape ...int) {
	g.opTo([]string{name}, "Cast", []string{x}, attribute{"to", int(Float32)})
	g.output(name, Float32, shape...)
}

// patches makes a row of vectors of a picture.
func (g *graph) patches(x string, patch, width, count int) string {
	size := 3 * patch * patch
	x = g.op("Conv", []string{x, g.weight(1/math.Sqrt(float64(size)), 0, width, 3, patch, patch)},
		attribute{"kernel_shape", []int{patch, patch}}, attribute{"strides", []int{patch, patch}})
	return g.transpose(g.reshape(x, 0, int64(width), int64(count)), 0, 2, 1)
}

func (g *graph) norm(x string, width int) string {
	return g.op("LayerNormalization", []string{x, g.weight(0.02, 1, width), g.weight(0.02, 0, width)},
		attribute{"axis", -1}, attribute{"epsilon", float32(1e-5)})
}

// linear multiplies with random weights that keep the size of what goes in, and adds a bias.
func (g *graph) linear(x string, from, to int) string {
	y := g.do("MatMul", x, g.weight(1/math.Sqrt(float64(from)), 0, from, to))
	return g.do("Add", y, g.weight(0.02, 0, to))
}

// heads makes [B, heads, L, width/heads] of [B, L, width].
func (g *graph) heads(x string, heads, width int) string {
	return g.transpose(g.reshape(x, 0, -1, int64(heads), int64(width/heads)), 0, 2, 1, 3)
}

// attend is attention of heads that are made, with a bias on what is looked at; "": none.
func (g *graph) attend(q, k, v, bias string, width, heads int) string {
	scores := g.do("MatMul", g.do("Mul", q, g.number(float32(1/math.Sqrt(float64(width/heads))))), g.transpose(k, 0, 1, 3, 2))
	if bias != "" {
		scores = g.do("Add", scores, bias)
	}
	weights := g.op("Softmax", []string{scores}, attribute{"axis", -1})
	return g.reshape(g.transpose(g.do("MatMul", weights, v), 0, 2, 1, 3), 0, -1, int64(width))
}

// layer is one of a transformer that normalises first.
func (g *graph) layer(x string, t Tower, bias string, activate func(g *graph, x string) string) string {
	w := t.Width
	h := g.norm(x, w)
	q, k, v := g.linear(h, w, w), g.linear(h, w, w), g.linear(h, w, w)
	a := g.attend(g.heads(q, t.Heads, w), g.heads(k, t.Heads, w), g.heads(v, t.Heads, w), bias, w, t.Heads)
	x = g.do("Add", x, g.linear(a, w, w))
	h = activate(g, g.linear(g.norm(x, w), w, t.Inner))
	return g.do("Add", x, g.linear(h, t.Inner, w))
}

func quickGELU(g *graph, x string) string {
	return g.do("Mul", x, g.do("Sigmoid", g.do("Mul", x, g.number(1.702))))
}

// gelu is the one with tanh.
func gelu(g *graph, x string) string {
	cube := g.do("Mul", g.do("Mul", x, x), g.do("Mul", x, g.number(0.044715)))
	t := g.do("Tanh", g.do("Mul", g.do("Add", x, cube), g.number(float32(math.Sqrt(2/math.Pi)))))
	return g.do("Mul", g.do("Mul", x, g.number(0.5)), g.do("Add", t, g.number(1)))
}
