"""Below the figure: the code to take along, the interview texts, and where the numbers come from."""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence

import streamlit as st

from components.frame.execution import executor
from components.frame.page_state import PageState
from lab.contract import Lesson
from lab.execution.executor import Host, Job
from lab.quantities import seconds_text


def the_idea(state: PageState) -> None:
    """The text at the head of the experiment's module: the idea, the formula, its source."""
    with st.expander("The idea", icon=":material/menu_book:"):
        st.markdown(inspect.cleandoc(state.experiment.__doc__ or ""))


def show_the_code(state: PageState, job: Job | None) -> None:
    """The script that reproduces the headline number of what is shown."""
    if job is None:
        return
    name = job.experiment.rpartition(".")[2]
    with st.expander("Show the code", icon=":material/code:"):
        script = state.experiment.script(job.params)
        st.caption("A program of its own: it needs PyTorch and nothing else.")
        st.code(script, wrap_lines=True)
        st.download_button(
            "Download", script, f"{name}.py", "text/x-python", key=state.key("download"), on_click="ignore",
            icon=":material/download:",
        )  # fmt: skip


def interview_desk(state: PageState, lesson: Lesson | None, lessons: Sequence[Lesson]) -> None:
    """The four parts of an answer, for the preset in use or the one that is picked."""
    if not lessons:
        return
    with st.expander("Asked in interviews", icon=":material/forum:"):
        titles = [item.title for item in lessons]
        index = titles.index(lesson.title) if lesson else 0
        title = st.selectbox("Lesson", titles, index, key=state.key(f"desk-{index}"), label_visibility="collapsed")
        chosen = lessons[titles.index(title)]
        st.caption(f"Question {chosen.row}")
        for part, text in (
            ("Requirement", chosen.requirement),
            ("Mechanism", chosen.mechanism),
            ("Evidence", chosen.proof),
            ("Recovery", chosen.recovery),
        ):
            st.markdown(f"**{part}.** {text}")


def footer(job: Job | None, *, dtype: str, cost: str, blind: str) -> None:
    """Device, version, seed, time, what the instrument costs and what it cannot see."""
    host = executor().host()
    facts = [device_name(host, getattr(job.params, "device", "cpu") if job else "cpu"), f"torch {host.torch}", dtype]
    if job:
        if hasattr(job.params, "seed"):
            facts.append(f"seed {job.params.seed}")
        facts.append(f"measured {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(job.finished_at))}")
        if job.state == "done":
            facts.append(f"ran in {seconds_text(job.seconds)}")
        facts.append("sealed" if job.sealed else "not sealed")
    with st.container(key="page-footer", gap="xxsmall"):
        st.caption(" · ".join(fact for fact in facts if fact))
        st.caption(" ".join(text for text in (cost, blind) if text))


def device_name(host: Host, device: str) -> str:
    """The name of the chip behind ``cpu`` or ``cuda``."""
    return host.cuda if device == "cuda" and host.cuda else host.cpu
