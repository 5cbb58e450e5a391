"""A self-test for each capability that rests on private names of torch, and what follows when one fails.

``require("saved tensors", "versions")`` at the head of a run raises NotAvailableError: no number is shown rather than a
wrong one. ``missing("fake tensors")`` says why a part of a page is left out. Each test runs once a process, when it is
first asked for. Tests look through ``lab.torch_private``, as the instruments do.
"""

from __future__ import annotations

import copy
import inspect
import warnings
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.autograd.graph import Node
from torch.overrides import TorchFunctionMode

from lab import torch_private as private
from lab.contract import NotAvailableError


def require(*capabilities: str) -> None:
    """Raise NotAvailableError for the first of ``capabilities``, names of ``SELF_TESTS``, that this torch lacks."""
    for capability in capabilities:
        if why := missing(capability):
            raise NotAvailableError(why)


@cache
def missing(capability: str) -> str:
    """Why ``capability`` is not available with this torch, one sentence; empty when it is."""
    test = SELF_TESTS[capability]
    try:
        calm = warnings.catch_warnings(action="ignore")  # a warning of a release is no reason to refuse
        with calm, torch.enable_grad(), torch.inference_mode(False), torch.device("cpu"):
            test()
    except Exception as error:  # noqa: BLE001 - an unknown release may raise anything; the reason is shown
        reason = (
            f"{type(error).__name__}: {error}" if str(error) else f"its self-test ended with {type(error).__name__}"
        )
        name = capability[0].upper() + capability[1:]
        return f"{name} are not available with torch {torch.__version__}: {reason}"[:400]
    return ""


def _sample() -> tuple[torch.Tensor, Node]:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = torch.sigmoid(x)
    assert y.grad_fn is not None
    return y, y.grad_fn


def _saved_tensors() -> None:
    unpacked = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: unpacked.append(1) or t):
        y, node = _sample()
    slots = {slot: private.peek(packed) for slot, packed in private.saved_slots(node)}
    assert list(slots) == ["result"], f"sigmoid saved {list(slots)}"
    assert torch.equal(slots["result"], y.detach()), "sigmoid saved something else than its result"
    assert not unpacked, "reading a slot unpacked it"
    y, node = _sample()
    y.sum().backward()
    assert all(private.peek(packed) is None for _, packed in private.saved_slots(node)), "slots are full after backward"


def _versions() -> None:
    y, node = _sample()
    ((_, packed),) = private.saved_slots(node)
    before = private.version(private.peek(packed))
    y.mul_(2)
    after = private.version(private.peek(packed))
    assert (before, after) == (0, 1), f"an in-place write took the version from {before} to {after}"
    with torch.inference_mode():
        assert private.version(torch.ones(1)) is None, "an inference tensor has a version"


def _node_records() -> None:
    y, node = _sample()
    private.node_metadata(node)["lab"] = 7
    del node
    assert y.grad_fn is not None
    assert private.node_metadata(y.grad_fn).get("lab") == 7, "a node forgot what was noted on it"
    assert tuple(private.output_metadata(y.grad_fn)[0].shape) == (2,), "the shape of sigmoid's result is not known"
    leaf, _ = y.grad_fn.next_functions[0]
    assert leaf is not None
    assert private.is_leaf_node(leaf)
    assert not private.is_leaf_node(y.grad_fn)
    assert private.leaf_of(leaf).is_leaf


def _checkpoint_markers() -> None:
    from torch.utils.checkpoint import checkpoint

    calls = []
    x = torch.ones(2, requires_grad=True)
    run = inspect.unwrap(checkpoint)  # what wraps it would import the compiler, which takes seconds
    y = run(lambda t: calls.append(1) or t.sin(), x, use_reentrant=False)
    held = [private.peek(packed) for _, packed in private.saved_slots(y.grad_fn)]
    assert held, "a checkpoint left no slot"
    assert all(private.is_recomputed(one) for one in held), f"a checkpoint left {held}"
    assert len(calls) == 1, "looking at a checkpoint recomputed it"


def _storages() -> None:
    x, y = torch.zeros(2), torch.zeros(2)
    assert private.storage_key(x) == private.storage_key(x[1:]), "a view and its base have two storages"
    assert private.storage_key(x) != private.storage_key(y), "two tensors have one storage"
    reference = private.storage_reference(y)
    assert (reference.cdata, reference.expired()) == (private.storage_key(y), False)
    del y
    assert reference.expired(), "a storage outlived its tensor"
    assert private.base(x[1:]) is x, "a view does not know its base"
    assert private.base(x) is None
    died = []
    watch = weakref.ref(x.untyped_storage(), died.append)
    view = x[1:]
    assert view.untyped_storage() is x.untyped_storage(), "a storage has two Python objects"
    del x
    assert not died, "a storage died while a view of it lived"
    del view
    assert died == [watch], "a storage outlived its last tensor"


