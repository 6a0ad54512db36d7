"""One finished rollout, as it goes to the reward loop."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .media import Media


def fresh_id() -> str:
    """An id that nobody else has."""
    return uuid.uuid4().hex


@dataclass(kw_only=True)
class Sample:
    """One finished rollout. Every field may be left out; what is None or empty is not sent.

    ``ground_truth`` is any JSON and ``extra_info`` a mapping of JSON; NumPy scalars count as
    numbers, arrays and tensors are refused by name. Nothing is ever pickled.
    """

    #: Unique within the run's epoch, up to 512 bytes. A fresh one if left out.
    id: str = field(default_factory=fresh_id)
    #: What was asked for.
    prompt: str = ""
    #: What a text rollout produced.
    response: str = ""
    #: Pictures and the like: one, or several.
    media: Media | Sequence[Media] = ()
    #: Any JSON.
    ground_truth: Any = None
    #: A mapping of JSON.
    extra_info: Mapping[str, Any] | None = None
    #: The trainer's name of the data set.
    data_source: str = ""
    #: The trainer's global step.
    step: int = 0
    #: train or val; empty counts as train.
    split: str = ""
    #: Row in the trainer's batch, from 0.
    index: int | None = None
    #: The prompt group, and how many members it has; 0: unknown.
    uid: str = ""
    group_size: int = 0
    #: The profile that scores it; empty: the connection's.
    reward: str = ""
    #: The training run; empty: the connection's.
    run: str = ""
    #: Seconds from its arrival at the server within which it is to be answered, up to 604800.
    deadline: float | None = None

    def deadline_ms(self) -> int:
        """The deadline in whole milliseconds, rounded up; 0: the server's default."""
        return 0 if self.deadline is None else math.ceil(round(self.deadline * 1000, 6))
