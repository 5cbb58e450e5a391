"""Surprises of a program as findings: what was meant, what happened, the lines, and what to change."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lab.contract import Finding, Level, Site
from lab.experiments.fine_tuning.schema import Result
from lab.records.fine_tuning import Surprise

Told = tuple[Level, str, str, str, str, str]
"""Level, title, text, repair, role of the first line, role of the other."""


def program_findings(result: Result) -> Iterator[Finding]:
    """One a surprise; then what moved, in numbers."""
    alone = len(result.surprises) == 1
    for one in result.surprises:
        level, title, text, repair, role, other = _TOLD[one.cause](one)
        if one.cause == "nothing moved" and not alone:
            level = "fact"
        sites = [Site(one.line, role, one.names[0] if one.names else "")] if one.line else []
        if one.other_line and one.other_line != one.line:
            sites.append(Site(one.other_line, other, one.names[0] if one.names else ""))
        yield Finding(
            level=level, title=title, text=text, evidence={_MEASURED[one.cause]: one.number}, line=one.line, repair=repair, sites=tuple(sites)
        )  # fmt: skip
    weights = [row for row in result.moved if row.kind == "weight"]
    if weights and result.steps:
        still = [row for row in weights if not row.distance]
        yield Finding(
            level="fact", title=f"{len(weights) - len(still)} of {len(weights)} tensors moved in {result.steps} steps",
            text=f"Trainable: {sum(row.trainable for row in weights)}. Held by an optimizer: {sum(row.held for row in weights)}.",
            evidence={"moved": len(weights) - len(still), "tensors": len(weights)},
        )  # fmt: skip


def _names(one: Surprise, count: float) -> str:
    rest = int(count) - len(one.names)
    return ", ".join(one.names) + (f" and {rest} more" if rest > 0 else "")


def _stale(one: Surprise) -> Told:
    text = f"{_names(one, 0)} were replaced after the optimizer was built: it holds {one.number:.0f} numbers that are no part of the model any more"
    text += f", and {one.other:.0f} trainable tensors of the model are held by nobody." if one.other else "."
    return (
        "warning",
        "The optimizer holds what is no longer in the model",
        text,
        "Replace first, then build the optimizer; or optimizer.add_param_group for the new part.",
        "built here",
        "replaced here",
    )


def _left_out(one: Surprise) -> Told:
    title = f"{one.number:.0f} trainable {'tensor is' if one.number == 1 else 'tensors are'} held by no optimizer"
    return (
        "warning",
        title,
        f"{_names(one, one.number)}: they get gradients, and no step will move them.",
        "Compare what is trainable with what is held, by name; give the rest a group of its own.",
        "groups made here",
        "optimizer built here",
    )


def _unheld(one: Surprise) -> Told:
    text = f"{_names(one, one.number)} had a gradient when the step was taken, and were given to the optimizer later: that gradient was used by nobody."
    return (
        "surprise",
        "A step was taken without them",
        text,
        "optimizer.add_param_group before the first step.",
        "built without them",
        "step without them",
    )


def _eval_trains(one: Surprise) -> Told:
    text = f"{one.number:.0f} of {one.other:.0f} weights of {one.names[0]} moved while it was in eval mode. eval() stops running statistics and dropout; requires_grad_(False) stops weights."
    return (
        "surprise",
        "eval() froze no weight",
        text,
        "requires_grad_(False) for the weights, eval() for the statistics: frozen needs both.",
        "eval mode from here",
        "",
    )


def _woken(one: Surprise) -> Told:
    drift = f" Its running mean has moved by {one.number:.3g} since." if one.number else ""
    return (
        "warning",
        f"{one.names[0]} was put into eval mode, and train() woke it",
        f"train() goes through all children.{drift}",
        "Set eval again after every train(), or override train() in the frozen part.",
        "woken here",
        "eval mode from here",
    )


def _frozen(one: Surprise) -> Told:
    text = f"requires_grad is off, and steps moved {_names(one, one.other)} by {one.number:.4g} in all: the gradient was a tensor of zeros instead of None, so momentum and decay went on."
    return (
        "warning",
        "A frozen tensor moved",
        text,
        "zero_grad(set_to_none=True), which is the default; or take it out of the optimizer.",
        "zeros left here",
        "moved here",
    )


def _statistics(one: Surprise) -> Told:
    text = f"All weights of {_names(one, one.other)} are frozen; the running statistics moved by up to {one.number:.3g}: buffers follow the batches in train mode."
    return (
        "surprise",
        "Frozen, and its statistics moved",
        text,
        "Keep the frozen part in eval mode, also after model.train().",
        "",
        "",
    )


def _stuck(one: Surprise) -> Told:
    text = f"{_names(one, 0)} are all zeros, and their gradients were exactly 0 in {one.number:.0f} steps: each one's gradient is a product with another that is zero."
    return (
        "warning",
        "Stuck at zero for ever",
        text,
        "Start one of the factors at random values; the product is zero all the same.",
        "zeros from here",
        "optimizer built here",
    )


def _nothing(one: Surprise) -> Told:
    without = f" {one.other:.0f} of its tensors had no gradient at the last step." if one.other else ""
    return (
        "warning",
        f"{one.number:.0f} steps moved nothing",
        f"Every tensor that the optimizer holds is where it was, bit for bit.{without}",
        "Look at what the optimizer holds, and whether backward reaches it.",
        "built here",
        "",
    )


def _cut(one: Surprise) -> Told:
    text = f"No input of the checkpoint requires gradients, so its reentrant form returned a result without a graph: {one.number:.0f} trainable tensors of the module inside get none."
    return (
        "warning",
        "A reentrant checkpoint cut the graph",
        text,
        "checkpoint(..., use_reentrant=False)",
        "cut here",
        "",
    )


_TOLD: dict[str, Callable[[Surprise], Told]] = {
    "stale": _stale, "left out": _left_out, "not held when it had a gradient": _unheld, "eval trains": _eval_trains,
    "woken": _woken, "frozen moves": _frozen, "statistics move": _statistics, "stuck at zero": _stuck,
    "nothing moved": _nothing, "cut by checkpoint": _cut,
}  # fmt: skip

_MEASURED = {
    "stale": "numbers held and gone", "left out": "tensors left out", "not held when it had a gradient": "tensors",
    "eval trains": "weights that moved", "woken": "running mean moved", "frozen moves": "moved", "statistics move": "statistics moved",
    "stuck at zero": "steps with a gradient of 0", "nothing moved": "steps", "cut by checkpoint": "trainable tensors",
}  # fmt: skip
"""What the number of each surprise is."""
