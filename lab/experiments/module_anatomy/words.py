"""Small words for findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.contract import Site
from lab.records.anatomy import Load


def site(line: int | None, role: str, tensor: str = "", **more: Any) -> tuple[Site, ...]:
    """One site, or none where the line is not known."""
    return (Site(line, role, tensor, **more),) if line else ()


def listed(names: Sequence[str], most: int = 3) -> str:
    """ "a, b and c", "a, b, c and 4 more"."""
    names = list(names)
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most:,} more"
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def renamed(load: Load) -> str:
    """ "4 of the 4 given names fit once module. is removed."; empty where no prefix was found."""
    prefix = load.renamed.lstrip("-")
    if not prefix:
        return ""
    own, added = set(load.missing), load.renamed.startswith("-")
    fit = sum((f"{prefix}{key}" if added else key.removeprefix(prefix)) in own for key in load.unexpected)
    return f"{fit} of the {load.given} given names fit once {prefix} is {'added' if added else 'removed'}."


def counted(count: int, word: str) -> str:
    """ "1 tensor", "3 tensors"."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"
