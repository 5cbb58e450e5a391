"""What an experiment is.

An experiment is a module in ``lab.experiments`` with six names, four more where they are needed, and no base class:

* ``Params``   frozen dataclass; every field is a knob: default, limits, unit, and a string under it that says what it means;
* ``Result``   frozen dataclass of plain data, ready to draw; never a tensor. NaN and infinity are data;
* ``run(params, report) -> Result``   the measurement, pure PyTorch on ``params.device``; a slow one hands over what is
  finished while it goes on (``report(fraction, line, part)``);
* ``explain(result) -> tuple[Finding, ...]``   what to notice, computed from the result;
* ``lessons``  tuple of ``Lesson``: presets, predictions, interview texts and tests read only this;
* ``script(params) -> str``   the standalone program that reproduces the headline number without the lab;
* ``offered(values, knob) -> Knob | None``   optional: the knob as it is offered beside the values of all knobs, None where
  it does not matter, fewer choices where they do not fit. Without it every knob always matters;
* ``headline(result) -> Mapping[str, float]``   optional: the numbers by which two runs are compared, units in their names
  (``peak_bytes``, ``step_s``). Without it there are none;
* ``passed(result) -> bool | None``   optional: the answer of an experiment that checks something of the visitor's, for the
  exit status of the command line; None where nothing was checked;
* ``agreement``   optional: an ``Agreement``, how near the scripts of the lessons come to the measured numbers.

The executor finds both types in ``run``'s annotations.
"""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Literal, Protocol, get_args, get_type_hints


class Report(Protocol):
    """How a run tells how far it is."""

    def __call__(self, fraction: float, line: str, part: Any = None) -> None:
        """``fraction`` done in [0, 1], one short line, and the Result as far as it is finished, which is shown at once.

        Raises ``Cancelled`` when the run is no longer wanted.
        """
        ...


