"""What takes the time of a step, where there is a name for it: input, Python, tiny operators, copies, a plain kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from lab.contract import Finding, Site
from lab.experiments.op_profile.readings import part_share, profiled_s
from lab.experiments.op_profile.schema import Result
from lab.quantities import seconds_text

_NOTES = 10
"""Of the sampling thread: fewer say nothing about lines."""


def input_time(result: Result) -> Iterator[Finding]:
    """The step waits for its batch."""
    if result.step is None or not (share := part_share(result, "data_loading_s")) > 0.15:
        return
    own = result.lines_of == "program"
    yield Finding(
        level="surprise" if share > 0.5 else "fact",
        title=f"{share:.0%} of the step is waiting for the next batch",
        text="The batch is made while the model waits for it."
        + (" It is the program's own DataLoader." if own else ""),
        evidence={"data loading": round(share, 3)},
        repair="Would num_workers help? Workers make the next batches meanwhile. A program here may start none: try it on your "
        "own machine, and make __getitem__ cheaper."
        if own
        else "",
    )


def python_time(result: Result) -> Iterator[Finding]:
    """Python that does work of its own between operators."""
    python = result.python
    if python is None or python.share < 0.25 or (result.verdict and result.verdict.withheld):
        return
    ours = (
        [line for line in python.lines if line.line] if result.lines_of == "program" and python.notes >= _NOTES else []
    )
    top = sorted(ours, key=lambda line: -line.share)[:3]
    where = ", ".join(f"line {line.line} in {line.function} ({line.share:.0%})" for line in top)
    yield Finding(
        level="surprise" if python.share > 0.5 else "fact",
        title=f"{python.share:.0%} of the step is Python between the operators",
        text=(f"Seen at {where} of {python.notes} looks. " if where else "")
        + "No operator runs meanwhile: another device, or faster operators, would not help.",
        evidence={"share": round(python.share, 3), "looks": python.notes},
        line=top[0].line if top else None,
        sites=tuple(
            Site(line.line, "Python runs here", after=f"{line.share:.0%} of its time") for line in top if line.line
        ),
        repair="Move this out of the step, or write it as operators on whole tensors." if top else "",
    )


def tiny_operators(result: Result) -> Iterator[Finding]:
    """Most calls are so short that calling them is what takes the time."""
    verdict, cost, tiny = result.verdict, result.dispatch, result.tiny_share
    if verdict is None or cost is None or tiny is None or result.overhead is None:
        return
    count = _called(result)
    python = result.python.share if result.python else 0.0
    if not (tiny > 0.8 and verdict.shares["host"] - python > 0.4 and count >= 50):
        return
    line, calls = _line_with_most_calls(result)
    items = sum(n for n, name in zip(result.calls.calls, result.calls.name, strict=True) if name == "aten::item")
    reads = items / result.profiled_steps - 1  # one is the loss, read at the end of the step
    synced = f" {reads:.0f} of the calls read a value with .item() or its like." if reads >= 2 else ""
    yield Finding(
        level="surprise",
        title=f"A step of {count:,.0f} calls of operators, {tiny:.0%} of them tiny",
        text=f"They take about as long as x + 1 on one element ({seconds_text(cost.profiled_s)} in a profile on this host): "
        f"what the step pays for is calling them.{synced}",
        evidence={"calls a step": round(count), "tiny": round(tiny, 3), "call_s": cost.call_s},
        line=line,
        sites=(Site(line, "called from here", after=f"{calls:,.0f} calls a step"),) if line else (),
        repair="Could the loop be one operator on the whole batch?" if line and calls > 0.3 * count else "",
    )


def _called(result: Result) -> float:
    """Calls of operators in a step, at every depth."""
    return (
        sum(n for n, ours in zip(result.calls.calls, result.calls.is_operator, strict=True) if ours)
        / result.profiled_steps
    )


def _line_with_most_calls(result: Result) -> tuple[int | None, float]:
    calls = result.calls
    if result.lines_of != "program":
        return None, 0.0
    found: Counter[int] = Counter()
    for n, line, ours in zip(calls.calls, calls.line, calls.is_operator, strict=True):
        if ours and line:
            found[line] += n
    return (found.most_common(1)[0][0], found.most_common(1)[0][1] / result.profiled_steps) if found else (None, 0.0)


def copies(result: Result) -> Iterator[Finding]:
    """Elements are moved into another order: contiguous(), clone(), reshape of a view."""
    calls = result.calls
    layout = _inside(result, ("aten::contiguous", "aten::clone", "aten::reshape"))
    rows = [at for at in layout if calls.is_operator[at] and calls.name[at] in ("aten::copy_", "aten::clone")]
    moved_s = sum(calls.self_s[at] for at in rows)
    if result.step is None or not moved_s > 0.08 * profiled_s(result):
        return
    by_line: Counter[int] = Counter()
    for at in rows:
        if (line := calls.line[at]) and result.lines_of == "program":
            by_line[line] += round(calls.self_s[at] * 1e9)
    count = sum(calls.calls[at] for at in rows if calls.name[at] == "aten::copy_") / result.profiled_steps
    share = moved_s / profiled_s(result)
    yield Finding(
        level="surprise" if share > 0.25 else "fact",
        title=f"{share:.0%} of the step copies tensors into another order",
        text=f"{count:.0f} copies a step by contiguous(), clone() or reshape(), forward and backward: they compute nothing.",
        evidence={"share": round(share, 3), "copies a step": round(count, 1)},
        line=by_line.most_common(1)[0][0] if by_line else None,
        sites=tuple(
            Site(line, "copied here", after=f"{ns / 1e9 / profiled_s(result):.0%} of the step")
            for line, ns in by_line.most_common(3)
        ),
        repair="Could one order of dimensions be kept all the way, or channels_last be used instead of permute?",
    )


def _inside(result: Result, names: tuple[str, ...]) -> list[int]:
    """Rows of these operators and of all that they called."""
    found: set[int] = set()
    for at, name in enumerate(result.calls.name):
        if name in names or result.calls.parent[at] in found:
            found.add(at)
    return sorted(found)


def plain_convolution(result: Result) -> Iterator[Finding]:
    """A convolution that no library took over."""
    calls = result.calls
    rows = [at for at, name in enumerate(calls.name) if "slow_conv" in name or "thnn_conv" in name]
    inside = sum(calls.self_s[at] for at in _inside(result, tuple({calls.name[at] for at in rows})))
    if not rows or not inside > 0.1 * profiled_s(result):
        return
    threads = f" with {result.threads} thread{'s' * (result.threads != 1)}" if result.threads else ""
    yield Finding(
        level="surprise",
        title="Convolutions ran in the plain kernel",
        text=f"{calls.name[rows[0]].removeprefix('aten::')} ran{threads}, not that of a library: {inside / profiled_s(result):.0%} "
        "of the step. Which kernel is picked depends on the number of threads, the shapes and the dtype.",
        evidence={"share": round(inside / profiled_s(result), 3)},
        line=calls.line[rows[0]] if result.lines_of == "program" else None,
    )
