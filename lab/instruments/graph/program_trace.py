"""What torch does while a program runs, operation by operation, with the line of the program that asked for it.

``ProgramTrace`` is a TorchFunctionMode. For each operation it remembers the nodes that were born, in-place writes, and
places where a result lost its graph. It sees ``backward`` and ``autograd.grad`` coming: the graph is walked and hooked
before the engine frees it.
"""

from __future__ import annotations

import linecache
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.autograd.graph import GradientEdge
from torch.autograd.graph import Node as TorchNode
from torch.overrides import TorchFunctionMode

from lab import torch_private
from lab.instruments.describing.lines import called_by, library_call, program_line
from lab.instruments.describing.modules import ModulePath
from lab.instruments.describing.names import Names, named_tensors, program_scopes
from lab.instruments.graph import engine_calls
from lab.instruments.graph.book import Graph, GraphBook, Seen
from lab.instruments.graph.cuts import CutLog
from lab.instruments.graph.engine_calls import PassLog, SeenPass
from lab.instruments.graph.events import OptimizerSteps
from lab.instruments.graph.recorder import HOOKS, Met, Recorder
from lab.instruments.graph.slopes import points_of
from lab.instruments.graph.tensor_log import Operation, State

MOST_KEPT_POINTS = 6
"""Applications of functions with a backward in Python whose large inputs are copied, to compare with differences."""
MOST_SPOKEN = 2_000
"""Names of contents that are remembered."""


