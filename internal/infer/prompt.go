package infer

import (
	"errors"
	"fmt"
	"slices"
)

// The names of the inputs of an item for a language model; see Generate.
const (
	InputIDs      = "input_ids"
	ImageFeatures = "image_features"
	PositionIDs   = "position_ids"
)

// The keys of Info.Metadata for a language model, in addition to the entries of its file. The
// values are decimal numbers.
const (
	MetaVocabulary = "language.vocabulary" // size of the vocabulary: number of logits
	MetaLayers     = "language.layers"     // number of pairs of keys and values in the cache
	MetaWidth      = "language.width"      // D of image_features and inputs_embeds
	MetaAxes       = "language.positions"  // number of axes of position_ids: 3, 1, or 0 if the model has no such input
	MetaLongest    = "language.longest"    // maximum number of tokens of prompt and answer together
)

// Check returns an error that wraps ErrInput and lists everything that is wrong with the item, for
// any model.
func (r Request) Check() error {
	if r.Message != nil {
		return r.Message.check(r)
	}
	if len(r.Inputs) == 0 {
		return fmt.Errorf("%w: no inputs", ErrInput)
	}
	var faults []error
	for _, t := range r.Inputs {
		faults = append(faults, t.Check())
	}
	faults = append(faults, r.Generate.Check())
	if err := errors.Join(faults...); err != nil || r.Generate == nil {
		return err
	}
	return r.checkPrompt()
}

// check says what is wrong with an item of a model in Python.
func (m *Message) check(r Request) error {
	switch {
	case len(m.Head) == 0:
		return fmt.Errorf("%w: a message without a head", ErrInput)
	case len(r.Inputs) > 0 || len(r.Outputs) > 0 || r.Reduce != "" || r.Whole || r.Generate != nil:
		return fmt.Errorf("%w: a message excludes inputs, outputs, reduction and generation", ErrInput)
	}
	return nil
}

// checkPrompt looks at the inputs of a language model.
func (r Request) checkPrompt() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrInput}, args...)...)
	}
	if r.Reduce != "" || r.Whole {
		return bad("a request with generation must have no reduction and must not be Whole")
	}
	ids, ok := r.Input(InputIDs)
	if !ok || ids.DType != I64 || len(ids.Shape) != 1 || ids.Len() == 0 {
		return bad("a language model takes %q as I64[L] with L above 0", InputIDs)
	}
	n := ids.Len()
	if r.Generate.MaxNew == 0 && r.Generate.Keep > n {
		return bad("logits of the last %d positions of a prompt of %d tokens", r.Generate.Keep, n)
	}
	if i := slices.IndexFunc(ids.I64, func(id int64) bool { return id < 0 }); i >= 0 {
		return bad("%q has %d at %d", InputIDs, ids.I64[i], i)
	}
	for i, t := range r.Inputs {
		if slices.ContainsFunc(r.Inputs[:i], func(o Tensor) bool { return o.Name == t.Name }) {
			return bad("duplicate name %q", t.Name)
		}
		switch t.Name {
		case InputIDs, ImageFeatures:
		case PositionIDs:
			if t.DType != I64 || !slices.Equal(t.Shape, []int{n}) && !slices.Equal(t.Shape, []int{3, n}) {
				return bad("%q is %s%v, want I64[%d] or I64[3 %d]: one for each of %q", PositionIDs, t.DType, t.Shape, n, n, InputIDs)
			}
			if i := slices.IndexFunc(t.I64, func(p int64) bool { return p < 0 }); i >= 0 {
				return bad("%q has %d at %d", PositionIDs, t.I64[i], i)
			}
		default:
			return bad("a language model takes %q, %q and %q, got %q", InputIDs, ImageFeatures, PositionIDs, t.Name)
		}
	}
	return r.checkImages(ids.I64, bad)
}

// checkImages compares the places that the prompt has for images with their features.
func (r Request) checkImages(ids []int64, bad func(string, ...any) error) error {
	token, places := r.Generate.ImageToken, 0
	for _, id := range ids {
		if id == token {
			places++
		}
	}
	features, ok := r.Input(ImageFeatures)
	switch {
	case !ok && token > 0 && places > 0:
		return bad("the prompt has %d image tokens %d but no %q", places, token, ImageFeatures)
	case !ok: // a token of 0 or less: the model is for text alone
	case features.DType != F32 || len(features.Shape) != 2:
		return bad("%q is %s%v, want F32[N D]", ImageFeatures, features.DType, features.Shape)
	case features.Shape[0] != places:
		return bad("the prompt has %d image tokens %d and %q has %d rows", places, token, ImageFeatures, features.Shape[0])
	}
	return nil
}

// Input returns the input with that name.
func (r Request) Input(name string) (Tensor, bool) {
	i := slices.IndexFunc(r.Inputs, func(t Tensor) bool { return t.Name == name })
	if i < 0 {
		return Tensor{}, false
	}
	return r.Inputs[i], true
}
