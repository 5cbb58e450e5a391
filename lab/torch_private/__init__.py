"""Every private name of torch that the lab relies on, each with a self-test.

torch promises nothing about these names. ``broken()`` says which of them do not behave on this release, so that a page
says "not available with this version" instead of showing a wrong number.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import torch
from torch._C._functorch import is_functorch_wrapped_tensor, is_legacy_batchedtensor
from torch._C._profiler import _EventType
from torch._subclasses.fake_tensor import DataDependentOutputException as DataDependentOutputException
from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import Node
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
from torch.utils._python_dispatch import is_traceable_wrapper_subclass as is_traceable_wrapper_subclass

RAW = "_raw_saved_"
GET_DATA: Any = torch.Tensor.data.__get__  # pyright: ignore[reportAttributeAccessIssue]
"""What a TorchFunctionMode sees for ``tensor.data``; equal to it, not the same object."""


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


def node_metadata(node: Node) -> dict[str, Any]:
    """A dict that lives and dies with the node, for whoever wants to remember something about it."""
    return node.metadata  # pyright: ignore[reportReturnType]


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
    return StorageWeakRef(tensor.untyped_storage())


def is_wrapped(tensor: torch.Tensor) -> bool:
    """Whether a ``torch.func`` transform, or a batched ``autograd.grad``, is looking through this tensor."""
    return is_functorch_wrapped_tensor(tensor) or is_legacy_batchedtensor(tensor)


def no_subclass_functions() -> Any:
    """Context manager in which a tensor subclass does not hear of what is read from it."""
    return torch._C.DisableTorchFunctionSubclass()


def has_dispatch_mode() -> bool:
    """Whether a TorchDispatchMode would see the operations that a preview needs."""
    return torch._C._len_torch_dispatch_stack() > 0


def in_backward() -> bool:
    """Whether the autograd engine runs in this thread."""
    return torch._C._current_graph_task_id() != -1


def running_node() -> Node | None:
    """The node that the autograd engine runs in this thread."""
    return torch._C._current_autograd_node()


class FakeMode(FakeTensorMode):
    """Tensors with shapes and no data. ``copy.deepcopy`` of a module copies the mode of its parameters: it stays one."""

    def __deepcopy__(self, memo: dict[int, Any]) -> FakeMode:
        return self


def allocations(profile: torch.profiler.profile) -> list[tuple[int, int]]:
    """(address, signed bytes) of every allocation and release that a finished profile saw, in order of time.

    Read from the profiler's own tree, which needs no file.
    """
    found, todo = [], list(profile.profiler.kineto_results.experimental_event_tree())  # pyright: ignore
    while todo:
        event = todo.pop()
        todo.extend(event.children)
        if event.tag == _EventType.Allocation:
            fields: Any = event.typed[1]
            found.append((event.start_time_ns, fields.ptr, fields.alloc_size))
    return [(address, size) for _, address, size in sorted(found, key=lambda row: row[0])]


def record_cuda_history(on: bool) -> None:
    """Switch the recording of the CUDA allocator's events, with Python stacks, on or off."""
    if on:
        torch.cuda.memory._record_memory_history(enabled="all", stacks="python", max_entries=200_000)
    else:
        torch.cuda.memory._record_memory_history(enabled=None)


def cuda_snapshot() -> dict[str, Any]:
    """Segments and recorded events of the CUDA allocator, as PyTorch's memory viewer reads them."""
    return dict(torch.cuda.memory._snapshot())


class CustomFunctions:
    """Context manager that reports (class, arguments, result) of every ``Function.apply``, which no TorchFunctionMode sees."""

    def __init__(self, report: Callable[[type, tuple[Any, ...], Any], None]) -> None:
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
            report(cls, args, result)
            return result

        torch.autograd.Function.apply = classmethod(apply)  # pyright: ignore[reportAttributeAccessIssue]

    def __exit__(self, *error: object) -> None:
        torch.autograd.Function.apply = self._original


class EngineRuns:
    """Context manager that passes every run of the engine from Python through ``around(roots, arguments, engine)``.

    A TorchFunctionMode does not see the calls that have gradient edges instead of tensors.
    """

    def __init__(self, around: Callable[[Any, tuple[Any, ...], Callable[[], Any]], Any]) -> None:
        self._around = around
        self._module: Any = torch.autograd
        self._original = self._module._engine_run_backward

    def __enter__(self) -> None:
        def run(roots: Any, *args: Any, **kwargs: Any) -> Any:
            # args: gradients of the roots, retain_graph, create_graph, inputs
            return self._around(roots, args, partial(self._original, roots, *args, **kwargs))

        self._module._engine_run_backward = run

    def __exit__(self, *error: object) -> None:
        self._module._engine_run_backward = self._original


def profiler_events(profiler: Any) -> list[Any]:
    """Kineto's events of a ``torch.profiler.profile`` that is over; their names are methods."""
    session = profiler.profiler
    return [] if session is None or session.kineto_results is None else session.kineto_results.events()


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
    node_metadata(node)["lab"] = 7
    del node
    assert y.grad_fn is not None
    assert node_metadata(y.grad_fn)["lab"] == 7
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
    reference = storage_reference(y)
    assert (reference.cdata, reference.expired()) == (storage_key(y), False)
    del y
    assert reference.expired()
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


