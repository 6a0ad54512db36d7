package ocr

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// Options are the options of the scorer. A preset sets the value of each option; an option that is
// set together with the preset overrides the preset. There are four groups of options: the target
// (TargetRule to EmptyTarget), the normalisation of the texts (Whitespace to FoldConfusions), the
// comparison (MinConf to Denominator), and the frames of a video.
type Options struct {
	// Preset is the name of a preset, see the function Preset. The default is "flow_grpo".
	Preset string `json:"preset"`
	ReaderOptions

	// TargetRule selects the part of a text that is the target: "first_quoted" (the text between
	// the first two double quotes; an unclosed quote extends to the end), "double_or_single"
	// (unirl: the first closed, non-empty span in double quotes, otherwise the first in single
	// quotes), or "every_quoted" (deepgen: all closed, non-empty spans in double quotes).
	TargetRule string `json:"target_rule"`
	// NoTarget selects what happens to a sample without a quoted span: "fail" (the default),
	// "prompt" (the whole prompt is the target: unirl, flow_factory) or "zero" (the score is 0:
	// deepgen).
	NoTarget string `json:"no_target"`
	// BareGroundTruth makes a ground truth without quotes the target (verl_omni).
	BareGroundTruth bool `json:"bare_ground_truth"`
	// EmptyTarget selects what happens if the normalised target is empty: "fail" (flow_grpo divides
	// by zero), "match_empty" (verl_omni: 1 if no text was read, otherwise 0), "met" (cosmos,
	// unirl: 1) or "zero" (deepgen).
	EmptyTarget string `json:"empty_target"`

	// Whitespace selects what is removed before the comparison: "space" (only the ASCII space,
	// flow_grpo) or "all" (Python's \s, verl_omni and deepgen).
	Whitespace string `json:"whitespace"`
	// IgnorePunct removes all characters except the ASCII letters and digits (deepgen).
	IgnorePunct bool `json:"ignore_punct"`
	// CaseSensitive distinguishes upper and lower case (deepgen). All other presets convert to
	// lower case.
	CaseSensitive bool `json:"case_sensitive"`
	// NFKC first normalises compatibility forms (full-width letters, ligatures). It is off in all
	// presets, because no published formula does this.
	NFKC bool `json:"nfkc"`
	// FoldConfusions uses the smaller of two distances: that of the texts, and that of the texts
	// with 0 replaced by o, 1, i and j by l, 5 by s, and v by w (deepgen).
	FoldConfusions bool `json:"fold_confusions"`

	// MinConf is the minimum confidence of a line, 0 to 1; lines below are ignored. Lines of
	// confidence 0 are always ignored.
	MinConf float64 `json:"min_conf"`
	// Candidates selects the texts that are compared with the target: "whole" (all lines joined
	// without a separator) or "ngrams" (deepgen: the closest among each line, each sequence of up
	// to NgramMax lines, joined, and the whole text).
	Candidates string `json:"candidates"`
	// NgramMax is the maximum number of lines in a sequence with "ngrams", 1 to 8. The default is
	// 3.
	NgramMax int `json:"ngram_max"`
	// Substring gives the full score if the read text contains the target, whatever else was read.
	// All presets except deepgen set it.
	Substring bool `json:"substring"`
	// MinLenForSubstring is the minimum length of a target, in code points, for Substring. It is 1
	// in all presets. A larger value prevents that a picture full of text contains a target of one
	// or two letters by chance.
	MinLenForSubstring int `json:"min_len_for_substring"`
	// Denominator selects the length that divides the distance: the code points of the normalised
	// "target", or of the "raw_target" as written in the prompt (cosmos; spaces count, so a picture
	// without text scores more than 0).
	Denominator string `json:"denominator"`

	// FrameInterval n selects every nth frame of a video, beginning with the first. It is 4, and 1
	// in the preset flow_factory.
	FrameInterval int `json:"frame_interval"`
	// Frames selects the frames in place of FrameInterval. nil means that FrameInterval applies.
	Frames *rewards.FrameChoice `json:"frames"`
	// Video selects how the values of frames are combined: "mean" (verl-omni; the default), or
	// "positive_mean": the mean of the frames above 0, without the substring rule (preset
	// flow_grpo_video: the scorer of flow_grpo's descendants for videos).
	Video string `json:"video"`
}

