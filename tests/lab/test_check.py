"""``lab check``: everything holds here, and each check fails when what it looks at is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from lab import check, torch_private
from lab.execution.host import TypedCode
from lab.experiments import autograd_graph
from lab.experiments.autograd_graph import Params, Result

HALF: Callable[[Any], Any] = lambda v: [x / 2 for x in v] if isinstance(v, list) else v / 2  # noqa: E731


@pytest.fixture(scope="module")
def outcomes() -> list[check.Outcome]:
    return check.run_checks("cpu")


def test_everything_holds_here(outcomes: list[check.Outcome]) -> None:
    assert [o for o in outcomes if not o.ok] == []


def test_every_instrument_and_every_lesson_is_checked(outcomes: list[check.Outcome]) -> None:
    names = [o.name for o in outcomes]
    assert len(set(names)) == len(names)
    assert set(torch_private.SELF_TESTS) <= set(names)
    assert {f"lesson: {lesson.title}" for lesson in autograd_graph.lessons} <= set(names)
    assert names[-1] == "walls around typed programs"


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
    assert set(check._ORACLES) <= set(PLANTED)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_error_fails_its_check(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = autograd_graph.run
    monkeypatch.setattr(check.autograd_graph, "run", lambda params, report: PLANTED[name](real(params, report)))
    monkeypatch.setattr(check, "_walls", lambda: "")
    (outcome,) = (o for o in check.run_checks("cpu") if o.name == name)
    assert not outcome.ok
    assert outcome.detail.startswith("AssertionError: ")


def test_a_program_that_fails_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_CURVE", "1 / 0\n# {point}")
    outcome = check._outcome("order", lambda: check._order("cpu"))
    assert not outcome.ok
    assert "ZeroDivisionError" in outcome.detail


def test_a_broken_private_name_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise AttributeError("no such name in this release")

    monkeypatch.setitem(torch_private.SELF_TESTS, "versions", broken)
    monkeypatch.setattr(check, "_ORACLES", {})
    monkeypatch.setattr(check, "_lesson", lambda lesson: "")
    monkeypatch.setattr(check, "_walls", lambda: "")
    (failed,) = (o for o in check.run_checks("cpu") if not o.ok)
    assert (failed.name, failed.detail) == ("versions", "AttributeError: no such name in this release")


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
