"""What the record of a run says about the error that ended it: the attribute behind a message that names something else."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lab.contract import Edit, Finding, Site
from lab.experiments.module_anatomy import edits
from lab.experiments.module_anatomy.words import counted, listed, renamed, site
from lab.records.anatomy import AnatomyResult, TensorRow, Unregistered


@dataclass(frozen=True)
class Cause:
    """Why a program ended, as far as this run shows it."""

    title: str
    text: str
    repair: str = ""
    sites: tuple[Site, ...] = ()
    edits: tuple[Edit, ...] = ()
    evidence: dict[str, Any] = field(default_factory=dict)

    def finding(self, line: int | None) -> Finding:
        return Finding(
            level="fault", title=self.title, text=self.text, evidence=self.evidence, line=line, repair=self.repair,
            sites=self.sites, edits=self.edits,
        )  # fmt: skip


Look = Callable[[AnatomyResult, "re.Match[str]", int | None], Cause | None]


def cause_of(result: AnatomyResult, kind: str, message: str, line: int | None) -> Cause | None:
    """The first look whose pattern is in the message and that finds something."""
    for pattern, look in _LOOKS:
        match = re.search(pattern, f"{kind}: {message}", re.DOTALL)
        found = look(result, match, line) if match else None
        if found:
            return found
    return None


def _empty_list(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
    hidden = [u for u in result.unregistered if u.trainable and u.what in ("modules", "parameters") and u.elements]
    if not hidden or result.parameter_count:
        return None
    first = hidden[0]
    return Cause(
        "Nothing is registered, so there is nothing to step",
        f"{first.path} holds {_contents(first)}, {first.elements:,} numbers, in {_container(first)}. nn.Module registers only "
        "modules and Parameters that are attributes of their own, so parameters() is empty.",
        first.repair,
        (*site(first.line, "not registered", first.path), *site(line, "fails here")),
        repair_of(result, first),
        {"numbers held": first.elements, "numbers registered": result.parameter_count},
    )


def _container(u: Unregistered) -> str:
    words = {"list": "a plain list or tuple", "dict": "a plain dict", "object": "an object that is no module"}
    return words.get(u.way, f"a {u.way}" if u.way != "attribute" else "a plain attribute")


def _contents(u: Unregistered) -> str:
    if u.modules:
        return f"{u.modules} {listed(u.classes)}"
    return counted(u.tensors, "tensor")


def repair_of(result: AnatomyResult, u: Unregistered) -> tuple[Edit, ...]:
    """The edit that registers what hangs there."""
    code = result.code
    if u.what == "modules" and u.way == "made in forward" and u.line:
        return edits.made_once(code, u.line)
    if u.what in ("modules", "parameters") and u.way in ("list", "dict"):
        kind = f"{'Module' if u.what == 'modules' else 'Parameter'}{'List' if u.way == 'list' else 'Dict'}"
        return edits.as_container(code, u.line, u.name, kind)
    if u.what == "tensor" and u.way == "attribute":
        return (edits.as_parameter if u.trainable else edits.as_buffer)(code, u.line, u.name)
    if u.what == "lost parameter":
        return edits.wrapped_last(code, u.line, u.name)
    return edits.detached(code, u.line, u.name) if u.what == "activation" and u.way == "attribute" else ()


def _name_taken(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
    name = match[1]
    plain = next((t for t in result.tensors if t.kind == "plain tensor" and t.name.split(".")[-1] == name), None)
    if plain and plain.line:
        return Cause(
            f"{name} is a plain attribute already",
            f"Line {plain.line} put a plain tensor under the name {name}; buffers live in a table of their own, and torch refuses a "
            "buffer whose name an attribute has. A Parameter in its place would have replaced the tensor without a word.",
            "Leave the plain assignment out, or give the buffer another name.",
            (*site(plain.line, "takes the name", name), *site(line, "fails here")),
            edits.without_line(result.code, plain.line, name),
            {"name": name},
        )
    if name in _METHODS:
        return Cause(
            f"{name} is a word of nn.Module",
            f"Names in a container of modules become attributes, and every nn.Module has a method or attribute called {name}. So this key "
            "would hide it.",
            f"Use another key, such as {name}_ or a prefix on all keys.",
            site(line, "fails here", name),
            (),
            {"name": name},
        )
    return None


_METHODS = frozenset(
    [
        "add_module",
        "apply",
        "bfloat16",
        "buffers",
        "call_super_init",
        "children",
        "clear",
        "compile",
        "cpu",
        "cuda",
        "double",
        "dump_patches",
        "eval",
        "extra_repr",
        "float",
        "forward",
        "get_buffer",
        "get_extra_state",
        "get_parameter",
        "get_submodule",
        "half",
        "ipu",
        "items",
        "keys",
        "load_state_dict",
        "modules",
        "mtia",
        "named_buffers",
        "named_children",
        "named_modules",
        "named_parameters",
        "parameters",
        "pop",
        "register_backward_hook",
        "register_buffer",
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_module",
        "register_parameter",
        "requires_grad_",
        "set_extra_state",
        "set_submodule",
        "share_memory",
        "state_dict",
        "to",
        "to_empty",
        "train",
        "training",
        "type",
        "update",
        "values",
        "xpu",
        "zero_grad",
    ]
)
"""What every nn.Module or nn.ModuleDict has under a name of its own."""


def _not_copied(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
    held = [t for t in result.tensors if t.computed] or _computed(result)
    if not held:
        return None
    first = held[0]
    if first.line is None and not first.kind.startswith("parameter that"):
        return _computed_by_torch(first, line)
    lost = first.kind.startswith("parameter that")
    why = (
        "It is the result of converting a Parameter"
        if lost
        else "A forward put it there, with the graph that made it"
        if first.in_forward
        else "It is the result of operations and carries their graph"
    )
    hanging = next((u for u in result.unregistered if first.name.startswith(u.path)), None)
    return Cause(
        f"{first.name} carries a graph",
        f"{first.name} is no leaf. {why}, which stays alive as long as the attribute does. A deep copy takes leaves only.",
        hanging.repair if hanging else "Keep t.detach() instead of t.",
        (*site(first.line, "kept here", first.name), *site(line, "fails here")),
        repair_of(result, hanging) if hanging else (),
        {"tensors with a graph": len(held)},
    )


def _computed_by_torch(first: TensorRow, line: int | None) -> Cause:
    return Cause(
        f"{first.name} is computed, and kept as an attribute",
        f"{first.name} is the result of operations and was put there by a hook of torch, as the weight_norm of old does before each call. A "
        "deep copy takes leaves only.",
        "Use torch.nn.utils.parametrizations.weight_norm, which keeps no result, or copy before the first call.",
        site(line, "fails here", first.name),
    )


def _computed(result: AnatomyResult) -> list[TensorRow]:
    return [t for t in result.tensors if not t.kind.startswith(("parameter", "buffer")) and t.computed]


def _lazy(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
    if not result.lazy:
        return None
    rows = [t for t in result.tensors if t.name in result.lazy and t.line]
    lines = tuple(dict.fromkeys(t.line for t in rows if t.line))[:2]
    return Cause(
        f"{counted(len(result.lazy), 'parameter')} without a shape yet",
        f"{listed(result.lazy)} {'is' if len(result.lazy) == 1 else 'are'} lazy: the first call of the model gives the shape. An optimizer may be built before, for the "
        "object stays the same; counting, and everything else that needs a shape, may not.",
        "Run one batch through the model before this line.",
        tuple(s for at in lines for s in site(at, "made without a shape")) + site(line, "fails here"),
        (),
        {"lazy parameters": len(result.lazy)},
    )


def _mixed_dtypes(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
    for conversion in result.conversions[::-1]:
        if conversion.left:
            name, dtype = conversion.left[0].split(" ")[0], conversion.left[0].partition("(")[2].rstrip(")")
            row = next((t for t in result.tensors if t.name == name), None)
            hanging = next((u for u in result.unregistered if name.startswith(u.path)), None)
            at = row.line if row else None
            others = (
                f" So did {listed(tuple(n.split(' ')[0] for n in conversion.left[1:]))}." if conversion.left[1:] else ""
            )
            return Cause(
                f"{name} stayed behind in {dtype}",
                f"{conversion.call}() on line {conversion.line} converted what is registered to {conversion.dtype}. {name} is not, so it is "
                f"{dtype} still.{others} Where it meets the others they are promoted to it, or the operation is refused, there or later.",
                hanging.repair if hanging else "Register it.",
                (
                    *site(at, "not registered", name),
                    *site(conversion.line, "converted here", before=dtype, after=conversion.dtype),
                    *site(line, "fails here"),
                ),
                _all_repairs(result, conversion.left) if hanging else (),
                {"left behind": len(conversion.left), "dtype": dtype, "of the model": conversion.dtype},
            )
    return None


def _all_repairs(result: AnatomyResult, left: tuple[str, ...]) -> tuple[Edit, ...]:
    """All of them together: one alone would leave the others behind."""
    names = {n.split(" ")[0] for n in left}
    hanging = [u for u in result.unregistered if any(n.startswith(u.path) for n in names)]
    found = [repair_of(result, u) for u in hanging]
    lines = [e.line for edit in found for e in edit]
    return tuple(e for edit in found for e in edit) if all(found) and len(set(lines)) == len(lines) else ()


def _mixed_devices(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
    homes = [t.device for t in result.tensors if t.kind == "parameter"]
    if not homes:
        return None
    home = max(set(homes), key=homes.count)
    away = [
        t
        for t in result.tensors
        if t.device != home and not t.kind.startswith(("parameter", "buffer")) and not t.in_forward
    ]
    if not away:
        return None
    first = away[0]
    hanging = next((u for u in result.unregistered if first.name.startswith(u.path)), None)
    return Cause(
        f"{first.name} is on {first.device}, the parameters are on {home}",
        f"Moving a module takes along what is registered. {first.name} is a plain tensor and stayed where it was made.",
        hanging.repair if hanging else "Register it as a buffer.",
        (*site(first.line, "not registered", first.name), *site(line, "fails here")),
        repair_of(result, hanging) if hanging else (),
        {"left behind": len(away)},
    )


def _before_init(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
    found = edits.super_first(result.code, line)
    if found is None:
        return None
    late, change = found
    return Cause(
        "nn.Module is not set up yet on this line",
        f"The tables for modules and parameters are made by super().__init__(), which {f'comes later, on line {late}' if late else 'this class never calls'}. A plain tensor "
        "before it would be kept without a word, as a plain attribute.",
        "Call super().__init__() first.",
        (*site(line, "fails here"), *site(late, "too late")),
        change,
        {},
    )


def _loading(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
    load = next((one for one in result.loads[::-1] if one.error and one.line == line), None)
    if load is None:
        return None
    parts, evidence = [], {"keys of the module": load.keys, "keys given": load.given}
    if load.mismatched:
        parts.append(
            f"{counted(len(load.mismatched), 'key')} with another shape, such as {load.mismatched[0]}: strict=False does not help there"
        )
    if load.missing or load.unexpected:
        parts.append(f"{len(load.missing)} missing and {len(load.unexpected)} unexpected")
    told = f"{'; '.join(parts)}. " if parts else ""
    told = told[:1].upper() + told[1:]
    if load.changed > 0:
        told += f"When the error was raised, {load.changed} of {load.keys} tensors had been overwritten already: the module is neither the old nor the new one."
        evidence["already changed"] = load.changed
    elif load.changed == 0:
        told += "Nothing was changed."
    change, repair = (), "Build the module with the settings it was saved with."
    if load.renamed:
        prefix = load.renamed.lstrip("-")
        if load.renamed.startswith("-"):
            repair = f"Put {prefix} in front of every key."
        else:
            repair = f"Take {prefix} off every key."
            change = edits.prefix_removed(result.code, load.line, prefix)
        told += f" {renamed(load)}"
    return Cause(
        "The state dict does not fit", told.strip(), repair, site(line, "fails here", load.module), change, evidence
    )


def _misspelt(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
    found = next((s for s in result.suspects if _concerns(s.meant, match[0])), None)
    if found is None:
        return None
    return Cause(
        f"{found.class_}.{found.name} is not {found.meant}",
        f"{found.class_} defines {found.name} on line {found.line}. Python and torch call {found.meant}; nothing calls {found.name}.",
        f"Rename {found.name} to {found.meant}.",
        (*site(found.line, "misspelt", found.name), *site(line, "fails here")),
        edits.renamed_method(result.code, found.line, found.name, found.meant),
        {},
    )


def _concerns(meant: str, text: str) -> bool:
    return meant == "forward" if "forward" in text else meant == "__init__"


def _holds_only(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
    kind = match[1]
    return Cause(
        f"A {kind} cannot be called",
        f"A {kind} registers what it holds and has no forward: in which order its parts run is for your forward to say.",
        "Loop over it, or use nn.Sequential." if kind == "ModuleList" else "Call one of its entries.",
        site(line, "fails here"),
    )


def _tensor_over_parameter(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
    name = match[1]
    return Cause(
        f"{name} is a parameter's name",
        "Once a name is registered as a parameter, only a Parameter or None may stand there: a plain tensor would be neither stepped nor saved.",
        "Wrap it: nn.Parameter(...); or write into the old one under torch.no_grad() with copy_.",
        site(line, "fails here", name),
        edits.as_parameter_value(result.code, line, name),
        {"name": name},
    )


def _integer_parameter(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
    if not re.search(r"Parameter\(", _line(result.code, line)):
        return None
    return Cause(
        "Integers have no gradient",
        "nn.Parameter asks for a gradient unless told otherwise, and integers have none.",
        "register_buffer keeps, saves and moves it; or nn.Parameter(..., requires_grad=False).",
        site(line, "fails here"),
    )


def _line(code: str, line: int | None) -> str:
    rows = code.split("\n")
    return rows[line - 1] if line and line <= len(rows) else ""


def _two_groups(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
    shared = next((s for s in result.shared if s.kind in ("parameter", "module")), None)
    if shared is None:
        return None
    return Cause(
        "One object under two names",
        f"{listed(shared.names)} {'are' if len(shared.names) > 1 else 'is'} one object, so it lies in both groups: it would be stepped twice.",
        "Collect each parameter once: {id(p): p for p in ...}.values().",
        (
            *site(next(iter(shared.lines), None), "made one here", listed(shared.names)),
            *site(line, "fails here"),
        ),
        (),
        {"names": len(shared.names)},
    )


def _no_leaf(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
    lost = next((u for u in result.unregistered if u.what == "lost parameter"), None)
    if lost is None:
        return None
    return Cause(
        f"{lost.path} is no parameter any more",
        f"Line {lost.line} converted a Parameter, and a conversion gives a new tensor with a history. The Parameter itself was dropped.",
        lost.repair,
        (*site(lost.line, "converted here", lost.path), *site(line, "fails here")),
        repair_of(result, lost),
        {},
    )


def _hooked_view(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
    hook = next((h for h in result.hooks if h.kind.startswith("full backward") and h.line), None)
    if hook is None:
        return None
    return Cause(
        f"The hook on {hook.path or 'the model'} made a view of what is overwritten",
        "A full backward hook hands the module views of its inputs and outputs, to see their gradients. The next operation writes into one "
        "in place, and torch refuses that.",
        "inplace=False in the layer that writes, or a hook on the tensor instead of the module.",
        (*site(hook.line, "hooked here", hook.path), *site(line, "fails here")),
    )


def _property(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
    class_, name = match[1], match[2]
    at = edits.property_line(result.code, class_, name)
    if at is None:
        return None
    return Cause(
        f"{name} is a property, and something inside it is missing",
        f"{class_} has the property {name}, line {at}. When its body raises AttributeError, Python asks nn.Module for the name instead, which knows "
        f"no {name} and says so. The attribute that is missing is one that the property reads.",
        "Look at what the property reads; call its body as a plain method to see the true message.",
        (*site(at, "raises inside", name), *site(line, "fails here")),
        (),
        {"property": name},
    )


def _dotted(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause:
    return Cause(
        "A dot separates levels",
        f"Names of parameters and modules are paths, layers.0.weight, so a {match[1]} cannot have a dot in its own name.",
        "Replace the dot, such as name.replace('.', '_').",
        site(line, "fails here"),
    )


_LOOKS: tuple[tuple[str, Look], ...] = (
    (r"optimizer got an empty parameter list", _empty_list),
    (r"attribute '([^']+)' already exists", _name_taken),
    (r"Only Tensors created explicitly by the user", _not_copied),
    (r"uninitialized parameter", _lazy),
    (r"same dtype|expected scalar type|have the same dtype|dtype", _mixed_dtypes),
    (r"same device|is on (cpu|cuda\S*|meta), but expected|not on the expected device|device", _mixed_devices),
    (r"before Module.__init__\(\) call", _before_init),
    (r"Error\(s\) in loading state_dict", _loading),
    (r"Module \[(ModuleList|ModuleDict)\] is missing the required", _holds_only),
    (r"is missing the required \"forward\" function", _misspelt),
    (r"'(\w+)' object has no attribute '(\w+)'", _property),
    (r"(module|parameter|buffer) name can.{1,3}t contain", _dotted),
    (r"object has no attribute|takes no arguments|takes 1 positional argument|unexpected keyword argument", _misspelt),
    (r"cannot assign '[^']+' as parameter '([^']+)'", _tensor_over_parameter),
    (r"Only Tensors of floating point and complex dtype can require gradients", _integer_parameter),
    (r"more than one parameter group", _two_groups),
    (r"can't optimize a non-leaf Tensor", _no_leaf),
    (r"BackwardHookFunction.* is a view", _hooked_view),
)
