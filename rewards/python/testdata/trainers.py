"""Reward functions as the users of other trainers write them, unchanged by what calls them here."""

import asyncio

# --- TRL ----------------------------------------------------------------------


def reward_exact(completions, ground_truth, **kwargs):
    """1 for the right answer; None where the row has no answer, as for a data set of several tasks."""
    return [None if truth is None else 1.0 if text == truth else 0.0 for text, truth in zip(completions, ground_truth)]


def reward_chat(prompts, completions, level, trainer_state, log_extra=None, log_metric=None, completion_ids=None, **kwargs):
    """Conversations, columns of the data set and what TRL's trainer hands on."""
    texts = [completion[0]["content"] for completion in completions]
    log_extra("asked", [prompt[-1]["content"] for prompt in prompts])
    log_metric("length", sum(map(len, texts)) / len(texts))
    return [len(text) * float(one) + trainer_state.global_step for text, one in zip(texts, level)]


async def reward_later(completions, **kwargs):
    await asyncio.sleep(0)
    return [float(len(text)) for text in completions]


def reward_by_ids(completions, completion_ids, **kwargs):
    return [len(ids) for ids in completion_ids]


# --- slime ----------------------------------------------------------------------


async def group_rm(args, samples):
    """--group-rm: who is longer than the mean of the group."""
    await asyncio.sleep(0)
    mean = sum(len(sample.response) for sample in samples) / len(samples)
    return [args.scale * (len(sample.response) - mean) for sample in samples]


async def single_rm(args, sample, **kwargs):
    if sample.response == "raise":
        raise ValueError("no such sample")
    await asyncio.sleep(0)
    return {"acc": float(sample.response == sample.label), "long": float(len(sample.response)), "tag": sample.metadata.get("tag")}


# --- ms-swift ---------------------------------------------------------------------


class ORM:
    def __init__(self, args=None, **kwargs):
        self.args = args

    def __call__(self, **kwargs):
        raise NotImplementedError


class Cosine(ORM):
    def __init__(self, args=None, **kwargs):
        super().__init__(args)
        self.bonus = args.bonus

    def __call__(self, completions, solution, **kwargs):
        state = kwargs.get("trainer_state")
        asked = [messages[0]["content"] for messages in kwargs["messages"]]
        return [
            None if text == "skip" else float(text == right) + self.bonus + state.global_step + len(prompt)
            for text, right, prompt in zip(completions, solution, asked)
        ]


class Later(ORM):
    async def __call__(self, completions, **kwargs):
        await asyncio.sleep(0)
        return [float(len(text)) for text in completions]


class Tokens(ORM):
    def __call__(self, completions, response_token_ids, **kwargs):
        return [len(ids) for ids in response_token_ids]


# --- OpenRLHF ---------------------------------------------------------------------


def reward_func(queries, prompts, labels):
    right = [float(query == prompt + label) for query, prompt, label in zip(queries, prompts, labels)]
    return {"rewards": [r - 0.5 for r in right], "scores": right, "extra_logs": {"lengths": [len(q) for q in queries], "step": 3}}


# --- OpenJudge --------------------------------------------------------------------


class RewardResult:
    def __init__(self, original_index, group_index, score, reward_info, details=None):
        self.original_index, self.group_index, self.score = original_index, group_index, score
        self.reward_info, self.details = reward_info, details


class Judge:
    def __init__(self, weight=1.0):
        self.weight = weight

    async def compute_batch_scores(self, prompt_to_samples):
        """Results in another order, which their original_index undoes."""
        await asyncio.sleep(0)
        results = []
        for prompt, samples in prompt_to_samples.items():
            for sample in samples:
                assert sample.messages[-1] == {"role": "assistant", "content": sample.response} and sample.prompt == prompt
                words = float(len(sample.response.split()))
                date = sample.extra.get("chat_date") if sample.extra else None
                score, info = self.weight * words, {"words_score": words}
                results.append(RewardResult(sample.original_index, sample.group_index, score, info, {"date": date}))
        return results[::-1]


compute_score_async = Judge(weight=2.0)


class Lossy(Judge):
    async def compute_batch_scores(self, prompt_to_samples):
        return (await super().compute_batch_scores(prompt_to_samples))[1:]


# --- DDPO -------------------------------------------------------------------------


def brightness():
    """A factory, as each of DDPO's rewards is one."""

    def _fn(images, prompts, metadata):
        if hasattr(images, "detach"):  # torch, NCHW, 0 to 1
            assert tuple(images.shape[1:]) == (3, 4, 6) and float(images.max()) <= 1
            scores = images.mean(dim=(1, 2, 3)).cpu().numpy()
        else:  # NumPy, NHWC, 0 to 255
            assert images.shape[1:] == (4, 6, 3) and images.dtype == "uint8"
            scores = images.mean(axis=(1, 2, 3)) / 255
        return scores, {"long": [len(prompt) for prompt in prompts], "tags": [one.get("tag", "") for one in metadata]}

    return _fn


def wrong_factory():
    return 3


# --- RM-Gallery -------------------------------------------------------------------


def rm_gallery(prompt, responses, extras=None, **kwargs):
    """The form of the tutorial post_training."""
    scores = [float(len(response)) for response in responses]
    return scores, {"reward_length": scores, "last": [kwargs.get("last_mean_std", -1.0)] * len(responses), "prompt": prompt}


def dgr(
    data_source, solution_str, ground_truth, extra_info=None, group_evaluation=False, prompt_str=None, all_responses=None,
    all_extra_infos=None, **kwargs,
):
    """The form of DGRRewardManager."""
    assert group_evaluation and solution_str == all_responses and ground_truth == all_extra_infos[0]
    scores = [float(len(r)) + (extra.get("chosen") == r) for r, extra in zip(all_responses, all_extra_infos)]
    return {"group_scores": scores, "mode": "pairwise_dgr", "n_responses": len(scores), "comparisons": [{"i": 0, "j": 1}] * 3}
