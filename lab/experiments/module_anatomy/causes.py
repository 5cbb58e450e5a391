"""What the record of a run says about the error that ended it: the attribute behind a message that names something else."""

from __future__ import annotations

import re

from lab.experiments.module_anatomy import causes_names as names
from lab.experiments.module_anatomy import causes_tensors as tensors
from lab.experiments.module_anatomy import edits
from lab.experiments.module_anatomy.cause import Cause, Look, repair_of
from lab.experiments.module_anatomy.words import counted, listed, renamed, site
from lab.records.anatomy import AnatomyResult, Unregistered


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


_LOOKS: tuple[tuple[str, Look], ...] = (
    (r"optimizer got an empty parameter list", _empty_list),
    (r"attribute '([^']+)' already exists", names.name_taken),
    (r"Only Tensors created explicitly by the user", tensors.not_copied),
    (r"uninitialized parameter", tensors.lazy),
    (r"same dtype|expected scalar type|have the same dtype|dtype", tensors.mixed_dtypes),
    (r"same device|is on (cpu|cuda\S*|meta), but expected|not on the expected device|device", tensors.mixed_devices),
    (r"before Module.__init__\(\) call", names.before_init),
    (r"Error\(s\) in loading state_dict", _loading),
    (r"Module \[(ModuleList|ModuleDict)\] is missing the required", names.holds_only),
    (r"is missing the required \"forward\" function", names.misspelt),
    (r"'(\w+)' object has no attribute '(\w+)'", names.hidden_by_property),
    (r"(module|parameter|buffer) name can.{1,3}t contain", names.dotted),
    (
        r"object has no attribute|takes no arguments|takes 1 positional argument|unexpected keyword argument",
        names.misspelt,
    ),
    (r"cannot assign '[^']+' as parameter '([^']+)'", names.tensor_over_parameter),
    (r"Only Tensors of floating point and complex dtype can require gradients", names.integer_parameter),
    (r"more than one parameter group", tensors.two_groups),
    (r"can't optimize a non-leaf Tensor", tensors.no_leaf),
    (r"BackwardHookFunction.* is a view", tensors.hooked_view),
)
