"""FlowGRPO (arXiv 2505.05470): SDE sampling with log-probabilities, and the clipped update.

All randomness is a function of (seed, step, sample), all sums are in the order of the samples, and nothing depends on
time: the same rewards give the same weights, bit by bit.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from pictures import HEIGHT, WIDTH
from policy import Params, velocity


@dataclass(frozen=True)
class Settings:
    """The settings of the training."""

    prompts: int = 8
    #: Samples of a prompt, which are compared with each other.
    group: int = 16
    #: Steps of the sampler; the policy gradient is taken on the first ones, where the noise decides what is drawn.
    denoise: int = 8
    trained: int = 4
    #: The noise level a of the paper's eq. 9: sigma_t = a sqrt(t / (1 - t)).
    noise: float = 0.7
    #: Updates with the samples of a rollout, each with a part of them: with one the clip never acts.
    updates: int = 2
    learning_rate: float = 1e-3
    clip: float = 1e-3
    #: Weight of the KL divergence to the pre-trained policy on the trained ones of the first kl_steps steps, and on one
    #: random later step: without the latter nothing holds back what OCR does not see.
    kl: float = 0.04
    kl_steps: int = 4
    kl_late: float = 0.01
    chunk: int = 64

    @property
    def samples(self) -> int:
        """Number of samples of a step."""
        return self.prompts * self.group


class Trajectory(NamedTuple):
    """The trajectories of N sampled pictures, each field [N, denoise, ...]."""

    x: Any  # before each step, [N, T, 16, 32]
    y: Any  # after it
    log_prob: Any  # of the step, [N, T]: a mean over the pixels, as in flow_grpo


class Moments(NamedTuple):
    """The state of the optimizer Adam."""

    count: Any
    mean: Any
    square: Any


def moments(params: Params) -> Moments:
    """Returns Adam's moments before the first update."""
    zeros = jax.tree.map(jnp.zeros_like, params)
    return Moments(jnp.zeros((), jnp.int32), zeros, zeros)


def _sigmas(s: Settings) -> tuple[np.ndarray, np.ndarray]:
    times = np.linspace(1, 0, s.denoise + 1).astype(np.float32)
    start = np.where(times[:-1] >= 1, times[1], times[:-1])  # at t = 1 the formula divides by 0
    return times, (np.sqrt(times[:-1] / (1 - start)) * s.noise).astype(np.float32)


def _step(s: Settings, params: Params, x: jax.Array, i: jax.Array, ids: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and standard deviation of the SDE's step i of each sample, eq. 9 of the paper."""
    times, stds = map(jnp.asarray, _sigmas(s))
    t, dt, std = (z[:, None, None] for z in (times[i], times[i + 1] - times[i], stds[i]))
    v = velocity(params, x, times[i], ids)
    mean = x * (1 + std**2 / (2 * t) * dt) + v * (1 + std**2 * (1 - t) / (2 * t)) * dt
    return mean, std * jnp.sqrt(-dt)


def _log_prob(y: jax.Array, mean: jax.Array, std: jax.Array) -> jax.Array:
    return (-((y - mean) ** 2) / (2 * std**2)).mean((1, 2))


@partial(jax.jit, static_argnums=0)
def sample(s: Settings, params: Params, keys: jax.Array, ids: jax.Array) -> tuple[jax.Array, Trajectory]:
    """Draws pictures [N, 16, 32] of the digits ids [N, 4]; the noise of each sample comes from its own key."""
    noise = jax.vmap(lambda k: jax.random.normal(k, (s.denoise + 1, HEIGHT, WIDTH)))(keys)

    def one(x: jax.Array, i: jax.Array) -> tuple[jax.Array, Trajectory]:
        mean, std = _step(s, params, x, jnp.full((x.shape[0],), i), ids)
        y = mean + std * noise[:, i + 1]
        return y, Trajectory(x, y, _log_prob(y, mean, std))

    pictures, steps = jax.lax.scan(one, noise[:, 0], jnp.arange(s.denoise))
    return pictures, Trajectory(*(z.swapaxes(0, 1) for z in steps))


def _clipped_norm(grads: Params) -> Params:
    norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(grads)))
    return jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / (norm + 1e-12)), grads)


def adam(params: Params, grads: Params, m: Moments, rate: Any) -> tuple[Params, Moments]:
    """Makes one step of Adam (betas 0.9 and 0.99) with gradients whose norm is clipped to 1."""
    grads, count = _clipped_norm(grads), m.count + 1
    mean = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, m.mean, grads)
    square = jax.tree.map(lambda a, g: 0.99 * a + 0.01 * g**2, m.square, grads)
    scale1, scale2 = 1 - 0.9**count, 1 - 0.99**count
    moved = jax.tree.map(lambda p, a, b: p - rate * (a / scale1) / (jnp.sqrt(b / scale2) + 1e-8), params, mean, square)
    return moved, Moments(count, mean, square)


@partial(jax.jit, static_argnums=0)
def update(
    s: Settings,
    params: Params,
    reference: Params,
    m: Moments,
    trajectory: Trajectory,
    ids: jax.Array,
    advantages: jax.Array,
    weights: jax.Array,
    late: jax.Array,
) -> tuple[Params, Moments]:
    """Makes one update with M samples: ids [M, 4], advantages [M], and weights [M], 0 for a sample that must not count.

    late [M] is a step, not one of the trained ones, at which the KL divergence of a sample is also taken.
    """
    n, trained = ids.shape[0], s.trained

    def policy_loss(params: Params, x: Any, y: Any, old: Any, i: Any, ids: Any, a: Any, w: Any) -> jax.Array:
        mean, std = _step(s, params, x, i, ids)
        ratio = jnp.exp(_log_prob(y, mean, std) - old)
        loss = jnp.maximum(-a * ratio, -a * jnp.clip(ratio, 1 - s.clip, 1 + s.clip))
        pull = (((mean - _step(s, reference, x, i, ids)[0]) ** 2) / (2 * std**2)).mean((1, 2))
        return (w * (loss + jnp.where(i < s.kl_steps, s.kl, 0.0) * pull)).sum()

    def flat(z: jax.Array) -> jax.Array:
        return z[:, :trained].reshape((-1, s.chunk) + z.shape[2:])

    def repeated(z: jax.Array) -> jax.Array:
        return jnp.repeat(z, trained, 0).reshape((-1, s.chunk) + z.shape[1:])

    total = jnp.maximum(weights.sum(), 1)
    parts = (
        flat(trajectory.x),
        flat(trajectory.y),
        flat(trajectory.log_prob),
        jnp.tile(jnp.arange(trained), n).reshape(-1, s.chunk),
        repeated(ids),
        repeated(advantages),
        repeated(weights),
    )

    def add(grads: Params, part: Any) -> tuple[Params, None]:
        return jax.tree.map(jnp.add, grads, jax.grad(policy_loss)(params, *part)), None

    grads, _ = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), parts)
    grads = jax.tree.map(lambda g: g / (total * trained), grads)
    if s.kl_late:

        def late_loss(params: Params) -> jax.Array:
            x = trajectory.x[jnp.arange(n), late]
            mean, std = _step(s, params, x, late, ids)
            pull = (((mean - _step(s, reference, x, late, ids)[0]) ** 2) / (2 * std**2)).mean((1, 2))
            return s.kl_late * (weights * pull).sum() / total

        grads = jax.tree.map(jnp.add, grads, jax.grad(late_loss)(params))
    return adam(params, grads, m, s.learning_rate)
