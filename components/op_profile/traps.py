"""The traps: ways to read a profile wrong, each tried on this machine."""

from __future__ import annotations

import streamlit as st

from components.frame.page_state import PageState
from lab.quantities import bytes_text, number_text, seconds_text
from lab.records.profiling import Reading, Trap

_UNITS = {
    "s": seconds_text, "bytes": bytes_text, "ratio": lambda value: f"× {value:.2f}", "count": lambda value: f"{value:,.0f}",
    "": number_text,
}  # fmt: skip

_NAMES: dict[str, str] = {
    "clocks": "five clocks", "warm_up": "the first step counted", "self_total": "totals added up", "inside_with": "read inside with",
    "nested": "a profiler in a profiler", "stacks": "empty stacks", "schedule": "a schedule without step()",
    "shapes": "all shapes in one row", "memory": "negative memory", "tiny_operations": "tiny operations",
    "sort_key": "a misspelt sort key", "export_twice": "exported twice", "no_device": "CUDA without a device",
    "step_rows": "ProfilerStep* on top", "backward_rows": "backward counted twice", "labels": "labels of your own",
}  # fmt: skip
"""Trap -> what it is called in the menu."""


def traps(state: PageState, trap: Trap | None, key: str, *, wide: bool) -> None:
    """A menu of the traps, and the one that was tried: as written and repaired, with what each gave."""
    names = [name for name in state.knobs["trap"].choices if name != "none"]
    with st.container(key=f"{key}-traps"):
        st.pills(
            "Try one", names, format_func=lambda name: _NAMES.get(name) or name, key=f"{key}-trap-menu",
            default=trap.name if trap else None, on_change=_spring, args=(state, f"{key}-trap-menu"),
        )  # fmt: skip
        if trap is None:
            st.text("Choose one. Both programs run here, as they are printed.")
            return
        st.subheader(trap.title.capitalize(), anchor=False)
        st.text(trap.explanation)
        places = st.columns(2) if wide else [st.container(), st.container()]
        for place, program, code in zip(places, ("as written", "repaired"), (trap.code, trap.repaired), strict=True):
            with place, st.container(border=True):
                st.markdown(f"**{program.capitalize()}**")
                _readings([reading for reading in trap.readings if reading.program == program])
                if program == "as written" and trap.message:
                    st.code(trap.message, language=None, wrap_lines=True)
                st.code(code, language="python")


def _readings(readings: list[Reading]) -> None:
    with st.container(horizontal=True, gap="medium"):
        for reading in readings:
            value, show = reading.value, _UNITS[reading.unit]
            text = value if isinstance(value, str) else "not measured" if value is None else show(value)
            note = f"  \n:small[:gray[{reading.note}]]" if reading.note else ""
            st.markdown(f"**{text}** {reading.name}{note}", width="content")


def _spring(state: PageState, menu: str) -> None:
    state.replace(state.values | {"trap": st.session_state[menu] or "none"})
    state.press_run()
