"""From the record of a run to what the figure draws. Numbers stay exact; words are made here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from components.memory_timeline.charts.memory import HUES
from lab.quantities import bytes_text, short_bytes_text
from lab.records.memory import CATEGORY_TEXTS, MemoryResult, Owner, Peak
from lab.wire import encode

PHASES = {"zero_grad": "zero grad", "optimizer": "optimizer step"}


def scene(result: MemoryResult) -> dict[str, Any]:
    """Everything that the figure needs, in wire form. Texts that repeat are sent once, with positions into them."""
    table, peak = result.timeline, result.peak
    layers = {name: getattr(table, name) for name in CATEGORY_TEXTS}
    drawn = {
        "figure": figure_id(result),
        "index": table.index,
        "step": table.step,
        "line": table.line if any(table.line) else [],
        **{name: _coded(getattr(table, name)) for name in ("op", "phase", "module")},
        "layers": [
            {"name": name, "hue": HUES[name].replace(" ", "-"), "label": CATEGORY_TEXTS[name], "bytes": sizes}
            for name, sizes in layers.items()
            if any(sizes)
        ],
        "categories": [{"label": label, "hue": HUES[name].replace(" ", "-")} for name, label in CATEGORY_TEXTS.items()],
        "lives": result.lives,
        "storages": {
            name: values if name == "line" else _coded(values) for name, values in vars(result.storages).items()
        },
        "peak": {"row": peak.row, "bytes": peak.bytes, "text": peak_text(peak)},
        "card_bytes": result.fit.card_bytes,
        "title": title(result),
        "description": description(result),
    }
    return encode(drawn)


def figure_id(result: MemoryResult) -> str:
    """Changes when the timeline does."""
    table = result.timeline
    facts = encode([result.peak, table.index[-1:], result.step_ends, table.op[:50]])
    return hashlib.sha1(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


def title(result: MemoryResult) -> list[str]:
    """The line above the figure."""
    kind = "predicted on tensors without data" if result.predicted else "measured"
    return [
        f"Peak {short_bytes_text(result.peak.bytes)}, {kind}",
        f"{result.operations:,} operations in {len(result.step_ends)} steps",
        f"{short_bytes_text(result.saved_bytes)} saved for backward",
    ]


def peak_text(peak: Peak) -> str:
    """Where the peak is and whose it is, in one sentence."""
    if not peak.bytes:
        return "Nothing was alive."
    owners = ", ".join(f"{owner_text(owner)} {short_bytes_text(owner.bytes)}" for owner in peak.owners[:3])
    where = f"{phase_text(peak.phase)} of step {peak.step + 1}, in {peak.op} ({peak.module or 'no module'})"
    return f"Peak {bytes_text(peak.bytes)}: {where}. Largest: {owners}."


def owner_text(owner: Owner) -> str:
    """One owner in words: saved activations of blocks.0.fc1."""
    label = CATEGORY_TEXTS[owner.category]
    place = owner.module or owner.op
    return f"{label} of {place}" if place and owner.category != "optimizer_state" else label


def description(result: MemoryResult) -> str:
    """Alt text."""
    parts = [
        f"{CATEGORY_TEXTS[name]} {short_bytes_text(size)}" for name, size in result.peak.categories.items() if size
    ]
    return (
        f"Stacked areas of bytes alive over {result.operations:,} operations. {peak_text(result.peak)} "
        f"At the peak: {', '.join(parts)}."
    )


def phase_text(phase: str) -> str:
    """A phase as it is printed."""
    return PHASES.get(phase, phase)


def _coded(values: Sequence[Any]) -> dict[str, list[Any]]:
    words = list(dict.fromkeys(values))
    at = {word: position for position, word in enumerate(words)}
    return {"words": words, "at": [at[value] for value in values]}
