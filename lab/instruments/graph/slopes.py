"""One-sided differences in float64 beside what the engine handed on: the point decides, not a table of functions.

For an operation y = f(x) to which the gradient g arrived, the engine hands on the slope of Σ g·f(x). It is compared with
(φ(x) − φ(x − h)) / h and (φ(x + h) − φ(x)) / h, where φ is that sum, computed from the recorded values of x.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch

from lab.instruments.graph.engine_calls import SeenPass
from lab.instruments.graph.tensor_log import Opaque, Operation, State
from lab.records.graph import Plain
from lab.records.operations import Checked

STEP = 1e-6
_MOST_ELEMENTS, _MOST_OPERATIONS = 8, 40
MOST_POINTS = 100_000
"""Elements of an input of a function with a backward in Python up to which it is kept in float64 for the differences."""
_UNREPEATABLE = (
    "dropout",
    "rand",
    "normal",
    "bernoulli",
    "multinomial",
    "uniform",
    "batch_norm",
    "__set",
    "empty",
    "rnn",
    "lstm",
)


def check_steps(passes: list[SeenPass]) -> Iterator[Checked]:
    """Each small operation of the passes of the program, where it can be repeated."""
    done = 0
    for run in passes:
        for step in run.steps if not run.caller and not run.error else ():
            call = step.seen.state.maker if step.seen.state is not None else None
            if call is None or done >= _MOST_OPERATIONS or not _repeatable(call) or len(step.given) != 1:
                continue
            done += 1
            yield from _check(call, step.incoming, step.given[0])


def _repeatable(call: Operation) -> bool:
    known = len(call.results) == 1 and not call.written and len(call.uses) == 1 and not isinstance(call.func, type)
    plain = not any(word in call.name for word in _UNREPEATABLE) and not call.name.endswith("_")
    return known and plain and _small(call) and not _opaque(call.args) and not _opaque(tuple(call.kwargs.values()))


def _small(call: Operation) -> bool:
    floats = [use for use in call.uses if use.dtype.is_floating_point]
    return bool(floats) and all(
        use.value is not None and use.shape.numel() <= _MOST_ELEMENTS and not (use.nan or use.infinite)
        for use in floats
    )


def _opaque(values: tuple[Any, ...]) -> bool:
    return any(v is Opaque or (isinstance(v, (tuple, list)) and _opaque(tuple(v))) for v in values)


def _check(call: Operation, incoming: Plain, given: Plain) -> Iterator[Checked]:
    use = call.uses[0]
    if not isinstance(incoming, (int, float, list)) or not isinstance(given, (int, float, list)):
        return
    with _quietly():
        point = torch.tensor(use.value, dtype=torch.float64)
        weight, engine = torch.tensor(incoming, dtype=torch.float64), torch.tensor(given, dtype=torch.float64)
        if engine.shape != point.shape:
            return

        def phi(x: torch.Tensor) -> torch.Tensor:
            return (call.func(*_filled(call.args, use, x), **_filled_names(call.kwargs, use, x)) * weight).sum()

        yield from _compared(call.name, call.line, 1, point, engine, phi)


def check_custom(applied: list[tuple[type, Operation]], *, second: bool) -> Iterator[Checked]:
    """Functions with a backward in Python, on the recorded inputs: the derivative, and that of the derivative."""
    for function, call in applied[:6]:
        floats = [use for use in call.uses if use.dtype.is_floating_point]
        if not floats or not (_small(call) or _kept(call)) or _opaque(call.args):
            continue
        with _quietly():
            yield from _check_custom(function, call, floats[0], second)


def _check_custom(function: Any, call: Operation, use: State, second: bool) -> Iterator[Checked]:
    points = call.points or {}
    point = points[use.number] if use.number in points else torch.tensor(use.value, dtype=torch.float64)

    def phi(x: torch.Tensor) -> torch.Tensor:
        return _first(function.apply(*_filled(call.args, use, x, points))).sum()

    def slope(x: torch.Tensor) -> torch.Tensor:
        leaf = x.detach().clone().requires_grad_()
        return torch.autograd.grad(phi(leaf), leaf)[0].sum()

    leaf = point.clone().requires_grad_()
    (engine,) = torch.autograd.grad(phi(leaf), leaf, create_graph=second)
    yield from _compared(function.__name__, call.line, 1, point, engine.detach(), phi)
    if second:
        again = torch.autograd.grad(engine.sum(), leaf, allow_unused=True)[0] if engine.requires_grad else None
        found = torch.zeros_like(point) if again is None else again.detach()
        yield from _compared(function.__name__, call.line, 2, point, found, slope)


def _compared(
    name: str,
    line: int | None,
    order: int,
    point: torch.Tensor,
    engine: torch.Tensor,
    phi: Callable[[torch.Tensor], torch.Tensor],
) -> Iterator[Checked]:
    middle = phi(point)
    for i in range(0, point.numel(), max(1, point.numel() // _MOST_ELEMENTS)):
        at = point.reshape(-1)[i].item()
        step = STEP * max(1.0, abs(at))
        left, right = (phi(_moved(point, i, sign * step)) for sign in (-1, 1))
        index = tuple(int(k) for k in torch.unravel_index(torch.tensor(i), point.shape)) if point.dim() else ()
        yield Checked(
            name,
            line,
            order,
            index,
            at,
            engine.reshape(-1)[i].item(),
            ((middle - left) / step).item(),
            ((right - middle) / step).item(),
            step,
        )


def _moved(point: torch.Tensor, element: int, by: float) -> torch.Tensor:
    moved = point.clone()
    moved.view(-1)[element] += by
    return moved


def _first(result: Any) -> torch.Tensor:
    return result[0] if isinstance(result, tuple) else result


def _kept(call: Operation) -> bool:
    return bool(call.points) and all(use.number in call.points or use.value is not None for use in call.uses)


def points_of(tensors: list[tuple[torch.Tensor, State]]) -> dict[int, torch.Tensor]:
    """Large finite inputs of a function with a backward in Python, in float64."""
    return {
        use.number: tensor.detach().double()
        for tensor, use in tensors
        if use.value is None and tensor.is_floating_point() and tensor.numel() <= MOST_POINTS and use.finite
    }


def _filled(values: Any, use: State, x: torch.Tensor, points: Mapping[int, torch.Tensor] = MappingProxyType({})) -> Any:
    """The arguments with ``x`` in place of ``use``, other tensors from their recorded values or ``points``."""
    return type(values)(_value(v, use, x, points) for v in values)


def _filled_names(values: dict[str, Any], use: State, x: torch.Tensor) -> dict[str, Any]:
    return {name: _value(value, use, x) for name, value in values.items()}


def _value(value: Any, use: State, x: torch.Tensor, points: Mapping[int, torch.Tensor] = MappingProxyType({})) -> Any:
    if value is use:
        return x
    if isinstance(value, State) and value.number in points:
        return points[value.number]
    if isinstance(value, State):
        return torch.tensor(value.value, dtype=torch.float64 if value.dtype.is_floating_point else value.dtype)
    if type(value) in (tuple, list):
        return _filled(value, use, x, points)
    return torch.float64 if value in (torch.float32, torch.float16, torch.bfloat16) else value


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Repeating may print, warn or fail: it says nothing then."""
    with (
        contextlib.suppress(Exception),
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        torch.enable_grad(),
        torch.random.fork_rng(devices=[]),
    ):
        warnings.simplefilter("ignore")
        yield
