"""``lab check``: everything holds here, and each check fails when what it looks at is wrong."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lab import check, instruments, torch_private
from lab.contract import Agreement
from lab.execution.host import TypedCode
from lab.execution.perform import find
from lab.experiments import autograd_graph
from lab.experiments.autograd_graph import Params, Result, self_check

HALF: Callable[[Any], Any] = lambda v: [x / 2 for x in v] if isinstance(v, list) else v / 2  # noqa: E731


@pytest.fixture(scope="module")
def outcomes() -> list[check.Outcome]:
    return check.run_checks("cpu")


@pytest.fixture
def only_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lessons of one page, so that a planted error is found in seconds."""
    monkeypatch.setattr(check, "names", lambda: ["autograd_graph"])
    monkeypatch.setattr(check, "_walls", lambda: "")


@pytest.mark.timeout(400)
def test_everything_holds_here(outcomes: list[check.Outcome]) -> None:
    assert [o for o in outcomes if not o.ok] == []


def test_every_instrument_and_every_lesson_is_checked(outcomes: list[check.Outcome]) -> None:
    names = [o.name for o in outcomes]
    assert len(set(names)) == len(names)
    assert set(torch_private.SELF_TESTS) <= set(names)
    checked = {folder.parent.name for folder in Path(instruments.__path__[0]).glob("*/self_check.py")}
    assert checked | {"graph", "describing"} == {module.name for module in pkgutil.iter_modules(instruments.__path__)}
    pages = [find(name) for name in check.names()]
    assert len(pages) >= 5
    assert {f"lesson: {lesson.title}" for page in pages for lesson in page.lessons} <= set(names)
    assert names[-1] == "walls around typed programs"


def test_what_is_made_smaller_is_said(outcomes: list[check.Outcome]) -> None:
    (large,) = (o for o in outcomes if o.name == "lesson: 1.3 billion parameters on a 24 GiB card")
    assert large.detail.endswith(", with layers = 2")


def wrong_gradient(result: Result) -> Result:
    return replace(result, leaves=tuple(replace(leaf, grad=HALF(leaf.grad)) for leaf in result.leaves))


def wrong_contribution(result: Result) -> Result:
    steps = [replace(s, given=tuple(HALF(g) for g in s.given)) for s in result.backward[0]]
    return replace(result, backward=(tuple(steps),))


def wrong_order(result: Result) -> Result:
    return replace(result, backward=(tuple(reversed(result.backward[0])),))


def wrong_version(result: Result) -> Result:
    nodes = [replace(n, saved=tuple(replace(s, saved_version=1) for s in n.saved)) for n in result.nodes]
    return replace(result, nodes=tuple(nodes))


PLANTED: dict[str, Callable[[Result], Result]] = {
    "gradient against a difference quotient": wrong_gradient,
    "contributions sum to what arrives": wrong_contribution,
    "engine order": wrong_order,
    "saved bytes against a count by hand": lambda r: replace(r, kept_bytes=r.kept_bytes + 4),
    "versions of saved tensors": wrong_version,
    "a checkpoint is not recomputed by looking": lambda r: replace(r, variables={"calls": [1, 1, 1]}),
    "lesson: two backwards": wrong_gradient,
}


def test_every_oracle_has_a_planted_error() -> None:
    assert set(self_check.ORACLES) <= set(PLANTED)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_error_fails_its_check(name: str, only_the_graph: None, monkeypatch: pytest.MonkeyPatch) -> None:
    real = autograd_graph.run
    for module in (autograd_graph, self_check):
        monkeypatch.setattr(module, "run", lambda params, report: PLANTED[name](real(params, report)))
    (outcome,) = (check._outcome(*c) for c in check._checks("cpu") if c[0] == name)
    assert not outcome.ok
    assert outcome.detail.startswith("AssertionError: ")


