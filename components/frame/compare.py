"""A | B: hold the present result as A, change something, see both and what differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from components.frame.page_state import PageState
from components.frame.running import Outcome, look, watch
from lab.contract import Knob, headline
from lab.execution.executor import Job
from lab.quantities import evidence_name, evidence_text, number_text


def pin_button(state: PageState, outcome: Outcome) -> None:
    """Pin what is shown as A, or let go of it."""
    if state.get("pinned"):
        st.button(
            "Unpin A",
            key=state.key("unpin"),
            icon=":material/keep_off:",
            type="tertiary",
            on_click=state.unpin,
        )
    elif outcome.shown and not outcome.growing:
        st.button(
            "Pin as A",
            key=state.key("pin"),
            icon=":material/keep:",
            type="tertiary",
            help="Keeps this result. Change something, and both are shown side by side.",
            on_click=state.pin,
            args=(outcome.shown.id, outcome.shown.params),
        )


def pinned(state: PageState) -> Job | None:
    """The job that is held as A. None when there is none, or it has no result yet, or is no longer kept; then the pin is
    let go."""
    if not state.get("pinned"):
        return None
    job = look(state.get("pinned"))
    if job and job.result is not None:
        return job
    if job and not job.over:
        watch(job, state.key("cancel-a"))
        return None
    state.unpin()
    st.info("A ended without a result." if job else "A is no longer kept. Set its controls again and pin it.")
    return None


def differences(state: PageState, a: Job, b: Job) -> None:
    """The knobs that differ and the numbers that they changed."""
    changed = changed_knobs(state.knobs, a.params, b.params)
    if not changed:
        st.text("A and B have the same settings. Change a control.")
    numbers = changed_numbers(headline(state.experiment, a.result), headline(state.experiment, b.result))
    rows = pd.DataFrame([*changed, *numbers], columns=["", "A", "B", "B − A"])
    if len(rows):
        st.dataframe(rows, hide_index=True, key=state.key("differences"), alt="What differs between A and B")


def changed_knobs(known: Mapping[str, Knob], a: Any, b: Any) -> list[tuple[str, str, str, str]]:
    """A row for each knob whose value differs: label, value of A, value of B, empty."""
    rows = []
    for name, k in known.items():
        old, new = getattr(a, name), getattr(b, name)
        if old != new and k.program:
            rows.append((k.label, *_changed_lines(old, new), ""))
        elif old != new:
            rows.append((k.label, str(old), str(new), ""))
    return rows


def changed_numbers(a: Mapping[str, float], b: Mapping[str, float]) -> list[tuple[str, str, str, str]]:
    """A row for each number that either side has: name, value of A, value of B, signed difference."""
    rows = []
    for name in [*a, *(n for n in b if n not in a)]:
        old, new = a.get(name), b.get(name)
        texts = ["–" if value is None else evidence_text(name, value) for value in (old, new)]
        gap = "" if old is None or new is None else _signed(name, new - old)
        rows.append((evidence_name(name), *texts, gap))
    return rows


def _signed(name: str, gap: float) -> str:
    return number_text(gap) if gap == 0 or gap != gap else ("+" if gap > 0 else "−") + evidence_text(name, abs(gap))


def _changed_lines(old: str, new: str) -> tuple[str, str]:
    """Lines that only one of the programs has, counted."""
    a, b = Counter(old.splitlines()), Counter(new.splitlines())
    return _lines((a - b).total()), _lines((b - a).total())


def _lines(count: int) -> str:
    return f"{count} line{'s' * (count != 1)} of its own"
