"""Every attack of the corpus against the walls alone: plain ``exec``, the real torch, all of Python.

Oracle: things that only a breach can make. A marker file with random content, files named lab_touch_*, a listener, a
secret in the environment of the process that holds the executor.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.execution.executor import Executor, Job
from lab.execution.sealed import children
from lab.execution.sealed.route import SealedRoute
from tests.lab.execution.conftest import TRIALS, RunProgram, finish
from tests.lab.execution.trial_experiments import typed

CASES = Path(__file__).resolve().parents[2] / "cases"
ATTACKS = {row["id"]: row for row in map(json.loads, (CASES / "attacks.jsonl").read_text().splitlines())}
PROGRAMS = {row["id"]: row for row in map(json.loads, (CASES / "programs.jsonl").read_text().splitlines())}
PORT = 47811
CANARY = """
import sys
x = torch.tensor(3.0, requires_grad=True)
(x * x).backward()
print(x.grad.item(), x.dtype, torch.is_grad_enabled(), nn.Linear(1, 1)(torch.ones(1, 1)).shape, len(sys.argv) > 0)
"""
CANARY_SAYS = "6.0 torch.float32 True torch.Size([1, 1]) True\n"


@dataclass
class Assets:
    """What an attack may want, and whether it got it."""

    marker: str
    secret: str
    listener: socket.socket

    def reached(self, job: Job) -> list[str]:
        said = f"{job.result} {job.fault} {job.findings} {job.line}"
        found = [f"read the {name}" for name in ("marker", "secret") if getattr(self, name) in said]
        if Path("/tmp/lab_marker.txt").read_text() != self.marker:
            found.append("changed the marker")
        for touched in Path("/tmp").glob("lab_touch_*"):
            touched.unlink()
            found.append(f"made {touched}")
        with contextlib.suppress(BlockingIOError):
            self.listener.accept()[0].close()
            found.append("connected")
        if "KERNEL-ESC" in said:
            found.append("said that the kernel let it through")
        return found


@pytest.fixture(scope="module")
def assets() -> Iterator[Assets]:
    marker = Path("/tmp/lab_marker.txt")
    secret = f"LABSECRET-{secrets.token_hex(8)}"
    with socket.create_server(("127.0.0.1", PORT)) as listener, pytest.MonkeyPatch.context() as patch:
        listener.setblocking(False)
        patch.setenv("LAB_SECRET", secret)
        content = f"LABMARKER-{secrets.token_hex(8)}"
        marker.write_text(content)
        yield Assets(content, secret, listener)
        marker.unlink()


@pytest.fixture(scope="module")
def answers(assets: Assets, run_program: RunProgram) -> dict[str, tuple[Job, list[str], str]]:
    """Each attack's job, what it reached, and what the canary after it printed; two attacks at a time."""

    def one(row: dict[str, str]) -> tuple[str, tuple[Job, list[str], str]]:
        job = run_program(row["code"])
        reached = assets.reached(job)
        canary = run_program(CANARY)
        return row["id"], (job, reached, canary.result.printed if canary.result else f"{canary.fault}")

    with ThreadPoolExecutor(2) as pool:
        return dict(pool.map(one, ATTACKS.values()))


@pytest.mark.timeout(420)
@pytest.mark.parametrize("attack", ATTACKS)
def test_no_attack_reaches_an_asset_and_the_next_program_runs(
    attack: str, answers: dict[str, tuple[Job, list[str], str]]
) -> None:
    job, reached, canary = answers[attack]
    assert not reached, f"{ATTACKS[attack]['note']}: {job}"
    assert canary == CANARY_SAYS
    assert job.sealed
    assert job.state == "done" or job.fault


@pytest.mark.parametrize("program", PROGRAMS)
def test_ordinary_programs_run_behind_the_walls(program: str, run_program: RunProgram) -> None:
    job = run_program(PROGRAMS[program]["code"])
    assert job.state == "done", job
    assert job.result.fault is None


PLANTED = {
    "read the marker": "print(open('/tmp/lab_marker.txt').read())",
    "made /tmp/lab_touch_planted": "open('/tmp/lab_touch_planted', 'w').close()",
    "connected": f"import socket; socket.create_connection(('127.0.0.1', {PORT})).close()",
    # a process that nobody may dump can still read its own as root, and as another user that of the zygote
    "read the secret": "import os\nwhose = os.getppid() if os.getuid() else 'self'\nprint(open(f'/proc/{whose}/environ').read())",
    "said that the kernel let it through": "import os; os.kill(os.getppid(), 0); print('KERNEL-ESC')",
}


@pytest.fixture
def without_walls(monkeypatch: pytest.MonkeyPatch, assets: Assets) -> Iterator[Executor]:
    """Nothing holds: no layer, no check of them, and the environment is handed on."""
    monkeypatch.setattr(SealedRoute, "why_not", lambda route: "")
    handed_on = {**os.environ, **children.clean_environment()}
    monkeypatch.setattr(children, "clean_environment", lambda: handed_on)
    executor = Executor(package=TRIALS, typed_code="sealed", layers=())
    yield executor
    executor.close()


def test_each_oracle_catches_its_breach_when_there_are_no_walls(without_walls: Executor, assets: Assets) -> None:
    for breach, code in PLANTED.items():
        job = finish(without_walls, without_walls.submit("typed", typed.Params(code=code), visitor="a"))
        assert assets.reached(job) == [breach], job


def test_the_same_breaches_fail_behind_the_walls(assets: Assets, run_program: RunProgram) -> None:
    for code in PLANTED.values():
        job = run_program(code)
        assert assets.reached(job) == []
        assert job.result.fault.type == "PermissionError"
