"""Bytes, seconds and FLOPs to words: the one place where units become text."""

from __future__ import annotations

import math
from typing import Any


def bytes_text(count: float) -> str:
    """Binary units with the raw count in brackets from 1 KiB on: "1.50 KiB (1,536 B)"."""
    if abs(count) < 1024:
        return f"{count:,.0f} B"
    power = min(int(math.log2(abs(count)) // 10), 5)
    return f"{count / 1024**power:.2f} {('KiB', 'MiB', 'GiB', 'TiB', 'PiB')[power - 1]} ({count:,.0f} B)"


def short_bytes_text(count: float) -> str:
    """Without the raw count: "1.50 KiB"."""
    return bytes_text(count).partition(" (")[0]


def seconds_text(seconds: float) -> str:
    """Three significant digits in s, ms, µs or ns; whole seconds from 999.5 s on."""
    if abs(seconds) >= 999.5:
        return f"{seconds:,.0f} s"
    rounded = float(f"{seconds:.3g}")  # before the unit is chosen: 0.9999 s is 1 s, not 1e+03 ms
    for scale, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(rounded) >= scale:
            return f"{rounded / scale:.3g} {unit}"
    return f"{rounded / 1e-9:.3g} ns" if seconds else "0 s"


def number_text(value: float) -> str:
    """Up to four significant digits; NaN and infinity by name; minus sign as in print."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:.4g}".replace("-", "−")


def evidence_name(name: str) -> str:
    """``kept_bytes`` -> "kept": the unit goes to the number."""
    words = name.removesuffix("_s").replace("_", " ").split(" ")
    return " ".join(word for word in words if word != "bytes") or name


def evidence_text(name: str, value: Any) -> str:
    """The value with the unit that the name carries."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if "bytes" in name.replace("_", " ").split(" "):
        return bytes_text(value)
    if name.endswith("_s"):
        return seconds_text(value)
    return f"{value:,}" if isinstance(value, int) else number_text(value)
