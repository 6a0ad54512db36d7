"""Trainers of text: OpenRLHF and slime.

OpenRLHF's clients are its own, unmodified, from the package openrlhf on PyPI: openrlhf/utils/agent.py of the present
version, which needs aiohttp alone, and openrlhf/utils/remote_rm_utils.py of 0.8, where this Python has ray. slime's
is written for this test from slime/rollout/rm_hub/__init__.py (THUDM/slime, Apache-2.0; the package slime on PyPI is
something else), and runs as its own where REWARDLOOP_CHECKOUTS holds a checkout and this Python has torch.
"""

from __future__ import annotations

import asyncio
import logging
import unittest
from types import SimpleNamespace
from typing import Any
from unittest import mock

import aiohttp
import requests

from . import site, trainers

ROUTE = "/get_reward/:name"


def at(site_: site.Site | None = None) -> str:
    """Where OpenRLHF finds the reward answers."""
    return (site_ or site.shared()).url("/get_reward/answers")


class _Tokenizer:
    """Letters as tokens."""

    def __call__(self, text: str, **_: Any) -> dict[str, Any]:
        import numpy as np

        return {"input_ids": np.array([[ord(c) for c in text]])}

    def decode(self, tokens: list[int], **_: Any) -> str:
        return "".join(map(chr, tokens))


class _Engine:
    """Answers every prompt with the same text."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def generate(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(
            outputs=[SimpleNamespace(token_ids=[ord(c) for c in self.text], finish_reason="stop", logprobs=None)]
        )


class OpenRLHFOfToday(unittest.IsolatedAsyncioTestCase):
    """SingleTurnAgentExecutor, whose reward comes from --reward.remote_url."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.theirs = trainers.load(trainers.package("openrlhf"), "openrlhf.utils.agent")
        cls.theirs.logger.setLevel(logging.CRITICAL)  # it reports every try

    def setUp(self) -> None:
        pause = asyncio.sleep
        short = mock.patch.object(self.theirs.asyncio, "sleep", lambda seconds: pause(min(seconds, 0.01)))
        short.start()
        self.addCleanup(short.stop)

    async def execute(self, url: str | list[str], prompt: str, text: str, label: Any) -> dict[str, Any]:
        params = SimpleNamespace(max_tokens=64, logprobs=None)
        return await self.theirs.SingleTurnAgentExecutor(url).execute(prompt, label, params, 512, _Tokenizer(), _Engine(text))

    async def test_a_response_is_scored_against_its_label(self) -> None:
        for label, want in (("408", 1.0), ("409", 0.0), (408, 1.0)):
            got = await self.execute(at(), "17*24?", "it is 408", label)
            self.assertEqual((got["reward"], got["scores"]), ([want], [want]))
            self.assertEqual(got["extra_logs"], {"acc": [want], "words": [3.0]})

    async def test_several_servers_share_a_batch(self) -> None:
        executor = self.theirs.SingleTurnAgentExecutor([at(), at(site.shared(site.TOKEN))])
        got = await executor._fetch_rewards_via_http(["1?1", "2?0", "3?3"], ["1?", "2?", "3?"], ["1", "2", "3"])
        self.assertEqual([v for part in got for v in part["rewards"]], [1, 0, 1])

    async def test_every_failure_is_asked_five_times_and_leaves_the_reward_none(self) -> None:
        """The executor logs it and goes on; OpenRLHF decides what a sample without a reward is."""
        for prompt, status in (("broken", 422), ("unavailable", 503)):
            with site.shared().answered(ROUTE) as answered:
                got = await self.execute(at(), prompt, "it is 408", "408")
            self.assertEqual((got["reward"], got["extra_logs"]), (None, {}))
            self.assertEqual(answered, {status: 5})


class OpenRLHFOf08(unittest.TestCase):
    """remote_rm_utils, whose answers are lists for a batch."""

    @classmethod
    def setUpClass(cls) -> None:
        trainers.need("ray", "requests")
        cls.theirs = trainers.load(trainers.package("openrlhf-0.8"), "openrlhf.utils.remote_rm_utils")
        cls.theirs.logger.setLevel(logging.CRITICAL)

    def test_a_batch_is_scored_in_order(self) -> None:
        got = self.theirs.request_api_wrapper(at(), {"query": ["1?1", "2?0"], "prompts": ["1?", "2?"], "labels": ["1", "2"]})
        self.assertEqual((got["rewards"], got["scores"]), ([1, 0], [1, 0]))
        self.assertEqual(got["extra_logs"]["words"], [1, 1])

    def test_the_surplus_server_is_sent_an_empty_batch(self) -> None:
        got = self.theirs.request_api_wrapper(at(), {"query": [], "prompts": [], "labels": []})
        self.assertEqual((got["rewards"], got["extra_logs"]), ([], {}))

    def test_every_failure_is_asked_as_often_as_it_may_and_then_raised(self) -> None:
        with site.shared().answered(ROUTE) as answered, self.assertRaisesRegex(Exception, "Request error for 2 times"):
            self.theirs.request_api_wrapper(
                at(), {"query": ["broken 1"], "prompts": ["broken"], "labels": ["1"]}, try_max_times=2
            )
        self.assertEqual(answered, {422: 2})


