package ocr

import (
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// documentation is Options for people: `rewardloop scorers` prints it.
func documentation() []rewards.Option {
	return []rewards.Option{
		{Name: "preset", Type: "string", Default: FlowGRPO, Doc: "whose formula: " + strings.Join(Presets(), ", ") + "; gives the options below their defaults"},
		{Name: "engine", Type: "string", Default: EngineAuto, Doc: "who reads: ppocr, tesseract, or auto: ppocr where its model and ONNX Runtime are here"},
		{Name: "model", Type: "string", Default: DefaultModel, Doc: "the PP-OCR model; rewardloop models list names them"},
		{Name: "profile", Type: "string", Default: ProfileRapidOCR, Doc: "constants around the models: rapidocr, or paddle2 (PaddleOCR 2.x, as flow_grpo runs it)"},
		{Name: "mode", Type: "string", Default: ModeFast, Doc: "fast, or parity: sizes, padding and batches of the reference"},
		{Name: "swap_rb", Type: "bool", Default: "false", Doc: "exchange red and blue, as flow_grpo does by giving PaddleOCR RGB arrays"},
		{Name: "device", Type: "string", Default: DeviceCPU, Doc: "where the models run: cpu or cuda:<n>"},
		{Name: "target_rule", Type: "string", Default: "first_quoted (unirl: double_or_single, deepgen: every_quoted)", Doc: "which part of ground truth or prompt is wanted"},
		{Name: "no_target", Type: "string", Default: "fail (unirl, flow_factory: prompt, deepgen: zero)", Doc: "without a quoted span the sample fails, wants the whole prompt, or has 0"},
		{Name: "bare_ground_truth", Type: "bool", Default: "false (verl_omni: true)", Doc: "a ground truth without double quotes is the target"},
		{Name: "empty_target", Type: "string", Default: "fail (verl_omni: match_empty, cosmos, unirl: met, deepgen: zero)", Doc: "an empty target fails the sample, asks for a picture without text, is met, or has 0"},
		{Name: "whitespace", Type: "string", Default: "space (verl_omni, deepgen: all)", Doc: "what is removed before comparing: the ASCII space, or all whitespace"},
		{Name: "ignore_punct", Type: "bool", Default: "false (deepgen: true)", Doc: "remove everything but ASCII letters and digits"},
		{Name: "case_sensitive", Type: "bool", Default: "false (deepgen: true)", Doc: "keep upper and lower case apart"},
		{Name: "nfkc", Type: "bool", Default: "false", Doc: "fold full-width letters and other compatibility forms first"},
		{Name: "fold_confusions", Type: "bool", Default: "false (deepgen: true)", Doc: "0 may be read as o, 1, i and j as l, 5 as s, v as w"},
		{Name: "min_conf", Type: "number", Default: "0", Doc: "leave out lines of a confidence below it"},
		{Name: "candidates", Type: "string", Default: "whole (deepgen: ngrams)", Doc: "compare with all lines joined, or with the closest run of up to ngram_max lines"},
		{Name: "ngram_max", Type: "int", Default: "3", Doc: "the longest run of lines for candidates: ngrams"},
		{Name: "substring", Type: "bool", Default: "true (deepgen: false)", Doc: "a target that the read text contains counts as met"},
		{Name: "min_len_for_substring", Type: "int", Default: "1", Doc: "the length from which substring applies"},
		{Name: "denominator", Type: "string", Default: "target (cosmos: raw_target)", Doc: "divide the distance by the length of the target after or before normalising"},
		{Name: "frame_interval", Type: "int", Default: "4 (flow_factory: 1)", Doc: "take every nth frame of a video"},
		{Name: "video", Type: "string", Default: "mean (flow_grpo_video: positive_mean)", Doc: "mean of the frames, or positive_mean: of those above 0, without the substring rule"},
	}
}
