"""The views of the page: two recordings, a program run twice, this host, levels, and what is pinned."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import streamlit as st

from components.frame import experiment as frame
from components.kit.charts import draw_chart, theme
from components.kit.headline import Metric, headline
from components.kit.tables import draw_table
from components.reproducibility.charts import ribbons as charts
from lab.records.reproducing import ReproResult

Page = frame.ExperimentPage[ReproResult]
Side = frame.Side[ReproResult]
_REPORT_BYTES = 64 << 10


def draw_view(page: Page, side: Side) -> None:
    """The one figure of the view that was measured."""
    {"difference": _difference, "program": _program, "host": _host, "levels": _levels, "sources": _sources}[
        side.result.view
    ](page, side)


def _difference(page: Page, side: Side) -> None:
    result = side.result
    headline(_numbers(result), side.key, presenting=page.presenting)
    draw_chart(charts.ribbon_chart(result, theme()), f"{side.key}-ribbons", presenting=page.presenting)
    if result.growth:
        draw_chart(charts.growth_chart(result.growth, theme()), f"{side.key}-growth", presenting=page.presenting)


def _numbers(result: ReproResult) -> list[Metric]:
    first = result.first
    numbers: list[Metric] = [
        ("first difference", "none" if first is None else first.op, "" if first is None else first.place),
        ("size there", "0" if first is None else f"{first.gap:.3g}" if first.kind == "bits" else "—", "" if first is None else f"{first.share:.0%} of its elements" if first.kind == "bits" else "an operation more"),
        ("equal operations", f"{result.equal_operations:,}", f"of {result.operations_a:,} and {result.operations_b:,}"),
    ]  # fmt: skip
    if result.growth:
        numbers.append(
            ("parameters apart", f"{result.growth[-1].gap:.3g}", f"after {len(result.growth)} steps, relative")
        )
    if result.repeats:
        numbers.append(("distinct results", f"{result.distinct} of {result.repeats}", "runs"))
    return numbers


def _program(page: Page, side: Side) -> None:
    result = side.result
    if result.operations_b:
        headline(_numbers(result), side.key, presenting=page.presenting)
        draw_chart(charts.ribbon_chart(result, theme()), f"{side.key}-ribbons", presenting=page.presenting)
    if any(d.line for d in result.draws):
        st.markdown("**The tape of torch's generator**: which lines draw, in order")
        draw_chart(charts.tape_chart(result.draws, theme()), f"{side.key}-tape", presenting=False)
    elif not result.operations_b:
        st.caption("The program ended before it could be run again.")


def _host(page: Page, side: Side) -> None:
    result = side.result
    st.markdown(
        "**Operations on this host**: one thread against two, again and again, and one row in batches of several sizes"
    )
    rows = [
        {
            "operation": r.op,
            "one thread, two threads": "" if r.threads_equal is None else "✓ same bits" if r.threads_equal else "✕ other bits",
            "distinct results": f"{r.distinct} of {r.of}" if r.of > 1 else "",
            "deterministic": "" if r.of == 1 else "refused" if r.distinct_flag < 0 else f"{r.distinct_flag} of {r.of}",
            "first row differs in batches of": ", ".join(map(str, r.batches_differ)) if r.batches_differ else "none" if r.of == 1 else "",
        }
        for r in result.sensitive
    ]  # fmt: skip
    st.table(pd.DataFrame(rows).set_index("operation"))
    if result.refused and not page.presenting:
        st.markdown("**Refused by deterministic algorithms here**")
        st.table(
            pd.DataFrame([{"operation": r.op, "message": r.message} for r in result.refused]).set_index("operation")
        )
    if result.cost and not page.presenting:
        plain = result.cost["as it is"]
        st.markdown(
            "**What the flag costs**: "
            + "; ".join(f"{name} {seconds / plain:.2f}×" for name, seconds in result.cost.items())
        )


def _levels(page: Page, side: Side) -> None:
    result = side.result
    rows = [
        {
            "level": r.name,
            "holds": "✓ yes" if r.holds else "✕ no",
            "measured": f"{r.measured:.4g}",
            "against": f"{r.yardstick:.4g}",
            "what": r.words,
        }
        for r in result.levels
    ]
    st.table(pd.DataFrame(rows).set_index("level"))
    draw_chart(charts.level_chart(result.levels, result.seeds, theme()), f"{side.key}-levels", presenting=False)


def _sources(page: Page, side: Side) -> None:
    st.markdown("**What results may depend on**, with its value here")
    rows = [
        {"source": s.name, "value": s.value, "pinned": "✓" if s.pinned else "not pinned"} for s in side.result.sources
    ]
    st.table(pd.DataFrame(rows).set_index("source"))


_TIMELINE = {
    "index": "In the first run.",
    "operations": "",
    "place": "",
    "operation": "",
    "in": "",
    "equal": "",
    "largest difference": "",
}
_GROWTH = {"step": "", "gap": "Relative, of all parameters.", "loss of the first": "", "loss of the second": ""}


def draw_details(side: Side) -> None:
    """The rows behind the figure; the report of sources to save and to compare."""
    result, t = side.result, side.result.timeline
    columns = (t.index, t.count, t.place, t.op, t.side, tuple("yes" if e else "no" for e in t.equal), t.gap)
    tables: dict[str, tuple[list[dict[str, Any]], dict[str, str]]] = {
        "Operations": ([dict(zip(_TIMELINE, row, strict=True)) for row in zip(*columns, strict=True)], _TIMELINE),
        "Steps": (
            [dict(zip(_GROWTH, (g.step, g.gap, g.loss_a, g.loss_b), strict=True)) for g in result.growth],
            _GROWTH,
        ),
    }
    drawn = {name: table for name, table in tables.items() if table[0]}
    if drawn:
        for tab, (name, (rows, helps)) in zip(st.tabs(list(drawn)), drawn.items(), strict=True):
            with tab:
                draw_table(rows, helps, f"{side.key}-{name}", "")
    if result.sources:
        _report(side)


def _report(side: Side) -> None:
    """Save the list of sources with an experiment, and see where another's differs."""
    mine = {source.name: source.value for source in side.result.sources}
    text = json.dumps({"reproducibility": mine}, indent=1)
    st.download_button(
        "Save this list (JSON)", text, "sources.json", "application/json", key=f"{side.key}-save", on_click="ignore"
    )
    given = st.file_uploader(
        "Compare with a list that was saved elsewhere", type="json", key=f"{side.key}-compare", max_upload_size=1
    )
    if given is None:
        return
    theirs = _theirs(given.getvalue())
    if theirs is None:
        st.warning("This is no list of sources that this page saved.")
        return
    rows = [
        {"source": name, "here": mine.get(name, "—"), "there": theirs.get(name, "—")}
        for name in dict.fromkeys([*mine, *theirs])
        if mine.get(name) != theirs.get(name)
    ]
    if rows:
        st.table(pd.DataFrame(rows).set_index("source"))
    else:
        st.success("Both lists are the same.")


def _theirs(data: bytes) -> dict[str, str] | None:
    """Name to value, of a file of at most 64 KiB; None where it is something else."""
    if len(data) > _REPORT_BYTES:
        return None
    try:
        found = json.loads(data)["reproducibility"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(found, dict) or not all(isinstance(k, str) and isinstance(v, str) for k, v in found.items()):
        return None
    return found
