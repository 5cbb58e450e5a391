"""What to notice: the findings of a run, and faults. Their texts may quote a stranger's program, so they are drawn by
``st.text`` and ``st.code``, which interpret nothing; Markdown would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from components.page_bar import presenting
from components.page_state import PageState
from lab.contract import Fault, Finding
from lab.execution.executor import State
from lab.quantities import bytes_text, number_text, seconds_text

_MARKS = {
    "fact": ("info", "Fact", "blue"),
    "surprise": ("lightbulb", "Surprise", "violet"),
    "warning": ("warning", "Warning", "orange"),
    "fault": ("error", "Fault", "red"),
}
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
            _card(finding, f"{state.key('finding')}-{number}")
        return
    page = 1
    if len(found) > 1:
        page = st.pagination(len(found), key=state.key("finding-number"))
    _card(found[min(page, len(found)) - 1], f"{state.key('finding')}-one")


def _card(finding: Finding, key: str) -> None:
    icon, word, color = _MARKS[finding.level]
    with st.container(border=True, key=key, gap="xsmall"):
        _head(icon, word, color, finding.line)
        _title(finding.title, key)
        st.text(finding.text)
        if finding.evidence:
            with st.container(key=f"{key}-evidence", horizontal=True, gap="small"):
                for name, value in finding.evidence.items():
                    st.text(f"{evidence_name(name)} {evidence_text(name, value)}")
        if finding.repair:
            st.text(f"Repair: {finding.repair}")


def fault_card(fault: Fault, ended: str, key: str) -> None:
    """Why a program or a run ended early. ``ended`` says what did, such as "Your program stopped"."""
    with st.container(border=True, key=key, gap="xsmall"):
        _head("error", ended, "red", fault.line)
        st.code(f"{fault.type}: {fault.message}", language=None, wrap_lines=True)
        if fault.explanation:
            st.text(fault.explanation)
        if fault.repair:
            st.text(f"Repair: {fault.repair}")


def end_of_run(state: State, fault: Fault | None, key: str) -> None:
    """The card of a run that ended without a result."""
    cause = fault or Fault("Crashed", "The run ended without saying why.", repair="Press Run to try again.")
    fault_card(cause, _ENDS[state], key)


def evidence_name(name: str) -> str:
    """``kept_bytes`` -> "kept": the unit goes to the number."""
    return name.removesuffix("_bytes").removesuffix("_s").replace("_", " ")


def evidence_text(name: str, value: Any) -> str:
    """The value with the unit that the name carries."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if name == "bytes" or name.endswith("_bytes"):
        return bytes_text(value)
    if name.endswith("_s"):
        return seconds_text(value)
    return f"{value:,}" if isinstance(value, int) else number_text(value)


def _head(icon: str, word: str, color: str, line: int | None) -> None:
    place = f" · line {line}" if line else ""
    st.markdown(f":{color}[:material/{icon}: **{word}**]{place}")


def _title(text: str, key: str) -> None:
    with st.container(key=f"{key}-title"):
        st.text(text)
