package ocr

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/rewardloop/rewardloop/rewards"
)

// Options are the options of the scorer. A preset gives each its value; what is
// set beside the preset overrides it.
type Options struct {
	// Preset is "flow_grpo" (default), "flow_grpo_video" or "verl_omni".
	Preset string `json:"preset"`
	// Whitespace says what is removed before the comparison: "space" (the ASCII
	// space only, flow_grpo) or "all" (Python's \s, verl_omni).
	Whitespace string `json:"whitespace"`
	// CaseSensitive keeps upper and lower case apart; both presets lower-case.
	CaseSensitive bool `json:"case_sensitive"`
	// NFKC folds compatibility forms (full-width letters, ligatures) first; off in
	// both presets, for nobody else does it.
	NFKC bool `json:"nfkc"`
	// BareGroundTruth takes a ground truth without quotes as the target (verl_omni).
	BareGroundTruth bool `json:"bare_ground_truth"`
	// EmptyTarget is what an empty target means: "fail" (flow_grpo divides by zero)
	// or "match_empty" (verl_omni: 1 if nothing was read, else 0).
	EmptyTarget string `json:"empty_target"`
	// MinLenForSubstring is the length in code points from which a target counts as
	// met when the read text merely contains it. Both presets have 1. A higher one
	// keeps one- and two-letter targets from being met by a picture full of text.
	MinLenForSubstring int `json:"min_len_for_substring"`
	// FrameInterval takes every nth frame of a video; 4.
	FrameInterval int `json:"frame_interval"`
	// Video says how frames become one value: "mean" (verl-omni; the default), or
	// "positive_mean": the mean of the frames above 0, without the substring rule
	// (preset flow_grpo_video: the scorer of flow_grpo's descendants for videos).
	Video string `json:"video"`
}

// The presets and the values of the options that are words.
const (
	FlowGRPO      = "flow_grpo"
	FlowGRPOVideo = "flow_grpo_video"
	VerlOmni      = "verl_omni"
	spaceOnly     = "space"
	allSpace      = "all"
	failEmpty     = "fail"
	matchEmpty    = "match_empty"
	mean          = "mean"
	positiveMean  = "positive_mean"
)

// Preset returns the options of a preset by name.
func Preset(name string) (Options, error) {
	o := Options{
		Preset: FlowGRPO, Whitespace: spaceOnly, EmptyTarget: failEmpty,
		MinLenForSubstring: 1, FrameInterval: 4, Video: mean,
	}
	switch name {
	case "", FlowGRPO:
		return o, nil
	case FlowGRPOVideo:
		o.Preset, o.Video = FlowGRPOVideo, positiveMean
		return o, nil
	case VerlOmni:
		o.Preset, o.Whitespace, o.BareGroundTruth, o.EmptyTarget = VerlOmni, allSpace, true, matchEmpty
		return o, nil
	}
	return Options{}, fmt.Errorf("preset: %q is unknown, want %s, %s or %s", name, FlowGRPO, FlowGRPOVideo, VerlOmni)
}

// ParseOptions reads the options of the configuration: a JSON object or nothing.
func ParseOptions(raw json.RawMessage) (Options, error) {
	var chosen struct {
		Preset string `json:"preset"`
	}
	if len(raw) > 0 {
		// Faults of the other fields are found below.
		_ = json.Unmarshal(raw, &chosen)
	}
	o, err := Preset(chosen.Preset)
	if err != nil {
		return Options{}, err
	}
	preset := o.Preset
	if err := rewards.DecodeOptions(raw, &o); err != nil {
		return Options{}, err
	}
	o.Preset = preset
	return o, o.Validate()
}

// Validate names everything that is wrong.
func (o Options) Validate() error {
	var errs []error
	word := func(name, got string, want ...string) {
		if !slices.Contains(want, got) {
			errs = append(errs, fmt.Errorf("%s: %q is unknown, want one of %q", name, got, want))
		}
	}
	word("whitespace", o.Whitespace, spaceOnly, allSpace)
	word("empty_target", o.EmptyTarget, failEmpty, matchEmpty)
	word("video", o.Video, mean, positiveMean)
	if o.FrameInterval < 1 {
		errs = append(errs, fmt.Errorf("frame_interval: %d, want 1 or more", o.FrameInterval))
	}
	if o.MinLenForSubstring < 1 {
		errs = append(errs, fmt.Errorf("min_len_for_substring: %d, want 1 or more", o.MinLenForSubstring))
	}
	return errors.Join(errs...)
}

func documentation() []rewards.Option {
	return []rewards.Option{
		{Name: "preset", Type: "string", Default: FlowGRPO, Doc: "whose formula: flow_grpo, flow_grpo_video or verl_omni; gives the options below their defaults"},
		{Name: "whitespace", Type: "string", Default: "space (verl_omni: all)", Doc: "what is removed before comparing: the ASCII space, or all whitespace"},
		{Name: "case_sensitive", Type: "bool", Default: "false", Doc: "keep upper and lower case apart"},
		{Name: "nfkc", Type: "bool", Default: "false", Doc: "fold full-width letters and other compatibility forms first"},
		{Name: "bare_ground_truth", Type: "bool", Default: "false (verl_omni: true)", Doc: "a ground truth without double quotes is the target"},
		{Name: "empty_target", Type: "string", Default: "fail (verl_omni: match_empty)", Doc: "an empty target fails the sample, or asks for a picture without text"},
		{Name: "min_len_for_substring", Type: "int", Default: "1", Doc: "from this length on, a target that the read text contains counts as met"},
		{Name: "frame_interval", Type: "int", Default: "4", Doc: "take every nth frame of a video"},
		{Name: "video", Type: "string", Default: "mean (flow_grpo_video: positive_mean)", Doc: "mean of the frames, or positive_mean: of those above 0, without the substring rule"},
	}
}
