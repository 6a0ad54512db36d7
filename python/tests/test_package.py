"""How the package is made: who imports whom, what is documented, and that it says and reads what wire/messages.json has."""

from __future__ import annotations

import ast
import dataclasses
import graphlib
import inspect
import json
import os
import re
import subprocess
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import rewardloop
from rewardloop import GroupStats, Missing, Result, Rewards, Sample, Fallback, ComponentError, core, messages, result, steps
from rewardloop.frame import encode
from rewardloop.traceparent import EXAMPLE

from .harness import PATIENCE, REPOSITORY, noise

PACKAGE = REPOSITORY / "python" / "rewardloop"
SCHEMA: dict[str, Any] = json.loads((REPOSITORY / "wire" / "messages.json").read_text(encoding="utf-8"))
MESSAGES = {(m["from"], m["type"]): m for m in SCHEMA["protocols"][0]["messages"]}


def imports(file: Path) -> Iterator[str]:
    """The modules of the package that a file imports, also those for type checkers alone."""
    package = ["rewardloop", *file.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            for name in [node.module] if node.module else [alias.name for alias in node.names]:
                yield ".".join([*base, name])
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


class ImportTest(unittest.TestCase):
    def setUp(self) -> None:
        self.graph = {
            ".".join(f.relative_to(PACKAGE).with_suffix("").parts): {
                name.removeprefix("rewardloop.") for name in imports(f) if name.startswith("rewardloop.")
            }
            for f in PACKAGE.rglob("*.py")
        }

    def test_no_modules_import_each_other(self) -> None:
        list(graphlib.TopologicalSorter(self.graph).static_order())  # CycleError names them

    def test_a_module_imports_only_modules_of_the_lines_above_its_own(self) -> None:
        line_of: dict[str, int] = {}
        for line, names in re.findall(r"^ {3,4}(\d+)  (\w+(?:, \w+)*) ", rewardloop.__doc__ or "", re.MULTILINE):
            line_of.update(dict.fromkeys(names.split(", "), int(line)))
        parts = {name.split(".")[0] for name in self.graph} - {"__init__"}
        self.assertEqual(set(line_of), parts, "the picture in rewardloop/__init__.py")
        for name, imported in self.graph.items():
            own = name.split(".")[0]
            for other in {i.split(".")[0] for i in imported} - {own, "__version__"}:
                if own != "__init__":
                    self.assertLess(line_of[other], line_of[own], f"{name} imports {other}")


class NamesTest(unittest.TestCase):
    def run_python(self, code: str) -> None:
        env = {**os.environ, "PYTHONPATH": str(REPOSITORY / "python")}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=PATIENCE)  # noqa: S603
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_package_imports_nothing_before_a_name_of_it_is_asked_for(self) -> None:
        self.run_python("import sys, rewardloop, rewardloop.check as c\nassert not {'numpy', 'websockets'} & set(sys.modules)")

    def test_every_name_is_there_whatever_is_imported_first(self) -> None:
        for first in ("rewardloop", "rewardloop.ray", "rewardloop._launch", "rewardloop.verl"):
            self.run_python(
                f"import {first}\nimport rewardloop\n"
                "assert callable(rewardloop.launch) and rewardloop.errors.InputError is rewardloop.InputError\n"
                "assert set(rewardloop.__all__) <= set(dir(rewardloop))\n"
                "for name in rewardloop.__all__: getattr(rewardloop, name)\n"
                "from rewardloop import *\nconnect, Sample\n"
                "assert not hasattr(rewardloop, 'typo')"
            )


class DocumentationTest(unittest.TestCase):
    def test_every_field_that_users_see_is_documented(self) -> None:
        for kind in (rewardloop.Config, Sample, Result, ComponentError, Fallback, GroupStats, Rewards, Missing):
            documented = re.findall(r"^ {8}(\w+): \S", kind.__doc__ or "", re.MULTILINE)
            self.assertEqual(documented, [f.name for f in dataclasses.fields(kind)], kind.__name__)

    def test_every_setting_is_a_parameter_that_editors_show(self) -> None:
        settings = list(inspect.signature(rewardloop.Config).parameters.values())
        for client in (rewardloop.connect, rewardloop.Client, rewardloop.connect_sync):
            self.assertEqual(list(inspect.signature(client).parameters.values()), settings)
            self.assertIn("reconnect_for: Seconds", client.__init__.__doc__ or "")
            with self.assertRaisesRegex(TypeError, "recconnect_for"):
                client("ws://127.0.0.1:1", run="r", recconnect_for=1)


