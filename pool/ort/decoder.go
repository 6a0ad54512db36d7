package ort

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// Names that exports of decoders share (transformers.js, optimum).
const (
	embedsPort    = "inputs_embeds"
	maskPort      = "attention_mask"
	positionsPort = infer.PositionIDs
	branchPort    = "use_cache_branch"
	keepPort      = "num_logits_to_keep"
	logitsPort    = "logits"
	pastPrefix    = "past_key_values."
	presentPrefix = "present."
)

// role is what an input of a decoder is fed with.
type role uint8

const (
	feedNothing   role = iota // it is not known
	feedEmbeds                // [B, n, D]
	feedMask                  // ones, [B, past+n]
	feedPositions             // [B, n] or [3, B, n]
	feedCache                 // keys or values of a layer
	feedBranch                // whether the cache holds anything
	feedKeep                  // of how many positions logits are wanted
)

// decoderPorts say what a decoder takes and gives, in its own order.
type decoderPorts struct {
	feeds  []decoderFeed
	outs   []int       // of every output its place in caches; -1: the logits
	caches []cachePort // the keys of layer 0, its values, the keys of layer 1 and so on

	width      int // of an embedding; -1: not said
	vocabulary int // -1: not said
	batch      int // -1: free, else 1
	axes       int // of positions: 3, 1, or 0 where there are none
	keep       bool
}

type decoderFeed struct {
	role  role
	cache int // its place in caches
	port  infer.Port
}

// cachePort is the shape of one layer's keys or values: mostly [B, heads, past, dim].
type cachePort struct {
	name  string
	dtype infer.DType // F32 or F16
	shape []int       // -1 for the batch and the past
	axis  int         // which is the past
}

// of is the shape that the cache has for a batch and so many tokens.
func (c cachePort) of(batch, tokens int) []int {
	out := slices.Clone(c.shape)
	out[0], out[c.axis] = batch, tokens
	return out
}

// tensor is the cache in memory, of whose first bytes it takes as many as it has.
func (c cachePort) tensor(batch, tokens int, memory func(size int) []byte) infer.Tensor {
	t := infer.Tensor{DType: c.dtype, Shape: c.of(batch, tokens)}
	size := t.DType.Size() * infer.Elements(t.Shape)
	setRaw(&t, memory(size)[:size])
	return t
}

// binding collects what is wrong with a decoder while its ports are bound.
type binding struct {
	ports  decoderPorts
	faults []string
	keys   map[string]infer.Port // inputs past_key_values.*, without the prefix
	gives  map[string]infer.Port // outputs present.*, without the prefix
}

// keptOutput says which outputs of a decoder are asked for. Others, such as hidden
// states, would be computed and copied for nobody.
func keptOutput(name string) bool {
	return name == logitsPort || strings.HasPrefix(name, presentPrefix)
}

// bindDecoder finds out what a decoder is to be fed with. The error wraps
// infer.ErrModel and names everything that does not fit.
func bindDecoder(m infer.Model, inputs, outputs []infer.Port) (decoderPorts, error) {
	b := &binding{keys: make(map[string]infer.Port), gives: make(map[string]infer.Port)}
	b.ports.width, b.ports.vocabulary, b.ports.batch = -1, -1, -1
	for _, p := range append(slices.Clone(inputs), outputs...) {
		if key, ok := strings.CutPrefix(p.Name, pastPrefix); ok {
			b.keys[key] = p
		}
		if key, ok := strings.CutPrefix(p.Name, presentPrefix); ok {
			b.gives[key] = p
		}
	}
	b.bindCaches()
	for _, p := range inputs {
		b.bindInput(p)
	}
	for _, p := range outputs {
		b.bindOutput(p)
	}
	for _, need := range []role{feedEmbeds, feedMask} {
		if !slices.ContainsFunc(b.ports.feeds, func(f decoderFeed) bool { return f.role == need }) {
			b.fault("no input %q", map[role]string{feedEmbeds: embedsPort, feedMask: maskPort}[need])
		}
	}
	if !slices.Contains(b.ports.outs, -1) {
		b.fault("no output %q", logitsPort)
	}
	if len(b.faults) > 0 {
		return b.ports, fmt.Errorf("%w: %q from %s is not a decoder that can be run: %s", infer.ErrModel, m.Name, m.Path, strings.Join(b.faults, "; "))
	}
	return b.ports, nil
}

func (b *binding) fault(format string, args ...any) {
	b.faults = append(b.faults, fmt.Sprintf(format, args...))
}

