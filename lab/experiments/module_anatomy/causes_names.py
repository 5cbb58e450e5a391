"""Errors about names: taken, misspelt, dotted, of a parameter, before the module is set up."""

from __future__ import annotations

import re

from lab.experiments.module_anatomy import edits
from lab.experiments.module_anatomy.cause import Cause
from lab.experiments.module_anatomy.words import site
from lab.records.anatomy import AnatomyResult


def name_taken(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
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


def before_init(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
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


def misspelt(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
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


def holds_only(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
    kind = match[1]
    return Cause(
        f"A {kind} cannot be called",
        f"A {kind} registers what it holds and has no forward: in which order its parts run is for your forward to say.",
        "Loop over it, or use nn.Sequential." if kind == "ModuleList" else "Call one of its entries.",
        site(line, "fails here"),
    )


def tensor_over_parameter(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
    name = match[1]
    return Cause(
        f"{name} is a parameter's name",
        "Once a name is registered as a parameter, only a Parameter or None may stand there: a plain tensor would be neither stepped nor saved.",
        "Wrap it: nn.Parameter(...); or write into the old one under torch.no_grad() with copy_.",
        site(line, "fails here", name),
        edits.as_parameter_value(result.code, line, name),
        {"name": name},
    )


def integer_parameter(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
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


def hidden_by_property(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
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


def dotted(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause:
    return Cause(
        "A dot separates levels",
        f"Names of parameters and modules are paths, layers.0.weight, so a {match[1]} cannot have a dot in its own name.",
        "Replace the dot, such as name.replace('.', '_').",
        site(line, "fails here"),
    )
