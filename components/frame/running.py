"""From the controls to a result: submit, wait a moment inside the script run, only then show how it goes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import ModuleType
from typing import Any, cast

import streamlit as st

from components.frame.execution import executor, visitor
from components.frame.page_state import PageState
from lab.contract import ParamsError
from lab.execution.executor import Job
from lab.quantities import seconds_text

ANSWER_WAIT_S = 0.4
"""A run that ends within this time is drawn at once; polling would cost about as much again."""
POLL_S = 0.3


@dataclass(frozen=True)
class Outcome:
    """Where the page's run stands. Made anew in every script run; the session keeps the ids."""

    params: Any | None
    """What the controls stand for, None when they contradict each other."""
    problem: str
    """Why not."""
    job: Job | None
    """The latest run, None while a program from a link waits for Run."""
    shown: Job | None
    """The last run that has a result, perhaps the latest one and not yet whole."""

    @property
    def running(self) -> bool:
        return self.job is not None and not self.job.over

    @property
    def without_result(self) -> bool:
        """The latest run is over and has none."""
        return self.job is not None and self.job.over and self.job.state != "done"

    @property
    def growing(self) -> bool:
        """What is shown is a part of the latest run, which goes on."""
        return self.running and self.shown is self.job

    @property
    def stale(self) -> bool:
        """What is shown is not what the controls stand for."""
        return self.shown is not None and self.shown.params != self.params


def measure(state: PageState, *, live: bool) -> Outcome:
    """Submit when it is due, and wait up to ``ANSWER_WAIT_S`` for the answer."""
    params, problem = state.params_or_problem()
    _measure_held(state)
    job = look(state.get("job"))
    if params is not None and _due(state, live, lost=job is None):
        asked_at = time.time()
        name = state.experiment.__name__.rpartition(".")[2]
        state.set("job", executor().submit(name, params, visitor=visitor(), fresh=state.get("run") == "pressed"))
        state.set("submitted", state.values)
        state.set("asked_at", asked_at)
    state.set("run", None)
    job = look(state.get("job"), ANSWER_WAIT_S)
    if job and job.result is not None:
        state.set("shown", job.id)
    shown = job if job and job.id == state.get("shown") else look(state.get("shown"))
    return Outcome(params, problem, job, shown)


def _measure_held(state: PageState) -> None:
    """Run what a link brought as A."""
    held = state.get("pin")
    if held is None or state.get("waiting"):
        return
    state.set("pin", None)
    try:
        params = state.params_type(**held)
    except ParamsError as error:
        state.set("problems", (*state.get("problems", ()), f"A of this link cannot be measured: {error}."))
        return
    name = state.experiment.__name__.rpartition(".")[2]
    state.pin(executor().submit(name, params, visitor=visitor()), params)


def look(job_id: str | None, seconds: float = 0.0) -> Job | None:
    """The job, waiting up to ``seconds`` for its end; None when the executor has let go of it."""
    if job_id is None:
        return None
    try:
        return executor().wait(job_id, seconds) if seconds else executor().look(job_id)
    except KeyError:
        return None


def example(experiment: ModuleType) -> Job | None:
    """The experiment as it is before anything is touched, for a page that only shows it; None while it is being measured."""
    params = cast(Any, experiment).Params()
    name = experiment.__name__.rpartition(".")[2]
    job_id = st.session_state.get("example")
    if look(job_id) is None:
        job_id = st.session_state["example"] = executor().submit(name, params, visitor=visitor())
    job = look(job_id, ANSWER_WAIT_S)
    if job is not None and not job.over:
        watch(job, "cancel-example")
    return job if job is not None and job.state == "done" else None


def _due(state: PageState, live: bool, lost: bool) -> bool:
    if state.get("waiting"):
        return False
    if state.get("run") or lost:
        return True
    now, then = state.values, state.get("submitted")
    typing = state.program is not None and now[state.program.name] != then[state.program.name]
    return live and now != then and not typing


def status(state: PageState, outcome: Outcome) -> None:
    """The line above the figure that is always there: progress with Cancel, or what the figure shows."""
    if outcome.running and outcome.job:
        watch(outcome.job, state.key("cancel"))
    else:
        st.text(_standing(state, outcome), width="stretch")


def _standing(state: PageState, outcome: Outcome) -> str:
    if state.get("waiting"):
        return "This link brought a program. Read it, then press Run."
    if outcome.shown is None:
        return "No result yet."
    if outcome.without_result and outcome.shown is outcome.job:
        return "The run ended early. This is what was measured before; the reason is beside it."
    if outcome.without_result:
        return "An earlier result: the newest run has none, the reason is beside it."
    if outcome.stale:
        return "The controls have changed since this run. Press Run to measure again."
    clock = time.strftime("%H:%M:%S", time.localtime(outcome.shown.finished_at))
    remembered = state.get("asked_at", 0.0) > outcome.shown.finished_at
    again = " and is remembered. Press Run to measure again." if remembered else "."
    return f"Ran in {seconds_text(outcome.shown.seconds)}, finished at {clock}{again}"


def watch(job: Job, cancel_key: str) -> None:
    """Progress with Cancel; draws the page anew when there is more to show."""
    _watch(job.id, job.parts, cancel_key)


@st.fragment(run_every=POLL_S)
def _watch(job_id: str, parts: int, cancel_key: str) -> None:
    job = look(job_id)
    if job is None or job.over or job.parts > parts:
        st.rerun()
    waiting = f"Waiting, number {job.position} in the queue." if job.state == "queued" else ""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.progress(min(max(job.fraction, 0.0), 1.0), width=160)
        st.text(waiting or job.line or "Running.")
        if st.button("Cancel", key=cancel_key, type="tertiary", icon=":material/close:"):
            executor().cancel(job_id)


def run_button(state: PageState) -> None:
    """For experiments without a program; the editor brings its own."""
    st.button("Run", type="primary", icon=":material/play_arrow:", key=state.key("run"), on_click=state.press_run)
