package ocr

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// Options are the options of the scorer. A preset gives each its value; what is
// set beside the preset overrides it.
type Options struct {
	// Preset is "flow_grpo" (default), "flow_grpo_video" or "verl_omni".
	Preset string `json:"preset"`
	ReaderOptions
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
	// FrameInterval takes every nth frame of a video, the first one first; 4.
	FrameInterval int `json:"frame_interval"`
	// Video says how frames become one value: "mean" (verl-omni; the default), or
	// "positive_mean": the mean of the frames above 0, without the substring rule
	// (preset flow_grpo_video: the scorer of flow_grpo's descendants for videos).
	Video string `json:"video"`
}

// ReaderOptions say who reads the text. Scorers with equal ones share a reader.
type ReaderOptions struct {
	// Engine is "auto" (default: ppocr where its model and ONNX Runtime are here, else
	// tesseract), "ppocr" or "tesseract".
	Engine string `json:"engine"`
	// Model is the PP-OCR model, by its name in the catalogue; "ppocr-v4-mobile".
	Model string `json:"model"`
	// Profile holds the constants around the models: "rapidocr" (default) or
	// "paddle2", PaddleOCR 2.x as flow_grpo runs it.
	Profile string `json:"profile"`
	// Mode is "fast" (default), or "parity": sizes, padding and batches of the
	// reference.
	Mode string `json:"mode"`
	// SwapRB hands the models red and blue exchanged, as flow_grpo does by giving
	// PaddleOCR RGB arrays.
	SwapRB bool `json:"swap_rb"`
	// Device the models run on: "cpu" (default) or "cuda:<n>".
	Device string `json:"device"`
}

// The words of ReaderOptions.
const (
	EngineAuto      = "auto"
	EnginePPOCR     = "ppocr"
	EngineTesseract = "tesseract"
	ProfileRapidOCR = "rapidocr"
	ProfilePaddle2  = "paddle2"
	ModeFast        = "fast"
	ModeParity      = "parity"
	DefaultModel    = "ppocr-v4-mobile"
	DeviceCPU       = "cpu"
)

// DefaultReader is what options that name no reader mean.
func DefaultReader() ReaderOptions {
	return ReaderOptions{Engine: EngineAuto, Model: DefaultModel, Profile: ProfileRapidOCR, Mode: ModeFast, Device: DeviceCPU}
}

// Readers gives scorers their reader.
type Readers interface {
	// Reader returns the reader for the options, the same for equal ones, or an error
	// that says what is missing. It stays its owner's, who closes it.
	Reader(o ReaderOptions) (TextReader, error)
}

// ReadersFunc is a function that is Readers.
type ReadersFunc func(o ReaderOptions) (TextReader, error)

// Reader implements Readers.
func (f ReadersFunc) Reader(o ReaderOptions) (TextReader, error) { return f(o) }

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
		MinLenForSubstring: 1, FrameInterval: 4, Video: mean, ReaderOptions: DefaultReader(),
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
	word("engine", o.Engine, EngineAuto, EnginePPOCR, EngineTesseract)
	word("profile", o.Profile, ProfileRapidOCR, ProfilePaddle2)
	word("mode", o.Mode, ModeFast, ModeParity)
	if o.Model == "" {
		errs = append(errs, errors.New("model: is empty; `rewardloop models list` shows the names"))
	}
	if !validDevice(o.Device) {
		errs = append(errs, fmt.Errorf("device: %q is unknown, want cpu or cuda:<n>", o.Device))
	}
	if o.FrameInterval < 1 {
		errs = append(errs, fmt.Errorf("frame_interval: %d, want 1 or more", o.FrameInterval))
	}
	if o.MinLenForSubstring < 1 {
		errs = append(errs, fmt.Errorf("min_len_for_substring: %d, want 1 or more", o.MinLenForSubstring))
	}
	return errors.Join(errs...)
}

func validDevice(d string) bool {
	if d == DeviceCPU {
		return true
	}
	n, ok := strings.CutPrefix(d, "cuda:")
	_, err := strconv.ParseUint(n, 10, 8)
	return ok && err == nil
}

func documentation() []rewards.Option {
	return []rewards.Option{
		{Name: "preset", Type: "string", Default: FlowGRPO, Doc: "whose formula: flow_grpo, flow_grpo_video or verl_omni; gives the formula's options their defaults"},
		{Name: "engine", Type: "string", Default: EngineAuto, Doc: "who reads: ppocr, tesseract, or auto: ppocr where its model and ONNX Runtime are here"},
		{Name: "model", Type: "string", Default: DefaultModel, Doc: "the PP-OCR model; rewardloop models list names them"},
		{Name: "profile", Type: "string", Default: ProfileRapidOCR, Doc: "constants around the models: rapidocr, or paddle2 (PaddleOCR 2.x, as flow_grpo runs it)"},
		{Name: "mode", Type: "string", Default: ModeFast, Doc: "fast, or parity: sizes, padding and batches of the reference"},
		{Name: "swap_rb", Type: "bool", Default: "false", Doc: "exchange red and blue, as flow_grpo does by giving PaddleOCR RGB arrays"},
		{Name: "device", Type: "string", Default: DeviceCPU, Doc: "where the models run: cpu or cuda:<n>"},
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
