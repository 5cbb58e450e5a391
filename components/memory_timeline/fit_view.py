"""Will it fit: the verdict, the largest batch, ranks under ZeRO, and what each change costs in time."""

from __future__ import annotations

from typing import Any

import streamlit as st

from components.kit.tables import draw_table
from lab.quantities import bytes_text, short_bytes_text
from lab.records.memory import Change, Fit, Shard

CHANGES = {
    "change": "",
    "peak": "With this change alone.",
    "bytes": "The same, exact.",
    "saves": "Of the present peak.",
    "fits": "On the card.",
    "time": "Of a step, against that without the change, clocked in turns on a small network of the same kind on this host.",
    "known from": "Run, or predicted on tensors without data.",
}
SHARDS = {
    "ZeRO stage": "1 shards optimizer state, 2 also gradients, 3 also parameters.",
    "ranks": "",
    "peak of a rank": "Each rank with the whole of this batch, by formula: what is sharded is divided by the ranks.",
    "bytes": "The same, exact.",
    "fits": "On the card.",
    "sent in a step": "By each rank: twice the parameters, with stage 3 three times, times (n - 1) / n.",
}


def draw_fit(fit: Fit, changes: tuple[Change, ...], key: str) -> None:
    """What the verdict rests on."""
    st.text(largest_text(fit))
    if changes:
        draw_table([_change_row(change) for change in changes], CHANGES, f"{key}-table", "")
    if fit.shards:
        st.markdown("**Sharded over several ranks, by formula**")
        draw_table([_shard_row(shard) for shard in fit.shards], SHARDS, f"{key}-shards", "")


def largest_text(fit: Fit) -> str:
    """The largest batch in words."""
    found = fit.largest
    if found is None:
        return f"Largest batch: not known. {fit.largest_reason}" if fit.largest_reason else ""
    how = f"{len(found.tried)} predictions" + (", each from few of the equal blocks" if found.from_few_blocks else "")
    if not found.batch or not found.peak_bytes:
        return f"Not even the smallest batch fits: {bytes_text(found.next_peak_bytes)}. ({how}.)"
    if not found.next_peak_bytes:
        return f"Largest batch that was tried: {found.batch:,}, with {bytes_text(found.peak_bytes)}. ({how}.)"
    return (
        f"Largest batch that fits: {found.batch:,}, with {bytes_text(found.peak_bytes)}. One sample more needs "
        f"{bytes_text(found.next_peak_bytes)}. ({how}.)"
    )


def _change_row(change: Change) -> dict[str, Any]:
    return {
        "change": change.title,
        "peak": short_bytes_text(change.peak_bytes),
        "bytes": change.peak_bytes,
        "saves": short_bytes_text(change.saving_bytes) if change.saving_bytes > 0 else "nothing",
        "fits": "yes" if change.fits else "no",
        "time": f"×{change.step_ratio:.2f}" if change.step_ratio else "not clocked",
        "known from": "run" if change.measured else "prediction",
    }


def _shard_row(shard: Shard) -> dict[str, Any]:
    return {
        "ZeRO stage": shard.stage,
        "ranks": shard.ranks,
        "peak of a rank": short_bytes_text(shard.peak_bytes),
        "bytes": shard.peak_bytes,
        "fits": "yes" if shard.fits else "no",
        "sent in a step": bytes_text(shard.sent_bytes),
    }
