package preference

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/internal/imageproc"
	"github.com/rewardloop/rewardloop/internal/infer"
)

// sidecarFile is the name of the sidecar in a model's folder.
const sidecarFile = "scorer.json"

// kind says which graphs a folder holds and what they compute.
type kind string

// The kinds.
const (
	// kindTwoTower: one graph makes an embedding of a picture, another one of a text.
	kindTwoTower kind = "two_tower"
	// kindCombined: one graph makes both of a picture and a text; optimum's export of CLIP.
	kindCombined kind = "combined"
	// kindImage: one graph makes a score of a picture.
	kindImage kind = "image"
	// kindText: one graph makes scores of a text: a text reward model.
	kindText kind = "text"
	// kindGraph: one graph makes scores of any of the inputs there are, and of constants.
	kindGraph kind = "graph"
)

func kinds() []kind { return []kind{kindTwoTower, kindCombined, kindImage, kindText, kindGraph} }

// Bounds of what a sidecar may say.
const (
	maxSidecar  = 1 << 20 // bytes of the file
	maxWord     = 256     // bytes of a name
	maxTemplate = 16 << 10
	maxLength   = 1 << 17 // tokens of a text
	maxConstant = 1 << 12 // elements of a constant
	maxLabels   = 1 << 16 // places of a score
)

// sidecar is what scorer.json says about the model beside it. Files, inputs and outputs
// are as they were written: an empty name is the default one.
type sidecar struct {
	Kind kind
	// Name stands for the model in errors, metrics and the log.
	Name string
	// Source and Licence say where the weights come from and what may be done with them.
	Source, Licence string

	Files   files
	Inputs  inputs
	Outputs outputs
	// Image makes the tensor of a picture; nil: the model looks at none.
	Image *imageproc.Recipe
	// Text makes the tokens; nil: the model reads nothing.
	Text *textRules
	// LogitScale is what a cosine is multiplied by, exp already taken; nil: not said.
	LogitScale *float64
	// LogitBias is added after that; SigLIP has one.
	LogitBias float64
	Score     scoreRules
	// Constants are fed to inputs that depend on nothing; of kind graph alone.
	Constants []constant
}

// files are paths below the folder.
type files struct{ Vision, Text, Model, Tokenizer string }

// inputs are names of inputs.
type inputs struct{ Pixels, IDs, Mask, Types string }

// outputs are names of outputs.
type outputs struct{ Image, Text, Logits, Score string }

// textRules say how a text becomes tokens.
type textRules struct {
	// Length is the most tokens a text has, special ones included; longer ones are cut.
	Length int
	// Pad is "longest" (default: no longer than the text, but for what lets texts of
	// almost equal length share a batch) or "max_length": always Length tokens.
	Pad string
	// PadID is the token that fills.
	PadID int64
	// Lower makes the text lower case first, as Python's str.lower does.
	Lower bool
	// StripPunctuation removes ASCII punctuation and needless white space, as SigLIP's
	// canonicalize_text does.
	StripPunctuation bool
	// Template has {prompt} and {response} where those go. Empty: the prompt alone, but
	// of kind text prompt and response as a pair.
	Template string
}

// The values of textRules.Pad.
const (
	padLongest   = "longest"
	padMaxLength = "max_length"
)

// scoreRules make one number of what a graph answers.
type scoreRules struct {
	// Transform is "raw" (default), "sigmoid", or "softmax" over all places.
	Transform string
	// Index is the place of the number.
	Index int
	// Scale and Offset make scale·x + offset of it; Scale is 1 unless written.
	Scale, Offset float64
}

// The values of scoreRules.Transform.
const (
	transformRaw     = "raw"
	transformSigmoid = "sigmoid"
	transformSoftmax = "softmax"
)

// constant is the value of an input for every item, without a batch axis.
type constant struct {
	Name   string
	DType  infer.DType
	Shape  []int
	Values []float64
}

// readFile reads a file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err //nolint:wrapcheck // names the path
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err //nolint:wrapcheck // names the path
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return data, nil
}

