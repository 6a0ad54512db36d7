"""A reward loop for a run: one process, or a fleet whose processes are killed, stopped or slowed during the run."""

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import rewardloop

HERE = Path(__file__).parent
CONFIG = HERE / "cfg.yaml"
#: Seconds for a process to serve.
START = 60.0


@dataclass
class Service:
    """The URL to which a run submits, and the events there."""

    url: str
    killed: int = 0
    notes: list[str] = field(default_factory=list)


def binary() -> str:
    """Returns the path of the program rewardloop."""
    return os.environ.get("REWARDLOOP_BIN", "rewardloop")


class Process:
    """A rewardloop process of a fleet. After kill() it runs again under the same address."""

    def __init__(self, log: Path, *args: str) -> None:
        self.args, self.log = args, log
        self._start()

    def _start(self) -> None:
        command = [binary(), *self.args, "--log-format", "json", "--until-stdin-closes"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        """Kills the process and its children, as the kernel or an operator would, and starts it again."""
        self.signal(signal.SIGKILL)
        self.process.wait()
        self._start()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the process and its children."""
        os.killpg(self.process.pid, number)

    def close(self) -> None:
        """Ends the process and its children."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)
        self.process.wait()


def _port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _wait_until_ready(url: str, logs: Path) -> None:
    """Waits until a gateway has workers."""
    end, said = time.monotonic() + START, ""
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except urllib.error.HTTPError as err:  # it says what is missing
            said = err.read().decode(errors="replace")
        except OSError as err:
            said = str(err)
        time.sleep(0.1)
    raise RuntimeError(f"{url} was not ready after {START:.0f} s: {said}; the logs are in {logs}")


@contextmanager
def single() -> Iterator[Service]:
    """Runs one process with gateway, workers and scorers."""
    with rewardloop.launch(config=CONFIG, timeout=START) as server:
        yield Service(server.url)


@contextmanager
def fleet(folder: Path, workers: int) -> Iterator[tuple[Service, list[Process], list[Process]]]:
    """Runs two gateways and some workers around a third gateway that only carries the queue."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:

        def start(name: str, *args: str) -> Process:
            process = Process(folder / f"{name}.log", *args)
            stack.callback(process.close)
            return process

        nats, ports = f"127.0.0.1:{_port()}", (_port(), _port())
        idle = ("-c", str(CONFIG), "reward.num_workers=0")
        start("queue", "serve", *idle, "--listen", "127.0.0.1:0", "--nats-listen", nats)
        gateways = [
            start(
                f"gateway{i}",
                "serve",
                *idle,
                "--listen",
                f"127.0.0.1:{port}",
                "--nats",
                f"nats://{nats}",
                "--name",
                f"gateway{i}",
            )
            for i, port in enumerate(ports)
        ]
        scorers = [
            start(f"worker{i}", "worker", "-c", str(CONFIG), "--join", f"nats://{nats}", "--name", f"worker{i}")
            for i in range(workers)
        ]
        for port in ports:
            _wait_until_ready(f"http://127.0.0.1:{port}/readyz", folder)
        yield Service(",".join(f"ws://127.0.0.1:{port}" for port in ports)), gateways, scorers


@contextmanager
def repeated(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    """Calls act repeatedly, with pauses of ``seconds``, until the block ends."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(seconds):
            act()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(START)


@contextmanager
def killed(folder: Path, every: float = 5.0) -> Iterator[Service]:
    """Runs a fleet in which one worker and one gateway are killed with SIGKILL every few seconds."""
    with fleet(folder, workers=2) as (service, gateways, workers):
        turn = 0

        def act() -> None:
            nonlocal turn
            workers[turn % len(workers)].kill()
            gateways[turn % len(gateways)].kill()
            turn += 1
            service.killed += 2

        with repeated(every, act):
            yield service


@contextmanager
def stalled(folder: Path) -> Iterator[Service]:
    """Runs a fleet with a neighbour, a worker that is stopped for good, and one that runs a quarter of the time."""
    with fleet(folder, workers=3) as (service, _, workers), neighbour(service.url):
        stopped, slow, _ = workers

        def stop() -> None:
            stopped.signal(signal.SIGSTOP)
            service.notes.append("worker0 stopped")

        timer = threading.Timer(5.0, stop)
        timer.start()

        def slow_down() -> None:
            slow.signal(signal.SIGSTOP)
            time.sleep(0.15)
            slow.signal(signal.SIGCONT)

        try:
            with repeated(0.05, slow_down):
                yield service
        finally:
            timer.cancel()


@contextmanager
def beside_neighbour() -> Iterator[Service]:
    """Runs one process, and beside the run a neighbour whose reward raises for each of its samples."""
    with single() as service, neighbour(service.url):
        yield service


@contextmanager
def neighbour(url: str) -> Iterator[None]:
    """Runs a process that submits samples to a reward that always raises, 32 at a time, until the block ends."""
    process = subprocess.Popen([sys.executable, __file__, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield
    finally:
        process.stdin.close()
        said = process.stdout.read().strip()
        process.wait(START)
        if process.returncode or not said.isdigit() or int(said) == 0:
            raise RuntimeError(
                f"the neighbour should have had failed samples all along, and ended with {process.returncode}: {said!r}"
            )


def main(url: str) -> None:
    """Runs the neighbour: it ends when its standard input closes, and prints how many of its samples failed."""
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    failed = 0
    with rewardloop.Client(url, run="neighbour", profile="raises") as client:
        while not over.is_set():
            results = client.score([rewardloop.Sample(prompt="x", response=str(random.random())) for _ in range(32)], timeout=120)
            failed += sum(r.outcome == rewardloop.Outcome.FAILED for r in results)
            time.sleep(0.1)
    print(failed)


if __name__ == "__main__":
    main(sys.argv[1])
