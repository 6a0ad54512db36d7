// Package ocr scores how well the text in a picture or video matches the requested text.
//
// The life of a score: Options.Targets finds the target texts in the sample's ground truth or
// prompt. A TextReader reads the pixels, and gets nothing else. Options.CompareLines normalises
// both texts, measures the edit distance and computes 1 − distance/length. The formulas are those
// of published projects. A preset, which is a set of options, selects the formula:
//
//	flow_grpo        yifan123/flow_grpo flow_grpo/ocr.py
//	flow_grpo_video  the scorer of flow_grpo's descendants for videos
//	verl_omni        verl_omni/utils/reward_score/genrm_ocr.py
//	deepgen          deepgenteam/deepgen_rl ocr_scorer_service/ocr.py
//	deepgen_old      the same project's ocr_old.py, which equals flow_grpo
//	cosmos           nvidia-cosmos/cosmos-rl cosmos_rl_reward/model/ocr.py
//	unirl            Tencent-Hunyuan/UniRL reward_service/scorers/ocr_common.py
//	flow_factory     X-GenGroup/Flow-Factory flow_factory/rewards/ocr.py
package ocr
