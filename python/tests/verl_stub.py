"""What the tests with the real verl share: a tokenizer, a configuration, rows, and an agent loop that generates nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import verl
from omegaconf import OmegaConf, open_dict
from tensordict import TensorDict
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
from verl.utils import tensordict_utils as tu

#: As a byte-level tokenizer writes them: the first letter stands for a space. Token 6 + n is the number n.
WORDS = ["<pad>", "<eos>", *(f"\u0120{w}" for w in ("####", "the", "answer", "is", *map(str, range(100))))]
PROMPT, RESPONSE = 8, 12


class CannedAgentLoop(AgentLoopBase):
    """Answers with the token ids that the row holds."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        ids = [int(i) for i in kwargs["canned"]]
        ids[-1] += int(kwargs.get("session_id", 0))  # rollouts of one prompt differ
        return AgentLoopOutput(
            prompt_ids=[3, 4],
            response_ids=ids,
            response_mask=[1] * len(ids),
            num_turns=2,
            metrics=AgentLoopMetrics(),
            extra_fields={},
        )


def save_tokenizer(folder: Path) -> str:
    """A tokenizer of a hundred words, with the config.json that verl reads beside it."""
    words = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")
    fast.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    fast.save_pretrained(folder)
    (folder / "config.json").write_text(
        json.dumps({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 8, "num_attention_heads": 1,
                    "num_hidden_layers": 1, "num_key_value_heads": 1, "intermediate_size": 8, "vocab_size": len(WORDS)})
    )  # fmt: skip
    return str(folder)


def configuration(tokenizer: str, agents: Path, **rewardloop: Any) -> Any:
    """verl's own configuration, with what the tests change in it."""
    config = OmegaConf.load(Path(verl.__file__).parent / "trainer/config/_generated_ppo_trainer.yaml")
    agents.write_text("- name: canned\n  _target_: tests.verl_stub.CannedAgentLoop\n")
    with open_dict(config):
        config.actor_rollout_ref.model.path = tokenizer
        rollout = config.actor_rollout_ref.rollout
        rollout.name, rollout.n, rollout.prompt_length, rollout.response_length = "vllm", 4, PROMPT, RESPONSE
        rollout.agent.num_workers, rollout.agent.default_agent_loop = 2, "canned"
        rollout.agent.agent_loop_config_path = str(agents)
        config.reward.num_workers = 2
        config.trainer.project_name, config.trainer.experiment_name = "tests", "verl"
        if rewardloop:
            config.reward.rewardloop = rewardloop
    return config


def answers(n: int, groups: list[int]) -> DataProto:
    """n gsm8k rows: row i answers i % 7, right where that is 3; groups are the sizes of the prompt groups."""
    rng = np.random.default_rng(0)
    uids = [f"u{g}" for g, size in enumerate(groups) for _ in range(size)][:n]
    canned = np.empty(n, dtype=object)
    for i in range(n):
        filler = [3, 4, 5][: int(rng.integers(0, 4))]
        canned[i] = [*filler, 2, 6 + i % 7]
    chat = np.empty(n, dtype=object)
    chat[:] = [[{"role": "system", "content": "s"}, {"role": "user", "content": f"question {i}"}] for i in range(n)]
    return DataProto(
        batch=TensorDict({"dummy": torch.zeros(n, 1)}, batch_size=n),
        non_tensor_batch={
            "canned": canned,
            "raw_prompt": chat,
            "uid": np.array(uids, dtype=object),
            "data_source": np.array(["openai/gsm8k"] * n, dtype=object),
            "reward_model": np.array([{"ground_truth": "3", "style": "rule"}] * n, dtype=object),
            "extra_info": np.array([{"index": i, "split": "train"} for i in range(n)], dtype=object),
        },
        meta_info={"global_steps": 7},
    )


def prompts(n: int, run: str, **columns: Any) -> TensorDict:
    """n gsm8k prompts as verl's trainer gives them to an agent loop manager with TransferQueue: the j-th rollout of
    prompt i answers i % 3 + j."""
    batch = answers(n, [1] * n).non_tensor_batch
    for i in range(n):
        batch["canned"][i] = [2, 6 + i % 3]
    batch["uid"] = np.array([f"{run}-{i}" for i in range(n)], dtype=object)
    batch["index"] = np.arange(n)
    made = tu.get_tensordict({k: v.tolist() if v.dtype == object else torch.from_numpy(v) for k, v in batch.items()} | columns)
    tu.assign_non_tensor_data(made, "global_steps", 7)
    return made


def generated(rows: DataProto) -> DataProto:
    """The rows as an agent loop returns them: tokens and masks instead of canned answers."""
    n = len(rows)
    responses, mask = torch.zeros(n, RESPONSE, dtype=torch.int64), torch.zeros(n, PROMPT + RESPONSE, dtype=torch.int64)
    mask[:, PROMPT - 2 : PROMPT] = 1
    for i, ids in enumerate(rows.non_tensor_batch["canned"]):
        responses[i, : len(ids)] = torch.tensor(ids)
        mask[i, PROMPT : PROMPT + len(ids)] = 1
    prompts = torch.zeros(n, PROMPT, dtype=torch.int64)
    return DataProto(
        batch=TensorDict({"prompts": prompts, "responses": responses, "attention_mask": mask}, batch_size=n),
        non_tensor_batch=dict(rows.non_tensor_batch),
        meta_info=dict(rows.meta_info),
    )