// parseSidecar reads a sidecar and names everything that is wrong with it.
func parseSidecar(data []byte) (*sidecar, error) {
	s := &sidecar{Score: scoreRules{Transform: transformRaw, Scale: 1}}
	r := &reader{}
	format := 0
	r.object("", data, fields{
		"format": &format, "kind": &s.Kind, "name": &s.Name, "source": &s.Source, "licence": &s.Licence,
		"files":   fields{"vision": &s.Files.Vision, "text": &s.Files.Text, "model": &s.Files.Model, "tokenizer": &s.Files.Tokenizer},
		"inputs":  fields{"pixels": &s.Inputs.Pixels, "ids": &s.Inputs.IDs, "mask": &s.Inputs.Mask, "types": &s.Inputs.Types},
		"outputs": fields{"image": &s.Outputs.Image, "text": &s.Outputs.Text, "logits": &s.Outputs.Logits, "score": &s.Outputs.Score},
		"image": func(at string, raw json.RawMessage) {
			s.Image = new(imageproc.Recipe)
			r.value(at, raw, s.Image)
		},
		"text":  func(at string, raw json.RawMessage) { s.Text = r.text(at, raw) },
		"score": fields{"transform": &s.Score.Transform, "index": &s.Score.Index, "scale": &s.Score.Scale, "offset": &s.Score.Offset},
		"logit_scale": func(at string, raw json.RawMessage) {
			s.LogitScale = new(float64)
			r.value(at, raw, s.LogitScale)
		},
		"logit_bias": &s.LogitBias,
		"constants":  func(at string, raw json.RawMessage) { s.Constants = r.constants(at, raw) },
	})
	if len(r.faults) == 0 || format != 0 {
		r.check(format == 1, "format is %d, want 1", format)
	}
	s.validate(r)
	if err := errors.Join(r.faults...); err != nil {
		return nil, err
	}
	return s, nil
}

// validate adds what is wrong to the faults.
func (s *sidecar) validate(r *reader) {
	r.check(slices.Contains(kinds(), s.Kind), "kind is %q, want one of %q", s.Kind, kinds())
	r.check(s.Name != "", "name is empty")
	for at, text := range map[string]string{"name": s.Name, "source": s.Source, "licence": s.Licence} {
		r.word(at, text)
	}
	for at, path := range map[string]string{"files.vision": s.Files.Vision, "files.text": s.Files.Text, "files.model": s.Files.Model, "files.tokenizer": s.Files.Tokenizer} {
		r.word(at, path)
		r.check(path == "" || filepath.IsLocal(path), "%s is %q, want a path below the folder", at, path)
	}
	r.distinct("inputs", map[string]string{"pixels": s.Inputs.Pixels, "ids": s.Inputs.IDs, "mask": s.Inputs.Mask, "types": s.Inputs.Types})
	outputs := map[string]string{"image": s.Outputs.Image, "text": s.Outputs.Text, "logits": s.Outputs.Logits, "score": s.Outputs.Score}
	if s.Kind == kindTwoTower { // each of another file: SigLIP's are both pooler_output
		r.word("outputs.text", s.Outputs.Text)
		delete(outputs, "text")
	}
	r.distinct("outputs", outputs)
	switch s.Kind {
	case kindTwoTower, kindCombined:
		r.check(s.Image != nil, "image is missing: kind %s needs pictures", s.Kind)
		r.check(s.Text != nil, "text is missing: kind %s reads texts", s.Kind)
	case kindImage:
		r.check(s.Image != nil, "image is missing: kind image needs pictures")
		r.check(s.Text == nil, "text is set, but kind image reads no text")
	case kindText:
		r.check(s.Text != nil, "text is missing: kind text reads texts")
		r.check(s.Image == nil, "image is set, but kind text reads no pictures")
	case kindGraph:
		r.check(s.Text != nil || s.Image != nil, "image and text are missing: kind graph needs at least one of them")
	}
	r.check(s.Kind == kindGraph || len(s.Constants) == 0, "constants are only for kind graph, got kind %s", s.Kind)
	r.check(s.LogitScale == nil || *s.LogitScale > 0 && finite(*s.LogitScale), "logit_scale is not a positive number; want the factor itself, after exp")
	r.check(finite(s.LogitBias), "logit_bias is not finite")
	s.Score.validate(r)
}

