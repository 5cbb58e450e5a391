"""NumPy arrays in the memory of tensors. A write through one moves no version counter: contents are compared instead."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

_WHOLE_BYTES = 1 << 20
_SHARED = 64


@dataclass(eq=False)
class Shared:
    """An array that has the memory of a tensor."""

    array: weakref.ref[Any]
    name: str
    """Of the array, when they met."""
    storage: int
    line: int | None
    exported: bool
    """The tensor was there first."""
    writeable: bool
    digest: bytes
    moment: int = 0
    """Number of the operation."""


def digest(array: Any) -> bytes:
    """Of the contents; of a large array a fixed selection."""
    flat = array if array.nbytes <= _WHOLE_BYTES else array.reshape(-1)[:: max(1, array.size // 100_000)]
    return hashlib.blake2b(flat.tobytes(), digest_size=16).digest()


class Arrays:
    """What is shared, and what was written without torch."""

    def __init__(self) -> None:
        self.shared: list[Shared] = []
        self.outside: list[tuple[Shared, int | None, int | None]] = []
        """(what, line of the operation before, line of the one after)."""
        self._before: int | None = None

    def add(
        self, array: Any, storage: int, line: int | None, name: str, *, exported: bool, moment: int = 0
    ) -> Shared | None:
        """``array`` has the memory ``storage``."""
        if len(self.shared) >= _SHARED or array.dtype.hasobject:
            return None
        try:
            shared = Shared(
                weakref.ref(array), name, storage, line, exported, array.flags.writeable, digest(array), moment
            )
        except TypeError:
            return None
        self.shared.append(shared)
        return shared

    def compare(self, line: int | None) -> None:
        """Before an operation on ``line``: what changed since the one before?"""
        for shared in self.shared:
            array = shared.array()
            if array is None:
                continue
            now = digest(array)
            if now != shared.digest:
                shared.digest = now
                if len(self.outside) < _SHARED and all(
                    (was.storage, at) != (shared.storage, line) for was, _, at in self.outside
                ):
                    self.outside.append((shared, self._before, line))
        self._before = line or self._before

    def written(self, storages: set[int | None]) -> list[Shared]:
        """Torch wrote into these; returns what is shared with them."""
        found = [shared for shared in self.shared if shared.storage in storages]
        for shared in found:
            array = shared.array()
            if array is not None:
                shared.digest = digest(array)
        return found


@contextlib.contextmanager
def heard(given: Callable[[Any, Callable[[Any], torch.Tensor]], torch.Tensor]) -> Iterator[None]:
    """``torch.from_numpy`` is no function that a mode sees: inside, it is told to ``given``."""
    plain = torch.from_numpy

    def from_numpy(ndarray: Any) -> torch.Tensor:
        return given(ndarray, plain)

    from_numpy.__doc__ = plain.__doc__
    torch.from_numpy = from_numpy  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        torch.from_numpy = plain  # pyright: ignore[reportAttributeAccessIssue]


def is_array(value: Any) -> bool:
    return type(value).__module__ == "numpy" and type(value).__name__ == "ndarray"


def array_name(array: Any, scopes: list[Mapping[str, Any]]) -> str:
    """What the program calls it; empty where it has no name."""
    return next((name for scope in scopes for name, value in scope.items() if value is array), "")


def writing_lines(tree: ast.AST, names: set[str]) -> list[int]:
    """Lines that write into an array of one of these names."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name)), *_]) if name in names:
                found.append(node.lineno)
            case ast.AugAssign(target=ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name))) if name in names:
                found.append(node.lineno)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="fill" | "sort" | "put" | "partition")):
                found += [node.lineno] if name in names else []
            case ast.Call(
                func=ast.Attribute(attr="copyto" | "put" | "place" | "shuffle"), args=[ast.Name(id=name), *_]
            ):
                found += [node.lineno] if name in names else []
            case ast.Call(keywords=given):
                outs = [k.value.id for k in given if k.arg == "out" and isinstance(k.value, ast.Name)]
                found += [node.lineno] if names.intersection(outs) else []
    return sorted(found)


def lines_in_functions(tree: ast.AST) -> list[int]:
    """Lines that write into an argument of a function of the program, where only one function does."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    found = [writing_lines(node, {argument.arg for argument in node.args.args} - {"self"}) for node in functions]
    writing = [lines for lines in found if lines]
    return writing[0] if len(writing) == 1 else []


def assigned_lines(tree: ast.AST, name: str) -> list[tuple[int, ast.expr]]:
    """(line, value) of each assignment to ``name``."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets, value=value):
                if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                    found.append((node.lineno, value))
    return sorted(found, key=lambda pair: pair[0])
