"""Every private name of torch that the lab relies on, each with a self-test.

torch promises nothing about these names. ``broken()`` says which of them do not behave on this release, so that a page
says "not available with this version" instead of showing a wrong number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd.graph import Node

RAW = "_raw_saved_"
GET_DATA: Any = torch.Tensor.data.__get__  # pyright: ignore[reportAttributeAccessIssue]
"""What a TorchFunctionMode sees for ``tensor.data``."""


def saved_slots(node: Node) -> Iterator[tuple[str, Any]]:
    """(slot, packed tensor) for every tensor that ``node`` saved, without unpacking: hooks do not run."""
    for attribute in _raw_names(type(node)):
        try:
            packed = getattr(node, attribute)
        except RuntimeError:  # a list of saved tensors cannot be read once backward has freed it
            continue
        slot = attribute.removeprefix(RAW)
        if isinstance(packed, (tuple, list)):
            yield from ((f"{slot}[{i}]", p) for i, p in enumerate(packed) if p is not None)
        elif packed is not None:
            yield slot, packed


@cache
def _raw_names(kind: type) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith(RAW))


def peek(packed: Any) -> Any:
    """What a saved slot holds: a tensor; what a pack hook returned instead; None when freed or never filled."""
    return packed.data


def is_recomputed(held: Any) -> bool:
    """Whether a slot holds the marker of non-reentrant checkpointing instead of a tensor."""
    return type(held).__name__ == "_Holder" and type(held).__module__ == "torch.utils.checkpoint"


def is_custom(node: Node) -> bool:
    """Whether ``node`` belongs to a ``torch.autograd.Function`` written in Python."""
    return isinstance(node, torch._C._FunctionBase)


def is_leaf_node(node: Node) -> bool:
    """Whether ``node`` accumulates into the ``.grad`` of a leaf, which is its ``variable``."""
    return type(node).__name__ == "AccumulateGrad"


def leaf_of(node: Node) -> torch.Tensor:
    """The tensor into which a leaf node accumulates."""
    return node.variable  # pyright: ignore[reportAttributeAccessIssue]


def memory(node: Node) -> dict[str, Any]:
    """A dict that lives and dies with the node, for whoever wants to remember something about it."""
    return node.metadata  # pyright: ignore[reportReturnType]


def output_metadata(node: Node) -> list[Any]:
    """Shape, dtype and device of each output of the forward operation."""
    return list(node._input_metadata)


def version(tensor: torch.Tensor) -> int | None:
    """The version counter: one more for each in-place write. None for inference tensors, which have none."""
    return None if tensor.is_inference() else tensor._version


def base(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor that ``tensor`` is a view of."""
    return tensor._base if tensor._is_view() else None


def storage_key(tensor: torch.Tensor) -> int:
    """Identity of the storage while it lives."""
    return tensor.untyped_storage()._cdata


def is_wrapped(tensor: torch.Tensor) -> bool:
    """Whether a ``torch.func`` transform is looking through this tensor."""
    return is_functorch_wrapped_tensor(tensor)


def has_dispatch_mode() -> bool:
    """Whether a TorchDispatchMode would see the operations that a preview needs."""
    return torch._C._len_torch_dispatch_stack() > 0


class CustomFunctions:
    """Context manager that reports the result of every ``Function.apply``, which no TorchFunctionMode sees."""

    def __init__(self, report: Callable[[Any], None]) -> None:
        self.running = 0
        """How many calls of ``apply`` are under way."""
        self._report = report
        self._original = torch.autograd.Function.__dict__["apply"]

    def __enter__(self) -> None:
        original, report = self._original.__func__, self._report

        def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
            self.running += 1
            try:
                result = original(cls, *args, **kwargs)
            finally:
                self.running -= 1
            report(result)
            return result

        torch.autograd.Function.apply = classmethod(apply)  # pyright: ignore[reportAttributeAccessIssue]

    def __exit__(self, *error: object) -> None:
        torch.autograd.Function.apply = self._original


def _sample() -> tuple[torch.Tensor, Node]:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = torch.sigmoid(x)
    assert y.grad_fn is not None
    return y, y.grad_fn


def _slots_are_read_without_unpacking() -> None:
    unpacked = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: unpacked.append(1) or t):
        y, node = _sample()
    slots = {slot: peek(packed) for slot, packed in saved_slots(node)}
    assert list(slots) == ["result"], slots
    assert torch.equal(slots["result"], y.detach())
    assert not unpacked


def _freed_slots_are_empty() -> None:
    y, node = _sample()
    y.sum().backward()
    assert all(peek(packed) is None for _, packed in saved_slots(node))


def _versions_count_writes() -> None:
    y, node = _sample()
    ((_, packed),) = saved_slots(node)
    y.mul_(2)
    assert version(peek(packed)) == 1


def _metadata_stays_with_the_node() -> None:
    y, node = _sample()
    memory(node)["lab"] = 7
    del node
    assert y.grad_fn is not None
    assert memory(y.grad_fn)["lab"] == 7
    assert tuple(output_metadata(y.grad_fn)[0].shape) == (2,)


def _checkpoint_leaves_a_marker() -> None:
    from torch.utils.checkpoint import checkpoint

    calls = []
    x = torch.ones(2, requires_grad=True)
    y = checkpoint(lambda t: calls.append(1) or t.sin(), x, use_reentrant=False)
    assert all(is_recomputed(peek(packed)) for _, packed in saved_slots(y.grad_fn))
    assert len(calls) == 1


def _storages_are_told_apart() -> None:
    x, y = torch.zeros(2), torch.zeros(2)
    assert storage_key(x) == storage_key(x[1:]) != storage_key(y)
    assert base(x[1:]) is x
    assert base(x) is None


def _functions_in_python_are_known() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return 2 * x

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return 2 * g

    assert is_custom(Twice.apply(torch.ones(1, requires_grad=True)).grad_fn)
    assert not is_custom(_sample()[1])


def _transforms_are_seen() -> None:
    seen = []
    torch.func.vmap(lambda t: seen.append(is_wrapped(t)) or t)(torch.ones(1))
    assert seen == [True]
    assert not is_wrapped(torch.ones(1))
    assert not has_dispatch_mode()


SELF_TESTS: dict[str, Callable[[], None]] = {
    "saved tensors are read without unpacking": _slots_are_read_without_unpacking,
    "freed saved tensors are empty": _freed_slots_are_empty,
    "version counters count in-place writes": _versions_count_writes,
    "node metadata stays with the node": _metadata_stays_with_the_node,
    "checkpoint leaves a marker": _checkpoint_leaves_a_marker,
    "storages are told apart": _storages_are_told_apart,
    "Python functions are known": _functions_in_python_are_known,
    "torch.func transforms are seen": _transforms_are_seen,
}


def broken() -> dict[str, str]:
    """Self-tests that fail on this torch: name -> reason."""
    found = {}
    for name, test in SELF_TESTS.items():
        try:
            test()
        except Exception as error:  # noqa: BLE001 - an unknown release may raise anything; the reason is shown
            found[name] = f"{type(error).__name__}: {error}"[:300]
    return found
