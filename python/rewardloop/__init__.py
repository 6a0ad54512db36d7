"""Streams finished samples to a reward loop and hands their rewards out.

>>> async with rewardloop.connect("ws://127.0.0.1:8080", run="flow") as loop:   # doctest: +SKIP
...     result = await loop.submit(
...         rewardloop.Sample(prompt="a red cube", media=rewardloop.image(pixels, layout="HWC"))
...     )
...     print(result.outcome, result.reward_score)

rewardloop.Client is the same for code without an event loop. rewardloop.ray starts workers on a Ray cluster,
rewardloop.verl and rewardloop.flow_grpo are plug-ins of trainers. These and the names below are for you; all other
modules are the package's own:

    media, sample → jsontext, frame     what is submitted, and its bytes
    config, dial → link, engine         a connection, and one outcome for each sample over lost ones
    steps, takes                        the rewards of a step as a whole
    result, scores                      what comes back, and the trainer's tensors of it
    loop, blocking                      the two clients, on one engine
    launch; _supervise, _folder         a server from Python; a worker kept alive
"""

from .blocking import BlockingPending, Client, connect_sync
from .config import Config
from .errors import (
    ClosedError,
    ConnectError,
    ForkedError,
    HelloRefusedError,
    InFlightError,
    InputError,
    LostError,
    NoAnswerError,
    QueueFullError,
    RewardloopError,
    SampleFailedError,
    StepFailedError,
    StepLostError,
    TakenOverError,
    TakeRefusedError,
    TooLargeError,
    UnreadError,
)
from .launch import Server, launch
from .loop import Loop, Pending, connect
from .media import Media, audio, encode, frames, image, latent, video
from .result import GroupStats, Outcome, Result, Substitute, TermError
from .sample import Sample
from .scores import RmScores, rm_scores, step_mask
from .steps import Missing, Rewards

__version__ = "0.1.0"

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
    "Substitute",
    "TakeRefusedError",
    "TakenOverError",
    "TermError",
    "TooLargeError",
    "UnreadError",
    "audio",
    "connect",
    "connect_sync",
    "encode",
    "frames",
    "image",
    "latent",
    "launch",
    "rm_scores",
    "step_mask",
    "video",
]