class RowTest(unittest.TestCase):
    def test_a_result_is_one_flat_row(self) -> None:
        r = Result(
            "s0",
            rewardloop.Outcome.SCORED,
            0.5,
            {"reward/ocr": 0.5, "outcome": "own", "rewardloop/valid": True},
            {"box": [1, 2]},
            timing_ms={"total": 12.5},
            worker="w",
            attempts=1,
            group=GroupStats("u", 2, 2, 0, 0.5, 0.1, False, 0),
            config="9f",
        )
        self.assertEqual(
            r.as_row(),
            {
                "id": "s0",
                "outcome": "scored",
                "reward_score": 0.5,
                "fallback": None,
                "why": "scored",
                "worker": "w",
                "attempts": 1,
                "config": "9f",
                "reward/ocr": 0.5,
                "reward_extra_info/outcome": "own",
                "rewardloop/valid": True,
                "timing_ms/total": 12.5,
                "group/uid": "u",
                "group/size": 2,
                "group/scored": 2,
                "group/failed": 0,
                "group/mean": 0.5,
                "group/std": 0.1,
                "group/zero_std": False,
                "group/missing": 0,
            },
        )

    def test_a_failed_sample_has_a_row_with_its_reason(self) -> None:
        r = Result(
            "s1",
            rewardloop.Outcome.FAILED,
            None,
            errors=(ComponentError("timeout", "too slow", "ocr"),),
            fallback=Fallback("zero", 0.0),
        )
        row = r.as_row()
        self.assertEqual((row["reward_score"], row["fallback"], row["why"]), (None, 0.0, "failed (ocr: timeout: too slow)"))


def value(kind: str, values: list[str] | None = None) -> Any:
    """A value of a type of the schema, with every field of every object in it."""
    kind = kind.removesuffix(" or null")
    if kind.startswith("["):
        return [value(kind[1:-1], values)]
    if kind.startswith("{"):
        return {"k": value(kind[1:-1])}
    if kind in SCHEMA["objects"]:
        return full(SCHEMA["objects"][kind]["fields"])
    return {"string": (values or ["x"])[0], "bool": True, "int": 1, "uint": 1, "float": 0.5, "json": 1}[kind]


def full(fields: list[dict[str, Any]]) -> Noted:
    return Noted({f["name"]: value(f["type"], f.get("values")) for f in fields})


