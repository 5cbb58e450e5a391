"""Promotion as a grid of results, rounding as lines over size."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from components.kit.palette import GRAPH, Theme
from lab.records.tensors import Errors, Pair

_WORDS = {
    "float8_e4m3fn": "fp8 e4m3",
    "float8_e5m2": "fp8 e5m2",
    "complex64": "c64",
    "complex128": "c128",
    "bfloat16": "bf16",
}


def short(dtype: str) -> str:
    """``f32`` for float32: seventeen of them stand beside each other."""
    return _WORDS.get(dtype, dtype.replace("float", "f").replace("uint", "u").replace("int", "i"))


def promotion_chart(
    pairs: Sequence[Pair], chosen: tuple[str, str], theme: Theme, scale: float = 1.0
) -> alt.LayerChart | alt.FacetChart:
    """A cell a pair: its result; refused pairs hatched by a cross. The chosen pair has a frame."""
    rows = pd.DataFrame(
        {
            "a": short(p.a), "b": short(p.b), "result": short(p.result) if p.result else "×",
            "kind": "refused" if not p.result else "the left one" if p.result == p.a else "the right one" if p.result == p.b else "another one",
            "why": p.reason or f"{p.a} + {p.b} = {p.result}", "numpy": p.numpy or "no such pair", "chosen": (p.a, p.b) == chosen,
        }
        for p in pairs
    )  # fmt: skip
    order = list(dict.fromkeys(rows["a"]))
    hues = GRAPH[theme]
    kinds = ["the left one", "the right one", "another one", "refused"]
    colours = [hues["leaf-fill"], hues["output-fill"], hues["saved-fill"], hues["function-fill"]]
    base = alt.Chart(rows).encode(
        x=alt.X(
            "b:N",
            sort=order,
            title="right operand",
            axis=alt.Axis(orient="top", labelAngle=-45, labelLimit=80, labelOverlap=False),
        ),
        y=alt.Y("a:N", sort=order, title="left operand", axis=alt.Axis(labelOverlap=False)),
        tooltip=[alt.Tooltip("why", title="measured"), alt.Tooltip("numpy", title="NumPy")],
    )
    cells = base.mark_rect(stroke=hues["frame"]).encode(
        color=alt.Color(
            "kind:N",
            scale=alt.Scale(domain=kinds, range=colours),
            legend=alt.Legend(title="result is", orient="bottom"),
        )
    )
    words = base.mark_text(fontSize=10 * scale, color=hues["ink"]).encode(text="result:N")
    frame = base.transform_filter("datum.chosen").mark_rect(filled=False, stroke=hues["fault"], strokeWidth=3)
    return alt.layer(cells, words, frame).properties(height=520 * min(scale, 1.4))


def product_chart(errors: Errors, theme: Theme, scale: float = 1.0) -> alt.Chart:
    """Relative error of the product over K."""
    rows = [
        {"K": size, "error": error, "how": f"{dtype}, adds up in {'float32' if how == 'float32' else dtype}"}
        for what, dtype, how, size, error in zip(errors.what, errors.dtype, errors.how, errors.size, errors.error, strict=True)
        if what == "product" and 0 < error < float("inf")
    ]  # fmt: skip
    return (
        alt.Chart(pd.DataFrame(rows))
        .mark_line(point=alt.OverlayMarkDef(size=60 * scale), strokeWidth=2.5 * scale)
        .encode(
            x=alt.X(
                "K:Q", scale=alt.Scale(type="log", base=2), title="K, numbers added up for each element of the result"
            ),
            y=alt.Y(
                "error:Q",
                scale=alt.Scale(type="log"),
                title="relative error against float64",
                axis=alt.Axis(format=".0e", tickCount=6),
            ),
            color=alt.Color(
                "how:N", title=None, scale=_four(theme), legend=alt.Legend(orient="bottom", columns=2, labelLimit=400)
            ),
            strokeDash=alt.StrokeDash("how:N", legend=None),
            tooltip=["how", "K", alt.Tooltip("error", format=".3e")],
        )
        .properties(height=400 * scale)
    )


def sum_chart(errors: Errors, theme: Theme, scale: float = 1.0) -> alt.Chart:
    """Relative error of one sum, in each order and format."""
    rows = [
        {"sum": f"{dtype}, {'in the order of torch' if how == 'torch' else how}", "error": max(error, 1e-17), "exact": f"{error:.2e}"}
        for what, dtype, how, error in zip(errors.what, errors.dtype, errors.how, errors.error, strict=True)
        if what == "sum" and error < float("inf")
    ]  # fmt: skip
    return (
        alt.Chart(pd.DataFrame(rows))
        .mark_point(filled=True, size=140 * scale, color=GRAPH[theme]["leaf-line"])
        .encode(
            x=alt.X(
                "error:Q",
                scale=alt.Scale(type="log"),
                title="relative error against float64",
                axis=alt.Axis(format=".0e", tickCount=6),
            ),
            y=alt.Y("sum:N", sort=[row["sum"] for row in rows], title=None, axis=alt.Axis(labelLimit=300)),
            tooltip=["sum", "exact"],
        )
        .properties(height=220 * scale)
    )


def _four(theme: Theme) -> alt.Scale:
    hues = GRAPH[theme]
    return alt.Scale(range=[hues[name] for name in ("leaf-line", "saved-line", "gradient", "output-line")])
