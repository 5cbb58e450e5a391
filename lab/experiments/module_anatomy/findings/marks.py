"""What the four marks say of registered tensors."""

from __future__ import annotations

from collections.abc import Iterator

from lab.contract import Finding
from lab.experiments.module_anatomy.schema import Result
from lab.experiments.module_anatomy.words import counted, listed, site
from lab.records.anatomy import TensorRow


def measured(result: Result) -> Iterator[Finding]:
    if result.view != "tree" or not result.tensors:
        return
    yield from _unused(result)
    yield from _not_held(result)
    yield from _zero(result)
    yield from _unmoved(result)
    yield from _summary(result)


def _parameters(result: Result) -> list[TensorRow]:
    rows = [t for t in result.tensors if t.kind == "parameter" and t.requires_grad]
    return list({t.identity: t for t in reversed(rows)}.values())[::-1]


def _unused(result: Result) -> Iterator[Finding]:
    unused = [t for t in _parameters(result) if t.reached is False and t.gradient == "none"]
    if not unused or result.batch_by_lab or not any(t.reached for t in result.tensors):
        return
    owners = tuple(dict.fromkeys(t.owner or t.name for t in unused))
    held = sum(bool(t.owned) for t in unused)
    yield Finding(
        level="surprise",
        title=f"{listed(owners)} {'has' if len(owners) == 1 else 'have'} no part in the loss",
        text=f"{counted(len(unused), 'parameter')} with {sum(_elements(t) for t in unused):,} numbers: the graph of this loss does not end in them, so they get no "
        f"gradient and stay as they are. They are saved and moved, and {held} {'is' if held == 1 else 'are'} held by the optimizer.",
        evidence={
            "unused": len(unused),
            "held by the optimizer": held,
            "changed by a step": sum(bool(t.changed) for t in unused),
        },
        line=unused[0].line,
        repair="Use it in forward, or leave it out.",
        sites=site(unused[0].line, "never used", owners[0]),
    )


def _elements(row: TensorRow) -> int:
    count = 1
    for size in row.shape or ():
        count *= size
    return count


def _not_held(result: Result) -> Iterator[Finding]:
    """Only where the program has an optimizer that holds a part of the model."""
    own = [o for o in result.optimizers if not o.refused and o.tensors]
    if not own or any(o.stale for o in own):
        return
    missing = [t for t in _parameters(result) if t.owned is False and t.gradient == "value"]
    if not missing:
        return
    late = [t for t in missing if t.in_forward]
    first = (late or missing)[0]
    why = f" {late[0].name} was made while a forward ran, after the optimizer." if late else ""
    yield Finding(
        level="warning" if late else "surprise",
        title=f"{counted(len(missing), 'parameter')} with a gradient, but in no optimizer",
        text=f"{listed([t.name for t in missing])} require a gradient and got one in this step; {listed([o.class_ for o in own])} does not hold them, so they stay as they are.{why}",
        evidence={"with a gradient, not held": len(missing), "held": sum(o.tensors for o in own)},
        line=first.line,
        repair="Run one batch before the optimizer is made."
        if late
        else "Freeze them with requires_grad_(False), or give them to the optimizer.",
        sites=(*site(first.line, "not held", first.name), *site(own[0].line, "optimizer made here")),
    )


def _zero(result: Result) -> Iterator[Finding]:
    zero = [t for t in _parameters(result) if t.gradient == "zero"]
    if zero and not result.batch_by_lab:
        yield Finding(
            level="fact",
            title=f"{listed([t.name for t in zero])}: a gradient of exactly 0",
            text="They are on the way to the loss and it does not depend on their value here, as for a bias in front of a BatchNorm, or units that are switched off "
            "for this batch.",
            evidence={"with gradient 0": len(zero)},
            line=zero[0].line,
        )


def _unmoved(result: Result) -> Iterator[Finding]:
    """A gradient, an optimizer, and no bit changed: the rate is 0, or the update is lost in rounding."""
    still = [t for t in _parameters(result) if t.owned and t.gradient == "value" and t.changed is False]
    own = [o for o in result.optimizers if o.tensors and not o.refused]
    if not still or not own:
        return
    rates = [rate for o in own for rate in o.rates]
    if rates and not any(rates):
        why = "The learning rate is 0."
    elif all(o.class_ == "SGD" for o in own) and all(rates):
        why = f"The step is not 0, so it was lost in rounding: {still[0].dtype} has no number that near."
    else:
        why = ""
    yield Finding(
        level="surprise",
        title=f"{counted(len(still), 'parameter')} with a gradient did not change",
        text=f"{listed([t.name for t in still])}: held by the optimizer, with a gradient, and no bit is another after one step. {why}".rstrip(),
        evidence={"unchanged": len(still), "learning rate": rates[0] if rates else "not known"},
        line=own[0].line,
        repair="Keep the weights in float32." if "rounding" in why else "",
    )


def _summary(result: Result) -> Iterator[Finding]:
    rows = list({t.identity: t for t in result.tensors}.values())
    moves = sum(bool(t.moves) for t in rows)
    known = [t for t in rows if t.moves is not None]
    if result.fault or not known:
        return
    trained = [t for t in rows if t.gradient in ("value", "zero")]
    gradient = f", {len(trained)} get a gradient" if any(t.gradient != "not measured" for t in rows) else ""
    owned = sum(bool(t.owned) for t in rows)
    yield Finding(
        level="fact",
        title=f"{counted(len(rows), 'tensor')}: {moves} move, {sum(t.saved for t in rows)} are saved",
        text=f"Of {len(rows)} distinct tensors {moves} move with to(){gradient}, {owned} are held by {result.optimizer}, {sum(t.saved for t in rows)} are in the state dict.",
        evidence={"tensors": len(rows), "move": moves, "saved": sum(t.saved for t in rows), "held": owned},
    )
