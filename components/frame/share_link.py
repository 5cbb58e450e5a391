"""What a link holds: the lesson's name, or every knob that differs from its default; a program goes in compressed.

The query string is written by hand rather than with ``bind="query-params"``: a program is no widget, a preset is a
name for all knobs at once, and Streamlit replaces a value that it does not accept by the default without a word.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lab.contract import Knob, Lesson, ParamsError, knobs, program_knob

PACKED_CHARACTERS = 6_000
"""Longest compressed program in a link. Beyond it, mail programs and chats begin to cut links."""
LEFT_OUT = "too-long"
"""Stands in the link for a program that did not fit."""


class LinkError(ValueError):
    """Something in a link cannot be used. The message is for the visitor."""


@dataclass(frozen=True)
class Link:
    """Query parameters of a state, and what could not go in."""

    query: dict[str, str]
    left_out: str
    """Empty, or why the link does not show the whole state."""


@dataclass(frozen=True)
class Opened:
    """The state that a query stands for."""

    values: dict[str, Any]
    """One plain value for each knob."""
    problems: tuple[str, ...]
    """What was wrong in the query, a sentence each."""


def link_of(values: Mapping[str, Any], params_type: type, lessons: Sequence[Lesson], prefix: str) -> Link:
    """The shortest query that ``opened`` reads back to ``values``."""
    changed = {name: values[name] for name, k in knobs(params_type).items() if values[name] != k.default}
    lesson = lesson_of(values, lessons)
    if not changed or lesson:
        return Link({f"{prefix}-preset": slug(lesson.title)} if lesson and changed else {}, "")
    query, left_out, program = {}, "", program_knob(params_type)
    for name, value in changed.items():
        text = _text(value)
        if program and name == program.name:
            text = pack(text)
            if len(text) > PACKED_CHARACTERS:
                left_out = (
                    f"The program is too long for a link: {len(text):,} characters compressed, the limit is "
                    f"{PACKED_CHARACTERS:,}. Send it as a file."
                )
                text = LEFT_OUT
        query[f"{prefix}-{name}"] = text
    return Link(query, left_out)


def opened(query: Mapping[str, str], params_type: type, lessons: Sequence[Lesson], prefix: str) -> Opened:
    """Check a query against the knobs. Whatever cannot be used keeps its default and is named in ``problems``."""
    known = knobs(params_type)
    values, problems = {name: k.default for name, k in known.items()}, []
    given = {name.removeprefix(f"{prefix}-"): text for name, text in query.items() if name.startswith(f"{prefix}-")}
    preset = given.pop("preset", None)
    if preset is not None:
        lesson = next((item for item in lessons if slug(item.title) == preset), None)
        if lesson:
            values = asdict(lesson.params)
        else:
            problems.append(f"There is no preset called {preset[:60]!r}. The default is shown.")
    for name, text in given.items():
        try:
            values[name] = _value(known, name, text)
        except (ParamsError, LinkError) as error:
            problems.append(_sentence(error, known.get(name), values.get(name)))
    return Opened(values, tuple(problems))


def lesson_of(values: Mapping[str, Any], lessons: Sequence[Lesson]) -> Lesson | None:
    """The lesson whose preset is exactly this state."""
    return next((item for item in lessons if asdict(item.params) == dict(values)), None)


def is_own_program(code: str, params_type: type, lessons: Sequence[Lesson]) -> bool:
    """Whether the text is a preset's or the default, character by character, so that a link with it may run at once."""
    program = program_knob(params_type)
    assert program
    return code == program.default or any(getattr(item.params, program.name) == code for item in lessons)


def slug(title: str) -> str:
    """ "A value used twice" -> "a-value-used-twice"."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def pack(text: str) -> str:
    """zlib, then base64 with the alphabet of URLs and without padding."""
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def unpack(packed: str, max_bytes: int) -> str:
    """The text that ``pack`` wrote. Never inflates more than ``max_bytes``. Raises LinkError."""
    if packed == LEFT_OUT:
        raise LinkError("The program was too long for this link. Ask for it as a file and paste it here.")
    inflate = zlib.decompressobj()
    try:
        padded = packed + "=" * (-len(packed) % 4)
        data = inflate.decompress(base64.b64decode(padded, b"-_", validate=True), max_bytes + 1)
        text = data.decode()
    except (binascii.Error, zlib.error, ValueError):
        raise LinkError("The program in this link is damaged, perhaps cut short. Ask for the link again.") from None
    if len(data) > max_bytes:
        raise LinkError(f"The program in this link is longer than {max_bytes:,} bytes, the limit.")
    if not inflate.eof:
        raise LinkError("The program in this link is cut short. Ask for the link again.")
    return text


def _value(known: Mapping[str, Knob], name: str, text: str) -> Any:
    if name not in known:
        raise LinkError(f"This page has no control called {name[:60]!r}. It is ignored.")
    k = known[name]
    return k.parse(unpack(text, k.max_bytes) if k.program else text)


def _text(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _sentence(error: Exception, k: Knob | None, kept: Any) -> str:
    if k is None or k.program:
        return str(error)
    return f"In this link, {error}. The page shows {kept} instead."
