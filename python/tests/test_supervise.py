"""The launcher's part without Ray: one worker kept alive, and its folder."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from rewardloop import RewardloopError, _folder, _supervise
from rewardloop._folder import Folder
from rewardloop._supervise import Launch, Status, Supervisor

from .harness import PATIENCE, alive, until

STUB = Path(__file__).with_name("worker_stub.py")


class SupervisorTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.log: list[str] = []

    def supervise(self, mode: str = "", *, start: bool = True, argv: list[str] | None = None, **options: Any) -> Supervisor:
        argv = argv or [
            sys.executable, str(STUB), "worker", "--join", "nats://127.0.0.1:4222", "--name", "w", "--listen", "127.0.0.1:0",
            "--until-stdin-closes", "--log-format", "json", "a=b",
        ]  # fmt: skip
        env = {**os.environ, "STUB": mode, "STUB_REPORT": str(self.folder / "report"), "STUB_DRAIN": str(options.pop("drain", 0))}
        options = {"start_timeout": PATIENCE, "grace": PATIENCE, "pauses": (0.05, 0.4), **options}
        found = Supervisor("w", lambda: Launch(argv, env), log=self.log.append, **options)
        self.addCleanup(found.stop)
        if start:
            found.start()
        return found

    def starts(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.folder / "report").read_text().splitlines()]

    def test_a_worker_is_ready_when_it_says_so(self) -> None:
        supervisor = self.supervise()
        supervisor.started(PATIENCE)
        now = supervisor.status()
        self.assertEqual(self.starts()[0]["pid"], now.pid)
        self.assertEqual(Status("ready", now.pid, 0, "", ready=True), now)
        self.assertEqual(["a=b"], self.starts()[0]["overrides"])

    def test_a_worker_that_dies_is_started_again(self) -> None:
        supervisor = self.supervise()
        supervisor.started(PATIENCE)
        first = supervisor.status().pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        until(lambda: supervisor.status().restarts == 1 and supervisor.status().state == "ready", "it runs again")
        now = supervisor.status()
        self.assertNotEqual(first, now.pid)
        self.assertTrue(now.ready)
        self.assertRegex(
            now.last_error, r"^it exited by SIGKILL after \d+\.\d s; the last lines of its stderr:\nstub w of \d+\n$"
        )
        self.assertFalse(alive(first))

    def test_the_pause_between_starts_grows_to_its_limit(self) -> None:
        supervisor = self.supervise("code:1")  # one that was ready for a while would begin anew
        until(lambda: supervisor.status().restarts >= 5, "five restarts")
        self.assertEqual(["0.05 s", "0.1 s", "0.2 s", "0.4 s", "0.4 s"], self.pauses()[:5])

    def test_the_pause_of_one_that_was_ready_for_long_begins_anew(self) -> None:
        supervisor = self.supervise(pauses=(0.05, 0.1))
        for restarts in range(3):
            until(lambda: (now := supervisor.status()).state == "ready" and now.restarts == restarts, "it is ready")  # noqa: B023
            threading.Event().wait(0.5)  # longer than the longest pause
            pid = supervisor.status().pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        until(lambda: len(self.pauses()) == 3, "three pauses")
        self.assertEqual(["0.05 s"] * 3, self.pauses())

    def pauses(self) -> list[str]:
        """What the log says of the pauses."""
        return [line.rpartition(" in ")[2] for line in "\n".join(self.log).splitlines() if "; starting it again in " in line]

    def test_stop_lets_it_finish(self) -> None:
        supervisor = self.supervise(drain=0.5)
        supervisor.started(PATIENCE)
        pid = supervisor.status().pid
        assert pid is not None
        supervisor.stop()
        self.assertIn("drained", supervisor.stderr())
        self.assertFalse(alive(pid))
        self.assertEqual(Status("stopped", None, 0, "", ready=False), supervisor.status())
        supervisor.stop()

    def test_stop_kills_what_does_not_end(self) -> None:
        supervisor = self.supervise("unresponsive", grace=0.2)
        supervisor.started(PATIENCE)
        pid = supervisor.status().pid
        assert pid is not None
        supervisor.stop()
        self.assertFalse(alive(pid))
        self.assertIn("it did not end within 0.2 s of SIGTERM and is killed", self.log)

    def test_stop_ends_a_start_and_a_pause(self) -> None:
        for mode in ("hang", "code:1"):
            with self.subTest(mode):
                supervisor = self.supervise(mode, grace=0.2, start_timeout=100 * PATIENCE, pauses=(100 * PATIENCE,) * 2)
                until(lambda: any("stub w" in line for line in supervisor.stderr()), "it was started")  # noqa: B023
                if mode != "hang":
                    until(lambda: supervisor.status().state == "restarting", "it is paused")  # noqa: B023
                stopping = threading.Thread(target=supervisor.stop, daemon=True)
                stopping.start()
                stopping.join(PATIENCE)
                self.assertFalse(stopping.is_alive(), "it waits for the start or for the pause")
                self.assertEqual(("stopped", None), (supervisor.status().state, supervisor.status().pid))
                with self.assertRaises(RewardloopError):
                    supervisor.started(0)

    def test_stop_without_start(self) -> None:
        supervisor = self.supervise(start=False)
        supervisor.stop()
        self.assertEqual("stopped", supervisor.status().state)

    def test_two_may_stop_it_at_once(self) -> None:
        supervisor = self.supervise(drain=0.2)
        supervisor.started(PATIENCE)
        threads = [threading.Thread(target=supervisor.stop) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        self.assertEqual("stopped", supervisor.status().state)
        self.assertEqual(1, supervisor.stderr().count("drained"))

    def test_a_wrong_configuration_is_told_with_the_workers_words(self) -> None:
        supervisor = self.supervise("code:2")
        with self.assertRaises(RewardloopError) as caught:
            supervisor.started(PATIENCE)
        self.assertRegex(str(caught.exception), r"^w: it exited with code 2 before it was ready; the last lines of its stderr:\n")
        self.assertIn("rewardloop worker: config.yaml:1:1: nonsense is no section", str(caught.exception))

    def test_something_else_than_the_ready_line_is_refused(self) -> None:
        supervisor = self.supervise("garbage")
        with (
            mock.patch.object(_supervise, "_REST_TIMEOUT", 0.2),
            self.assertRaisesRegex(RewardloopError, r"its first line on stdout is 'hello', which is not a ready line"),
        ):
            supervisor.started(PATIENCE)
        until(lambda: not any(alive(int(str(start["pid"]))) for start in self.starts()[:1]), "the first one is gone")

    def test_a_program_that_understands_nothing_is_told_with_its_code(self) -> None:
        supervisor = self.supervise(argv=["/bin/sh", "-c", "echo usage; exit 64"])
        with (
            mock.patch.object(_supervise, "_REST_TIMEOUT", PATIENCE),
            self.assertRaisesRegex(RewardloopError, r"its first line on stdout is 'usage'.* It exited with code 64\."),
        ):
            supervisor.started(PATIENCE)

    def test_ready_lines_of_other_forms_are_no_ready_line(self) -> None:
        for line in ("[]", "7", '{"event":"serving"}', '{"event":"ready","listen":5}', "\\377", '{"event":'):
            with self.subTest(line), mock.patch.object(_supervise, "_REST_TIMEOUT", 0.2):  # it does not end by itself
                supervisor = self.supervise(argv=["/bin/sh", "-c", f"printf '{line}\\n'; exec sleep 60"])
                with self.assertRaisesRegex(RewardloopError, "not a ready line"):
                    supervisor.started(PATIENCE)
                supervisor.stop()

    def test_a_start_that_hangs_is_given_up(self) -> None:
        supervisor = self.supervise("hang", start_timeout=0.5)
        with self.assertRaisesRegex(RewardloopError, "it printed no ready line within 0.5 s"):
            supervisor.started(PATIENCE)
        until(lambda: supervisor.status().restarts > 0, "it is tried again")

    def test_a_program_that_is_not_there_is_told(self) -> None:
        supervisor = self.supervise(argv=["/nowhere/rewardloop"])
        with self.assertRaisesRegex(
            RewardloopError, "it could not be started: .*No such file or directory: '/nowhere/rewardloop'"
        ):
            supervisor.started(PATIENCE)

    def test_whatever_launch_raises_is_a_failed_start(self) -> None:
        supervisor = Supervisor("w", lambda: {}["x"], pauses=(0.01, 0.01))  # type: ignore[index]
        self.addCleanup(supervisor.stop)
        supervisor.start()
        with self.assertRaisesRegex(RewardloopError, "w: it could not be started: 'x'"):
            supervisor.started(PATIENCE)
        until(lambda: supervisor.status().restarts > 2, "it is tried again")

    def test_started_does_not_wait_for_ever(self) -> None:
        supervisor = self.supervise("hang", grace=0)
        with self.assertRaisesRegex(RewardloopError, "w: not ready within 0.1 s and still starting"):
            supervisor.started(0.1)

    def test_the_latest_200_lines_are_kept_and_output_never_stops_the_worker(self) -> None:
        supervisor = self.supervise("chatty")
        supervisor.started(PATIENCE)
        until(lambda: "still here" in supervisor.stderr(), "it got rid of a megabyte on stdout")
        lines = supervisor.stderr()
        self.assertEqual(200, len(lines))
        self.assertLessEqual(max(map(len, lines)), 4096)
        self.assertIn("line 0", self.log)

    def test_what_a_dead_worker_has_started_is_killed(self) -> None:
        supervisor = self.supervise("child")
        supervisor.started(PATIENCE)
        pid = supervisor.status().pid
        assert pid is not None
        child = int(Path(f"/proc/{pid}/task/{pid}/children").read_text())
        os.kill(pid, signal.SIGKILL)
        until(lambda: not alive(child), "its child is gone")

    def test_a_log_that_fails_does_not_stop_the_worker(self) -> None:
        argv = [sys.executable, str(STUB), "worker", "--join", "n", "--name", "w", "--listen", "x", "--log-format", "json"]
        supervisor = Supervisor("w", lambda: Launch(argv, os.environ), log=mock.Mock(side_effect=BrokenPipeError), grace=PATIENCE)
        self.addCleanup(supervisor.stop)
        supervisor.start()
        supervisor.started(PATIENCE)
        until(lambda: bool(supervisor.stderr()), "a line came")

    def test_a_worker_ends_with_its_launcher_however_that_ends(self) -> None:
        code = f"""
