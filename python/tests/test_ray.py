"""Workers on a real Ray cluster of two nodes on this machine (make test-ray), and what is refused without one.

Most tests place worker_stub.py in place of the binary; the last class places the binary.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from rewardloop import Client, InputError, RewardloopError, Server
from rewardloop.ray import MAX_FILES_BYTES, RayWorkers, WorkerHealth

from . import harness
from .harness import PATIENCE, alive, until
from .test_supervise import STUB

NATS = "nats://127.0.0.1:4222"
NO_RAY = importlib.util.find_spec("ray") is None
#: What one node of the cluster has; its GPUs are no more than numbers.
CPUS, GPUS = 2, 2

#: A driver that ends only if it is killed.
DRIVER = """
import json, sys, threading, ray
from rewardloop.ray import RayWorkers
address, options = json.loads(sys.argv[1])
ray.init(address=address, log_to_driver=False, configure_logging=False)
pool = RayWorkers(**options).start()
print("started", [w.pid for w in pool.health()], flush=True)
threading.Event().wait()
"""


class Arguments(unittest.TestCase):
    def test_what_is_wrong_is_refused_by_name(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        config = Path(folder.name) / "worker.yaml"
        config.write_text("x: 1\n")
        (Path(folder.name) / "twin").mkdir()
        (Path(folder.name) / "twin" / "a.py").touch()
        large = Path(folder.name) / "large"
        with large.open("wb") as out:
            out.truncate(MAX_FILES_BYTES + 1)
        cases: list[tuple[str, dict[str, Any]]] = [
            ("placement_group: give a placement group, or nnodes", {"nnodes": None}),
            ("n_gpus_per_node: set the number of GPUs", {"n_gpus_per_node": None}),
            ("n_gpus_per_node: is -1, must be 0 or more", {"n_gpus_per_node": -1}),
            ("nnodes: the placement group sets the number", {"placement_group": object()}),
            ("num_cpus: is nan", {"num_cpus": float("nan")}),
            ("num_cpus: is 0: a bundle without a GPU", {"num_cpus": 0}),
            ("start_timeout: is 0", {"start_timeout": 0}),
            ("grace: is -1", {"grace": -1}),
            ("max_restarts: is -2", {"max_restarts": -2}),
            ("name_prefix: is 'a b'", {"name_prefix": "a b"}),
            ("overrides: must be a list", {"overrides": "a=b"}),
            ("join: '127.0.0.1' is not the address", {"join": "127.0.0.1"}),
            ("join: '' is not the address", {"join": ""}),
            ("join: is empty", {"join": []}),
            ("config: /nowhere/worker.yaml cannot be read: No such file", {"config": "/nowhere/worker.yaml"}),
            ("files: /nowhere/x cannot be read: No such file", {"files": ["/nowhere/x"]}),
            ("files: must be a list of paths", {"files": "mine.py"}),
            ("files: '../x' must be a relative name", {"files": {"../x": b""}}),
            ("files: '/x' must be a relative name", {"files": {"/x": b""}}),
            ("files: '' must be a relative name", {"files": {"": b""}}),
            ("files: 'lock' must be a relative name", {"files": {"lock": b""}}),
            ("files: 'worker.yaml' is the name of the configuration", {"config": config, "files": {"worker.yaml": b""}}),
            ("files: two files have the name 'a.py'", {"files": [Path(folder.name) / "twin" / "a.py"] * 2}),
            ("files: .*large has more than 16777216 bytes", {"files": [large]}),
            ("files: 16777217 bytes are more than 16777216", {"files": {"x": bytes(MAX_FILES_BYTES + 1)}}),
        ]
        for message, wrong in cases:
            with self.subTest(message), self.assertRaisesRegex(InputError, f"^{message}"):
                RayWorkers(**{"join": NATS, "n_gpus_per_node": 0, "nnodes": 1, **wrong})

    def test_without_ray_it_says_so(self) -> None:
        pool = RayWorkers(NATS, n_gpus_per_node=0, nnodes=1)
        self.assertIsNone(pool.placement_group)
        with (
            mock.patch.dict(sys.modules, {"ray": None, "ray.util": None}),
            self.assertRaisesRegex(RewardloopError, "pip install ray"),
        ):
            pool.start()

    @unittest.skipIf(NO_RAY, "SKIPPED: ray is not installed; make test-ray does it")
    def test_without_a_cluster_it_says_so(self) -> None:
        with self.assertRaisesRegex(RewardloopError, r"call ray\.init\(address=\"auto\"\)"):
            RayWorkers(NATS, n_gpus_per_node=0, nnodes=1).start()


def processes(mark: str) -> list[int]:
    """The workers whose command line holds a mark."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"--until-stdin-closes" in words and any(word.startswith(mark.encode()) for word in words):
            found.append(int(entry.name))
    return found


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def serve_without_workers() -> tuple[Server, str]:
    """A server that others have to work for, and where they join it: at a port that nobody else has."""
    server = harness.serve("reward.num_workers=0", "--nats-listen", "127.0.0.1:0")
    [nats] = [said["nats"] for said in map(json.loads, server.log) if said["msg"] == "workers can connect"]
    return server, f"nats://{nats}"


