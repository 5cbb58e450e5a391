"""The dispatch mode that sees every operation, and asks where each result lives."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch.profiler import record_function

from lab.instruments.memory.engine_sums import DIFFERENT, EngineSums, same_parts
from lab.instruments.memory.holders import tensors_by_name
from lab.instruments.memory.hooks import Hooks
from lab.instruments.memory.ledger import Birth, Ledger, Storage, storages_of
from lab.torch_private import (
    DataDependentOutputException,
    FakeTensor,
    TorchDispatchMode,
    can_decompose,
    in_backward,
    node_metadata,
    operator,
    running_node,
)

_UNSEEN_BY_DESIGN = {
    torch.ops.prim.device.default,
    operator("profiler._record_function_enter_new.default"),
    operator("profiler._record_function_exit._RecordFunction"),
}
"""No computation, and fake tensors run other numbers of them than real ones."""
_READ_SCALAR = operator("aten._local_scalar_dense.default")
_ITEM = torch.ops.aten.item.default
_LIFT = torch.ops.aten.lift_fresh.default
_CAST = operator("aten._to_copy.default")
_ZEROS = ("zeros", "new_zeros", "zeros_like")
_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)


_NO_RANGE = contextlib.nullcontext()
RANGE, BEGIN, END = "lab operation ", "lab track begins", "lab track ends"
"""Names of ranges in the profiler: of each operation with its number, and of a moment."""
OUTSIDE = "loss"
"""Stands for the module of what runs outside all modules: the loss, as a rule."""


class Operation(NamedTuple):
    """One call that reached the dispatcher."""

    name: str
    phase: str
    module: str
    step: int
    line: int | None


class CapExceededError(RuntimeError):
    """A request went beyond the cap; the first one is in ``MemoryTrack.cap_hit``."""

    def __init__(self, cap_bytes: int, alive_bytes: int, storage: Storage) -> None:
        super().__init__(
            f"{storage.op_name} asked for {storage.bytes:,} B, {alive_bytes:,} B were alive, the cap is {cap_bytes:,} B"
        )
        self.alive_bytes, self.storage = alive_bytes, storage


class MemoryTrack(TorchDispatchMode):
    """Context manager around a program; read ``ledger`` and ``operations`` afterwards.

    ``modules``: prefix -> module whose parameters, buffers and calls are known by name. ``names``: the program's own
    names, for what else it holds; see ``holders``. ``cap_bytes``: raise
    ``CapExceededError`` at the first request beyond it. ``source``: file name whose lines are noted. ``for_allocator``:
    note addresses, and run each operation inside a range of the profiler; see ``unseen``.
    """

    def __init__(
        self,
        modules: Mapping[str, torch.nn.Module],
        optimizer: torch.optim.Optimizer | None = None,
        inputs: Mapping[str, torch.Tensor] | None = None,
        *,
        names: Mapping[str, Any] | None = None,
        cap_bytes: int | None = None,
        source: str = "",
        for_allocator: bool = False,
    ) -> None:
        super().__init__()
        self.ledger = Ledger(with_addresses=for_allocator)
        self.for_allocator = for_allocator
        self.hooks = Hooks(self, modules, optimizer)
        self._sums = EngineSums()
        self.inputs, self.names = dict(inputs or {}), names or {}
        self.operations: list[Operation] = []
        self.regions: list[int] = []
        """Last operation of each recomputation."""
        self.cap_hit: tuple[Storage, int, int] | None = None
        """The first request beyond the cap, its place in the ledger, and the bytes alive when it came."""
        self.assumed_scalars = 0
        """Times that a program asked a fake tensor for a value and got 0 or False."""
        self.quiet = False
        self.phase_name, self.step = "forward", 0
        self._cap_bytes, self._source = cap_bytes, source
        self._recomputing = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch wraps each call once more, for programs that are compiled inside a mode

    def __enter__(self) -> MemoryTrack:
        self._collects = gc.isenabled()
        gc.collect()  # cyclic garbage would die at some later operation
        gc.disable()
        if self.for_allocator:
            moment(BEGIN)
        self.hooks.enter()
        self._sums.enter()
        for name, tensor in self.inputs.items():
            self.ledger.static(tensor, "inputs", name)
        for holder in tensors_by_name(self.names):
            self.ledger.static(holder.tensor, "held", holder.path)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if self.for_allocator:
            moment(END)
        self._sums.leave()
        self.hooks.leave()
        self.ledger.close()
        self.inputs.clear()
        self.names = {}
        if self._collects:
            gc.enable()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Operations inside belong to this phase, unless the engine or the optimizer runs."""
        before, self.phase_name = self.phase_name, name
        try:
            yield
        finally:
            self.phase_name = before

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.quiet or func in _UNSEEN_BY_DESIGN:
            return func(*args, **kwargs)
        if func is _ITEM or (torch.is_inference_mode_enabled() and can_decompose(func)):
            return self._parts_of(func, args, kwargs)
        if func in DIFFERENT and in_backward():
            func = self._sums.bare(func, args, self._are_fresh_zeros(args))
            if func is same_parts:
                return func(*args)
        self.ledger.op = len(self.operations)
        operation = self._operation(func)
        self.operations.append(operation)
        if func is not _LIFT:
            for tensor in _tensors(args):
                self._seen_before(tensor)
        with record_function(f"{RANGE}{self.ledger.op}") if self.for_allocator else _NO_RANGE:
            out = self._scalar(func, args, kwargs) if func is _READ_SCALAR else func(*args, **kwargs)
        for tensor in _tensors((out,)):
            self._result(tensor, func, operation, args)
        return out

    def _are_fresh_zeros(self, args: Any) -> bool:
        storages = self.ledger.storages
        if not storages or storages[-1].op_name not in _ZEROS or args[0].layout is not torch.strided:
            return False
        return self.ledger.number(args[0].untyped_storage()) == storages[-1].number

    def _parts_of(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What a composite operation runs. Tensors of inference mode lack the dispatch keys that take it apart before."""
        super().__enter__()
        try:
            return func.decompose(*args, **kwargs)
        finally:
            super().__exit__(None, None, None)

    def _operation(self, func: Any) -> Operation:
        phase, module = self._place()
        return Operation(func.__name__.removesuffix(".default"), phase, module, self.step, self._line())

    def _place(self) -> tuple[str, str]:
        """(phase, module) of what runs now."""
        running = self.hooks.running
        module = running[-1] if running else OUTSIDE
        if not in_backward():
            self._recomputing = False
            return ("optimizer", "optimizer") if self.hooks.in_optimizer else (self.phase_name, module)
        if torch.is_grad_enabled() or running:
            if not self._recomputing:
                self._recomputing = True
                self.regions.append(0)
            self.regions[-1] = len(self.operations)
            return "recompute", module
        self._recomputing = False
        node = running_node()
        return "backward", node_metadata(node).get("module", OUTSIDE) if node else OUTSIDE

    def _line(self) -> int | None:
        """Line of the visitor's program that runs now, the innermost one."""
        frame = sys._getframe(1) if self._source else None
        while frame is not None:
            if frame.f_code.co_filename == self._source:
                return frame.f_lineno
            frame = frame.f_back
        return None

    def _seen_before(self, tensor: torch.Tensor) -> None:
        for storage in storages_of(tensor):
            if self.ledger.number(storage) is None:
                self.ledger.born(storage, tensor, Birth(op=self.ledger.op, step=self.step))

    def _scalar(self, func: Any, args: Any, kwargs: Any) -> Any:
        try:
            return func(*args, **kwargs)  # an optimizer's step counter is a known constant also when it is fake
        except DataDependentOutputException:
            self.assumed_scalars += 1
            dtype = args[0].dtype
            return False if dtype is torch.bool else 0.0 if dtype.is_floating_point else 0

    def _result(self, tensor: torch.Tensor, func: Any, operation: Operation, args: Any) -> None:
        plain = type(tensor) in _PLAIN and tensor.layout is torch.strided
        for storage in (tensor.untyped_storage(),) if plain else storages_of(tensor):
            number = self.ledger.number(storage)
            if number is not None:
                self.ledger.resized(number, storage)
                continue
            alive = self.ledger.live_bytes
            name, phase, module, step, line = operation
            record = self.ledger.born(storage, tensor, Birth(self.ledger.op, name, phase, module, step, line))
            if record is None:
                continue
            if phase == "recompute":
                record.region = len(self.regions) - 1
            if func is _CAST and phase in ("forward", "recompute") and tensor.dtype != args[0].dtype:
                self._note_cast(record, args[0])
            if self._cap_bytes is not None and self.ledger.live_bytes > self._cap_bytes:
                self.cap_hit = self.cap_hit or (record, len(self.ledger.events) - 1, alive)
                raise CapExceededError(self._cap_bytes, alive, record)

    def _note_cast(self, record: Storage, source: torch.Tensor) -> None:
        number = self.ledger.number(source.untyped_storage())
        if number is not None and self.ledger.storages[number].static == "parameters":
            record.is_cast, record.name = True, f"cast of {self.ledger.storages[number].name}"


def moment(name: str) -> None:
    """Leave a mark in the profiler."""
    with record_function(name):
        pass


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    """Tensors in arguments or results, at most two lists deep: what operators take and give."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
