"""What to notice, computed from the result."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import islice, pairwise

from lab.contract import Finding, Site, by_level
from lab.experiments.reproducibility.host import TRIED
from lab.experiments.reproducibility.readings import last_gap
from lab.experiments.reproducibility.schema import Result

MOST = 6
_JUMP = 100.0
"""Growth of the gap in one step that counts as a jump."""


def explain(result: Result) -> tuple[Finding, ...]:
    """The most pressing first."""
    return tuple(islice(by_level(_VIEWS[result.view](result)), MOST))


def _difference(result: Result) -> Iterator[Finding]:
    yield _first(result)
    end = last_gap(result)
    if result.first is not None and end == 0.0:
        yield Finding(
            level="fact", title="Other operations, the same bits", text="After the last step all parameters are equal bit for bit.",
            evidence={"gap after the last step": end},
        )  # fmt: skip
    elif result.growth and end:
        gaps = [row.gap for row in result.growth]
        jumps = [(at, b / a) for at, (a, b) in enumerate(pairwise(gaps), 1) if a and b / a >= _JUMP]
        text = f"It was {gaps[0]:.2g} after the first."
        if jumps:
            text += f" In step {jumps[0][0]} it grew {jumps[0][1]:,.0f} times at once: a unit changed side."
        yield Finding(
            level="fact", title=f"After {len(gaps)} steps the parameters are {end:.2g} apart, relative to their size", text=text,
            evidence={"after the first step": gaps[0], "after the last": end},
        )  # fmt: skip


def _first(result: Result) -> Finding:
    first, change = result.first, result.change
    counts = {
        "equal operations": result.equal_operations,
        "of the first run": result.operations_a,
        "of the second": result.operations_b,
    }
    if first is None:
        return Finding(
            level="fact", title="The two runs are the same, bit for bit", text=f"All {result.operations_a:,} operations gave equal results. One pair of runs proves that for this host and these circumstances only.",
            evidence=counts,
        )  # fmt: skip
    where = f"{first.op} in {first.place}" if first.place else first.op
    sites = (Site(first.line, "differs first here"),) if first.line else ()
    if first.kind == "bits":
        return Finding(
            level="warning" if first.gap > 1e-3 else "surprise", title=f"They part at {where}",
            text=f"{first.share:.0%} of its elements differ, by up to {first.gap:.2g}. The {first.index} operations before it are equal bit for bit or in one run only; what comes after follows.",
            evidence={**counts, "gap": first.gap}, line=first.line, sites=sites, repair=_ADVICE.get(change, ""),
        )  # fmt: skip
    return Finding(
        level="fact", title=f"{where} runs in {'the second' if first.kind == 'extra op' else 'the first'} run only",
        text="Every operation that both have gives the same bits.", evidence=counts, line=first.line, sites=sites,
    )  # fmt: skip


_ADVICE = {
    "seed": "Seed before the model is built: constructors draw.",
    "threads": "Compare runs with the same number of threads.",
    "order": "Fix the order of the samples by a generator of its own.",
    "batch": "Compare runs with the same batch size.",
    "extra draw": "Give data, dropout and initialisation generators of their own: a draw more in one does not shift the others.",
    "dtype": "Copy the float32 weights into the float64 run instead of repeating the seed.",
}


def _program(result: Result) -> Iterator[Finding]:
    if result.fault is not None:
        return
    if result.operations_a:
        yield _first(result)
    if result.repeats > 1:
        word = "surprise" if result.distinct > 1 else "fact"
        yield Finding(
            level=word, title=f"{result.distinct} distinct of {result.repeats} runs",
            text="Every tensor and number that the program leaves, and what it printed, was compared." + ("" if result.distinct > 1 else " More runs would say more."),
            evidence={"distinct": result.distinct, "runs": result.repeats},
        )  # fmt: skip
    yield from _loaders(result)
    drawn = [d for d in result.draws if d.in_a and d.line]
    if drawn:
        lines: dict[int, int] = {}
        for draw in drawn:
            lines[draw.line] = lines.get(draw.line, 0) + draw.count
        told = ", ".join(f"line {line} {count:,}" for line, count in list(lines.items())[:6])
        yield Finding(
            level="fact", title=f"{sum(lines.values()):,} draws from torch's generator on {len(lines)} {'line' if len(lines) == 1 else 'lines'}",
            text=f"In order: {told}. One more in between shifts all that follow.", evidence={f"line {line}": count for line, count in list(lines.items())[:8]},
            line=next(iter(lines)),
        )  # fmt: skip
    for draw in result.draws:
        if draw.generator != "torch":
            yield Finding(
                level="fact", title=f"{draw.generator}'s generator was advanced too", text="torch.manual_seed does not touch it.", evidence={"generators": 2},
                repair="Seed it as well.",
            )  # fmt: skip


def _loaders(result: Result) -> Iterator[Finding]:
    """A draw by random_ on the line of a for loop: iterating drew it."""
    try:
        loops = {node.lineno for node in ast.walk(ast.parse(result.code)) if isinstance(node, (ast.For, ast.AsyncFor))}
    except (SyntaxError, ValueError):
        return
    drew = [d for d in result.draws if d.op == "random" and d.line in loops]
    if drew:
        yield Finding(
            level="surprise", title=f"Iterating on line {drew[0].line} draws from torch's generator",
            text="A DataLoader draws a seed for workers each time it is iterated, also without shuffling and without workers. A validation loop in between shifts what training draws.",
            evidence={"draws": sum(d.count for d in drew)}, line=drew[0].line, sites=(Site(drew[0].line, "draws here"),),
            repair="DataLoader(..., generator=torch.Generator()) has a tape of its own.",
        )  # fmt: skip


def _host(result: Result) -> Iterator[Finding]:
    racing = [row for row in result.sensitive if row.distinct > 1]
    if racing:
        row = max(racing, key=lambda one: one.distinct)
        mended = " With deterministic algorithms there is 1." if row.distinct_flag == 1 else ""
        yield Finding(
            level="surprise", title=f"{row.op}: {row.distinct} distinct of {row.of} calls with two threads",
            text=f"Threads add into the same places in whatever order they come.{mended} With one thread there is 1 too.",
            evidence={"distinct": row.distinct, "calls": row.of, "deterministic": row.distinct_flag}, repair="torch.use_deterministic_algorithms(True), or one thread.",
        )  # fmt: skip
    depend = [row.op for row in result.sensitive if row.threads_equal is False and row.distinct == 1]
    if depend:
        yield Finding(
            level="fact", title=f"Other bits with two threads than with one: {', '.join(depend)}", text="Each is the same in every call with as many threads; another number of threads adds in another order.",
            evidence={"operations": len(depend)},
        )  # fmt: skip
    by_batch = [row for row in result.sensitive if row.batches_differ]
    for row in by_batch[:1]:
        yield Finding(
            level="surprise", title=f"A row alone is not the same row in a batch: {row.op}", text=f"For batches of {', '.join(map(str, row.batches_differ))} the first row has other bits than in a batch of 64: another kernel adds in another order.",
            evidence={"smallest batch that agrees": next((b for b in (1, 2, 3, 4, 8, 16, 32) if b not in row.batches_differ), 64)}, repair="Serve with the batch size that was tested, or allow for rounding.",
        )  # fmt: skip
    if result.refused:
        yield Finding(
            level="fact", title=f"Deterministic algorithms refuse {len(result.refused)} of {TRIED} operations here", text="They forbid what has no ordered version: " + ", ".join(row.op for row in result.refused) + ". The others run.",
            evidence={"refused": len(result.refused)},
        )  # fmt: skip
    if result.cost:
        plain, strict = result.cost["as it is"], result.cost["deterministic"]
        yield Finding(
            level="fact", title=f"A training step takes {strict / plain:.2f} times as long under the flag", text=f"Without filling new memory {result.cost['deterministic, memory not filled'] / plain:.2f} times. The shortest of rounds in turns, for a small network.",
            evidence={"as it is_s": plain, "deterministic_s": strict},
        )  # fmt: skip


def _levels(result: Result) -> Iterator[Finding]:
    held = [row.name for row in result.levels if row.holds]
    lost = [row for row in result.levels if not row.holds]
    bits, curve = result.levels[0], result.levels[1]
    if not lost:
        yield Finding(
            level="fact",
            title="All three levels hold",
            text="Bits, curve and conclusion are the same.",
            evidence={row.name: row.measured for row in result.levels},
        )
        return
    text = f"Weights differ by up to {bits.measured:.2g}. " if bits in lost else ""
    text += f"The losses of a step differ by up to {curve.measured:.2g}, over seeds by up to {curve.yardstick:.2g}."
    yield Finding(
        level="surprise" if held else "warning", title=f"Holds: {', '.join(held) or 'none'}. Does not: {', '.join(row.name for row in lost)}", text=text,
        evidence={row.name: row.measured for row in result.levels}, repair="Report the spread over seeds; a difference below it is no finding." if curve.holds else "",
    )  # fmt: skip


def _sources(result: Result) -> Iterator[Finding]:
    loose = [row.name for row in result.sources if not row.pinned]
    yield Finding(
        level="fact", title=f"{len(loose)} of {len(result.sources)} sources are not pinned here", text="Not pinned: " + ", ".join(loose) + ".",
        evidence={"not pinned": len(loose)}, repair="Save this list with an experiment, and compare it where a result cannot be repeated.",
    )  # fmt: skip


_VIEWS = {"difference": _difference, "program": _program, "host": _host, "levels": _levels, "sources": _sources}
