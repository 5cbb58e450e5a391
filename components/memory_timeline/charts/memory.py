"""Settings beside each other, what would lower the peak, what is saved, and what fits: records of memory -> charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt
import pandas as pd

from components.kit.palette import GRAPH, MEMORY, Theme
from lab.quantities import bytes_text, short_bytes_text
from lab.records.memory import CATEGORY_TEXTS, Change, Curve, Run, SavedTensor

HUES = CATEGORY_TEXTS | {"saved": "activations", "held": "held", "workspaces": "unseen"}
"""Categories, in stacking order -> their names in the palette and on the chart."""
_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


class Moment(NamedTuple):
    """What was alive at one instant of a run."""

    name: str
    bytes: int
    phase: str
    categories: Mapping[str, int]


def peaks_of(runs: Sequence[Run]) -> list[Moment]:
    """The peaks of the settings that ran to their end."""
    return [
        Moment(setting_text(run), run.peak_bytes, run.peak_phase, run.categories)
        for run in runs
        if run.peak_bytes is not None
    ]


def curves_of(runs: Sequence[Run]) -> dict[str, Curve]:
    """The curves of the settings that ran to their end, by name."""
    return {setting_text(run): run.curve for run in runs if run.peak_bytes is not None}


def setting_text(run: Run) -> str:
    """The name of a setting, and whether it is the one that the controls say."""
    return f"{run.setting} (as set)" if run.chosen else run.setting


def peaks_chart(moments: Sequence[Moment], theme: Theme, title: str = "bytes alive at the peak") -> Any:
    """One bar a moment, stacked by category, and the phase it falls in."""
    most = max(moment.bytes for moment in moments)
    scale, unit = unit_of(most)
    rows = [
        {
            "setting": moment.name,
            "category": label,
            "order": position,
            "size": moment.categories[name] / scale,
            "exact": bytes_text(moment.categories[name]),
            "peak": bytes_text(moment.bytes),
        }
        for moment in moments
        for position, (name, label) in enumerate(HUES.items())
        if moment.categories[name]
    ]
    data = pd.DataFrame(rows)
    order = [moment.name for moment in moments]
    y = alt.Y("setting:N", sort=order, title=None, axis=alt.Axis(labelLimit=260, labelFontSize=13))
    bars = (
        alt.Chart(data)
        .mark_bar(height={"band": 0.72})
        .encode(
            y=y,
            x=alt.X("size:Q", title=f"{title} ({unit})", stack=True),
            color=_category_color(list(dict.fromkeys(data["category"])), theme),
            order="order:Q",
            tooltip=[
                alt.Tooltip("setting", title="setting"),
                alt.Tooltip("category", title="category"),
                alt.Tooltip("exact", title="at the peak"),
                alt.Tooltip("peak", title="whole peak"),
            ],
        )
    )
    labels = [
        {
            "setting": moment.name,
            "size": moment.bytes / scale,
            "text": f"{short_bytes_text(moment.bytes)}, {moment.phase}",
        }
        for moment in moments
    ]
    ends = (
        alt.Chart(pd.DataFrame(labels))
        .mark_text(align="left", dx=6, fontSize=13, color=GRAPH[theme]["ink"])
        .encode(y=y, x="size:Q", text="text:N")
    )
    ends = ends.encode(x=alt.X("size:Q", scale=alt.Scale(domain=[0, most / scale * 1.4], nice=False)))
    said = ", ".join(f"{moment.name} {short_bytes_text(moment.bytes)}" for moment in moments)
    return alt.layer(bars, ends).properties(height=alt.Step(46), description=f"Peak by category: {said}.")


def curves_chart(curves: Mapping[str, Curve], theme: Theme) -> alt.Chart:
    """Bytes alive over operations, one line a name."""
    scale, unit = unit_of(max(size for curve in curves.values() for size in curve.bytes))
    rows = [
        {"setting": name, "operation": index, "size": size / scale, "exact": bytes_text(size)}
        for name, curve in curves.items()
        for index, size in zip(curve.index, curve.bytes, strict=True)
    ]
    names = list(curves)
    color = alt.Color(
        "setting:N", sort=names, scale=alt.Scale(domain=names, range=line_hues(theme)[: len(names)]), legend=_LEGEND
    )
    dash = alt.StrokeDash(
        "setting:N", sort=names, scale=alt.Scale(domain=names, range=_DASHES[: len(names)]), legend=_LEGEND
    )
    return (
        alt.Chart(pd.DataFrame(rows))
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X("operation:Q", title="operation, in the order in which the dispatcher saw it", axis=alt.Axis(format="d")),
            y=alt.Y("size:Q", title=f"bytes alive ({unit})"),
            color=color,
            strokeDash=dash,
            tooltip=[alt.Tooltip("setting"), alt.Tooltip("operation", format=","), alt.Tooltip("exact", title="alive")],
        )
        .properties(height=260, description=f"Bytes alive over operations for {', '.join(names)}.")
    )  # fmt: skip


def changes_chart(changes: Sequence[Change], peak_bytes: int, card_bytes: int | None, theme: Theme) -> Any:
    """Each change with the peak that it gives, the present peak and the card as lines."""
    rows = [{"title": "as set", "bytes": peak_bytes, "how": "as set"}] + [
        {"title": c.title, "bytes": c.peak_bytes, "how": "measured" if c.measured else "predicted"} for c in changes
    ]
    limit = card_bytes if card_bytes and card_bytes < 3 * max(row["bytes"] for row in rows) else None
    scale, unit = unit_of(max([row["bytes"] for row in rows] + ([limit] if limit else [])))
    data = pd.DataFrame(
        [
            row | {"size": row["bytes"] / scale, "exact": bytes_text(row["bytes"]), "text": _saving(row["bytes"], peak_bytes),
                   "fits": _fits(row["how"], row["bytes"], limit)}
            for row in rows
        ]
    )  # fmt: skip
    hues = {
        "as set": MEMORY[theme]["temporaries"],
        "with the change": MEMORY[theme]["inputs"],
        "fits": MEMORY[theme]["inputs"],
        "over the limit": GRAPH[theme]["fault"],
    }
    names = list(dict.fromkeys(data["fits"]))
    most = float(max(*data["size"].tolist(), (limit or 0) / scale)) * 1.3
    y = alt.Y(
        "title:N", sort=[row["title"] for row in rows], title=None, axis=alt.Axis(labelLimit=280, labelFontSize=13)
    )
    x = alt.X("size:Q", title=f"peak ({unit})", scale=alt.Scale(domain=[0, most], nice=False))
    bars = alt.Chart(data).mark_bar(height={"band": 0.6}).encode(
        y=y, x=x,
        color=alt.Color("fits:N", scale=alt.Scale(domain=names, range=[hues[n] for n in names]), legend=_LEGEND),
        tooltip=[alt.Tooltip("title", title="change"), alt.Tooltip("exact", title="peak"), alt.Tooltip("how", title="how it is known")],
    )  # fmt: skip
    texts = (
        alt.Chart(data)
        .mark_text(align="left", dx=6, fontSize=12, color=GRAPH[theme]["ink"])
        .encode(y=y, x=x, text="text:N")
    )
    layers: list[Any] = [bars]
    if limit:
        at = alt.Chart(pd.DataFrame([{"size": limit / scale, "text": f"limit {short_bytes_text(limit)}"}]))
        layers.append(
            at.mark_rule(strokeDash=[7, 4], strokeWidth=2, color=GRAPH[theme]["ink"]).encode(x=x, tooltip="text:N")
        )
    layers.append(texts)  # above the line
    best = min(rows, key=lambda row: row["bytes"])
    return alt.layer(*layers).properties(
        height=alt.Step(34),
        description=f"Peak with one change each; the lowest is {best['title']} with {short_bytes_text(best['bytes'])}.",
    )


def saved_chart(saved: Sequence[SavedTensor], theme: Theme) -> alt.Chart:
    """Bytes that autograd keeps, by module: kept storages once each, largest first."""
    rows = saved_by_module(saved)
    scale, unit = unit_of(max(row["bytes"] for row in rows))
    data = pd.DataFrame([row | {"size": row["bytes"] / scale, "exact": bytes_text(row["bytes"])} for row in rows])
    return (
        alt.Chart(data)
        .mark_bar(height={"band": 0.7}, color=MEMORY[theme]["activations"])
        .encode(
            y=alt.Y("module:N", sort=[row["module"] for row in rows], title=None, axis=alt.Axis(labelLimit=260)),
            x=alt.X("size:Q", title=f"saved for backward ({unit})"),
            tooltip=[alt.Tooltip("module"), alt.Tooltip("exact", title="saved"), alt.Tooltip("slots", title="slots")],
        )
        .properties(height=alt.Step(24), description=f"Saved bytes by module; most: {rows[0]['module']} with {short_bytes_text(rows[0]['bytes'])}.")
    )  # fmt: skip


def saved_by_module(saved: Sequence[SavedTensor], most: int = 20) -> list[dict[str, Any]]:
    """module, bytes, slots: each storage counted once, with the module that saved it first; the rest in one row."""
    seen: set[int | None] = set()
    found: dict[str, dict[str, Any]] = {}
    for tensor in saved:
        if tensor.holds != "saved" or tensor.storage in seen:
            continue
        seen.add(tensor.storage)
        entry = found.setdefault(tensor.module, {"module": tensor.module, "bytes": 0, "slots": 0})
        entry["bytes"] += tensor.storage_bytes or 0
        entry["slots"] += 1
    ordered = sorted(found.values(), key=lambda entry: -entry["bytes"])
    rest = ordered[most:]
    if rest:
        total = {
            "module": f"{len(rest)} more modules",
            "bytes": sum(r["bytes"] for r in rest),
            "slots": sum(r["slots"] for r in rest),
        }
        ordered = [*ordered[:most], total]
    return ordered


def unit_of(most: float) -> tuple[int, str]:
    """The binary unit in which ``most`` is at least 1."""
    return next((scale, unit) for scale, unit in _UNITS if most >= scale or scale == 1)


def line_hues(theme: Theme) -> list[str]:
    """Hues for lines of settings, told apart by their dashes too."""
    hues = MEMORY[theme]
    return [
        hues[name] for name in ("parameters", "gradients", "optimizer state", "inputs", "weight casts", "temporaries")
    ]


_LEGEND = alt.Legend(title=None, orient="top", direction="horizontal", labelLimit=320, columns=4, symbolStrokeWidth=3)
_DASHES = [[1, 0], [8, 3], [2, 2], [10, 3, 2, 3], [5, 5], [14, 4]]


def _category_color(labels: list[str], theme: Theme) -> alt.Color:
    shown = [label for label in HUES.values() if label in labels]
    return alt.Color(
        "category:N", scale=alt.Scale(domain=shown, range=[MEMORY[theme][label] for label in shown]), sort=shown,
        legend=alt.Legend(title=None, orient="top", direction="horizontal", columns=5, labelLimit=200),
    )  # fmt: skip


def _fits(how: str, size: int, limit: int | None) -> str:
    if limit:
        return "over the limit" if size > limit else "fits"
    return "as set" if how == "as set" else "with the change"


def _saving(size: int, before: int) -> str:
    if size == before:
        return short_bytes_text(size)
    return f"{short_bytes_text(size)}, {'−' if size < before else '+'}{abs(size / before - 1):.0%}"
