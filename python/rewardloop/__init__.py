"""Streams finished samples to a reward loop and hands their rewards out.

>>> async with rewardloop.connect("ws://127.0.0.1:8080", run="flow") as loop:   # doctest: +SKIP
...     result = await loop.submit(
...         rewardloop.Sample(prompt="a red cube", media=rewardloop.image(pixels, layout="HWC"))
...     )
...     print(result.outcome, result.reward_score)

rewardloop.Client is the same for code without an event loop. rewardloop.ray starts workers on a Ray cluster,
rewardloop.verl and rewardloop.flow_grpo are plug-ins of trainers. These and the names below are for you; all other
modules are the package's own:

    0  errors, messages                                     what can go wrong; what is said on the wire
    1  config, jsontext, media, launch, _folder, _supervise  settings; values; pictures; a server or a worker from Python
    2  dial, result, sample, ray                            a connection; what comes back; what is submitted; a cluster
    3  frame, scores, steps                                 a sample's bytes; the trainer's tensors; a step's rewards
    4  link                                                 a live connection with its credit
    5  fetches                                              declarations and questions over lost connections
    6  core                                                 one outcome for each sample over lost connections
    7  loop                                                 the client of an event loop
    8  blocking                                             the client of any thread
    9  flow_grpo, verl                                      plug-ins of trainers

A module imports only modules of the lines above its own.
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
    StepLostError,
    TakenOverError,
    FetchRefusedError,
    TooLargeError,
    UnreadError,
)
from .launch import Server, launch
from .loop import Loop, Pending, connect
from .media import Media, audio, encode, frames, image, latent, video
from .result import GroupStats, Outcome, Result, SampleFailedError, Fallback, ComponentError
from .sample import Sample
from .scores import RmScores, rm_scores, step_mask
from .steps import Missing, Rewards, StepFailedError

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
    "Fallback",
    "FetchRefusedError",
    "TakenOverError",
    "ComponentError",
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
