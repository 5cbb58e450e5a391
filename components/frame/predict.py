"""Predict first: the figure stays covered until the visitor has said what it will show."""

from __future__ import annotations

import hashlib
from typing import Any

import streamlit as st

from components.frame.page_state import PageState
from lab.contract import Lesson

PREDICTING = "predict-first"
"""Session entry of the toggle, for all pages alike."""


def predict_toggle(state: PageState) -> None:
    """Remembered for the visit, on every page."""
    key = state.key("predict-first")  # a knob may be called predict
    st.toggle(
        "Predict first",
        st.session_state.get(PREDICTING, False),
        key=key,
        help="Covers the figure of a preset until you have said what it will show.",
        on_change=lambda: st.session_state.update({PREDICTING: st.session_state[key]}),
    )


def covered(state: PageState, lesson: Lesson | None) -> bool:
    """Whether the answer must not be seen yet."""
    return bool(lesson and st.session_state.get(PREDICTING) and lesson.title not in state.get("guesses", {}))


def ask(state: PageState, lesson: Lesson) -> None:
    """The question and its choices, in the place of the figure."""
    with st.container(border=True, key=state.key("question")):
        st.subheader("What do you expect?", anchor=False)
        st.markdown(lesson.question)
        for number, choice in enumerate(shuffled(lesson)):
            st.button(
                choice,
                key=state.key(f"choice-{number}"),
                on_click=_guess,
                args=(state, lesson, choice),
                width="stretch",
            )


def shuffled(lesson: Lesson) -> list[str]:
    """The choices in an order that says nothing about which is right, the same at every visit."""
    return sorted(lesson.choices, key=lambda choice: hashlib.sha256(f"{lesson.title}\0{choice}".encode()).digest())


def shown_title(state: PageState, lesson: Lesson, number: int) -> str:
    """The title, or while the answer must not be seen yet the question: titles give answers away."""
    return f"{number}. {lesson.question}" if covered(state, lesson) else lesson.title


def answer(state: PageState, lesson: Lesson | None, result: Any) -> None:
    """What was measured, against what was predicted, and the reason."""
    guess = state.get("guesses", {}).get(lesson.title) if lesson else None
    if lesson is None or guess is None or not st.session_state.get(PREDICTING):
        return
    measured = lesson.answer(result)
    with st.container(border=True, key=state.key("answer")):
        if guess == measured:
            st.markdown(f":green[:material/check_circle: **As you predicted:**] {measured}")
            st.markdown(lesson.mechanism)
        else:
            st.markdown(f":violet[:material/lightbulb: **Measured:**] {measured}")
            st.markdown(f"You predicted: {guess}. {lesson.choices[guess]}")
        st.button(
            "Predict again", key=state.key("predict-again"), type="tertiary", on_click=_forget, args=(state, lesson)
        )


def _guess(state: PageState, lesson: Lesson, choice: str) -> None:
    state.set("guesses", state.get("guesses", {}) | {lesson.title: choice})


def _forget(state: PageState, lesson: Lesson) -> None:
    state.set("guesses", {title: guess for title, guess in state.get("guesses", {}).items() if title != lesson.title})
