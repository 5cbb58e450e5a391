"""Who holds a gradient when the engine adds to it, and every run of the engine from Python, heard by its own thread only.

The engine adds in place where it holds the last reference to the gradient and to its storage; a dispatch mode, which
sees the sum, finds the same reference counts plus its own, a constant that is measured once.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.autograd.graph import Node

Around = Callable[[Any, Callable[[], Any]], Any]

_WRAPPERS = tuple(str(Path(torch.__file__).parent / name) for name in ("_dynamo", "_compile.py"))
_module: Any = torch.autograd


def _holders(args: Any) -> tuple[int, int, int]:
    """References to the first argument: in C++, to its storage, in Python. For use as the first act of a dispatch mode."""
    tensor = args[0]
    storage = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
    return tensor._use_count(), storage, sys.getrefcount(tensor)


@cache
def _alone() -> tuple[int, int, int]:
    """What ``_holders`` says of a gradient that nobody but the engine holds."""
    from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

    seen = []

    class Summing(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.add.Tensor:
                seen.append(_holders(args))
            return func(*args, **(kwargs or {}))

    with _disable_current_modes(), torch.enable_grad():
        x = torch.ones(3, device="cpu", requires_grad=True)
        y = x * 2
        parts = torch.cat((y * 3, y * 4))
        with Summing():
            parts.backward(torch.ones(6, device="cpu"))
    return seen[0]


def engine_alone_holds(args: Any) -> bool:
    """Whether the engine holds the last reference to the dense tensor ``args[0]``, which it passed to a dispatch mode."""
    return _holders(args) == _alone() and _without_gaps(args[0])


def _without_gaps(tensor: torch.Tensor) -> bool:
    """Each element has its own place, and the places are one block."""
    expected = 1
    for stride, size in sorted((t, s) for s, t in zip(tensor.shape, tensor.stride(), strict=True) if s != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def called_by_engine(depth: int) -> bool:
    """Whether the frame ``depth`` above the caller is the engine's own, and not a hook's or a Function's."""
    frame = sys._getframe(depth + 1)
    while frame.f_code.co_filename.startswith(_WRAPPERS) and frame.f_back is not None:  # around every dispatch mode
        frame = frame.f_back
    engine: Any = torch.autograd.graph._engine_run_backward
    return frame.f_code is engine.__code__ or frame.f_back is None  # a device's own thread has no caller


class _Listeners:
    """The engine's entry from Python, passed through the listeners of the calling thread, the newest outermost."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._original: Any = None
        self._of_thread: dict[int, list[Around]] = {}

    def add(self, around: Around) -> None:
        _alone()  # measured now: inside a dispatch mode there is no graph
        with self._lock:
            if not self._of_thread:
                self._original, _module._engine_run_backward = _module._engine_run_backward, self._run
            self._of_thread.setdefault(threading.get_ident(), []).append(around)

    def remove(self, around: Around) -> None:
        with self._lock:
            listeners = self._of_thread[threading.get_ident()]
            listeners.remove(around)
            if not listeners:
                del self._of_thread[threading.get_ident()]
            if not self._of_thread:
                _module._engine_run_backward = self._original

    def _run(self, roots: Any, *args: Any, **kwargs: Any) -> Any:
        def engine() -> Any:
            return self._original(roots, *args, **kwargs)

        for around in self._of_thread.get(threading.get_ident(), ()):
            engine = _inside(around, roots, engine)
        return engine()


def _inside(around: Around, roots: Any, engine: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: around(roots, engine)


_listeners = _Listeners()
listen_to_engine, stop_listening_to_engine = _listeners.add, _listeners.remove


def feeders(roots: Any) -> list[Node]:
    """Nodes that send a gradient to a place that others send one to as well: after them the engine may add."""
    senders: dict[tuple[Node, int], list[Node | None]] = {}
    todo = []
    for root in roots:
        node, number = (root.grad_fn, root.output_nr) if isinstance(root, torch.Tensor) else (root.node, root.output_nr)
        if node is not None:
            senders.setdefault((node, number), []).append(None)
            todo.append(node)
    seen = set(todo)
    while todo:
        node = todo.pop()
        for parent, number in node.next_functions:
            if parent is not None:
                senders.setdefault((parent, number), []).append(node)
                if parent not in seen:
                    seen.add(parent)
                    todo.append(parent)
    several = (nodes for nodes in senders.values() if len(nodes) > 1)
    return list({node for nodes in several for node in nodes if node is not None})
