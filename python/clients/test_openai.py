"""The package openai, unmodified, against the reward router, with a stub of an engine behind it."""

from __future__ import annotations

import asyncio
import base64
import tempfile
import unittest
from pathlib import Path
from typing import Any

import openai

from . import site
from .engine import Answer, Engine, brightness

MODEL = "stub/judge-7b"

#: An engine refuses what is asked for with this temperature, and fails for the other.
REFUSED, BROKEN = 2.5, 3.5


def answer(request: dict[str, Any]) -> Answer:
    if request.get("temperature") == REFUSED:
        return 400, {"error": {"message": "temperature is at most 2", "type": "BadRequestError", "code": 400}}
    if request.get("temperature") == BROKEN:
        return 500, {"error": {"message": "out of memory"}}
    return f"grey {brightness(request)}"


def messages(level: float) -> list[Any]:
    url = "data:image/png;base64," + base64.b64encode(site.encoded(site.grey(level), "PNG")).decode()
    return [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "How grey?"}]}
    ]


class Router(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.engine = Engine(answer)
        cls.addClassCleanup(cls.engine.close)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        key = Path(folder.name) / "engine.key"
        key.write_text("engine-key\n")
        cls.site = site.Site(
            "reward.custom_reward_function.path=builtin://jpeg_compressibility",
            "reward.reward_model.enable=true", f"reward.reward_model.model_path={MODEL}",
            "reward.reward_model.rollout.name=external",
            f"+reward.reward_model.rollout.base_urls=[{cls.engine.url}]", f"+reward.reward_model.rollout.key_file={key}",
            "+reward.reward_model.rollout.attempts=2",
            token=site.TOKEN,
        )  # fmt: skip
        cls.addClassCleanup(cls.site.close)

    def client(self, key: str = site.TOKEN, **options: Any) -> openai.OpenAI:
        made = openai.OpenAI(base_url=self.site.url("/v1", token=""), api_key=key, **{"max_retries": 0, **options})
        self.addCleanup(made.close)
        return made

    def test_a_question_about_a_picture_is_answered(self) -> None:
        got = self.client().chat.completions.create(model=MODEL, messages=messages(0.5), temperature=0, max_tokens=16)
        self.assertEqual(got.choices[0].message.content, "grey 128")
        self.assertEqual((got.model, got.usage and got.usage.total_tokens), (MODEL, 15))

    def test_the_engine_sees_its_own_key_and_never_the_clients(self) -> None:
        self.client().chat.completions.create(model=MODEL, messages=messages(0.25), temperature=0)
        self.assertEqual(self.engine.headers[-1]["Authorization"], "Bearer engine-key")
        self.assertNotIn(site.TOKEN, str(self.engine.headers))

    def test_many_questions_at_once_each_have_their_own_answer(self) -> None:
        async def ask() -> list[str | None]:
            async with openai.AsyncOpenAI(base_url=self.site.url("/v1", token=""), api_key=site.TOKEN) as client:
                asked = (
                    client.chat.completions.create(model=MODEL, messages=messages(v), temperature=0) for v in site.levels(32)
                )
                return [got.choices[0].message.content for got in await asyncio.gather(*asked)]

        self.assertEqual(asyncio.run(ask()), [f"grey {round(v * 255)}" for v in site.levels(32)])

    def test_the_engines_refusal_is_handed_on(self) -> None:
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client().chat.completions.create(model=MODEL, messages=messages(0.5), temperature=REFUSED)
        self.assertIn("temperature is at most 2", str(caught.exception))

    def test_an_engine_that_fails_is_a_503_that_the_client_may_try_again(self) -> None:
        before = len(self.engine.requests)
        with self.assertRaises(openai.InternalServerError) as caught:
            self.client().chat.completions.create(model=MODEL, messages=messages(0.5), temperature=BROKEN)
        self.assertEqual((caught.exception.status_code, caught.exception.response.headers["Retry-After"]), (503, "2"))
        self.assertEqual(len(self.engine.requests) - before, 2)  # the router's own attempts

    def test_a_stream_is_refused_by_name(self) -> None:
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client().chat.completions.create(model=MODEL, messages=messages(0.5), stream=True)
        self.assertIn("does not stream answers", str(caught.exception.body))

    def test_the_only_engine_is_asked_whatever_the_model_is_called(self) -> None:
        got = self.client().chat.completions.create(model="judge", messages=messages(0.5), temperature=0)
        self.assertEqual((got.model, self.engine.requests[-1]["model"]), ("judge", "judge"))

    def test_another_key_is_refused(self) -> None:
        with self.assertRaises(openai.AuthenticationError):
            self.client(key="sk-guess").chat.completions.create(model=MODEL, messages=messages(0.5))

    def test_what_is_no_endpoint_of_the_router_is_not_there(self) -> None:
        with self.assertRaises(openai.NotFoundError):
            self.client().responses.create(model=MODEL, input="hello")


if __name__ == "__main__":
    unittest.main()