class Cluster(unittest.TestCase):
    """Two nodes. Each test calls its workers by a mark of its own, and leaves none of them."""

    ray: Any
    cluster: Any
    workers_folder: Path
    numbers = itertools.count()

    @classmethod
    def setUpClass(cls) -> None:
        if NO_RAY:
            raise unittest.SkipTest("SKIPPED: ray is not installed; make test-ray does it")
        cls.ray = importlib.import_module("ray")
        folder = tempfile.TemporaryDirectory(prefix="rl", ignore_cleanup_errors=True)
        cls.addClassCleanup(folder.cleanup)
        # Of Ray, and of the nodes and what they start.
        patch = mock.patch.dict(os.environ, {"TMPDIR": folder.name, "RAY_USAGE_STATS_ENABLED": "0"})
        patch.start()
        cls.addClassCleanup(patch.stop)
        cls.workers_folder = Path(folder.name) / f"rewardloop-workers-{os.getuid()}"
        node = {"num_cpus": CPUS, "num_gpus": GPUS, "object_store_memory": 100 << 20, "include_dashboard": False}
        made = importlib.import_module("ray.cluster_utils").Cluster()
        cls.addClassCleanup(made.shutdown)
        for _ in range(2):
            made.add_node(wait=True, **node)
        cls.cluster = made
        cls.ray.init(address=made.address, log_to_driver=False, configure_logging=False)
        cls.addClassCleanup(cls.ray.shutdown)

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.mark = f"test{os.getpid()}x{next(self.numbers)}"
        self.binary = self.folder / "rewardloop"
        self.binary.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{STUB}" "$@"\n')
        self.binary.chmod(0o755)

    def tearDown(self) -> None:
        left = processes(self.mark)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self.assertEqual([], left, "no worker is left")

    def options(self, stub: str = "", **options: Any) -> dict[str, Any]:
        env = {"STUB": stub, "STUB_REPORT": str(self.folder / "report"), "STUB_ENDED": str(self.folder / "ended")}
        return {
            "join": NATS, "name_prefix": self.mark, "binary": self.binary, "env": env, "start_timeout": 60.0,
            "n_gpus_per_node": 0, "nnodes": 2, "num_cpus": 0.5, **options,
        }  # fmt: skip

    def pool(self, stub: str = "", **options: Any) -> RayWorkers:
        """A pool that ends with the test; by default one worker without GPU on each node."""
        pool = RayWorkers(**self.options(stub, **options))
        self.addCleanup(pool.stop)
        return pool

    def group(self, *bundles: dict[str, float], strategy: str = "PACK") -> Any:
        group = self.ray.util.placement_group(list(bundles), strategy=strategy)
        self.addCleanup(self.ray.util.remove_placement_group, group)
        return group

    def starts(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "report").read_text().splitlines()]

    def until_ready(self, pool: RayWorkers, but: dict[str, int | None]) -> list[WorkerHealth]:
        """Waits until all are ready and none has the process it had."""
        found: list[WorkerHealth] = []

        def ready() -> bool:
            found[:] = pool.health()
            return all(w.ready and w.state == "ready" and w.pid != but.get(w.name) for w in found)

        until(ready, "all are ready again")
        return found

    def kill_driver(self, options: dict[str, Any]) -> None:
        """Starts a pool in a process of its own, and kills that."""
        options = {name: str(v) if isinstance(v, Path) else v for name, v in options.items()}
        driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, json.dumps([self.cluster.address, options])],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.addCleanup(driver.wait)
        self.addCleanup(driver.kill)
        assert driver.stdout is not None
        with driver.stdout:
            self.assertIn("started", driver.stdout.readline())
        self.assertEqual(2, len(processes(self.mark)))
        driver.kill()  # Ray then kills each actor, and with it the worker
        began = time.monotonic()
        until(lambda: not processes(self.mark), "the workers are gone")
        print(f"workers were gone {time.monotonic() - began:.3f} s after their driver was killed", file=sys.stderr)