// bindCaches takes the inputs past_key_values.{i}.key and .value in for i from 0.
func (b *binding) bindCaches() {
	if len(b.keys) == 0 {
		b.fault("no cache, that is no inputs %q: export the model with past key values (decoder_model_merged.onnx)", pastPrefix+"*")
		return
	}
	layers := (len(b.keys) + 1) / 2
	for i := range layers {
		for _, what := range []string{"key", "value"} {
			key := strconv.Itoa(i) + "." + what
			p, ok := b.keys[key]
			if !ok {
				b.fault("no input %q, but %d other inputs of a cache", pastPrefix+key, len(b.keys))
				continue
			}
			if present, ok := b.gives[key]; !ok {
				b.fault("no output %q for its input %q", presentPrefix+key, p.Name)
			} else if len(present.Shape) != len(p.Shape) || present.DType != p.DType {
				b.fault("output %s does not fit input %s", list([]infer.Port{present}), list([]infer.Port{p}))
			}
			b.ports.caches = append(b.ports.caches, b.cache(key, p))
		}
	}
}

// cache finds the axis of the past: the one besides the batch whose size is free.
func (b *binding) cache(key string, p infer.Port) cachePort {
	c := cachePort{name: key, dtype: infer.DType(p.DType), shape: p.Shape}
	if !p.Carries(infer.F32) || len(p.Shape) != 4 {
		b.fault("input %s is not F32 or F16 with four axes: export the model with such a cache", list([]infer.Port{p}))
		return c
	}
	b.first(p)
	for axis, n := range p.Shape[1:] {
		if n < 0 && c.axis > 0 {
			c.axis = 0
			break
		}
		if n < 0 {
			c.axis = axis + 1
		}
	}
	if c.axis == 0 {
		b.fault("input %s must have one free axis besides the batch, that of the past, and fixed sizes of the other axes", list([]infer.Port{p}))
	} else if infer.Elements(c.of(1, 1)) < 1 {
		b.fault("input %s has no numbers for a token, or more than any model needs", list([]infer.Port{p}))
	}
	return c
}

// first looks at the batch axis of a port.
func (b *binding) first(p infer.Port) {
	if n := p.Shape[0]; n == 1 {
		b.ports.batch = 1
	} else if n >= 0 {
		b.fault("port %s is for a batch of exactly %d: export the model with a free first axis, or 1", list([]infer.Port{p}), n)
	}
}

func (b *binding) bindInput(p infer.Port) {
	feed := decoderFeed{port: p}
	want := func(dtype infer.DType, ranks ...int) bool {
		ok := p.Carries(dtype) && slices.Contains(ranks, len(p.Shape))
		if !ok {
			b.fault("input %s is not %s of %v axes", list([]infer.Port{p}), dtype, ranks)
		}
		return ok
	}
	single := len(p.Shape) == 0 || len(p.Shape) == 1 && p.Shape[0] <= 1
	switch key, past := strings.CutPrefix(p.Name, pastPrefix); {
	case past:
		feed.role = feedCache
		if feed.cache = slices.IndexFunc(b.ports.caches, func(c cachePort) bool { return c.name == key }); feed.cache < 0 {
			b.fault("input %q does not belong to a known form of cache (%s<layer>.key and .value, layers from 0)", p.Name, pastPrefix)
		}
	case p.Name == embedsPort:
		if feed.role = feedEmbeds; want(infer.F32, 3) {
			b.ports.width = p.Shape[2]
			b.first(p)
		}
	case p.Name == maskPort:
		feed.role = feedMask
		want(infer.I64, 2)
	case p.Name == positionsPort:
		feed.role, b.ports.axes = feedPositions, 1
		if want(infer.I64, 2, 3) && len(p.Shape) == 3 {
			b.ports.axes = 3
			if p.Shape[0] >= 0 && p.Shape[0] != 3 {
				b.fault("input %s has positions of %d axes, want 3", list([]infer.Port{p}), p.Shape[0])
			}
		}
	case p.Name == branchPort && single:
		feed.role = feedBranch
		want(infer.Bool, 0, 1)
	case p.Name == keepPort && single:
		feed.role, b.ports.keep = feedKeep, true
		want(infer.I64, 0, 1)
	default:
		b.fault("input %s is unknown and gets no value", list([]infer.Port{p}))
	}
	b.ports.feeds = append(b.ports.feeds, feed)
}

