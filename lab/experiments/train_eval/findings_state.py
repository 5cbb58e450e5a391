"""What to notice in the state that a model was handed over with, and in what a forward in eval mode does to it."""

from __future__ import annotations

from collections.abc import Iterator

from lab.contract import Finding
from lab.quantities import number_text
from lab.records.modes_models import ModelScan

MOST_INITIAL = 0.2
"""Share of the initial statistics beyond which eval mode works with numbers that are largely made up."""


def state_of_model(scanned: ModelScan) -> Iterator[Finding]:
    yield from _nonfinite(scanned)
    yield from _changed_in_eval(scanned)
    yield from _initial(scanned)
    for module in scanned.idle_dropouts:
        yield Finding(
            level="warning",
            title=f"The dropout of {module} drops nothing",
            text="dropout of a recurrent module acts between its layers, and this one has a single layer.",
            evidence={"layers": 1},
            repair="Put nn.Dropout behind it, or give it num_layers=2.",
        )


def _nonfinite(scanned: ModelScan) -> Iterator[Finding]:
    for found in scanned.nonfinite[:3]:
        yield Finding(
            level="fault",
            title=f"{found.buffer} is not finite",
            text=f"{found.count} of its {found.of} elements are NaN or infinite. A batch with such a value wrote them, and every later average keeps "
            "them: eval mode gives NaN, train mode does not use them.",
            evidence={"not finite": found.count, "elements": found.of},
            repair="reset_running_stats(), then batches without such values; check the inputs.",
        )


def _changed_in_eval(scanned: ModelScan) -> Iterator[Finding]:
    for change in scanned.changed_in_eval[:2]:
        yield Finding(
            level="surprise",
            title=f"A forward in eval mode changes {change.name}",
            text=f"The {change.kind} {change.name} went from {number_text(change.before)} to {number_text(change.after)} in one forward with every "
            "module in eval mode, and it stays changed: the next call, in either mode, starts from there.",
            evidence={"before": change.before, "after": change.after},
            repair="Change it under if self.training: only."
            if change.kind == "buffer"
            else "Use a local variable in forward instead of the attribute.",
        )


def _initial(scanned: ModelScan) -> Iterator[Finding]:
    for found in scanned.initial_shares:
        broken = any(name.buffer.startswith(found.module.split(" ")[0]) for name in scanned.nonfinite)
        if found.share > MOST_INITIAL and not broken:
            yield Finding(
                level="warning",
                title=f"{found.module} still holds its initial statistics",
                text=f"With momentum {found.momentum:g} and {found.batches} batches, {1 - found.momentum:g} to the power {found.batches} = "
                f"{found.share:.0%} of the running mean and variance are the 0 and 1 that they started with.",
                evidence={"initial share": found.share, "batches": found.batches},
                repair="More batches, a larger momentum, or momentum=None for the plain average.",
            )
            return
