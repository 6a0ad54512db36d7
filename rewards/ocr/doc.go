// Package ocr scores how well the text in a picture or video matches the text
// that was asked for.
//
// The life of a score: Target finds the wanted text in the sample's ground truth
// or prompt; a TextReader reads the pixels, and only the pixels; Options.Compare
// normalises both, measures the edit distance and gives 1 − distance/length.
// The formulas are those of flow_grpo (flow_grpo/ocr.py) and of verl-omni
// (verl_omni/utils/reward_score/genrm_ocr.py), chosen by the preset.
package ocr