Level = Literal["fault", "warning", "surprise", "fact"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""Of findings, the most pressing first."""


class Cancelled(BaseException):
    """The visitor no longer wants this run. A BaseException, so that ``except Exception`` in a program does not swallow it."""


class ParamsError(ValueError):
    """A knob has a value outside its limits. The message names the knob, the value and the limit."""


class NotAvailableError(RuntimeError):
    """This release of torch lacks what the run reads. The message says what and why, for the visitor."""


def silent(fraction: float, line: str, part: Any = None) -> None:
    """The Report that tells nobody."""


@dataclass(frozen=True)
class Limits:
    """What one run of a visitor's program may use; a fact of the experiment, enforced by the kernel and the supervisor."""

    wall_s: float = 6.0
    """Seconds of wall clock until the process is killed. The program is asked to stop at 70 % of it."""
    memory_bytes: int = 1 << 30
    """Memory that the program may allocate on top of what the warm process holds."""
    printed_bytes: int = 64 << 10
    """UTF-8 bytes of printed output."""


@dataclass(frozen=True)
class Knob:
    """One field of ``Params``: its limits are facts of the domain, checked where the work happens, not only in the widget."""

    name: str
    kind: type
    """bool, int, float or str."""
    default: Any
    low: float | None = None
    high: float | None = None
    step: float | None = None
    choices: tuple[str, ...] = ()
    unit: str = ""
    optional: bool = False
    """None is a value of its own."""
    program: Limits | None = None
    """Set for a field that holds a visitor's program: what one run of it may use."""
    max_bytes: int = 1 << 14
    """Longest text, in UTF-8 bytes; for str fields without choices."""
    meaning: str = ""
    """The string under the field, first paragraph."""

    @property
    def label(self) -> str:
        return self.name.replace("_", " ") + (f" ({self.unit})" if self.unit else "")

    def check(self, value: Any) -> None:
        """Raise ParamsError when ``value`` is outside the limits."""
        if value is None and self.optional:
            return
        accepted = (int, float) if self.kind is float else self.kind
        if not isinstance(value, accepted) or (isinstance(value, bool) and self.kind is not bool):
            raise ParamsError(f"{self.name} must be {_KINDS[self.kind]}, not {value!r:.80}")
        if self.choices and value not in self.choices:
            raise ParamsError(f"{self.name} = {value!r:.80} is not one of {', '.join(self.choices)}")
        if isinstance(value, str):
            size = len(value.encode(errors="surrogatepass"))
            if not self.choices and size > self.max_bytes:
                raise ParamsError(f"{self.name} has {size:,} bytes; the limit is {self.max_bytes:,}")
        elif isinstance(value, (int, float)) and self.kind is not bool:
            self._check_span(value)

    def _check_span(self, value: float) -> None:
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        if not low <= value <= high:  # also false for NaN
            raise ParamsError(f"{self.name} = {value} is outside {low:,} to {high:,} {self.unit}".rstrip())

    def parse(self, text: str) -> Any:
        """The value that ``text`` (from a URL or a command line) stands for. Raises ParamsError."""
        if self.optional and text.lower() == "none":
            return None
        try:
            value = _PARSERS[self.kind](text)
        except (ValueError, KeyError):
            raise ParamsError(f"{self.name} must be {_KINDS[self.kind]}, not {text!r:.80}") from None
        self.check(value)
        return value


_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_TRUTH = {"true": True, "1": True, "false": False, "0": False}
_PARSERS: dict[type, Callable[[str], Any]] = {bool: lambda t: _TRUTH[t.lower()], int: int, float: float, str: str}


def knob(default: Any, **limits: Any) -> Any:
    """A field of ``Params``; ``limits`` are those of ``Knob``."""
    return field(default=default, metadata={"knob": limits})


@cache
def knobs(params_type: type) -> dict[str, Knob]:
    """The knobs of a ``Params`` class, by name, in order of declaration."""
    hints, meanings, found = get_type_hints(params_type), field_meanings(params_type), {}
    for f in fields(params_type):
        kinds = [k for k in getattr(hints[f.name], "__args__", (hints[f.name],)) if k is not type(None)]
        optional = hints[f.name] not in kinds
        found[f.name] = Knob(
            f.name,
            kinds[0],
            f.default,
            meaning=meanings.get(f.name, ""),
            optional=optional,
            **f.metadata.get("knob", {}),
        )
    return found


def program_knob(params_type: type) -> Knob | None:
    """The knob that holds a visitor's program, if the experiment has one."""
    return next((k for k in knobs(params_type).values() if k.program), None)


@cache
def field_meanings(cls: type) -> dict[str, str]:
    """The string under each field of a dataclass, first paragraph, unwrapped."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for here, below in zip(body.body, body.body[1:], strict=False):
        match here, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(inspect.cleandoc(text).split("\n\n")[0].split())
    return found


def check(params: Any) -> None:
    """Raise ParamsError naming the first knob outside its limits. Call it from ``Params.__post_init__``."""
    for name, k in knobs(type(params)).items():
        k.check(getattr(params, name))


@dataclass(frozen=True)
class Site:
    """A line of the visitor's program that has a part in a finding. The first sites of a finding matter most."""

    line: int
    """From 1."""
    role: str
    """What happened there, two or three words: "kept here", "overwritten here", "freed here", "cut here", "fails here"."""
    tensor: str = ""
    """The program's name for the tensor, or a word for it."""
    before: Any = None
    """A number or short text: what was there before, such as the version or the value."""
    after: Any = None


@dataclass(frozen=True)
class Edit:
    """A change of one line of the visitor's program."""

    line: int
    """From 1, in the program as it was run."""
    old: str
    """The whole line as it stands, without its line break."""
    new: str
    """What stands there instead; may be several lines. Empty: the line is taken out."""


def offers(experiment: Any, values: Mapping[str, Any]) -> dict[str, Knob]:
    """The knobs that matter beside ``values`` (one for each knob), by name, as the experiment offers them."""
    known = knobs(experiment.Params)
    offered = getattr(experiment, "offered", lambda values, k: k)
    return {name: k for name, k in ((name, offered(values, k)) for name, k in known.items()) if k is not None}


def headline(experiment: Any, result: Any) -> Mapping[str, float]:
    """The numbers by which two runs of the experiment are compared."""
    return experiment.headline(result) if hasattr(experiment, "headline") else {}


def passed(experiment: Any, result: Any) -> bool | None:
    """The answer of an experiment that checks something of the visitor's; None where there is none."""
    return experiment.passed(result) if hasattr(experiment, "passed") else None


def apply_edits(source: str, edits: Sequence[Edit]) -> str | None:
    """``source`` with all ``edits``; None where a line is not the one that an edit expects, or two edit the same."""
    lines = source.split("\n")
    if not edits or len({edit.line for edit in edits}) < len(edits):
        return None
    for edit in edits:
        if not 0 < edit.line <= len(lines) or lines[edit.line - 1].rstrip("\r") != edit.old or edit.new == edit.old:
            return None
    new = {edit.line - 1: edit.new for edit in edits}
    return "\n".join(new.get(at, line) for at, line in enumerate(lines) if new.get(at, line) or not line)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing to notice, computed from a result. All texts are plain text: they may quote a visitor's program."""

    level: Level
    title: str
    text: str
    evidence: dict[str, Any]
    """Named numbers (or short texts) that the finding rests on."""
    line: int | None = None
    """Line of the visitor's program, from 1."""
    repair: str = ""
    """One line: what to change."""
    change: dict[str, Any] = field(default_factory=dict)
    """Values of knobs that make the repair; the page offers them as one click."""
    sites: tuple[Site, ...] = ()
    """The lines that take part, the one to blame first."""
    edits: tuple[Edit, ...] = ()
    """The repair as a change of the program, all of it together."""
    edit_tested: bool = False
    """The changed program was run: it ended clean, and its gradients agree with differences of its own forward."""


def by_level(found: Iterable[Finding]) -> list[Finding]:
    """The most pressing first; within a level in the order given."""
    return sorted(found, key=lambda finding: LEVELS.index(finding.level))


@dataclass(frozen=True)
class Fault:
    """Why a visitor's program ended early, or why a run has no result."""

    type: str
    """Class name of the exception, or TimeLimit, MemoryLimit, OutputLimit, Refused, Crashed."""
    message: str
    line: int | None = None
    """Line of the visitor's program, from 1."""
    explanation: str = ""
    """What it means, in plain words."""
    repair: str = ""
    """What to do next."""
    sites: tuple[Site, ...] = ()
    """The lines that take part, the one to blame first."""


@dataclass(frozen=True)
class Agreement:
    """How near the last line that a lesson's script prints must come to the lesson's evidence."""

    relative: float = 1e-5
    absolute: float = 1e-9
    factor: float | None = None
    """For times, instead of both: neither number is more than so many times the other."""
    factors: Mapping[str, float] = field(default_factory=dict)
    """Title of a lesson -> its own factor."""
    smaller: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Title of a lesson -> knobs that keep it short where both are run only to be compared."""

    def timed(self, title: str) -> bool:
        """Whether the numbers are times, which a busy machine disturbs."""
        return self.factors.get(title, self.factor) is not None

    def holds(self, title: str, measured: float, printed: float) -> bool:
        """``measured`` is the evidence of the lesson ``title``, ``printed`` what its script says."""
        factor = self.factors.get(title, self.factor)
        if factor is not None:
            return measured / factor <= printed <= measured * factor
        near = abs(measured - printed) <= max(self.relative * max(abs(measured), abs(printed)), self.absolute)
        return near or measured == printed or (math.isnan(measured) and math.isnan(printed))


def agreement(experiment: Any) -> Agreement:
    """How near the scripts of the experiment's lessons come."""
    return getattr(experiment, "agreement", Agreement())


@dataclass(frozen=True)
class Lesson:
    """A named preset with a prediction to make and the four-part answer to an interview question."""

    row: str
    """Id of the question it answers, such as ``A3``."""
    title: str
    """Names the lesson, not the settings: "a value used twice"."""
    params: Any
    question: str
    """What the visitor predicts before measuring."""
    choices: Mapping[str, str]
    """Each answer offered, with the reason that is given when it was chosen and is not what was measured."""
    answer: Callable[[Any], str]
    """Result -> the choice that the measurement gives."""
    evidence: Callable[[Any], float]
    """Result -> the number that settles it, the same that ``script`` prints last."""
    evidence_name: str
    requirement: str
    mechanism: str
    proof: str
    recovery: str
    view: str = ""
    """The view of the page that shows its point; empty for the first."""
