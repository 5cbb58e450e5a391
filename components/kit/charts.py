"""Altair charts on a page: larger words and the height of the screen before a group."""

from __future__ import annotations

from typing import Any

import altair as alt
import streamlit as st

from components.kit.palette import Theme

WORDS = 1.7
"""How much larger the words of a chart are in presenter mode."""
_TYPE = dict.fromkeys(("labelFontSize", "titleFontSize"), 20)
"""Of axes and legends before a group, in pixels: readable from the last row."""
_GROWN = ("fontSize", "labelFontSize", "titleFontSize", "labelLimit", "titleLimit")
_PARTS = ("facet", "hconcat", "vconcat", "concat", "repeat")


def theme() -> Theme:
    """The theme that the visitor sees."""
    return "dark" if st.context.theme.type == "dark" else "light"


def draw_chart(chart: Any, key: str, *, presenting: bool) -> None:
    """``chart`` as wide as its place. Before a group its words are larger, and it is as tall as the screen leaves room."""
    spec = chart.to_dict()
    config = spec.setdefault("config", {})
    config["axisY"] = {
        **config.get("axisY", {}),
        "labelFlush": False,
    }  # else the first name of a column stands below its row
    if not presenting:
        st.altair_chart(alt.Chart.from_dict(spec), key=key, width="stretch")
        return
    if any(part in spec for part in _PARTS):  # a picture of several panels keeps their heights
        st.altair_chart(_enlarged(spec), key=key, width="stretch")
        return
    spec["height"] = "container"
    st.altair_chart(_enlarged(spec), key=key, width="stretch", height="stretch")


def _enlarged(spec: dict[str, Any]) -> Any:
    data = spec.pop("datasets", {})

    def grown(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {k: grown(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [grown(v) for v in value]
        return value * WORDS if name in _GROWN and isinstance(value, (int, float)) else value

    config = {**spec.get("config", {}), **dict.fromkeys(("axis", "legend", "header"), _TYPE)}
    return alt.Chart.from_dict({**grown(spec), "datasets": data, "config": config})
