"""Workers on a Ray cluster: one `rewardloop worker` for each bundle of a placement group.

>>> with rewardloop.ray.RayWorkers(join="nats://10.0.0.1:4222", config="worker.yaml", n_gpus_per_node=8, nnodes=2) as pool:
...     train()                                                     # doctest: +SKIP

Life cycle of RayWorkers: start() takes or makes the placement group, places an actor in each bundle, and waits until
every worker is ready. An actor starts its worker, and restarts it when it ends (_supervise.py); Ray restarts an actor
that ends. stop() lets the workers finish their samples and then ends everything. No sample passes through Ray: the
workers take samples from NATS and from the gateways.

A worker does not outlive its actor, and an actor does not outlive the driver. The actor holds the writing end of the
worker's stdin. When the actor ends, for whatever reason, this pipe closes, and the worker returns its samples and
exits. If Ray itself ends an actor, for example after a crash of the driver, Ray kills the worker too. Other workers
score the samples of the killed worker after the lease of the tickets has expired.

This module can be imported without Ray. The nodes need Ray, this package and the binary.
"""

from __future__ import annotations

import importlib
import math
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any

from ._folder import Folder
from ._launch import find_binary
from ._supervise import Launch, State, Supervisor
from .errors import InputError, RewardloopError

__all__ = ["RayWorkers", "WorkerHealth"]

#: Of all files together, the configuration included: they travel with each actor.
MAX_FILES_BYTES = 16 << 20
#: An actor that does not answer health() in time is called unavailable. It asks its worker for up to 2 s.
_HEALTH_TIMEOUT = 5.0
#: On top of what a worker may take, for the way there and back.
_SLACK = 15.0
#: Calls that an actor answers at once: started() and stop() wait in theirs.
_CALLS = 8


@dataclass(frozen=True)
class WorkerHealth:
    """The state of one worker, as returned by health()."""

    #: prefix-host-bundle. Result.worker is this, with the number of a worker in its process behind it.
    name: str
    #: Ray's id of the node, in hex; empty while it is not known.
    node: str
    #: Its number among all bundles, from 0.
    bundle: int
    #: Of the worker's process on its node; None if there is none.
    pid: int | None
    #: What its CUDA_VISIBLE_DEVICES says.
    gpus: tuple[str, ...]
    #: starting: not ready yet; ready: it has said so; restarting: it has ended, or its actor has; stopped: for good.
    state: State
    #: How often it was started again. If its actor died it counts anew, from what health() had seen.
    restarts: int
    #: Why the latest process ended; empty if none has.
    last_error: str
    #: Whether its own /readyz says that it serves.
    ready: bool


@dataclass(frozen=True)
class _Plan:
    """What all workers have in common. Travels to the actors."""

    join: str
    config: str  # the name of the file among files; empty for none
    files: Mapping[str, bytes]
    overrides: tuple[str, ...]
    binary: str
    env: Mapping[str, str]
    prefix: str
    start_timeout: float
    grace: float


