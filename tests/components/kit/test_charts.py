"""Charts before a group: larger words, and the height of their place."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from components.kit import charts


def drawn(chart: Any, monkeypatch: Any, *, presenting: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is handed to Streamlit: the specification and the options."""
    found: list[tuple[Any, dict[str, Any]]] = []
    monkeypatch.setattr(charts.st, "altair_chart", lambda made, **options: found.append((made, options)))
    charts.draw_chart(chart, "key", presenting=presenting)
    return found[0][0].to_dict(), found[0][1]


def one() -> alt.Chart:
    return (
        alt.Chart(pd.DataFrame({"x": [1], "word": ["a"]}))
        .mark_text(fontSize=10)
        .encode(x="x:Q", text="word:N")
        .properties(height=300)
    )


def test_a_chart_keeps_its_size_on_the_page(monkeypatch):
    spec, options = drawn(one(), monkeypatch, presenting=False)
    assert (spec["height"], spec["mark"]["fontSize"]) == (300, 10)
    assert "height" not in options


def test_before_a_group_words_grow_and_the_chart_fills_its_place(monkeypatch):
    spec, options = drawn(one(), monkeypatch, presenting=True)
    assert (spec["height"], spec["mark"]["fontSize"]) == ("container", 10 * charts.WORDS)
    assert options["height"] == "stretch"
    assert list(spec["datasets"].values()) == list(one().to_dict()["datasets"].values())


def test_panels_keep_their_heights(monkeypatch):
    spec, options = drawn(alt.vconcat(one(), one()), monkeypatch, presenting=True)
    assert [panel["height"] for panel in spec["vconcat"]] == [300, 300]
    assert "height" not in options