def _custom_functions() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return 2 * x

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return 2 * g

    seen, apply = [], torch.autograd.Function.__dict__["apply"]
    x = torch.ones(1, requires_grad=True)
    with private.CustomFunctions(lambda *call: seen.append(call)):
        y = Twice.apply(x)
    assert torch.autograd.Function.__dict__["apply"] is apply, "Function.apply is not put back"
    assert len(seen) == 1, f"one call of a Function was seen {len(seen)} times"
    assert seen[0] == (Twice, (x,), y)
    assert y.item() == 2, f"a watched Function gave {y.item()} for 2"
    assert private.is_custom(y.grad_fn), "a Function in Python is taken for one of torch"
    assert not private.is_custom(_sample()[1]), "sigmoid is taken for a Function in Python"


def _data_reads() -> None:
    asked = []

    class Asked(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            asked.append("data" if func == private.GET_DATA else "set" if func == private.SET_GRAD else "")
            return func(*args, **(kwargs or {}))

    x = torch.ones(1)
    with Asked():
        _ = x.data, x.grad
        x.grad = None
    assert asked == ["data", "", "set"], f"reads of data and grad, and grad = None, were told as {asked}"


def _quiet_subclasses() -> None:
    heard = []

    class Listening(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            heard.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    tensor = torch.ones(1).as_subclass(Listening)
    heard.clear()
    with private.no_subclass_functions():
        assert not tensor.requires_grad
    assert not heard, "a subclass heard that it was looked at"


def _function_transforms() -> None:
    seen = []
    torch.func.vmap(lambda t: seen.append(private.is_wrapped(t)) or t)(torch.ones(1))
    assert seen == [True], "vmap is not seen"
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: seen.append(private.is_wrapped(g)))
    torch.autograd.grad(y, x, torch.eye(2), is_grads_batched=True)
    assert seen == [True, True], "batched gradients are not seen"
    assert not private.is_wrapped(x), "a plain tensor is taken for a wrapped one"


def _mode_stacks() -> None:
    assert not private.has_dispatch_mode(), "a dispatch mode is told where there is none"
    with private.TorchDispatchMode():
        assert private.has_dispatch_mode(), "a dispatch mode is not told"


def _dispatch_modes() -> None:
    seen = []

    class Seeing(private.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Seeing():
        torch.ones(2).add(1).double().sum().item()
    names = [func.__name__ for func in seen]
    assert names == ["ones.default", "add.Tensor", "_to_copy.default", "sum.default", "_local_scalar_dense.default"], (
        names
    )
    assert seen[2] is private.operator("aten._to_copy.default")
    assert seen[4] is private.operator("aten._local_scalar_dense.default")
    assert not private.can_decompose(seen[1]), "an addition is taken for a composite operation"
    assert private.can_decompose(private.operator("aten.linear.default")), "linear is taken for a single operation"


def _tensor_parts() -> None:
    assert not private.is_traceable_wrapper_subclass(torch.ones(1)), "a plain tensor is taken for a wrapper"
    indices, values = private.sparse_parts(torch.eye(2).to_sparse())
    assert (tuple(indices.shape), tuple(values.shape)) == ((2, 2), (2,)), "a sparse tensor has other parts"


def _engine_hooks() -> None:
    seen = []
    x = torch.ones(2, requires_grad=True)
    y = torch.sigmoid(x)
    x.register_post_accumulate_grad_hook(lambda t: seen.append((private.in_backward(), private.running_node())))
    assert not private.in_backward(), "the engine is said to run where it does not"
    y.sum().backward()
    told = [(inside, node is not None and private.is_leaf_node(node)) for inside, node in seen]
    assert told == [(True, True)], "the node that the engine runs is not known"


def _engine_runs() -> None:
    seen = []

    def around(roots: Any, arguments: tuple[Any, ...], engine: Callable[[], Any]) -> Any:
        seen.append((len(roots), *arguments[1:3]))
        return engine()

    y, _ = _sample()
    with private.EngineRuns(around):
        torch.autograd.backward(torch.autograd.graph.get_gradient_edge(y), torch.ones(2), retain_graph=True)
        torch.autograd.grad(y.sum(), y, create_graph=True)
    assert seen == [(1, True, False), (1, True, True)], f"two runs were seen as {seen}"


def _fake_tensors() -> None:
    with private.FakeMode() as mode:
        assert copy.deepcopy(mode) is mode
        linear = torch.nn.Linear(3, 2)
        y = linear(torch.ones(4, 3))
        assert isinstance(y, private.FakeTensor)
        assert tuple(y.shape) == (4, 2), f"(4, 3) through Linear(3, 2) has shape {tuple(y.shape)}"
        y.sum().backward()
        try:
            y.sum().item()
        except private.DataDependentOutputException:
            return
        finally:
            assert linear.weight.grad is not None
    raise AssertionError("a tensor without data gave a value")


def _allocation_events() -> None:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        kept = torch.zeros(1000)
        address = kept.data_ptr()
        del kept
    sizes = [event.bytes for event in private.allocator_events(profiler)[0] if event.address == address]
    assert sizes == [4000, -4000], f"4,000 bytes taken and given back were seen as {sizes}"


def _engine_sums() -> None:
    """A gradient that two readers send is the engine's alone; one that the program keeps is not."""
    seen = []

    class Seeing(private.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.add.Tensor:
                seen.append((private.called_by_engine(1), private.engine_alone_holds(args)))
            return func(*args, **(kwargs or {}))

    def twice(keep: list[Any]) -> None:
        x = torch.ones(2, requires_grad=True)
        y = torch.sigmoid(x)
        first, second = y.sin(), y.cos()
        node = second.grad_fn
        assert node is not None
        node.register_hook(lambda to_inputs, _: keep.append(to_inputs) if keep else None)
        with Seeing():
            torch.stack((first, second)).backward(torch.ones(2, 2))

    runs: list[Any] = []

    def around(roots: Any, engine: Callable[[], Any]) -> Any:
        runs.append(len(private.feeders(roots)))
        return engine()

    private.listen_to_engine(around)
    try:
        twice([])
        twice([None])
    finally:
        private.stop_listening_to_engine(around)
    assert seen == [(True, True), (True, False)], f"sums of gradients were seen as {seen}"
    assert runs == [2, 2], f"of the nodes {runs} send a gradient to a place with several"


def _profiler_events() -> None:
    from torch.profiler import ProfilerActivity, profile, record_function

    x = torch.ones(2, 3, requires_grad=True)
    with (
        profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True) as profiler,
        record_function("lab"),
    ):
        (x @ x.t()).sum().backward()
    events = private.profiler_events(profiler)
    assert private.activity(next(e for e in events if e.name() == "lab")) == "user_annotation"
    product = next(e for e in events if e.name() == "aten::mm")
    assert private.activity(product) == "cpu_op"
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
    assert any(private.activity(e) == "cpu_instant_event" and e.nbytes() == 16 for e in events)


def _cuda_allocator_records() -> None:
    """Without a device only that the names are there."""
    memory: Any = torch.cuda.memory
    assert callable(memory._record_memory_history)
    assert callable(memory._snapshot)
    if not torch.cuda.is_available():
        return
    private.record_cuda_history(True)
    try:
        kept = torch.zeros(1000, device="cuda")
        address = kept.data_ptr()
        taken = [e for trace in private.cuda_snapshot()["device_traces"] for e in trace if e["action"] == "alloc"]
        assert any((e["addr"], e["size"]) == (address, 4000) for e in taken), "an allocation is not in the records"
    finally:
        private.record_cuda_history(False)


def _hook_tables() -> None:
    x, calls = torch.ones(2, requires_grad=True), []
    handle = x.register_hook(calls.append)
    x.register_post_accumulate_grad_hook(lambda leaf: calls.append(leaf))
    table = private.tensor_hooks(x)["tensor hook"]
    assert list(table) == [handle.id], "the table of a tensor's hooks has other numbers"
    table[handle.id] = lambda gradient: 2 * gradient
    x.sum().backward()
    assert len(calls) == 1, "a changed entry is not what the engine calls"
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0], "a changed entry is not what the engine calls"
    on_all = torch.nn.modules.module.register_module_forward_hook(lambda *given: None)
    assert on_all.id in private.global_module_hooks()["forward"], "hooks on all modules are in another table"
    private.remove_global_hook(on_all)


SELF_TESTS: dict[str, Callable[[], None]] = {
    "saved tensors": _saved_tensors,
    "versions": _versions,
    "node records": _node_records,
    "checkpoint markers": _checkpoint_markers,
    "storages": _storages,
    "custom functions": _custom_functions,
    "data reads": _data_reads,
    "quiet subclasses": _quiet_subclasses,
    "function transforms": _function_transforms,
    "mode stacks": _mode_stacks,
    "dispatch modes": _dispatch_modes,
    "tensor parts": _tensor_parts,
    "engine hooks": _engine_hooks,
    "engine runs": _engine_runs,
    "hook tables": _hook_tables,
    "fake tensors": _fake_tensors,
    "profiler events": _profiler_events,
    "allocation events": _allocation_events,
    "engine sums": _engine_sums,
    "CUDA allocator records": _cuda_allocator_records,
}
"""Capability, in the plural, and its test."""
