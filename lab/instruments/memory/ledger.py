"""Every storage from birth to death, and the roles it had on the way: a plain list of events."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch

from lab.torch_private import is_traceable_wrapper_subclass, sparse_parts

Role = Literal["gradient", "optimizer state", "saved"]
BEFORE = "before the run"


class Event(NamedTuple):
    """``value``: bytes for born and resized (new size), else 0."""

    kind: Literal["born", "died", "resized", "saved", "released", "gradient", "optimizer state"]
    storage: int
    op: int
    """Number of the operation that ran last or runs now."""
    value: int = 0


@dataclass(slots=True)
class Storage:
    """What is known about a storage from its birth on."""

    number: int
    bytes: int
    device: str
    shape: tuple[int, ...]
    dtype: str
    op: int
    op_name: str
    phase: str
    module: str
    step: int
    line: int | None
    static: str = ""
    """parameters, buffers, inputs, held or workspaces: fixed when registered."""
    name: str = ""
    is_cast: bool = False
    """A lower-precision copy of a parameter."""
    region: int = -1
    """Recomputation in which it was born."""
    addresses: list[tuple[int, int]] = field(default_factory=list)
    """(operation, address) at its birth and after each change of size, where addresses are noted."""


class Birth(NamedTuple):
    """Where a storage comes from."""

    op: int = -1
    op_name: str = BEFORE
    phase: str = "start"
    module: str = ""
    step: int = 0
    line: int | None = None


class Ledger:
    """Storages are told apart by their Python object, which torch keeps for the storage's whole life.

    A weak reference to it therefore ends when the storage does, also when C++ lets go of it.
    """

    def __init__(self, *, with_addresses: bool = False) -> None:
        self.storages: list[Storage] = []
        self.events: list[Event] = []
        self.live_bytes = 0
        """Of all devices."""
        self.op = -1
        self.open = True
        self._with_addresses = with_addresses
        self._known: dict[int, tuple[weakref.ref, int]] = {}

    def number(self, storage: torch.UntypedStorage) -> int | None:
        """Its number, or None when it is not known."""
        entry = self._known.get(id(storage))
        return entry[1] if entry else None

    def alive(self) -> list[Storage]:
        """What is alive now, oldest first."""
        return [self.storages[number] for number in sorted(number for _, number in self._known.values())]

    def born(self, storage: torch.UntypedStorage, tensor: torch.Tensor, birth: Birth) -> Storage | None:
        """Write a new storage down. None for one without bytes."""
        size = storage.nbytes()
        if not size:
            return None
        number, key = len(self.storages), id(storage)
        addresses = [(self.op, storage.data_ptr())] if self._with_addresses else []
        device, dtype = tensor.device.type, str(tensor.dtype).removeprefix("torch.")
        record = Storage(number, size, device, tuple(tensor.shape), dtype, *birth, addresses=addresses)
        self.storages.append(record)
        self._known[key] = (weakref.ref(storage, functools.partial(self._died, key, number)), number)
        self.live_bytes += size
        self.events.append(Event("born", number, self.op, size))
        return record

    def _died(self, key: int, number: int, reference: weakref.ref) -> None:
        self._known.pop(key, None)
        self.live_bytes -= self.storages[number].bytes
        if self.open:
            self.events.append(Event("died", number, self.op))

    def resized(self, number: int, storage: torch.UntypedStorage) -> None:
        """Look whether an operation of the dispatcher changed the size of a storage that is alive."""
        record, size = self.storages[number], storage.nbytes()
        if size != record.bytes:
            self.live_bytes += size - record.bytes
            record.bytes = size
            if self._with_addresses:
                record.addresses.append((self.op, storage.data_ptr()))
            self.events.append(Event("resized", number, self.op, size))

    def role(self, tensor: torch.Tensor, role: Role) -> None:
        """Each storage of ``tensor`` has this role from now on."""
        for storage in storages_of(tensor):
            number = self.number(storage)
            if number is None:
                record = self.born(storage, tensor, Birth(self.op, "seen late"))
                number = record.number if record else None
            if number is not None:
                self.events.append(Event(role, number, self.op))

    def static(self, tensor: torch.Tensor, category: str, name: str) -> None:
        """Register a parameter, buffer or input. The first name counts: tied weights are one storage."""
        for storage in storages_of(tensor):
            number = self.number(storage)
            record = self.storages[number] if number is not None else self.born(storage, tensor, Birth())
            if record and not record.static:
                record.static, record.name = category, name

    def close(self) -> None:
        """Deaths after this are not part of the record."""
        self.open = False
        self._known.clear()


def storages_of(tensor: torch.Tensor) -> Iterator[torch.UntypedStorage]:
    """The storages behind a tensor: one for a dense tensor, several for sparse ones and wrapper subclasses.

    Nothing for opaque layouts (oneDNN), whose memory the dispatcher does not show.
    """
    if is_traceable_wrapper_subclass(tensor):
        for name in tensor.__tensor_flatten__()[0]:  # pyright: ignore[reportAttributeAccessIssue]
            part = getattr(tensor, name)
            if isinstance(part, torch.Tensor):
                yield from storages_of(part)
    elif tensor.layout is torch.strided:
        yield tensor.untyped_storage()
    elif tensor.layout is torch.sparse_coo:
        for part in sparse_parts(tensor):
            yield from storages_of(part)
    else:
        for read in _PARTS.get(tensor.layout, ()):
            yield from storages_of(getattr(tensor, read)())


_ROWS, _COLUMNS = ("crow_indices", "col_indices", "values"), ("ccol_indices", "row_indices", "values")
_PARTS = {
    torch.sparse_csr: _ROWS,
    torch.sparse_bsr: _ROWS,
    torch.sparse_csc: _COLUMNS,
    torch.sparse_bsc: _COLUMNS,
}
