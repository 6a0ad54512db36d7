"""One run of FlowGRPO with rewards from a reward loop, and the evaluation of the policy."""

import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

import flowgrpo
import jax
import jax.numpy as jnp
import numpy as np
import pictures
import policy
from flowgrpo import Settings, Trajectory
from policy import Params

import rewardloop

#: Seconds for a sample, from its arrival at the server: longer than any fault here lasts.
DEADLINE = 300.0


@dataclass(frozen=True)
class Arm:
    """A way to get and use the rewards of a run."""

    name: str
    #: after: all samples are submitted once the rollout is over; streamed: each when its sampling ends;
    #: one_step_off: streamed, and the next rollout is drawn with the weights of before this step's updates.
    schedule: Literal["after", "streamed", "one_step_off"] = "streamed"
    #: What goes on beside it: kills, stalls, neighbour, or nothing.
    beside: str = ""
    profile: str = ""
    #: What a sample without a score does: impute (it takes its group's mean, and its advantage is 0), mask (it counts
    #: for nothing) or zero (it has the reward 0).
    on_failed: Literal["impute", "mask", "zero"] = "impute"
    settings: Settings = field(default_factory=Settings)
    #: Seconds that drawing a group takes beside the computing here, and a reward: for what a step takes where
    #: generator, rewards and trainer have processors of their own.
    generator: float = 0.0
    reward: float = 0.0


@dataclass
class Rollout:
    """The drawn samples of a step, and the futures of their rewards."""

    step: int
    ids: np.ndarray  # [N, 4]
    trajectory: Trajectory
    results: list[Future[rewardloop.Result]]
    began: float
    sampled: float  # when sampling was over


