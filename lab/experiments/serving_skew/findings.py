"""What to notice, computed from the result."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from lab.contract import Finding, Site, by_level
from lab.experiments.serving_skew.readings import shown_by_name, shown_by_value
from lab.experiments.serving_skew.schema import Result
from lab.records.serving import Cause, StageGap

MOST = 5
_FAR = 1.0
"""Standard deviations of a column that count as moved."""


def explain(result: Result) -> tuple[Finding, ...]:
    """The most pressing first."""
    found = _power(result) if result.power else _drift(result) if result.drift else _stages(result)
    return tuple(islice(by_level(found), MOST))


def _stages(result: Result) -> Iterator[Finding]:
    if result.refused:
        yield Finding(
            level="fault", title="The serving path does not run", text=result.refused,
            evidence={"modules in another mode": ", ".join(result.modes_differ)},
            repair="model.eval() before serving." if result.modes_differ else "",
        )  # fmt: skip
        return
    yield from _pairs(result)
    if not result.stages:
        return
    if not result.first:
        yield from _agree(result)
        return
    first = next(stage for stage in result.stages if stage.name == result.first)
    yield _parted(result, first)
    if result.random_from and (result.cause is None or result.cause.kind != "randomness"):
        yield Finding(
            level="warning", title=f"Two calls of the serving path differ from {result.random_from} on",
            text="The same rows gave other numbers in a second call: something random is left on.",
            evidence={"first stage": result.random_from}, repair="model.eval(): Dropout draws in train mode only.",
        )  # fmt: skip
    if not result.labels_changed and first.name not in ("label", "labels"):
        yield Finding(
            level="surprise", title="No name changes: an accuracy test would pass",
            text=f"All {result.rows} rows keep their name, although the values part at {first.name}.",
            evidence={"names changed": 0.0, "gap": first.gap}, repair="Compare values of stages, not labels.",
        )  # fmt: skip


def _parted(result: Result, first: StageGap) -> Finding:
    at = next(i for i, stage in enumerate(result.stages) if stage.name == first.name)
    before = result.stages[:at]
    equal = (
        f"Before it {'the one stage is' if len(before) == 1 else f'all {len(before)} stages are'} equal bit for bit. "
        if before and all(s.equal for s in before)
        else ""
    )
    words, repair = _cause_words(result.cause, result)
    gap = (
        f"{first.gap:.1%} of its entries differ"
        if first.scale == 0.0
        else f"by {first.gap:.3g} standard deviations of the stage"
    )
    return Finding(
        level="warning", title=f"The paths part at {first.name}", text=f"{_capital(gap)}. {equal}{words}",
        evidence={"gap": first.gap, "names changed": result.labels_changed, "largest difference of a probability": result.probability_gap},
        repair=repair,
    )  # fmt: skip


def _cause_words(cause: Cause | None, result: Result) -> tuple[str, str]:
    if cause is None:
        return "", ""
    names = ", ".join(cause.names[:4]) + (" …" if len(cause.names) > 4 else "")
    told = {
        "features": (f"Columns that differ: {names}.", "Read columns by name, in the order that is stored with the weights."),
        "normalisation": ("The features agree, the constants that normalise them do not.", "Store mean and std with the weights; never take them from a request."),
        "dtype": (f"The serving path works in {names}.", "Cast where training cast, or widen the tolerance to what the format can hold."),
        "weights": (f"These weights differ: {names}.", "Load with strict=True and read the answer of load_state_dict."),
        "buffers": (f"These buffers differ: {names}.", "Load the whole state dict; running statistics are buffers."),
        "mode": (f"{names} is in train mode in one path and in eval mode in the other.", "model.eval() before serving."),
        "randomness": (f"{names} gives other numbers in every call.", "model.eval(): Dropout draws in train mode only."),
        "postprocessing": ("The logits agree; the function after them does not.", "Export the function with the model."),
        "labels": ("Every number agrees; the list of names is another one.", "Store the list of names with the weights; never derive it from a folder."),
    }  # fmt: skip
    return told.get(cause.kind, ("", ""))


def _agree(result: Result) -> Iterator[Finding]:
    exact = all(stage.equal for stage in result.stages)
    text = "equal bit for bit" if exact else f"within {result.tolerance:g} standard deviations; not all bits are equal"
    yield Finding(
        level="fact", title=f"The paths agree on {result.rows} rows",
        text=f"All {len(result.stages)} stages are {text}.", evidence={"stages": len(result.stages), "rows": result.rows},
    )  # fmt: skip


def _pairs(result: Result) -> Iterator[Finding]:
    for pair in result.pairs:
        sites = (Site(pair.line, "departs here", pair.second),) if pair.line else ()
        if pair.kind == "same names, another order":
            yield Finding(
                level="warning", title=f"{pair.second} lists the names of {pair.first} in another order",
                text=f"{pair.number:.0%} of the places hold another name. An index into one means something else in the other.",
                evidence={"places that differ": pair.number}, line=pair.line, sites=sites,
                repair="Keep one list, stored with the weights.",
            )  # fmt: skip
        else:
            yield Finding(
                level="warning", title=f"{pair.second} has {pair.number:.4g} times the spread of {pair.first}",
                text="Both come from the same values, and one is a multiple of the other plus a constant: a step of scaling is missing or done twice.",
                evidence={"ratio of the spreads": pair.number}, line=pair.line, sites=sites,
                repair="Do the steps in one order, in one function that both programs call.",
            )  # fmt: skip


def _power(result: Result) -> Iterator[Finding]:
    rows = result.rows
    planted = len([p for p in result.power if p.rows == rows and p.skew not in ("none", "batches of one")])
    if not planted:
        return
    value, name = shown_by_value(result, rows), shown_by_name(result, rows)
    hidden = [
        p.skew for p in result.power if p.rows == rows and not p.shown and p.skew not in ("none", "batches of one")
    ]
    yield Finding(
        level="surprise" if name < value else "fact", title=f"{value} of {planted} departures show in the values, {name} change a name",
        text=f"Each was planted in turn and {rows} golden rows went through both paths.", evidence={"by value": value, "by name": name},
        repair="Compare stages, not labels.",
    )  # fmt: skip
    if hidden:
        yield Finding(
            level="warning", title="These rows cannot show: " + ", ".join(hidden),
            text="A golden set must be able to fail: rows that are alike or symmetric leave a step without effect.",
            evidence={"hidden": len(hidden)}, repair="Add rows on which each step matters.",
        )  # fmt: skip


def _drift(result: Result) -> Iterator[Finding]:
    moved = [d for d in result.drift if abs(d.shift_std) >= _FAR]
    if result.first:
        yield from _stages(result)
    for one in moved:
        skew = (
            "The golden rows agree in both paths: this is no skew."
            if not result.first
            else "The golden rows disagree as well: that is a skew of its own."
        )
        yield Finding(
            level="warning", title=f"Live rows have moved: {one.column} by {one.shift_std:+.2f} standard deviations",
            text=f"{skew} What arrives is other than what was trained on: drift.", evidence={"shift": one.shift_std},
            repair="Watch the inputs; a repair of the serving code would change nothing." if not result.first else "",
        )  # fmt: skip
    if not moved and not result.first:
        yield Finding(
            level="fact", title="Neither skew nor drift", text=f"Both paths agree, and no column has moved by {_FAR:g} standard deviation.",
            evidence={d.column: d.shift_std for d in result.drift},
        )  # fmt: skip


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