func (s scoreRules) validate(r *reader) {
	transforms := []string{transformRaw, transformSigmoid, transformSoftmax}
	r.check(slices.Contains(transforms, s.Transform), "score.transform is %q, want one of %q", s.Transform, transforms)
	r.check(s.Index >= 0 && s.Index < maxLabels, "score.index is %d, want 0 to %d", s.Index, maxLabels-1)
	r.check(s.Scale != 0 && finite(s.Scale), "score.scale is %v, want a finite number other than 0", s.Scale)
	r.check(finite(s.Offset), "score.offset is not finite")
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// names fills in what the sidecar leaves to default.
func (f files) names() files {
	return files{orElse(f.Vision, "vision_model.onnx"), orElse(f.Text, "text_model.onnx"), orElse(f.Model, "model.onnx"), orElse(f.Tokenizer, "tokenizer.json")}
}

func (i inputs) names() inputs {
	return inputs{orElse(i.Pixels, "pixel_values"), orElse(i.IDs, "input_ids"), orElse(i.Mask, "attention_mask"), orElse(i.Types, "token_type_ids")}
}

func (o outputs) names() outputs {
	return outputs{orElse(o.Image, "image_embeds"), orElse(o.Text, "text_embeds"), orElse(o.Logits, "logits_per_image"), orElse(o.Score, "score")}
}

func orElse(name, def string) string {
	if name == "" {
		return def
	}
	return name
}

// fields are what an object may hold: a pointer to decode into, fields of an object
// below, or a function that is given the value and where it stands.
type fields map[string]any

// reader reads objects strictly and remembers every fault.
type reader struct{ faults []error }

func (r *reader) check(ok bool, format string, args ...any) {
	if !ok {
		r.faults = append(r.faults, fmt.Errorf(format, args...))
	}
}

func (r *reader) word(at, text string) {
	r.check(len(text) <= maxWord, "%s has %d bytes, want at most %d", at, len(text), maxWord)
}

// distinct checks names below at: short, and no two the same.
func (r *reader) distinct(at string, names map[string]string) {
	seen := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(names)) {
		name := names[k]
		r.word(at+"."+k, name)
		other, twice := seen[name]
		r.check(name == "" || !twice, "%s.%s and %s.%s are both %q", at, other, at, k, name)
		seen[name] = k
	}
}

// object reads an object whose keys are those of want, each at most once.
func (r *reader) object(at string, data json.RawMessage, want fields) {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		r.check(false, "%s is not a JSON object", orElse(at, "the file"))
		return
	}
	seen := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		if err != nil {
			r.check(false, "%s: %w", orElse(at, "the file"), err)
			return
		}
		name, _ := key.(string)
		r.member(below(at, name), name, value, want, seen)
	}
	if _, err := d.Token(); err != nil {
		r.check(false, "%s: %w", orElse(at, "the file"), err)
		return
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		r.check(false, "%s: more than one JSON value", orElse(at, "the file"))
	}
}

func (r *reader) member(at, name string, value json.RawMessage, want fields, seen map[string]bool) {
	into, known := want[name]
	switch {
	case !known:
		r.check(false, "%.80q is unknown, want one of %q", at, slices.Sorted(maps.Keys(want)))
	case seen[name]:
		r.check(false, "duplicate name %s", at)
	}
	if !known || seen[name] {
		return
	}
	seen[name] = true
	switch into := into.(type) {
	case fields:
		r.object(at, value, into)
	case func(string, json.RawMessage):
		into(at, value)
	default:
		r.value(at, value, into)
	}
}

