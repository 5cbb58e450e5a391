"""One widget a knob, chosen by its kind, choices and limits.

A widget is given its value as its default when it is drawn first. What the page sets later (``PageState.replace``) draws
new widgets, under new keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from components.frame.page_state import PageState
from lab.contract import Knob

IN_SIGHT = 5
"""Knobs that are always visible; the rest is one click away."""
SLIDER_STEPS = 200
"""Above this many positions a slider cannot be set exactly by hand."""

_SWITCH = {None: "auto", True: "on", False: "off"}


def controls(state: PageState, in_sight: Sequence[str] = ()) -> None:
    """Draw every knob that is offered, but the program. ``in_sight``: which to show first, by name; default: in order."""
    offers = state.offers()
    names = [name for name, k in offers.items() if not k.program]
    first = [name for name in in_sight if name in names] or names[:IN_SIGHT]
    with st.container(horizontal=True, vertical_alignment="bottom", key=state.key("in-sight")):
        for name in first:
            _draw(state, offers[name])
    rest = [name for name in names if name not in first]
    if rest:
        with st.expander(f"{len(rest)} more setting{'s' if len(rest) > 1 else ''}"):
            for name in rest:
                _draw(state, offers[name])


def _draw(state: PageState, k: Knob) -> None:
    widget(k, state.revised_key(k.name), state.values[k.name])


def widget(k: Knob, key: str, value: Any) -> Any:
    """Draw the widget of ``k`` and return its value, ``value`` at first."""
    label, meaning = k.label, k.meaning or None
    if k.choices and not k.optional and (len(k.choices) <= 4 or k.name == "view"):  # a view is always one click away
        draw = st.segmented_control if len(k.choices) <= 5 else st.pills  # pills take a second row where they need one
        return draw(label, k.choices, default=value, required=True, key=key, help=meaning)
    if k.choices:
        options = (None, *k.choices) if k.optional else k.choices
        return st.selectbox(label, options, options.index(value), format_func=_choice, key=key, help=meaning)
    if k.kind is bool and k.optional:
        return st.selectbox(
            label, list(_SWITCH), list(_SWITCH).index(value), format_func=_SWITCH.__getitem__, key=key, help=meaning
        )
    if k.kind is bool:
        return st.toggle(label, value, key=key, help=meaning)
    if k.kind is str:
        return st.text_input(label, value, key=key, help=meaning)
    return _number(k, key, value)


def _number(k: Knob, key: str, value: Any) -> Any:
    low, high = (bound if bound is None else k.kind(bound) for bound in (k.low, k.high))
    step = k.kind(k.step) if k.step else (1 if k.kind is int else None)
    if step and low is not None and high is not None and not k.optional and (high - low) / step <= SLIDER_STEPS:
        return st.slider(k.label, low, high, value, step, key=key, help=k.meaning or None)
    return st.number_input(
        k.label,
        low,
        high,
        value=value,
        step=step,
        format="%g" if k.kind is float else "%d",
        placeholder="none" if k.optional else None,
        key=key,
        help=k.meaning or None,
        width=200,
    )


def _choice(value: str | None) -> str:
    return "none" if value is None else value
