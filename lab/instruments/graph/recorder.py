"""What is written down of every operation beside its nodes: operands, results, writes, refusals, hooks, cleared gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lab import torch_private
from lab.instruments.describing.lines import library_call, program_line
from lab.instruments.describing.modules import ModulePath
from lab.instruments.describing.names import Names
from lab.instruments.describing.values import dtype_name, quiet_grad, shape_of
from lab.instruments.graph.book import GraphBook, Seen
from lab.instruments.graph.events import (
    MOST_REFUSED,
    MOST_WRITES,
    Events,
    SeenClear,
    SeenHook,
    SeenMode,
    SeenRefusal,
    SeenStep,
    SeenWrite,
    Watched,
)
from lab.instruments.graph.nonfinite import NonFiniteLog
from lab.instruments.graph.tensor_log import Operation, State, TensorLog
from lab.records.operations import Operand

Met = list[tuple[torch.Tensor, State]]
"""The tensors that an operation was given, as it met them."""
HOOKS = {"register_hook", "retain_grad", "register_post_accumulate_grad_hook"}


class Recorder:
    """Beside ``GraphBook``: that one knows nodes, this one knows operations, with and without a graph."""

    def __init__(self, file: str, book: GraphBook, modules: ModulePath, names: Callable[[], Names], look: Any) -> None:
        self.tensors, self.events, self.nonfinite = TensorLog(), Events(), NonFiniteLog()
        self._file, self._book, self._modules, self._names, self._look = file, book, modules, names, look

    # One operation.

    def begin(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Operation, Met]:
        """The record of an operation that is about to run, and its tensors."""
        template, named, met = self.tensors.arguments(args, kwargs)
        call = Operation(
            self.tensors.moment,
            func,
            name,
            program_line(self._file),
            self._modules.current(),
            template,
            named,
            tuple([state for _, state in met]),
        )
        call.grad_enabled, call.inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        return call, met

    def end(
        self, call: Operation, met: Met, made: list[torch.Tensor], written: Met, result: Any, *, forward: bool = True
    ) -> None:
        """Log what the operation made and wrote, and whether NaN or infinity began with it."""
        self.tensors.add(call, made, [t for t, _ in written])
        if call.name in _BY_INDEX:
            call.repeats = any(_repeats(tensor) for tensor, _ in met)
        if not made and not written and type(result) in (int, float, bool, list):
            call.plain_result = result if type(result) is not list or len(result) <= 64 else None
        for tensor, use in written:
            self._write(call, tensor, use)
        if forward and any(not state.finite for state in (*call.results, *call.written)):
            states = [(t, self.tensors.state(t)) for t in (*made, *(t for t, _ in written))]
            self.nonfinite.note(call, met, states, self.operand)

    def refused(self, call: Operation, met: Met, error: Exception) -> None:
        """Remember an operation that raised, with its operands."""
        if len(self.events.refusals) < MOST_REFUSED:
            operands = tuple(self.operand(tensor) for tensor, _ in met[:8])
            kind, message = type(error).__name__, str(error)[:2000]
            self.events.refusals.append(
                SeenRefusal(call.number, call.name, call.line, call.module, kind, message, operands, call.grad_enabled)
            )

    def operand(self, tensor: torch.Tensor) -> Operand:
        """Everything about a tensor that can explain why an operation does not take it."""
        state, base, names = self.tensors.state(tensor), torch_private.base(tensor), self._names()
        maker = state.maker
        above = self.tensors.state(base) if base is not None else None
        strided = tensor.layout is torch.strided
        return Operand(
            name=names.of(tensor),
            shape=shape_of(tensor),
            dtype=dtype_name(tensor.dtype),
            strides=tuple(tensor.stride()) if strided and shape_of(tensor) is not None else (),
            is_leaf=tensor.is_leaf,
            requires_grad=tensor.requires_grad,
            grad_fn=type(tensor.grad_fn).__name__ if tensor.grad_fn is not None else "",
            inference=tensor.is_inference(),
            line=maker.line if maker else None,
            made_by=maker.name if maker else "",
            module=maker.module if maker else None,
            view_of="" if base is None else names.of(base) or "a result",
            base_is_leaf=base is not None and base.is_leaf,
            base_line=above.maker.line if above and above.maker else None,
            made_without_grad=bool(maker and not maker.grad_enabled),
            value=state.value,
            state=state.number,
        )

    def _write(self, call: Operation, tensor: torch.Tensor, use: State) -> None:
        operation = WRITTEN.get(call.name, call.name)
        apart = self._book.storages.is_apart(tensor)
        self._book.storages.note_write(tensor, call.line, operation)
        if apart:
            self.tensors.epoch += 1
        caller = library_call(self._file)
        if len(self.events.writes) < MOST_WRITES and tensor.layout is torch.strided:
            leaf = self._book.leaf(tensor) if tensor.is_leaf and tensor.requires_grad else None
            self.events.writes.append(
                SeenWrite(
                    call.number,
                    call.line,
                    operation,
                    call.module,
                    caller,
                    self.tensors.state(tensor),
                    use,
                    self._book.storages.of(tensor).number,
                    apart,
                    torch_private.version(tensor),
                    leaf,
                    call.grad_enabled,
                )
            )
        if operation in ("zero_", "_foreach_zero_"):
            self._cleared_by_writing(call, tensor, caller)

    def _cleared_by_writing(self, call: Operation, gradient: torch.Tensor, caller: str) -> None:
        for leaf in self._book.leaves():
            tensor = leaf.variable() if leaf.variable else None
            if tensor is not None and quiet_grad(tensor) is gradient:
                self.events.clears.append(SeenClear(call.number, call.line, leaf, caller))

    # What is no operation.

    def cleared(self, leaf: torch.Tensor) -> None:
        """``leaf.grad = None`` is about to happen."""
        if leaf.is_leaf and leaf.requires_grad and quiet_grad(leaf) is not None:
            line, caller = program_line(self._file), library_call(self._file)
            self.events.clears.append(SeenClear(self.tensors.moment, line, self._book.leaf(leaf), caller))

    def mode(self, enabled: bool) -> None:
        """Gradients were switched on or off."""
        if len(self.events.modes) < MOST_WRITES:
            self.events.modes.append(
                SeenMode(self.tensors.moment, program_line(self._file), enabled, torch.is_inference_mode_enabled())
            )

    def hook(self, name: str, tensor: torch.Tensor, node: Seen | None) -> SeenHook:
        """A hook is about to be put on ``tensor``."""
        seen = SeenHook(self.tensors.moment, program_line(self._file), name, self.tensors.state(tensor), node)
        self.events.hooks.append(seen)
        return seen

    def watched(self, hook: Callable[..., Any], seen: SeenHook) -> Watched:
        """The hook, called through."""
        return Watched(hook, seen, self._look)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """``optimizer.step()`` is about to run."""
        held = [p for group in optimizer.param_groups for p in group["params"] if isinstance(p, torch.Tensor)][:500]
        leaves = [(self._book.leaf(p), p.grad) for p in held if p.is_leaf and p.requires_grad]
        self.events.steps.append(
            SeenStep(
                self.tensors.moment,
                program_line(self._file),
                type(optimizer).__name__,
                tuple(leaf for leaf, _ in leaves),
                tuple(leaf for leaf, gradient in leaves if gradient is None),
            )
        )


WRITTEN = {
    "__setitem__": "slice assignment",
    "__iadd__": "+=",
    "__isub__": "-=",
    "__imul__": "*=",
    "__idiv__": "/=",
    "__ifloordiv__": "//=",
    "__imod__": "%=",
    "__iand__": "&=",
    "__ior__": "|=",
    "__ixor__": "^=",
}
"""How a program writes an in-place operation that has no name."""


_BY_INDEX = {"scatter", "scatter_", "index_copy", "index_copy_", "index_put", "index_put_"}


def _repeats(tensor: torch.Tensor) -> bool:
    """Whether it is an index in which a place stands twice."""
    return tensor.dtype is torch.int64 and tensor.dim() == 1 and tensor.unique().numel() < tensor.numel()
