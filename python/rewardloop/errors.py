"""The exceptions of this package. Every message states what was wrong, where, and what to do."""

from __future__ import annotations

from typing import Any


class RewardloopError(Exception):
    """The base class of all exceptions of this package.

    The exceptions can be pickled, because an exception that a process pool cannot unpickle ends the pool.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[RewardloopError], args: tuple[Any, ...], members: dict[str, Any]) -> RewardloopError:
    made = kind.__new__(kind, *args)
    made.args = args  # an OSError has not taken them
    made.__dict__.update(members)
    return made


class InputError(RewardloopError, ValueError):
    """A sample, a medium or a setting is invalid, and nothing was sent. ``field`` is the name of the invalid part."""

    def __init__(self, message: str, *, field: str = "", sample_id: str = "") -> None:
        where = f"sample {sample_id!r}: " if sample_id else ""
        super().__init__(f"{where}{field}: {message}" if field else f"{where}{message}")
        self.message = message
        #: What was refused, such as ``extra_info['mask']`` or ``media[0]``.
        self.field = field
        self.sample_id = sample_id


class TooLargeError(InputError):
    """The input is larger than a limit of the wire format or of the server."""


class InFlightError(InputError):
    """A sample has the id of another sample that has no result yet."""


class QueueFullError(RewardloopError):
    """The client has the maximum number of samples without a result (wait for room()) or of unanswered fetches."""


class PhaseError(RewardloopError):
    """A training phase has begun without all that it requires: for example, an engine still holds memory."""


class ConnectError(RewardloopError, ConnectionError):
    """A connection could not be opened. ``reason`` contains the cause, ``hint`` a remedy."""

    #: The server says that it is being stopped, or that it takes no more clients now: another will come.
    stopping = False

    def __init__(self, url: str, reason: str, hint: str = "") -> None:
        super().__init__(f"{url}: {reason}" + (f"; {hint}" if hint else ""))
        self.url = url
        self.reason = reason
        self.hint = hint


class HelloRefusedError(ConnectError):
    """The server answered the hello with an error. ``code`` is the class of the error."""

    def __init__(self, url: str, code: str, message: str, hint: str = "") -> None:
        super().__init__(url, f"the server refused the hello: {code}: {message}", hint)
        self.code = code
        self.stopping = code == "draining"


class LostError(RewardloopError, ConnectionError):
    """The connection was lost and could not be restored in time."""


class TakenOverError(LostError):
    """Another connection with the same run, client and lane has replaced this connection."""


class ClosedError(RewardloopError):
    """The client was closed before the sample had a result."""


class ForkedError(RewardloopError):
    """The client was created in another process; threads and sockets do not survive a fork."""


class UnreadError(RewardloopError):
    """More results arrived than results() keeps, and the oldest were dropped. ``dropped`` is the number of these."""

    def __init__(self, dropped: int, kept: int) -> None:
        super().__init__(
            f"{dropped} results were let go before results() read them: it keeps the latest {kept}; "
            "read along while you submit, or use what submit() returns, which always gets its result"
        )
        self.dropped = dropped


class StepLostError(RewardloopError):
    """The gateway that assembled the step was restarted, or has lost the session: its record of the step is lost."""

    def __init__(self, step: int, split: str) -> None:
        super().__init__(
            f"step {step} ({split}) is lost: the gateway that assembled it is gone, and its record with it; what submit() "
            "returned has its results: for rewards() declare the step with step() and submit its samples again"
        )
        self.step = step
        self.split = split


class FetchRefusedError(RewardloopError):
    """The server refused a fetch of rewards, or its answer broke the protocol. ``code`` is the class of the error.

    ``expired``: the server no longer has the rows. ``malformed``: for example, the chunk is too far ahead.
    """

    def __init__(self, what: str, code: str, message: str) -> None:
        super().__init__(f"{what}: {code}: {message}")
        self.code = code


class NoAnswerError(RewardloopError, TimeoutError):
    """The server did not answer a fetch of rewards in time."""