def _data_is_known() -> None:
    asked = []

    class Asked(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            asked.append(func == GET_DATA)
            return func(*args, **(kwargs or {}))

    x = torch.ones(1)
    with Asked():
        _ = x.data, x.grad
    assert asked == [True, False]


def _subclasses_hear_nothing() -> None:
    heard = []

    class Listening(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            heard.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    tensor = torch.ones(1).as_subclass(Listening)
    heard.clear()
    with no_subclass_functions():
        assert not tensor.requires_grad
    assert not heard


def _transforms_are_seen() -> None:
    seen = []
    torch.func.vmap(lambda t: seen.append(is_wrapped(t)) or t)(torch.ones(1))
    assert seen == [True]
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: seen.append(is_wrapped(g)))
    torch.autograd.grad(y, x, torch.eye(2), is_grads_batched=True)
    assert seen == [True, True]
    assert not is_wrapped(x)
    assert not has_dispatch_mode()


def _storages_die_with_their_last_tensor() -> None:
    died = []
    x = torch.zeros(2)
    reference = weakref.ref(x.untyped_storage(), died.append)
    view = x[1:]
    assert view.untyped_storage() is x.untyped_storage()
    del x
    assert not died
    del view
    assert died == [reference]


def _the_engine_is_seen() -> None:
    seen = []
    x = torch.ones(2, requires_grad=True)
    y = torch.sigmoid(x)
    x.register_post_accumulate_grad_hook(lambda t: seen.append((in_backward(), running_node())))
    assert not in_backward()
    y.sum().backward()
    assert [(inside, node is not None and is_leaf_node(node)) for inside, node in seen] == [(True, True)]


def _fake_tensors_have_shapes_only() -> None:
    with FakeMode() as mode:
        assert copy.deepcopy(mode) is mode
        linear = torch.nn.Linear(3, 2)
        y = linear(torch.ones(4, 3))
        assert isinstance(y, FakeTensor)
        assert tuple(y.shape) == (4, 2)
        y.sum().backward()
    assert linear.weight.grad is not None


def _dispatch_modes_see_operations() -> None:
    seen = []

    class Seeing(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    with Seeing():
        torch.ones(2).add(1)
    assert seen == ["ones.default", "add.Tensor"], seen


def _profiled_operations_are_read_in_memory() -> None:
    from torch.profiler import ProfilerActivity, profile

    x = torch.ones(2, 3, requires_grad=True)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True) as profiler:
        (x @ x.t()).sum().backward()
    events = profiler_events(profiler)
    product = next(e for e in events if e.name() == "aten::mm")
    assert product.activity_type() == "cpu_op"
    assert product.shapes() == [[2, 3], [3, 2]]
    assert product.dtypes() == ["float", "float"]
    assert product.concrete_inputs() == [None, None]
    assert product.correlation_id() > 0 == product.linked_correlation_id()
    assert not product.is_hidden_event()
    assert isinstance(product.start_thread_id() + product.fwd_thread_id() + product.device_resource_id(), int)
    assert isinstance(product.metadata_json(), str)
    assert 0 < product.duration_ns() < 10**10
    node = next(e for e in events if e.name() == "MmBackward0")
    assert node.sequence_nr() == product.sequence_nr() >= 0
    assert any(e.activity_type() == "cpu_instant_event" and e.nbytes() == 16 for e in events)


def _runs_of_the_engine_are_seen() -> None:
    seen = []

    def around(roots: Any, arguments: tuple[Any, ...], engine: Callable[[], Any]) -> Any:
        seen.append((len(roots), *arguments[1:3]))
        return engine()

    y, _ = _sample()
    with EngineRuns(around):
        torch.autograd.backward(torch.autograd.graph.get_gradient_edge(y), torch.ones(2), retain_graph=True)
        torch.autograd.grad(y.sum(), y, create_graph=True)
    assert seen == [(1, True, False), (1, True, True)], seen


SELF_TESTS: dict[str, Callable[[], None]] = {
    "saved tensors are read without unpacking": _slots_are_read_without_unpacking,
    "freed saved tensors are empty": _freed_slots_are_empty,
    "version counters count in-place writes": _versions_count_writes,
    "node metadata stays with the node": _metadata_stays_with_the_node,
    "checkpoint leaves a marker": _checkpoint_leaves_a_marker,
    "storages are told apart": _storages_are_told_apart,
    "Python functions are known": _functions_in_python_are_known,
    "torch.func transforms are seen": _transforms_are_seen,
    "storages die with their last tensor": _storages_die_with_their_last_tensor,
    "the engine is seen": _the_engine_is_seen,
    "fake tensors have shapes only": _fake_tensors_have_shapes_only,
    "dispatch modes see operations": _dispatch_modes_see_operations,
    "profiled operations are read in memory": _profiled_operations_are_read_in_memory,
    "tensor subclasses hear nothing": _subclasses_hear_nothing,
    "tensor.data is known": _data_is_known,
    "runs of the engine are seen": _runs_of_the_engine_are_seen,
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
