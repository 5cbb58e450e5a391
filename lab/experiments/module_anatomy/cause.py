"""The cause of an error as this run shows it, and the edit that registers what hangs beside its owner."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lab.contract import Edit, Finding, Site
from lab.experiments.module_anatomy import edits
from lab.records.anatomy import AnatomyResult, Unregistered


@dataclass(frozen=True)
class Cause:
    """Why a program ended, as far as this run shows it."""

    title: str
    text: str
    repair: str = ""
    sites: tuple[Site, ...] = ()
    edits: tuple[Edit, ...] = ()
    evidence: dict[str, Any] = field(default_factory=dict)

    def finding(self, line: int | None) -> Finding:
        return Finding(
            level="fault", title=self.title, text=self.text, evidence=self.evidence, line=line, repair=self.repair,
            sites=self.sites, edits=self.edits,
        )  # fmt: skip


Look = Callable[[AnatomyResult, "re.Match[str]", int | None], Cause | None]


def repair_of(result: AnatomyResult, u: Unregistered) -> tuple[Edit, ...]:
    """The edit that registers what hangs there."""
    code = result.code
    if u.what == "modules" and u.way == "made in forward" and u.line:
        return edits.made_once(code, u.line)
    if u.what in ("modules", "parameters") and u.way in ("list", "dict"):
        kind = f"{'Module' if u.what == 'modules' else 'Parameter'}{'List' if u.way == 'list' else 'Dict'}"
        return edits.as_container(code, u.line, u.name, kind)
    if u.what == "tensor" and u.way == "attribute":
        return (edits.as_parameter if u.trainable else edits.as_buffer)(code, u.line, u.name)
    if u.what == "lost parameter":
        return edits.wrapped_last(code, u.line, u.name)
    return edits.detached(code, u.line, u.name) if u.what == "activation" and u.way == "attribute" else ()
