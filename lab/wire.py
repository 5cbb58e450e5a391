"""Dataclasses to JSON data and back: the only format that crosses a process boundary.

Strict JSON: NaN and infinities travel as the strings "NaN", "Infinity", "-Infinity". ``decode`` trusts nothing: every
value is checked against the field's annotation, because the sender may have run a stranger's program. Annotations that
can cross: bool, int, float, str, None, Literal, unions, dataclasses, ``tuple[T, ...]``, ``dict[str, T]``, and ``Any``
for plain data (numbers, text, lists and dicts of them), which stays in wire form: a NaN inside it stays "NaN".
"""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
_AS_IT_IS = {NoneType, bool, int, str}
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
    if isinstance(value, (list, tuple)):
        return list(value) if _is_json(value) else [encode(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {key: encode(getattr(value, name)) for name, key in _names(type(value))}
    raise WireError(f"{type(value).__name__} is not plain data")


def _is_json(column: Collection[Any]) -> bool:
    """Most data is long columns: to look at their types and at NaN all at once is several times as fast as one by one."""
    kinds = set(map(type, column))
    return kinds <= _AS_IT_IS or (kinds == {float} and all(map(math.isfinite, column)))


@contextmanager
def collector_off() -> Iterator[None]:
    """A large result is tens of thousands of objects and none of them garbage: looking through them doubles the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def dumps(value: Any) -> str:
    """One line of strict JSON."""
    with collector_off():
        return json.dumps(encode(value), allow_nan=False, ensure_ascii=True, separators=(",", ":"))


def loads(text: str | bytes) -> Any:
    """JSON data. Raises WireError for anything that is not strict JSON, integers of over 400 digits included."""
    try:
        with collector_off():
            return json.loads(text, parse_constant=_refuse, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise WireError(f"malformed JSON: {error}"[:200]) from None


def decode(kind: type[T], data: Any) -> T:
    """The ``kind`` that ``encode`` wrote. Raises WireError naming the place that does not fit."""
    try:
        with collector_off():
            return _reader(kind)(data)
    except _Misfit as misfit:
        path = "".join(reversed(misfit.path))
        raise WireError(f"{getattr(kind, '__name__', 'value')}{path}: {misfit.what}") from None


class _Misfit(Exception):  # noqa: N818 - caught in this module, never seen outside
    """What does not fit; the readers that it passes through add their part of the path."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what, self.path = what, []


Reader = Callable[[Any], Any]


@cache
def _reader(kind: Any) -> Reader:
    """The function that checks data against ``kind`` and builds it. Made once per annotation: results are large."""
    if kind is Any:
        return lambda data: _plain(data, PLAIN_DEPTH)
    if isinstance(kind, type) and is_dataclass(kind):
        return _dataclass_reader(kind)
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _union_reader(get_args(kind))
    if origin is tuple:
        return _list_reader(get_args(kind)[0])
    if origin in (dict, Mapping):
        return _object_reader(get_args(kind)[1])
    if origin is Literal:
        return _choice_reader(get_args(kind))
    return _read_float if kind is float else _scalar_reader(kind)


def _dataclass_reader(kind: Any) -> Reader:
    hints = get_type_hints(kind)
    readers = [(name, key, _reader(hints[name])) for name, key in _names(kind)]
    known = {key for _, key, _ in readers}
    required = {_key(f.name) for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}

    def read(data: Any) -> Any:
        _expect(isinstance(data, dict), "an object", data)
        if not required <= data.keys() or not data.keys() <= known:
            missing, extra = sorted(required - data.keys()), sorted(set(data) - known)
            raise _Misfit(f"{', '.join(missing)} missing" if missing else f"unknown {', '.join(extra)[:80]}")
        return kind(**{name: _part(reader, data[key], f".{key}") for name, key, reader in readers if key in data})

    return read


def _union_reader(kinds: tuple[Any, ...]) -> Reader:
    *others, last = [_reader(kind) for kind in kinds if kind is not NoneType]

    def read(data: Any) -> Any:
        if data is None and NoneType in kinds:
            return None
        for reader in others:
            try:
                return reader(data)
            except _Misfit:
                continue
        return last(data)

    return read


def _list_reader(kind: Any) -> Reader:
    reader = _reader(kind)

    def read(data: Any) -> Any:
        _expect(isinstance(data, list), "a list", data)
        return tuple(_part(reader, item, f"[{i}]") for i, item in enumerate(data))

    return read


def _object_reader(kind: Any) -> Reader:
    reader = _reader(kind)

    def read(data: Any) -> Any:
        _expect(isinstance(data, dict), "an object", data)
        return {key: _part(reader, item, f".{key:.40}") for key, item in data.items()}

    return read


def _choice_reader(choices: tuple[Any, ...]) -> Reader:
    def read(data: Any) -> Any:
        _expect(isinstance(data, (str, int)) and data in choices, f"one of {choices}", data)
        return data

    return read


def _read_float(data: Any) -> float:
    if isinstance(data, str) and data in _NAMED:
        return _NAMED[data]
    _expect(isinstance(data, (int, float)) and not isinstance(data, bool), "a number", data)
    return float(data)


def _scalar_reader(kind: type) -> Reader:
    def read(data: Any) -> Any:
        _expect(isinstance(data, kind) and (kind is bool or not isinstance(data, bool)), kind.__name__, data)
        return data

    return read


def _part(reader: Reader, data: Any, name: str) -> Any:
    try:
        return reader(data)
    except _Misfit as misfit:
        misfit.path.append(name)
        raise


def _plain(data: Any, depth: int) -> Any:
    if isinstance(data, list):
        _expect(depth > 0, f"nesting of at most {PLAIN_DEPTH}", "deeper nesting")
        return [_plain(v, depth - 1) for v in data]
    if isinstance(data, dict):
        _expect(depth > 0, f"nesting of at most {PLAIN_DEPTH}", "deeper nesting")
        return {k: _plain(v, depth - 1) for k, v in data.items()}
    return data


def _expect(fits: bool, what: str, data: Any) -> None:
    if not fits:
        raise _Misfit(f"expected {what}, got {data!r:.60}")


@cache
def _names(kind: type) -> tuple[tuple[str, str], ...]:
    """(field, its key in JSON)."""
    return tuple((f.name, _key(f.name)) for f in fields(kind))


def _key(name: str) -> str:
    """A field that would be a word of Python ends in an underscore: ``class_`` travels as "class"."""
    return name.removesuffix("_")


def _name(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _integer(digits: str) -> int:
    if len(digits) > 400:
        raise ValueError("an integer of over 400 digits")
    return int(digits)
