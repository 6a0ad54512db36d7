"""What can go wrong, by name. Every message says what was wrong, where, and what to do."""

from __future__ import annotations

from typing import Any


class RewardloopError(Exception):
    """The base of every error of this package. They may be pickled: an error that a process pool cannot read ends the pool."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[RewardloopError], args: tuple[Any, ...], members: dict[str, Any]) -> RewardloopError:
    made = kind.__new__(kind, *args)
    made.args = args  # an OSError has not taken them
    made.__dict__.update(members)
    return made


class InputError(RewardloopError, ValueError):
    """A sample, a medium or a setting was refused before anything was sent."""

    def __init__(self, message: str, *, field: str = "", sample_id: str = "") -> None:
        where = f"sample {sample_id!r}: " if sample_id else ""
        super().__init__(f"{where}{field}: {message}" if field else f"{where}{message}")
        self.message = message
        #: What was refused, such as ``extra_info['mask']`` or ``media[0]``.
        self.field = field
        self.sample_id = sample_id


class TooLargeError(InputError):
    """Beyond a limit of the wire or of the server."""


class InFlightError(InputError):
    """The id of a sample that has no result yet was given to another one."""


class QueueFullError(RewardloopError):
    """As many samples are without a result as the client may hold; wait for room()."""


class PhaseError(RewardloopError):
    """A phase of training has begun without all that it asks for, such as that an engine still holds memory."""


class ConnectError(RewardloopError, ConnectionError):
    """A connection could not be made. ``hint`` says what to do about it."""

    #: The server says that it is being stopped, or that it takes no more clients now: another will come.
    stopping = False

    def __init__(self, url: str, reason: str, hint: str = "") -> None:
        super().__init__(f"{url}: {reason}" + (f"; {hint}" if hint else ""))
        self.url = url
        self.reason = reason
        self.hint = hint


class HelloRefusedError(ConnectError):
    """The server answered the hello with an error; ``code`` is its class."""

    def __init__(self, url: str, code: str, message: str, hint: str = "") -> None:
        super().__init__(url, f"the server refused the hello: {code}: {message}", hint)
        self.code = code
        self.stopping = code == "draining"


class LostError(RewardloopError, ConnectionError):
    """The connection was lost and could not be had again in time."""


class TakenOverError(LostError):
    """Another connection said hello with the same run, client and lane."""


class ClosedError(RewardloopError):
    """The client was closed before the sample had a result."""


class ForkedError(RewardloopError):
    """The client was made in another process; threads and sockets do not survive a fork."""


class UnreadError(RewardloopError):
    """More results came than results() keeps for its reader; the oldest were let go."""

    def __init__(self, dropped: int, kept: int) -> None:
        super().__init__(
            f"{dropped} results were let go before results() read them: it keeps the latest {kept}; "
            "read along while you submit, or use what submit() returns, which always gets its result"
        )
        self.dropped = dropped


class StepLostError(RewardloopError):
    """The gateway that assembled a step was started anew, or has forgotten this client: its record is gone."""

    def __init__(self, step: int, split: str) -> None:
        super().__init__(
            f"step {step} ({split}) is lost: the gateway that assembled it is gone, and its record with it; what submit() "
            "returned has its results: for rewards() declare the step with step() and submit its samples again"
        )
        self.step = step
        self.split = split


class FetchRefusedError(RewardloopError):
    """The server refused to hand rewards out, or its answer broke the protocol; ``code`` is the class.

    ``expired``: it has forgotten the rows. ``malformed``: a chunk too far ahead, for instance.
    """

    def __init__(self, what: str, code: str, message: str) -> None:
        super().__init__(f"{what}: {code}: {message}")
        self.code = code


class NoAnswerError(RewardloopError, TimeoutError):
    """The server let a question pass."""
