"""Which knobs matter beside the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.contract import Knob

_NOT_OWN = ("layers", "width", "batch", "seq", "compile", "channels_last", "workers", "pin_memory", "decode_us")


def offered(values: Mapping[str, Any], k: Knob) -> Knob | None:
    """The visitor's own model brings its sizes and its batch; the others need no program."""
    own = values["model"] == "own"
    if k.name == "code":
        return k if own else None
    if own and k.name in _NOT_OWN:
        return None
    if k.name == "seq" and values["model"] not in ("gpt", "lstm"):
        return None
    if k.name == "channels_last" and values["model"] != "cnn":
        return None
    return k