class OnACluster(Cluster):
    def test_one_worker_for_each_gpu_of_each_node(self) -> None:
        with self.pool(n_gpus_per_node=GPUS, nnodes=2, overrides=["reward.num_workers=3"]) as pool:
            found = pool.health()
            self.assertEqual(
                [(b, "ready", True, 0, "") for b in range(4)],
                [(w.bundle, w.state, w.ready, w.restarts, w.last_error) for w in found],
            )
            nodes = {node["NodeID"] for node in self.ray.nodes() if node["Alive"]}
            self.assertEqual({(node, (str(gpu),)) for node in nodes for gpu in range(GPUS)}, {(w.node, w.gpus) for w in found})
            starts = {start["name"]: start for start in self.starts()}
            self.assertEqual(
                {w.name: (w.pid, ",".join(w.gpus)) for w in found}, {n: (s["pid"], s["cuda"]) for n, s in starts.items()}
            )
            self.assertEqual({NATS}, {start["join"] for start in starts.values()})
            self.assertEqual(["reward.num_workers=3"], starts[found[0].name]["overrides"])
            self.assertEqual(f"{self.mark}-{socket.gethostname()}-0", found[0].name)
            self.assertEqual(4, pool.placement_group.bundle_count)
            with self.assertRaisesRegex(RewardloopError, "running already"):
                pool.start()
        self.assertIsNone(pool.placement_group)
        self.assertEqual([], pool.health())

    def test_without_gpus_each_node_gets_one_that_sees_none(self) -> None:
        with self.pool() as pool:
            found = pool.health()
        self.assertEqual(2, len({w.node for w in found}))
        self.assertEqual([(), ()], [w.gpus for w in found])
        self.assertEqual(["", ""], [start["cuda"] for start in self.starts()])

    def test_the_callers_placement_groups_are_used_and_stay(self) -> None:
        groups = [self.group({"GPU": 2}, {"CPU": 0.25}), self.group({"CPU": 1, "GPU": 0.5})]
        with self.pool(placement_group=groups, nnodes=None, n_gpus_per_node=None) as pool:
            found = pool.health()
            self.assertIs(groups, pool.placement_group)
        self.assertEqual([2, 0, 1], [len(w.gpus) for w in found])
        self.assertEqual([0, 1, 2], [w.bundle for w in found])
        states = {g["state"] for i, g in self.ray.util.placement_group_table().items() if i in {x.id.hex() for x in groups}}
        self.assertEqual({"CREATED"}, states)

    def test_the_configuration_and_files_travel_and_go(self) -> None:
        config = self.folder / "conf" / "worker.yaml"
        (config.parent / "mine").mkdir(parents=True)
        config.write_text("secret: ü\n", encoding="utf-8")
        (config.parent / "mine" / "reward.py").write_text("pass\n")
        (self.folder / "key.nk").write_text("x")
        with self.pool(config=config, files=[config.parent / "mine" / "reward.py", self.folder / "key.nk"]):
            self.assertEqual(2, len(list(self.workers_folder.iterdir())))
        for start in self.starts():
            self.assertEqual("secret: ü\n", start["config"])
            self.assertEqual(["key.nk", "lock", "mine", "worker.yaml"], start["files"])
            self.assertNotEqual(str(config), start["config_path"])
        self.assertEqual([], list(self.workers_folder.iterdir()))

    def test_a_killed_worker_is_started_again(self) -> None:
        with self.pool() as pool:
            before = {w.name: w for w in pool.health()}
            name, killed = next((w.name, w.pid) for w in before.values())
            assert killed is not None
            os.kill(killed, signal.SIGKILL)
            found = self.until_ready(pool, {name: killed})
            for w in found:
                self.assertEqual(1 if w.name == name else 0, w.restarts)
                self.assertRegex(
                    w.last_error,
                    r"^it exited by SIGKILL after \d+\.\d s; the last lines of its stderr:\nstub" if w.name == name else "^$",
                )
                if w.name != name:
                    self.assertEqual(before[w.name].pid, w.pid)

    def test_a_killed_actor_is_started_again_and_its_worker_replaced(self) -> None:
        with self.pool(n_gpus_per_node=1) as pool:
            before = {w.name: w for w in pool.health()}
            name, old = next((w.name, w.pid) for w in before.values())
            assert old is not None
            os.kill(parent(old), signal.SIGKILL)
            until(lambda: not alive(old), "the old worker is gone")
            self.assertEqual("stdin closed\n", (self.folder / "ended").read_text())
            found = {w.name: w for w in self.until_ready(pool, {name: old})}
            self.assertEqual(before.keys(), found.keys())
            self.assertEqual(
                (before[name].node, before[name].gpus, 1), (found[name].node, found[name].gpus, found[name].restarts)
            )
            self.assertEqual([name, name], [start["name"] for start in self.starts() if start["name"] == name])
            self.assertEqual(2, len(processes(self.mark)))
            self.assertEqual(2, len(list(self.workers_folder.iterdir())))

    def test_a_worker_that_stays_when_its_actor_is_killed_is_killed_by_the_next(self) -> None:
        with self.pool("orphan", nnodes=1) as pool:
            [before] = pool.health()
            assert before.pid is not None
            os.kill(parent(before.pid), signal.SIGKILL)
            [after] = self.until_ready(pool, {before.name: before.pid})
            self.assertFalse(alive(before.pid))
            self.assertEqual([after.pid], processes(self.mark))

    def test_a_killed_driver_leaves_no_worker(self) -> None:
        self.kill_driver(self.options())
        with self.pool():  # and the next removes what they have left
            self.assertEqual(2, len(list(self.workers_folder.iterdir())))

    def test_stop_lets_workers_finish(self) -> None:
        env = {**self.options()["env"], "STUB_DRAIN": "1.5"}
        with self.pool(env=env) as pool:
            self.assertEqual(2, len(processes(self.mark)))
            began = time.monotonic()
            pool.stop()
            self.assertGreater(time.monotonic() - began, 1.4)
        self.assertEqual(["drained"] * 2, (self.folder / "ended").read_text().splitlines())
        self.assertEqual([], processes(self.mark))
        pool.stop()

    def test_stop_kills_what_does_not_end(self) -> None:
        with self.pool("unresponsive", grace=0.5) as pool:
            pool.stop()
        self.assertEqual([], processes(self.mark))

    def refused(self, message: str, **options: Any) -> None:
        pool = self.pool(**options)
        with self.assertRaisesRegex(RewardloopError, message):
            pool.start()
        self.assertEqual([], processes(self.mark))
        self.assertEqual([], pool.health())

    def test_a_wrong_configuration_is_told_with_the_workers_words(self) -> None:
        self.refused(
            r"(?s)^the worker of bundle \d on node \S+ \([\d.]+\) did not start: .*: it exited with code 2 before it was "
            "ready; .*rewardloop worker: config.yaml:1:1: nonsense is no section",
            stub="code:2",
        )

    def test_a_worker_that_hangs_at_its_start_is_told(self) -> None:
        self.refused("(?s)it printed no ready line within 15 s; .*stub test", stub="hang", start_timeout=15.0, grace=0.2)

    def test_a_binary_that_is_not_there_is_told_with_the_node(self) -> None:
        self.refused(
            r"'/nowhere/rewardloop' is not a program on node \S+ \([\d.]+\): put the binary on that node", binary="/nowhere/rewardloop"
        )

    def test_a_bundle_without_gpu_is_told(self) -> None:
        group = self.group({"CPU": 1, "GPU": 1}, {"CPU": 1})
        self.refused(
            r"bundle 1 of the placement group has no GPU, only \{'CPU': 1.0\}",
            placement_group=group,
            nnodes=None,
            n_gpus_per_node=1,
        )

    def test_a_placement_group_that_finds_no_place_is_told(self) -> None:
        self.refused(
            r"the placement group has no resources after 1 s: the group needs \[\{.*'GPU': 1.0.* free$",
            n_gpus_per_node=3,
            nnodes=2,
            start_timeout=1.0,
        )

    def test_a_bundle_that_somebody_uses_is_told(self) -> None:
        group = self.group({"CPU": 1, "GPU": 1})
        strategy = importlib.import_module("ray.util.scheduling_strategies").PlacementGroupSchedulingStrategy(group, 0)

        class Somebody:
            def there(self) -> bool:
                return True

        somebody = self.ray.remote(num_gpus=1, scheduling_strategy=strategy)(Somebody).remote()
        self.assertTrue(self.ray.get(somebody.there.remote(), timeout=PATIENCE))
        self.refused(
            r"the worker of bundle 0 \(\{.*'GPU': 1.0.*\}\): its actor did not start within 2 s: is something else using",
            placement_group=group, nnodes=None, n_gpus_per_node=None, start_timeout=2.0,
        )  # fmt: skip


