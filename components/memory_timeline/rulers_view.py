"""Requested, allocated, reserved: the caching allocator as a model, and the message of an out-of-memory error."""

from __future__ import annotations

from typing import Any

import streamlit as st

from components.kit.palette import Theme
from components.kit.tables import draw_table
from components.memory_timeline.charts.rulers import rulers_chart
from lab.quantities import bytes_text, short_bytes_text
from lab.records.memory import AllocatorModel, CudaDifference, Fragmentation, OomMessage

RULERS = {
    "segments": "Fixed segments are the default; expandable ones grow (expandable_segments:True).",
    "requested": "Most bytes that tensors asked for.",
    "allocated": "Most in blocks of 512 B and what was not split off.",
    "reserved": "Most taken from the driver.",
    "reserved, not allocated": "When most was allocated.",
    "smallest device": "On which every request was served, in steps of 2 MiB, without the context.",
}
MESSAGE = {"number": "", "size": "", "bytes": "As precise as the message.", "what it is": ""}


CUDA = {"what": "", "bytes": "Of the peak; exact where a number is known.", "size": "", "known from": "", "why": ""}


def draw_differences(found: tuple[CudaDifference, ...], peak_bytes: int, key: str) -> None:
    """What a CUDA device would do differently, as numbers."""
    if not found:
        return
    st.markdown("**The same peak on a CUDA device**")
    total = peak_bytes + sum(row.bytes or 0 for row in found)
    st.caption(
        f"Known facts and the model of its allocator, nothing measured. With all of them {short_bytes_text(peak_bytes)} become "
        f"{short_bytes_text(total)}, and the context."
    )
    rows = [
        {
            "what": row.name,
            "size": _signed(row.bytes),
            "bytes": row.bytes,
            "known from": row.known_from,
            "why": row.text,
        }
        for row in found
    ]
    draw_table(rows, CUDA, f"{key}-cuda", "")


def _signed(size: int | None) -> str:
    if size is None:
        return "no number"
    return f"{'−' if size < 0 else '+'}{short_bytes_text(abs(size))}"


def draw_rulers(models: tuple[AllocatorModel, ...], theme: Theme, key: str) -> None:
    """The recorded requests under the rules of CUDA's caching allocator."""
    if not models:
        return
    st.markdown("**A model of CUDA's caching allocator**")
    st.caption(
        "The recorded requests and releases, replayed through the allocator's published rules; nothing here was measured. "
        "One stream; the context (hundreds of MiB) and kernels' workspaces come on top."
    )
    st.altair_chart(rulers_chart(models[0], theme), key=f"{key}-rulers", width="stretch")
    draw_table([_row(model) for model in models], RULERS, f"{key}-models", "")
    for model in models:
        if text := failure_text(model):
            st.text(text)


def failure_text(model: AllocatorModel) -> str:
    """How it fails on a device a little too small; empty where it does not."""
    if not model.failed_request_bytes:
        return ""
    kind = "expandable" if model.expandable else "fixed"
    asked, free = model.failed_request_bytes, model.failed_free_bytes
    verdict = "enough in sum, but in no one piece: fragmentation" if free >= asked else "too little in any arrangement"
    return (
        f"With {kind} segments, a device of {short_bytes_text(model.needed_bytes - (2 << 20))} fails at a request of {bytes_text(asked)}, "
        f"with {bytes_text(model.failed_allocated_bytes)} allocated and {bytes_text(free)} not: {verdict}."
    )


def fragmentation_text(found: Fragmentation) -> str:
    """What was reserved and free when the run was over."""
    return (
        f"When the run was over, {found.segments} segments held {bytes_text(found.reserved_bytes)}: {bytes_text(found.allocated_bytes)} "
        f"in given blocks, {bytes_text(found.releasable_bytes)} in whole free segments, which empty_cache() gives back, and "
        f"{bytes_text(found.between_bytes)} free between blocks that are in use. A request above "
        f"{bytes_text(found.largest_free_large_bytes)} needs a new segment."
    )


def _row(model: AllocatorModel) -> dict[str, Any]:
    return {
        "segments": "expandable" if model.expandable else "fixed",
        "requested": bytes_text(model.requested_peak_bytes),
        "allocated": bytes_text(model.allocated_peak_bytes),
        "reserved": bytes_text(model.reserved_peak_bytes),
        "reserved, not allocated": bytes_text(model.unused_bytes),
        "smallest device": bytes_text(model.needed_bytes),
    }


def draw_message(message: OomMessage, key: str) -> None:
    """The numbers of a pasted message."""
    st.markdown("**Your message, number by number**")
    rows = [
        {"number": n.name, "size": short_bytes_text(n.bytes), "bytes": n.bytes, "what it is": n.meaning}
        for n in message.numbers
    ]
    draw_table(rows, MESSAGE, f"{key}-message", "")
    st.text(f"{message.verdict} {message.repair}")
