"""The command line, run as a visitor runs it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import __main__ as command_line
from lab import check
from lab.execution.executor import Executor

ROOT = Path(__file__).resolve().parents[2]
KEYS = ["device", "error", "experiment", "findings", "headline", "params", "result", "seconds", "versions"]


def lab(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lab", *arguments],
        cwd=ROOT,
        input=text,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


class KeptOpen(Executor):
    """Starting an executor takes seconds, so the tests share one."""

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def kept_open() -> Iterator[KeptOpen]:
    executor = KeptOpen()
    yield executor
    Executor.close(executor)


@pytest.fixture
def one_executor(kept_open: KeptOpen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_line, "Executor", lambda: kept_open)


def refuse(constant: str) -> Any:
    raise AssertionError(f"{constant} is not strict JSON")


def strict(line: str) -> dict[str, Any]:
    return json.loads(line, parse_constant=refuse)


def own_errors(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Lines on standard error that are the command's own; torch writes there as well: its profiler, and its log."""
    return [
        line
        for line in done.stderr.splitlines()
        if line and not re.match(r"USDT:|[EW]\w*[ :]\d.* torch/|ERROR:.*gpu", line)
    ]


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("autograd_graph  ") for line in lines)
    assert all("  " in line for line in lines)


def test_json_of_one_run_from_standard_input() -> None:
    code = (
        "x = torch.tensor(float('nan'), requires_grad=True)\nloss = x * 2\nprint('\\u00e9 \\ud800')\nloss.backward()\n"
    )
    done = lab("run", "autograd_graph", "--code", "-", "--set", "seed=3", "--json", text=code)
    assert (done.returncode, own_errors(done)) == (0, [])
    (line,) = done.stdout.splitlines()
    answer = strict(line)
    assert sorted(answer) == KEYS
    assert (answer["experiment"], answer["device"], answer["error"]) == ("autograd_graph", "cpu", None)
    assert answer["params"] == {"code": code, "seed": 3, "device": "cpu"}
    assert answer["versions"].keys() >= {"python", "torch"}
    assert answer["seconds"] > 0
    result = answer["result"]
    assert {"nodes", "edges", "leaves", "backward", "kept_bytes", "printed", "variables"} <= result.keys()
    assert {"id", "name", "kind", "label", "shape", "dtype", "line", "value", "saved", "grad"} <= result["nodes"][
        0
    ].keys()
    assert {"source", "target", "index"} <= result["edges"][0].keys()
    assert {"name", "shape", "grad"} <= result["leaves"][0].keys()
    assert {"node", "incoming", "given"} <= result["backward"][0][0].keys()
    saved = next(s for node in result["nodes"] for s in node["saved"])
    assert {"slot", "shape", "dtype", "bytes", "saved_version", "current_version", "leaf"} <= saved.keys()
    assert result["variables"]["x"] == "NaN"
    assert result["printed"].startswith("é ")
    assert {"level", "title", "text", "evidence", "line", "repair", "sites", "edits", "edit_tested"} <= answer[
        "findings"
    ][0].keys()


def test_a_batch_goes_on_after_bad_lines_and_keeps_its_order(
    tmp_path: Path, one_executor: None, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        {"code": "loss = torch.ones(1, requires_grad=True) * 2\nn = 1\n"},
        "no json",
        {"code": "n = 2\n1 / 0\n"},
        [1, 2],
        {"code": "n = 3\n", "seed": -1},
        {"code": "n = 4\n", "unknown": 1},
        {"code": "while True: pass\n"},
        {"code": "import requests\n"},
        {"code": "n = 7\n", "device": "cuda"},
        {"code": "raise SystemExit\nn = 9\n"},
        {"code": "x = (\n"},
        '{"code": "n = 10\\nprint(\'a\u2028b\')\\n"}',
    ]
    batch = tmp_path / "requests.jsonl"
    batch.write_text(
        "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n\n", encoding="utf-8"
    )
    assert command_line.main(["run", "autograd_graph", "--batch", str(batch)]) == 0
    answers = [strict(line) for line in capsys.readouterr().out.splitlines()]
    assert len(answers) == len(lines)
    assert all(sorted(answer) == KEYS for answer in answers)
    kinds = [answer["error"]["type"] if answer["error"] else None for answer in answers]
    assert kinds[:7] == [
        None,
        "ParamsError",
        "ZeroDivisionError",
        "ParamsError",
        "ParamsError",
        "ParamsError",
        "TimeLimit",
    ]
    assert kinds[7:] == ["Refused", "Refused", "SystemExit", "SyntaxError", None]
    assert answers[2]["error"]["line"] == 2
    assert answers[2]["result"]["variables"] == {"n": 2}
    assert answers[11]["result"]["printed"] == "a\u2028b\n"
    for answer in answers:
        if answer["error"]:
            assert {"type", "message", "line", "explanation", "repair", "sites"} == answer["error"].keys()