class WithTheBinary(Cluster):
    @classmethod
    def setUpClass(cls) -> None:
        if (
            not NO_RAY
            and subprocess.run([harness.binary(), "worker", "--help"], check=False, capture_output=True).returncode != 0
        ):
            raise unittest.SkipTest("SKIPPED: this binary has no command `worker`")
        super().setUpClass()

    def setUp(self) -> None:
        super().setUp()
        self.binary = Path(harness.binary())
        self.config = self.folder / "worker.yaml"
        self.config.write_text("reward:\n  custom_reward_function:\n    path: builtin://jpeg_compressibility\n")

    def test_samples_are_scored_by_workers_on_both_nodes(self) -> None:
        samples = harness.pictures(64)
        server, nats = serve_without_workers()
        with (
            server,
            self.pool(join=nats, config=self.config) as pool,
            Client(server.url, run=self.mark) as client,
        ):
            found = pool.health()
            self.assertEqual([True, True], [w.ready for w in found])
            results = client.score(samples, timeout=PATIENCE)
            self.assertEqual([s.id for s in samples], [r.id for r in results])
            self.assertEqual({"scored"}, {str(r.outcome.value) for r in results})
            # Results name the worker, and which of those that share its process.
            self.assertEqual({w.name for w in found}, {r.worker.rpartition("-w")[0] for r in results})
            # One dies with samples in its hands, then one's actor: every sample is scored all the same.
            for ending in ("worker", "actor"):
                victim = pool.health()[0]
                assert victim.pid is not None
                futures = [client.submit(replace(s, id=f"{ending}-{s.id}")) for s in samples]
                os.kill(victim.pid if ending == "worker" else parent(victim.pid), signal.SIGKILL)
                self.assertEqual([r.reward_score for r in results], [f.result(2 * PATIENCE).reward_score for f in futures])
                self.until_ready(pool, {victim.name: victim.pid})
                self.assertFalse(alive(victim.pid))
            self.assertEqual([2, 0], [w.restarts for w in pool.health()])
            again = client.score([replace(s, id=f"last-{s.id}") for s in samples], timeout=PATIENCE)
            self.assertEqual({w.name for w in found}, {r.worker.rpartition("-w")[0] for r in again})

    def test_a_killed_driver_leaves_no_worker(self) -> None:
        server, nats = serve_without_workers()
        with server:
            self.kill_driver(self.options(join=nats, config=self.config))

    def test_workers_that_do_not_reach_nats_are_told(self) -> None:
        nobody = socket.socket()  # bound and not listening: nobody else gets the port
        self.addCleanup(nobody.close)
        nobody.bind(("127.0.0.1", 0))
        nats = f"nats://127.0.0.1:{nobody.getsockname()[1]}"
        pool = self.pool(join=nats, config=self.config, start_timeout=15.0, grace=1.0)
        with self.assertRaisesRegex(
            RewardloopError, r"(?s)no ready line within 15 s; .*127\.0\.0\.1:\d+: nats: no servers available"
        ):
            pool.start()

    def test_a_wrong_configuration_is_told_in_the_workers_words(self) -> None:
        self.config.write_text("nonsense: 1\n")
        with self.assertRaisesRegex(RewardloopError, "(?s)it exited with code 2 before it was ready; .*nonsense"):
            self.pool(config=self.config).start()


if __name__ == "__main__":
    unittest.main()