class Noted(dict[str, Any]):
    """A message that notes which of its fields are read."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)

    def unread(self, path: str = "") -> Iterator[str]:
        """The fields that were not read, and those that were and that it has not."""
        for name in sorted(self.keys() ^ self.read):
            yield path + name
        for name in self.read & self.keys():
            inner = super().__getitem__(name)
            for part in inner if isinstance(inner, list) else [inner]:
                if isinstance(part, Noted):
                    yield from part.unread(f"{path}{name}.")


def used(side: str) -> set[str]:
    """The messages of a side that the Python client uses."""
    return {kind for (by, kind), m in MESSAGES.items() if by == side and m.get("python", True)}


class MessagesTest(unittest.TestCase):
    def heard(self, kind: str) -> Noted:
        return full(MESSAGES["gateway", kind]["fields"])

    def test_the_client_can_say_every_message_of_the_schema_and_no_other(self) -> None:
        functions = {n: f for n, f in vars(messages).items() if inspect.isfunction(f) and f.__module__ == messages.__name__}
        said = {name.rstrip("_"): make for name, make in functions.items() if not name.startswith("_")}
        self.assertEqual(set(said), used("client"))
        for kind, make in said.items():
            fields = MESSAGES["client", kind]["fields"]
            every = {f["name"]: value(f["type"], f.get("values")) for f in fields}
            self.assertEqual(make(**every), {"type": kind, **every})
            given = {f["name"]: every[f["name"]] for f in fields if f.get("required") or f["name"] == "split"}
            self.assertEqual(make(**given), {"type": kind, **given}, "what is not required is left out where it is empty")

    def test_the_client_does_something_with_every_message_of_a_gateway(self) -> None:
        self.assertEqual({*core._HEARD, "welcome"}, used("gateway"))

    def test_every_field_of_a_result_is_read(self) -> None:
        m = self.heard("result")
        read = result.from_wire(m)
        self.assertEqual(list(m.unread()), [])
        for kind, fields in (
            (Result, MESSAGES["gateway", "result"]["fields"]),
            (ComponentError, SCHEMA["objects"]["failure"]["fields"]),
            (Fallback, SCHEMA["objects"]["fallback"]["fields"]),
            (GroupStats, SCHEMA["objects"]["group_stats"]["fields"]),
        ):
            have = {f.name.replace("cls", "class") for f in dataclasses.fields(kind)}
            self.assertEqual(have, {f["name"] for f in fields}, kind.__name__)
        self.assertNotIn(None, dataclasses.astuple(read))

    def test_every_field_of_a_chunk_of_rewards_is_read(self) -> None:
        m = self.heard("rewards")
        steps.from_wire(m)
        self.assertEqual(list(m.unread()), ["req"], "which finds the question, before")
        have = {f.name for f in dataclasses.fields(Rewards)} | {"req"}
        self.assertEqual(have, {f["name"] for f in MESSAGES["gateway", "rewards"]["fields"]})
        self.assertEqual(
            {f.name for f in dataclasses.fields(Missing)}, {f["name"] for f in SCHEMA["objects"]["missing"]["fields"]}
        )

    def test_the_fields_of_a_welcome_are_read_that_the_client_uses(self) -> None:
        m = self.heard("welcome")
        messages.Welcome.from_wire(m)
        unused = ["limits.control_bytes", "limits.idle_ms", "limits.in_flight", "protocol", "rewards.extra"]
        self.assertEqual(sorted(m.unread()), unused)

    def test_the_words_are_those_of_the_schema(self) -> None:
        def words(kind: str, name: str) -> list[str]:
            fields = next(m["fields"] for (_, k), m in MESSAGES.items() if k == kind)
            return next(list(f["values"]) for f in fields if f["name"] == name)

        self.assertEqual([str(o) for o in rewardloop.Outcome], words("result", "outcome"))
        self.assertEqual(list(steps.ORDERS), words("fetch", "order"))
        self.assertEqual(list(steps.POLICIES), words("step", "on_deadline"))
        self.assertEqual(list(steps._STATES), words("rewards", "state"))

    def test_a_sample_is_sent_with_the_fields_of_the_schema(self) -> None:
        fields = [f["name"] for f in SCHEMA["sample"]["fields"]]
        self.assertEqual({f.name.replace("deadline", "deadline_ms") for f in dataclasses.fields(Sample)}, set(fields))
        sample = Sample(
            id="a",
            run="r",
            step=7,
            split="val",
            index=0,
            uid="u",
            group_size=2,
            reward="p",
            data_source="d",
            prompt="p",
            response="x",
            ground_truth=1,
            extra_info={},
            deadline=1,
            traceparent=EXAMPLE,
            media=[
                noise(2),
                rewardloop.frames([b"\xff\xd8\xff" * 8], fps=8),
                rewardloop.audio(np.zeros(1, np.int16), layout="T", sample_rate=8000),
            ],
        )
        head = encode(sample).head
        sent = json.loads(json.loads(head[8:])["__metadata__"]["sample"])
        self.assertEqual(list(sent), fields, "in the canonical order")
        known = [f["name"] for f in SCHEMA["objects"]["media"]["fields"]]
        for m in sent["media"]:
            self.assertEqual(list(m), [name for name in known if name in m])
        self.assertEqual({name for m in sent["media"] for name in m}, set(known))


if __name__ == "__main__":
    unittest.main()
