"""The census and the marks as records."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from lab import torch_private
from lab.experiments.module_anatomy.calls import held_by
from lab.experiments.module_anatomy.census import Census, FoundModule, FoundTensor, Hanging, read_in_methods
from lab.experiments.module_anatomy.edits import assigned_anywhere, multiplied_list
from lab.experiments.module_anatomy.marks import Marks
from lab.experiments.module_anatomy.watch import HOOKS, MadeInForward, ModuleWatch
from lab.instruments.describing.names import class_name, vars_of
from lab.instruments.describing.values import dtype_name, shape_of
from lab.instruments.modes.scan import reads_training
from lab.records.anatomy import HookRow, OptimizerRow, Shared, TensorRow, TreeRow, Unregistered


class Numbers:
    """Small numbers for identities, in order of appearance."""

    def __init__(self) -> None:
        self._known: dict[Any, int] = {}

    def of(self, key: Any) -> int:
        return self._known.setdefault(key, len(self._known))


def tree_rows(census: Census, numbers: Numbers) -> tuple[TreeRow, ...]:
    return tuple(_tree_row(row, numbers) for row in census.modules)


def _tree_row(row: FoundModule, numbers: Numbers) -> TreeRow:
    own = [p for p in vars_of(row.module).get("_parameters", {}).values() if p is not None and not is_lazy(p)]
    return TreeRow(
        row.path, class_name(type(row.module)), row.line, row.depth, row.registered, numbers.of(id(row.module)),
        sum(p.numel() for p in own), row.set_line, bool(vars_of(row.module).get("training", True)),
    )  # fmt: skip


def tensor_rows(census: Census, marks: Marks | None, moved: dict[str, bool] | None) -> tuple[TensorRow, ...]:
    numbers, storages = Numbers(), Numbers()
    return tuple(_tensor_row(row, marks, moved, numbers, storages) for row in census.tensors)


def _tensor_row(
    row: FoundTensor, marks: Marks | None, moved: dict[str, bool] | None, numbers: Numbers, storages: Numbers
) -> TensorRow:
    tensor, at, known = row.tensor, id(row.tensor), marks or Marks()
    lazy = is_lazy(tensor)
    measured = marks is not None and bool(marks.gradient)
    gradient = known.gradient.get(at, "none") if measured else "not measured"
    trains = tensor.requires_grad and not row.kind.startswith("buffer")
    return TensorRow(
        name=row.name,
        kind=row.kind,
        shape=shape_of(tensor),
        dtype=dtype_name(tensor.dtype),
        bytes=0 if lazy else tensor.numel() * tensor.element_size(),
        line=row.place.line if row.place else None,
        moves=moved.get(row.name) if moved is not None else None,
        gradient=gradient,
        owned=at in known.owned if marks else None,
        changed=known.changed.get(at, False if at in known.gradient else None) if measured else None,
        saved=at in known.keys,
        reached=(at in known.reached) if marks and known.reached is not None and trains else None,
        identity=numbers.of(at),
        storage=storages.of(at if lazy or tensor.layout is not torch.strided else torch_private.storage_key(tensor)),
        owner=row.owner,
        requires_grad=tensor.requires_grad,
        keys=tuple(known.keys.get(at, ())),
        way=row.way,
        device=str(tensor.device),
        in_forward=bool(row.place and row.place.in_forward),
        computed=tensor.grad_fn is not None,
        gradient_norm=known.sizes.get(at),
    )


def unregistered_rows(census: Census, watch: ModuleWatch, code: str) -> tuple[Unregistered, ...]:
    found = [_unregistered(hanging) for hanging in census.hanging]
    found = [u if u.line else replace(u, line=assigned_anywhere(code, u.name)) for u in found]
    return (*found, *(_made(made) for made in watch.made.values() if _is_lost(made, census)))


def _unregistered(hanging: Hanging) -> Unregistered:
    tensors, at, owner = [row.tensor for row in hanging.tensors], hanging.place, type(hanging.owner.module)
    known = {id(t): t for t in tensors if not is_lazy(t)}
    what, alone = _what(hanging), tensors[0] if len(tensors) == 1 else None
    return Unregistered(
        path=hanging.path,
        line=at.line if at else None,
        repair=_REPAIRS[what].get(hanging.way, _REPAIRS[what][""]),
        owner=hanging.owner.path,
        owner_class=class_name(owner),
        name=hanging.name,
        way=hanging.way,  # pyright: ignore[reportArgumentType]
        what=what,  # pyright: ignore[reportArgumentType]
        tensors=len(tensors),
        elements=sum(t.numel() for t in known.values()),
        modules=len(hanging.modules),
        classes=tuple(dict.fromkeys(class_name(type(m)) for m in hanging.modules)),
        reads_mode=any(reads_training(type(part)) for m in hanging.modules for part in m.modules()),
        read_in_forward=read_in_methods(owner, hanging.name),
        in_forward=bool(at and at.in_forward),
        filled_later=bool(at and at.empty),
        trainable=any(t.requires_grad for t in tensors),
        shape=(shape_of(alone) or ()) if alone is not None else (),
        dtype=dtype_name(alone.dtype) if alone is not None else "",
    )


def _what(hanging: Hanging) -> str:
    if hanging.modules:
        return "modules"
    kinds, tensors = {row.kind for row in hanging.tensors}, [row.tensor for row in hanging.tensors]
    if "parameter that is not a leaf any more" in kinds:
        return "lost parameter"
    if any(t.grad_fn is not None for t in tensors):
        return "activation"
    return "parameters" if any(isinstance(t, torch.nn.Parameter) for t in tensors) else "tensor"


_REPAIRS: dict[str, dict[str, str]] = {
    "modules": {
        "list": "Put them into nn.ModuleList.",
        "dict": "Put them into nn.ModuleDict, with strings as keys.",
        "object": "Make the object an nn.Module, or give its layers to the module as attributes.",
        "class attribute": "Make them in __init__, as attributes of self.",
        "closure": "Give them to the module as attributes.",
        "global": "Give them to the module as attributes in __init__.",
        "": "Assign them as attributes of the module, after super().__init__().",
    },
    "parameters": {
        "list": "Put them into nn.ParameterList.",
        "dict": "Put them into nn.ParameterDict.",
        "": "Assign the Parameter as an attribute of the module.",
    },
    "tensor": {"": "register_buffer if it belongs to the state, nn.Parameter if it is to be trained."},
    "lost parameter": {"": "Convert the data first and wrap it last: nn.Parameter(data.double())."},
    "activation": {"": "Keep a detached copy, or return the tensor instead of keeping it."},
}


def _is_lost(made: MadeInForward, census: Census) -> bool:
    """Made while a forward ran, with parameters, and registered nowhere."""
    module = made.last.module() if made.last else None
    known = {id(row.module) for row in census.modules if row.registered}
    return bool(made.last and made.last.parameters) and module is not None and id(module) not in known


def _made(made: MadeInForward) -> Unregistered:
    module = made.last.module() if made.last else None
    elements = sum(p.numel() for p in module.parameters() if not is_lazy(p)) if module is not None else 0
    count = sum(1 for _ in module.parameters()) if module is not None else 0
    return Unregistered(
        path=f"{made.class_} made in forward", line=made.line, repair="Make it once, in __init__, as an attribute of self.",
        name=made.class_, way="made in forward", tensors=count, elements=elements, modules=1, classes=(made.class_,),
        read_in_forward=True, in_forward=True, times=made.times, trainable=True,
    )  # fmt: skip


def shared_rows(census: Census, code: str) -> tuple[Shared, ...]:
    """Objects under several names, then pieces of memory under several objects."""
    modules: dict[int, list[FoundModule]] = defaultdict(list)
    for row in census.modules:
        modules[id(row.module)].append(row)
    found = [_shared_module(rows, code) for rows in modules.values() if len(rows) > 1]
    inside = {id(row.module) for rows in modules.values() if len(rows) > 1 for row in rows}
    owners = {row.path: id(row.module) for row in census.modules}
    tensors: dict[int, list[FoundTensor]] = defaultdict(list)
    storages: dict[int, dict[int, FoundTensor]] = defaultdict(dict)
    numbers = Numbers()
    for row in census.tensors:
        tensors[id(row.tensor)].append(row)
        if not is_lazy(row.tensor) and row.tensor.layout is torch.strided and row.tensor.numel():
            key = numbers.of(torch_private.storage_key(row.tensor))
            storages[key].setdefault(id(row.tensor), row)
    for rows in tensors.values():
        if len({row.name for row in rows}) > 1 and not all(owners.get(row.owner) in inside for row in rows):
            found.append(_shared_tensor(rows))
    for number, rows in storages.items():
        if len(rows) > 1:
            names = tuple(row.name for row in rows.values())
            found.append(Shared(names, number, "memory", max(row.tensor.numel() for row in rows.values())))
    return tuple(found)


def _shared_module(rows: list[FoundModule], code: str) -> Shared:
    first = rows[0]
    elements = sum(p.numel() for p in first.module.parameters() if not is_lazy(p))
    lines = tuple(dict.fromkeys(row.set_line or row.line or 0 for row in rows))
    line = next((line for line in (first.line, *lines) if line and multiplied_list(code, line)), None)
    lines = (line,) if line else tuple(line for line in lines if line)
    return Shared(
        tuple(row.path for row in rows), 0, "module", elements, lines, line is not None, class_name(type(first.module))
    )


def _shared_tensor(rows: list[FoundTensor]) -> Shared:
    lines = tuple(dict.fromkeys(row.place.line for row in rows[::-1] if row.place and row.place.line))
    kind = "parameter" if isinstance(rows[0].tensor, torch.nn.Parameter) else "buffer"
    elements = 0 if is_lazy(rows[0].tensor) else rows[0].tensor.numel()
    return Shared(tuple(row.name for row in rows), 0, kind, elements, lines)


def optimizer_rows(census: Census, watch: ModuleWatch) -> tuple[OptimizerRow, ...]:
    known = {id(row.tensor): row for row in census.tensors}
    modules, made = {id(row.module) for row in census.modules}, list(watch.calls.optimizers.values())
    everyone = {id(p) for one in made for p in held_by(one.optimizer)}
    absent = tuple(
        dict.fromkeys(
            row.name
            for row in census.tensors
            if row.kind == "parameter" and row.tensor.requires_grad and id(row.tensor) not in everyone
        )
    )
    found = []
    for one in made:
        held, groups = held_by(one.optimizer), vars(one.optimizer).get("param_groups", ())
        of_ours = any(id(top()) in modules for top in one.tops)
        stale = sum(id(p) not in known for p in held) if of_ours else 0
        if one.refused or one.concerns(modules, set(known)):
            found.append(
                OptimizerRow(
                    type(one.optimizer).__name__,
                    one.line,
                    len(held),
                    stale,
                    absent[:5000],
                    _odd_state(one.optimizer),
                    one.refused,
                    tuple(float(group["lr"]) for group in groups if isinstance(group.get("lr"), (int, float))),
                )
            )
    return tuple(found)


def _odd_state(optimizer: torch.optim.Optimizer) -> tuple[str, ...]:
    """State in another floating-point format than its weights."""
    found = {}
    for p, state in list(vars(optimizer).get("state", {}).items()):
        for name, value in dict(state).items():
            floats = isinstance(value, torch.Tensor) and value.dim() and value.is_floating_point()
            if floats and p.is_floating_point() and value.dtype != p.dtype:
                found[f"{name} {dtype_name(value.dtype)} beside {dtype_name(p.dtype)}"] = None
    return tuple(found)


_TABLES = {
    "_forward_pre_hooks": HOOKS["register_forward_pre_hook"],
    "_forward_hooks": HOOKS["register_forward_hook"],
    "_backward_pre_hooks": HOOKS["register_full_backward_pre_hook"],
    "_backward_hooks": HOOKS["register_full_backward_hook"],
}


def hook_rows(census: Census, watch: ModuleWatch, numbers: Numbers) -> tuple[HookRow, ...]:
    """Hooks of the program that hang on a module or a leaf now."""
    found = []
    for row in census.modules:
        if not row.again:
            for table, kind in _TABLES.items():
                for handle, function in vars_of(row.module).get(table, {}).items():
                    if not str(getattr(function, "__module__", "")).startswith("torch."):
                        found.append(
                            _hook_row(
                                row.path, kind, handle, watch, len(census.paths(row.module)), numbers.of(id(row.module))
                            )
                        )
    for tensor in census.tensors:
        for kind, table in torch_private.tensor_hooks(tensor.tensor).items():
            found += [_hook_row(tensor.name, kind, handle, watch, 1, -1) for handle in table]
    seen: Counter[tuple[str, str, int | None]] = Counter()
    for i, hook in enumerate(found):
        found[i] = replace(hook, number=seen[hook.path, hook.kind, hook.line])
        seen[hook.path, hook.kind, hook.line] += 1
    return tuple(found)


def _hook_row(path: str, kind: str, handle: int, watch: ModuleWatch, names: int, identity: int) -> HookRow:
    known = watch.hook(handle)
    line, calls = (known.place.line, known.calls) if known else (None, 0)
    return HookRow(path, kind, line, names, 0, identity, calls_before=calls)
