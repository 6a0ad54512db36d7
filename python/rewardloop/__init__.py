"""Streams finished samples to a reward loop and hands their rewards out.

>>> async with rewardloop.connect("ws://127.0.0.1:8080", run="flow") as loop:   # doctest: +SKIP
...     result = await loop.submit(
...         rewardloop.Sample(prompt="a red cube", media=rewardloop.image("a.jpg"))
...     )
...     print(result.outcome, result.reward_score)

rewardloop.Client is the same for code without an event loop. rewardloop.ray starts workers on a Ray cluster,
rewardloop.verl, flow_grpo and the others of line 10 are plug-ins of trainers, and ``python -m rewardloop.check`` tries a
reward function without a server. These and the names below are for you; all other
modules are the package's own:

    0  errors, messages, check, _processes, scorers         what can go wrong; what is said; a function tried; the catalogue
    1  config, jsontext, media, _launch, _folder, _supervise settings; values; pictures; a server or a worker from Python
    1  traceparent                                          the caller's span
    2  __main__                                             ``python -m rewardloop``, the program
    2  dial, result, sample, ray                            a connection; what comes back; what is submitted; a cluster
    3  frame, report, scores, steps                         a sample's bytes; loggers; the trainer's tensors; a step's rewards
    4  link                                                 a live connection with its credit
    5  fetches                                              declarations and questions over lost connections
    6  core                                                 one outcome for each sample over lost connections
    7  loop                                                 the client of an event loop
    8  blocking                                             the client of any thread
    9  _trainers, _names                                    what adapters share; what `import rewardloop` has
   10  areal, diffusers_style, flow_factory, flow_grpo      plug-ins of trainers
   10  ms_swift, nemo_rl, openrlhf, roll, skyrl, slime      plug-ins of trainers
   10  trl, unirl, verl                                     plug-ins of trainers

A module imports only modules of the lines above its own.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ._names import *  # noqa: F403
    from ._names import __all__ as __all__
else:

    def __getattr__(name: str) -> Any:
        """Imports what there is when the first of it is asked for: ``python -m rewardloop.check`` needs no other package."""
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
