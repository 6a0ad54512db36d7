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

// Options are the options of the scorer. A preset gives each its value; what is
// set beside the preset overrides it. They fall into four questions: what is
// wanted (TargetRule to EmptyTarget), how texts are made comparable (Whitespace to
// FoldConfusions), what of the read text is compared, and how (MinConf to
// Denominator), and which frames of a video count.
type Options struct {
	// Preset is one of the names that Presets returns; "flow_grpo" is the default.
	Preset string `json:"preset"`
	ReaderOptions

	// TargetRule says which part of a text is wanted: "first_quoted" (what stands
	// between the first two double quotes; one that is not closed takes the rest),
	// "double_or_single" (unirl: the first span in double quotes that is closed and
	// not empty, else the first in single quotes), or "every_quoted" (deepgen: all
	// spans in double quotes that are closed and not empty).
	TargetRule string `json:"target_rule"`
	// NoTarget is what a sample without a quoted span means: "fail" (the default),
	// "prompt" (the whole prompt is wanted: unirl, flow_factory) or "zero" (deepgen).
	NoTarget string `json:"no_target"`
	// BareGroundTruth takes a ground truth without quotes as the target (verl_omni).
	BareGroundTruth bool `json:"bare_ground_truth"`
	// EmptyTarget is what a target of which normalising leaves nothing means: "fail"
	// (flow_grpo divides by zero), "match_empty" (verl_omni: 1 if nothing was read,
	// else 0), "met" (cosmos, unirl: 1) or "zero" (deepgen).
	EmptyTarget string `json:"empty_target"`

	// Whitespace says what is removed before the comparison: "space" (the ASCII
	// space only, flow_grpo) or "all" (Python's \s, verl_omni and deepgen).
	Whitespace string `json:"whitespace"`
	// IgnorePunct removes everything but the ASCII letters and digits (deepgen).
	IgnorePunct bool `json:"ignore_punct"`
	// CaseSensitive keeps upper and lower case apart (deepgen); all others lower-case.
	CaseSensitive bool `json:"case_sensitive"`
	// NFKC folds compatibility forms (full-width letters, ligatures) first; off in
	// all presets, for nobody else does it.
	NFKC bool `json:"nfkc"`
	// FoldConfusions takes the smaller of two distances: of the texts, and of the
	// texts with 0 read as o, 1, i and j as l, 5 as s and v as w (deepgen).
	FoldConfusions bool `json:"fold_confusions"`

	// MinConf leaves out lines of a confidence below it, 0 to 1. Lines of confidence
	// 0 never count.
	MinConf float64 `json:"min_conf"`
	// Candidates says what the target is compared with: "whole" (all lines joined
	// without a separator) or "ngrams" (deepgen: the closest of each line, of each
	// run of up to NgramMax lines, joined, and of the whole).
	Candidates string `json:"candidates"`
	// NgramMax is the longest run of lines for "ngrams", 1 or more; 3.
	NgramMax int `json:"ngram_max"`
	// Substring lets a target that the read text contains count as met, whatever else
	// was read. All presets but deepgen do.
	Substring bool `json:"substring"`
	// MinLenForSubstring is the length in code points from which Substring applies.
	// All presets have 1. A higher one keeps one- and two-letter targets from being
	// met by a picture full of text.
	MinLenForSubstring int `json:"min_len_for_substring"`
	// Denominator is what the distance is divided by: the code points of the "target"
	// after normalising, or of the "raw_target" as it stands in the prompt (cosmos;
	// spaces count, so that a picture without text has more than 0).
	Denominator string `json:"denominator"`

	// FrameInterval takes every nth frame of a video, the first one first; 4, and 1
	// for flow_factory.
	FrameInterval int `json:"frame_interval"`
	// Frames chooses the frames instead of FrameInterval; nil: every FrameInterval-th.
	Frames *rewards.FrameChoice `json:"frames"`
	// Video says how frames become one value: "mean" (verl-omni; the default), or
	// "positive_mean": the mean of the frames above 0, without the substring rule
	// (preset flow_grpo_video: the scorer of flow_grpo's descendants for videos).
	Video string `json:"video"`
}

// ReaderOptions say who reads the text. Scorers with equal ones share a reader.
type ReaderOptions struct {
	// Reader is "auto" (default: ppocr where its model and ONNX Runtime are here, else
	// tesseract), "ppocr", "tesseract", or "vlm": a vision-language model that runs here.
	Reader string `json:"reader"`
	// Model is the PP-OCR model, by its name in the catalogue; "ppocr-v4-mobile". With
	// reader vlm the model by its name or folder; "smolvlm-256m".
	Model string `json:"model"`
	// Profile holds the constants around the models: "rapidocr" (default) or
	// "paddle2", PaddleOCR 2.x as flow_grpo runs it.
	Profile string `json:"profile"`
	// Mode is "fast" (default), or "parity": sizes, padding and batches of the
	// reference.
	Mode string `json:"mode"`
	// Detect has a detector find the lines of a picture first; true. Without it the whole
	// picture is one line, for pictures of cropped text: only ppocr reads so.
	Detect bool `json:"detect"`
	// SwapRB hands the models red and blue exchanged, as flow_grpo does by giving
	// PaddleOCR RGB arrays.
	SwapRB bool `json:"swap_rb"`
	// Device the models run on: "cpu" (default), "cuda" for every card, or "cuda:<n>".
	Device string `json:"device"`
}

// The words of ReaderOptions.
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

// DefaultReader is what options that name no reader mean.
func DefaultReader() ReaderOptions {
	return ReaderOptions{Reader: ReaderAuto, Model: DefaultModel, Profile: profileRapidOCR, Mode: modeFast, Detect: true, Device: infer.CPU}
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

// Preset returns the options of a preset by name; "" is FlowGRPO.
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