func below(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// value decodes a value; null is refused, for absence is not zero.
func (r *reader) value(at string, data json.RawMessage, into any) {
	if bytes.Equal(data, []byte("null")) {
		r.check(false, "%s is null", at)
		return
	}
	if err := json.Unmarshal(data, into); err != nil {
		r.check(false, "%s: %w", at, err)
	}
}

func (r *reader) text(at string, data json.RawMessage) *textRules {
	t := &textRules{Pad: padLongest}
	r.object(at, data, fields{
		"length": &t.Length, "pad": &t.Pad, "pad_id": &t.PadID, "lower": &t.Lower,
		"strip_punctuation": &t.StripPunctuation, "template": &t.Template,
	})
	r.check(t.Length >= 1 && t.Length <= maxLength, "%s.length is %d, want 1 to %d tokens", at, t.Length, maxLength)
	r.check(t.Pad == padLongest || t.Pad == padMaxLength, "%s.pad is %q, want %s or %s", at, t.Pad, padLongest, padMaxLength)
	r.check(t.PadID >= 0 && t.PadID <= math.MaxInt32, "%s.pad_id is %d, want a token's number", at, t.PadID)
	if err := checkTemplate(t.Template); err != nil {
		r.check(false, "%s.template %w", at, err)
	}
	return t
}

// The places of a template.
const (
	promptPlace   = "{prompt}"
	responsePlace = "{response}"
)

// checkTemplate says what is wrong with a template; the empty one is left to default.
func checkTemplate(t string) error {
	if t == "" {
		return nil
	}
	if len(t) > maxTemplate {
		return fmt.Errorf("has %d bytes, want at most %d", len(t), maxTemplate)
	}
	if !strings.Contains(t, promptPlace) && !strings.Contains(t, responsePlace) {
		return fmt.Errorf("is %.80q, want %s or %s inside", t, promptPlace, responsePlace)
	}
	return nil
}

func (r *reader) constants(at string, data json.RawMessage) []constant {
	var list []json.RawMessage
	r.value(at, data, &list)
	out := make([]constant, 0, len(list))
	for i, raw := range list {
		c, at := constant{}, fmt.Sprintf("%s[%d]", at, i)
		r.object(at, raw, fields{"name": &c.Name, "dtype": &c.DType, "shape": &c.Shape, "values": &c.Values})
		r.check(c.Name != "", "%s.name is empty", at)
		r.word(at+".name", c.Name)
		if err := c.check(); err != nil {
			r.check(false, "%s: %w", at, err)
		}
		r.check(!slices.ContainsFunc(out, func(o constant) bool { return o.Name == c.Name }), "%s.name: duplicate name %q", at, c.Name)
		out = append(out, c)
	}
	return out
}

// check says what is wrong with the constant's value.
func (c constant) check() error {
	n := infer.Elements(c.Shape)
	if n < 0 || n > maxConstant || n != len(c.Values) {
		return fmt.Errorf("%d values for shape %v, want one for each element and at most %d", len(c.Values), c.Shape, maxConstant)
	}
	var low, high float64
	whole := true
	switch c.DType {
	case infer.F32:
		low, high, whole = -math.MaxFloat32, math.MaxFloat32, false
	case infer.I64:
		low, high = -1<<53, 1<<53
	case infer.I32:
		low, high = math.MinInt32, math.MaxInt32
	case infer.U8:
		low, high = 0, 255
	case infer.Bool:
		low, high = 0, 1
	default:
		return fmt.Errorf("dtype is %q, want F32, I64, I32, U8 or BOOL", c.DType)
	}
	for _, v := range c.Values {
		if v < low || v > high || whole && v != math.Trunc(v) {
			return fmt.Errorf("%v is not a value of dtype %s", v, c.DType)
		}
	}
	return nil
}

// tensor is the constant as an item's input.
func (c constant) tensor() infer.Tensor {
	t := infer.Tensor{Name: c.Name, DType: c.DType, Shape: slices.Clone(c.Shape)}
	for _, v := range c.Values {
		switch c.DType {
		case infer.F32:
			t.F32 = append(t.F32, float32(v))
		case infer.I64:
			t.I64 = append(t.I64, int64(v))
		case infer.I32:
			t.I32 = append(t.I32, int32(v))
		case infer.U8, infer.Bool:
			t.U8 = append(t.U8, byte(v))
		}
	}
	return t
}
