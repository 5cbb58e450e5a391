"""Findings about what a step leaves behind, from the storages that are alive at its end and who holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lab.contract import Finding
from lab.experiments.memory_timeline.readings import run_with
from lab.experiments.memory_timeline.schema import Result
from lab.experiments.memory_timeline.words import LAST_LOSS, LOSSES, module_text
from lab.quantities import bytes_text
from lab.records.memory import Kept

_ONLY_A_LOSS = 64
"""A step that grows by at most this keeps numbers, not tensors of its work."""
_LARGE = 0.05
"""Share of the peak from which on it is said what stays between steps."""


def left_behind(result: Result) -> list[Kept]:
    """What the last step but one made and the end of the last one still has: by then nothing of it should be needed."""
    last_but_one = len(result.step_ends) - 2
    return [row for row in result.kept if 0 <= row.step == last_but_one]


def _growth(result: Result) -> Iterator[Finding]:
    ends, rows = list(result.step_ends), left_behind(result)
    growth = ends[-1] - ends[-2] if len(ends) > 1 else 0
    if growth <= 0 or not rows:
        return
    evidence = {"after the last step but one_bytes": ends[-2], "after the last step_bytes": ends[-1]}
    if clean := run_with(result, leak="item"):
        evidence["growth with .item()_bytes"] = clean.growth_bytes
    much = growth > _ONLY_A_LOSS
    by_loop = rows[0].name.startswith(LOSSES)
    yield Finding(
        level="warning" if much else "surprise",
        title=f"Each step leaves {'' if much else 'only '}{bytes_text(growth)} behind",
        text=_losses_text(rows) if by_loop else _survivor_text(rows),
        evidence=evidence if by_loop else evidence | {"largest of it_bytes": rows[0].bytes},
        line=rows[0].name_line or rows[0].line,
        repair="Keep the number: losses.append(loss.item())." if by_loop else _repair(rows[0]),
        change={"leak": "item"} if by_loop else {},
    )


def _losses_text(rows: list[Kept]) -> str:
    if any(row.holds == "graph" for row in rows):
        return (
            "Each loss that is kept holds its graph, and the graph everything that was saved for backward. Without "
            "backward nothing ever frees it."
        )
    if not any(row.with_graph for row in rows):
        return "The loss tensors themselves stay; they have no graph."
    return (
        "The loss tensor itself stays; backward has freed what its graph had saved. The nodes of the graph stay too, "
        "in host memory that no tensor tool sees."
    )


def _survivor_text(rows: list[Kept]) -> str:
    first = rows[0]
    born = f"{first.op} of {module_text(first.module)}" + (f" (line {first.line})" if first.line else "")
    many = "a tensor" if first.count == 1 else f"{first.count} tensors"
    text = f"{born} made {many} of {bytes_text(first.bytes)} that outlives its step: {_holder(first)}"
    if first.holds == "view":
        text += (
            f" It is a view of {bytes_text(first.view_bytes)}, and a view keeps its whole storage of "
            f"{bytes_text(first.bytes)}."
        )
    saved = sum(row.bytes for row in rows if row.holds == "graph")
    if first.holds != "graph" and first.kind != "context":
        text += (
            " It has no graph."
            if not first.with_graph
            else f" Its graph is there too, and keeps {bytes_text(saved)} that were saved for backward."
            if saved
            else " Backward has freed what its graph had saved; the value and the nodes of the graph stay."
        )
    return text


def _holder(row: Kept) -> str:
    place = f" (line {row.name_line})" if row.name_line else ""
    if not row.name:
        return "no name of the program leads to it."
    if row.holds == "graph":
        return f"the graph of {row.name}{place} saved it, and that graph is alive."
    if row.kind == "context":
        return (
            f"{row.name}{place} holds it. An output on ctx holds the graph, and the graph holds ctx: a cycle that nobody frees."
            if row.with_graph
            else f"{row.name}{place} holds it."
        )
    return f"{row.name}{place} holds it{' in a hook' if row.kind == 'hook' else ''}."


def _repair(row: Kept) -> str:
    base = row.name.partition("[")[0]
    if row.kind == "context":
        return "Give it to ctx.save_for_backward(...), which breaks the cycle; read it from ctx.saved_tensors."
    if not row.name:
        return ""
    if row.holds == "view":
        return f"Store a copy of the part in {base}: x[...].detach().clone()."
    if row.with_graph:
        return f"Store x.detach() in {base}, or the number x.item() where that is enough."
    if row.kind in ("list", "dict", "closure", "hook"):
        return f"Reduce it to a number before {base} stores it, move it to the CPU, or empty {base} after each step."
    return f"Let go of {base} when the step is over."


def _between_steps(result: Result) -> Iterator[Finding]:
    """What has a name, is no parameter, buffer or input, and stays, without growing."""
    grown = {(row.name, row.op) for row in left_behind(result)}
    rows = [
        row
        for row in result.kept
        if row.name
        and (row.name, row.op) not in grown
        and row.holds != "graph"
        and not row.name.startswith((LAST_LOSS, LOSSES))
        and (row.step < 0 or row.step == len(result.step_ends) - 1)
    ]
    size = sum(row.bytes for row in rows)
    if not rows or size < _LARGE * result.peak.bytes:
        return
    said = [
        f"{row.name}{f' (line {row.name_line})' if row.name_line else ''} {bytes_text(row.bytes)}" for row in rows[:3]
    ]
    text = f"{', '.join(said)}. The program holds them by name: they are there in every phase and at every peak."
    if rows[0].step < 0 and rows[0].kind == "attribute" and rows[0].name.startswith("model."):
        text += f" {rows[0].name} is a plain attribute, no buffer: model.to(device) and state_dict() do not see it."
    evidence = {"held between steps_bytes": size, "peak_bytes": result.peak.bytes}
    yield Finding(
        level="fact", title="The program holds other tensors between steps", text=text, evidence=evidence,
        line=rows[0].name_line,
    )  # fmt: skip


LOOKS: tuple[Callable[[Result], Iterator[Finding]], ...] = (_growth, _between_steps)
