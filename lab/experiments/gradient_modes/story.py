"""Every operation of a program with the mode in force; every tensor with its birth; what was refused."""

from __future__ import annotations

import sys
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from lab import torch_private
from lab.experiments.gradient_modes.line_modes import LineModes, mode_now, word
from lab.instruments.describing.assigned import AssignedNames
from lab.instruments.describing.names import named_tensors, program_scopes
from lab.records.gradient_modes import Birth, Filled, IdleStep, Operation

ROWS, STEPS, BACKWARDS = 2_000, 100_000, 200
CUTS = {"detach": "detach", "data": "detach", "detach_": "detach"}
READS = {
    *("size", "stride", "dim", "item", "tolist", "numel", "nelement", "data_ptr", "storage_offset", "is_inference", "equal", "allclose"),
    *("element_size", "is_contiguous", "is_floating_point", "is_complex", "register_hook", "retain_grad", "_set_grad_enabled"),
    *("__len__", "__repr__", "__format__", "__bool__", "__float__", "__int__", "__index__", "__hash__", "__set__", "untyped_storage"),
}  # fmt: skip
"""They make no tensor."""


@dataclass(eq=False)
class Refused:
    """An operation that raised. The error is known by its identity and text: holding it would hold the program's frames."""

    error: int
    message: str
    line: int | None
    op: str
    operands: tuple[Birth, ...]


@dataclass
class Write:
    """A write in place: for what the version counter says later."""

    line: int | None
    op: str
    birth: int
    shape: tuple[int, ...]
    version: int | None


@dataclass
class Kept:
    """What was noted, in order."""

    lines: list[Operation] = field(default_factory=list)
    births: list[Birth] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    filled: Counter[tuple[int, tuple[str, ...]]] = field(default_factory=Counter)


