"""What to notice: the findings of a run, and faults. Their texts may quote a stranger's program, so they are drawn by
``st.text`` and ``st.code``, which interpret nothing; Markdown would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import streamlit as st

from components.frame.page_bar import presenting
from components.frame.page_state import PageState
from lab.contract import Fault, Finding, Knob, ParamsError, Site
from lab.execution.executor import State
from lab.quantities import evidence_name, evidence_text

_MARKS = {
    "fact": ("info", "Fact", "blue"),
    "surprise": ("lightbulb", "Surprise", "violet"),
    "warning": ("warning", "Warning", "orange"),
    "fault": ("error", "Fault", "red"),
}
_BY_THE_LAB = ("TimeLimit", "MemoryLimit", "OutputLimit", "Refused", "Crashed", "Cancelled")
"""Fault types with a sentence as message; every other type is an exception's class, with its message as torch wrote it."""
_ENDS: dict[State, str] = {
    "failed": "The run failed",
    "refused": "Not run",
    "limit": "Ended at a limit",
    "cancelled": "Cancelled",
}


def findings(state: PageState, found: Sequence[Finding]) -> None:
    """All findings below each other; in presenter mode one at a time."""
    if not found:
        return
    st.subheader("What to notice", anchor=False)
    if not presenting():
        for number, finding in enumerate(found):
            _card(state, finding, f"finding-{number}")
        return
    with st.container(horizontal=True):
        page = st.pagination(len(found), key=state.key("finding-number")) if len(found) > 1 else 1
        _card(state, found[min(page, len(found)) - 1], "finding-one")


def _card(state: PageState, finding: Finding, key: str) -> None:
    icon, word, color = _MARKS[finding.level]
    with st.container(border=True, key=key, gap="xsmall"):
        _head(icon, word, color, finding.line)
        with st.container(key=f"{key}-title"):
            st.text(finding.title)
        st.text(finding.text)
        _sites(finding.sites)
        _evidence(finding.evidence, key)
        _repair(finding.repair)
        _offer_change(state, finding.change, key)


def _offer_change(state: PageState, change: Mapping[str, Any], key: str) -> None:
    """The repair as one click."""
    values = settable(state.knobs, change)
    if values:
        words = ", ".join(f"{state.knobs[name].label} = {value}" for name, value in values.items())
        st.button(f"Set {words}", key=f"{key}-change", icon=":material/build:", on_click=_change, args=(state, values))


def settable(known: Mapping[str, Knob], change: Mapping[str, Any]) -> dict[str, Any]:
    """What of a repair the controls accept. A stranger's program may have written it, and a button's label is Markdown:
    no programs and no free text."""
    values = {}
    for name, value in change.items():
        k = known.get(name)
        if k and (k.kind is not str or k.choices):
            with suppress(ParamsError):
                k.check(value)
                values[name] = value
    return values


def _change(state: PageState, values: Mapping[str, Any]) -> None:
    state.replace(state.values | dict(values))
    state.set("run", "repair")


def end_of_run(state: State, fault: Fault | None) -> None:
    """The card of a run that ended without a result."""
    cause = fault or Fault("Crashed", "The run ended without saying why.", repair="Press Run to try again.")
    _fault_card(cause, _ENDS[state], {})


def program_fault(fault: Fault, found: Sequence[Finding], ended: str) -> tuple[Finding, ...]:
    """The card of what stopped early; ``ended`` says what did. Returns the findings that it does not say already."""
    same = [f for f in found if f.level == "fault" and (f.line, f.text) == (fault.line, fault.explanation)]
    _fault_card(fault, ended, {} if not same or "message" in same[0].evidence else same[0].evidence)
    return tuple(finding for finding in found if finding not in same)


def _fault_card(fault: Fault, ended: str, evidence: Mapping[str, Any]) -> None:
    with st.container(border=True, key="finding-end", gap="xsmall"):
        _head("error", ended, "red", fault.line)
        if fault.type in _BY_THE_LAB:
            st.text(fault.message)
        else:
            st.code(f"{fault.type}: {fault.message}", language=None, wrap_lines=True)
        if fault.explanation:
            st.text(fault.explanation)
        _sites(fault.sites)
        _evidence(evidence, "finding-end")
        _repair(fault.repair)


def _sites(sites: Sequence[Site]) -> None:
    if sites:
        st.text("\n".join(map(site_text, sites)))


def site_text(site: Site) -> str:
    """ "line 4 · overwritten here · p · version 0 → version 1"."""
    change = " → ".join(str(value) for value in (site.before, site.after) if value is not None)
    return " · ".join(part for part in (f"line {site.line}", site.role, site.tensor, change) if part)


def _evidence(evidence: Mapping[str, Any], key: str) -> None:
    if evidence:
        with st.container(key=f"{key}-evidence", horizontal=True, gap="xsmall"):
            for name, value in evidence.items():
                st.text(f"{evidence_name(name)} {evidence_text(name, value)}")


def _repair(text: str) -> None:
    if text:
        st.text(f"Repair: {text}")


def _head(icon: str, word: str, color: str, line: int | None) -> None:
    place = f" · line {line}" if line else ""
    st.markdown(f":{color}[:material/{icon}: **{word}**]{place}")
