"""The client for code without an event loop: threads, forks, and the end of the interpreter."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import subprocess
import sys
import textwrap
import threading
import unittest
import unittest.mock
import warnings

import rewardloop
from rewardloop import Client, ClosedError, ForkedError, InFlightError, InputError, LostError, Outcome, QueueFullError, Sample

from .harness import PATIENCE, REPOSITORY, alive, binary, noise, serve, until
from .service import Gate, serve_gated


class ClientTest(unittest.TestCase):
    def test_threads_share_a_client(self) -> None:
        with serve() as server, Client(server.url, run="r") as client:
            client.step(1, 200)

            def work(worker: int) -> list[str]:
                samples = [Sample(id=f"{worker}/{i}", step=1, media=noise(24, i)) for i in range(25)]
                results = client.score(samples, timeout=PATIENCE)
                self.assertEqual([r.id for r in results], [s.id for s in samples])
                return [f"{r.id.split('/')[1]}={r.score()}" for r in results]

            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(work, range(8)))
            self.assertEqual(len({tuple(a) for a in answers}), 1, "equal pictures, equal scores")
            self.assertEqual(len({r.id for r in client.results(200, timeout=PATIENCE)}), 200)
            self.assertEqual((client.pending, client.connected, client.draining, client.problems), (0, True, False, ()))
            self.assertGreater(client.epoch, 0)

    def test_errors_come_from_where_they_belong(self) -> None:
        with Gate() as gate, serve_gated(gate) as server, Client(server.url, run="r", max_pending=6) as client:
            with self.assertRaisesRegex(InputError, "prompt"):
                client.submit(Sample(prompt=1))  # type: ignore[arg-type]
            with self.assertRaisesRegex(InputError, "expected"):
                client.step(1, -1)
            busy = [client.submit(Sample(id=f"b{i}")) for i in range(5)]
            with self.assertRaises(InFlightError):
                client.submit(Sample(id="b4")).result(PATIENCE)
            busy.append(client.submit(Sample(id="b5")))
            with self.assertRaisesRegex(QueueFullError, "6 samples"):
                client.submit(Sample(id="b6"), timeout=0.001)
            with self.assertRaises(TimeoutError):
                client.score([Sample()], timeout=0.001)
            gate.open()
            self.assertTrue(all(b.result(PATIENCE).scored for b in busy))
            self.assertEqual(len(list(client.results(6, timeout=PATIENCE))), 6)
            with self.assertRaisesRegex(TimeoutError, "no result within 0.01 s"):
                list(client.results(1, timeout=0.01))

    def test_cancel(self) -> None:
        with Gate() as gate, serve_gated(gate) as server, Client(server.url, run="r", lanes=1) as client:
            busy = [client.submit(Sample()) for i in range(8)]
            taken = client.submit(Sample(id="taken"))
            given_up = client.submit(Sample(id="given up"))
            client.cancel("taken")
            self.assertTrue(given_up.cancel())
            self.assertEqual(taken.result(PATIENCE).outcome, Outcome.CANCELLED)
            with self.assertRaises(concurrent.futures.CancelledError):
                given_up.result(PATIENCE)
            gate.open()
            self.assertFalse(concurrent.futures.wait(busy, PATIENCE).not_done)
            outcomes = {r.id: r.outcome for r in client.results(10, timeout=PATIENCE)}
            self.assertEqual(outcomes["given up"], Outcome.CANCELLED)

    def test_close_ends_everything_that_waits(self) -> None:
        with Gate() as gate, serve_gated(gate) as server:
            client = Client(server.url, run="r")
            self.addCleanup(client.close)
            busy = [client.submit(Sample(prompt=str(i))) for i in range(10)]
            read: list[object] = []
            reader = threading.Thread(target=lambda: read.extend(client.results()))
            reader.start()
            gate.let(1)
            concurrent.futures.wait(busy, PATIENCE, concurrent.futures.FIRST_COMPLETED)
            client.close()
            client.close()
            reader.join(PATIENCE)
            self.assertFalse(reader.is_alive())
            self.assertEqual(len(read), 1)
            ended = [b.exception(PATIENCE) for b in busy]
            self.assertEqual((ended.count(None), sum(isinstance(e, ClosedError) for e in ended)), (1, 9), ended)
            with self.assertRaises(ClosedError):
                client.submit(Sample())
            until(lambda: "rewardloop" not in [t.name for t in threading.enumerate()], "its thread has ended")

    def test_a_server_that_does_not_come_back(self) -> None:
        with Gate() as gate, serve_gated(gate) as server, Client(server.url, run="r", reconnect_for=0.1, lanes=1) as client:
            busy = [client.submit(Sample()) for i in range(6)]
            gate.let(1)
            busy[0].result(PATIENCE)
            server.kill()
            with self.assertRaises(LostError):
                busy[-1].result(PATIENCE)
            with self.assertRaises(LostError):
                list(client.results(timeout=PATIENCE))
            with self.assertRaises(LostError):
                client.step(1, 1)


class ForkTest(unittest.TestCase):
    @unittest.skipUnless(hasattr(os, "fork"), "SKIPPED: no fork here")
    def test_a_client_used_after_a_fork_says_so_and_the_parents_lives(self) -> None:
        with Gate() as gate, serve_gated(gate) as server, Client(server.url, run="r") as client:
            busy = [client.submit(Sample()) for i in range(4)]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of forks with threads: the very thing that is tried
                child = os.fork()
            if child == 0:
                os._exit(in_the_child(client, busy[-1], server.url))
            gate.open()
            guard = threading.Timer(PATIENCE, os.kill, (child, signal.SIGKILL))
            guard.start()
            try:
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            finally:
                guard.cancel()
            self.assertEqual(status, 0, "see in_the_child for the number")
            self.assertTrue(all(b.result(PATIENCE).scored for b in busy))
            self.assertTrue(client.submit(Sample(media=noise(8))).result(PATIENCE).scored)


def in_the_child(client: Client, pending: rewardloop.BlockingPending, url: str) -> int:
    """Returns 0, or the number of what did not say ForkedError."""
    for number, use in enumerate(
        (
            lambda: client.submit(Sample()),
            lambda: client.score([Sample()]),
            lambda: client.step(1, 1),
            lambda: client.cancel("x"),
            lambda: next(client.results()),
            lambda: client.epoch,
            lambda: pending.result(PATIENCE),
            lambda: pending.cancel(),
        ),
        1,
    ):
        try:
            use()
        except ForkedError as err:
            if "create another client after the fork" in str(err):
                continue
        except BaseException:
            pass
        return number
    client.close()  # the parent's: nothing happens
    with Client(url, run="child") as mine:
        return 0 if mine.submit(Sample()).result(PATIENCE).scored else 100


class InterpreterTest(unittest.TestCase):
    def test_the_interpreter_ends_with_clients_open(self) -> None:
        script = textwrap.dedent("""
            import sys, rewardloop, numpy as np
            client = rewardloop.Client(sys.argv[1], run="r")
            px = np.zeros((16, 16, 3), np.uint8)
            print(client.submit(rewardloop.Sample(media=rewardloop.image(px, layout="HWC"))).result(60).outcome)
            many = [client.submit(rewardloop.Sample(media=rewardloop.image(px, layout="HWC"))) for _ in range(500)]
        """)
        with serve() as server:
            done = subprocess.run(
                [sys.executable, "-W", "always::ResourceWarning", "-c", script, server.url],
                cwd=REPOSITORY / "python",
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "scored\n", ""))

    def test_a_loop_that_is_never_closed_leaves_no_noise(self) -> None:
        script = textwrap.dedent("""
            import asyncio, sys, rewardloop
            async def main():
                loop = await rewardloop.connect(sys.argv[1], run="r")
                loop.submit(rewardloop.Sample(prompt="p"))
            asyncio.run(main())
        """)
        with serve() as server:
            done = subprocess.run(
                [sys.executable, "-c", script, server.url],
                cwd=REPOSITORY / "python",
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        self.assertEqual((done.returncode, done.stderr), (0, ""))


class LaunchTest(unittest.TestCase):
    def test_a_server_that_does_not_start_says_why(self) -> None:
        with self.assertRaisesRegex(rewardloop.RewardloopError, "did not start(.|\n)*no_such_key"):
            serve("no_such_key=1")
        with self.assertRaisesRegex(rewardloop.RewardloopError, "REWARDLOOP_BIN|PATH"):
            rewardloop.launch(binary=None) if not os.environ.get("REWARDLOOP_BIN") else self.without_binary()

    def test_a_server_ends_with_its_launcher_however_that_ends_and_answers_what_it_has(self) -> None:
        code = textwrap.dedent("""
            import sys, threading
            import rewardloop
            server = rewardloop.launch(*sys.argv[2:], binary=sys.argv[1])
            print(server.process.pid, server.url, flush=True)
            threading.Event().wait()
        """)
        with Gate() as gate:
            launcher = subprocess.Popen(
                [sys.executable, "-c", code, binary(), *gate.reward], cwd=REPOSITORY / "python", stdout=subprocess.PIPE, text=True
            )
            self.addCleanup(launcher.wait)
            self.addCleanup(launcher.kill)
            assert launcher.stdout is not None
            with launcher.stdout:
                pid, url = launcher.stdout.readline().split()
            with rewardloop.Client(url, run="r") as client:
                waiting = client.submit(rewardloop.Sample(prompt="p"))
                gate.wait_asked(1)
                launcher.kill()
                until(lambda: client.draining, "the server has heard of it")
                gate.open()
                self.assertEqual(1.0, waiting.result(PATIENCE).score())
            until(lambda: not alive(int(pid)), "the server is gone")

    def without_binary(self) -> None:
        with unittest.mock.patch.dict(os.environ, {"REWARDLOOP_BIN": "/nowhere/rewardloop"}):
            rewardloop.launch()


if __name__ == "__main__":
    unittest.main()
