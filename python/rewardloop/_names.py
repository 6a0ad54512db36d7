"""The public names of ``import rewardloop``."""

from ._launch import Server, launch
from .blocking import BlockingPending, Client, connect_sync
from .config import Config
from .errors import (
    ClosedError,
    ConnectError,
    FetchRefusedError,
    ForkedError,
    HelloRefusedError,
    InFlightError,
    InputError,
    LostError,
    NoAnswerError,
    PhaseError,
    QueueFullError,
    RewardloopError,
    StepLostError,
    TakenOverError,
    TooLargeError,
    UnreadError,
)
from .loop import Loop, Pending, connect
from .media import Media, audio, encode, frames, image, latent, video
from .report import Picture, log_step, to_frame, to_rows
from .result import ComponentError, Fallback, GroupStats, Outcome, Result, SampleFailedError
from .sample import Sample
from .scores import RmScores, advantages, rm_scores, step_mask
from .steps import Missing, Rewards, StepFailedError

__all__ = [
    "BlockingPending",
    "Client",
    "ClosedError",
    "Config",
    "ConnectError",
    "ForkedError",
    "GroupStats",
    "HelloRefusedError",
    "InFlightError",
    "InputError",
    "Loop",
    "LostError",
    "Media",
    "Missing",
    "NoAnswerError",
    "Outcome",
    "Pending",
    "PhaseError",
    "Picture",
    "QueueFullError",
    "Result",
    "Rewards",
    "RewardloopError",
    "RmScores",
    "Sample",
    "SampleFailedError",
    "Server",
    "StepFailedError",
    "StepLostError",
    "Fallback",
    "FetchRefusedError",
    "TakenOverError",
    "ComponentError",
    "TooLargeError",
    "UnreadError",
    "advantages",
    "audio",
    "connect",
    "connect_sync",
    "encode",
    "frames",
    "image",
    "latent",
    "launch",
    "log_step",
    "rm_scores",
    "step_mask",
    "to_frame",
    "to_rows",
    "video",
]
