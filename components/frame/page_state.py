"""What one page remembers during a visit, and how it agrees with the address.

NOTE Where the state of a page lives.
1. Plain values only, in the session under ``<prefix>:<name>``.
2. ``values`` (one plain value a knob) is the state. A script run first reads what changed into it, then draws.
3. The address is written from ``values``. It is read, checked against the knobs and taken over only when the page is
   entered with one (a link was opened) or the visitor went back or forward. Otherwise it may be older than ``values``:
   the browser sends the address that it shows, and may not have seen our last one yet.
4. What Python sets (a preset, a link, a repair) raises ``revision``, and the widgets of the knobs get new keys with it: a
   late message of the browser is about keys that are gone, and changes nothing.
5. Streamlit forgets the widgets of a page that is left, and its address. Coming back without an address brings back
   ``values`` as they were.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import ModuleType
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from components.frame.code_editor import last_sent
from components.frame.page_bar import PRESENTING, presenting
from components.frame.share_link import Link, is_own_program, lesson_of, link_of, opened
from lab.contract import Knob, Lesson, ParamsError, knobs, offers, program_knob

PRESENT = "present"
"""Query parameter of presenter mode, for all pages alike."""


class PageState:
    """The state of one experiment's page. Cheap to make: everything is in the session."""

    def __init__(self, experiment: ModuleType, prefix: str, looks: Mapping[str, Sequence[str]]) -> None:
        self.experiment = experiment
        self.prefix = prefix
        self.looks = looks
        self.params_type: type = experiment.Params
        self.lessons: tuple[Lesson, ...] = experiment.lessons
        self.knobs: dict[str, Knob] = knobs(self.params_type)
        self.program = program_knob(self.params_type)

    def get(self, name: str, default: Any = None) -> Any:
        return st.session_state.get(f"{self.prefix}:{name}", default)

    def set(self, name: str, value: Any) -> None:
        st.session_state[f"{self.prefix}:{name}"] = value

    def key(self, name: str) -> str:
        """Widget key, and query parameter of a knob."""
        return f"{self.prefix}-{name}"

    def revised_key(self, name: str) -> str:
        """Key of a widget whose value Python may replace: of ``name`` in the present revision."""
        revision = self.get("revision", 0)
        return self.key(name) + (f"~{revision}" if revision > 1 else "")

    @property
    def values(self) -> dict[str, Any]:
        return dict(self.get("values"))

    def replace(self, values: dict[str, Any]) -> None:
        """Set all knobs from Python; their widgets and the editor follow. Before they are drawn, or in a callback."""
        self.set("values", values)
        self.set("revision", self.get("revision", 0) + 1)
        self.set("at", 0)

    def choose(self, lesson: Lesson) -> None:
        """Take a preset and run it: its program is our own."""
        self.replace(asdict(lesson.params))
        self.look_at({name: options[0] for name, options in self.looks.items()} | _view_of(lesson))
        self.set("problems", ())
        self.set("waiting", False)
        self.set("run", "preset")

    def look_at(self, looks: Mapping[str, str]) -> None:
        """Set what the figure shows of the result."""
        for name, look in looks.items():
            if look in self.looks.get(name, ()):
                st.session_state[self.key(name)] = look

    def read(self) -> None:
        """Take over what happened since the last script run: in the address, the widgets, the editor."""
        self._read_address()
        keys = {name: self.revised_key(name) for name in self.offers()}
        fresh = {name: st.session_state[key] for name, key in keys.items() if key in st.session_state}
        self.set("values", self.values | fresh)
        self._settle()
        self._read_editor()

    def offers(self) -> dict[str, Knob]:
        """The knobs that matter beside the present values, as they are offered."""
        return offers(self.experiment, self.values)

    @property
    def offers_program(self) -> bool:
        return self.program is not None and self.program.name in self.offers()

    def _settle(self) -> None:
        """A choice that is no longer offered becomes the first that is."""
        for name, k in self.offers().items():
            if k.choices and self.values[name] not in (*k.choices, None):
                self.set("values", self.values | {name: k.choices[0]})
                st.session_state[self.revised_key(name)] = k.choices[0]

    def _read_address(self) -> None:
        mine = {k: v for k, v in st.query_params.items() if self._is_mine(k)}
        entering = self.key("bar") not in st.session_state
        if self.get("values") is not None and not (entering and mine) and not _went_back_or_forward():
            return
        st.session_state[PRESENTING] = st.query_params.get(PRESENT) == "1"
        found = opened(mine, self.params_type, self.lessons, self.prefix)
        self.replace(found.values)
        held = {f"{self.prefix}-{k.removeprefix(self._held)}": v for k, v in mine.items() if k.startswith(self._held)}
        beside = opened(held, self.params_type, self.lessons, self.prefix)
        self.set("pin", beside.values if f"{self.prefix}.a" in mine else None)
        self.set("problems", (*found.problems, *beside.problems))
        lesson = lesson_of(found.values, self.lessons)
        asked = {k.removeprefix(f"{self.prefix}."): v for k, v in mine.items()}
        self.look_at(_view_of(lesson) | asked)
        self.set("at", int(asked["at"]) if re.fullmatch(r"\d{1,6}", asked.get("at", "")) else 0)
        stranger = self._is_strange(found.values) or (bool(held) and self._is_strange(beside.values))
        self.set("waiting", stranger)
        self.set("run", None if stranger else "link")

    def _read_editor(self) -> None:
        sent = last_sent(self.key("editor"))
        if not self.program or sent is None or list(sent) == self.get("sent"):
            return
        before = self.get("sent") or ["", 0]
        self.set("sent", list(sent))
        if sent.revision is not None and sent.revision < self.get("revision", 0):
            return  # typed over a text that has been replaced since
        if sent.run != before[1]:
            self.press_run()
        self.set("values", self.values | {self.program.name: sent.text})

    @property
    def heard(self) -> int:
        """Serial of what the editor sent last."""
        return (self.get("sent") or ["", 0, 0])[2]

    def pin(self, job_id: str, params: Any) -> None:
        """Hold a result as A."""
        self.set("pinned", job_id)
        self.set("held", {name: getattr(params, name) for name in self.knobs})

    def unpin(self) -> None:
        self.set("pinned", None)
        self.set("held", None)

    @property
    def at_parameter(self) -> str:
        """Query parameter of the step; the browser writes it into a link that is copied."""
        return f"{self.prefix}.at"

    def press_run(self) -> None:
        self.set("waiting", False)
        self.set("at", 0)
        self.set("run", "pressed")

    def write_address(self) -> Link:
        """Bring the address in line with ``values``."""
        link = link_of(self.values, self.params_type, self.lessons, self.prefix)
        present = {PRESENT: "1"} if presenting() else {}
        others = {k: v for k, v in st.query_params.items() if k != PRESENT and not self._is_mine(k)}
        wanted = others | link.query | self._looked() | self._held_query() | present
        if st.query_params.to_dict() != wanted:
            st.query_params.from_dict(wanted)
        return link

    @property
    def _held(self) -> str:
        """Begins the query parameters of A."""
        return f"{self.prefix}.a-"

    def _is_mine(self, parameter: str) -> bool:
        return parameter.startswith((f"{self.prefix}-", f"{self.prefix}."))

    def _looked(self) -> dict[str, str]:
        """What the figure shows, where it is not the usual, and the step that the link asked for."""
        found = {self.at_parameter: str(self.get("at"))} if self.get("at") else {}
        for name, options in self.looks.items():
            look = st.session_state.get(self.key(name))
            if look in options and look != options[0]:
                found[f"{self.prefix}.{name}"] = str(look)
        return found

    def _held_query(self) -> dict[str, str]:
        """A, as its own knobs."""
        held = self.get("held")
        if held is None:
            return {}
        query = link_of(held, self.params_type, self.lessons, self.prefix).query
        knobs = {f"{self._held}{k.removeprefix(f'{self.prefix}-')}": v for k, v in query.items()}
        return {f"{self.prefix}.a": "1"} | knobs

    def params(self) -> Any:
        """The ``Params`` that the controls stand for. Raises ParamsError."""
        return self.params_type(**self.values)

    def params_or_problem(self) -> tuple[Any | None, str]:
        """``params()``, or None and the sentence that says what is wrong with the controls."""
        try:
            return self.params(), ""
        except ParamsError as error:
            return None, f"{str(error)[:1].upper()}{str(error)[1:]}."

    def _is_strange(self, values: dict[str, Any]) -> bool:
        """Whether the program is neither our own nor the one that this visitor ran last."""
        if not self.program:
            return False
        code = values[self.program.name]
        ran = code == self.get("submitted", {}).get(self.program.name)
        return not ran and not is_own_program(code, self.params_type, self.lessons)


def _view_of(lesson: Lesson | None) -> dict[str, str]:
    return {"view": lesson.view} if lesson and lesson.view else {}


def _went_back_or_forward() -> bool:
    context = get_script_run_ctx()
    return context is not None and context.is_history_navigation
