"""verl-omni's reward functions http_scorer_client and latent_http_scorer_client.

Two clients each: one written for this test from the protocol (verl_omni/utils/reward_score/http_scorer_client.py and
latent_http_scorer_client.py of verl-omni, Apache-2.0), and verl-omni's own files, unmodified, where
REWARDLOOP_VERL_OMNI names a checkout and this Python has torch.
"""

from __future__ import annotations

import asyncio
import functools
import pickle
import unittest
from typing import Any

import aiohttp
import numpy as np
from PIL import Image, ImageDraw, ImageFont
from safetensors.numpy import save

import rewardloop

from . import site, trainers


class HTTPClient:
    """One pickled picture a request; connection errors, 408, 429 and 5xx are tried again, all else is final."""

    def __init__(self, url: str, retries: int = 2, backoff: float = 0.5) -> None:
        self.url, self.retries, self.backoff = url, retries, backoff

    async def score(self, pixels: np.ndarray, prompt: str) -> float:
        return await self.send(site.encoded(pixels), prompt)

    async def send(self, picture: bytes, prompt: str) -> float:
        body = pickle.dumps({"images": [picture], "prompts": [prompt], "metadata": {}})
        last = ""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session:
            for attempt in range(1 + self.retries):
                if attempt:
                    await asyncio.sleep(self.backoff * 2 ** (attempt - 1))
                async with session.post(self.url, data=body) as response:
                    answer = pickle.loads(await response.read())  # noqa: S301 - our own server
                if response.status == 200:
                    return float(answer["scores"][0])
                last = f"HTTP {response.status}: {answer['error']}"
                if response.status not in (408, 429) and response.status < 500:
                    break
        raise RuntimeError(last)


class LatentClient:
    """One latent a request as safetensors; whatever is no score is tried again, 4xx too."""

    def __init__(self, url: str, retries: int = 2, backoff: float = 0.5) -> None:
        self.url, self.retries, self.backoff = url, retries, backoff

    async def score(self, tensors: dict[str, np.ndarray], *, scale: float = 1.0, version: str = "1") -> dict[str, float]:
        headers = {"content-type": "application/octet-stream", "x-drm-protocol-version": version}
        body, last = save(tensors), ""
        async with aiohttp.ClientSession() as session:
            for attempt in range(1 + self.retries):
                if attempt:
                    await asyncio.sleep(self.backoff * 2 ** (attempt - 1))
                async with session.post(self.url, data=body, headers=headers) as response:
                    if response.status != 200:
                        last = f"HTTP {response.status}: {await response.text()}"
                        continue
                    answer = await response.json()
                assert answer["protocol_version"] == "1" and len(answer["raw_scores"]) == 1, answer
                raw = answer["raw_scores"][0]
                return {"score": raw * scale, "drm_raw_score": raw}
        raise RuntimeError(last)


def tensors(level: float, noise: float = 0.4, **more: np.ndarray) -> dict[str, np.ndarray]:
    """What the latent client sends of a sample of SD3.5."""
    return {
        "latents": np.full((1, 16, 8, 8), level, dtype=np.float32),
        "prompt_embeds": np.zeros((1, 7, 12), dtype=np.float32),
        "pooled_prompt_embeds": np.zeros((1, 5), dtype=np.float32),
        "u": np.array([noise], dtype=np.float32),
        "seeds": np.array([0], dtype=np.int64),
        **more,
    }


