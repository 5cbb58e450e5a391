"""Private names of torch, each behind a function that fetches it where it is used. See ``self_tests`` for their tests."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.graph import Node

from lab.contract import NotAvailableError

_C: Any = torch._C


def _class(module: str, name: str, base: type = object) -> Any:
    """The class, or where this release has none a stand-in that says so when one is made: it may be a base class."""
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        why = f"{module}.{name} is not available with torch {torch.__version__}: {error}"

    def refuse(self: Any, *args: Any, **kwargs: Any) -> None:
        raise NotAvailableError(why)

    return type(name, (base,), {"__init__": refuse})


if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import DataDependentOutputException as DataDependentOutputException
    from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
else:
    DataDependentOutputException = _class("torch._subclasses.fake_tensor", "DataDependentOutputException", Exception)
    FakeTensor = _class("torch._subclasses.fake_tensor", "FakeTensor")
    FakeTensorMode = _class("torch._subclasses.fake_tensor", "FakeTensorMode")
    TorchDispatchMode = _class("torch.utils._python_dispatch", "TorchDispatchMode")

RAW = "_raw_saved_"
GET_DATA: Any = getattr(getattr(torch.Tensor, "data", None), "__get__", None)
"""What a TorchFunctionMode sees for ``tensor.data``; equal to it, not the same object."""
SET_GRAD: Any = getattr(getattr(torch.Tensor, "grad", None), "__set__", None)
"""What it sees for ``tensor.grad = ...``."""


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
    return isinstance(node, _C._FunctionBase)


def is_leaf_node(node: Node) -> bool:
    """Whether ``node`` accumulates into the ``.grad`` of a leaf, which is its ``variable``."""
    return type(node).__name__ == "AccumulateGrad"


def leaf_of(node: Node) -> torch.Tensor:
    """The tensor into which a leaf node accumulates."""
    return node.variable  # pyright: ignore[reportAttributeAccessIssue]


def node_metadata(node: Node) -> dict[str, Any]:
    """A dict that lives and dies with the node, for whoever wants to remember something about it."""
    return node.metadata  # pyright: ignore[reportReturnType]


def is_gone(node: Node) -> bool:
    """Before 2.13 the Python half of a custom Function may outlive the node it stood for."""
    try:
        node_metadata(node)
    except RuntimeError:
        return True
    return False


def output_metadata(node: Node) -> list[Any]:
    """Shape, dtype and device of each output of the forward operation; a nested tensor has no ``shape``."""
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


def storage_reference(tensor: torch.Tensor) -> StorageWeakRef:
    """A weak reference. While it is held the bytes may go, but no other storage gets the same ``storage_key``."""
    from torch.multiprocessing.reductions import StorageWeakRef

    return StorageWeakRef(tensor.untyped_storage())


def is_wrapped(tensor: torch.Tensor) -> bool:
    """Whether a ``torch.func`` transform, or a batched ``autograd.grad``, is looking through this tensor."""
    functorch = _C._functorch
    return functorch.is_functorch_wrapped_tensor(tensor) or functorch.is_legacy_batchedtensor(tensor)


def refuses_its_graph(tensor: torch.Tensor) -> bool:
    """A view made under no_grad whose base was written since: torch raises where its ``grad_fn`` or ``is_leaf`` is read."""
    if not tensor._is_view():
        return False
    try:
        _ = tensor.grad_fn
    except RuntimeError:
        return True
    return False


def tensor_hooks(tensor: torch.Tensor) -> dict[str, dict[int, Any]]:
    """Kind -> the table of hooks on a tensor, by number of their handle. Changing an entry changes what is called."""
    tables = {"tensor hook": tensor._backward_hooks, "post-accumulate hook": tensor._post_accumulate_grad_hooks}
    return {kind: table for kind, table in tables.items() if table}


def global_module_hooks() -> dict[str, dict[int, Any]]:
    """Kind -> the table of hooks on all modules."""
    module, kinds = torch.nn.modules.module, ("forward_pre", "forward", "backward_pre", "backward")
    return {kind: table for kind in kinds if (table := getattr(module, f"_global_{kind}_hooks", None))}


def remove_global_hook(handle: Any) -> None:
    """Remove a hook on all modules, and its mark as one with keyword arguments, which torch forgets to take away."""
    handle.remove()
    marks = getattr(torch.nn.modules.module, "_global_forward_hooks_with_kwargs", {})
    marks.pop(getattr(handle, "id", None), None)


def no_subclass_functions() -> Any:
    """Context manager in which a tensor subclass does not hear of what is read from it."""
    return _C.DisableTorchFunctionSubclass()


def has_dispatch_mode() -> bool:
    """Whether a TorchDispatchMode would see the operations that a preview needs."""
    return _C._len_torch_dispatch_stack() > 0


def in_backward() -> bool:
    """Whether the autograd engine runs in this thread."""
    return _C._current_graph_task_id() != -1


def running_node() -> Node | None:
    """The node that the autograd engine runs in this thread."""
    return _C._current_autograd_node()


def is_traceable_wrapper_subclass(tensor: torch.Tensor) -> bool:
    """Whether ``tensor`` is a subclass that consists of other tensors and can name them."""
    utils: Any = torch.utils
    return utils._python_dispatch.is_traceable_wrapper_subclass(tensor)


def sparse_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Indices and values of a COO tensor as they are, summed up or not."""
    return tensor._indices(), tensor._values()


def operator(name: str) -> Any:
    """The overload ``name`` of an operator, such as ``aten._to_copy.default``; None where this release has none."""
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def can_decompose(operator: Any) -> bool:
    """Whether ``operator.decompose`` would run it as other operators."""
    return operator._can_decompose()


class FakeMode(FakeTensorMode):
    """Tensors with shapes and no data. ``copy.deepcopy`` of a module copies the mode of its parameters: it stays one."""

    def __deepcopy__(self, memo: dict[int, Any]) -> FakeMode:
        return self


def record_cuda_history(on: bool) -> None:
    """Switch the recording of the CUDA allocator's events, with Python stacks, on or off."""
    if on:
        torch.cuda.memory._record_memory_history(enabled="all", stacks="python", max_entries=200_000)
    else:
        torch.cuda.memory._record_memory_history(enabled=None)


def cuda_snapshot() -> dict[str, Any]:
    """Segments and recorded events of the CUDA allocator, as PyTorch's memory viewer reads them."""
    return dict(torch.cuda.memory._snapshot())


def profiler_events(profiler: Any) -> list[Any]:
    """Kineto's events of a ``torch.profiler.profile`` that is over; their names are methods."""
    session = profiler.profiler
    return [] if session is None or session.kineto_results is None else session.kineto_results.events()


def activity(event: Any) -> str:
    """Kineto's word for what one of ``profiler_events`` is. Before 2.12 an event does not say it; its other facts do."""
    if hasattr(event, "activity_type"):
        return event.activity_type()
    name, on_host = event.name(), event.device_type() == _C._autograd.DeviceType.CPU
    if event.is_user_annotation():
        return "user_annotation" if on_host else "gpu_user_annotation"
    if not on_host:
        return "gpu_memcpy" if name.startswith("Memcpy") else "gpu_memset" if name.startswith("Memset") else "kernel"
    if name == "[memory]":
        return "cpu_instant_event"
    return "cuda_runtime" if re.match(r"cu(da)?[A-Z]", name) else "cpu_op"
