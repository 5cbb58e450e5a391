"""What to notice: the findings of a run, and faults. Their texts may quote a stranger's program, so they are drawn by
``st.text`` and ``st.code``, which interpret nothing; Markdown would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from components.frame.page_bar import presenting
from components.frame.page_state import PageState
from components.frame.running import look
from components.frame.site_list import site_list
from lab.contract import Edit, Fault, Finding, Knob, ParamsError, Site, apply_edits
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


def findings(state: PageState, found: Sequence[Finding], more: DeltaGenerator) -> None:
    """The first finding here, beside the figure, the others in ``more``, below it; in presenter mode one at a time, here."""
    if not found:
        return
    st.subheader("What to notice", anchor=False)
    if not presenting():
        _card(state, found[0], "finding-0")
        with more:
            for number, finding in enumerate(found[1:], 1):
                _card(state, finding, f"finding-{number}")
        return
    page = st.session_state.get(state.key("finding-number")) or 1
    _card(state, found[min(page, len(found)) - 1], "finding-one")
    if len(found) > 1:
        st.pagination(len(found), key=state.key("finding-number"))


def _card(state: PageState, finding: Finding, key: str) -> None:
    icon, word, color = _MARKS[finding.level]
    with st.container(border=True, key=key, gap="xsmall"):
        _head(icon, word, color, finding.line)
        with st.container(key=f"{key}-title"):
            st.text(finding.title)
        st.text(finding.text)
        site_list(finding.sites, key=f"{key}-sites")
        _evidence(finding.evidence, key)
        _repair(finding.repair)
        _offer_change(state, finding.change, key)
        _offer_edits(state, finding, key)


def _offer_change(state: PageState, change: Mapping[str, Any], key: str) -> None:
    """The repair as one click."""
    values = settable(state.knobs, change)
    if values:
        words = ", ".join(f"{state.knobs[name].label} = {value}" for name, value in values.items())
        st.button(f"Set {words}", key=f"{key}-change", icon=":material/build:", on_click=_change, args=(state, values))


def _offer_edits(state: PageState, finding: Finding, key: str) -> None:
    """The changed lines and one click that changes them; only for a program that was run with them."""
    if not (finding.edits and finding.edit_tested and state.program):
        return
    with st.container(key=f"{key}-diff"):
        st.code(diff_text(finding.edits), language="diff", wrap_lines=True)
    st.button(
        "Apply and compare",
        key=f"{key}-apply",
        icon=":material/difference:",
        help="Changes these lines in the editor, runs the program, and shows both results side by side. "
        "The changed program has been run: it ended clean.",
        on_click=_apply,
        args=(state, finding.edits),
    )


def diff_text(edits: Sequence[Edit]) -> str:
    """Each edit as the old line behind "-" and the new ones behind "+"."""
    parts = ([f"- {edit.old}", *(f"+ {line}" for line in edit.new.split("\n") if edit.new)] for edit in edits)
    return "\n".join(line for part in parts for line in part)


def _apply(state: PageState, edits: Sequence[Edit]) -> None:
    """Change the program that was run, run it, and hold what is shown as A."""
    job = look(state.get("shown"))
    if job is None or state.program is None:
        return
    ran = {name: getattr(job.params, name) for name in state.knobs}
    edited = apply_edits(ran[state.program.name], edits)
    if edited is None:
        return
    state.replace(state.values | ran | {state.program.name: edited})
    state.pin(job.id, job.params)
    state.set("waiting", False)
    state.set("run", "repair")


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


def program_fault(state: PageState, fault: Fault, found: Sequence[Finding], ended: str) -> tuple[Finding, ...]:
    """The card of what stopped early; ``ended`` says what did. Returns the findings that it does not say already."""
    same = [f for f in found if _says(f, fault)]
    evidence = {name: value for name, value in (same[0].evidence if same else {}).items() if name != "message"}
    with _fault_card(fault, ended, evidence):
        if same:
            _offer_edits(state, same[0], "finding-end")
    return tuple(finding for finding in found if finding not in same)


def _says(finding: Finding, fault: Fault) -> bool:
    """Whether a finding is about this fault and says no more than it."""
    text = fault.explanation or fault.message
    return finding.level == "fault" and finding.line == fault.line and text.startswith(finding.text.removesuffix("…"))


def marked_sites(fault: Fault | None, found: Sequence[Finding]) -> tuple[Site, ...]:
    """The sites of the fault, else of the first finding that is more than a fact."""
    if fault and fault.sites:
        return fault.sites
    return next((f.sites for f in found if f.sites and f.level != "fact"), ())


def _fault_card(fault: Fault, ended: str, evidence: Mapping[str, Any]) -> DeltaGenerator:
    card = st.container(border=True, key="finding-end", gap="xsmall")
    with card:
        _head("error", ended, "red", fault.line)
        if fault.type in _BY_THE_LAB:
            st.text(fault.message)
        else:
            st.code(f"{fault.type}: {fault.message}", language=None, wrap_lines=True)
        if fault.explanation:
            st.text(fault.explanation)
        site_list(fault.sites, key="finding-end-sites")
        _evidence(evidence, "finding-end")
        _repair(fault.repair)
    return card


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