func (b *binding) bindOutput(p infer.Port) {
	if p.Name == logitsPort {
		b.ports.outs = append(b.ports.outs, -1)
		if !p.Carries(infer.F32) || len(p.Shape) != 3 {
			b.fault("output %s is not F32 or F16 with three axes", list([]infer.Port{p}))
			return
		}
		b.ports.vocabulary = p.Shape[2]
		return
	}
	key := strings.TrimPrefix(p.Name, presentPrefix)
	at := slices.IndexFunc(b.ports.caches, func(c cachePort) bool { return c.name == key })
	if at < 0 {
		b.fault("no input %q for its output %q", pastPrefix+key, p.Name)
	}
	b.ports.outs = append(b.ports.outs, at)
}

// bytes is what a batch takes in memory of ours: the cache once, or twice where it
// grows, the embeddings of the prompt and the logits of so many positions.
func (p decoderPorts) bytes(batch, prompt, more, logits int) int64 {
	tokens, copies := int64(prompt+more), int64(1)
	if more > 0 {
		copies = 2
	}
	embedding := infer.F32.Size()
	for _, f := range p.feeds {
		if f.role == feedEmbeds && f.port.DType == string(infer.F16) {
			embedding += infer.F16.Size() // it is there in both
		}
	}
	n := int64(embedding)*int64(prompt)*int64(max(p.width, 1)) + int64(infer.F32.Size())*int64(logits)*int64(max(p.vocabulary, 1))
	for _, c := range p.caches {
		n += copies * tokens * int64(c.dtype.Size()) * int64(infer.Elements(c.of(1, 1)))
	}
	return int64(batch) * n
}

// fits reports whether the caches and the logits of a batch are tensors that can be made: a
// bound on memory of 4 GiB or more lets some pass that cannot.
func (p decoderPorts) fits(batch, tokens, logits int) bool {
	return infer.Elements([]int{batch, logits, p.vocabulary}) >= 0 &&
		!slices.ContainsFunc(p.caches, func(c cachePort) bool { return infer.Elements(c.of(batch, tokens)) < 0 })
}

// bindEmbed checks the model that makes embeddings of token ids, of the given width
// (-1: any).
func bindEmbed(m infer.Model, info infer.Info, width int) error {
	var faults []string
	for _, p := range info.Inputs {
		switch {
		case p.Name != infer.InputIDs:
			faults = append(faults, "input "+list([]infer.Port{p})+" is unknown and gets no value")
		case p.DType != string(infer.I64) || len(p.Shape) != 2:
			faults = append(faults, fmt.Sprintf("input %s is not I64 with two axes", list([]infer.Port{p})))
		}
	}
	if !slices.ContainsFunc(info.Inputs, func(p infer.Port) bool { return p.Name == infer.InputIDs }) {
		faults = append(faults, fmt.Sprintf("no input %q", infer.InputIDs))
	}
	out := info.Outputs[0]
	if i := slices.IndexFunc(info.Outputs, func(p infer.Port) bool { return p.Name == embedsPort }); i >= 0 {
		out = info.Outputs[i]
	}
	switch {
	case len(info.Outputs) > 1 && out.Name != embedsPort:
		faults = append(faults, fmt.Sprintf("the outputs are %s, want %q", list(info.Outputs), embedsPort))
	case !out.Carries(infer.F32) || len(out.Shape) != 3:
		faults = append(faults, fmt.Sprintf("output %s is not F32 or F16 with three axes", list([]infer.Port{out})))
	case width >= 0 && out.Shape[2] >= 0 && out.Shape[2] != width:
		faults = append(faults, fmt.Sprintf("output %s has %d numbers, but the decoder's %q has %d", list([]infer.Port{out}), out.Shape[2], embedsPort, width))
	}
	if len(faults) > 0 {
		return fmt.Errorf("%w: %q from %s is not an embed_tokens model that can be run: %s", infer.ErrModel, m.Name, m.Path, strings.Join(faults, "; "))
	}
	return nil
}

// LanguageLimits are limits for language models in a process.
type LanguageLimits struct {
	// Positions is the maximum number of tokens of a prompt and its answer together. The default is
	// 32,768.
	Positions int `json:"positions"`
	// Memory is the maximum size of the cache, the embeddings and the logits of a batch, in bytes;
	// a larger batch is split. The default is 2 GiB. The runtime's own memory, and the rounding of
	// sizes up to powers of two, come on top.
	Memory int64 `json:"memory"`
}

func (l LanguageLimits) withDefaults() LanguageLimits {
	return LanguageLimits{Positions: cmp.Or(l.Positions, 1<<15), Memory: cmp.Or(l.Memory, 2<<30)}
}
