"""The frame of every experiment page: controls, run, what to notice, take it away, footer. A page fills in the figure.

page = ...
with experiment_page(gradient_flow, question=..., about=...) as page:
    for side in page.sides():
        st.altair_chart(depth_chart(side.result))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Generic, Protocol, TypeVar, cast

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from components.frame.code_editor import code_editor
from components.frame.compare import differences, pin_button, pinned
from components.frame.controls import controls
from components.frame.execution import executor
from components.frame.findings import end_of_run, findings, marked_sites, program_fault
from components.frame.page_bar import page_bar, presenting
from components.frame.page_state import PageState
from components.frame.predict import answer, ask, covered, predict_toggle, shown_title
from components.frame.running import Outcome, measure, run_button, status
from components.frame.share_link import lesson_of, slug
from components.frame.splitter import splitter
from components.frame.style import dim, page_style
from components.frame.take_away import device_name, footer, interview_desk, show_the_code, the_idea
from components.navigation import prefix_of
from lab.contract import Fault, Lesson, Report, Site
from lab.execution.executor import Job

R = TypeVar("R")
"""The Result of an experiment."""
R_co = TypeVar("R_co", covariant=True)


class Experiment(Protocol[R_co]):
    """The module of an experiment, for what its page draws: the type of its results."""

    def run(self, params: Any, report: Report, /) -> R_co: ...


@dataclass(frozen=True)
class Side(Generic[R]):
    """One result to draw."""

    job: Job
    key: str
    """Prefix for the keys of what is drawn."""
    beside: Job | None = None
    """The result that is drawn next to it."""

    @property
    def result(self) -> R:
        return self.job.result

    @property
    def params(self) -> Any:
        return self.job.params

    @property
    def sites(self) -> tuple[Site, ...]:
        """Lines that take part in what is told first of it."""
        return marked_sites(getattr(self.job.result, "fault", None), self.job.findings)


@dataclass(frozen=True)
class ExperimentPage(Generic[R]):
    """What a page script sees of its frame."""

    state: PageState
    side: Side[R] | None
    """What the controls stand for. None while there is no result or a prediction covers it."""
    pinned: Side[R] | None
    aside: DeltaGenerator
    """Below the controls, for what belongs to the run rather than to the figure: printed output."""
    details: DeltaGenerator
    """Below the figure, for the tables behind it. Not in presenter mode."""

    @property
    def presenting(self) -> bool:
        return presenting()

    @property
    def pair(self) -> tuple[Side[R], Side[R]] | None:
        """A and B, for a figure that draws both on one axis."""
        return (self.pinned, self.side) if self.pinned and self.side else None

    def sides(self, *, together: bool = False) -> Iterator[Side[R]]:
        """What to draw: nothing, one result, or the pinned one and the present one side by side; ``together``: these two
        are drawn already, as a pair. What differs between them stands below."""
        if self.side is None:
            return
        if self.pinned is None:
            yield self.side
            return
        if together:
            differences(self.state, self.pinned.job, self.side.job)
            return
        for name, side, column in zip("AB", (self.pinned, self.side), st.columns(2), strict=True):
            with column:
                st.markdown(f"**{name}**")
                yield replace(side, beside=(self.side if side is self.pinned else self.pinned).job)
        differences(self.state, self.pinned.job, self.side.job)


@contextmanager
def experiment_page(
    experiment: Experiment[R],
    *,
    question: str,
    about: str,
    live: bool = True,
    in_sight: Sequence[str] = (),
    keys: Mapping[str, str] | None = None,
    looks: Mapping[str, Sequence[str]] | None = None,
    dtype: str = "",
    cost: str = "",
    blind: str = "",
) -> Iterator[ExperimentPage[R]]:
    """Draw the page around the figure; the block under ``with`` draws the figure and its details.

    ``about``: one sentence, ``{device}`` stands for the device's name. ``live``: follow the controls without Run, for
    experiments under a second. ``in_sight``: knobs that are always visible; default: the first five. ``keys``: what the
    figure listens for, for the help. ``looks``: widgets of the figure that a link carries, by the name in their
    key, with their options, the usual one first. ``cost``, ``blind``: sentences for the footer, what the instrument costs and what
    it cannot see.
    """
    module = cast(ModuleType, experiment)
    state = PageState(module, prefix_of(_stem(module)), looks or {})
    state.read()
    page_style()
    bar = _head(question)
    outcome = measure(state, live=live)
    dim((outcome.running or outcome.without_result) and outcome.shown is not outcome.job)
    link = state.write_address()
    lesson = lesson_of(state.values, state.lessons)
    with bar:
        page_bar(
            state.key("bar"),
            link_left_out=link.left_out,
            heard=state.heard,
            at=state.at_parameter,
            lesson=f"{_stem(module)}?{state.key('preset')}={slug(lesson.title)}" if lesson else "",
            keys=keys or {},
        )
    _about(state, about, outcome)
    with st.container(key="page-body"):
        left, right = st.columns([5, 8], gap="small")
    hidden = covered(state, lesson)
    with right:
        standing = st.container(key="page-status", horizontal=True, vertical_alignment="center")
        figure, more, details = (st.container(key=f"page-{name}") for name in ("figure", "more", "details"))
    with left:
        _controls(state, outcome, lesson, in_sight)
        aside = _aside(state, outcome, lesson, hidden, more)
        splitter(state.key("splitter"))
    with standing:  # after the editor: a rerun from here must not lose what was typed
        status(state, outcome)
        pin_button(state, outcome)
    with right, figure:
        if hidden and lesson:
            ask(state, lesson)
        side = Side(outcome.shown, state.key("b")) if outcome.shown and not hidden else None
        held = pinned(state)
        yield ExperimentPage(state, side, Side(held, state.key("a")) if held else None, aside, details)
    the_idea(state)
    show_the_code(state, outcome.shown)
    interview_desk(state, lesson, state.lessons)
    footer(outcome.shown, dtype=dtype, cost=cost, blind=blind)


def _stem(experiment: ModuleType) -> str:
    return experiment.__name__.rpartition(".")[2]


def _head(question: str) -> DeltaGenerator:
    """The title; returns the place for the page-wide controls beside it."""
    with st.container(key="page-head", horizontal=True, vertical_alignment="center"):
        st.title(question, anchor=False)
        return st.container(key="page-tools", width=330)


def _about(state: PageState, about: str, outcome: Outcome) -> None:
    with st.container(key="page-about"), st.spinner("Looking at this machine"):
        name = device_name(executor().host(), getattr(outcome.params, "device", "cpu"))
        st.caption(about.format(device=name))


def _controls(state: PageState, outcome: Outcome, lesson: Lesson | None, in_sight: Sequence[str]) -> None:
    with st.container(key="page-controls"):
        for problem in state.get("problems", ()):
            st.warning(problem, icon=":material/link_off:")
        _presets(state, lesson)
        if state.program and state.offers_program:
            fault = _fault(outcome)
            code_editor(
                state.values[state.program.name],
                key=state.key("editor"),
                revision=state.get("revision", 0),
                label="Program",
                error_line=fault.line if fault else None,
                marks=_marks(state, outcome, fault),
            )
        else:
            run_button(state)
    with st.container(key="page-knobs"):
        controls(state, in_sight)


def _marks(state: PageState, outcome: Outcome, fault: Fault | None) -> list[dict[str, Any]]:
    """Lines of the program that was run that take part in what is told of it, for the editor."""
    if outcome.shown is None or state.program is None or outcome.without_result:
        return []
    rows = getattr(outcome.shown.params, state.program.name).split("\n")
    sites = {site.line: rank for rank, site in reversed(list(enumerate(marked_sites(fault, outcome.shown.findings))))}
    return [{"line": n, "rank": rank, "row": rows[n - 1]} for n, rank in sites.items() if 0 < n <= len(rows)]


def _presets(state: PageState, lesson: Lesson | None) -> None:
    if not state.lessons:
        return
    titles = {item.title: shown_title(state, item, number) for number, item in enumerate(state.lessons, 1)}
    # A key of its own for each state: that the browser still shows another one is not a choice.
    key = state.revised_key(f"preset-{slug(lesson.title) if lesson else 'own'}")
    state.set("preset-key", key)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.selectbox(
            "Preset",
            list(titles),
            list(titles).index(lesson.title) if lesson else None,
            format_func=titles.__getitem__,
            required=True,
            key=key,
            placeholder="Your own program" if state.offers_program else "Your own settings",
            label_visibility="collapsed",
            on_change=_choose,
            args=(state, key),
        )
        predict_toggle(state)


def _choose(state: PageState, key: str) -> None:
    """``key``: of the selector that was used. Streamlit also calls this for one that is no longer drawn."""
    lesson = next((item for item in state.lessons if item.title == st.session_state[key]), None)
    if lesson and key == state.get("preset-key"):
        state.choose(lesson)


def _aside(
    state: PageState, outcome: Outcome, lesson: Lesson | None, hidden: bool, more: DeltaGenerator
) -> DeltaGenerator:
    """Faults, the page's own texts about the run, the answer to a prediction, the findings; ``more``: place for those
    that do not stand beside the figure."""
    if outcome.problem:
        st.warning(outcome.problem)
    found = outcome.shown.findings if outcome.shown and not hidden else ()
    with st.container(key="page-end"):
        fault = _fault(outcome)
        if outcome.without_result and outcome.job:
            end_of_run(outcome.job.state, fault)
        elif fault:
            ended = "Your program stopped" if state.offers_program else "PyTorch refuses this"
            others = program_fault(state, fault, found, ended)
            found = found if presenting() else others  # before a group the card is one of the findings
    aside = st.container(key="page-aside")
    with st.container(key="page-findings"):
        if outcome.shown and not hidden:
            if outcome.shown.state == "done":  # a part may lack what the answer is read from
                answer(state, lesson, outcome.shown.result)
            findings(state, found, more)
    return aside


def _fault(outcome: Outcome) -> Fault | None:
    """Of the latest run, else of the program behind what is shown."""
    if outcome.without_result and outcome.job:
        return outcome.job.fault
    return getattr(outcome.shown.result, "fault", None) if outcome.shown else None
