"""What the watch hands on: a call while it runs, a row for each result, a refusal, and what looks at them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from lab.experiments.tensor_anatomy.watch.states import State, usable

EXPORTS = {"numpy", "__array__"}
"""Operations that give an array."""


@dataclass(eq=False)
class Call:
    """One operation while it runs."""

    func: Callable[..., Any]
    op: str
    line: int | None
    module: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: list[tuple[torch.Tensor, State, int | None]]
    direct: bool = True
    """The program itself called it, not a module or a function of the library on its behalf."""
    before: Any = None
    """What a check kept from before."""

    def __post_init__(self) -> None:
        self.states = tuple(state for _, state, _ in self.inputs)


@dataclass(eq=False, slots=True)
class Row:
    """One result of an operation, or one write."""

    line: int | None
    op: str
    kind: str
    state: State
    new_bytes: int
    shares: tuple[str, ...]
    module: str
    inputs: tuple[State, ...]
    results: tuple[int, int] = (0, 1)


@dataclass(eq=False)
class Refused:
    """An operation that raised."""

    op: str
    line: int | None
    module: str
    type: str
    message: str
    states: tuple[State, ...]
    plain: tuple[Any, ...]
    """Arguments that are no tensors, as far as they are numbers, text or dtypes."""
    largest: dict[int, int] = field(default_factory=dict)
    """By number of a state of whole numbers: the largest of them, for what is used as an index."""
    array: str = ""
    """Name of the NumPy array that was given."""
    array_facts: dict[str, Any] = field(default_factory=dict)


class Checks:
    """What looks at an operation while its values are there. The base looks at nothing."""

    def begin(self, call: Call) -> None: ...

    def end(self, call: Call, rows: list[Row], result: Any) -> None: ...

    def refused(self, call: Call, error: Exception) -> None: ...


def short_name(name: str) -> str:
    """``sub`` for ``__sub__``; the underscore of in-place operations stays."""
    return name.strip("_") if name.startswith("__") and name not in EXPORTS else name


def tensors_in(values: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors among ``values``, two levels of lists deep, that can be looked at."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(v for v in value if isinstance(v, torch.Tensor))
    return [tensor for tensor in found if usable(tensor)]


def distinct(pairs: list[tuple[torch.Tensor, State]]) -> list[tuple[torch.Tensor, State]]:
    """Each tensor once."""
    return list({id(t): (t, state) for t, state in pairs}.values())


def is_plain(value: Any) -> bool:
    """A number, a text, a dtype or a device, or a short list of them: no tensor."""
    if isinstance(value, (list, tuple, torch.Size)):
        return all(isinstance(v, (int, float, str)) for v in value) and len(value) < 64
    return value is None or isinstance(value, (int, float, str, bool, torch.dtype, torch.device))
