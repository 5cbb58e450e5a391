"""One call of the model and one backward, as brackets that open and close, with every hook between them.

NOTE How the order is recorded.
1. The program has ended. Each of its hooks is replaced in torch's own table by one that notes the moment and calls it;
   the tables keep their order, and everything is put back afterwards.
2. ``__call__`` and ``forward`` of each module note when they open and close. Nothing else is added for the program's own hooks.
3. Probes are hooks of every kind on every module, put there by torch's own functions, behind those of the program.
4. What a hook changed is read from the 2-norm, shape and version of what it was given, before and after, and from what it returned.
5. Full backward hooks make views of inputs and outputs. Where that makes a model refuse an in-place layer, the pass is
   repeated without probes of this kind, and that is said.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from lab import torch_private
from lab.experiments.module_anatomy.census import Census, vars_of
from lab.experiments.module_anatomy.watch import HOOKS, TENSOR_HOOKS, ModuleWatch
from lab.instruments.describing.names import class_name
from lab.program.own_model import first_tensor
from lab.records.anatomy import Event, HookRow

MOST_EVENTS, MOST_PROBED = 3000, 60
_TABLES = dict(
    zip(("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks"), HOOKS.values(), strict=True)
)
_FORWARD, _BACKWARD = (
    ("forward pre-hook", "forward hook"),
    ("full backward pre-hook", "full backward hook", "tensor hook", "post-accumulate hook"),
)
PROBED = {"all": (*_FORWARD, *_BACKWARD), "forward": _FORWARD, "backward": _BACKWARD, "the program's own": ()}


_NEVER_PROBED = (nn.ModuleList, nn.ModuleDict, torch.jit.ScriptModule)
"""Modules that are not called, and compiled ones, which take no hooks."""


@dataclass
class Brackets:
    """What was recorded."""

    events: tuple[Event, ...] = ()
    why_not: str = ""
    note: str = ""
    """Which probes were left out, and why."""
    skipped: int = 0
    """Hooks of the outermost module that did not run because its forward was called by name."""
    fired: Counter[tuple[str, str, int | None, int]] = field(default_factory=Counter)

    def counted(self, hooks: tuple[HookRow, ...]) -> tuple[HookRow, ...]:
        return tuple(replace(hook, fired=self.fired[hook.path, hook.kind, hook.line, hook.number]) for hook in hooks)


def record_brackets(subject: Any, census: Census) -> Brackets:
    """Call ``subject.model`` as ``subject.params`` say and run a backward from the mean square of its output."""
    kinds = PROBED[subject.params.hook_kinds]
    found = _once(subject, census, kinds)
    if found.why_not and "full backward hook" in kinds:
        without = tuple(kind for kind in kinds if not kind.startswith("full backward"))
        again = _once(subject, census, without)
        if not again.why_not:
            again.note = f"Without probes on full backward: with them torch refuses this model ({found.why_not[:120]})."
            return again
    return found


def _once(subject: Any, census: Census, kinds: tuple[str, ...]) -> Brackets:
    recording = _Recording(census, subject.watch, kinds)
    by_name = subject.params.call == "model.forward(x)"
    inputs = [_fresh(value) for value in subject.inputs]
    found = Brackets()
    with contextlib.ExitStack() as stack:
        try:
            recording.enter(stack, inputs)
            with torch.enable_grad():
                output = subject.model.forward(*inputs) if by_name else subject.model(*inputs)
                result = first_tensor(output)
                if "tensor hook" in kinds and result.requires_grad:
                    result.register_hook(functools.partial(recording.probe, "tensor hook", "output", ""))
                recording.phase = "backward"
                if result.requires_grad:
                    result.square().mean().backward()
        except Exception as error:  # noqa: BLE001 - the visitor's model may raise anything, and is told what
            found.why_not = f"{type(error).__name__}: {str(error)[:200]}"
    found.events, found.fired = tuple(recording.events[:MOST_EVENTS]), recording.fired
    if kinds and recording.probed > MOST_PROBED:
        found.note = f"Probes are on the first {MOST_PROBED} of {recording.probed} modules."
    if by_name:
        own = vars_of(subject.model)
        found.skipped = sum(len(own.get(table, ())) for table in ("_forward_pre_hooks", "_forward_hooks"))
    return found


def _fresh(value: Any) -> Any:
    """Inputs with a gradient of their own, so that the backward reaches every module."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach().clone().requires_grad_(True)
    return value


