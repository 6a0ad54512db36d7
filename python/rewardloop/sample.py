"""One finished rollout, as it goes to the reward loop."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .media import Media, Path, media_of


def fresh_id() -> str:
    """An id that nobody else has."""
    return uuid.uuid4().hex


@dataclass(kw_only=True)
class Sample:
    """One finished rollout. Every field may be left out; what is None or empty is not sent.

    NumPy scalars count as numbers of JSON, arrays and tensors are refused by name. Nothing is ever pickled.

    Args:
        id: 1 to 512 bytes, unique within the run's epoch. A fresh one if left out.
        prompt: What was asked for.
        response: What a text rollout produced.
        media: Pictures and the like, as image(), video(), latent() or audio() return them: one, or up to 64. The path
            of a JPEG, PNG or WebP file and a PIL image stand for image() of it, which is made now.
        ground_truth: Any JSON; None: there is none.
        extra_info: A mapping of JSON for the reward functions; None: there is none.
        data_source: The trainer's name of the data set.
        step: The trainer's global step.
        split: "train" or "val"; "" counts as train.
        index: Row in the trainer's batch, 0 to 2**31 - 1; None: the sample has no row.
        uid: The prompt group, at most 512 bytes; "": the sample is in none.
        group_size: How many members that group has, at most 2**31 - 1; 0: unknown.
        reward: The profile that scores it; "": the connection's.
        run: The training run; "": the connection's.
        deadline: Seconds from its arrival at the server within which it is to be answered, more than 0 and at most
            604800; None: the server's default.
        traceparent: W3C trace context that the server's spans of the sample belong to; "": that of the OpenTelemetry
            span that is current where the sample is submitted, if there is one.
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
        """The deadline in whole milliseconds, rounded up; 0: the server's default."""
        return 0 if self.deadline is None else math.ceil(round(self.deadline * 1000, 6))
