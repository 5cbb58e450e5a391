"""Every instrument against its oracle, on this host."""

from __future__ import annotations

from dataclasses import dataclass

from lab.instruments import torch_private


@dataclass(frozen=True)
class Outcome:
    """One check: what was checked, whether it held, and what was seen."""

    name: str
    ok: bool
    detail: str = ""


def run_checks(device: str) -> list[Outcome]:
    """All checks, in order."""
    broken = torch_private.broken()
    return [Outcome(name, name not in broken, broken.get(name, "")) for name in torch_private.SELF_TESTS]
