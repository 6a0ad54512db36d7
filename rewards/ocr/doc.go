// Package ocr scores how well the text in a picture or video matches the text
// that was asked for.
//
// The life of a score: Options.Targets finds the wanted texts in the sample's
// ground truth or prompt; a TextReader reads the pixels, and only the pixels;
// Options.CompareLines normalises both, measures the edit distance and gives
// 1 − distance/length. The formulas are the field's, chosen by the preset, which
// is nothing but a set of options:
//
//	flow_grpo        yifan123/flow_grpo flow_grpo/ocr.py
//	flow_grpo_video  the scorer of flow_grpo's descendants for videos
//	verl_omni        verl_omni/utils/reward_score/genrm_ocr.py
//	deepgen          deepgenteam/deepgen_rl ocr_scorer_service/ocr.py
//	deepgen_old      the same, ocr_old.py: flow_grpo
//	cosmos           nvidia-cosmos/cosmos-rl cosmos_rl_reward/model/ocr.py
//	unirl            Tencent-Hunyuan/UniRL reward_service/scorers/ocr_common.py
//	flow_factory     X-GenGroup/Flow-Factory flow_factory/rewards/ocr.py
package ocr
