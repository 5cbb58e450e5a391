"""What a program asked of whole models: loads, conversions, optimizers, forwards called by name."""

from __future__ import annotations

import contextlib
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from lab.records.anatomy import Conversion, Load

CONVERSIONS = ("to", "half", "double", "float", "bfloat16", "to_empty")
MOST_COPIED_BYTES = 64 << 20
"""Tensors of more are not copied to see whether a load changed them."""
MOST_NOTED = 50


@dataclass
class Made:
    """An optimizer, or the try to make one."""

    optimizer: torch.optim.Optimizer
    line: int | None
    refused: str = ""
    tops: list[weakref.ref[nn.Module]] = field(default_factory=list)
    """The outermost modules whose parameters it took."""

    def concerns(self, modules: set[int], tensors: set[int]) -> bool:
        """Whether it was made over one of these modules, or holds one of these tensors."""
        return any(id(top()) in modules for top in self.tops) or any(id(p) in tensors for p in held_by(self.optimizer))


@dataclass
class Direct:
    """A call of ``forward`` that the program writes out."""

    module: weakref.ref[nn.Module]
    class_: str
    line: int
    hooks: int
    times: int = 1


@dataclass
class Calls:
    """Filled while the program runs."""

    optimizers: dict[tuple[int, int] | None, Made] = field(default_factory=dict)
    loads: list[tuple[weakref.ref[nn.Module], Load]] = field(default_factory=list)
    conversions: list[tuple[weakref.ref[nn.Module], Conversion]] = field(default_factory=list)
    direct: dict[tuple[int, int], Direct] = field(default_factory=dict)
    _converting: int = 0

    def wrappers(
        self, place: Callable[[], Any], tops_of: Callable[[list[torch.Tensor]], list[Any]]
    ) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
        """(class, method, what stands around it)."""

        def made(original: Any, optimizer: Any, *args: Any, **kwargs: Any) -> None:
            at = place()
            note = self.optimizers[at.spot] = Made(optimizer, at.line)
            try:
                original(optimizer, *args, **kwargs)
                note.tops = tops_of(held_by(optimizer))
            except Exception as error:
                note.refused = str(error)[:300]
                raise

        def load(original: Any, module: Any, given: Any, *args: Any, **kwargs: Any) -> Any:
            line = place().line
            before = _state(module)
            try:
                answer = original(module, given, *args, **kwargs)
            except Exception as error:
                self._note_load(module, given, line, before, args, kwargs, str(error))
                raise
            self._note_load(module, given, line, before, args, kwargs, "")
            return answer

        yield torch.optim.Optimizer, "__init__", made
        yield nn.Module, "load_state_dict", load
        for name in CONVERSIONS:
            yield nn.Module, name, self._around_conversion(name, place)

    def _around_conversion(self, name: str, place: Callable[[], Any]) -> Callable[..., Any]:
        def convert(original: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
            line = place().line
            if self._converting or line is None or len(self.conversions) >= MOST_NOTED:
                return original(module, *args, **kwargs)
            self._converting += 1
            try:
                before, dtypes = _ties(module), _dtypes(module)
                answer = original(module, *args, **kwargs)
                with contextlib.suppress(Exception):
                    self._note_conversion(module, name, line, before, dtypes)
                return answer
            finally:
                self._converting -= 1

        return convert

    def _note_conversion(
        self, module: nn.Module, name: str, line: int, before: list[tuple[str, ...]], old: set[str]
    ) -> None:
        after = _ties(module)
        now = {id(p) for p in module.parameters()}
        holders = [m.optimizer for m in self.optimizers.values() if not m.refused]
        names = tuple(type(o).__name__ for o in holders if any(id(p) in now for p in held_by(o)))
        split = next((group for group in before if group not in after), ())
        dtypes = _dtypes(module)
        dtype = next(iter(dtypes)) if len(dtypes) == 1 and dtypes != old else ""
        noted = Conversion(
            line, name, type(module).__name__, len(before), len(after), split, (), dtype, optimizers=names
        )
        self.conversions.append((weakref.ref(module), noted))

    def _note_load(
        self,
        module: nn.Module,
        given: Any,
        line: int | None,
        before: dict[str, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        error: str,
    ) -> None:
        if line is None or len(self.loads) >= MOST_NOTED:
            return
        with contextlib.suppress(Exception):
            shapes = {key: tuple(held.shape) for key, (held, _) in before.items() if not is_lazy(held)}
            known = {key: value for key, value in dict(given).items() if isinstance(value, torch.Tensor)}
            misfits = tuple(k for k, v in known.items() if k in shapes and tuple(v.shape) != shapes[k])
            copied = all(copy is not None for _, copy in before.values())
            changed = sum(not _same(now, before[key][1]) for key, now in tensors_of(module) if key in before)
            strict = bool(args[0] if args else kwargs.get("strict", True))
            assign = bool(args[1] if len(args) > 1 else kwargs.get("assign", False))
            missing, unexpected = tuple(k for k in before if k not in given), tuple(k for k in given if k not in before)
            noted = Load(
                line, strict, assign, type(module).__name__, len(before), len(given), missing[:5000], unexpected[:5000],
                misfits, changed if copied else -1, error[:300], renamed=renaming(list(before), list(given)),
            )  # fmt: skip
            held = {id(value) for _, value in tensors_of(module)}
            olds = {id(held) for held, _ in before.values()}
            stale = sum(
                id(p) in olds and id(p) not in held for m in self.optimizers.values() for p in held_by(m.optimizer)
            )
            self.loads.append((weakref.ref(module), replace(noted, stale=stale)))

    def note_direct(self, module: nn.Module, line: int) -> None:
        key = id(module), line
        if key in self.direct:
            self.direct[key].times += 1
            return
        hooks = sum(len(vars(module).get(table, ())) for table in ("_forward_pre_hooks", "_forward_hooks"))
        self.direct[key] = Direct(weakref.ref(module), type(module).__name__, line, hooks)


def held_by(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Tensors in its groups; none where it was refused."""
    return [p for group in vars(optimizer).get("param_groups", ()) for p in group["params"]]


def tensors_of(module: nn.Module) -> list[tuple[str, torch.Tensor]]:
    """(key, the very tensor) as the state dict has them."""
    with contextlib.suppress(Exception):
        held = module.state_dict(keep_vars=True)
        return [(key, value) for key, value in held.items() if isinstance(value, torch.Tensor)]
    return []


def _state(module: nn.Module) -> dict[str, tuple[torch.Tensor, torch.Tensor | None]]:
    """key -> (the tensor, a copy of it while they are small together)."""
    held, copied = tensors_of(module), 0
    found: dict[str, tuple[torch.Tensor, torch.Tensor | None]] = {}
    for key, tensor in held:
        fits = not is_lazy(tensor) and not tensor.is_meta
        copied += tensor.numel() * tensor.element_size() if fits else 0
        found[key] = tensor, tensor.detach().clone() if fits and copied <= MOST_COPIED_BYTES else None
    return found


def _same(now: torch.Tensor, before: torch.Tensor | None) -> bool:
    return before is None or is_lazy(now) or same_bits(now, before)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal in dtype, shape and every bit: NaN equals NaN here."""
    if one.dtype != other.dtype or one.shape != other.shape or one.is_meta != other.is_meta:
        return False
    if one.is_meta or torch.equal(one.detach(), other.detach()):
        return True
    return torch.equal(
        one.detach().contiguous().flatten().view(torch.uint8), other.detach().contiguous().flatten().view(torch.uint8)
    )


def _dtypes(module: nn.Module) -> set[str]:
    """Of its floating-point parameters."""
    return {str(p.dtype).removeprefix("torch.") for p in module.parameters() if p.is_floating_point()}


def _ties(module: nn.Module) -> list[tuple[str, ...]]:
    """Names of each parameter that has several."""
    names: dict[int, list[str]] = defaultdict(list)
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names[id(parameter)].append(name)
    return [tuple(group) for group in names.values() if len(group) > 1]


def renaming(own: list[str], given: list[str]) -> str:
    """The prefix that all given names lack or have too much: ``module.`` or ``-module.``; empty where none makes most fit."""
    if not own or not given or set(own) & set(given):
        return ""
    for many, few, sign in ((given, own, ""), (own, given, "-")):
        names = set(few)
        for other in few[:3]:
            full = next((name for name in many if name.endswith(f".{other}")), None)
            prefix = full.removesuffix(other) if full else ""
            if prefix and sum(n.removeprefix(prefix) in names for n in many if n.startswith(prefix)) > len(few) / 2:
                return f"{sign}{prefix}"
    return ""
