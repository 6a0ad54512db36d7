"""A reward of the loop as a prompt-and-picture function: ``f(images, prompts, metadata) → (scores, {})`` of DDPO, of TRL's
and diffusers' reinforcement examples, DanceGRPO, flow_grpo and their kin. flow_grpo itself: flow_grpo.py.

    from rewardloop.diffusers_style import Reward
    reward_fn = Reward()  # or Reward("pictures"): a reward of the server's configuration

Images are a tensor NCHW in [0, 1] (NFCHW of videos), arrays of bytes NHWC, or a list of PIL images; metadata is a dict for each.
These trainers have nothing for a picture without a reward: SampleFailedError, as a NaN or a 0 would reach the advantages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._trainers import client, groups, pictures, required, sample
from .errors import InputError


class Reward:
    """Callable and picklable; the connection is made by the first call of each process."""

    def __init__(self, profile: str = "") -> None:
        self.profile = profile
        self.__name__ = profile or "rewardloop"
        #: The trainer's step of the next call; None: the number of the call.
        self.step: int | None = None
        self._calls = 0

    def __call__(
        self, images: Any, prompts: Sequence[str], metadata: Any = None, **_: Any
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """The scores in the order of the images; SampleFailedError for the first that has none."""
        media = pictures(images)
        rows = metadata if isinstance(metadata, list | tuple) and len(metadata) == len(prompts) else [None] * len(prompts)
        if len(media) != len(prompts):
            raise InputError(f"{len(prompts)} prompts for {len(media)} images, want one for each", field="prompts")
        self._calls += 1
        step = self._calls if self.step is None else self.step
        each = zip(prompts, media, rows, groups(step, prompts), strict=True)
        samples = [sample(str(p), "", m if isinstance(m, dict) else {}, media=x, reward=self.profile, **g) for p, x, m, g in each]
        return np.array([required(r) for r in client("diffusers").score(samples)], np.float32), {}
