package randmodel

import (
	"fmt"
	"math"
)

// SmolVLM are the sizes of an Idefics3 or SmolVLM.
type SmolVLM struct {
	Vision        Tower
	Tile, Patch   int // pixels
	Shuffle       int // patches a side that become one token
	Decoder       Tower
	KeyHeads      int
	Words, Places int // tokens
}

// Smol256M is HuggingFaceTB/SmolVLM-256M-Instruct.
func Smol256M() SmolVLM {
	return SmolVLM{
		Vision: Tower{12, 768, 12, 3072}, Tile: 512, Patch: 16, Shuffle: 4,
		Decoder: Tower{30, 576, 9, 1536}, KeyHeads: 3, Words: 49280, Places: 8192,
	}
}

// TinySmol has the form of a SmolVLM and costs little.
func TinySmol(words int) SmolVLM {
	return SmolVLM{
		Vision: Tower{1, 32, 2, 64}, Tile: 64, Patch: 8, Shuffle: 2,
		Decoder: Tower{2, 32, 4, 64}, KeyHeads: 2, Words: words, Places: 8192,
	}
}

// Tokens is how many a tile takes.
func (s SmolVLM) Tokens() int {
	side := s.Tile / s.Patch / s.Shuffle
	return side * side
}

// WriteVision writes the encoder: pixel_values F32 [B, 3, T, T] to image_features F32
// [B, tokens, D]. Weights are of the type floats, as CLIP.WriteVision has them.
func (s SmolVLM) WriteVision(path string, floats DType) error {
	g := newGraph(floats, 3)
	side, w, f := s.Tile/s.Patch, s.Vision.Width, s.Shuffle
	x := g.patches(g.in("pixel_values", -1, 3, s.Tile, s.Tile), s.Patch, w, side*side)
	x = g.do("Add", x, g.weight(0.02, 0, 1, side*side, w))
	for range s.Vision.Layers {
		x = g.layer(x, s.Vision, "", gelu)
	}
	x = g.norm(x, w)
	// Squares of f by f patches become one token.
	x = g.reshape(x, 0, int64(side/f), int64(f), int64(side/f), int64(f*w))
	x = g.reshape(g.transpose(x, 0, 1, 3, 2, 4), 0, int64(s.Tokens()), int64(f*f*w))
	x = g.do("MatMul", x, g.weight(1/math.Sqrt(float64(f*f*w)), 0, f*f*w, s.Decoder.Width))
	g.out(x, "image_features", -1, s.Tokens(), s.Decoder.Width)
	return g.write(path)
}

// WriteEmbed writes what makes embeddings of tokens: input_ids I64 [B, L] to inputs_embeds F32
// [B, L, D].
func (s SmolVLM) WriteEmbed(path string) error {
	g := newGraph(Float32, 4)
	ids := g.input("input_ids", Int64, -1, -1)
	g.out(g.do("Gather", g.weight(1, 0, s.Words, s.Decoder.Width), ids), "inputs_embeds", -1, -1, s.Decoder.Width)
	return g.write(path)
}

// WriteDecoder writes the language model with its cache, as transformers.js has it. It gives the
// logits of the positions that are asked for and no others, which would be 20 MB a prompt.
// Weights and the cache are of the type floats; embeddings and logits are F32.
func (s SmolVLM) WriteDecoder(path string, floats DType) error {
	g := newGraph(floats, 5)
	d, dim := s.Decoder, s.Decoder.Width/s.Decoder.Heads
	x := g.in("inputs_embeds", -1, -1, d.Width)
	mask, places := g.input("attention_mask", Int64, -1, -1), g.input("position_ids", Int64, -1, -1)
	keep := g.input("num_logits_to_keep", Int64)
	bias := g.causal(mask, x)
	cos, sin := g.rotation(places, s.Places, dim)
	for i := range d.Layers {
		h := g.rms(x, d.Width)
		q := g.rotate(g.heads(g.plain(h, d.Width, d.Width), d.Heads, d.Width), cos, sin, dim)
		k := g.rotate(g.heads(g.plain(h, d.Width, s.KeyHeads*dim), s.KeyHeads, s.KeyHeads*dim), cos, sin, dim)
		v := g.heads(g.plain(h, d.Width, s.KeyHeads*dim), s.KeyHeads, s.KeyHeads*dim)
		k, v = g.cache(i, "key", k, s.KeyHeads, dim), g.cache(i, "value", v, s.KeyHeads, dim)
		k, v = g.spread(k, s.KeyHeads, d.Heads, dim), g.spread(v, s.KeyHeads, d.Heads, dim)
		x = g.do("Add", x, g.plain(g.attend(q, k, v, bias, d.Width, d.Heads), d.Width, d.Width))
		h = g.rms(x, d.Width)
		gate := g.plain(h, d.Width, d.Inner)
		h = g.do("Mul", g.do("Mul", gate, g.do("Sigmoid", gate)), g.plain(h, d.Width, d.Inner))
		x = g.do("Add", x, g.plain(h, d.Inner, d.Width))
	}
	last := g.do("Neg", g.do("Unsqueeze", keep, g.ints(0)))
	x = g.do("Slice", g.rms(x, d.Width), last, g.ints(math.MaxInt64), g.ints(1))
	g.out(g.plain(x, d.Width, s.Words), "logits", -1, -1, s.Words)
	return g.write(path)
}

