"""Operations in words."""

from __future__ import annotations

_WORDS = {
    "getitem": "indexing",
    "setitem": "an assignment by index",
    "T": ".T",
    "mT": ".mT",
    "H": ".H",
    "data": ".data",
    "real": ".real",
    "imag": ".imag",
    "": "the program",
}


def said(op: str) -> str:
    """``transpose()``, ``indexing``."""
    return _WORDS.get(op, f"{op}()")
