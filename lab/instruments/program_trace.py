"""What torch does while a program runs, operation by operation, with the line of the program that asked for it.

``ProgramTrace`` is a TorchFunctionMode. For each operation it remembers the nodes that were born, in-place writes, and
places where a result lost its graph. It sees ``backward`` and ``autograd.grad`` coming: the graph is walked and hooked
before the engine frees it.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.autograd.graph import Node as TorchNode
from torch.overrides import TorchFunctionMode

from lab.instruments import torch_private
from lab.instruments.backward_trace import BackwardTrace, SeenStep
from lab.instruments.graph_book import Graph, GraphBook, Seen
from lab.instruments.module_path import ModulePath
from lab.instruments.naming import Names, named_tensors, program_frames
from lab.instruments.preview import small_tensor

KEPT_PASSES = 20
_MOST_CUTS = 50
_ENGINE_CALLS = {
    torch.Tensor.backward: "backward",
    torch.autograd.backward: "torch.autograd.backward",
    torch.autograd.grad: "torch.autograd.grad",
}
_COPIES = {torch.tensor, torch.as_tensor, torch.asarray}
_LEAVES_TORCH = {"item", "tolist", "numpy", "__array__", "__float__", "__int__", "__bool__"}


@dataclass(eq=False, slots=True)
class SeenPass:
    """One engine run: its graph as walked just before, and its steps."""

    call: str
    by_lab: bool
    line: int | None
    graph: Graph
    root: Seen | None
    retain_graph: bool
    create_graph: bool
    kept_bytes_after: int = 0
    steps: list[SeenStep] = field(default_factory=list)
    cut: int = 0
    error: str = ""


@dataclass(eq=False, slots=True)
class SeenCut:
    operation: str
    reason: str
    line: int | None
    source: int
    """``id`` of the connected input; a name is looked up while it lives."""
    source_name: str = ""
    target: int = 0


class ProgramTrace(TorchFunctionMode):
    """Use as a context manager around the program. ``scope`` is the program's namespace."""

    def __init__(self, file: str, scope: Mapping[str, Any]) -> None:
        super().__init__()
        self.book = GraphBook()
        self.passes: deque[SeenPass] = deque(maxlen=KEPT_PASSES)
        self.passes_cut = 0
        self.cuts: list[SeenCut] = []
        self.last: GradientEdge | None = None
        """Edge of the last differentiable result. The tensor itself is not held."""
        self.broken: Exception | None = None
        """First fault of the instrument itself. The program went on; what was recorded is incomplete."""
        self.file, self.scope = file, scope
        self._modules = ModulePath()
        self._custom = torch_private.CustomFunctions(self._applied)

    def __enter__(self) -> ProgramTrace:
        self._modules.__enter__()
        self._custom.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._custom.__exit__()
        self._modules.__exit__()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _ENGINE_CALLS:
            return self._engine_call(func, args, kwargs)
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name != "__get__" or func is _DATA:
            try:
                self._note(func, name, args, kwargs, result)
            except Exception as error:  # noqa: BLE001 - a fault of this instrument must not look like one of the program
                self.broken = self.broken or error
        return result

    def names(self) -> Names:
        """The program's names for tensors as of now."""
        return Names(self.named())

    def named(self) -> Iterator[tuple[str, torch.Tensor]]:
        inner = [frame.f_locals for frame in program_frames(self.file) if frame.f_locals is not self.scope]
        return named_tensors([*inner, self.scope])

    # ---------------------------------------------------------------- operations

    def _note(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        line = _line(self.file)
        outputs = _tensors((result,))
        if _writes(name) or "out" in kwargs:
            written = _tensors((kwargs["out"],) if "out" in kwargs else args[:1])
            for tensor in written:
                self.book.writes.add(tensor, line, name)
            outputs = [*written, *(o for o in outputs if all(o is not w for w in written))]
            self._remember(outputs, line, in_place=True)
        else:
            self._remember(outputs, line, in_place=False)
        if line is not None and len(self.cuts) < _MOST_CUTS and not self._custom.running:
            self._note_cut(func, name, args, result, line)

    def _remember(self, outputs: list[torch.Tensor], line: int | None, *, in_place: bool) -> None:
        for tensor in outputs:
            if not tensor.requires_grad:
                continue
            node = tensor.grad_fn
            if node is None:
                leaf = self.book.leaf(tensor)
                leaf.line = leaf.line or line
                continue
            if self.book.born(node, lambda seen: self._birth(seen, line)):
                self._describe(node, tensor, in_place)
            base = torch_private.base(tensor) if in_place else None
            if base is not None and base.grad_fn is not None:
                self.book.born(base.grad_fn, lambda seen: self._birth(seen, line))
            self.last = GradientEdge(node, tensor.output_nr)

    def _birth(self, seen: Seen, line: int | None) -> None:
        seen.line, seen.module = line, self._modules.current()

    def _describe(self, node: TorchNode, tensor: torch.Tensor, in_place: bool) -> None:
        seen = self.book.see(node)
        seen.value = small_tensor(tensor)
        if seen.kind == "function":
            seen.kind = "in-place" if in_place else "view" if torch_private.base(tensor) is not None else "function"

    def _applied(self, result: Any) -> None:
        self._remember(_tensors((result,)), _line(self.file), in_place=False)

    def _note_cut(self, func: Any, name: str, args: tuple[Any, ...], result: Any, line: int) -> None:
        source = next((a for a in _tensors(args) if a.requires_grad), None)
        if source is None or not _called_by(self.file):
            return
        target = result if isinstance(result, torch.Tensor) else None
        reason = _cut_reason(func, name, target)
        if reason and (target is None or not target.requires_grad) and not _writes(name):
            cut = SeenCut(
                "data" if func is _DATA else name,
                reason,
                line,
                id(source),
                target=id(target) if target is not None else 0,
            )
            if all((c.operation, c.line) != (cut.operation, cut.line) for c in self.cuts):
                cut.source_name = self.names().of(source)
                self.cuts.append(cut)

    # ---------------------------------------------------------------- backward

    def _engine_call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        roots = args[0] if args else kwargs.get("outputs", kwargs.get("tensors"))
        edges = list(_edges(roots))
        if not edges:
            return func(*args, **kwargs)
        at = 3 if func is torch.autograd.grad else 2  # position of retain_graph; create_graph follows
        retain = kwargs.get("retain_graph", args[at] if len(args) > at else None)
        create = bool(kwargs.get("create_graph", args[at + 1] if len(args) > at + 1 else False))
        call = _ENGINE_CALLS[func]
        if func is torch.Tensor.backward:
            call = f"{self.names().of(args[0]) or 'tensor'}.backward"
        graph = self.walk([edge.node for edge in edges])
        recorded = self.record(
            call, graph, retain_graph=create if retain is None else bool(retain), create_graph=create
        )
        try:
            result = self._run(recorded, lambda: func(*args, **kwargs))
        finally:
            recorded.kept_bytes_after = self.book.read_slots(graph, self.names())
            graph.let_go()
        self._remember(_tensors((result,)), recorded.line, in_place=False)
        return result

    def record(
        self, call: str, graph: Graph, *, retain_graph: bool, create_graph: bool, by_lab: bool = False
    ) -> SeenPass:
        """Open a record for an engine run on a walked graph."""
        root = graph.nodes[0][0] if graph.nodes else None
        line = None if by_lab else _line(self.file)
        recorded = SeenPass(call, by_lab, line, graph, root, retain_graph, create_graph)
        self.passes_cut += len(self.passes) == KEPT_PASSES
        self.passes.append(recorded)
        return recorded

    def walk(self, roots: list[TorchNode]) -> Graph:
        """Walk from ``roots`` and give the nodes their names."""
        graph = self.book.walk(roots)
        graph.kept_bytes = self.book.read_slots(graph, self.names())
        self._name_nodes()
        return graph

    def _name_nodes(self) -> None:
        for name, tensor in self.named():
            seen = self.seen(tensor)
            if seen and name not in seen.variables:
                seen.variables.append(name)

    def is_plain(self, tensor: torch.Tensor) -> bool:
        """Whether looking at the tensor's graph is safe: no transform looks through it."""
        return not torch_private.is_wrapped(tensor)

    def seen(self, tensor: torch.Tensor) -> Seen | None:
        """What is known of the node that produced ``tensor``; None when it has no graph."""
        if not tensor.requires_grad or not self.is_plain(tensor):
            return None
        return self.book.leaf(tensor) if tensor.grad_fn is None else self.book.see(tensor.grad_fn)

    def run_by_lab(self, edge: GradientEdge, graph: Graph, call: str) -> None:
        """Run backward from a scalar that the program left without one, on its walked graph, which is kept."""
        recorded = self.record(call, graph, retain_graph=True, create_graph=False, by_lab=True)
        recorded.kept_bytes_after = graph.kept_bytes
        self._run(recorded, lambda: torch.autograd.backward((edge,), retain_graph=True))

    def _run(self, recorded: SeenPass, engine: Callable[[], Any]) -> Any:
        trace = BackwardTrace(recorded.graph)
        try:
            with trace:
                return engine()
        except BaseException as error:
            recorded.error = str(error)[:2000]
            raise
        finally:
            recorded.steps, recorded.cut = trace.steps, trace.cut


_DATA = torch.Tensor.data.__get__  # pyright: ignore[reportAttributeAccessIssue]


def _line(file: str) -> int | None:
    """The innermost line of the program on this thread's stack."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename == file:
            return frame.f_lineno
        frame = frame.f_back
    return None


def _called_by(file: str) -> bool:
    """Whether the program itself called the operation, not a module or an optimizer of torch on its behalf."""
    frame = sys._getframe(4)  # past this, _note_cut, _note and __torch_function__
    while frame is not None and frame.f_code.co_filename.endswith(("torch/overrides.py", "torch/_tensor.py")):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename == file


def _writes(name: str) -> bool:
    return name == "__setitem__" or (name.endswith("_") and not name.startswith("__"))


def _cut_reason(func: Any, name: str, target: torch.Tensor | None) -> str:
    if func is _DATA or name in ("detach", "detach_"):
        return "detach"
    if name in _LEAVES_TORCH:
        return "leaves torch"
    if target is None:
        return ""
    if func in _COPIES:
        return "copy"
    if torch.is_inference_mode_enabled():
        return "inference_mode"
    if not torch.is_grad_enabled():
        return "no_grad"
    return "" if target.is_floating_point() or target.is_complex() else "integer"


def _tensors(values: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors among ``values``, two levels of lists deep, without those of a ``torch.func`` transform."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(v for v in value if isinstance(v, torch.Tensor))
    return [tensor for tensor in found if not torch_private.is_wrapped(tensor)]


def _edges(roots: Any) -> Iterable[GradientEdge]:
    for root in roots if isinstance(roots, (list, tuple)) and not isinstance(roots, GradientEdge) else [roots]:
        if isinstance(root, GradientEdge):
            yield root
        elif isinstance(root, torch.Tensor) and root.requires_grad and not torch_private.is_wrapped(root):
            yield get_gradient_edge(root)
