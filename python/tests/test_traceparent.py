"""The trace context that a sample is sent with: the caller's span, what the sample says, or none."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import sys
import types
import unittest
from collections.abc import Iterator
from typing import Any
from unittest import mock

import rewardloop
from rewardloop import Client, InputError, Sample
from rewardloop.frame import encode
from rewardloop.traceparent import EXAMPLE, current, valid

from .gateway import FakeCase

TRACE, SPAN = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
OTHER = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


def sent(sample: Sample) -> Any:
    """The traceparent in a sample's frame; None: it has none."""
    head = encode(sample).head
    return json.loads(json.loads(head[8:])["__metadata__"]["sample"]).get("traceparent")


@contextlib.contextmanager
def span(trace_id: int = TRACE, span_id: int = SPAN, flags: int = 1, valid: bool = True) -> Iterator[None]:
    """A fake of opentelemetry.trace, in which a span is current."""
    context = types.SimpleNamespace(trace_id=trace_id, span_id=span_id, trace_flags=flags, is_valid=valid)
    module = types.SimpleNamespace(get_current_span=lambda: types.SimpleNamespace(get_span_context=lambda: context))
    with mock.patch.dict(sys.modules, {"opentelemetry.trace": module}):
        yield


class TraceparentTest(unittest.TestCase):
    def test_a_sample_has_the_span_that_is_current_where_it_is_encoded(self) -> None:
        self.assertIsNone(sent(Sample()))
        with span():
            self.assertEqual(sent(Sample()), EXAMPLE)
            self.assertEqual(sent(Sample(traceparent=OTHER)), OTHER, "what the sample says counts")
        with span(flags=0):
            self.assertEqual(sent(Sample()), EXAMPLE[:-2] + "00", "the server is told that nobody records it")
        with span(valid=False):
            self.assertIsNone(sent(Sample()))

    def test_a_module_of_that_name_that_is_another_one_is_passed_over(self) -> None:
        with mock.patch.dict(sys.modules, {"opentelemetry.trace": types.SimpleNamespace()}):
            self.assertEqual(current(), "")

    def test_what_is_no_traceparent_is_refused_by_name(self) -> None:
        for text in (
            "nonsense", EXAMPLE[:-1], EXAMPLE + "0", EXAMPLE + "-more", EXAMPLE + "\n", EXAMPLE.upper(), "ff" + EXAMPLE[2:],
            "00-" + "0" * 32 + EXAMPLE[35:], EXAMPLE[:36] + "0" * 16 + EXAMPLE[52:], "cc" + EXAMPLE[2:] + "-" + "x" * 512,
        ):  # fmt: skip
            with self.subTest(text), self.assertRaisesRegex(InputError, "traceparent"):
                encode(Sample(traceparent=text))
        with self.assertRaisesRegex(InputError, "traceparent: want a string"):
            encode(Sample(traceparent=1))  # type: ignore[arg-type]
        self.assertTrue(valid("cc" + EXAMPLE[2:] + "-what comes later"))

    def test_opentelemetry_is_not_imported(self) -> None:
        self.assertNotIn("opentelemetry", " ".join(m for m in sys.modules if m.startswith("rewardloop")))
        self.assertEqual(current() if "opentelemetry.trace" not in sys.modules else "", "")

    @unittest.skipUnless(importlib.util.find_spec("opentelemetry"), "SKIPPED: opentelemetry-api is not installed")
    def test_a_real_span(self) -> None:
        from opentelemetry import trace  # noqa: PLC0415

        context = trace.SpanContext(TRACE, SPAN, is_remote=False, trace_flags=trace.TraceFlags(1))
        with trace.use_span(trace.NonRecordingSpan(context)):
            self.assertEqual(sent(Sample()), EXAMPLE)
        self.assertIsNone(sent(Sample()), "there is no span any more")


class ClientsTest(FakeCase):
    async def test_both_clients_send_the_context_of_whoever_submits(self) -> None:
        with span():
            await self.soon(self.loop.submit(Sample(id="a")))
        await self.next(self.gateway.got)
        self.assertEqual(self.gateway.samples["a"]["traceparent"], EXAMPLE)

        def blocking() -> None:
            with Client(self.gateway.url, run="s", lanes=1) as client:
                with span():
                    pending = client.submit(Sample(id="b"))
                pending.result(30)

        await self.soon(asyncio.to_thread(blocking))
        self.assertEqual(self.gateway.samples["b"]["traceparent"], EXAMPLE)
        self.assertEqual(rewardloop.Sample().traceparent, "")
