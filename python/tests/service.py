"""HTTP services that a server asks for rewards: one that answers at once, and one that does when the test says so."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

from rewardloop import Server

from .harness import PATIENCE, serve, until

#: Seconds that a server waits for the gate: longer than any test.
_TIMEOUT = int(3 * PATIENCE)


class Service(http.server.ThreadingHTTPServer):
    """Answers what is posted, which is JSON, with what answer makes of it. Begins at once; ends with close() or a with block."""

    daemon_threads = True

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.answer = answer
        super().__init__(("127.0.0.1", 0), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, name="service", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/rate"

    def close(self) -> None:
        self.shutdown()
        self._thread.join(PATIENCE)
        self.server_close()

    def __exit__(self, *_: object) -> None:
        self.close()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:  # noqa: N802 - the name is http.server's
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps(self.server.answer(question)).encode()
        with contextlib.suppress(ConnectionError):  # the sample was taken back meanwhile, or its server is gone
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        pass


class Gate(Service):
    """Holds each sample back until let() or open(): what is in flight then does not hang on the speed of a machine.
    Every score is 1."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._asked = 0  # guarded by _changed
        self._free = 0  # guarded by _changed; samples that may still be scored
        self._open = False  # guarded by _changed
        super().__init__(self._held)

    @property
    def reward(self) -> tuple[str, ...]:
        """The overrides of a server whose reward this is."""
        function = "reward.custom_reward_function"
        arguments = f"{{protocol: json, request: {{id: '{{id}}'}}, score_path: score, attempt_timeout: {_TIMEOUT}s}}"
        return f"{function}.path={self.url}", f"+{function}.reward_kwargs={arguments}", f"+{function}.timeout={_TIMEOUT}s"

    def let(self, n: int = 1) -> None:
        """Lets so many more samples be scored."""
        with self._changed:
            self._free += n
            self._changed.notify_all()

    def open(self) -> None:
        """Scores everything from now on."""
        with self._changed:
            self._open = True
            self._changed.notify_all()

    def wait_asked(self, n: int) -> None:
        """Returns once so many samples have come as far as here."""
        until(lambda: self._asked >= n, f"{n} samples are with the scorer")

    def close(self) -> None:
        self.open()
        super().close()

    def _held(self, _: Any) -> Any:
        with self._changed:
            self._asked += 1
            self._changed.wait_for(lambda: self._open or self._free > 0, _TIMEOUT)
            self._free -= 1
        return {"score": 1}


@contextlib.contextmanager
def serve_gated(gate: Gate, *overrides: str, slots: int = 1) -> Iterator[Server]:
    """A server of which so many samples at a time wait at the gate. With one slot, what is submitted first keeps
    what comes behind it waiting; over one lane they also arrive in that order."""
    with serve(*gate.reward, f"reward.num_workers={slots}", f"reward.concurrency={slots}", *overrides) as server:
        try:
            yield server
        finally:
            gate.open()  # the server finishes what it has before it ends
