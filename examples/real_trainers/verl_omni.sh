#!/usr/bin/env bash
# verl-omni's own trainer, with the tiny random Stable Diffusion 3 that its tests build, two steps, rewards by this loop:
# everything that differs from verl-omni's own smoke tests is an override.
#
#   VERL_OMNI=../verl-omni VERL_OMNI_PYTHON=venv/bin/python verl_omni.sh folder [overrides]
#
# The Python has what verl-omni's installation asks for: vllm-omni, vllm, verl of its .github/verl_pin.txt. REWARDLOOP_BIN
# names the binary of the server. Without a card it goes as far as torch.distributed.init_process_group in the actor's
# worker, which wants NCCL, and ends with 0 if it came there.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
omni=$(cd "${VERL_OMNI:?names a checkout of verl-omni}" && pwd)
python=$(command -v "${VERL_OMNI_PYTHON:-python3}")
mkdir -p "${1:?a folder for the model, the data and the logs}"
out=$(cd "$1" && pwd)
shift
export PATH=$(dirname "$python"):$PATH PYTHONPATH=$repository/python:$omni${PYTHONPATH:+:$PYTHONPATH} TOKENIZERS_PARALLELISM=false RAY_DEDUP_LOGS=0

cd "$omni"
"$python" tests/special_e2e/build_sd3_tiny_random.py --output-dir "$out/sd3" >"$out/build.log" 2>&1
"$python" tests/special_e2e/create_dummy_diffusion_data.py --local_save_dir "$out/data" --train_size 8 --val_size 4 >>"$out/build.log" 2>&1

if ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
	echo "no card: as far as a CPU goes"
	# Ray is told of a card and of cores that are not there, or no worker would start.
	set -- +ray_kwargs.ray_init.num_gpus=1 ray_kwargs.ray_init.num_cpus=8 trainer.device=cpu "$@"
fi

port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"${REWARDLOOP_BIN:-rewardloop}" serve --listen "127.0.0.1:$port" reward.custom_reward_function.path=builtin://jpeg_compressibility >"$out/server.log" 2>&1 &
server=$!
trap 'kill $server' EXIT

code=0
REWARDLOOP_URL=ws://127.0.0.1:$port timeout 1200 bash "$repository/examples/verl/run_agent_loop.sh" \
	data.train_files="$out/data/train.parquet" data.val_files="$out/data/test.parquet" \
	data.train_batch_size=4 data.max_prompt_length=256 \
	actor_rollout_ref.model.algorithm=flow_grpo actor_rollout_ref.model.path="$out/sd3" \
	"actor_rollout_ref.model.custom_chat_template='{% for message in messages %}{{ message[\"content\"] }}{% endfor %}'" \
	actor_rollout_ref.model.attn_backend=native actor_rollout_ref.rollout.rollout_attn_backend=TORCH_SDPA \
	actor_rollout_ref.model.lora_rank=8 actor_rollout_ref.model.lora_alpha=16 actor_rollout_ref.model.target_modules=all-linear \
	actor_rollout_ref.actor.ppo_mini_batch_size=4 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 \
	actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.04 \
	actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1 actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=1 \
	actor_rollout_ref.rollout.name=vllm_omni actor_rollout_ref.rollout.n=2 actor_rollout_ref.rollout.agent.num_workers=1 \
	actor_rollout_ref.rollout.load_format=safetensors actor_rollout_ref.rollout.layered_summon=True \
	actor_rollout_ref.rollout.enforce_eager=True actor_rollout_ref.rollout.pipeline.num_inference_steps=4 \
	actor_rollout_ref.rollout.pipeline.height=32 actor_rollout_ref.rollout.pipeline.width=32 \
	actor_rollout_ref.rollout.algo.noise_level=1.0 actor_rollout_ref.rollout.algo.sde_type=sde \
	actor_rollout_ref.rollout.algo.sde_window_size=2 "actor_rollout_ref.rollout.algo.sde_window_range=[0,4]" \
	trainer.logger=console trainer.n_gpus_per_node=1 trainer.nnodes=1 trainer.val_before_train=False \
	trainer.test_freq=-1 trainer.save_freq=-1 trainer.resume_mode=disable trainer.total_training_steps=2 \
	"$@" >"$out/trainer.log" 2>&1 || code=$?
if [ "$code" = 0 ]; then
	grep -o 'critic/rewards/mean[^ ]*' "$out/trainer.log" || true
	echo "two steps were trained"
elif grep -q 'ProcessGroupNCCL is only supported with GPUs' "$out/trainer.log" && grep -q 'Total training steps: 2' "$out/trainer.log"; then
	echo "it read its data, made its datasets and started its workers; the first call that failed wants a card:"
	grep -E 'File .*(engine_workers|verl/utils/distributed)|ProcessGroupNCCL is only' "$out/trainer.log" | tail -4
else
	tail -n 30 "$out/trainer.log" >&2
	exit "$code"
fi