class _Recording:
    """Notes events while the stack lives."""

    def __init__(self, census: Census, watch: ModuleWatch, kinds: tuple[str, ...]) -> None:
        self.events: list[Event] = []
        self.fired: Counter[tuple[str, str, int | None, int]] = Counter()
        self.phase: Any = "forward"
        self._census, self._watch, self._kinds = census, watch, kinds
        self._depth = self.probed = 0
        self._paths = {id(row.module): row for row in reversed(census.modules)}
        self._grads: list[tuple[torch.Tensor, Any]] = []

    def enter(self, stack: contextlib.ExitStack, inputs: list[Any]) -> None:
        leaves = [row for row in self._census.tensors if row.tensor.is_leaf and not is_lazy(row.tensor)]
        grads = [(row.tensor, row.tensor.grad) for row in leaves]
        stack.callback(lambda: [setattr(tensor, "grad", grad) for tensor, grad in grads])
        self._hook_into_tables(stack)
        probes = list(self._probes(inputs))
        stack.callback(lambda: [handle.remove() for handle in probes])
        self._brackets(stack)

    def note(self, path: str, kind: str, **parts: Any) -> None:
        if len(self.events) < MOST_EVENTS:
            self.events.append(Event(self.phase, path, kind, parts.pop("line", None), depth=self._depth, **parts))

    def _brackets(self, stack: contextlib.ExitStack) -> None:
        original = nn.Module.__call__

        @functools.wraps(original)
        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            with self._bracket(module, "call", args):
                return original(module, *args, **kwargs)

        nn.Module.__call__ = call
        stack.callback(setattr, nn.Module, "__call__", original)
        for row in self._census.modules:
            if not row.again and not isinstance(row.module, _NEVER_PROBED):
                self._wrap_forward(stack, row.module)

    def _wrap_forward(self, stack: contextlib.ExitStack, module: nn.Module) -> None:
        held = vars_of(module)
        before, inner = held.get("forward"), module.forward

        @functools.wraps(inner)
        def forward(*args: Any, **kwargs: Any) -> Any:
            with self._bracket(module, "forward", args):
                return inner(*args, **kwargs)

        held["forward"] = forward
        stack.callback(lambda: held.pop("forward", None) if before is None else held.__setitem__("forward", before))

    @contextlib.contextmanager
    def _bracket(self, module: nn.Module, kind: str, args: tuple[Any, ...]) -> Iterator[None]:
        row = self._paths.get(id(module))
        path, name = (row.path if row else "?"), class_name(type(module))
        line = row.line if row else None
        self.note(path, kind, mark="open", class_=name, shape=_shape(args), line=line)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            self.note(path, kind, mark="close", class_=name, line=line)

    def _hook_into_tables(self, stack: contextlib.ExitStack) -> None:
        for row in self._census.modules:
            if not row.again:
                for name, kind in _TABLES.items():
                    self._replace(
                        stack, vars_of(row.module).get(name, {}), kind, row.path, class_name(type(row.module))
                    )
        done: set[int] = set()
        for row in self._census.tensors:
            if id(row.tensor) not in done:
                done.add(id(row.tensor))
                for kind, table in torch_private.tensor_hooks(row.tensor).items():
                    self._replace(stack, table, kind, row.name, "")
        for name, table in torch_private.global_module_hooks().items():
            self._replace(stack, table, f"global {name.replace('_', ' ')} hook", "every module", "")

    def _replace(self, stack: contextlib.ExitStack, table: Any, kind: str, path: str, class_: str) -> None:
        seen: Counter[int | None] = Counter()
        for handle, function in list(table.items()):
            if str(getattr(function, "__module__", "")).startswith("torch."):
                continue
            known = self._watch.hook(handle)
            line = known.place.line if known else None
            table[handle] = functools.partial(self._call, function, (path, kind, line, seen[line]), class_)
            seen[line] += 1
            stack.callback(table.__setitem__, handle, function)

    def _call(
        self,
        function: Callable[..., Any],
        hook: tuple[str, str, int | None, int],
        class_: str,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """A hook of the program: what it was given, and what left it."""
        path, kind, line, _ = hook
        subject, given = _subject(kind, args), _leaves(_given(kind, args))
        before, versions = _norm(subject), [_version(value) for value in given]
        answer = function(*args, **kwargs)
        left = _leaves(_given(kind, args)) if kind == "post-accumulate hook" else given
        changed, after = "", _norm(subject)
        if kind == "post-accumulate hook":
            changed = "" if _alike(left, given) else "puts another .grad in place"
            after = _norm(_subject(kind, args))
        elif answer is not None and not _alike(_leaves(answer), given):
            changed, after = f"returns other {_WHAT.get(kind, 'values')}", _norm(_first(answer))
        if not changed and versions != [_version(value) for value in given]:
            changed = "writes in place"
        self.fired[hook] += 1
        self.note(
            path,
            kind,
            by="program",
            line=line,
            class_=class_,
            changed=changed,
            before=before,
            after=after,
            shape=_shape(subject),
        )
        return answer

    def probe(self, kind: str, path: str, class_: str, *args: Any) -> None:
        subject = _subject(kind, args)
        size = _norm(subject)
        self.note(path, kind, by="probe", class_=class_, before=size, after=size, shape=_shape(subject))

    def _probes(self, inputs: list[Any]) -> Iterator[Any]:
        rows = [r for r in self._census.modules if not r.again and not isinstance(r.module, _NEVER_PROBED)]
        self.probed = len(rows)
        for row in rows[:MOST_PROBED]:
            for name, kind in HOOKS.items():
                if kind in self._kinds:
                    register = getattr(row.module, name)
                    yield register(functools.partial(self.probe, kind, row.path, class_name(type(row.module))))
        leaves = {
            id(r.tensor): r
            for r in self._census.tensors
            if r.tensor.requires_grad and r.tensor.is_leaf and not is_lazy(r.tensor)
        }
        for row in list(leaves.values())[:MOST_PROBED]:
            for name, kind in TENSOR_HOOKS.items():
                if kind in self._kinds:
                    yield getattr(row.tensor, name)(functools.partial(self.probe, kind, row.name, ""))
        for number, value in enumerate(inputs):
            if isinstance(value, torch.Tensor) and value.requires_grad and "tensor hook" in self._kinds:
                yield value.register_hook(
                    functools.partial(self.probe, "tensor hook", f"input {number}" if len(inputs) > 1 else "input", "")
                )


_WHAT = {
    "forward pre-hook": "inputs",
    "forward hook": "output",
    "full backward pre-hook": "gradient of the output",
    "full backward hook": "gradient of the inputs",
    "tensor hook": "gradient",
}


def _subject(kind: str, args: tuple[Any, ...]) -> torch.Tensor | None:
    """What a hook of this kind may change: the last of its arguments that counts."""
    if not args:
        return None
    if kind == "post-accumulate hook":
        return args[0].grad
    at = {"full backward hook": 1, "global backward hook": 1}.get(kind, -1)
    return _first(args[at] if kind != "forward pre-hook" or len(args) < 3 else args[1])


def _given(kind: str, args: tuple[Any, ...]) -> Any:
    """All that a hook of this kind may change."""
    if kind == "post-accumulate hook":
        return args[0].grad
    if kind == "forward pre-hook":
        return args[1:]  # inputs, and with_kwargs the keywords
    return args[{"full backward hook": 1, "global backward hook": 1}.get(kind, -1)] if args else None


def _leaves(value: Any) -> list[Any]:
    """What lies in tuples, lists and dicts, in order."""
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in _leaves(item)]
    return [leaf for item in value.values() for leaf in _leaves(item)] if isinstance(value, dict) else [value]


def _alike(some: list[Any], others: list[Any]) -> bool:
    """The very same objects, in the same order."""
    return len(some) == len(others) and all(one is other for one, other in zip(some, others, strict=True))


def _first(value: Any) -> torch.Tensor | None:
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, (tuple, list)):
        return next((found for found in map(_first, value) if found is not None), None)
    if isinstance(value, dict):
        return _first(tuple(value.values()))
    return None


def _norm(value: torch.Tensor | None) -> float | None:
    if value is None or not value.is_floating_point() or value.is_meta:
        return None
    held = value.detach()
    held = held.coalesce().values() if held.layout is torch.sparse_coo else held
    return float(torch.linalg.vector_norm(held.double())) if held.layout is torch.strided else None


def _version(value: Any) -> int | None:
    return torch_private.version(value) if isinstance(value, torch.Tensor) else None


def _shape(value: Any) -> str:
    found = _first(value)
    return str(list(found.shape)) if found is not None else ""
