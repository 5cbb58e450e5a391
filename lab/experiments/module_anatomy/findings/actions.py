"""Which objects an action on a copy of the model replaced."""

from __future__ import annotations

from collections.abc import Iterator

from lab.contract import Finding
from lab.experiments.module_anatomy.schema import Result
from lab.experiments.module_anatomy.words import listed


def done(result: Result) -> Iterator[Finding]:
    action = result.action
    if action is None:
        return
    if action.error:
        yield Finding(
            level="surprise", title=f"{action.action}: refused", text=action.error, evidence={}, repair="",
        )  # fmt: skip
        return
    before = [row for row in action.rows if row.before]
    kept = [row for row in before if row.same_object]
    gone = [row.name for row in before if row.owned_before and not row.same_object]
    fresh = [row.name for row in action.rows if row.after and not row.before]
    if action.action == "deepcopy":
        text = f"A copy is another model: {len(kept)} of {len(before)} objects are the same. An optimizer of the original knows nothing of it."
    elif gone:
        text = f"{len(kept)} of {len(before)} objects are the same afterwards. An optimizer made before still holds the old {listed(gone)}."
    else:
        text = f"{len(kept)} of {len(before)} objects are the same afterwards, so an optimizer made before goes on stepping them."
    if fresh:
        text += f" New names: {listed(fresh)}."
    if action.ties_after != action.ties_before:
        text += f" Parameters with several names: {action.ties_before} before, {action.ties_after} after."
    yield Finding(
        level="warning" if gone and action.action != "deepcopy" else "fact",
        title=f"{action.action}: {len(kept)} of {len(before)} objects stay",
        text=text,
        evidence={
            "same objects": len(kept),
            "tensors": len(before),
            "saved keys before": action.keys_before,
            "saved keys after": action.keys_after,
        },
    )