BAD = {
    "no command": [],
    "another command": ["walk"],
    "no such experiment": ["run", "nothing"],
    "a knob that is none": ["run", "autograd_graph", "--set", "depth=3"],
    "a knob without a value": ["run", "autograd_graph", "--set", "seed"],
    "a value that is none": ["run", "autograd_graph", "--set", "seed=many"],
    "a value outside its limits": ["run", "autograd_graph", "--set", "seed=-1"],
    "a file that is not there": ["run", "autograd_graph", "--code", "/no/such/file.py"],
    "a batch that is not there": ["run", "autograd_graph", "--batch", "/no/such/file"],
    "another device": ["run", "autograd_graph", "--device", "tpu"],
    "a program that is too long": ["run", "autograd_graph", "--set", f"code={'x' * 70_000}"],
}


@pytest.mark.parametrize("title", BAD)
def test_bad_arguments(title: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = command_line.main(BAD[title])
    except SystemExit as left:
        status = left.code
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1, err
    assert err.startswith("lab: ")
    assert "Traceback" not in err


def test_a_program_that_is_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.py").write_bytes(b"x = '\xff'\n")
    assert command_line.main(["run", "autograd_graph", "--code", str(tmp_path / "p.py")]) == 2
    assert "is not UTF-8 text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "given", "chosen"),
    [
        ("gradient_flow", {}, {"family": "own"}), ("memory_timeline", {}, {"model": "own"}), ("op_profile", {"steps": 3}, {"model": "own"}),
        ("fine_tuning", {}, {"view": "own"}), ("mixed_precision", {}, {"view": "ops"}), ("checkpoint_resume", {}, {"view": "program"}),
        ("reproducibility", {}, {"view": "program"}), ("autograd_graph", {}, {}), ("train_eval", {"view": "scan"}, {"model": "own"}),
        ("fine_tuning", {"view": "lora"}, {}),
    ],
)  # fmt: skip
def test_a_program_that_is_given_is_run(name: str, given: dict[str, object], chosen: dict[str, object]) -> None:
    experiment = command_line._experiment(name)
    values = {"code": "x = 1\n", **given}
    assert command_line._with_the_program(experiment, values) == values | chosen
    assert command_line._with_the_program(experiment, given) == given


def test_words_for_a_terminal(one_executor: None, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(
        "print('seen')\nx = torch.ones(2, requires_grad=True)\n(x * 2).backward()\n", encoding="utf-8"
    )
    assert command_line.main(["run", "autograd_graph", "--code", str(tmp_path / "p.py")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("seen\n")
    assert "RuntimeError on line 3: grad can be implicitly created only for scalar outputs" in out
    assert "Reduce to a scalar first" in out
    assert "nodes: 2\n" in out
    assert "kept: 8 B\n" in out  # the 2, which autograd keeps as an int64 tensor
    assert out.splitlines()[-1].startswith("autograd_graph on cpu, torch 2.")


@pytest.mark.parametrize(
    ("ok", "available", "status", "word"),
    [(True, True, 0, "ok    "), (False, True, 1, "FAILED"), (False, False, 3, "NOT AVAILABLE")],
)
def test_check(
    ok: bool,
    available: bool,
    status: int,
    word: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcomes = [check.Outcome("one", True), check.Outcome("two", ok, "3 seen, 4 by hand", available)]
    monkeypatch.setattr(command_line.check, "run_checks", lambda device: outcomes)
    assert command_line.main(["check", "--json"]) == status
    answer = strict(capsys.readouterr().out)
    assert answer == {
        "device": "cpu",
        "ok": ok,
        "checks": [
            {"name": "one", "ok": True, "detail": "", "available": True},
            {"name": "two", "ok": ok, "detail": "3 seen, 4 by hand", "available": available},
        ],
    }
    assert command_line.main(["check"]) == status
    printed = capsys.readouterr().out
    assert f"{word}  two: 3 seen, 4 by hand" in printed
    assert printed.endswith(f": {1 + ok} hold, {int(status == 1)} failed, {int(status == 3)} not available\n")