class HTTPCases:
    """What must hold for either client: score(site, path, level, prompt, backoff, text)."""

    async def score(self, site_: site.Site, path: str, level: float, prompt: str, backoff: float = 0.01, text: str = "") -> float:
        raise NotImplementedError

    async def test_pictures_are_scored_each_with_its_own_score(self) -> None:
        prompts = [f"{i / 8}" for i in range(8)]
        got = await asyncio.gather(*(self.score(site.shared(), "", 0.5, p) for p in prompts))
        self.assertEqual(got, [float(p) for p in prompts])

    async def test_the_path_chooses_the_reward(self) -> None:
        for path in ("/scorers/brightness", "/scorers/brightness/"):
            self.assertAlmostEqual(await self.score(site.shared(), path, 0.25, "a cat"), 0.25, delta=0.01)

    async def test_a_score_of_zero_is_a_score(self) -> None:
        self.assertEqual(await self.score(site.shared(), "", 0.5, "0.0"), 0.0)

    async def test_a_token_goes_before_the_host(self) -> None:
        guarded = site.shared(site.TOKEN)
        self.assertEqual(await self.score(guarded, "", 0.5, "0.75"), 0.75)
        with self.assertRaisesRegex(RuntimeError, "HTTP 401: unauthorized"):
            await self.score(_Without(guarded), "", 0.5, "0.75")

    async def test_a_sample_that_fails_for_good_fails_at_once(self) -> None:
        for prompt, why in (("broken:0", "cannot be scored"), ("nan", "NaN|nan|finite")):
            with site.shared().answered("/") as answered:
                with self.assertRaisesRegex(RuntimeError, f"HTTP 422: .*({why})"):
                    await self.score(site.shared(), "", 0.5, prompt, backoff=30)
            self.assertEqual(answered, {422: 1}, prompt)

    async def test_a_reward_that_nobody_has_fails_at_once(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "HTTP 422: .*no reward named .*beauty"):
            await self.score(site.shared(), "/scorers/beauty", 0.5, "1", backoff=30)

    async def test_a_failure_that_may_pass_is_tried_again(self) -> None:
        with site.shared().answered("/") as answered:
            self.assertEqual(await self.score(site.shared(), "", 0.5, f"once:{type(self).__name__}:0.5"), 0.5)
        self.assertEqual(answered, {503: 1, 200: 1})
        with site.shared().answered("/") as answered:
            with self.assertRaisesRegex(RuntimeError, "HTTP 503: unavailable.*restarting"):
                await self.score(site.shared(), "", 0.5, "unavailable")
        self.assertEqual(answered, {503: 3})

    async def test_the_built_in_rewards_score_its_pictures(self) -> None:
        ocr = with_ocr()
        clear = await self.score(ocr, "/scorers/ocr", 1.0, 'a sign that says "HELLO 408"', text="HELLO 408")
        wrong = await self.score(ocr, "/scorers/ocr", 1.0, 'a sign that says "GOODBYE"', text="HELLO 408")
        self.assertEqual(clear, 1.0)
        self.assertLess(wrong, 0.5)
        plain = await self.score(site.shared(), "/scorers/jpeg", 0.5, "a cat")
        busy = await self.score(site.shared(), "/scorers/jpeg", 0.5, "a cat", text="HELLO 408")
        self.assertLess(busy, plain)
        self.assertLess(plain, 0)


@functools.cache
def with_ocr() -> site.Site:
    """A server that reads text."""
    try:
        return site.Site(
            "reward.custom_reward_function.path=builtin://jpeg_compressibility",
            "+rewards.ocr.custom_reward_function.path=builtin://ocr",
        )
    except rewardloop.RewardloopError as err:
        if "tesseract" not in str(err):
            raise
        raise unittest.SkipTest("SKIPPED: builtin://ocr has neither PP-OCR nor Tesseract here") from err


def picture(level: float, text: str) -> np.ndarray:
    """A grey, or a sign with a text in black."""
    if not text:
        return site.grey(level)
    sign = Image.new("RGB", (480, 120), (round(level * 255),) * 3)
    ImageDraw.Draw(sign).text((40, 25), text, fill=(0, 0, 0), font=ImageFont.load_default(size=64))
    return np.asarray(sign)


class _Without:
    """A site whose addresses have no token."""

    def __init__(self, guarded: site.Site) -> None:
        self.guarded = guarded

    def url(self, path: str) -> str:
        return self.guarded.url(path, token="")


