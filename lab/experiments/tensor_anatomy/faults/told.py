"""A cause in words, and the places that it names."""

from __future__ import annotations

from dataclasses import dataclass

from lab.contract import Site
from lab.experiments.tensor_anatomy.watch.calls import Refused
from lab.experiments.tensor_anatomy.watch.states import State


@dataclass(frozen=True)
class Explained:
    """A cause, what to do, and the lines that take part, the one to blame first."""

    text: str
    repair: str
    sites: tuple[Site, ...]
    only_listed: bool = False
    """It says no more than what went in."""


def births(refused: Refused, states: list[State]) -> tuple[Site, ...]:
    """Where each shape came from, the nearest to the fault first; the fault last."""
    sites = []
    for state in states:
        born = state.first(lambda s: all(p.shape != s.shape for p in s.parents)) or state
        if born.line and born.line != refused.line:
            sites.append(Site(born.line, "shape from here", state.label, None, str(list(state.shape))))
    return (*sites, *places((refused.line, "fails here", refused.op)))


def described(state: State, refused: Refused) -> str:
    """Its name, shape, and line where that is another one."""
    at = f" (line {state.line})" if state.line and state.line != refused.line else ""
    return f"{state.label} {list(state.shape)}{at}"


def on(line: int | None) -> str:
    """`` on line 3``, or nothing."""
    return f" on line {line}" if line else ""


def places(*places: tuple[int | None, str, str]) -> tuple[Site, ...]:
    """(line, role, tensor), those without a line left out."""
    return tuple(Site(line, role, tensor) for line, role, tensor in places if line)
