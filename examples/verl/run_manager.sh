#!/usr/bin/env bash
# (b) verl with a reward manager of the loop's. Give the trainer's own overrides as arguments.
# rewardloop serve reward.custom_reward_function.path=examples/python_reward/my_reward.py
set -eu
exec python3 -m verl.trainer.main_ppo \
	reward.reward_manager.source=importlib \
	reward.reward_manager.name=RewardloopRewardManager \
	reward.reward_manager.module.path=pkg://rewardloop.verl \
	+reward.rewardloop.url="${REWARDLOOP_URL:-ws://127.0.0.1:8080}" \
	reward.reward_model.enable=False \
	"$@"
