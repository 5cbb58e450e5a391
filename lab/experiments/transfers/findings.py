"""What to notice, computed from the result."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from lab.contract import Finding, Site, by_level
from lab.experiments.transfers.readings import stride_ratio, total
from lab.experiments.transfers.schema import Result
from lab.quantities import bytes_text
from lab.records.transfers import Wait

MOST = 6
_OFTEN = 3
"""Waits of one line in a loop that are worth a word."""
_INSTEAD = {
    "item()": "Add up the tensor itself and call item() once after the loop, or every so many steps.",
    "float()": "Add up the tensor itself and convert once after the loop.",
    "int()": "Keep the number as a tensor until it is needed.",
    "a tensor as a condition": "Decide on the device: torch.where(condition, a, b), or decide on numbers that the host has.",
    "a tensor in a text": "Print every so many steps, or collect the tensors and print at the end.",
    "printing a tensor": "Print every so many steps, or collect the tensors and print at the end.",
    "a boolean index": "Keep the shape: torch.where(mask, x, 0), or weight by the mask. The size of the result is what the host waits for.",
    "nonzero()": "Work with the mask instead of the places.",
    "unique()": "Do it once, outside the loop.",
    "torch.equal": "Compare after the loop, or keep (a == b).all() as a tensor.",
    "tolist()": "Collect on the device, and bring everything over once after the loop.",
    "numpy()": "Collect on the device, and bring everything over once after the loop.",
    "cpu()": "Collect on the device, and bring everything over once after the loop.",
}


def explain(result: Result) -> tuple[Finding, ...]:
    """The most pressing first."""
    return tuple(islice(by_level(_VIEWS[result.view](result)), MOST))


def _waits(result: Result) -> Iterator[Finding]:
    where = "waited" if any(wait.seconds is not None for wait in result.waits) else "would make the host wait for a GPU"
    count = int(total(result))
    often = sorted((w for w in result.waits if w.in_loop and w.times >= _OFTEN), key=lambda w: -w.times)
    if often:
        per = f", {count / result.steps:.3g} a step" if result.steps else ""
        lines = ", ".join(str(n) for n in sorted({w.line for w in often}))
        yield Finding(
            level="warning", title=f"The program {where} {count:,} times{per}",
            text=f"Most of them in a loop: line {lines}. Each lets the queue of the device run empty before Python goes on.",
            evidence={"waits": count, "steps": result.steps}, line=often[0].line,
            sites=tuple(Site(w.line, "waits here", "", None, w.times) for w in often[:5]),
        )  # fmt: skip
        yield from (_line(wait) for wait in often[:4])
    elif count:
        yield Finding(
            level="fact", title=f"{count} {'wait' if count == 1 else 'waits'}, none of them again and again",
            text="Outside of loops, or once or twice in one: " + ", ".join(f"line {w.line} {w.source}" for w in result.waits[:6]) + ".", evidence={"waits": count}, line=result.waits[0].line,
        )  # fmt: skip
    elif result.fault is None:
        yield Finding(
            level="fact",
            title="No line waits",
            text="Nothing that the program does needs a value on the host.",
            evidence={"waits": 0},
        )


def _line(wait: Wait) -> Finding:
    price = f" They took {wait.seconds * 1e3:.2f} ms in all." if wait.seconds is not None else ""
    return Finding(
        level="surprise", title=f"Line {wait.line}: {wait.source}, {wait.times:,} times", text=f"The value, or the size of the result, is a number that Python needs before it can go on.{price}",
        evidence={"times": wait.times}, line=wait.line, repair=_INSTEAD.get(wait.source, ""), sites=(Site(wait.line, "waits here"),),
    )  # fmt: skip


def _copies(result: Result) -> Iterator[Finding]:
    if "transposed" in result.bandwidth.kind:
        ratio = stride_ratio(result)
        if ratio > 1.5:
            yield Finding(
                level="surprise", title=f"A transposed copy takes {ratio:.1f} times as long", text="16 MiB each. Read across the rows, every number comes from another line of the cache.",
                evidence={"ratio": ratio}, repair="Lay data out once in the order in which it is read.",
            )  # fmt: skip
        b = result.bandwidth
        rates = [(n / s, n) for k, n, s in zip(b.kind, b.bytes, b.seconds, strict=True) if k == "as it lies"]
        best, last = max(rates), rates[-1]
        if best[0] > 1.5 * last[0]:
            yield Finding(
                level="fact", title=f"{best[0] / 1e9:.3g} GB/s for {bytes_text(best[1])}, {last[0] / 1e9:.3g} GB/s for {bytes_text(last[1])}",
                text="What fits a cache is copied there; what does not, through memory.", evidence={"in cache": best[0], "through memory": last[0]},
            )  # fmt: skip
    yield from _flags(result)


def _flags(result: Result) -> Iterator[Finding]:
    idle = [flag for flag in result.flags if not flag.helps]
    if idle:
        yield Finding(
            level="fact", title=f"{len(idle)} of {len(result.flags)} calls for asynchronous copies do nothing here",
            text="; ".join(f"{flag.call}: {flag.outcome}" for flag in idle) + ".", evidence={"without effect": len(idle)},
        )  # fmt: skip


def _overlap(result: Result) -> Iterator[Finding]:
    if result.needs_gpu:
        yield Finding(level="fact", title="This view needs a GPU", text=f"It needs {result.needs_gpu}.", evidence={})
        yield from _flags(result)
        return
    if result.overlap is not None:
        yield Finding(
            level="fact", title=f"{result.overlap:.0%} of the shorter part is hidden behind the other", text="Copies ran on one stream, kernels on another; each kernel waited for its own chunk only.",
            evidence={"hidden": result.overlap},
        )  # fmt: skip
    if result.early_wrong:
        yield Finding(
            level="warning", title=f"{result.early_wrong} of {result.early_reads} reads before the copy had ended were wrong", text="A copy into pinned memory with non_blocking=True returns at once. After synchronize every value was right.",
            evidence={"wrong": result.early_wrong, "reads": result.early_reads}, repair="Wait for an event or synchronize before the host reads.",
        )  # fmt: skip
    elif result.early_wrong == 0:
        yield Finding(
            level="fact", title=f"All {result.early_reads} early reads were right this time", text="That is luck: nothing made the host wait for the copy.", evidence={"wrong": 0, "reads": result.early_reads},
        )  # fmt: skip


_VIEWS = {"waits": _waits, "copies": _copies, "overlap": _overlap}
