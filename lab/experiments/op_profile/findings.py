"""What to notice in a profile, computed from the result."""

from __future__ import annotations

from collections.abc import Iterator

from lab.contract import Finding, by_level
from lab.experiments.op_profile.readings import (
    arithmetic_share,
    busy_share,
    first_ratio,
    reading,
    short_name,
    totals_over_step,
)
from lab.experiments.op_profile.schema import Result
from lab.quantities import number_text, seconds_text

MOST = 5


def explain(result: Result) -> tuple[Finding, ...]:
    """At most ``MOST`` things to notice: a trap that was tried, then the most important."""
    looks = (_first_step, _busy_and_slow, _self_and_total, _largest, _optimizer, _overhead, _said)
    found = [finding for look in looks for finding in look(result)]
    return (*_trap(result), *by_level(found))[:MOST]


def _trap(result: Result) -> Iterator[Finding]:
    if result.trap is None:
        return
    evidence = {
        f"{r.name}, {r.program}" + ({"s": "_s", "bytes": "_bytes"}.get(r.unit, "")): r.value
        for r in result.trap.readings
        if r.value is not None
    }
    said = {"PyTorch says": result.trap.message} if result.trap.message else {}
    text = result.trap.explanation
    if result.trap.name == "clocks" and result.device == "cpu":
        text += f" Here the naive clock says {seconds_text(reading(result, 'naive clock', 'as written'))}."
    yield Finding(
        level="surprise",
        title=result.trap.title[:1].upper() + result.trap.title[1:],
        text=text,
        evidence=evidence | said,
    )


def _first_step(result: Result) -> Iterator[Finding]:
    ratio = first_ratio(result)
    if not result.overhead or not ratio > 1.3:
        return
    first_s = next(i.total_s for i in result.iterations if i.kind == "first")
    cause = (
        "compiled the model"
        if result.compile_s
        else "created the optimizer's state, picked kernels and filled the allocator"
    )
    yield Finding(
        level="surprise",
        title=f"The first step took {ratio:.1f} times as long",
        text=f"It {cause}: {seconds_text(first_s)} against {seconds_text(result.overhead.bare_s.median)} later. A fresh process pays more still.",
        evidence={"first_s": first_s, "median later_s": result.overhead.bare_s.median},
        repair="Leave the first steps out of a measurement.",
    )


def _busy_and_slow(result: Result) -> Iterator[Finding]:
    busy, reached = busy_share(result), arithmetic_share(result)
    if not result.ceilings or not (busy > 0.6 and reached < 0.4):
        return
    what = "A kernel is running" if result.device_busy_s is not None else "An operator is running"
    yield Finding(
        level="surprise",
        title=f"Busy {busy:.0%} of the time, at {reached:.0%} of the arithmetic",
        text=f"{what} for {busy:.0%} of the step, and the step reaches {number_text(reached * result.ceilings.flops_per_s / 1e9)} of the "
        f"{number_text(result.ceilings.flops_per_s / 1e9)} GFLOP/s of a large matmul. Busy says that something "
        "ran, not that it ran well: traffic, small shapes and elementwise operators take the rest.",
        evidence={"busy": round(busy, 3), "share of the arithmetic": round(reached, 3)},
        repair="Look at Ceilings: operators near the traffic ceiling want fewer bytes, those far from both want larger shapes.",
    )  # fmt: skip


def _self_and_total(result: Result) -> Iterator[Finding]:
    ratio = totals_over_step(result)
    if not ratio > 1.5:
        return
    calls = result.calls
    gaps = [
        (total - own, at)
        for at, (total, own, ours) in enumerate(zip(calls.total_s, calls.self_s, calls.is_operator, strict=True))
        if ours
    ]
    at = max(gaps)[1]
    steps = result.profiled_steps
    yield Finding(
        level="fact",
        title=f"Totals add up to {ratio:.1f} times the step",
        text=f"{short_name(calls.name[at])} has a total of {seconds_text(calls.total_s[at] / steps)} and {seconds_text(calls.self_s[at] / steps)} "
        "in itself: the rest is in what it called, and counts again there. Only self times add up.",
        evidence={"total_s": calls.total_s[at] / steps, "self_s": calls.self_s[at] / steps},
        line=_line(result, at),
    )


def _largest(result: Result) -> Iterator[Finding]:
    calls, steps = result.calls, result.profiled_steps
    if result.step is None:
        return
    owned: dict[str, float] = {}
    for name, own, ours in zip(calls.name, calls.self_s, calls.is_operator, strict=True):
        if ours:
            owned[name] = owned.get(name, 0.0) + own / steps
    if not owned:
        return
    name = max(owned, key=lambda name: owned[name])
    rows = [at for at, other in enumerate(calls.name) if other == name]
    at = max(rows, key=lambda at: calls.self_s[at])
    place = f", most of it from {calls.module[at]}" if calls.module[at] else ""
    count = sum(calls.calls[at] for at in rows) / steps
    yield Finding(
        level="fact",
        title=f"{short_name(name)} has the largest self time",
        text=f"{seconds_text(owned[name])} of {seconds_text(result.step.total_s)} in {count:.0f} calls a step{place}.",
        evidence={"self_s": owned[name], "calls a step": round(count, 1)},
        line=_line(result, at),
    )


def _optimizer(result: Result) -> Iterator[Finding]:
    if result.step is None or result.step.optimizer_s < 0.15 * result.step.total_s:
        return
    calls, inside = result.calls, set()
    for at, name in enumerate(calls.name):
        if name == "optimizer" or calls.parent[at] in inside:
            inside.add(at)
    count = sum(calls.calls[at] for at in inside if calls.is_operator[at]) / result.profiled_steps
    yield Finding(
        level="fact",
        title=f"The optimizer takes {result.step.optimizer_s / result.step.total_s:.0%} of the step",
        text=f"It runs {count:.0f} operators a step, each a pass over a parameter or its state. They do little arithmetic for "
        "each byte they move.",
        evidence={"optimizer_s": result.step.optimizer_s, "operators": round(count)},
        repair="" if count < 20 else "fused=True updates all parameters in one call.",
    )


def _overhead(result: Result) -> Iterator[Finding]:
    if not result.overhead or result.overhead.ratio < 1.15:
        return
    bare, profiled = result.overhead.bare_s.min, result.overhead.profiled_s.min
    each = (profiled - bare) / result.overhead.events_per_step
    yield Finding(
        level="warning" if result.overhead.ratio > 1.5 else "fact",
        title=f"The profiler makes this step {result.overhead.ratio:.2f} times as long",
        text=f"{seconds_text(bare)} without it, {seconds_text(profiled)} with it: some {seconds_text(each)} for each of "
        f"{result.overhead.events_per_step:,} events. Many short operators look slower than they are.",
        evidence={"bare_s": bare, "profiled_s": profiled, "events": result.overhead.events_per_step},
        repair="Compare settings by the bare step; use the profile to see where to look.",
    )


def _said(result: Result) -> Iterator[Finding]:
    for text in (result.steps_cut, *result.notes):
        if text:
            yield Finding(
                level="warning",
                title="A setting that did not take effect" if text in result.notes else "Fewer steps",
                text=text,
                evidence={},
            )


def _line(result: Result, at: int) -> int | None:
    """A finding names lines of the visitor's program only."""
    return result.calls.line[at] if result.lines_of == "program" else None
