"""What to notice in a profile, computed from the result. Times are those of the bare step; of a profile, shares are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lab.contract import Finding
from lab.experiments.op_profile.advice import advice
from lab.experiments.op_profile.causes import copies, input_time, plain_convolution, python_time, tiny_operators
from lab.experiments.op_profile.readings import (
    arithmetic_share,
    backward_ratio,
    busy_share,
    first_ratio,
    largest_part,
    line_of,
    part_share,
    profiled_s,
    reading,
    short_name,
    totals_over_step,
)
from lab.experiments.op_profile.schema import Result
from lab.quantities import number_text, seconds_text

MOST = 5


def explain(result: Result) -> tuple[Finding, ...]:
    """At most ``MOST`` things to notice. Beside a trap the model is a stand-in, about which there is nothing to say."""
    if result.trap is not None:
        return tuple(_trap(result))
    point = list(_LOOKS[result.point](result)) if result.point else []
    others = [look for key, look in _LOOKS.items() if key != result.point and key not in _ONLY_AS_POINT]
    return (*point, *(finding for look in others for finding in look(result)))[:MOST]


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


def _busy(result: Result) -> Iterator[Finding]:
    if result.busy:
        kept = (
            "" if result.verdict is None or result.verdict.withheld else " What the step is bound by holds in them all."
        )
        yield Finding(
            level="warning",
            title="This machine is busy",
            text=f"{result.busy}{kept}",
            evidence={"disturbed steps": sum(i.disturbed for i in result.iterations if i.kind == "bare")},
            repair="Measure again when less is going on.",
        )


def _backward(result: Result) -> Iterator[Finding]:
    ratio = backward_ratio(result)
    if ratio == ratio and result.step:
        yield Finding(
            level="fact",
            title=f"Backward takes {ratio:.1f} times as long as forward",
            text=f"Forward is {part_share(result, 'forward_s'):.0%} of the step, backward {part_share(result, 'backward_s'):.0%}.",
            evidence={"backward over forward": round(ratio, 2)},
        )


def _largest_part(result: Result) -> Iterator[Finding]:
    if result.step is None:
        return
    part = largest_part(result)
    yield Finding(
        level="fact",
        title=f"The longest part is {part.replace('_', ' ')}",
        text=f"It is {part_share(result, f'{part}_s'):.0%} of the step.",
        evidence={"share": round(part_share(result, f"{part}_s"), 3)},
    )


def _first_step(result: Result) -> Iterator[Finding]:
    ratio = first_ratio(result)
    if not result.overhead or not result.overhead.steady or not ratio > 1.3:
        return
    first = next(i for i in result.iterations if i.kind == "first")
    yield Finding(
        level="surprise",
        title=f"The first step took {ratio:.1f} times as long",
        text=f"{seconds_text(first.total_s)} against {seconds_text(result.overhead.bare_s.median)} later. {_first_cause(result)}"
        "A fresh process pays more still.",
        evidence={"first_s": first.total_s, "median later_s": result.overhead.bare_s.median},
        repair="Leave the first steps out of a measurement.",
    )


def _first_cause(result: Result) -> str:
    """The part in which most of the difference is, and what is known of it."""
    first = next(i for i in result.iterations if i.kind == "first").parts
    if result.compile_s:
        return "It compiled the model. "
    if first is None or result.step is None:
        return ""
    excess = {
        part: getattr(first, f"{part}_s") - getattr(result.step, f"{part}_s")
        for part in ("forward", "backward", "optimizer")
    }
    part = max(excess, key=lambda name: excess[name])
    if excess[part] <= 0.3 * (first.total_s - result.step.total_s):
        return ""
    state = " created its state and" if part == "optimizer" and result.stateful else ""
    if state:
        return f"Most of the difference is in the optimizer, which{state} ran for the first time. "
    return f"Most of the difference is in {'the optimizer' if part == 'optimizer' else part}. "


def _busy_and_slow(result: Result) -> Iterator[Finding]:
    busy, reached = busy_share(result), arithmetic_share(result)
    works = result.verdict is not None and result.verdict.bound == "device" and not result.busy
    if not result.ceilings or not works or not (busy > 0.6 and reached < 0.4):
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
    whole_s = profiled_s(result)
    yield Finding(
        level="fact",
        title=f"Totals add up to {ratio:.1f} times the step",
        text=f"{short_name(calls.name[at])} has a total of {calls.total_s[at] / whole_s:.1%} of the step and "
        f"{calls.self_s[at] / whole_s:.1%} in itself: the rest is in what it called, and counts again there. Only self times "
        "add up.",
        evidence={
            "total share": round(calls.total_s[at] / whole_s, 4),
            "self share": round(calls.self_s[at] / whole_s, 4),
        },
        line=line_of(result, at),
    )


def _largest(result: Result) -> Iterator[Finding]:
    calls, steps = result.calls, result.profiled_steps
    if result.step is None or (result.verdict and (result.verdict.withheld or result.verdict.bound != "device")):
        return
    owned: dict[str, float] = {}
    for name, own, ours in zip(calls.name, calls.self_s, calls.is_operator, strict=True):
        if ours:
            owned[name] = owned.get(name, 0.0) + own
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
        text=f"{owned[name] / profiled_s(result):.0%} of the step in {count:.0f} call{'s' * (count != 1)} a step{place}.",
        evidence={"share": round(owned[name] / profiled_s(result), 3), "calls a step": round(count, 1)},
        line=line_of(result, at),
    )


def _optimizer(result: Result) -> Iterator[Finding]:
    if result.step is None or part_share(result, "optimizer_s") < 0.15:
        return
    calls, inside = result.calls, set()
    for at, name in enumerate(calls.name):
        if name == "optimizer" or calls.parent[at] in inside:
            inside.add(at)
    count = sum(calls.calls[at] for at in inside if calls.is_operator[at]) / result.profiled_steps
    fused = any(calls.name[at].startswith("aten::_fused_") for at in inside)
    how = (
        "A fused kernel updates all parameters in one pass."
        if fused
        else "Each is a pass over a parameter or its state, with little arithmetic for each byte."
    )
    share = part_share(result, "optimizer_s")
    yield Finding(
        level="fact",
        title=f"The optimizer takes {share:.0%} of the step",
        text=f"It runs {count:.0f} operator{'s' * (round(count) != 1)} a step. {how}",
        evidence={"share": round(share, 3), "operators": round(count)},
    )


def _overhead(result: Result) -> Iterator[Finding]:
    if not result.overhead or not result.overhead.steady or result.busy or result.overhead.ratio < 1.15:
        return
    each = (result.overhead.profiled_s.median - result.overhead.bare_s.median) / result.overhead.events_per_step
    yield Finding(
        level="warning" if result.overhead.ratio > 1.5 else "fact",
        title=f"The profiler makes this step {result.overhead.ratio:.2f} times as long",
        text=f"Some {seconds_text(each)} for each of {result.overhead.events_per_step:,} events. Many short operators look "
        "slower than they are.",
        evidence={"ratio": round(result.overhead.ratio, 3), "events": result.overhead.events_per_step},
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


_LOOKS: dict[str, Callable[[Result], Iterator[Finding]]] = {
    "said": _said,
    "busy": _busy,
    "input": input_time,
    "python": python_time,
    "tiny": tiny_operators,
    "copies": copies,
    "convolution": plain_convolution,
    "advice": advice,
    "backward": _backward,
    "largest part": _largest_part,
    "busy and slow": _busy_and_slow,
    "largest": _largest,
    "optimizer": _optimizer,
    "first step": _first_step,
    "overhead": _overhead,
    "self and total": _self_and_total,
}
"""What is looked for, the most telling first."""
_ONLY_AS_POINT = ("backward", "largest part")
