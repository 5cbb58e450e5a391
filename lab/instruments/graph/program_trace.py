"""What torch does while a program runs, operation by operation, with the line of the program that asked for it.

``ProgramTrace`` is a TorchFunctionMode. For each operation it remembers the nodes that were born, in-place writes, and
places where a result lost its graph. It sees ``backward`` and ``autograd.grad`` coming: the graph is walked and hooked
before the engine frees it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.autograd.graph import GradientEdge
from torch.autograd.graph import Node as TorchNode
from torch.overrides import TorchFunctionMode

from lab import torch_private
from lab.instruments.describing.lines import called_by, program_line
from lab.instruments.describing.modules import ModulePath
from lab.instruments.describing.names import Names, named_tensors, program_scopes
from lab.instruments.describing.values import small_tensor
from lab.instruments.graph import engine_calls
from lab.instruments.graph.book import Graph, GraphBook, Seen
from lab.instruments.graph.cuts import CutLog
from lab.instruments.graph.engine_calls import PassLog, SeenPass


class ProgramTrace(TorchFunctionMode):
    """Use as a context manager around the program. ``scope`` is the program's namespace, ``file`` its file name."""

    def __init__(self, file: str, scope: Mapping[str, Any]) -> None:
        super().__init__()
        self.book = GraphBook()
        self.passes = PassLog(self.own_look)
        self.cuts = CutLog()
        self.last: GradientEdge | None = None
        """Edge of the last differentiable result. The tensor itself is not held."""
        self.broken: Exception | None = None
        """First fault of the instrument itself. The program went on; what was recorded is incomplete."""
        self._file, self._scope = file, scope
        self._modules = ModulePath()
        self._custom = torch_private.CustomFunctions(self._applied)
        self._engine = torch_private.EngineRuns(self._unannounced_run)
        self._in_engine = False

    def __enter__(self) -> ProgramTrace:
        self._modules.__enter__()
        self._custom.__enter__()
        self._engine.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._engine.__exit__()
        self._custom.__exit__()
        self._modules.__exit__()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._in_engine:
            return func(*args, **kwargs)
        if func in engine_calls.CALLS:
            return self._engine_call(func, args, kwargs)
        name = getattr(func, "__name__", "")
        if name == "__get__" and func != torch_private.GET_DATA:
            return func(*args, **kwargs)
        before: list[tuple[torch.Tensor, int | None]] = []
        with self.own_look():
            before = [(t, torch_private.version(t)) for t in _tensors((*args, *kwargs.values()))]
        result = func(*args, **kwargs)
        with self.own_look():
            for tensor, _ in before:
                self._name_leaf(tensor)
            written = [tensor for tensor, version in before if torch_private.version(tensor) != version]
            self._note(func, name, args, written, result)
        return result

    def own_look(self) -> _OwnLook:
        """Context manager for everything that the instrument itself does while the program runs."""
        return _OwnLook(self)

    # Names: what the program calls its tensors.

    def named(self) -> Iterator[tuple[str, torch.Tensor]]:
        """(name, tensor) for what the program has a name for now, inner scopes first."""
        inner = [scope for scope in program_scopes(self._file) if scope is not self._scope]
        named = named_tensors([*inner, self._scope])
        return ((name, tensor) for name, tensor in named if not torch_private.is_wrapped(tensor))

    def _name_leaf(self, tensor: torch.Tensor) -> None:
        if not tensor.requires_grad or tensor.grad_fn is not None or type(tensor) is not torch.Tensor:
            return
        leaf = self.book.leaf(tensor)
        if not leaf.first_name:
            scopes = [*program_scopes(self._file), self._scope]
            named = (name for scope in scopes for name, value in scope.items() if value is tensor)
            leaf.first_name = next(named, "leaf")

    def names(self) -> Names:
        """The program's names for tensors as of now."""
        return Names(self.named())

    def seen(self, tensor: torch.Tensor) -> Seen | None:
        """What is known of the node that produced ``tensor``; None when it has no graph."""
        if not tensor.requires_grad:
            return None
        return self.book.leaf(tensor) if tensor.grad_fn is None else self.book.see(tensor.grad_fn)

    # Operations.

    def _note(self, func: Any, name: str, args: tuple[Any, ...], written: list[torch.Tensor], result: Any) -> None:
        line = program_line(self._file)
        if func == torch_private.GET_DATA:
            self.book.storages.note_data(result)
        for tensor in written:
            self.book.storages.note_write(tensor, line, _WRITTEN.get(name, name))
        self._remember(written, line, in_place=True)
        self._remember([o for o in _tensors((result,)) if all(o is not w for w in written)], line, in_place=False)
        if line is not None and not written and not self._custom.running:
            source = next((tensor for tensor in _tensors(args) if tensor.requires_grad), None)
            if source is not None and called_by(self._file):
                self.cuts.note(func, name, source, result, line, self.names)

    def _applied(self, result: Any) -> None:
        with self.own_look():
            self._remember(_tensors((result,)), program_line(self._file), in_place=False)

    def _remember(self, outputs: list[torch.Tensor], line: int | None, *, in_place: bool) -> None:
        def birth(seen: Seen) -> None:
            seen.line, seen.module = line, self._modules.current()

        for tensor in outputs:
            if not tensor.requires_grad:
                continue
            node = tensor.grad_fn
            if node is None:
                leaf = self.book.leaf(tensor)
                leaf.line = leaf.line or line
                continue
            if self.book.born(node, birth):
                self._describe(node, tensor, in_place)
            base = torch_private.base(tensor) if in_place else None
            if base is not None and base.grad_fn is not None:  # a write through a view gives its base a new node
                self.book.born(base.grad_fn, birth)
            self.last = GradientEdge(node, tensor.output_nr)

    def _describe(self, node: TorchNode, tensor: torch.Tensor, in_place: bool) -> None:
        seen = self.book.see(node)
        seen.value = small_tensor(tensor)
        if seen.kind == "function":
            seen.kind = "in-place" if in_place else "view" if torch_private.base(tensor) is not None else "function"

    # Backward.

    def walk(self, roots: Iterable[TorchNode]) -> Graph:
        """Walk from ``roots``, read the saved slots, and give the nodes their names."""
        graph = self.book.walk(roots)
        graph.kept_bytes = self.book.read_slots(graph, self.names())
        for name, tensor in self.named():
            seen = self.seen(tensor)
            if seen and name not in seen.variables:
                seen.variables.append(name)
        return graph

    def run_by_lab(self, edge: GradientEdge, graph: Graph, call: str) -> None:
        """Run backward from a scalar that the program left without one, on its walked graph, which is kept."""
        opened = SeenPass(call, True, None, graph, retain_graph=True, create_graph=False)
        opened.kept_bytes_after = graph.kept_bytes
        self.passes.run(opened, lambda: torch.autograd.backward((edge,), retain_graph=True))

    def _engine_call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        opened = None
        with self.own_look():
            opened = self._open(func, args, kwargs)
        if opened is None:
            return func(*args, **kwargs)
        return self._run_engine(opened, lambda: func(*args, **kwargs))

    def _unannounced_run(self, roots: Any, arguments: tuple[Any, ...], engine: Callable[[], Any]) -> Any:
        """A run of the engine that came as no torch function: its roots are gradient edges."""
        edges = [] if self._in_engine else list(engine_calls.edges(roots))
        if not edges:
            return engine()
        opened = None
        with self.own_look():
            _, retain, create, *_ = arguments
            graph = self.walk(edge.node for edge in edges)
            opened = SeenPass(
                "backward", False, program_line(self._file), graph, retain_graph=retain, create_graph=create
            )
        return engine() if opened is None else self._run_engine(opened, engine)

    def _run_engine(self, opened: SeenPass, engine: Callable[[], Any]) -> Any:
        self._in_engine = True
        try:
            result = self.passes.run(opened, engine)
        finally:
            self._in_engine = False
            with self.own_look():
                opened.kept_bytes_after = self.book.read_slots(opened.graph, self.names())
                opened.graph.let_go()
        with self.own_look():
            self._remember(_tensors((result,)), opened.line, in_place=False)
        return result

    def _open(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SeenPass | None:
        """A record of the call of the engine that is about to happen; None when it has no graph."""
        edges, retain, create = engine_calls.arguments(func, args, kwargs)
        if not edges:
            return None
        call = engine_calls.CALLS[func]
        if func is torch.Tensor.backward:
            call = f"{self.names().of(args[0]) or 'tensor'}.backward"
        graph = self.walk(edge.node for edge in edges)
        return SeenPass(call, False, program_line(self._file), graph, retain_graph=retain, create_graph=create)


class _OwnLook:
    """Subclasses of the program do not hear of it, and a fault of the instrument is remembered, not raised."""

    def __init__(self, trace: ProgramTrace) -> None:
        self._trace, self._quiet = trace, torch_private.no_subclass_functions()

    def __enter__(self) -> None:
        self._quiet.__enter__()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        self._quiet.__exit__(kind, error, trace)
        if not isinstance(error, Exception):  # a time limit passes through
            return False
        self._trace.broken = self._trace.broken or error
        return True


_WRITTEN = {
    "__setitem__": "slice assignment",
    "__iadd__": "+=",
    "__isub__": "-=",
    "__imul__": "*=",
    "__idiv__": "/=",
    "__ifloordiv__": "//=",
    "__imod__": "%=",
    "__iand__": "&=",
    "__ior__": "|=",
    "__ixor__": "^=",
}
"""How a program writes an in-place operation that has no name."""


def _tensors(values: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors among ``values``, two levels of lists deep, without those of a ``torch.func`` transform."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(v for v in value if isinstance(v, torch.Tensor))
    return [tensor for tensor in found if not torch_private.is_wrapped(tensor)]
