"""JSON for the wire: without white space, and restricted to valid values."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from .errors import InputError

#: Arrays and objects may nest this deep, the sample that holds them included.
MAX_DEPTH = 64
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False).encode


def text(value: Any) -> str:
    """Encodes a value that clean() returned, or that this package built itself."""
    return _encode(value)


def clean(value: Any, path: str, depth: int = 1) -> Any:
    """Returns value as plain JSON types. Raises InputError with the path of the part that JSON cannot represent.

    depth is the nesting depth around value. NumPy scalars become plain numbers. Arrays and tensors are refused: send
    them as media, or as a list if they are small.
    """
    kind = type(value)
    if value is None or kind is bool:
        return value
    if isinstance(value, str):
        return check_text(value, path)
    if isinstance(value, np.generic):
        value = value.item()
        kind = type(value)
    if kind is bool:
        return value
    if isinstance(value, int):
        if not _INT64_MIN <= value <= _INT64_MAX:
            raise InputError(f"{value} does not fit into 64 bits", field=path)
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"{value} is not valid JSON; leave the field out or send null", field=path)
        return float(value)
    if isinstance(value, Mapping):
        _check_depth(depth, path)
        return {_key(k, path): clean(v, f"{path}[{k!r}]", depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        _check_depth(depth, path)
        return [clean(v, f"{path}[{i}]", depth + 1) for i, v in enumerate(value)]
    hint = "; use .tolist(), or send it as media" if hasattr(value, "tolist") else ""
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    raise InputError(f"{name} is not JSON{hint}", field=path)


def check_text(value: str, path: str) -> str:
    """Returns value; raises InputError if it cannot be encoded as UTF-8."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as err:
            raise InputError(f"a lone surrogate at character {err.start} has no UTF-8", field=path) from None
    return value


def _check_depth(depth: int, path: str) -> None:
    if depth >= MAX_DEPTH:
        raise InputError(f"nested more than {MAX_DEPTH - 1} levels deep", field=path[:60] + "…")


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise InputError(f"the name {key!r} is a {type(key).__name__}; names in JSON are strings", field=path)
    return check_text(key, path)


def finite(value: Any) -> float:
    """Returns a number of a message as float; raises ValueError for any other value, and for NaN and infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a finite number")
    try:
        number = float(value)
    except OverflowError:  # JSON's integers have no end
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{str(value)[:40]} is not a finite number")
    return number


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(parse_constant=_no_constant).decode


def parse(data: str) -> Any:
    """Decodes a message of the server; raises ValueError if it is not JSON."""
    try:
        return _decode(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
