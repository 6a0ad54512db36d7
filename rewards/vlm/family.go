package vlm

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// family is how models of one architecture are shown pictures. A further one takes one
// file here: it implements family and stands in families.
type family interface {
	// Name is the family's: "idefics3".
	Name() string
	// Bind looks at what the vision encoder takes and gives, and names what does not fit.
	// It is called once, before the methods below.
	Bind(vision infer.Info) error
	// Render writes a conversation as the family's chat template does, open at the end
	// for the model's answer, with one ImageToken for each picture.
	Render(turns []turn) string
	// Look makes of a frame what the vision encoder takes. With split a large picture is
	// shown in several tiles, where the family has them.
	Look(px *rewards.Pixels, frame int, split bool) (*view, error)
	// Expand puts the tokens of the views in the places of their ImageTokens, of which
	// the prompt has as many as there are views.
	Expand(prompt string, views []*view) string
	// Positions of the tokens, of which those that are image are pictures', shaped as
	// infer.Generate wants them; nil: 0 to len(ids)-1.
	Positions(ids []int64, image int64, views []*view) (*infer.Tensor, error)
	// Axes is how many axes of positions its models have: 1 or 3.
	Axes() int
	// ImageToken is the text of the token that a feature of a picture takes the place of.
	ImageToken() string
	// Stops are the texts of tokens that end an answer, beside those that the folder names.
	Stops() []string
	// Lead is what stands before the first word of an answer: a space, or nothing.
	Lead() string
}

// view is a frame as a vision encoder takes it.
type view struct {
	// Grid is the rows and columns of its tiles (idefics3; 0, 0: shown whole) or of its
	// tokens (qwen2_vl).
	Grid [2]int
	// Tokens is how many places it takes in the prompt.
	Tokens int
	// Items are what the vision encoder is asked. Its features, joined in this order, are
	// those of the tokens.
	Items []infer.Request
}

// turn is one message of a conversation.
type turn struct {
	// Role is "system", "user" or "assistant".
	Role  string
	Parts []part
}

// part is a text, or the place of a picture.
type part struct {
	Text  string
	Image bool
}

// families are the architectures by what config.json calls model_type.
func families() map[string]func(f *folder) (family, error) {
	return map[string]func(f *folder) (family, error){
		"idefics3":   openIdefics3,
		"smolvlm":    openIdefics3,
		"qwen2_vl":   openQwen,
		"qwen2_5_vl": openQwen,
	}
}

// openFamily finds the family of a folder.
func openFamily(f *folder) (family, error) {
	known := families()
	open, ok := known[f.config.ModelType]
	if !ok {
		return nil, fmt.Errorf("config.json: model_type is %q, want one of %s", f.config.ModelType, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
	return open(f)
}

// ports finds the inputs of a vision encoder. Every one it declares must be among
// those that the family knows; what it lacks is nil.
func ports(info infer.Info, known ...string) (map[string]*infer.Port, error) {
	found := make(map[string]*infer.Port, len(known))
	for _, p := range info.Inputs {
		if !slices.Contains(known, p.Name) {
			return nil, fmt.Errorf("the vision encoder has an unknown input %q, want one of %s", p.Name, strings.Join(known, ", "))
		}
		found[p.Name] = &p
	}
	return found, nil
}

// wanted checks that tensors of a type go into an input, and its axes; sizes of -1 in either
// are free.
func wanted(p *infer.Port, name string, dtype infer.DType, shape ...int) error {
	if p == nil {
		return fmt.Errorf("the vision encoder lacks the input %q", name)
	}
	fits := p.Carries(dtype) && len(p.Shape) == len(shape)
	for i := 0; fits && i < len(shape); i++ {
		fits = p.Shape[i] < 0 || shape[i] < 0 || p.Shape[i] == shape[i]
	}
	if !fits {
		return fmt.Errorf("the vision encoder's input %q is %s %v, want %s %v (-1: free)", name, p.DType, p.Shape, dtype, shape)
	}
	return nil
}

// featurePort is the output that holds the features.
const featurePort = infer.ImageFeatures

// giving checks that the vision encoder has the features among its outputs.
func giving(info infer.Info) error {
	names := make([]string, 0, len(info.Outputs))
	for _, p := range info.Outputs {
		if p.Name == featurePort {
			if !p.Carries(infer.F32) {
				return fmt.Errorf("the vision encoder's output %q is %s, want F32 or F16", p.Name, p.DType)
			}
			return nil
		}
		names = append(names, p.Name)
	}
	return fmt.Errorf("the vision encoder has no output %q, only %s", featurePort, strings.Join(names, ", "))
}

// expand puts each view's text in the place of its placeholder.
func expand(prompt, placeholder string, views []*view, text func(v *view) string) string {
	pieces := strings.Split(prompt, placeholder)
	var b strings.Builder
	for i, piece := range pieces {
		if i > 0 && i <= len(views) {
			b.WriteString(text(views[i-1]))
		}
		b.WriteString(piece)
	}
	return b.String()
}
