"""A reward function ``f(images, prompts, metadata) → (scores, {})`` for image trainers, with rewards of a reward loop.

This form is used by DDPO, the reinforcement learning examples of TRL and diffusers, DanceGRPO, flow_grpo and similar
trainers. rewardloop.flow_grpo is for flow_grpo itself.

    from rewardloop.diffusers_style import Reward
    reward_fn = Reward()  # or Reward("pictures"): a reward of the server's configuration

Images are a tensor NCHW in [0, 1] (videos: NFCHW), byte arrays NHWC, or a list of PIL images; metadata is one dict per
image. These trainers define no value for a picture without a reward, and a NaN or a 0 would change the advantages. A
picture without a reward therefore raises SampleFailedError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._trainers import client, groups, pictures, required, sample
from .errors import InputError


class Reward:
    """The reward function, callable and picklable. The first call in each process opens the connection."""

    def __init__(self, profile: str = "") -> None:
        self.profile = profile
        self.__name__ = profile or "rewardloop"
        #: The trainer's step of the next call; None: the number of the call.
        self.step: int | None = None
        self._calls = 0

    def __call__(
        self, images: Any, prompts: Sequence[str], metadata: Any = None, **_: Any
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Returns the scores, float32 [N] in the order of the images, and an empty dict.

        Raises SampleFailedError for the first image without a score.
        """
        media = pictures(images)
        rows = metadata if isinstance(metadata, list | tuple) and len(metadata) == len(prompts) else [None] * len(prompts)
        if len(media) != len(prompts):
            raise InputError(f"{len(prompts)} prompts for {len(media)} images, want one for each", field="prompts")
        self._calls += 1
        step = self._calls if self.step is None else self.step
        each = zip(prompts, media, rows, groups(step, prompts), strict=True)
        samples = [sample(str(p), "", m if isinstance(m, dict) else {}, media=x, reward=self.profile, **g) for p, x, m, g in each]
        return np.array([required(r) for r in client("diffusers").score(samples)], np.float32), {}
