#!/usr/bin/env bash
# (c) verl-omni whose agent loop workers stream to the loop. Give the recipe's own overrides as arguments;
# REWARDLOOP_MANAGER=AgentLoopManager and TRAINER=verl.trainer.main_ppo for text with verl.
# rewardloop serve reward.custom_reward_function.path=builtin://ocr
set -eu
exec python3 -m "${TRAINER:-verl_omni.trainer.main_diffusion}" \
	++actor_rollout_ref.rollout.agent.agent_loop_manager_class="rewardloop.verl.${REWARDLOOP_MANAGER:-DiffusionAgentLoopManager}" \
	+reward.rewardloop.url="${REWARDLOOP_URL:-ws://127.0.0.1:8080}" \
	reward.reward_model.enable=False \
	reward.num_workers=1 \
	"$@"
