"""Objects of the core: samples, lanes, and the live WebSocket of a lane."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable

from . import messages
from .dial import Connection
from .errors import RewardloopError
from .frame import Frame
from .jsontext import text
from .messages import Message, Welcome
from .result import Result

#: Takes the one outcome of a sample: its result, or why there is none.
Done = Callable[[Result | RewardloopError], None]


class Call:
    """A sample without a result. Belongs to the Core."""

    __slots__ = ("done", "frame", "id", "link", "number", "resolved", "sent", "step", "taken_back", "timer")

    def __init__(self, number: int, sample_id: str, frame: Frame, step: tuple[str, int], done: Done) -> None:
        self.number = number
        self.id = sample_id
        self.frame = frame
        self.step = step
        self.done = done
        self.link: Link | None = None  # it was sent on, if that lives
        self.sent = False  # at least once: a server may know it
        self.taken_back = False
        self.resolved = False
        self.timer: asyncio.TimerHandle | None = None


class Lane:
    """One of the client's parallel connections, over all its links. Belongs to the Core."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.session = ""  # of the latest welcome
        self.url = ""  # where that came from
        self.seq = 0  # every result of the session up to it is here
        self.unconfirmed = 0
        self.link: Link | None = None
        self.task: asyncio.Task[None] | None = None
        self.tries = 0  # dials since a server took samples
        self.give_up = 0.0  # when they end, on the event loop's clock


#: Seconds after which a server that begins to drain was of use, even if it was sent nothing: more than
#: the longest pause between two dials.
_PROVEN = 5.0
#: Seconds for which a draining server that knew the session is listened to in any case: the results that it
#: still has come right behind its welcome.
LATE_RESULTS = 1.0


#: How many waiting samples are counted to tell a server what it may expect.
_COUNTED = 1024


def _size(queue: deque[Call]) -> int:
    """The bytes of the first samples of a queue."""
    return sum(call.frame.size for call in itertools.islice(queue, _COUNTED))


class Link:
    """One live WebSocket of a lane, with its credit."""

    def __init__(self, lane: Lane, ws: Connection, welcome: Welcome) -> None:
        self.lane = lane
        self.ws = ws
        self.credit_samples = welcome.credit_samples
        self.credit_bytes = welcome.credit_bytes
        self.sent_samples = 0
        self.sent_bytes = 0
        self.over = False  # the server had no room for the latest
        self.wanted = 0  # samples that the server knows to wait
        self.yielded = 0  # bytes handed back
        self.draining = False  # the server takes no more samples
        self.drained = 0.0  # since when, on the event loop's clock
        self.silent = False  # it was ended for that
        self.useful = False  # it took some, or could have for a while
        self.resumed = welcome.resumed  # the server knew the session
        self.since = ws.loop.time()
        self.open: dict[str, Call] = {}  # sent on this link, not answered
        self.texts: deque[str] = deque()
        self.wake = asyncio.Event()
        self.ticked = ws.loop.time()
        self.ticker: asyncio.TimerHandle | None = None

    def want(self, queue: deque[Call]) -> None:
        """Reports the samples that wait beyond the credit, unless the server has a report of at least half of them."""
        n = len(queue)
        if self.wanted and n <= 2 * self.wanted:
            return
        self.wanted = n
        samples, size = n, _size(queue)
        if not self.over:  # else the server has taken the credit back
            samples -= max(self.credit_samples - self.sent_samples, 0)
            size -= max(self.credit_bytes - self.sent_bytes, 0)
        self.say(messages.want(max(samples, 0), max(size, 0)))

    def yield_credit(self, queue: deque[Call]) -> None:
        """Returns to the server the credit that no waiting sample needs."""
        more = max(self.credit_bytes - self.sent_bytes - _size(queue), 0)
        self.sent_bytes += more
        self.yielded += more
        self.wanted = 0
        self.say(messages.yield_(0, self.yielded))

    def drain(self) -> None:
        """Records that the server accepts no more samples."""
        if not self.draining:
            self.draining = True
            self.drained = self.ws.loop.time()
            self.useful = self.useful or self._proven
        self.wake.set()

    @property
    def _proven(self) -> bool:
        return self.ws.loop.time() - self.since > _PROVEN

    @property
    def stays(self) -> bool:
        """Whether to dial the gateway again before the others: it served samples, so the network may have failed."""
        return not self.draining and not self.silent and (self.useful or self._proven)

    def say(self, message: Message) -> None:
        """Queues a control message, which is sent before the next sample."""
        self.texts.append(text(message))
        self.wake.set()