// plain is a linear layer without a bias.
func (g *graph) plain(x string, from, to int) string {
	return g.do("MatMul", x, g.weight(1/math.Sqrt(float64(from)), 0, from, to))
}

// rms divides by the root of the mean square.
func (g *graph) rms(x string, width int) string {
	mean := g.op("ReduceMean", []string{g.do("Mul", x, x)}, attribute{"axes", []int{-1}}, attribute{"keepdims", 1})
	root := g.do("Sqrt", g.do("Add", mean, g.number(1e-5)))
	return g.do("Mul", g.do("Div", x, root), g.weight(0.02, 1, width))
}

// causal is what is added to the scores: a token looks at none behind it, and at none that the
// mask leaves away. [B, 1, new, all].
func (g *graph) causal(mask, x string) string {
	fresh, all := g.size(x, 1), g.size(mask, 1)
	first := g.do("Sub", all, fresh)
	one := g.scalar(1)
	keys := g.do("Range", g.scalar(0), g.do("Squeeze", all), one)
	asks := g.do("Range", g.do("Squeeze", first), g.do("Squeeze", all), one)
	late := g.do("Greater", g.do("Unsqueeze", keys, g.ints(0)), g.do("Unsqueeze", asks, g.ints(1)))
	late = g.do("Mul", g.cast(late, g.floats), g.number(-1e4))
	absent := g.do("Mul", g.do("Sub", g.number(1), g.cast(mask, g.floats)), g.number(-1e4))
	return g.do("Add", g.do("Unsqueeze", absent, g.ints(1, 2)), late)
}

// rotation are the cosines and sines of the positions, [B, 1, new, dim].
func (g *graph) rotation(places string, most, dim int) (cos, sin string) {
	tables := [2][]float32{make([]float32, most*dim), make([]float32, most*dim)}
	for p := range most {
		for i := range dim {
			angle := float64(p) * math.Pow(100_000, -2*float64(i%(dim/2))/float64(dim))
			tables[0][p*dim+i], tables[1][p*dim+i] = float32(math.Cos(angle)), float32(math.Sin(angle))
		}
	}
	var out [2]string
	for i, t := range tables {
		out[i] = g.do("Unsqueeze", g.do("Gather", g.table(t, most, dim), places), g.ints(1))
	}
	return out[0], out[1]
}

// rotate turns pairs of a head's numbers by their position.
func (g *graph) rotate(x, cos, sin string, dim int) string {
	low := g.do("Slice", x, g.ints(0), g.ints(int64(dim/2)), g.ints(3))
	high := g.do("Slice", x, g.ints(int64(dim/2)), g.ints(int64(dim)), g.ints(3))
	turned := g.op("Concat", []string{g.do("Neg", high), low}, attribute{"axis", 3})
	return g.do("Add", g.do("Mul", x, cos), g.do("Mul", turned, sin))
}

// cache puts what is new behind what was there, and gives it back as well.
func (g *graph) cache(layer int, what, now string, heads, dim int) string {
	past := g.input(fmt.Sprintf("past_key_values.%d.%s", layer, what), g.floats, -1, heads, -1, dim)
	name := fmt.Sprintf("present.%d.%s", layer, what)
	g.opTo([]string{name}, "Concat", []string{past, now}, attribute{"axis", 2})
	g.output(name, g.floats, -1, heads, -1, dim)
	return name
}

// spread repeats the heads of keys for the heads that share them.
func (g *graph) spread(x string, from, to, dim int) string {
	if from == to {
		return x
	}
	x = g.do("Unsqueeze", x, g.ints(2))
	shape := g.op("Concat", []string{g.size(x, 0), g.ints(int64(from), int64(to/from)), g.size(x, 3), g.ints(int64(dim))}, attribute{"axis", 0})
	return g.reshape(g.do("Expand", x, shape), 0, int64(to), -1, int64(dim))
}
