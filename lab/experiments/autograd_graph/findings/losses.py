"""Losses whose graph is not what was meant: shapes that broadcast, a weight that was not detached."""

from __future__ import annotations

import math
from collections.abc import Iterator

from lab.contract import Finding
from lab.experiments.autograd_graph.findings.record import Record, bare, on_line, site, tensor_words
from lab.records.operations import Made

_LOSSES = {
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
}


def broadcast_loss(record: Record) -> Iterator[Finding]:
    """A loss, or a difference that becomes one, of two shapes that broadcast against each other."""
    for made in record.result.made:
        shapes = [record.made[i].shape for i in made.inputs[:2] if i in record.made]
        if len(shapes) != 2 or shapes[0] == shapes[1] or not all(shapes):
            continue
        grown = _broadcast(shapes[0], shapes[1])
        if grown is None or math.prod(grown) <= max(math.prod(s) for s in shapes):
            continue
        loss = made.operation in _LOSSES
        if not loss and not (bare(made.operation) == "sub" and _ends_in_loss(record, made)):
            continue
        first, second = (record.made[i] for i in made.inputs[:2])
        names = [tensor_words(first), tensor_words(second)]
        text = (
            f"{bare(made.operation)}{on_line(made.line)} compares {names[0]} {list(shapes[0])} with {names[1]} {list(shapes[1])}: broadcasting makes {list(grown)} of them, "
            f"{math.prod(grown)} pairs instead of {max(math.prod(s) for s in shapes)}. The minimum of such a loss is the mean of the targets."
        )
        sites = (
            site(made.line, "broadcast here", names[0], list(shapes[0]), list(grown))
            + site(first.line, "shape from here", names[0])
            + site(second.line, "shape from here", names[1])
        )
        sites = tuple(s for i, s in enumerate(sites) if i == 0 or s.line != made.line)
        yield Finding(
            level="warning", title=f"The loss compares {list(shapes[0])} with {list(shapes[1])}", text=text, evidence={"pairs": math.prod(grown), "values": max(math.prod(s) for s in shapes)}, line=made.line,
            repair=f"Give both one shape: {names[0]}.squeeze(-1) or {names[1]}.unsqueeze(-1).", sites=sites,
        )  # fmt: skip
        return


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    longest = max(len(a), len(b))
    pairs = list(zip((1,) * (longest - len(a)) + a, (1,) * (longest - len(b)) + b, strict=True))
    if any(x != y and 1 not in (x, y) for x, y in pairs):
        return None
    return tuple(max(x, y) for x, y in pairs)


def _ends_in_loss(record: Record, made: Made) -> bool:
    """The difference is squared or made absolute, and then averaged or summed into a scalar that a pass starts from."""
    roots = {state for run in record.result.passes for state in run.roots} | {record.result.loss_state}
    chain = made
    for _ in range(3):
        following = next((m for m in record.result.made if chain.state in m.inputs), None)
        if following is None or bare(following.operation) not in ("pow", "square", "abs", "mul", "mean", "sum"):
            return False
        if following.shape == () and following.state in roots and bare(following.operation) in ("mean", "sum"):
            return bool(chain is not made)
        chain = following
    return False


def policy_reaches_critic(record: Record) -> Iterator[Finding]:
    """A log probability times a weight that requires gradients of other leaves: both networks are trained by one product."""
    for made in record.result.made:
        factors = [record.made[i] for i in made.inputs[:2] if i in record.made]
        if bare(made.operation) != "mul" or len(factors) != 2 or not all(f.requires_grad for f in factors):
            continue
        chance = [f for f in factors if _is_log_prob(record, f)]
        if len(chance) != 1 or not _reaches_root(record, made):
            continue
        weight = next(f for f in factors if f is not chance[0])
        learning = {m.name for m in record.behind([weight.state]) if m.is_leaf and m.requires_grad and m.name}
        if not learning or learning & {
            m.name for m in record.behind([chance[0].state]) if m.is_leaf and m.requires_grad
        }:
            continue
        names, name = ", ".join(sorted(learning)[:3]), tensor_words(weight)
        text = (
            f"mul{on_line(made.line)} multiplies a log probability by {name}{on_line(weight.line)}, which requires gradients: this loss "
            f"also trains {names}, so as to make the weight of the log probability smaller or larger."
        )
        yield Finding(
            level="surprise",
            title=f"The policy loss also reaches {sorted(learning)[0]}",
            text=text,
            evidence={"leaves reached": len(learning)},
            line=weight.line,
            repair=f"If only the policy should learn from it: {weight.name or 'the factor'}.detach() in the product.",
            sites=site(weight.line, "not detached", name) + site(made.line, "multiplied here"),
        )
        return


def _is_log_prob(record: Record, made: Made) -> bool:
    """Made by a ``log_prob`` of torch.distributions, as the program's text on its line says."""
    return any("log_prob(" in record.text(m.line) and m.line for m in (made,)) and bare(made.operation) in (
        "gather",
        "squeeze",
        "sub",
        "sum",
        "neg",
    )


def _reaches_root(record: Record, made: Made) -> bool:
    roots = [state for run in record.result.passes for state in run.roots]
    return any(m.state == made.state for m in record.behind(roots))
