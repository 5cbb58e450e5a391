"""Where in the program an operation comes from: module, line, frames.

While the marks are on, every call from Python into torch is a range of the profile, named by the place of the call. They
slow the step, so a step with marks is profiled apart and its places are given to the steps without, operation by operation.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from torch.overrides import TorchFunctionMode
from torch.profiler import record_function

from lab.instruments.describing.modules import ModulePath
from lab.instruments.profiling.tables import NOWHERE, Place
from lab.instruments.profiling.tree import Tree

_PREFIX = "@place "
_FRAMES = 64
"""Deeper stacks say how many frames are left out."""


class CallMarks(TorchFunctionMode):
    """Context manager. ``files``: whose frames count as the program; the innermost comes first."""

    def __init__(self, files: Sequence[str]) -> None:
        super().__init__()
        self._files = frozenset(files)
        self._modules = ModulePath()
        self._numbers: dict[Place, int] = {}

    def __enter__(self) -> CallMarks:
        self._modules.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._modules.__exit__(*error)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        number = self._numbers.setdefault(self._here(), len(self._numbers))
        with record_function(f"{_PREFIX}{number}"):
            return func(*args, **(kwargs or {}))

    def _here(self) -> Place:
        found: list[tuple[str, int]] = []
        frame = sys._getframe(2)
        while frame is not None:
            if frame.f_code.co_filename in self._files:
                found.append((frame.f_code.co_name, frame.f_lineno))
            frame = frame.f_back
        stack = " < ".join(f"{name} (line {line})" for name, line in found[:_FRAMES])
        if len(found) > _FRAMES:
            stack += f" < … {len(found) - _FRAMES} more"
        return Place(self._modules.current(), found[0][1] if found else None, stack)

    def places(self, tree: Tree) -> list[Place]:
        """One for each row. A backward operation has the place of its forward operation."""
        places = list(self._numbers)
        found: list[Place] = []
        for row, name in enumerate(tree.events.name):
            if name.startswith(_PREFIX):
                found.append(places[int(name.removeprefix(_PREFIX))])
            else:
                found.append(found[tree.parent[row]] if 0 <= tree.parent[row] < row else NOWHERE)
        for row, forward in enumerate(tree.forward):
            if forward >= 0:
                found[row] = found[forward]
        return found


def operations(tree: Tree) -> list[int]:
    """Rows of the operations, without those that are folded, in order."""
    return [row for row, kind in enumerate(tree.events.kind) if kind == "op" and tree.stands_for[row] == row]


def same_operations(tree: Tree, marked: Tree, places: Sequence[Place]) -> list[Place] | None:
    """The places of the ``marked`` step for the rows of another. None when the two did not run the same operations."""
    here, there = operations(tree), operations(marked)
    names, marked_names = tree.events.name, marked.events.name
    if [names[row] for row in here] != [marked_names[row] for row in there]:
        return None
    found = [NOWHERE] * len(tree.parent)
    for row, twin in zip(here, there, strict=True):
        found[row] = places[twin]
    return found
