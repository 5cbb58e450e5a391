"""Operations that bring a value to the host, with the line of the program and what it wrote there.

NOTE on what is counted
1. One level below Python: local_scalar_dense (item, float, if, a format), nonzero, unique, masked_select, repeat_interleave
   with a tensor, equal, and an index that holds booleans: their result, or its size, is a number that the host needs.
2. At the level of Python: tolist and numpy of more than one element, cpu(), printing a tensor. On a CPU these bring nothing,
   on a device they copy; they are counted as one wait each.
3. What torch does inside one of these calls is not counted again; nor are counters of optimizers and seeds of loaders,
   which live on the host.
"""

from __future__ import annotations

import sys
import time
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from lab import torch_private
from lab.program.lines import FILE

_SIZES = {"nonzero", "_unique2", "unique_dim", "unique_consecutive", "masked_select", "equal"}
_WORDS = {
    "item": "item()", "__float__": "float()", "__int__": "int()", "__bool__": "a tensor as a condition", "__index__": "a tensor as an index of Python",
    "__format__": "a tensor in a text", "tolist": "tolist()", "numpy": "numpy()", "cpu": "cpu()", "__repr__": "printing a tensor", "__array__": "a NumPy function",
    "__contains__": "in", "equal": "torch.equal", "allclose": "torch.allclose", "unique": "unique()", "nonzero": "nonzero()", "__getitem__": "a boolean index",
    "__setitem__": "a boolean index", "argwhere": "argwhere()",
}  # fmt: skip
_PASSED = {"__torch_dispatch__", "__torch_function__"}
_HOST_SIDE = ("/torch/optim/", "/torch/utils/data/")
_COPIES = {"tolist", "numpy", "cpu", "__repr__", "__array__"}


class WaitTrace(torch_private.TorchDispatchMode):
    """Context manager around the run of a program; ``found`` maps (line, source, op) to times and seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[tuple[int, str, str], tuple[int, float]] = {}
        self.calls = _Calls(self)
        self.inside = ""
        """The call of Python under way."""

    def __enter__(self) -> WaitTrace:
        super().__enter__()
        self.calls.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.calls.__exit__(*error)
        super().__exit__(*error)

    def note(self, source: str, op: str, seconds: float) -> None:
        """One wait on the line that the program is at."""
        line = _line()
        if line and not _on_its_own_behalf():
            times, before = self.found.get((line, source, op), (0, 0.0))
            self.found[line, source, op] = (times + 1, before + seconds)

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        waits = (
            name == "_local_scalar_dense"
            or name in _SIZES
            or _has_boolean_index(name, args)
            or _counts_repeats(name, args)
        )
        if not waits or self.inside in _COPIES:
            return func(*args, **(kwargs or {}))
        started = time.perf_counter()
        out = func(*args, **(kwargs or {}))
        seconds = time.perf_counter() - started
        source = _WORDS.get(self.inside) or _WORDS.get(name.strip("_0123456789"), "") or self.inside or name
        self.note(source, name, seconds)
        return out


class _Calls(TorchFunctionMode):
    """What the program wrote, and the calls that copy without an operation of their own."""

    def __init__(self, trace: WaitTrace) -> None:
        super().__init__()
        self.trace = trace

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if self.trace.inside:
            return func(*args, **(kwargs or {}))
        self.trace.inside = name
        started = time.perf_counter()
        try:
            out = func(*args, **(kwargs or {}))
        finally:
            self.trace.inside = ""
        if name in _COPIES and _is_worth_it(name, args):
            self.trace.note(_WORDS[name], name.strip("_"), time.perf_counter() - started)
        return out


def _line() -> int:
    """The innermost line of the program, but for modes of its own through which the operation passed."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and (frame.f_code.co_filename != FILE or frame.f_code.co_name in _PASSED):
        frame = frame.f_back
    return frame.f_lineno if frame else 0


def _on_its_own_behalf() -> bool:
    """Whether an optimizer or a DataLoader asked, for counters and seeds that stay on the host."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None and (frame.f_code.co_filename != FILE or frame.f_code.co_name in _PASSED):
        if any(part in frame.f_code.co_filename for part in _HOST_SIDE):
            return True
        frame = frame.f_back
    return False


def _is_worth_it(name: str, args: Any) -> bool:
    """Whether it would copy from a device: not for what is on the host already by choice, such as the result of cpu()."""
    tensor = args[0] if args else None
    return isinstance(tensor, torch.Tensor) and tensor.device.type != "meta" and not tensor.is_sparse


def _has_boolean_index(name: str, args: Any) -> bool:
    if name not in ("index", "index_put", "index_put_", "_index_put_impl_") or len(args) < 2:
        return False
    return any(isinstance(part, torch.Tensor) and part.dtype in (torch.bool, torch.uint8) for part in _parts(args[1]))


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        yield from value


def _counts_repeats(name: str, args: Any) -> bool:
    return name == "repeat_interleave" and bool(args) and isinstance(args[-1], torch.Tensor)
