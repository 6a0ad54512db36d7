"""Pre-training of the policy on captions in which half of the digits are random, so that RL has errors to correct."""

from collections.abc import Callable

import flowgrpo
import jax
import jax.numpy as jnp
import numpy as np
import pictures
import policy
from policy import Params

STEPS, BATCH, RATE, WRONG = 800, 128, 2e-3, 0.5


@jax.jit
def _step(params: Params, moments: flowgrpo.Moments, drawn: jax.Array, ids: jax.Array, key: jax.Array, rate: jax.Array):
    key_time, key_noise = jax.random.split(key)
    time = jax.nn.sigmoid(jax.random.normal(key_time, (drawn.shape[0],)))
    noise = jax.random.normal(key_noise, drawn.shape)

    def loss(params: Params) -> jax.Array:
        between = (1 - time)[:, None, None] * drawn + time[:, None, None] * noise
        return ((policy.velocity(params, between, time, ids) - (noise - drawn)) ** 2).mean()

    value, grads = jax.value_and_grad(loss)(params)
    return *flowgrpo.adam(params, grads, moments, rate), value


def pretrain(seed: int = 0, steps: int = STEPS, progress: Callable[[int, float], None] = lambda step, loss: None) -> Params:
    """Returns weights that draw legible digits, but often not the requested ones."""
    rng = np.random.default_rng(seed)
    params = policy.init(jax.random.PRNGKey(seed))
    moments = flowgrpo.moments(params)
    for i in range(steps):
        ids = pictures.draw_strings(rng, BATCH)
        caption = np.where(rng.random(ids.shape) < WRONG, rng.integers(0, 10, ids.shape), ids)
        rate = RATE * (0.05 + 0.95 * (1 + np.cos(np.pi * i / steps)) / 2)
        key = jax.random.fold_in(jax.random.PRNGKey(seed + 1), i)
        params, moments, loss = _step(params, moments, pictures.render(ids, rng), caption, key, jnp.float32(rate))
        if i % 10 == 9:
            progress(i + 1, float(loss))
    return params
