"""Dataclasses to JSON data and back: the only format that crosses a process boundary.

Strict JSON: NaN and infinities travel as the strings "NaN", "Infinity", "-Infinity". ``decode`` trusts nothing: every
value is checked against the field's annotation, because the sender may have run a stranger's program. Annotations that
can cross: bool, int, float, str, None, Literal, unions, dataclasses, ``tuple[T, ...]``, ``dict[str, T]``, and ``Any``
for plain data (numbers, text, lists and dicts of them), which stays in wire form: a NaN inside it stays "NaN".
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
_NAMED = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
PLAIN_DEPTH = 32
"""Deepest nesting of plain data."""


class WireError(ValueError):
    """The data does not fit the annotation. The message says where, as a path from the root."""


def encode(value: Any) -> Any:
    """JSON data of a dataclass instance or plain data."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _name(value)
    if is_dataclass(value):
        return {f.name: encode(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(v) for v in value]
    raise WireError(f"{type(value).__name__} is not plain data")


def dumps(value: Any) -> str:
    """One line of strict JSON."""
    return json.dumps(encode(value), allow_nan=False, ensure_ascii=True, separators=(",", ":"))


def loads(text: str | bytes) -> Any:
    """JSON data. Raises WireError for anything that is not strict JSON, integers of over 400 digits included."""
    try:
        return json.loads(text, parse_constant=_refuse, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise WireError(f"malformed JSON: {error}"[:200]) from None


def decode(kind: type[T], data: Any, at: str = "") -> T:
    """The ``kind`` that ``encode`` wrote. Raises WireError naming the place that does not fit."""
    return _build(kind, data, at or getattr(kind, "__name__", "value"))


def _build(kind: Any, data: Any, at: str) -> Any:
    if kind is Any:
        return _plain(data, at, PLAIN_DEPTH)
    if isinstance(kind, type) and is_dataclass(kind):
        return _dataclass(kind, data, at)
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _union(get_args(kind), data, at)
    if origin is tuple:
        _expect(isinstance(data, list), "a list", data, at)
        item = get_args(kind)[0]
        return tuple(_build(item, v, f"{at}[{i}]") for i, v in enumerate(data))
    if origin in (dict, Mapping):
        _expect(isinstance(data, dict), "an object", data, at)
        item = get_args(kind)[1]
        return {k: _build(item, v, f"{at}.{k:.40}") for k, v in data.items()}
    if origin is Literal:
        _expect(isinstance(data, (str, int)) and data in get_args(kind), f"one of {get_args(kind)}", data, at)
        return data
    return _scalar(kind, data, at)


def _dataclass(kind: Any, data: Any, at: str) -> Any:
    _expect(isinstance(data, dict), "an object", data, at)
    hints, values = _hints(kind), {}
    for f in fields(kind):
        if f.name in data:
            values[f.name] = _build(hints[f.name], data[f.name], f"{at}.{f.name}")
        elif f.default is MISSING and f.default_factory is MISSING:
            raise WireError(f"{at}: {f.name} is missing")
    extra = sorted(set(data) - set(hints))
    if extra:
        raise WireError(f"{at}: unknown {', '.join(extra)[:80]}")
    return kind(**values)


def _union(kinds: tuple[Any, ...], data: Any, at: str) -> Any:
    if data is None and NoneType in kinds:
        return None
    *others, last = [k for k in kinds if k is not NoneType]
    for kind in others:
        try:
            return _build(kind, data, at)
        except WireError:
            continue
    return _build(last, data, at)


def _scalar(kind: Any, data: Any, at: str) -> Any:
    if kind is float:
        if isinstance(data, str) and data in _NAMED:
            return _NAMED[data]
        _expect(isinstance(data, (int, float)) and not isinstance(data, bool), "a number", data, at)
        return float(data)
    fits = isinstance(data, kind) and (kind is bool or not isinstance(data, bool))
    _expect(fits, kind.__name__, data, at)
    return data


def _plain(data: Any, at: str, depth: int) -> Any:
    _expect(depth > 0, f"nesting of at most {PLAIN_DEPTH}", "deeper nesting", at)
    if isinstance(data, list):
        return [_plain(v, at, depth - 1) for v in data]
    if isinstance(data, dict):
        return {k: _plain(v, at, depth - 1) for k, v in data.items()}
    return data


def _expect(fits: bool, what: str, data: Any, at: str) -> None:
    if not fits:
        raise WireError(f"{at}: expected {what}, got {data!r:.60}")


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _name(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _integer(digits: str) -> int:
    if len(digits) > 400:
        raise ValueError("an integer of over 400 digits")
    return int(digits)