class Trainer:
    """FlowGRPO from given weights. step() runs one step; params contains the weights after it."""

    def __init__(
        self, arm: Arm, reference: Params, seed: int, client: rewardloop.Client, altered: dict[int, float] | None = None
    ) -> None:
        self.arm, self.seed, self.client = arm, seed, client
        self.reference = self.params = reference
        self.moments = flowgrpo.moments(reference)
        #: Added to the rewards of samples, by their number: what shows that a reward decides about the weights.
        self.altered = altered or {}
        self._pending: Rollout | None = None
        self._numbers = 0
        self.took: list[dict[str, float]] = []

    def step(self, step: int) -> dict[str, Any]:
        """Draws samples, scores them, and updates the policy; returns the measurements."""
        if self.arm.schedule == "one_step_off":
            ready = self._pending or self._draw(step)
            self._pending = self._draw(step + 1)  # with the weights of before the update below
        else:
            ready = self._draw(step)
        return self._learn(ready)

    def _draw(self, step: int) -> Rollout:
        s, began = self.arm.settings, time.monotonic()
        prompts = pictures.draw_strings(np.random.default_rng((self.seed, step, 1)), s.prompts)
        keys = policy.noise_keys(self.seed, step, n=s.samples)
        parts: list[Trajectory] = []
        drawn: list[np.ndarray] = []
        results: list[Future[rewardloop.Result]] = []
        for g in range(s.prompts):  # of one shape in every schedule, which the last bits depend on
            of = slice(g * s.group, (g + 1) * s.group)
            made, part = flowgrpo.sample(s, self.params, keys[of], np.repeat(prompts[g : g + 1], s.group, 0))
            parts.append(part)
            drawn.append(np.asarray(made))
            time.sleep(self.arm.generator)
            if self.arm.schedule != "after":
                results += self._submit(step, g, prompts[g], drawn[g])
        sampled = time.monotonic()
        if self.arm.schedule == "after":
            for g in range(s.prompts):
                results += self._submit(step, g, prompts[g], drawn[g])
        trajectory = Trajectory(*(jnp.concatenate(z) for z in zip(*parts, strict=True)))
        return Rollout(step, np.repeat(prompts, s.group, 0), trajectory, results, began, sampled)

    def _submit(self, step: int, group: int, ids: np.ndarray, drawn: np.ndarray) -> list[Future[rewardloop.Result]]:
        return [
            self.client.submit(
                rewardloop.Sample(
                    id=f"{step}/{group}/{i}",
                    step=step,
                    index=group * len(drawn) + i,
                    uid=f"{step}/{group}",
                    group_size=len(drawn),
                    prompt=f'the number "{pictures.word(ids)}"',
                    extra_info={
                        "sample": f"{self.seed}/{step}/{group}/{i}",
                        "seconds": self.arm.reward,
                        "digits": pictures.word(ids),
                    },
                    media=rewardloop.image(pictures.pixels(picture), layout="HWC"),
                    deadline=DEADLINE,
                )
            )
            for i, picture in enumerate(drawn)
        ]

    def _learn(self, r: Rollout) -> dict[str, Any]:
        s = self.arm.settings
        results = [f.result(2 * DEADLINE) for f in r.results]  # by their place in the step, whenever they came
        scored = time.monotonic()
        column, flags = rewardloop.rm_scores(results, on_failed=0.0 if self.arm.on_failed == "zero" else "fallback")
        scores, valid = column[:, 0].astype(np.float64), flags[:, 0]
        for i in range(len(scores)):
            scores[i] += self.altered.get(r.step * s.samples + i, 0.0)
        groups = np.repeat(np.arange(s.prompts), s.group)
        advantages = rewardloop.advantages(
            scores,
            None if self.arm.on_failed == "zero" else valid,
            groups,
            failed="mask" if self.arm.on_failed == "mask" else "impute",
        )
        advantages = np.clip(advantages, -5, 5).astype(np.float32)
        weights = (valid if self.arm.on_failed == "mask" else np.ones_like(valid)).astype(np.float32)
        rng = np.random.default_rng((self.seed, r.step, 2))
        order, late = rng.permutation(s.samples), rng.integers(min(s.trained, s.denoise - 1), s.denoise, s.samples)
        for part in np.split(order, s.updates):
            self.params, self.moments = flowgrpo.update(
                s,
                self.params,
                self.reference,
                self.moments,
                Trajectory(*(z[part] for z in r.trajectory)),
                r.ids[part],
                advantages[part],
                weights[part],
                late[part],
            )
        jax.block_until_ready(self.params)
        ended = time.monotonic()
        own = scores[valid]
        self.took.append(
            {"sample": r.sampled - r.began, "wait": scored - r.sampled, "update": ended - scored, "step": ended - r.began}
        )
        return {
            "step": r.step,
            "reward": float(own.mean()) if own.size else None,
            "failed": int((~valid).sum()),
            "attempts": sum(x.attempts for x in results),
            **{k: round(v, 4) for k, v in self.took[-1].items()},
        }


def held_out_pictures(params: Params) -> np.ndarray:
    """Returns pictures of the held-out strings, [256, 16, 32], drawn by the deterministic sampler.

    The noise is always the same.
    """
    ids = pictures.held_out()
    return np.asarray(policy.draw(params, policy.noise_keys(5, n=len(ids)), ids))


def evaluate(params: Params, client: rewardloop.Client, tag: str) -> dict[str, Any]:
    """Returns the rewards of held_out_pictures, scored through the loop.

    reward and exact are means over the strings, scores contains the reward of each string, and grain is pictures.grain.
    """
    ids, drawn = pictures.held_out(), held_out_pictures(params)
    results = client.score(
        [
            rewardloop.Sample(
                id=f"{tag}/{i}",
                split="val",
                prompt=f'the number "{pictures.word(own)}"',
                deadline=DEADLINE,
                media=rewardloop.image(pictures.pixels(picture), layout="HWC"),
            )
            for i, (own, picture) in enumerate(zip(ids, drawn, strict=True))
        ],
        timeout=2 * DEADLINE,
    )
    scores = np.array([r.score() for r in results])
    return {
        "reward": float(scores.mean()),
        "exact": float((scores == 1).mean()),
        "grain": pictures.grain(np.stack([pictures.pixels(d)[..., 0] for d in drawn]), ids),
        "scores": [round(float(s), 6) for s in scores],
    }
