"""A flow-matching transformer that draws pictures of four digits: 289,000 parameters, in JAX.

The flow is a straight line from a picture (time 0) to noise (time 1); the network predicts noise - picture.
"""

import hashlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pictures import CELL, DIGITS, HEIGHT, WIDTH

Params = dict[str, Any]

PATCH_HEIGHT, PATCH_WIDTH = 8, 4
ROWS, COLUMNS = HEIGHT // PATCH_HEIGHT, WIDTH // PATCH_WIDTH
TOKENS, PATCH = ROWS * COLUMNS, PATCH_HEIGHT * PATCH_WIDTH
DIM, HEADS, LAYERS, FREQUENCIES = 96, 4, 2, 32


def init(key: jax.Array) -> Params:
    """Returns new random weights."""
    keys = iter(jax.random.split(key, 64))

    def normal(*shape: int, scale: float | None = None) -> jax.Array:
        return jax.random.normal(next(keys), shape) * (shape[0] ** -0.5 if scale is None else scale)

    def layer() -> Params:
        return {
            "qkv": normal(DIM, 3 * DIM),
            "out": normal(DIM, DIM) * 0.3,
            "up": normal(DIM, 3 * DIM),
            "down": normal(3 * DIM, DIM) * 0.3,
            "modulate": jnp.zeros((DIM, 4 * DIM)),
        }

    return {
        "patch": normal(PATCH, DIM),
        "place": normal(TOKENS, DIM, scale=0.5),
        "digit": normal(len(DIGITS), DIM, scale=0.5),
        "time1": normal(2 * FREQUENCIES, DIM),
        "time2": normal(DIM, DIM),
        "layers": [layer() for _ in range(LAYERS)],
        "velocity": jnp.zeros((DIM, PATCH)),
    }


def _norm(x: jax.Array) -> jax.Array:
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def velocity(params: Params, x: jax.Array, time: jax.Array, ids: jax.Array) -> jax.Array:
    """Returns the velocity at pictures x [N, 16, 32] and times [N], 0 to 1, for the digits ids [N, 4]; shape of x."""
    n = x.shape[0]
    tokens = x.reshape(n, ROWS, PATCH_HEIGHT, COLUMNS, PATCH_WIDTH).transpose(0, 1, 3, 2, 4).reshape(n, TOKENS, PATCH)
    cell_of_token = np.arange(TOKENS) % COLUMNS // (CELL // PATCH_WIDTH)
    h = tokens @ params["patch"] + params["place"] + params["digit"][ids][:, cell_of_token]
    phase = jnp.exp(jnp.linspace(0.0, 6.0, FREQUENCIES)) * time[:, None]
    c = jnp.concatenate([jnp.sin(phase), jnp.cos(phase)], -1)
    c = jax.nn.silu(jax.nn.silu(c @ params["time1"]) @ params["time2"])
    for layer in params["layers"]:
        gain1, shift1, gain2, shift2 = jnp.split((c @ layer["modulate"])[:, None], 4, -1)
        q, k, v = (
            z.reshape(n, TOKENS, HEADS, DIM // HEADS) for z in jnp.split((_norm(h) * (1 + gain1) + shift1) @ layer["qkv"], 3, -1)
        )
        attention = jax.nn.softmax(jnp.einsum("nqhd,nkhd->nhqk", q, k) * (DIM // HEADS) ** -0.5, -1)
        h = h + jnp.einsum("nhqk,nkhd->nqhd", attention, v).reshape(n, TOKENS, DIM) @ layer["out"]
        h = h + jax.nn.gelu((_norm(h) * (1 + gain2) + shift2) @ layer["up"]) @ layer["down"]
    out = (_norm(h) @ params["velocity"]).reshape(n, ROWS, COLUMNS, PATCH_HEIGHT, PATCH_WIDTH)
    return out.transpose(0, 1, 3, 2, 4).reshape(n, HEIGHT, WIDTH)


def noise_keys(*path: int, n: int) -> jax.Array:
    """Returns the keys of n samples; each depends only on the path (a seed, a step) and on the sample's number."""
    key = jax.random.PRNGKey(path[0])
    for part in path[1:]:
        key = jax.random.fold_in(key, part)
    return jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(n))


@jax.jit
def draw(params: Params, keys: jax.Array, ids: jax.Array) -> jax.Array:
    """Draws pictures [N, 16, 32] with the deterministic sampler of evaluations: 16 Euler steps, noise at the start."""
    x = jax.vmap(lambda k: jax.random.normal(k, (HEIGHT, WIDTH)))(keys)
    times = jnp.linspace(1.0, 0.0, 17)

    def step(x: jax.Array, i: jax.Array) -> tuple[jax.Array, None]:
        return x + velocity(params, x, jnp.full((x.shape[0],), times[i]), ids) * (times[i + 1] - times[i]), None

    return jax.lax.scan(step, x, jnp.arange(16))[0]


def digest(params: Params) -> str:
    """Returns the SHA-256 of all weights in the order of their names, in hexadecimal digits."""
    total = hashlib.sha256()
    for leaf in jax.tree.leaves(params):
        total.update(np.asarray(leaf).tobytes())
    return total.hexdigest()


def save(path: str, params: Params) -> None:
    """Writes the weights to an .npz file."""
    np.savez(path, *map(np.asarray, jax.tree.leaves(params)))


def load(path: str) -> Params:
    """Reads weights that save() wrote."""
    with np.load(path) as arrays:
        leaves = [jnp.asarray(arrays[name]) for name in arrays.files]
    return jax.tree.unflatten(jax.tree.structure(init(jax.random.PRNGKey(0))), leaves)
