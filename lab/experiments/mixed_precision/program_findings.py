"""What few bits did to a program, as findings: the operation, its line, the numbers, and what to change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from lab.contract import Finding, Level, Site
from lab.experiments.mixed_precision.schema import Result
from lab.records.precision import Trouble

Told = tuple[Level, str, str, str, str, str]
"""Level, title, text, repair, role of the first line, role of the other."""


def program_findings(result: Result) -> Iterator[Finding]:
    """The fault first, then one a trouble, then which operations ran in which dtype."""
    if result.fault and result.fault.sites and result.fault.explanation:
        yield Finding(
            level="fault", title=f"The cause is on line {result.fault.sites[0].line}", text=result.fault.explanation, evidence={},
            line=result.fault.sites[0].line, repair=result.fault.repair, sites=result.fault.sites,
        )  # fmt: skip
    for one in result.troubles:
        level, title, text, repair, role, other = _TOLD[one.cause](one)
        sites = [Site(one.line, role)] if one.line else []
        if one.other_line and one.other_line != one.line:
            sites.append(Site(one.other_line, other))
        yield Finding(
            level=level, title=title, text=text, evidence={_MEASURED[one.cause]: one.number}, line=one.line or None, repair=repair, sites=tuple(sites)
        )  # fmt: skip
    counts = Counter[str]()
    for op in result.ops:
        counts[op.output] += 0 if op.cast else op.count
    casts = sum(op.count for op in result.ops if op.cast)
    low = {name: n for name, n in counts.items() if name in ("float16", "bfloat16") and n}
    if low:
        names = ", ".join(f"{n:,} in {name}" for name, n in low.items())
        yield Finding(
            level="fact", title=f"{names}; {counts['float32']:,} operations in float32, {casts:,} casts",
            text="Counted where they reach the kernels, below autocast, forward and backward.", evidence={**low, "float32": counts["float32"], "casts": casts},
        )  # fmt: skip


def _overflow(one: Trouble) -> Told:
    text = f"The result would be {one.number:,.0f}; {one.text} holds {one.other:,.0f} at most, and what is above becomes infinite."
    follows = f" Line {one.other_line} then made a NaN of it." if one.other_line else ""
    repair = "x.sum(dtype=torch.float32), or take the mean." if one.name == "sum" else "Do this step in float32."
    return (
        "warning",
        f"{one.name} on line {one.line} overflowed {one.text}",
        text + follows,
        repair,
        "overflows here",
        "NaN here",
    )


def _nan(one: Trouble) -> Told:
    after = " Its input already held infinities." if one.number else ""
    return (
        "warning",
        f"{one.name.strip('_')} on line {one.line} made a NaN",
        f"No input of it was NaN.{after}",
        "Keep one position of each row open, or mask with torch.where." if "softmax" in one.name else "",
        "NaN here",
        "infinite since here",
    )


def _lost(one: Trouble) -> Told:
    text = f"{one.number:.0%} of the weights that had a gradient moved, in {one.other:,.0f} steps at learning rate {one.text}: a step of less than half the distance to the next {one.name} number rounds back."
    return (
        "warning",
        "Updates are lost in rounding",
        text,
        "Keep the weights in float32 and let autocast cast them.",
        "optimizer over 16-bit weights",
        "",
    )


def _stale(one: Trouble) -> Told:
    text = f"autocast cast the weight {one.text} on line {one.number:.0f} and keeps that copy until the region ends; line {one.other_line} used it after the weight had changed."
    return (
        "warning",
        "A weight was changed inside autocast, and its old cast was used",
        text,
        "Change weights outside the region, or call torch.clear_autocast_cache().",
        "weight changed here",
        "old cast used here",
    )


def _off(one: Trouble) -> Told:
    return (
        "warning",
        f"autocast on line {one.line} was switched off",
        f"torch said so once: {one.text}. Everything in the region ran in full precision.",
        'Name the device and a dtype that are there: torch.autocast("cpu", dtype=torch.bfloat16).',
        "has no effect",
        "",
    )


def _skips(one: Trouble) -> Told:
    return (
        "fact",
        f"{one.number:.0f} of {one.other:.0f} steps were skipped",
        f"The scale is {one.text} now. Single skips after growth are the scaler at work: it doubles until something overflows, and halves.",
        "",
        "scaler made here",
        "",
    )


def _endless(one: Trouble) -> Told:
    return (
        "warning",
        f"{one.number:.0f} of {one.other:.0f} steps were skipped, the last ones all",
        f"The scale fell to {one.text}. An overflow ends when the scale is small enough; this does not.",
        "Look for NaN or infinity in the forward pass.",
        "scaler made here",
        "",
    )


def _clip(one: Trouble) -> Told:
    text = f"The gradients carry the scale {one.number:g} here" + (
        f": their norm was {one.other:,.0f}, {one.other / one.number:.3g} without it." if one.other else "."
    )
    return (
        "warning",
        "Gradients are clipped while they are scaled",
        text,
        "scaler.unscale_(optimizer) before clipping.",
        "clipped here",
        "",
    )


def _past(one: Trouble) -> Told:
    text = f"Gradients still carry the scale {one.number:g}, and optimizer.step() applied them as they are."
    return (
        "warning",
        "A step was taken over scaled gradients",
        text,
        "scaler.step(optimizer) instead of optimizer.step().",
        "stepped here",
        "",
    )


def _eps(one: Trouble) -> Told:
    return (
        "warning",
        f"Adam's eps is 0 in {one.name}",
        "It divides by the root of the second moment plus eps; both are 0 for small gradients in this format, and the weight becomes infinite.",
        "eps=1e-4, or float32 weights.",
        "optimizer made here",
        "",
    )


_TOLD: dict[str, Callable[[Trouble], Told]] = {
    "overflow": _overflow, "nan": _nan, "lost update": _lost, "stale cast": _stale, "autocast off": _off, "skips": _skips,
    "skips for ever": _endless, "clipped while scaled": _clip, "stepped past the scaler": _past, "eps is zero": _eps,
}  # fmt: skip
_MEASURED = {
    "overflow": "largest value", "nan": "inputs held infinities", "lost update": "share that moved", "stale cast": "cast on line",
    "autocast off": "operations in 16 bits", "skips": "skipped", "skips for ever": "skipped", "clipped while scaled": "scale",
    "stepped past the scaler": "scale", "eps is zero": "eps in that format",
}  # fmt: skip
"""What the number of each trouble is."""
