"""What to notice, computed from the result."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from lab.contract import Finding, by_level
from lab.experiments.fine_tuning.program_findings import program_findings
from lab.experiments.fine_tuning.readings import accuracy_after, final_loss, group
from lab.experiments.fine_tuning.schema import Result

MOST = 6
_FORGOTTEN = 0.1
_LEARNS = 0.8
"""Accuracy of three classes that nobody guesses."""


def explain(result: Result) -> tuple[Finding, ...]:
    """The most pressing first."""
    return tuple(islice(by_level(_VIEWS[result.view](result)), MOST))


def _moved(result: Result) -> Iterator[Finding]:
    backbone, statistics, head = (group(result, part) for part in ("backbone", "statistics", "head"))
    if result.foreign:
        seen = accuracy_after(result) >= _LEARNS and final_loss(result) < result.losses[0] / 2
        hidden = (
            f" Neither loss nor accuracy shows it: the loss falls from {result.losses[0]:.3f} to {final_loss(result):.3f} and accuracy is {accuracy_after(result):.3f}, for the backbone learns to suit a random head."
            if seen
            else f" Accuracy is {accuracy_after(result):.3f}."
        )
        yield Finding(
            level="warning", title="The optimizer holds the old head and not the new one",
            text=f"{result.foreign_count} numbers that it holds are no part of the model any more, and {', '.join(result.missing)} moved by {head:.3g}.{hidden}",
            evidence={"held and gone": result.foreign_count, "head moved": head, "accuracy": accuracy_after(result)},
            repair="Replace the head first, then build the optimizer; or add_param_group for the new one.",
        )  # fmt: skip
    frozen = [
        row for row in result.moved if row.name.startswith("backbone") and row.kind == "weight" and not row.trainable
    ]
    if frozen and not backbone and statistics:
        yield Finding(
            level="surprise", title="The backbone is frozen, and its running statistics moved",
            text=f"All {len(frozen)} weights of the backbone are where they were, bit for bit. The running statistics of BatchNorm are buffers: they moved by {statistics:.3g} with every batch in train mode.",
            evidence={"weights moved": backbone, "statistics moved": statistics},
            repair="Keep the frozen part in eval mode: backbone.eval() after every model.train(). Where the second task is far from the first, statistics that follow may be what you want.",
        )  # fmt: skip
    if frozen and not backbone and not statistics and result.steps:
        yield Finding(
            level="fact", title="Frozen means frozen here", text="No weight and no statistic of the backbone changed in any bit: requires_grad is off and BatchNorm is in eval mode.",
            evidence={"weights moved": backbone, "statistics moved": statistics, "head moved": head},
        )  # fmt: skip
    idle = [row for row in result.moved if row.held and not row.trainable]
    if idle and not any(row.distance for row in idle):
        yield Finding(
            level="fact", title=f"The optimizer holds {len(idle)} frozen tensors and moved none",
            text="A step passes over what has no gradient; that requires_grad is off does not matter to it.",
            evidence={"held": result.held_count, "trainable": result.trainable_count},
        )  # fmt: skip
    if not frozen and not result.foreign:
        yield Finding(
            level="fact", title=f"The backbone moved by {backbone:.3g}, the head by {head:.3g}",
            text=f"Accuracy on the second task is {accuracy_after(result):.3f} after {result.steps} steps.", evidence={"backbone moved": backbone, "head moved": head},
        )  # fmt: skip
    yield from _forgetting(result)
    if result.nodes < result.nodes_all:
        yield Finding(
            level="fact", title=f"The backward pass has {result.nodes} nodes instead of {result.nodes_all}",
            text="Nothing below the lowest trainable tensor needs a gradient, so autograd records nothing there.",
            evidence={"nodes": result.nodes, "with everything trainable": result.nodes_all, "state_bytes": result.state_bytes},
        )  # fmt: skip


def _forgetting(result: Result) -> Iterator[Finding]:
    old = result.accuracy[0]
    lost = old.before - old.after
    if lost >= _FORGOTTEN:
        yield Finding(
            level="fact", title=f"The first task is forgotten: {old.before:.3f} became {old.after:.3f}",
            text="Measured with the old head on the backbone as it is now. A frozen backbone forgets as well where its statistics move." if not group(result, "backbone") else "Measured with the old head on the backbone as it is now.",
            evidence={"before": old.before, "after": old.after},
            repair="Lower the backbone's learning rate, train fewer weights, or mix in rows of the first task.",
        )  # fmt: skip


def _midway(result: Result) -> Iterator[Finding]:
    zeros = [row for row in result.midway if not row.set_to_none]
    none = [row for row in result.midway if row.set_to_none]
    if all(row.moved == 0.0 for row in none) and any(row.moved for row in zeros):
        plain = next((row for row in zeros if row.optimizer == "SGD" and not row.weight_decay), zeros[0])
        yield Finding(
            level="surprise", title=f"Frozen weights moved by {plain.moved:.2f}, for their gradient was zeros instead of None",
            text="step() does not look at requires_grad. It passes over .grad None; with a gradient of zeros, momentum and decay go on. With gradients removed, all four moved by exactly 0.",
            evidence={f"{row.optimizer}, decay {row.weight_decay:g}": row.moved for row in zeros},
            repair="zero_grad() as it is by default (set_to_none=True), or take frozen tensors out of the optimizer.",
        )  # fmt: skip
        adam = [row for row in zeros if row.optimizer == "AdamW"]
        if len(adam) == 2 and adam[0].moved > 0.5 * adam[1].moved:
            yield Finding(
                level="fact", title="Inertia is the larger part, not decay",
                text=f"AdamW without decay moved them by {adam[0].moved:.3f}, with decay 0.01 by {adam[1].moved:.3f}.",
                evidence={"without decay": adam[0].moved, "with decay": adam[1].moved},
            )  # fmt: skip


def _share(result: Result) -> Iterator[Finding]:
    for task, data in dict.fromkeys((row.task, row.data) for row in result.shares):
        rows = [row for row in result.shares if (row.task, row.data) == (task, data)]
        best, all_frozen = (
            max(rows, key=lambda row: row.accuracy),
            next((row for row in rows if row.frozen == "both blocks"), None),
        )
        if all_frozen is not None and best.low > all_frozen.high:
            yield Finding(
                level="surprise" if task == "far" else "fact",
                title=f"{task.capitalize()} task, {data}: {best.frozen} frozen gives {best.accuracy:.3f}, both blocks {all_frozen.accuracy:.3f}".replace("gradually unfrozen frozen", "gradual unfreezing"),
                text=f"Three seeds each: {best.low:.3f} to {best.high:.3f} against {all_frozen.low:.3f} to {all_frozen.high:.3f}.",
                evidence={"best": best.accuracy, "both blocks frozen": all_frozen.accuracy},
            )  # fmt: skip


def _lora(result: Result) -> Iterator[Finding]:
    one = result.lora
    assert one is not None
    if one.first_gradient_a == 0.0 and one.first_gradient_b > 0.0:
        yield Finding(
            level="surprise", title="In the first step only one factor has a gradient",
            text=f"The gradient of A is a product with B, and B is zero: it is exactly 0. B's has norm {one.first_gradient_b:.3g}. After one step both learn; with both factors at zero neither ever would.",
            evidence={"gradient of A": one.first_gradient_a, "gradient of B": one.first_gradient_b},
        )  # fmt: skip
    if one.same_at_start:
        yield Finding(
            level="fact", title="At the start it is the network itself", text="With B at zero the update is zero: all outputs are equal bit for bit.",
            evidence={"rank": one.rank},
        )  # fmt: skip
    if one.update_rank == one.rank:
        yield Finding(
            level="fact", title=f"The update has rank {one.update_rank}",
            text=f"{one.trainable:,} numbers are trained, the head's included; accuracy is {one.accuracy:.3f}.", evidence={"rank": one.update_rank, "trained": one.trainable},
        )  # fmt: skip
    if 0.0 < one.merge_gap < 1e-3:
        yield Finding(
            level="fact", title=f"Merging changes outputs by {one.merge_gap:.2g}, not by 0",
            text="W x + B (A x) and (W + B A) x are the same sum in another order of rounding.", evidence={"merge gap": one.merge_gap},
        )  # fmt: skip


_VIEWS = {"moved": _moved, "midway": _midway, "share": _share, "lora": _lora, "own": program_findings}