class OpenRLHFRefusals(unittest.TestCase):
    def test_what_is_no_batch_is_refused(self) -> None:
        for body in ({}, {"query": "one"}, {"query": ["a"], "prompts": []}, {"query": ["a"], "prompt": ["a"]}, {"query": [1]}):
            answer = requests.post(at(), json=body, timeout=60)
            self.assertEqual(answer.status_code, 400, body)
            self.assertTrue(answer.json()["error"])


class SlimeCases:
    """What must hold for either client of slime."""

    async def remote_rm(self, url: str, prompt: Any, response: str, label: Any, tries: int = 2) -> Any:
        raise NotImplementedError

    async def test_a_sample_is_answered_with_its_number(self) -> None:
        for path in ("/rm/answers", "/rm/answers/", "/rm?reward=answers"):
            for label, want in (("408", 1), (409, 0)):
                self.assertEqual(await self.remote_rm(site.shared().url(path), "17*24?", "it is 408", label), want)

    async def test_a_conversation_is_its_last_user_turn(self) -> None:
        turns = [{"role": "system", "content": "count"}, {"role": "user", "content": [{"type": "text", "text": "17*24?"}]}]
        self.assertEqual(await self.remote_rm(site.shared().url("/rm/answers"), turns, "408", "408"), 1)

    async def test_a_sample_without_a_label_is_scored(self) -> None:
        self.assertEqual(await self.remote_rm(site.shared().url("/rm/answers"), "who?", "None", None), 1)

    async def test_a_token_goes_before_the_host(self) -> None:
        self.assertEqual(await self.remote_rm(site.shared(site.TOKEN).url("/rm/answers"), "17*24?", "408", "408"), 1)

    async def test_every_failure_is_asked_again_and_then_raised(self) -> None:
        for prompt, status in (("broken", 422), ("unavailable", 503)):
            with (
                site.shared().answered("/rm/:name") as answered,
                self.assertRaisesRegex(aiohttp.ClientResponseError, f"{status}"),
            ):
                await self.remote_rm(site.shared().url("/rm/answers"), prompt, "408", "408")
            self.assertEqual(answered, {status: 2})


class SlimeFromTheProtocol(SlimeCases, unittest.IsolatedAsyncioTestCase):
    async def remote_rm(self, url: str, prompt: Any, response: str, label: Any, tries: int = 2) -> Any:
        async with aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=120), connector=aiohttp.TCPConnector(limit=64)
        ) as session:
            for left in reversed(range(tries)):
                try:
                    async with session.post(url, json={"prompt": prompt, "response": response, "label": label}) as answer:
                        answer.raise_for_status()
                        return await answer.json()
                except aiohttp.ClientError:
                    if not left:
                        raise
        raise AssertionError("unreachable")


class SlimeItself(SlimeCases, unittest.IsolatedAsyncioTestCase):
    """remote_rm of slime."""

    @classmethod
    def setUpClass(cls) -> None:
        trainers.need("torch", "sympy", "pylatexenc", "httpx")
        root = trainers.checkout("slime")
        cls.theirs = trainers.load(root, "slime.rollout.rm_hub", "slime.utils")
        cls.theirs.logger.setLevel(logging.CRITICAL)

    async def asyncTearDown(self) -> None:
        if (session := self.theirs._shared_session) is not None:
            await session.close()

    async def remote_rm(self, url: str, prompt: Any, response: str, label: Any, tries: int = 2) -> Any:
        sample = SimpleNamespace(prompt=prompt, response=response, label=label)
        with mock.patch.object(self.theirs.random, "random", return_value=-0.99):  # 2**0 - 0.99 s between the two tries
            return await self.theirs.remote_rm(SimpleNamespace(rm_url=url), sample, max_retries=tries)


if __name__ == "__main__":
    unittest.main()
