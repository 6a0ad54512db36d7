"""Streams finished samples to a reward loop and returns their rewards.

>>> async with rewardloop.connect("ws://127.0.0.1:8080", run="flow") as loop:   # doctest: +SKIP
...     result = await loop.submit(
...         rewardloop.Sample(prompt="a red cube", media=rewardloop.image("a.jpg"))
...     )
...     print(result.outcome, result.reward_score)

rewardloop.Client has the same methods for code without an event loop. rewardloop.ray starts workers on a Ray cluster.
rewardloop.verl, rewardloop.flow_grpo and the other modules of line 10 are plug-ins for trainers.
``python -m rewardloop.check`` tests a reward function without a server. These modules and the names that
``import rewardloop`` provides are the public interface. All other modules are internal:

    0  errors, messages, check, _processes, scorers         exceptions; protocol messages; function check; catalogue
    1  config, jsontext, media, _launch, _folder, _supervise settings; JSON; media; processes started from Python
    1  traceparent                                          W3C trace context of the caller's span
    2  __main__                                             ``python -m rewardloop``, the program
    2  dial, result, sample, ray                            connections; results; samples; a Ray cluster
    3  frame, report, scores, steps                         encoded samples; loggers; trainer tensors; step rewards
    4  link                                                 a live connection with its credit
    5  fetches                                              step declarations and fetches over lost connections
    6  core                                                 one outcome for each sample over lost connections
    7  loop                                                 the client for asyncio
    8  blocking                                             the client for threads
    9  _trainers, _names                                    code that adapters share; the names of `import rewardloop`
   10  areal, diffusers_style, flow_factory, flow_grpo      plug-ins for trainers
   10  ms_swift, nemo_rl, openrlhf, roll, skyrl, slime      plug-ins for trainers
   10  trl, unirl, verl                                     plug-ins for trainers

A module imports only modules with a smaller line number.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ._names import *  # noqa: F403
    from ._names import __all__ as __all__
else:

    def __getattr__(name: str) -> Any:
        """Imports the public names at the first access: ``python -m rewardloop.check`` needs no other package."""
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        names = importlib.import_module("._names", __name__)
        globals().update({n: getattr(names, n) for n in names.__all__}, __all__=names.__all__)
        try:
            return globals()[name]
        except KeyError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