def test_a_program_that_fails_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_check, "_CURVE", "1 / 0\n# {point}")
    outcome = check._outcome("order", lambda: self_check.ORACLES["engine order"]("cpu"))
    assert not outcome.ok
    assert "ZeroDivisionError" in outcome.detail


def test_a_broken_private_name_is_not_available(only_the_graph: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise AttributeError("no such name in this release")

    monkeypatch.setitem(torch_private.SELF_TESTS, "versions", broken)
    torch_private.missing.cache_clear()
    try:
        refused = [o for o in check.run_checks("cpu") if not o.ok]
    finally:
        torch_private.missing.cache_clear()
    assert (refused[0].name, refused[0].detail) == ("versions", "AttributeError: no such name in this release")
    lessons = {f"lesson: {lesson.title}" for lesson in autograd_graph.lessons}
    with_versions = {"dtype promotion against promote_types", "view, copy or the same object, against a write"}
    assert {o.name for o in refused} == {"versions", *self_check.ORACLES, *lessons, *with_versions}
    assert {o.available for o in refused} == {False}
    assert all("no such name in this release" in o.detail for o in refused)


PAGE = SimpleNamespace(
    run=lambda params, report: next(params.measured),
    script=lambda params: f"print({params.printed})",
    agreement=Agreement(factor=2),
)


@dataclass(frozen=True)
class Timed:
    """What each run measures, and what the script prints."""

    measured: Iterator[float]
    printed: float


def timed(*measured: float) -> check.Outcome:
    lesson: Any = SimpleNamespace(
        title="a time",
        params=Timed(iter(measured), 1.0),
        choices=("right",),
        answer=lambda result: "right",
        evidence=lambda result: result,
        evidence_name="seconds",
    )
    return check._outcome("a time", lambda: check._lesson(PAGE, lesson, "cpu"))


def test_a_time_gets_a_second_try_and_no_third() -> None:
    assert timed(1.9, 9.0).detail == "seconds = 1.9"
    assert timed(9.0, 0.6).detail == "seconds = 0.6"
    assert timed(9.0, 0.4, 1.0).detail == "AssertionError: seconds is 0.4; the script prints 1"


def test_a_number_that_is_no_time_gets_one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PAGE, "agreement", Agreement(relative=1e-3))
    assert timed(1.0009).ok
    assert timed(1.002, 1.0).detail == "AssertionError: seconds is 1.002; the script prints 1"


@pytest.mark.skipif(torch.cuda.is_available(), reason="about hosts without CUDA")
def test_without_cuda_the_check_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_walls", lambda: "")
    (failed,) = (o for o in check.run_checks("cuda") if not o.ok)
    assert failed.name == "CUDA"
    assert "CUDA" in failed.detail


@pytest.mark.parametrize(
    ("typed", "system", "ok"),
    [
        (TypedCode("sealed", True, ""), "", True),
        (TypedCode("off", False, "switched off"), "", True),
        (TypedCode("sealed", False, "the kernel has no Landlock"), "the kernel has no Landlock", True),
        (TypedCode("sealed", False, "a contained process read 3 bytes of a file"), "", False),
    ],
)
def test_walls(typed: TypedCode, system: str, ok: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check.Executor, "typed_code", lambda executor: typed)
    monkeypatch.setattr(check.confine, "why_not", lambda: system)
    outcome = check._outcome("walls", check._walls)
    assert outcome.ok is ok
    assert typed.reason in outcome.detail


def test_a_script_leaves_nothing_behind() -> None:
    script = autograd_graph.script(
        Params(code=next(x.params.code for x in autograd_graph.lessons if x.title == "retain_graph"))
    )
    assert "saved_tensors_hooks" in script
    assert float(check._printed(script)) == 8000
    packed = (torch.ones(2, requires_grad=True) * torch.ones(2, requires_grad=True)).grad_fn
    assert isinstance(torch_private.peek(packed._raw_saved_self), torch.Tensor)  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]
    with pytest.raises(ZeroDivisionError):
        check._printed("1 / 0")