import os, sys, threading
sys.path.insert(0, {str(STUB.parents[1])!r})
from rewardloop._supervise import Launch, Supervisor
argv = [sys.executable, {str(STUB)!r}, "worker", "--join", "n", "--name", "w", "--listen", "x", "--log-format", "json"]
argv += ["--until-stdin-closes"]
supervisor = Supervisor("w", lambda: Launch(argv, os.environ))
supervisor.start()
supervisor.started(30)
print(supervisor.status().pid, flush=True)
threading.Event().wait()
"""
        launcher = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        self.addCleanup(launcher.wait)
        self.addCleanup(launcher.kill)
        assert launcher.stdout is not None
        with launcher.stdout:
            pid = int(launcher.stdout.readline())
        self.assertTrue(alive(pid))
        launcher.kill()
        until(lambda: not alive(pid), "the worker is gone")


class FolderTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name) / "root"

    def test_files_are_this_users_alone_and_go_with_the_folder(self) -> None:
        folder = Folder("a", self.root)
        folder.write({"worker.yaml": b"x: 1\n", "mine/reward.py": b"pass"})
        folder.write({"worker.yaml": b"x: 2\n"})
        self.assertEqual(b"x: 2\n", (folder.path / "worker.yaml").read_bytes())
        self.assertEqual(0o600, stat.S_IMODE((folder.path / "mine/reward.py").stat().st_mode))
        self.assertEqual(0o700, stat.S_IMODE(folder.path.stat().st_mode))
        folder.close()
        self.assertEqual([], list(self.root.iterdir()))

    def test_what_nobody_holds_is_removed_by_the_next(self) -> None:
        held, left = Folder("held", self.root), Folder("left", self.root)
        os.close(left.lock)  # as if its process had been killed
        folder = Folder("new", self.root)
        self.assertEqual({"held", "new"}, {path.name for path in self.root.iterdir()})
        for each in (held, folder):
            each.close()

    def holder(self) -> subprocess.Popen[bytes]:
        """A worker that has inherited the lock of folder a, whose launcher is gone."""
        before = Folder("a", self.root)
        holder = subprocess.Popen(["sleep", "600"], pass_fds=[before.lock])
        self.addCleanup(holder.wait)
        self.addCleanup(holder.kill)
        os.close(before.lock)
        return holder

    def test_the_worker_of_a_predecessor_is_waited_for(self) -> None:
        holder = self.holder()
        timer = threading.Timer(0.5, holder.terminate)
        timer.start()
        self.addCleanup(timer.join)
        with mock.patch.object(_folder, "_PATIENCE", PATIENCE):
            folder = Folder("a", self.root)
        self.assertEqual(-signal.SIGTERM, holder.wait(PATIENCE))
        folder.close()

    def test_the_worker_of_a_predecessor_that_stays_is_killed(self) -> None:
        holder = self.holder()
        with mock.patch.object(_folder, "_PATIENCE", 0.3), mock.patch.object(_folder, "_KILLED", PATIENCE):
            folder = Folder("a", self.root)
        self.assertEqual(-signal.SIGKILL, holder.wait(PATIENCE))
        folder.close()

    def test_a_folder_that_others_can_reach_is_refused(self) -> None:
        self.root.mkdir(mode=0o755)
        with self.assertRaisesRegex(RewardloopError, "is not this user's private folder"):
            Folder("a", self.root)


if __name__ == "__main__":
    unittest.main()