class Story(TorchFunctionMode):
    """Use as a context manager around the program, inside ``LineModes``."""

    def __init__(self, file: str, scope: Mapping[str, Any], names: AssignedNames) -> None:
        super().__init__()
        self.kept, self.made, self.steps = Kept(), 0, 0
        self.refused: Refused | None = None
        self.broken: Exception | None = None
        self.line_modes = LineModes(file, lambda: min(self.made, ROWS))
        self._file, self._scope, self._names = file, scope, names
        self._born: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._stepping: dict[int, tuple[str, int, int | None] | None] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":
            name = getattr(getattr(func, "__self__", None), "__name__", "")
            if name not in ("T", "mT", "H", "data", "real", "imag"):
                return self._called(func, "", args, kwargs)
        if name in READS or self.steps >= STEPS or (line := self._line()) is None:
            return self._called(func, "", args, kwargs)
        self.steps += 1
        op = name.strip("_") if name.startswith("__") else name
        before = self._guard(lambda: self._before(op, args, kwargs))
        result = self._called(func, op, args, kwargs, line)
        self._guard(lambda: self._after(op, line, args, kwargs, result, before))
        return result

    def _called(
        self, func: Callable[..., Any], op: str, args: tuple[Any, ...], kwargs: dict[str, Any], line: int | None = None
    ) -> Any:
        try:
            return func(*args, **kwargs)
        except Exception as error:
            told = error
            name = op or getattr(func, "__name__", "")
            self._guard(lambda: self._refuses(told, name, line or self._line(), args, kwargs))
            raise

    def _guard(self, look: Callable[[], Any]) -> Any:
        try:
            with torch_private.no_subclass_functions():
                return look()
        except Exception as error:  # noqa: BLE001 - a fault of the instrument is remembered, the program goes on
            self.broken = self.broken or error
            return None

    def _line(self) -> int | None:
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != self._file:
            frame = frame.f_back
        return frame.f_lineno if frame else None

    def _before(self, op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if op == "backward":
            return self._gradients()
        return [(t, torch_private.version(t), t.requires_grad) for t in tensors_in((*args, *kwargs.values()))]

    def _after(
        self, op: str, line: int, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, before: Any
    ) -> None:
        if op == "backward":
            return self._note_filled(line, before or {})
        inputs = before or []
        results = list(tensors_in((result,)))[:16]
        for number, tensor in enumerate(results):
            at = self._born.get(tensor)
            name = self._names.name(line, op, number, len(results))
            if at is None:
                at = self._birth(tensor, op, line, name, inputs)
            elif name and at < ROWS and not self.kept.births[at].name:
                self.kept.births[at] = replace(self.kept.births[at], name=name)
            for written, version, _ in inputs:
                if written is tensor and torch_private.version(tensor) != version:
                    now = torch_private.version(tensor)
                    self.kept.writes.append(Write(line, op, at, tuple(tensor.shape), now))
                    del self.kept.writes[:-ROWS]
            self._note(tensor, op, line, name, at)

    def _birth(self, tensor: torch.Tensor, op: str, line: int, name: str, inputs: list[Any]) -> int:
        mode = word(mode_now())
        history = any(needs for _, _, needs in inputs)
        cut: tuple[int | None, str, int | None] = (None, "", None)
        lost = (
            history
            and not tensor.requires_grad
            and tensor.is_floating_point()
            and not op.startswith(("zeros_", "ones_", "full_", "rand", "empty_"))
        )
        if lost and (op in CUTS or mode != "grad"):
            cut = (line, CUTS.get(op, mode), None if op in CUTS else self.line_modes.switch_line())
        else:
            behind = [self.kept.births[i] for t, _, _ in inputs if (i := self._born.get(t)) is not None and i < ROWS]
            found = next((b for b in behind if b.cut_line), None)
            cut = (found.cut_line, found.cut_by, found.cut_switch_line) if found else cut
        at = len(self.kept.births)
        if at < ROWS:
            switch = self.line_modes.switch_line() if mode != "grad" else None
            made_by = type(tensor.grad_fn).__name__ if tensor.requires_grad and tensor.grad_fn is not None else ""
            self.kept.births.append(
                Birth(
                    name, line, mode, op, tuple(tensor.shape), tensor.is_inference(), tensor.requires_grad, made_by,
                    switch, *cut, step=min(self.made, ROWS),
                )
            )  # fmt: skip
        self._born[tensor] = at
        return at

    def _note(self, tensor: torch.Tensor, op: str, line: int, name: str, at: int) -> None:
        self.made += 1
        if len(self.kept.lines) < ROWS:
            node = type(tensor.grad_fn).__name__ if tensor.requires_grad and tensor.grad_fn is not None else ""
            self.kept.lines.append(
                Operation(
                    line, op, word(mode_now()), tensor.requires_grad, node, tensor.is_inference(),
                    torch_private.version(tensor), name, at if at < ROWS else None,
                )
            )  # fmt: skip

    def _refuses(
        self, error: Exception, op: str, line: int | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if self.refused is not None and self.refused.error == id(error):
            return  # on its way out of an operation made of others
        operands = tuple(self.birth_of(t) for t in list(tensors_in((*args, *kwargs.values())))[:8])
        self.refused = Refused(
            id(error), str(error)[:4000], line, op.strip("_") if op.startswith("__") else op, operands
        )

    def birth_of(self, tensor: torch.Tensor, name: str = "") -> Birth:
        """As it was noted; what was never seen has no line."""
        at = self._born.get(tensor)
        if at is not None and at < len(self.kept.births):
            known = self.kept.births[at]
            return replace(known, name=known.name or name or self._name(tensor))
        return Birth(
            name or self._name(tensor), None, "", "", tuple(tensor.shape), tensor.is_inference(), tensor.requires_grad
        )

    def _name(self, tensor: torch.Tensor) -> str:
        return next((n for n, t in named_tensors([*program_scopes(self._file), self._scope]) if t is tensor), "")

    def name_births(self, scopes: Iterable[Mapping[str, Any]]) -> None:
        """After the program: names of what is left."""
        for name, tensor in named_tensors(list(scopes)):
            at = self._born.get(tensor)
            if at is not None and at < len(self.kept.births) and not self.kept.births[at].name:
                self.kept.births[at] = replace(self.kept.births[at], name=name)

    def _gradients(self) -> dict[str, tuple[int, int | None]]:
        if self.kept.filled.total() >= BACKWARDS:
            return {}
        found: dict[str, tuple[int, int | None]] = {}
        known: set[int] = set()
        for name, tensor in named_tensors([*program_scopes(self._file), self._scope]):
            if tensor.requires_grad and tensor.is_leaf and len(found) < 500 and id(tensor) not in known:
                known.add(id(tensor))  # a parameter is known by its module first, not by a variable of a loop
                grad = tensor.grad
                found[name] = (id(grad), torch_private.version(grad)) if grad is not None else (0, None)
        return found

    def _note_filled(self, line: int, before: dict[str, tuple[int, int | None]]) -> None:
        after = self._gradients()
        filled = {name.split(".")[0].split("[")[0] for name, now in after.items() if now[0] and before.get(name) != now}
        if filled:
            self.kept.filled[line, tuple(sorted(filled))] += 1

    def note_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Before each step. A line where one step had something to do is not idle."""
        self._guard(lambda: self._step(optimizer))

    def _step(self, optimizer: torch.optim.Optimizer) -> None:
        line = self._line()
        held = [t for group in optimizer.param_groups for t in group["params"]]
        if line is None or not held:
            return
        if any(t.requires_grad or t.grad is not None for t in held):
            self._stepping[line] = None
        elif line not in self._stepping:
            at = self._born.get(held[0])
            self._stepping[line] = (type(optimizer).__name__, len(held), at if at is not None and at < ROWS else None)

    def idle_steps(self) -> tuple[IdleStep, ...]:
        found = []
        for line, step in self._stepping.items():
            if step is not None:
                kind, count, at = step
                born = self.kept.births[at] if at is not None else None
                where = (born.line, born.mode, born.name) if born else (None, "", "")
                found.append(IdleStep(line, kind, count, *where))
        return tuple(found)

    def filled(self) -> tuple[Filled, ...]:
        return tuple(Filled(line, owners, times) for (line, owners), times in self.kept.filled.items())


def tensors_in(values: Iterable[Any], depth: int = 2) -> Iterator[torch.Tensor]:
    """Those that can be looked at, two levels of lists deep."""
    for value in values:
        if issubclass(type(value), torch.Tensor):
            if not torch_private.is_wrapped(value):
                yield value
        elif depth and type(value) in (list, tuple):
            yield from tensors_in(value[:64], depth - 1)
        elif depth and type(value) is dict:
            yield from tensors_in(list(value.values())[:64], depth - 1)
