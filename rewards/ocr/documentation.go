package ocr

import (
	"strings"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// documentation is Options for people: `rewardloop scorers` prints it.
func documentation() []rewards.Option {
	return []rewards.Option{
		{Name: "preset", Type: "string", Default: FlowGRPO, Doc: "whose formula: " + strings.Join(presets(), ", ") + ". What stands beside an option below is its value by that preset"},
		{Name: "reader", Type: "string", Default: ReaderAuto, Doc: "who reads: ppocr, tesseract, vlm (a vision-language model that runs here), or auto: ppocr where its model and ONNX Runtime are here"},
		{Name: "model", Type: "string", Default: DefaultModel, Doc: "the PP-OCR model, or with vlm the name or folder of that model (smolvlm-256m); rewardloop models list names them"},
		{Name: "profile", Type: "string", Default: profileRapidOCR, Doc: "constants around the models: rapidocr, or paddle2 (PaddleOCR 2.x, as flow_grpo runs it)"},
		{Name: "mode", Type: "string", Default: modeFast, Doc: "fast, or parity: sizes, padding and batches of the reference"},
		{Name: "swap_rb", Type: "bool", Default: "false", Doc: "exchange red and blue, as flow_grpo does by giving PaddleOCR RGB arrays"},
		{Name: "device", Type: "string", Default: infer.CPU, Doc: "where the models run: " + infer.DeviceForm},
		{Name: "target_rule", Type: "string", Default: firstQuoted, Doc: "which part of ground truth or prompt is wanted: first_quoted, double_or_single (unirl) or every_quoted (deepgen)"},
		{Name: "no_target", Type: "string", Default: fail, Doc: "without a quoted span: fail, prompt: all of it is wanted (unirl, flow_factory), or zero (deepgen)"},
		{Name: "bare_ground_truth", Type: "bool", Default: "false", Doc: "a ground truth without double quotes is the target (verl_omni)"},
		{Name: "empty_target", Type: "string", Default: fail, Doc: "fail, match_empty: 1 if nothing was read (verl_omni), met: 1 (cosmos, unirl), or zero (deepgen)"},
		{Name: "whitespace", Type: "string", Default: spaceOnly, Doc: "removed before comparing: space, the ASCII one, or all (verl_omni, deepgen)"},
		{Name: "ignore_punct", Type: "bool", Default: "false", Doc: "remove everything but ASCII letters and digits (deepgen)"},
		{Name: "case_sensitive", Type: "bool", Default: "false", Doc: "keep upper and lower case apart (deepgen)"},
		{Name: "nfkc", Type: "bool", Default: "false", Doc: "fold full-width letters and other compatibility forms first"},
		{Name: "fold_confusions", Type: "bool", Default: "false", Doc: "0 may be read as o, 1, i and j as l, 5 as s, v as w (deepgen)"},
		{Name: "min_conf", Type: "number", Default: "0", Doc: "leave out lines of a confidence below it"},
		{Name: "candidates", Type: "string", Default: wholeText, Doc: "compare with the whole: all lines joined; or ngrams: the closest run of lines (deepgen)"},
		{Name: "ngram_max", Type: "int", Default: "3", Doc: "the longest run of lines for ngrams, 1 to 8"},
		{Name: "substring", Type: "bool", Default: "true", Doc: "a target that the read text contains counts as met (not deepgen)"},
		{Name: "min_len_for_substring", Type: "int", Default: "1", Doc: "the length from which substring applies"},
		{Name: "denominator", Type: "string", Default: normalisedTarget, Doc: "divide the distance by the length of the target, or of the raw_target: before normalising (cosmos)"},
		{Name: "frame_interval", Type: "int", Default: "4", Doc: "take every nth frame of a video; flow_factory takes all"},
		{Name: "video", Type: "string", Default: mean, Doc: "mean of the frames, or positive_mean: of those above 0, without the substring rule (flow_grpo_video)"},
	}
}
