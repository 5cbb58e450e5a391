"""What a CheckpointError says."""

from __future__ import annotations

import re


def metadata_pairs(message: str) -> list[tuple[int, str, str]]:
    """(position, saved, recomputed) of the tensors that a CheckpointError names."""
    found = re.findall(
        r"tensor at position (\d+):\s*saved metadata: (\{.*?\})\s*recomputed metadata: (\{.*?\})", message, re.DOTALL
    )
    return [(int(position), saved, recomputed) for position, saved, recomputed in found]
