"""Why a later use failed: the line where the tensor was born, and what to change there."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from lab.contract import Edit, Fault, Site
from lab.experiments.gradient_modes.schema import Result
from lab.experiments.gradient_modes.story import Write
from lab.program.explain import explain_fault
from lab.records.gradient_modes import Birth, Blame
from lab.records.program import Ended

Told = tuple[str, str, tuple[Site, ...]]
"""Explanation, repair, sites."""
_VERSION = re.compile(r"FloatTensor \[([\d, ]*)\].* is at version (\d+)")


def fault_of(ended: Ended | None, result: Result, writes: list[Write]) -> Fault | None:
    """The fault with its cause, where births tell it; else what the common table says."""
    if ended is None:
        return None
    fault = explain_fault(ended)
    told = next(
        (t for pattern, cause in _CAUSES if re.search(pattern, ended.message) and (t := cause(result, writes, ended))),
        None,
    )
    if told is None:
        return fault
    explanation, repair, sites = told
    return replace(fault, explanation=explanation, repair=repair, sites=sites)


def word_for(birth: Birth) -> str:
    return birth.name or f"the result of {birth.op}" if birth.op else birth.name or "a tensor"


def inference_operand(blame: Blame | None) -> Birth | None:
    """The operand from inference mode whose line is known. A clone of it made in the mode is the one to blame."""
    found = [b for b in blame.operands if b.inference] if blame else []
    return next((b for b in found if b.line), None)


def _born(birth: Birth, role: str) -> tuple[Site, ...]:
    return (Site(birth.line, role, birth.name),) if birth.line else ()


def _fails(blame: Blame | None, ended: Ended) -> tuple[Site, ...]:
    line = ended.line or (blame.line if blame else None)
    return (Site(line, "fails here"),) if line else ()


def _inference(what: str) -> Callable[[Result, list[Write], Ended], Told | None]:
    def cause(result: Result, writes: list[Write], ended: Ended) -> Told | None:
        birth = inference_operand(result.blame)
        if birth is None or result.blame is None:
            return None
        name = word_for(birth)
        text = f"{name} was born on line {birth.line} ({birth.op}) in inference mode and stays an inference tensor. "
        op = result.blame.op or "the call"
        sites = (*_born(birth, "born in inference mode"), *_fails(result.blame, ended))
        if birth.switch_line and birth.switch_line != birth.line:
            sites += (Site(birth.switch_line, "inference mode begins"),)
        repair = (
            f"Make a normal tensor outside the mode: {birth.name or 'it'}.clone(). Or create it outside inference mode."
        )
        return text + what.format(op=op), repair, sites

    return cause


def _view(result: Result, writes: list[Write], ended: Ended) -> Told | None:
    blame = result.blame
    birth = next((b for b in blame.operands if b.line and b.mode != "grad"), None) if blame else None
    if birth is None:
        return None
    mode = "inference mode" if birth.mode == "inference" else "no_grad"
    text = (
        f"{word_for(birth)} is a view that was made on line {birth.line} in {mode}, and it is written with gradients enabled: "
        "whether the write belongs into the graph of its base is ambiguous, so torch refuses it."
    )
    sites = (*_born(birth, f"view made in {mode}"), *_fails(blame, ended))
    return text, "Make the view and write to it in the same mode, or write to a clone.", sites


def _no_graph(result: Result, writes: list[Write], ended: Ended) -> Told | None:
    blame = result.blame
    birth = next((b for b in blame.operands if not b.requires_grad and b.line), None) if blame else None
    if birth is None or blame is None or blame.op not in ("backward", "grad", ""):
        return None
    name, fails = word_for(birth), _fails(blame, ended)
    if birth.cut_line is None:
        return None
    if birth.cut_by == "detach":
        text = f"{name} has no graph: the history was cut on line {birth.cut_line} by detach."
        return text, "Take the loss from the tensor before it was detached.", (Site(birth.cut_line, "cut here"), *fails)
    mode = "inference mode" if birth.cut_by == "inference" else "no_grad"
    switch = birth.cut_switch_line
    leak = next((leak for leak in result.leaks if leak.line == switch), None)
    text = f"{name} has no graph: line {birth.cut_line} used a tensor that requires gradients, but ran in {mode}"
    text += f", switched on line {switch}." if switch else "."
    repair = f"Run line {birth.cut_line} with gradients enabled."
    if leak and leak.how == "generator":
        text += " A generator that is suspended inside the mode leaves it to its caller."
        repair = "End the mode before the yield, or decorate the generator with the mode instead."
    elif leak:
        repair = f"Use the switch on line {switch} as a context manager (with), so that it is undone."
    first = (Site(switch, "switched off here"),) if switch else ()
    here = (Site(birth.cut_line, "not recorded"),)
    return text, repair, (*first, *(here if birth.cut_line != switch else ()), *fails)


def _leaf(result: Result, writes: list[Write], ended: Ended) -> Told | None:
    blame = result.blame
    birth = next((b for b in blame.operands if b.requires_grad and not b.grad_fn), None) if blame else None
    if birth is None:
        return None
    where = f", made on line {birth.line}," if birth.line else ""
    text = f"{word_for(birth)}{where} is a leaf that requires gradients: a recorded write would make it a result."
    sites = (*_born(birth, "leaf made here"), *_fails(blame, ended))
    return text, "Write under torch.no_grad(), or to a clone.", sites


def _overwritten(result: Result, writes: list[Write], ended: Ended) -> Told | None:
    found = _VERSION.search(ended.message)
    if found is None:
        return None
    shape = tuple(int(n) for n in found[1].split(",") if n.strip())
    fit = [w for w in writes if w.shape == shape and w.version == int(found[2]) and w.line]
    if len({(w.line, w.birth) for w in fit}) != 1:
        return None  # more than one tensor could be meant
    write = fit[-1]
    birth = result.births[write.birth] if write.birth < len(result.births) else None
    name = word_for(birth) if birth else "a tensor"
    text = f"Line {write.line} wrote into {name} in place ({write.op}) after backward had been promised its old values."
    sites = (
        Site(write.line or 0, "overwritten here", birth.name if birth else ""),
        *(_born(birth, "born here") if birth else ()),
    )
    return text, "Write to a new tensor instead of in place.", (*sites, *_fails(None, ended))


def _not_a_leaf(result: Result, writes: list[Write], ended: Ended) -> Told | None:
    birth = next((b for b in result.blame.operands if b.grad_fn and b.line), None) if result.blame else None
    if birth is None:
        return None
    text = f"{word_for(birth)} is the result of {birth.op} on line {birth.line}, recorded in {birth.mode} mode: "
    if "numpy()" in ended.message:
        repair = "Take the values without the history: .detach().numpy()."
        text += "it has a history, which a NumPy array cannot carry."
        return text, repair, (*_born(birth, "recorded here"), *_fails(result.blame, ended))
    text += "it is no leaf."
    repair = "Use the leaf it was made from, or make a leaf of its values: detach(), then requires_grad_()."
    return text, repair, (*_born(birth, "recorded here"), *_fails(result.blame, ended))


_STAYS = "Outside the mode "
_CAUSES: tuple[tuple[str, Callable[[Result, list[Write], Ended], Told | None]], ...] = (
    (
        "cannot be saved for backward",
        _inference("Here {op} has to save it for backward, and an inference tensor cannot be saved."),
    ),
    ("requires_grad=True on inference tensor", _inference(_STAYS + "it can never be made to require gradients.")),
    (
        "Inplace update to inference tensor",
        _inference(_STAYS + "it cannot be written in place: it has no version counter."),
    ),
    ("do not track version counter", _inference("It has no version counter to read.")),
    ("view was created in (no_grad|inference)", _view),
    ("does not require grad and does not have a grad_fn", _no_graph),
    ("leaf Variable that requires grad .*in-place", _leaf),
    ("modified by an inplace operation", _overwritten),
    (
        "can't optimize a non-leaf|only change requires_grad flags of leaf|numpy\\(\\) on Tensor that requires grad",
        _not_a_leaf,
    ),
)


def candidates(result: Result) -> list[tuple[Edit, ...]]:
    """A clone before the line that failed, or the line of the birth out of the mode; tried before they are offered."""
    birth, fault = inference_operand(result.blame), result.fault
    if birth is None or fault is None or not fault.line or not fault.sites or "nference" not in fault.message:
        return []
    lines = result.code.split("\n")
    return [edit for edit in (_cloned(lines, fault.line, birth.name), _out_of_the_mode(lines, birth.line)) if edit]


def _cloned(lines: list[str], line: int, name: str) -> tuple[Edit, ...]:
    old = lines[line - 1]
    if not name.isidentifier() or not re.search(rf"\b{name}\b", old) or old.rstrip().endswith((":", ",", "(", "[")):
        return ()
    return (Edit(line, old, f"{_indent(old)}{name} = {name}.clone()\n{old}"),)


def _out_of_the_mode(lines: list[str], line: int | None) -> tuple[Edit, ...]:
    """Where it is born by a statement of one line."""
    old = lines[line - 1] if line and line <= len(lines) else ""
    try:
        compile(old.strip(), "<line>", "exec")
    except (SyntaxError, ValueError):
        return ()
    if not line or not old.strip():
        return ()
    within = f"{_indent(old)}with torch.inference_mode(False):\n{_indent(old)}    {old.lstrip()}"
    return (Edit(line, old, within),)


def _indent(text: str) -> str:
    return text[: len(text) - len(text.lstrip())]