class _Worker:
    """The actor: one Supervisor, and the folder of its worker. Nothing in its constructor can fail for good:
    Ray starts no actor again whose constructor has raised."""

    def __init__(self, plan: _Plan, bundle: int, gpus: float) -> None:
        ray = _ray()
        context = ray.get_runtime_context()
        host = socket.gethostname()
        self._plan = plan
        self._bundle = bundle
        self._wanted_gpus = math.ceil(gpus)
        self._gpus = tuple(str(gpu) for gpu in ray.get_gpu_ids())
        self._node = str(context.get_node_id())
        self._where = f"node {host} ({ray.util.get_node_ip_address()})"
        self._key = str(context.get_actor_id())
        self._folder: Folder | None = None
        self._name = "-".join((plan.prefix, re.sub(r"[^A-Za-z0-9._-]", "-", host), str(bundle)))
        self._supervisor = Supervisor(self._name, self._launch, start_timeout=plan.start_timeout, grace=plan.grace, log=self._log)
        self._supervisor.start()

    def where(self) -> str:
        """The node, for messages."""
        return self._where

    def started(self) -> str:
        """Why the first start failed; empty if it went well."""
        try:
            self._supervisor.started(self._plan.start_timeout + _SLACK)
        except RewardloopError as err:
            return str(err)
        return ""

    def health(self) -> tuple[int, WorkerHealth]:
        """The number of this process, and its worker."""
        now = self._supervisor.status()
        return os.getpid(), WorkerHealth(
            self._name, self._node, self._bundle, now.pid, self._gpus, now.state, now.restarts, now.last_error, now.ready
        )

    def stop(self) -> None:
        """Ends the worker and removes its files."""
        self._supervisor.stop()
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    def _launch(self) -> Launch:
        """What to start; called by the Supervisor's thread, before each start."""
        plan = self._plan
        if len(self._gpus) < self._wanted_gpus:
            raise RewardloopError(
                f"bundle {self._bundle} has {self._wanted_gpus} GPUs, but Ray assigned {len(self._gpus)} to the worker on "
                f"{self._where}"
            )
        if self._folder is None:
            self._folder = Folder(self._key)
        self._folder.write(plan.files)
        argv = [_find_binary(plan, self._where), "worker", "--join", plan.join, "--name", self._name]
        argv += ["--listen", "127.0.0.1:0", "--until-stdin-closes", "--log-format", "json"]
        if plan.config:
            argv += ["-c", str(self._folder.path / plan.config)]
        # An empty string hides all devices; without the variable a worker would see those of others.
        env = {**os.environ, **plan.env, "CUDA_VISIBLE_DEVICES": ",".join(self._gpus)}
        return Launch([*argv, *plan.overrides], env, str(self._folder.path), [self._folder.lock])

    def _log(self, line: str) -> None:
        print(f"{self._name}: {line}", file=sys.stderr, flush=True)


@dataclass
class _Place:
    """A bundle and its actor, in the driver."""

    group: Any
    index: int  # in its group
    bundle: int  # among all
    resources: Mapping[str, float]
    actor: Any = None
    where: str = ""  # once the actor runs
    #: As health() found it last, by which process of the actor, and the restarts of those before that.
    last: WorkerHealth | None = None
    process: int = 0
    before: int = 0