// ReaderOptions select the reader. Scorers with equal ReaderOptions share a reader.
type ReaderOptions struct {
	// Reader is "auto" (the default: ppocr if its model and ONNX Runtime are installed, otherwise
	// tesseract), "ppocr", "tesseract", or "vlm": a vision-language model on this machine.
	Reader string `json:"reader"`
	// Model is the name of the PP-OCR model in the catalogue; the default is "ppocr-v4-mobile".
	// With the reader vlm, Model is the name or folder of the vision-language model; the default is
	// "smolvlm-256m".
	Model string `json:"model"`
	// Profile selects the constants used with the models: "rapidocr" (the default) or "paddle2",
	// which is PaddleOCR 2.x as flow_grpo uses it.
	Profile string `json:"profile"`
	// Mode is "fast" (the default), or "parity", which uses the sizes, padding and batches of the
	// reference.
	Mode string `json:"mode"`
	// Detect runs a detector first, which finds the lines of a picture. The default is true.
	// Without a detector the whole picture is one line, for pictures of cropped text; only ppocr
	// supports this.
	Detect bool `json:"detect"`
	// SwapRB exchanges red and blue before the models run, which is the effect of flow_grpo's RGB
	// arrays in PaddleOCR.
	SwapRB bool `json:"swap_rb"`
	// Device is the device that runs the models: "cpu" (the default), "cuda" for every card, or
	// "cuda:<n>".
	Device string `json:"device"`
}

// Values and defaults of ReaderOptions.
const (
	ReaderAuto      = "auto"
	ReaderPPOCR     = "ppocr"
	ReaderTesseract = "tesseract"
	ReaderVLM       = "vlm"
	profileRapidOCR = "rapidocr"
	ProfilePaddle2  = "paddle2"
	modeFast        = "fast"
	ModeParity      = "parity"
	DefaultModel    = "ppocr-v4-mobile"
	DefaultVLM      = "smolvlm-256m"
)

// DefaultReader returns the ReaderOptions of a configuration that sets none of them.
func DefaultReader() ReaderOptions {
	return ReaderOptions{Reader: ReaderAuto, Model: DefaultModel, Profile: profileRapidOCR, Mode: modeFast, Detect: true, Device: infer.CPU}
}

// Readers provides the readers of scorers.
type Readers interface {
	// Reader returns the reader for the options, or an error that describes what is missing. Equal
	// options give the same reader. The owner of the Readers closes the reader.
	Reader(o ReaderOptions) (TextReader, error)
}

// ReadersFunc adapts a function to Readers.
type ReadersFunc func(o ReaderOptions) (TextReader, error)

// Reader calls f.
func (f ReadersFunc) Reader(o ReaderOptions) (TextReader, error) { return f(o) }

// The presets.
const (
	FlowGRPO      = "flow_grpo"
	FlowGRPOVideo = "flow_grpo_video"
	VerlOmni      = "verl_omni"
	deepGen       = "deepgen"
	deepGenOld    = "deepgen_old" // FlowGRPO by the name of its copy in deepgen_rl
	cosmos        = "cosmos"
	uniRL         = "unirl"
	flowFactory   = "flow_factory"
)

// The values of the options that are words.
const (
	firstQuoted    = "first_quoted"
	doubleOrSingle = "double_or_single"
	everyQuoted    = "every_quoted"

	fail        = "fail"
	zero        = "zero"
	wholePrompt = "prompt"
	matchEmpty  = "match_empty"
	met         = "met"

	spaceOnly = "space"
	allSpace  = "all"

	wholeText = "whole"
	ngrams    = "ngrams"

	normalisedTarget = "target"
	rawTarget        = "raw_target"

	mean         = "mean"
	positiveMean = "positive_mean"
)

// presets returns the names of the presets.
func presets() []string {
	return []string{FlowGRPO, FlowGRPOVideo, VerlOmni, deepGen, deepGenOld, cosmos, uniRL, flowFactory}
}

