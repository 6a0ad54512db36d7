"""One finished rollout, as it is sent to the reward loop."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .media import Media, Path, media_of


def fresh_id() -> str:
    """Returns a new unique id."""
    return uuid.uuid4().hex


@dataclass(kw_only=True)
class Sample:
    """One finished rollout. Every field is optional; fields that are None or empty are not sent.

    NumPy scalars count as JSON numbers. Arrays and tensors in the JSON fields raise InputError with their path. Nothing
    is pickled.

    Args:
        id: 1 to 512 bytes, unique within the epoch of the run. Default: a new unique id.
        prompt: Prompt of the rollout.
        response: Response of a text rollout.
        media: One medium or up to 64, as returned by image(), video(), frames(), latent() or audio(). The path of a
            JPEG, PNG or WebP file and a PIL image are converted with image() when the Sample is made.
        ground_truth: Any JSON value; None: no ground truth.
        extra_info: A mapping of JSON values for the reward functions; None: no extra information.
        data_source: The trainer's name of the data set.
        step: The trainer's global step.
        split: "train" or "val"; "" counts as train.
        index: Row in the trainer's batch, 0 to 2**31 - 1; None: no row.
        uid: Id of the prompt group, at most 512 bytes; "": no group.
        group_size: Number of members of the prompt group, at most 2**31 - 1; 0: unknown.
        reward: Reward profile of the sample; "": the profile of the connection.
        run: Name of the training run; "": the run of the connection.
        deadline: Maximum number of seconds between the arrival at the server and the result, more than 0 and at most
            604800; None: the server's default.
        traceparent: W3C trace context that the server's spans of the sample belong to; "": the context of the current
            OpenTelemetry span at the time of the submission, if there is one.
    """

    id: str = field(default_factory=fresh_id)
    prompt: str = ""
    response: str = ""
    media: Media | Path | Sequence[Media | Path] = ()
    ground_truth: Any = None
    extra_info: Mapping[str, Any] | None = None
    data_source: str = ""
    step: int = 0
    split: str = ""
    index: int | None = None
    uid: str = ""
    group_size: int = 0
    reward: str = ""
    run: str = ""
    deadline: float | None = None
    traceparent: str = ""

    def __post_init__(self) -> None:
        self.media = media_of(self.media)

    def deadline_ms(self) -> int:
        """Returns the deadline in whole milliseconds, rounded up; 0: the server's default."""
        return 0 if self.deadline is None else math.ceil(round(self.deadline * 1000, 6))