class RayWorkers:
    """One `rewardloop worker` for each bundle of a placement group.

    The workers run from start() or the beginning of a with block until stop(), the end of the block, or the end of the
    driver. Only one thread may use a RayWorkers, except for health(), which any thread may call.

    join: Address of the gateways' NATS, nats://host:port or tls://host:port; several as a list or separated by commas.
    config: Path of a configuration file on this machine, whose text the workers get. Relative paths in the file start
        at the worker's folder on its node. This folder contains files and is also the working directory of the worker.
    placement_group: One placement group of Ray, or several, such as those of verl's resource pool. Each bundle gets one
        worker with all GPUs of the bundle, which must be free, and at most num_cpus of its CPUs. stop() does not remove
        the group.
    n_gpus_per_node, nnodes: Size of the group that start() makes if placement_group is None: n_gpus_per_node * nnodes
        bundles of one GPU and num_cpus CPUs, packed on as few nodes as possible, or spread over the nodes if
        n_gpus_per_node is 1. n_gpus_per_node=0 spreads nnodes bundles without GPU. With a placement group,
        n_gpus_per_node > 0 requires GPUs in each bundle.
    overrides: Command-line overrides for the workers, such as "workers.concurrency=8".
    binary: Path of the binary on the nodes. Default: REWARDLOOP_BIN on the node (or in env), else the program that was
        installed with this package on the node, else the one on the PATH of the node.
    env: Environment variables for the workers, in addition to those of the actors. CUDA_VISIBLE_DEVICES is always that
        of the bundle.
    name_prefix: Workers are named prefix-host-bundle; two pools at the same NATS must have different prefixes.
    start_timeout: Timeout in seconds for the placement group, for the actors, and for a worker's ready line; each.
    grace: Seconds that a worker has to finish its samples after stop(), before it is killed.
    max_restarts: Maximum number of restarts of an actor by Ray; -1: no limit. An actor always restarts a worker that
        ends.
    files: Files for the worker's folder: a mapping from relative names to bytes, or paths on this machine. Paths below
        the folder of config keep their relative path, others keep only their file name. At most 16 MiB with config.

    Raises InputError for an invalid argument; start() raises RewardloopError for other errors.
    """

    def __init__(
        self,
        join: str | Sequence[str],
        config: str | os.PathLike[str] | None = None,
        *,
        placement_group: Any = None,
        n_gpus_per_node: int | None = None,
        nnodes: int | None = None,
        num_cpus: float = 1.0,
        overrides: Sequence[str] = (),
        binary: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        name_prefix: str = "ray",
        start_timeout: float = 120.0,
        grace: float = 10.0,
        max_restarts: int = -1,
        files: Mapping[str, bytes] | Iterable[str | os.PathLike[str]] = (),
    ) -> None:
        _check(placement_group, n_gpus_per_node, nnodes, num_cpus, name_prefix, start_timeout, grace, max_restarts)
        if isinstance(overrides, str) or not all(isinstance(o, str) for o in overrides):
            raise InputError("must be a list of strings", field="overrides")
        name, shipped = _files(config, files)
        self._plan = _Plan(
            _addresses(join), name, shipped, tuple(overrides), os.fspath(binary or ""), dict(env or {}), name_prefix,
            float(start_timeout), float(grace),
        )  # fmt: skip
        self._given = placement_group
        self._gpus_per_node = n_gpus_per_node
        self._nodes = nnodes
        self._cpus = float(num_cpus)
        self._max_restarts = max_restarts
        self._made: Any = None
        self._places: list[_Place] = []

    @property
    def placement_group(self) -> Any:
        """The placement group that was given, or that start() has made; None if there is none."""
        return self._given if self._given is not None else self._made

    def start(self) -> RayWorkers:
        """Starts the workers and returns when all are ready. If one fails, stops all of them and raises the reason."""
        ray = _ray()
        if self._places:
            raise RewardloopError("the workers are running already: call stop() first")
        if not ray.is_initialized():
            raise RewardloopError(
                'Ray is not initialised: call ray.init(address="auto") on a machine of the cluster, or ray.init(), first'
            )
        try:
            self._places = self._bundles(ray)
            self._place(ray)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stops the workers; each has at most grace seconds to finish its samples. Further calls have no effect."""
        places, self._places = self._places, []
        made, self._made = self._made, None
        ray = _ray()
        if not ray.is_initialized():
            return  # whatever there was ended with it
        if stops := [place.actor.stop.remote() for place in places if place.where]:
            ray.wait(stops, num_returns=len(stops), timeout=self._plan.grace + _SLACK)
        for place in places:
            if place.actor is not None:
                ray.kill(place.actor, no_restart=True)
        if made is not None:
            ray.util.remove_placement_group(made)

    def health(self) -> list[WorkerHealth]:
        """Returns the state of each worker, ordered by bundle; queries all workers, with a timeout of 5 s."""
        ray, places = _ray(), list(self._places)
        if not places or not ray.is_initialized():
            return []
        answers = [place.actor.health.remote() for place in places]
        ray.wait(answers, num_returns=len(answers), timeout=_HEALTH_TIMEOUT)
        return [self._found(ray, place, answer) for place, answer in zip(places, answers, strict=True)]

    def __enter__(self) -> RayWorkers:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def _bundles(self, ray: Any) -> list[_Place]:
        """Takes or makes the placement group, and waits for it."""
        groups = [self._make(ray)] if self._given is None else list(_groups(self._given))
        places: list[_Place] = []
        deadline = time.monotonic() + self._plan.start_timeout
        for group in groups:
            if not group.wait(max(0.1, deadline - time.monotonic())):
                raise RewardloopError(
                    f"the placement group has no resources after {self._plan.start_timeout:g} s: the group needs "
                    f"{group.bundle_specs}; the cluster has {_short(ray.cluster_resources())}, of which "
                    f"{_short(ray.available_resources())} are free"
                )
            for index, resources in enumerate(group.bundle_specs):
                if self._gpus_per_node and not resources.get("GPU"):
                    raise RewardloopError(
                        f"bundle {index} of the placement group has no GPU, only {resources}: give each bundle a "
                        "GPU, or leave n_gpus_per_node out for workers that need none"
                    )
                places.append(_Place(group, index, len(places), resources))
        return places

    def _make(self, ray: Any) -> Any:
        gpus, nodes = self._gpus_per_node or 0, self._nodes or 0
        bundle = {name: amount for name, amount in (("CPU", self._cpus), ("GPU", 1.0 if gpus else 0.0)) if amount}
        strategy = "PACK" if gpus > 1 else "SPREAD"
        self._made = ray.util.placement_group([dict(bundle) for _ in range(max(1, gpus) * nodes)], strategy=strategy)
        return self._made

    def _place(self, ray: Any) -> None:
        """Makes the actors and waits for them and for their workers."""
        strategy = importlib.import_module("ray.util.scheduling_strategies").PlacementGroupSchedulingStrategy
        actor = ray.remote(max_restarts=self._max_restarts, max_task_retries=0, max_concurrency=_CALLS)(_Worker)
        for place in self._places:
            gpus = place.resources.get("GPU", 0.0)
            there = strategy(place.group, place.index, placement_group_capture_child_tasks=False)
            placed = actor.options(
                num_cpus=min(self._cpus, place.resources.get("CPU", 0.0)), num_gpus=gpus, scheduling_strategy=there
            )
            place.actor = placed.remote(self._plan, place.bundle, gpus)
        timeout = self._plan.start_timeout
        late = f"its actor did not start within {timeout:g} s: is something else using what the bundle has, or the node too busy"
        for place, where in self._answers(ray, "where", timeout, late):
            place.where = where
        late = f"its actor has not said within {timeout + _SLACK:g} s whether it started"
        for place, failure in self._answers(ray, "started", timeout + _SLACK, late):
            if failure:
                raise RewardloopError(f"the worker of bundle {place.bundle} on {place.where} did not start: {failure}")

    def _answers(self, ray: Any, method: str, timeout: float, late: str) -> Iterator[tuple[_Place, str]]:
        """Calls all actors and yields their answers as they come."""
        waiting = {getattr(place.actor, method).remote(): place for place in self._places}
        deadline = time.monotonic() + timeout
        while waiting:
            done, _ = ray.wait(list(waiting), num_returns=1, timeout=max(0.0, deadline - time.monotonic()))
            if not done:
                place = next(iter(waiting.values()))
                raise RewardloopError(f"the worker of bundle {place.bundle} ({dict(place.resources)}): {late}")
            place = waiting.pop(done[0])
            try:
                answer = ray.get(done[0])
            except ray.exceptions.RayError as err:
                hint = ""
                if "ModuleNotFoundError" in str(err):
                    hint = "; install rewardloop on the nodes, or in the runtime_env of ray.init (py_modules)"
                raise RewardloopError(f"the actor of bundle {place.bundle} failed: {err}{hint}") from err
            yield place, answer

    def _found(self, ray: Any, place: _Place, answer: Any) -> WorkerHealth:
        """What an actor answered, or what its silence means."""
        try:
            process, health = ray.get(answer, timeout=0)
        except ray.exceptions.RayError as err:
            gone = isinstance(err, ray.exceptions.ActorDiedError)
            late = isinstance(err, ray.exceptions.GetTimeoutError)
            last = place.last or WorkerHealth("", "", place.bundle, None, (), "starting", 0, "", False)
            why = f"its actor did not answer within {_HEALTH_TIMEOUT:g} s" if late else str(err).strip()
            return replace(last, pid=None, state="stopped" if gone else "restarting", ready=False, last_error=why)
        if place.last is not None and process != place.process:
            place.before = place.last.restarts + 1
        place.process = process
        place.last = replace(health, restarts=place.before + health.restarts)
        return place.last


def _ray() -> Any:
    """Ray, which is untyped for us: it may be there or not."""
    try:
        importlib.import_module("ray.util")
        return importlib.import_module("ray")
    except ImportError as err:
        raise RewardloopError("Ray is not installed here: pip install ray, in the version that the cluster has") from err


def _groups(given: Any) -> Iterable[Any]:
    return given if isinstance(given, (list, tuple)) else [given]


def _short(resources: Mapping[str, float]) -> dict[str, float]:
    return {name: amount for name, amount in resources.items() if name in ("CPU", "GPU")}


def _check(
    group: Any,
    gpus: int | None,
    nodes: int | None,
    cpus: float,
    prefix: str,
    start_timeout: float,
    grace: float,
    max_restarts: int,
) -> None:
    if group is None and not nodes:
        raise InputError(
            "give a placement group, or nnodes and n_gpus_per_node (0 for workers without GPU)", field="placement_group"
        )
    if group is None and gpus is None:
        raise InputError("set the number of GPUs of each node that get a worker, 0 for workers without GPU", field="n_gpus_per_node")
    if group is not None and nodes is not None:
        raise InputError("the placement group sets the number of workers: leave the argument out", field="nnodes")
    for field, number in (("n_gpus_per_node", gpus or 0), ("nnodes", nodes or 0), ("num_cpus", cpus), ("grace", grace)):
        if not (math.isfinite(number) and number >= 0):
            raise InputError(f"is {number}, must be 0 or more", field=field)
    if group is None and not gpus and not cpus:
        raise InputError("is 0: a bundle without a GPU needs a CPU share above 0", field="num_cpus")
    if not (math.isfinite(start_timeout) and start_timeout > 0):
        raise InputError(f"is {start_timeout}, must be a number of seconds above 0", field="start_timeout")
    if max_restarts < -1:
        raise InputError(f"is {max_restarts}, must be -1 (for ever) or more", field="max_restarts")
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", prefix):
        raise InputError(f"is {prefix!r}, must be up to 64 letters, digits, dots, dashes and underscores", field="name_prefix")


def _addresses(join: str | Sequence[str]) -> str:
    addresses = [part.strip() for part in (join.split(",") if isinstance(join, str) else join)]
    if not addresses:
        raise InputError("is empty: give the address of the gateways' NATS", field="join")
    for address in addresses:
        if not re.fullmatch(r"(nats|tls)://\S+", address):
            raise InputError(f"{address!r} is not the address of a NATS server: want nats://host:4222 or tls://host:4222", field="join")
    return ",".join(addresses)


def _files(
    config: str | os.PathLike[str] | None, files: Mapping[str, bytes] | Iterable[str | os.PathLike[str]]
) -> tuple[str, dict[str, bytes]]:
    """Returns the configuration's name, and everything that travels by name."""
    if isinstance(files, (str, bytes)):
        raise InputError("must be a list of paths, or bytes by name", field="files")
    config = Path(config) if config is not None else None
    if isinstance(files, Mapping):
        found = {name: bytes(data) for name, data in files.items()}
    else:
        found = {}
        for path in (Path(file).absolute() for file in files):
            below = config is not None and path.is_relative_to(config.parent.absolute())
            name = path.relative_to(config.parent.absolute()).as_posix() if config is not None and below else path.name
            if name in found:
                raise InputError(f"two files have the name {name!r}: give the files with names", field="files")
            found[name] = _read(path, "files")
    for name in found:
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts or "\0" in name or name == "lock":
            raise InputError(f"{name!r} must be a relative name below the folder, and not 'lock'", field="files")
    if config is not None:
        if config.name in found or config.name == "lock":
            raise InputError(f"{config.name!r} is the name of the configuration", field="files")
        found[config.name] = _read(config, "config")
    if (size := sum(map(len, found.values()))) > MAX_FILES_BYTES:
        raise InputError(f"{size} bytes are more than {MAX_FILES_BYTES}: put large files on the nodes", field="files")
    return (config.name if config is not None else ""), found


def _read(path: Path, field: str) -> bytes:
    try:
        if path.stat().st_size > MAX_FILES_BYTES:
            raise InputError(f"{path} has more than {MAX_FILES_BYTES} bytes: put large files on the nodes", field=field)
        return path.read_bytes()
    except OSError as err:
        raise InputError(f"{path} cannot be read: {err.strerror}", field=field) from err


def _find_binary(plan: _Plan, where: str) -> str:
    """The binary, as it is found on this node."""
    named = plan.binary or plan.env.get("REWARDLOOP_BIN", "")
    try:
        found = shutil.which(named) if named else find_binary()
    except RewardloopError as err:
        raise RewardloopError(f"on {where}: {err}, or give binary=") from err
    if found is None:
        raise RewardloopError(f"{named!r} is not a program on {where}: put the binary on that node, or give its path as binary=")
    return os.path.abspath(found)
