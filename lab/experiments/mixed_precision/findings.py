"""What to notice, computed from the result."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

from lab.contract import Finding, by_level
from lab.experiments.mixed_precision.program_findings import program_findings
from lab.experiments.mixed_precision.readings import dead_layers, drift, measured_zero, moved, share, skips
from lab.experiments.mixed_precision.schema import Result

MOST = 6
_MUCH = 0.01
"""Share of gradients that counts as lost."""


def explain(result: Result) -> tuple[Finding, ...]:
    """The most pressing first."""
    return tuple(islice(by_level(_VIEWS[result.view](result)), MOST))


def _percent(part: float) -> str:
    return f"{part:.1%}"


def _power(scale: float) -> str:
    exact = math.log2(scale)
    return f"2^{exact:.0f}" if exact == round(exact) else f"{scale:g}"


def _window(result: Result) -> Iterator[Finding]:
    layers = result.layers
    dtype, scale = layers[0].dtype, layers[0].scale
    zero, dead = measured_zero(result), dead_layers(result)
    if math.isfinite(zero) and zero > _MUCH:
        dead_text = f" {dead} of {len(layers)} layers get no gradient at all." if dead else ""
        cast = next((row.zero for row in result.shares if (row.format, row.scale) == (dtype, scale)), None)
        understated = (
            f" Casting the float32 gradients afterwards would say {_percent(cast)}: on the way back the gradients of activations underflow too."
            if cast is not None and cast < zero
            else ""
        )
        yield Finding(
            level="warning", title=f"A real {dtype} backward loses {_percent(zero)} of the gradients at scale {_power(scale)}",
            text=f"They are exactly 0 where float32 has a number.{dead_text}{understated}",
            evidence={"zero after a real backward": zero, "layers without gradient": dead}, repair="Scale the loss, or use bf16.",
        )  # fmt: skip
    elif math.isfinite(zero) and dtype != "fp32":
        infinite = sum(layer.infinite for layer in layers)
        yield Finding(
            level="warning" if infinite else "fact",
            title=f"{infinite} layers have infinite gradients at scale {_power(scale)}" if infinite else f"A real {dtype} backward loses {_percent(zero)} of the gradients at scale {_power(scale)}",
            text="What is above the format's largest number becomes infinite: a scaler would skip this step and halve the scale." if infinite else "Nothing to speak of becomes 0, and every gradient is finite.",
            evidence={"zero after a real backward": zero, "layers with infinities": infinite},
        )  # fmt: skip
    yield from _span(result)
    yield from _format(result)


def _span(result: Result) -> Iterator[Finding]:
    low, high = min(result.histogram.exponent), max(result.histogram.exponent)
    chosen = next((f for f in result.formats if f.name == result.format), None)
    if chosen is None:
        return
    window = math.log2(chosen.largest / chosen.smallest)
    if high - low > window:
        yield Finding(
            level="surprise", title=f"No single scale fits: gradients span {high - low} powers of two, {chosen.name} holds {window:.1f}",
            text=f"The smallest is 2^{low}, the largest 2^{high}. Whatever the scale, some become 0 or infinite.",
            evidence={"span": high - low, "window": window}, repair="bf16 has the window of float32.",
        )  # fmt: skip


def _format(result: Result) -> Iterator[Finding]:
    scale = result.layers[0].scale
    if not any(row.format == result.format and row.scale == scale for row in result.shares):
        return
    one = share(result, result.format, scale)
    yield Finding(
        level="fact", title=f"Stored in {result.format} at scale {_power(scale)}: {_percent(one.zero)} become 0, {_percent(one.overflow)} overflow",
        text=f"Another {_percent(one.subnormal)} keep only part of their digits (subnormal). These are the float32 gradients, cast.",
        evidence={"zero": one.zero, "subnormal": one.subnormal, "overflow": one.overflow},
    )  # fmt: skip


def _scaler(result: Result) -> Iterator[Finding]:
    steps = result.steps
    if not steps:
        return
    count, first, last = skips(result), steps[0], steps[-1]
    evidence = {"skipped": count, "steps": len(steps), "scale at first": first.scale, "scale at the end": last.scale}
    causes = {step.cause for step in steps if step.skipped}
    if count == len(steps) and "nan" in causes:
        yield Finding(
            level="fault", title=f"{count} of {len(steps)} steps were skipped, and the scale fell to {last.scale:g}",
            text=f"The gradient is NaN in every step, made first by {steps[0].first}. A smaller scale cannot mend that; the scaler has no floor.",
            evidence=evidence, repair="Find the operation that makes the NaN; the scaler hides it.",
        )  # fmt: skip
    elif count:
        named = next(step for step in steps if step.skipped)
        yield Finding(
            level="surprise", title=f"{count} of {len(steps)} steps were skipped",
            text=f"First in step {named.step}: {named.first or 'a gradient'} {'overflowed' if named.cause == 'inf' else 'made a NaN'} at scale {_power(named.scale)}. The optimizer's hook did not fire in these steps, and the scale was halved each time.",
            evidence=evidence, repair="Single skips are the scaler at work. Many in a row at the start: a smaller init_scale.",
        )  # fmt: skip
    else:
        grown = f" It grew from {_power(first.scale)} to {_power(last.scale)}." if last.scale != first.scale else ""
        yield Finding(
            level="fact", title="No step was skipped", text=f"Every gradient was finite.{grown}", evidence=evidence,
        )  # fmt: skip
    if result.clip == "before unscale":
        yield Finding(
            level="warning", title=f"Gradients were clipped while they were scaled; the loss ends at {last.loss:.3f}",
            text=f"A norm of 1 for gradients that are {_power(last.scale)} times too large leaves next to nothing of them after unscaling. It began at {first.loss:.3f}.",
            evidence={"loss at first": first.loss, "loss at the end": last.loss}, repair="scaler.unscale_(optimizer), then clip, then scaler.step(optimizer).",
        )  # fmt: skip
    if result.dtype == "bf16" and not count:
        yield Finding(
            level="fact", title="bf16 needs no scaler", text="Its window is that of float32: no gradient overflowed or vanished for want of range.", evidence=evidence,
        )  # fmt: skip


def _updates(result: Result) -> Iterator[Finding]:
    few = moved(result, "bf16", 1e-5)
    if few < 0.5:
        yield Finding(
            level="warning", title=f"At learning rate 1e-5 {_percent(few)} of the bf16 weights move",
            text="A step that is less than half the distance to the next number rounds back to where it was. In float32 all move.",
            evidence={"bf16": few, "float32": moved(result, "fp32", 1e-5)}, repair="Keep float32 master weights, or round at random.",
        )  # fmt: skip
    if not result.drifts:
        return
    stopped = drift(result, "average", "bf16")
    if stopped < 0.9:
        yield Finding(
            level="surprise", title=f"An average with 0.999 in bf16 stops at {stopped:g}", text=f"It should reach 0.993; 0.999 itself is 1 in bf16. In float32 it is {drift(result, 'average', 'fp32'):.4g}.",
            evidence={"bf16": stopped, "float32": drift(result, "average", "fp32")}, repair="Keep averages of weights in float32.",
        )  # fmt: skip
    if not math.isfinite(drift(result, "sum of 70,000 ones", "fp16")):
        yield Finding(
            level="surprise", title="The mean exists, the sum does not", text=f"70,000 ones in fp16: the mean is {drift(result, 'mean of 70,000 ones', 'fp16'):g}, the sum is infinite, for 65,504 is the largest number. mean adds up in float32.",
            evidence={"mean": drift(result, "mean of 70,000 ones", "fp16"), "sum": drift(result, "sum of 70,000 ones", "fp16")}, repair="x.sum(dtype=torch.float32)",
        )  # fmt: skip


def _matmul(result: Result) -> Iterator[Finding]:
    last = max(row.k for row in result.matmul)
    by = {(row.dtype, row.accumulate): row.error for row in result.matmul if row.k == last}
    torch_bf16, naive = by["bf16", "by torch"], by["bf16", "one after another"]
    if naive > 3 * torch_bf16:
        yield Finding(
            level="surprise", title=f"Sums of {last} in bf16: torch errs by {torch_bf16:.2g}, adding in bf16 by {naive:.2g}",
            text="torch multiplies in 16 bits and adds in 32. Its error does not grow with the length of the sum; the other does.",
            evidence={"by torch": torch_bf16, "one after another": naive},
        )  # fmt: skip
    if result.speed:
        fastest = min(result.speed, key=lambda name: result.speed[name])
        told = ", ".join(f"{name} {seconds * 1e3:.2f} ms" for name, seconds in result.speed.items())
        slower = [name for name in ("bf16", "fp16") if result.speed[name] > 1.2 * result.speed["fp32"]]
        yield Finding(
            level="warning" if slower else "fact", title=f"On this host {' and '.join(slower)} {'are' if len(slower) > 1 else 'is'} slower than fp32 for small layers" if slower else f"On this host {fastest} is fastest for small layers",
            text=f"A forward and backward of four layers of 64: {told}, the shortest of rounds in turns. Larger layers may go the other way.",
            evidence={f"{name}_s": seconds for name, seconds in result.speed.items()},
        )  # fmt: skip


_VIEWS = {"window": _window, "scaler": _scaler, "ops": program_findings, "updates": _updates, "matmul": _matmul}