class HTTPFromTheProtocol(HTTPCases, unittest.IsolatedAsyncioTestCase):
    async def score(self, site_: Any, path: str, level: float, prompt: str, backoff: float = 0.01, text: str = "") -> float:
        return await HTTPClient(site_.url(path), backoff=backoff).score(picture(level, text), prompt)

    async def test_what_is_no_picture_is_an_error_and_never_a_score(self) -> None:
        whole = site.encoded(site.grey(0.5, side=64))
        bombs = {"cut": whole[: len(whole) // 2], "text": b"<html>busy</html>", "empty": b"", "head": whole[:20]}
        for name, data in bombs.items():
            with self.subTest(name), site.shared().answered("/scorers/:name") as answered:
                with self.assertRaisesRegex(RuntimeError, "HTTP 422: bad_input"):
                    await HTTPClient(site.shared().url("/scorers/brightness"), backoff=30).send(data, "a cat")
            self.assertEqual(answered, {422: 1}, name)


class HTTPOfVerlOmni(HTTPCases, unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls) -> None:
        trainers.need("torch")
        cls.theirs = trainers.load(trainers.verl_omni(), "verl_omni.utils.reward_score.http_scorer_client")

    async def asyncSetUp(self) -> None:
        if hasattr(self.theirs.compute_score, "_session"):  # of the loop of the test before
            del self.theirs.compute_score._session

    async def asyncTearDown(self) -> None:
        if hasattr(self.theirs.compute_score, "_session"):
            await self.theirs.compute_score._session.close()

    async def score(self, site_: Any, path: str, level: float, prompt: str, backoff: float = 0.01, text: str = "") -> float:
        import torch

        pixels = torch.from_numpy(picture(level, text).copy()).permute(2, 0, 1)
        got = await self.theirs.compute_score(
            pixels, prompt, site_.url(path), retry_backoff=backoff, data_source="x", extra_info={}
        )
        return got["score"]


class LatentCases:
    """What must hold for either client: score(site, path, level, **options)."""

    async def score(self, url: str, level: float, **options: Any) -> dict[str, float]:
        raise NotImplementedError

    async def test_latents_are_scored_with_their_noise_level(self) -> None:
        for path in ("/latent/latent", "/latent/latent/", "/latent?reward=latent"):
            got = await self.score(site.shared().url(path), 0.25, scale=2.0)
            self.assertAlmostEqual(got["drm_raw_score"], 0.65, places=5)
            self.assertAlmostEqual(got["score"], 1.3, places=5)

    async def test_a_token_goes_before_the_host(self) -> None:
        self.assertAlmostEqual((await self.score(site.shared(site.TOKEN).url("/latent/latent"), 0.5))["score"], 0.9, places=5)

    async def test_every_failure_is_tried_again_and_then_raised_with_its_reason(self) -> None:
        with site.shared().answered("/latent/:name") as answered:
            with self.assertRaisesRegex(RuntimeError, "HTTP 503.*restarting"):
                await self.score(site.shared().url("/latent/latent"), float("nan"))
            with self.assertRaisesRegex(RuntimeError, "HTTP 422.*no reward named"):
                await self.score(site.shared().url("/latent/beauty"), 0.5)
        self.assertEqual(answered, {503: 3, 422: 3})


class LatentFromTheProtocol(LatentCases, unittest.IsolatedAsyncioTestCase):
    async def score(self, url: str, level: float, scale: float = 1.0) -> dict[str, float]:
        return await LatentClient(url, backoff=0.01).score(tensors(level), scale=scale)

    async def test_another_version_and_what_is_no_safetensors_are_refused(self) -> None:
        client = LatentClient(site.shared().url("/latent/latent"), retries=0)
        with self.assertRaisesRegex(RuntimeError, "HTTP 400.*want 1"):
            await client.score(tensors(0.5), version="2")
        with self.assertRaisesRegex(RuntimeError, "HTTP 400"):
            await client.score(tensors(0.5, latents=np.zeros((16, 8, 8), dtype=np.float32)))
        async with aiohttp.ClientSession() as session:
            async with session.post(client.url, data=b"\x80\x04]", headers={"x-drm-protocol-version": "1"}) as response:
                self.assertEqual(response.status, 400)


class LatentOfVerlOmni(LatentCases, unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls) -> None:
        trainers.need("torch", "safetensors")
        cls.theirs = trainers.load(trainers.verl_omni(), "verl_omni.utils.reward_score.latent_http_scorer_client")

    async def asyncTearDown(self) -> None:
        if session := getattr(self.theirs.compute_score, "_session", None):
            await session.close()

    async def score(self, url: str, level: float, scale: float = 1.0) -> dict[str, float]:
        import torch

        made = {name: torch.from_numpy(value) for name, value in tensors(level).items()}
        extra = {name: made[name][0] for name in ("prompt_embeds", "pooled_prompt_embeds")}
        return await self.theirs.compute_score(
            made["latents"][0], "a cat", extra, url, score_scale=scale, retry_backoff=0.01, data_source="x"
        )


if __name__ == "__main__":
    unittest.main()