class ProgramTrace(TorchFunctionMode):
    """Use as a context manager around the program. ``scope`` is the program's namespace, ``file`` its file name."""

    def __init__(self, file: str, scope: Mapping[str, Any]) -> None:
        super().__init__()
        self.book = GraphBook()
        self.passes = PassLog(self.own_look)
        self.cuts = CutLog()
        self.applied: list[tuple[type, Operation]] = []
        """Applications of a ``torch.autograd.Function``, the first of them."""
        self.custom_classes: dict[str, type] = {}
        """Classes of ``torch.autograd.Function`` that were applied, by the name of their nodes."""
        self._last: weakref.ref[torch.Tensor] | None = None
        self.broken: Exception | None = None
        """First fault of the instrument itself. The program went on; what was recorded is incomplete."""
        self.spoken: dict[int, tuple[str, State]] = {}
        """Contents that require gradients and had a name when a pass began, by number: the names of functions end with them."""
        self.ended_in: list[Mapping[str, Any]] = []
        """Variables of the functions in which the program ended, innermost first."""
        self._file, self._scope = file, scope
        self._modules = ModulePath()
        self._custom = torch_private.CustomFunctions(self._applied)
        self._engine = torch_private.EngineRuns(self._unannounced_run)
        self.recorder = Recorder(file, self.book, self._modules, self.names, self.own_look)
        self._steps = OptimizerSteps(self._stepping)
        self._in_engine = False

    def __enter__(self) -> ProgramTrace:
        self._modules.__enter__()
        self._custom.__enter__()
        self._engine.__enter__()
        self._steps.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._steps.__exit__()
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
        if name in _NO_OPERATION:
            return self._no_operation(func, name, args, kwargs)
        begun: tuple[Operation, Met] | None = None
        with torch_private.no_subclass_functions():  # own_look, written out: this is paid for every operation
            try:
                begun = self.recorder.begin(func, name, args, kwargs)
                for tensor, _ in begun[1]:
                    self._name_leaf(tensor)
            except Exception as error:  # noqa: BLE001 - a fault of the instrument is remembered, not raised
                self.broken = self.broken or error
        try:
            result = func(*args, **kwargs)
        except Exception as error:
            with self.own_look():
                if begun:
                    self.recorder.refused(*begun, error)
            raise
        if begun:
            with torch_private.no_subclass_functions():
                try:
                    self._note(*begun, args, result)
                except Exception as error:  # noqa: BLE001
                    self.broken = self.broken or error
        return result

    def _no_operation(self, func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Hooks, switches of the gradient mode and ``.grad = None``: seen, and passed on."""
        with self.own_look():
            if name in HOOKS and args and not torch_private.is_wrapped(args[0]):
                seen = self.recorder.hook(name, args[0], self.seen(args[0]))
                if name == "register_hook" and len(args) == 2 and callable(args[1]):
                    args = (args[0], self.recorder.watched(args[1], seen))
            elif name == "_set_grad_enabled":
                self.recorder.mode(bool(args[0]))
            elif (
                func == torch_private.SET_GRAD
                and len(args) == 2
                and args[1] is None
                and not torch_private.is_wrapped(args[0])
            ):
                self.recorder.cleared(args[0])
        return func(*args, **kwargs)

    def own_look(self) -> _OwnLook:
        """Context manager for everything that the instrument itself does while the program runs."""
        return _OwnLook(self)

    # Names: what the program calls its tensors.

    def named(self) -> Iterator[tuple[str, torch.Tensor]]:
        """(name, tensor) for what the program has a name for now, inner scopes first."""
        running = [*program_scopes(self._file), *self.ended_in]
        inner = [scope for scope in running if scope is not self._scope]
        named = named_tensors([*inner, self._scope])
        return ((name, tensor) for name, tensor in named if _is_ours(tensor))

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

    def seen_nodes(self) -> Iterator[Seen]:
        """Every node of the graphs of the passes that are kept."""
        return (seen for p in self.passes.kept for seen, _ in p.graph.nodes)

    def asks_for_gradients(self) -> bool:
        """Whether the program made anything require gradients."""
        return bool(self.book.leaves()) or any(tensor.requires_grad for _, tensor in self.named())

    def without_fast_path(self) -> list[str]:
        """Classes of modules whose fused path a function mode switches off."""
        return list(self._modules.without_fast_path)

    # Operations.

    def _note(self, call: Operation, met: Met, args: tuple[Any, ...], result: Any) -> None:
        written = [(t, use) for t, use in met if torch_private.version(t) != use.version and _is_ours(t)]
        tensors = [t for t, _ in written]
        made = [t for t in _tensors((result,)) if all(t is not w for w in tensors)]
        if call.func == torch_private.GET_DATA:
            self.book.storages.note_data(result)
        self.recorder.end(call, met, made, written, result)
        self._remember(tensors, call.line, in_place=True)
        self._remember(made, call.line, in_place=False)
        if call.line is not None and not written and not self._custom.running:
            source = next((t for t, _ in met if t.requires_grad), None)
            if source is not None and (call.module or called_by(self._file)):
                self.cuts.note(call, source, result, call.line, self.names)

    def _applied(self, function: type, args: tuple[Any, ...], result: Any) -> None:
        with self.own_look():
            call, met = self.recorder.begin(function, function.__name__, args, {})
            results = _tensors((result,))
            self.recorder.end(call, met, results, [], None)
            self._remember(results, call.line, in_place=False)
            if len(self.applied) < 20:
                self.applied.append((function, call))
            if len(self.applied) <= MOST_KEPT_POINTS:
                call.points = points_of(met)
            node = next((t.grad_fn for t in results if t.grad_fn is not None), None)
            if node is not None:
                self.custom_classes.setdefault(type(node).__name__, function)

    def _stepping(self, optimizer: torch.optim.Optimizer) -> None:
        with self.own_look():
            self.recorder.step(optimizer)

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
                self.book.see(node).state = self.recorder.tensors.state(tensor)
            base = torch_private.base(tensor) if in_place else None
            if base is not None and base.grad_fn is not None:  # a write through a view gives its base a new node
                self.book.born(base.grad_fn, birth)
            self._last = weakref.ref(tensor)

    def _describe(self, node: TorchNode, tensor: torch.Tensor, in_place: bool) -> None:
        seen = self.book.see(node)
        if seen.kind == "function":
            seen.kind = "in-place" if in_place else "view" if torch_private.base(tensor) is not None else "function"

    def last(self) -> torch.Tensor | None:
        """The last differentiable result, while the program holds it."""
        return self._last() if self._last else None

    # Backward.

    def walk(self, roots: Iterable[TorchNode]) -> Graph:
        """Walk from ``roots``, read the saved slots, and give the nodes their names."""
        graph = self.book.walk(roots)
        graph.kept_bytes = self.book.read_slots(graph, self.names())
        for name, tensor in self.named():
            seen = self.seen(tensor)
            if seen and name not in seen.variables:
                seen.variables.append(name)
            known = self.recorder.tensors.known(tensor) if seen and len(self.spoken) < MOST_SPOKEN else None
            if known is not None:
                self.spoken.setdefault(known.number, (name, known))
        return graph

    def run_by_lab(self, edge: GradientEdge, graph: Graph, call: str) -> None:
        """Run backward from a scalar that the program left without one, on its walked graph, which is kept."""
        opened = SeenPass(call, True, None, graph, retain_graph=True, create_graph=False)
        opened.kept_bytes_after = graph.kept_bytes
        self.passes.run(opened, lambda: torch.autograd.backward((edge,), retain_graph=True))

    def _engine_call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        opened, begun = None, None
        with self.own_look():
            opened = self._open(func, args, kwargs)
            begun = None if opened else self.recorder.begin(func, engine_calls.CALLS[func], args, kwargs)
        if opened is not None:
            return self._run_engine(opened, lambda: func(*args, **kwargs))
        try:
            return func(*args, **kwargs)
        except Exception as error:
            with self.own_look():
                if begun:
                    self.recorder.refused(*begun, error)
            raise

    def _unannounced_run(self, roots: Any, arguments: tuple[Any, ...], engine: Callable[[], Any]) -> Any:
        """A run of the engine that came as no torch function: its roots are gradient edges."""
        edges = [] if self._in_engine else list(engine_calls.edges(roots))
        if not edges:
            return engine()
        opened = None
        with self.own_look():
            _, retain, create, *_ = arguments
            opened = self._opened("backward", edges, retain, create)
        return engine() if opened is None else self._run_engine(opened, engine)

    def _run_engine(self, opened: SeenPass, engine: Callable[[], Any]) -> Any:
        self._in_engine = True
        try:
            result = self.passes.run(opened, engine)
        finally:
            self._in_engine = False
            with self.own_look():
                by = (opened.call, opened.line, opened.moment)
                opened.kept_bytes_after = self.book.read_slots(opened.graph, self.names(), by)
                opened.graph.let_go()
        with self.own_look():
            self._returned(opened, _tensors((result,)))
        return result

    def _returned(self, opened: SeenPass, gradients: list[torch.Tensor]) -> None:
        """Gradients that ``autograd.grad`` gave back are results of the roots and of what was asked about."""
        self._remember(gradients, opened.line, in_place=False)
        given = [t for t in (s.reference() for s in (*opened.roots, *(opened.inputs or ()))) if t is not None]
        call, met = self.recorder.begin(torch.autograd.grad, opened.call.rpartition(".")[2], tuple(given), {})
        self.recorder.end(call, met, gradients, [], None, forward=False)

    def _open(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SeenPass | None:
        """A record of the call of the engine that is about to happen; None when it has no graph."""
        edges, retain, create = engine_calls.arguments(func, args, kwargs)
        if not edges:
            return None
        call = engine_calls.CALLS[func]
        if func is torch.Tensor.backward:
            call = f"{self.names().of(args[0]) or self._written('backward') or 'tensor'}.backward"
        opened = self._opened(call, edges, retain, create)
        roots, inputs = engine_calls.tensors_of(func, args, kwargs)
        opened.roots = tuple(self.recorder.tensors.state(t) for t in roots)
        opened.inputs = None if inputs is None else tuple(self.recorder.tensors.state(t) for t in inputs)
        return opened

    def _written(self, method: str) -> str:
        """What stands before ``.method(`` on the line that is running; empty when that is long or not one expression."""
        text = linecache.getline(self._file, program_line(self._file) or 0)
        found = re.match(rf"\s*([\w.()\[\]*+/ -]{{1,40}})\.{method}\(", text)
        return found.group(1) if found else ""

    def _opened(self, call: str, edges: list[GradientEdge], retain: bool, create: bool) -> SeenPass:
        graph = self.walk(edge.node for edge in edges)
        line = program_line(self._file)
        opened = SeenPass(call, False, line, graph, retain_graph=retain, create_graph=create)
        opened.moment, opened.caller = self.recorder.tensors.moment, library_call(self._file)
        return opened


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


_NO_OPERATION = {
    "__set__",
    "_set_grad_enabled",
    "_record_function_enter_new",
    "_record_function_exit._RecordFunction",
} | HOOKS


def _tensors(values: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors among ``values``, two levels of lists deep, without those of a ``torch.func`` transform."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(v for v in value if isinstance(v, torch.Tensor))
    return [tensor for tensor in found if _is_ours(tensor)]


def _is_ours(tensor: torch.Tensor) -> bool:
    """Whether its graph can be asked for without disturbing a transform or raising."""
    return not torch_private.is_wrapped(tensor) and not torch_private.refuses_its_graph(tensor)
