package preference

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// The names, in the catalogue, of the scorers' default models.
const (
	PickScoreModel = "pickscore-v1"
	CLIPModel      = "clip-vit-large-patch14"
	HPSv2Model     = "hpsv2.1"
	AestheticModel = "aesthetic-v2"
	SigLIPModel    = "siglip-base-patch16-224"
)

// base are the options that every scorer has.
type base struct {
	Model    string `json:"model"`
	Device   string `json:"device"`
	SelfTest bool   `json:"selftest"`
}

// sampling are the options of scorers that look at pictures.
type sampling struct {
	FrameInterval int                  `json:"frame_interval"`
	Frames        *rewards.FrameChoice `json:"frames"` // instead of FrameInterval
}

func (o sampling) choice() rewards.FrameChoice {
	return rewards.FramesOr(o.Frames, rewards.EveryFrame(o.FrameInterval))
}

func defaults(model string) base { return base{Model: model, Device: infer.CPU, SelfTest: true} }

// everyFourth is what the project's other scorers take of a video, and verl-omni's hpsv3.
func everyFourth() sampling { return sampling{FrameInterval: 4} }

// faults collects what is wrong with options.
type faults struct{ all []error }

func (f *faults) check(ok bool, format string, args ...any) {
	if !ok {
		f.all = append(f.all, fmt.Errorf(format, args...))
	}
}

func (f *faults) word(name, got string, want ...string) {
	f.check(slices.Contains(want, got), "%s: %q is unknown, want one of %q", name, got, want)
}

func (f *faults) number(name string, v float64) {
	f.check(finite(v) && v != 0, "%s: %v, want a finite number other than 0", name, v)
}

func (f *faults) err() error { return errors.Join(f.all...) }

func (o *base) validate(f *faults) {
	f.check(o.Model != "", "model: is empty; name a folder with %s, or a model of the catalogue (rewardloop models list)", sidecarFile)
	f.check(infer.ValidDevice(o.Device), "device: %q is unknown, want %s", o.Device, infer.DeviceForm)
}

func (o *sampling) validate(f *faults) {
	f.check(o.FrameInterval >= 1, "frame_interval: %d, want 1 or more", o.FrameInterval)
}

// decode reads options over their defaults and checks them.
func decode(raw json.RawMessage, o any, validate ...func(*faults)) error {
	if err := rewards.DecodeOptions(raw, o); err != nil {
		return err //nolint:wrapcheck // says that it is about options
	}
	f := &faults{}
	for _, v := range validate {
		v(f)
	}
	return f.err()
}

// The documentation of the options that several scorers have.

func modelOption(def string) rewards.Option {
	return rewards.Option{Name: "model", Type: "string", Default: def, Doc: "folder with scorer.json, or a name that rewardloop models list shows"}
}

func baseOptions(def string) []rewards.Option {
	return []rewards.Option{
		modelOption(def),
		{Name: "device", Type: "string", Default: infer.CPU, Doc: "device that runs the model: " + infer.DeviceForm},
		{Name: "selftest", Type: "bool", Default: "true", Doc: "true: before the first sample the model must return the known answers in its folder"},
	}
}

func frameOption() rewards.Option {
	return rewards.Option{Name: "frame_interval", Type: "int", Default: "4", Doc: "n: every nth frame of a video is scored, from the first on, and the value is the mean; ignored if frames is set"}
}

func templateOption() rewards.Option {
	return rewards.Option{Name: "template", Type: "string", Default: "the model's", Doc: "template of the model's input; placeholders: {prompt}, {response}"}
}