// Preset returns the options of the named preset; the empty name means FlowGRPO. An unknown name is
// an error.
func Preset(name string) (Options, error) {
	o := Options{
		Preset: cmp.Or(name, FlowGRPO), ReaderOptions: DefaultReader(),
		TargetRule: firstQuoted, NoTarget: fail, EmptyTarget: fail,
		Whitespace: spaceOnly,
		Candidates: wholeText, NgramMax: 3, Substring: true, MinLenForSubstring: 1, Denominator: normalisedTarget,
		FrameInterval: 4, Video: mean,
	}
	switch o.Preset {
	case FlowGRPO, deepGenOld:
	case FlowGRPOVideo:
		o.Video = positiveMean
	case VerlOmni:
		o.Whitespace, o.BareGroundTruth, o.EmptyTarget = allSpace, true, matchEmpty
	case deepGen:
		o.TargetRule, o.NoTarget, o.EmptyTarget = everyQuoted, zero, zero
		o.Whitespace, o.IgnorePunct, o.CaseSensitive, o.FoldConfusions = allSpace, true, true, true
		o.Candidates, o.Substring = ngrams, false
	case cosmos:
		o.EmptyTarget, o.Denominator = met, rawTarget
	case uniRL:
		o.TargetRule, o.NoTarget, o.EmptyTarget = doubleOrSingle, wholePrompt, met
	case flowFactory:
		o.NoTarget, o.FrameInterval = wholePrompt, 1
	default:
		return Options{}, fmt.Errorf("preset: %q is unknown, want one of %q", name, presets())
	}
	return o, nil
}

// ParseOptions parses and validates the options of the configuration: a JSON object or nothing.
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

// Validate returns an error that contains every fault of o.
func (o Options) Validate() error {
	var errs rewards.Faults
	word := func(name, got string, want ...string) {
		errs.Add(!slices.Contains(want, got), "%s: %q is unknown, want one of %q", name, got, want)
	}
	word("target_rule", o.TargetRule, firstQuoted, doubleOrSingle, everyQuoted)
	word("no_target", o.NoTarget, fail, wholePrompt, zero)
	word("empty_target", o.EmptyTarget, fail, matchEmpty, met, zero)
	word("whitespace", o.Whitespace, spaceOnly, allSpace)
	word("candidates", o.Candidates, wholeText, ngrams)
	word("denominator", o.Denominator, normalisedTarget, rawTarget)
	word("video", o.Video, mean, positiveMean)
	word("reader", o.Reader, ReaderAuto, ReaderPPOCR, ReaderTesseract, ReaderVLM)
	word("profile", o.Profile, profileRapidOCR, ProfilePaddle2)
	word("mode", o.Mode, modeFast, ModeParity)
	errs.Add(!o.Detect && o.Reader != ReaderAuto && o.Reader != ReaderPPOCR, "detect: false is for the reader ppocr, not for %s", o.Reader)
	errs.Add(o.Model == "", "model: is empty; `rewardloop models list` shows the names")
	errs.Add(!infer.ValidDevice(o.Device), "device: %q is unknown, want %s", o.Device, infer.DeviceForm)
	errs.Add(o.FrameInterval < 1, "frame_interval: %d, want 1 or more", o.FrameInterval)
	errs.Add(o.MinLenForSubstring < 1, "min_len_for_substring: %d, want 1 or more", o.MinLenForSubstring)
	errs.Add(o.NgramMax < 1 || o.NgramMax > maxNgram, "ngram_max: %d, want 1 to %d", o.NgramMax, maxNgram)
	errs.Add(o.MinConf < 0 || o.MinConf > 1, "min_conf: %v, want 0 to 1", o.MinConf)
	return errors.Join(errs...)
}

