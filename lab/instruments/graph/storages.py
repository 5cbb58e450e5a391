"""The pieces of memory behind tensors: which saved tensors share one, and who wrote into it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from lab import torch_private

if TYPE_CHECKING:
    from torch.multiprocessing.reductions import StorageWeakRef


@dataclass(eq=False, slots=True)
class SeenStorage:
    """A piece of memory. Its weak reference keeps its identity from being given to another one."""

    number: int
    reference: StorageWeakRef
    writes: list[tuple[int, int | None, str]] = field(default_factory=list)
    """(version, line, operation): which in-place write moved the version counter to which value."""


class Storages:
    """The pieces of memory that were saved or written to."""

    def __init__(self) -> None:
        self._known: dict[int, SeenStorage] = {}
        self._count, self._most = 0, 10_000
        self._apart: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def of(self, tensor: torch.Tensor) -> SeenStorage:
        key = torch_private.storage_key(tensor)
        if key not in self._known:
            if len(self._known) >= self._most:
                self._known = {k: seen for k, seen in self._known.items() if not seen.reference.expired()}
                self._most = max(10_000, 2 * len(self._known))
            self._count += 1
            self._known[key] = SeenStorage(self._count, torch_private.storage_reference(tensor))
        return self._known[key]

    def note_write(self, tensor: torch.Tensor, line: int | None, operation: str) -> None:
        """Remember that ``operation`` has just moved the version counter of ``tensor``."""
        now = torch_private.version(tensor)
        if now is None or tensor.layout is not torch.strided or self.is_apart(tensor):
            return
        writes = self.of(tensor).writes
        if len(writes) < 64:
            writes.append((now, line, operation))

    def is_apart(self, tensor: torch.Tensor) -> bool:
        """Whether ``tensor`` or what it is a view of came from ``.data``."""
        base = torch_private.base(tensor)
        return tensor in self._apart or (base is not None and base in self._apart)

    def note_data(self, tensor: torch.Tensor) -> None:
        """``tensor`` came from ``.data``: same memory, but a version counter of its own that backward never compares."""
        self._apart[tensor] = True

    def first_write(self, tensor: torch.Tensor, version: int) -> tuple[int | None, str] | None:
        """(line, operation) of the first write that took the counter above ``version``."""
        writes = self.of(tensor).writes
        return next(((line, operation) for now, line, operation in writes if now > version), None)
