"""Values as the picture writes them: ``Plain`` data (lab.records.graph) to short and to exact text.

Short text has three significant digits and at most four elements; exact text is what the details panel shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any
from unicodedata import east_asian_width

from lab.records.graph import Plain

NAMED = {"NaN": "NaN", "Infinity": "∞", "-Infinity": "−∞"}
SPACE = "\u2002"
"""Between elements: wide enough to tell them apart in a proportional face."""
SHOWN_ELEMENTS = 4
SHOWN_IN_ROWS = 6
"""Most elements of a matrix that are written out."""


def number(value: Plain, digits: int = 3) -> str:
    """One element: ``digits`` significant digits and a true minus sign. Text passes: NaN by name, complex as it is."""
    if isinstance(value, str):
        return NAMED.get(value, value.strip("()").replace("-", "−"))
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int) and abs(value) < 10**6:
        return str(value).replace("-", "−")
    if isinstance(value, float) and value.is_integer() and abs(value) < 1000:
        return f"{value:.1f}".replace("-", "−")
    mantissa, _, power = f"{value:.{digits}g}".partition("e")
    return (f"{mantissa}e{int(power)}" if power else mantissa).replace("-", "−")


def short(value: Plain, gradient: bool = False) -> str:
    """A value for a card or an edge: ``0.24 0.21``, ``[1 2] [3 4]``, empty for None.

    A larger tensor is written as its range ``−1.2 … 3.4``; a larger gradient by its norm, which is what one asks of it.
    """
    if value is None:
        return ""
    if isinstance(value, dict):
        return _summary(value, gradient)
    if not isinstance(value, list):
        return number(value)
    if not value:
        return "empty"
    if not any(isinstance(v, (list, dict)) for v in value):
        shown = value if len(value) <= SHOWN_ELEMENTS else value[: SHOWN_ELEMENTS - 1]
        return SPACE.join(map(_element, shown)) + (" …" if len(value) > SHOWN_ELEMENTS else "")
    flat = list(_flat(value))
    if len(flat) > SHOWN_IN_ROWS and not any(isinstance(v, (str, dict)) or v is None for v in flat):
        norm = math.sqrt(sum(abs(v) ** 2 for v in flat))
        return _summary({"min": min(flat), "max": max(flat), "norm": norm}, gradient)
    rows = [f"[{short(v, gradient)}]" if isinstance(v, list) else _element(v, gradient) for v in value[:2]]
    return SPACE.join(rows) + (" …" if len(value) > 2 else "")


def short_gradient(value: Plain) -> str:
    """``short`` of a gradient."""
    return short(value, gradient=True)


def _summary(value: dict[str, Any], gradient: bool) -> str:
    if "min" not in value:
        return f"{len(value)} entries"
    if gradient:
        return f"norm {number(value['norm'])}"
    return f"{number(value['min'])} … {number(value['max'])}"


def _element(value: Plain, gradient: bool = False) -> str:
    return "none" if value is None else short(value, gradient)


def _flat(value: list[Any]) -> Iterator[Any]:
    for v in value:
        if isinstance(v, list):
            yield from _flat(v)
        else:
            yield v


def exact(value: Plain, limit: int = 600) -> str:
    """All digits, as Python prints them; cut after ``limit`` characters."""
    if value is None:
        return "None"
    if isinstance(value, dict):
        text = " · ".join(f"{k} {exact(v, limit)}" for k, v in value.items())
    elif isinstance(value, list):
        text = "[" + ", ".join(exact(v, limit) for v in value[:limit]) + "]"
    else:
        text = NAMED.get(value, value) if isinstance(value, str) else repr(value)
    return text if len(text) <= limit else text[:limit] + " …"


def shape_text(shape: Sequence[int] | None) -> str:
    """``[2, 3]``; a tensor without dimensions is a scalar; empty where the shape is unknown."""
    if shape is None:
        return ""
    return f"[{', '.join(map(str, shape))}]" if shape else "scalar"


_WIDTHS = {
    c: w
    for group, w in ((" .,:;!|'ijl()[]/\\ftI", 0.29), ("r-·`", 0.34), (SPACE, 0.5), ("mwMW@%—", 0.9))
    for c in group
    for w in (w,)
}


def text_width(text: str, size_px: float, bold: bool = False) -> float:
    """Pixels that ``text`` takes in a sans-serif face: Helvetica's advance widths, rounded up by class."""
    ems = 0.0
    for c in text:
        wide = 1.0 if east_asian_width(c) in "WF" else 0.72 if c.isupper() else 0.56
        ems += _WIDTHS.get(c, wide)
    return ems * size_px * (1.08 if bold else 1.0)


def clip(text: str, width_px: float, size_px: float, bold: bool = False) -> str:
    """``text``, shortened with … until it fits."""
    text = text[:400]
    if text_width(text, size_px, bold) <= width_px:
        return text
    while text and text_width(text + "…", size_px, bold) > width_px:
        text = text[:-1]
    return text.rstrip() + "…"
