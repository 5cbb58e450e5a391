"""One run, and the check of what claims to be its answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lab import wire
from lab.contract import Cancelled, ParamsError, silent
from lab.execution import perform
from tests.lab.execution.conftest import TRIALS
from tests.lab.execution.trial_experiments import rough, typed


def good(**changes: Any) -> str:
    result = {"printed": "x", "fault": None, "nodes": [1, 2], "values": [1.5, "NaN"]}
    return json.dumps({"kind": "answer", "state": "done", "result": result, **changes})


def test_perform_returns_the_wire_form_of_run_and_explain() -> None:
    done = perform.perform("rough", wire.encode(rough.Params(size=4)), silent, package=TRIALS)
    assert done["result"]["total"] == 4.0
    assert wire.encode(rough.explain(wire.decode(rough.Result, done["result"]))) == done["findings"]
    assert 0 <= done["seconds"] < 60


@pytest.mark.parametrize(
    "forged", [{"size": 10**9}, {"size": 0}, {"act": "rm -rf"}, {"size": "3"}, {"extra": 1}, {"size": True}]
)
def test_perform_checks_every_limit_again(forged: dict[str, Any]) -> None:
    with pytest.raises((ParamsError, wire.WireError), match=next(iter(forged))):
        perform.perform("rough", forged, silent, package=TRIALS)
    answer = json.loads(perform.answer("rough", forged, silent, package=TRIALS))
    assert answer["state"] == "refused"


def test_every_ending_is_an_answer() -> None:
    def stop(fraction: float, line: str, part: str = "") -> None:
        raise Cancelled

    for act, report, state in [
        ("answer", silent, "done"),
        ("patient", stop, "cancelled"),
        ("raise", silent, "failed"),
        ("swallow memory", silent, "limit"),
    ]:
        text = perform.answer("rough", {"act": act}, report, package=TRIALS)
        outcome = perform.read_answer(rough.Result, text, sealed=False)
        assert outcome.state == state
        assert (outcome.fault is None) == (state == "done")


def test_a_good_answer_is_read() -> None:
    outcome = perform.read_answer(typed.Result, good(seconds=2), sealed=True)
    assert outcome.result == typed.Result("x", None, (1, 2), [1.5, "NaN"])
    assert (outcome.seconds, outcome.sealed, outcome.wire_bytes) == (2.0, True, len(good(seconds=2)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        good()[:-1],
        good(state="perfect"),
        good(state="failed"),
        good(fault={"type": "X", "message": "y"}),
        good(extra=1),
        good(result=None),
        good(result={"printed": "x"}),
        good(seconds="soon"),
        good(findings=[{"level": "gossip", "title": "", "text": "", "evidence": {}}]),
        '{"kind":"answer","state":"done","result":NaN}',
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
)
def test_anything_else_is_not_an_answer(text: str) -> None:
    with pytest.raises(perform.AnswerError):
        perform.read_answer(typed.Result, text, sealed=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (good(result={"printed": "", "fault": None, "nodes": [0] * 50_001, "values": None}), "50,001 nodes"),
        (good(result={"printed": "", "fault": None, "nodes": [], "values": [0] * 200_001}), "200,001 items"),
        ("[" + "[]," * 2_000_001, "2,000,000 lists"),
    ],
)
def test_too_much_is_said_with_its_limit(text: str, says: str) -> None:
    with pytest.raises(perform.AnswerTooLargeError, match=says):
        perform.read_answer(typed.Result, text, sealed=True)


def test_text_that_no_encoding_holds_is_replaced() -> None:
    text = good(result={"printed": "a\ud800b 😀", "fault": None, "nodes": [], "values": {"\udfff": ["\ud83d"]}})
    result = perform.read_answer(typed.Result, text, sealed=True).result
    assert (result.printed, result.values) == ("a\ufffdb 😀", {"\ufffd": ["\ufffd"]})
    result.printed.encode()