// documentation is Options for people: `rewardloop scorers` prints it.
func documentation() []rewards.Option {
	return []rewards.Option{
		{Name: "preset", Type: "string", Default: FlowGRPO, Doc: "project whose formula is used: " + strings.Join(presets(), ", ") + ". The defaults in this list are those of flow_grpo; other presets have other defaults"},
		{Name: "reader", Type: "string", Default: ReaderAuto, Doc: "OCR engine: ppocr, tesseract, vlm (a vision-language model in this process), or auto: ppocr if the model and ONNX Runtime are installed, else tesseract"},
		{Name: "model", Type: "string", Default: DefaultModel, Doc: "PP-OCR model; with vlm the name or folder of a vision-language model (smolvlm-256m); rewardloop models list shows the names"},
		{Name: "profile", Type: "string", Default: profileRapidOCR, Doc: "thresholds and picture sizes for the models: rapidocr, or paddle2 (PaddleOCR 2.x, as in flow_grpo)"},
		{Name: "mode", Type: "string", Default: modeFast, Doc: "how the models run: fast, or parity (sizes, padding and batches as in the reference, slower)"},
		{Name: "detect", Type: "bool", Default: "true", Doc: "true: ppocr finds the lines of text in a picture first; false: the whole picture is read as one line, for pictures of cropped text"},
		{Name: "swap_rb", Type: "bool", Default: "false", Doc: "true: red and blue are exchanged before reading, as in flow_grpo, which hands RGB arrays to PaddleOCR"},
		{Name: "device", Type: "string", Default: infer.CPU, Doc: "device that runs the models: " + infer.DeviceForm},
		{Name: "target_rule", Type: "string", Default: firstQuoted, Doc: "part of the ground truth or prompt that is the target: first_quoted, double_or_single (unirl) or every_quoted (deepgen)"},
		{Name: "no_target", Type: "string", Default: fail, Doc: "score of a sample without a quoted span: fail, prompt (the whole prompt is the target; unirl, flow_factory) or zero (deepgen)"},
		{Name: "bare_ground_truth", Type: "bool", Default: "false", Doc: "true: a ground truth without double quotes is the target (verl_omni)"},
		{Name: "empty_target", Type: "string", Default: fail, Doc: "score where the target is empty: fail, match_empty (1 if no text was read; verl_omni), met (1; cosmos, unirl) or zero (deepgen)"},
		{Name: "whitespace", Type: "string", Default: spaceOnly, Doc: "whitespace that is removed before the comparison: space (only the ASCII space) or all (verl_omni, deepgen)"},
		{Name: "ignore_punct", Type: "bool", Default: "false", Doc: "true: all characters but ASCII letters and digits are removed before the comparison (deepgen)"},
		{Name: "case_sensitive", Type: "bool", Default: "false", Doc: "true: upper and lower case are different (deepgen)"},
		{Name: "nfkc", Type: "bool", Default: "false", Doc: "true: Unicode NFKC before the comparison, so that full-width letters equal plain ones"},
		{Name: "fold_confusions", Type: "bool", Default: "false", Doc: "true: characters that OCR confuses count as equal: 0 and o; 1, i, j and l; 5 and s; v and w (deepgen)"},
		{Name: "min_conf", Type: "number", Default: "0", Doc: "minimum confidence of a line, 0 to 1; lines below are ignored"},
		{Name: "candidates", Type: "string", Default: wholeText, Doc: "text that is compared with the target: whole (all lines joined) or ngrams (the closest sequence of up to ngram_max lines; deepgen)"},
		{Name: "ngram_max", Type: "int", Default: "3", Doc: "maximum number of lines in a sequence with candidates: ngrams, 1 to 8"},
		{Name: "substring", Type: "bool", Default: "true", Doc: "true: the score is 1 if the read text contains the target (not in deepgen)"},
		{Name: "min_len_for_substring", Type: "int", Default: "1", Doc: "minimum length in characters of a target for substring"},
		{Name: "denominator", Type: "string", Default: normalisedTarget, Doc: "length that divides the edit distance: of the normalised target (target), or of the target as given (raw_target; cosmos)"},
		rewards.FramesOption("every:4; flow_factory all"),
		{Name: "frame_interval", Type: "int", Default: "4", Doc: "n: every nth frame of a video is read (flow_factory reads all); ignored if frames is set"},
		{Name: "video", Type: "string", Default: mean, Doc: "value of a video: mean of the frames, or positive_mean, the mean of the frames above 0 without the substring rule (flow_grpo_video)"},
	}
}
