"""The rewards of the tests: a test that knows what it sent knows the score."""

import math

_seen = set()


def _mood(text):
    """What a prompt says should happen: a number is the score, a word a failure."""
    word, _, rest = text.partition(":")
    if word == "unavailable":
        raise ConnectionError("the model behind this reward is restarting")
    if word == "once":  # once:<name>:<score> fails the first time
        name, _, rest = rest.partition(":")
        if name not in _seen:
            _seen.add(name)
            raise ConnectionError("the model behind this reward is restarting")
    if word == "broken":
        raise ValueError("this sample cannot be scored")
    if word == "nan":
        return math.nan
    return float(rest or word)


def say(prompt, solution_image):
    """The number in the prompt, of a sample with a picture."""
    return {"score": _mood(prompt), "height": float(solution_image.shape[-2])}


def _grey(pixels):
    return float(pixels.mean()) / 255


def brightness(solution_image):
    """0 for a black picture, 1 for a white one."""
    return _grey(solution_image)


def geneval(solution_image, extra_info):
    """strict_reward is 1 for what is counted; only_strict must have arrived."""
    strict = float(extra_info["tag"] == "counting")
    return {"score": _grey(solution_image), "strict_reward": strict, "only_strict": extra_info["only_strict"]}


def edit(media):
    """How much brighter the edited picture, the first, is than its source."""
    edited, source = (_grey(m["data"]) for m in media)
    return edited - source


def latent(solution_image, extra_info):
    """The mean of a latent plus its noise level; everything else must be there."""
    embeds, pooled, level = (extra_info[name] for name in ("prompt_embeds", "pooled_prompt_embeds", "u"))
    if solution_image.shape[0] != 16 or embeds.ndim != 2 or pooled.ndim != 1 or extra_info.get("seeds", [0]) != [0]:
        raise ValueError(f"shapes {solution_image.shape}, {embeds.shape}, {pooled.shape}, seeds {extra_info.get('seeds')}")
    if math.isnan(float(solution_image.mean())):
        raise ConnectionError("the model behind this reward is restarting")
    return float(solution_image.mean()) + float(level[0])


def answers(prompt, solution_str, ground_truth):
    """1 if the response holds the label, else 0."""
    if not prompt.endswith("?"):
        _mood(prompt)
    right = str(ground_truth) in solution_str
    return {"score": float(right), "acc": right, "words": float(len(solution_str.split()))}
