"""A program may crash, hang, eat memory or talk nonsense on the job socket: that run ends, the next one works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.execution.executor import Executor
from lab.execution.sealed.children import ROOT
from tests.lab.execution.conftest import TRIALS, RunProgram, finish
from tests.lab.execution.trial_experiments import patient, typed

FRAME = "import json, os, struct, time\nsend = lambda b: os.write(3, struct.pack('>I', len(b)) + b)\n"
ANSWER = '{"kind":"answer","state":"done","findings":[],"fault":null,"trace":"","seconds":0.1,"result":%s}'


def sending(result: str) -> str:
    return f"{FRAME}send({ANSWER % result!r}.encode())\ntime.sleep(9)"


ENDINGS = {
    "segfault": ("import ctypes; ctypes.string_at(0)", "failed", "Crashed", "SIGSEGV"),
    "abort": ("import os; os.abort()", "failed", "Crashed", "SIGABRT"),
    "exit": ("import os; os._exit(5)", "failed", "Crashed", "exit status 5"),
    "hang": ("while True: pass", "limit", "TimeLimit", "1.5 s"),
    "sleep": ("import time; time.sleep(60)", "limit", "TimeLimit", "1.5 s"),
    "hang in C": ("sum(range(10**12))", "limit", "TimeLimit", "1.5 s"),
    "shared memory": (
        "import mmap\nkeep = []\nwhile True:\n    m = mmap.mmap(-1, 1 << 24)\n    m.write(b'x' * (1 << 24))\n    keep.append(m)",
        "limit",
        "MemoryLimit",
        "256 MiB",
    ),
    "threads": (
        "import threading, time\nthreading.stack_size(32768)\n"
        "for _ in range(500): threading.Thread(target=time.sleep, args=(9,), daemon=True).start()\ntime.sleep(9)",
        "refused",
        "Refused",
        "64 threads",
    ),
    "forbidden call": (
        "import ctypes; ctypes.CDLL(None).syscall(101, 16, 1, None, None)",
        "refused",
        "Refused",
        "operating system",
    ),
    "hangs up": ("import os, time; os.close(3); time.sleep(9)", "failed", "Crashed", "not a result"),
    "garbage": (f"{FRAME}send(b'garbage')\ntime.sleep(9)", "failed", "Crashed", "not a result"),
    "pickle": (f"{FRAME}import pickle; send(pickle.dumps(print))\ntime.sleep(9)", "failed", "Crashed", "not a result"),
    "nested JSON": (f"{FRAME}send(b'[' * 500_000)\ntime.sleep(9)", "failed", "Crashed", "not a result"),
    "nested JSON in an answer": (
        sending("NEST").replace(".encode()", ".replace('NEST', '[' * 500_000).encode()"),
        "failed",
        "Crashed",
        "not a result",
    ),
    "4 GiB": ("import os, time; os.write(3, b'\\xff' * 65536); time.sleep(9)", "failed", "Crashed", "not a result"),
    "slow drip": (
        "import os, time\nos.write(3, b'\\0\\0\\xff\\xff')\nwhile True:\n    os.write(3, b'['); time.sleep(0.05)",
        "limit",
        "TimeLimit",
        "1.5 s",
    ),
    "flood of progress": (
        FRAME + 'while True: send(b\'{"kind":"progress","fraction":0,"line":""}\')',
        "failed",
        "Crashed",
        "not a result",
    ),
    "wrong schema": (sending('{"printed":1}'), "failed", "Crashed", "not a result"),
    "wrong state": (f"{FRAME}send({ANSWER % 'null'!r}.encode())\ntime.sleep(9)", "failed", "Crashed", "not a result"),
    "too many nodes": ("nodes = range(50_001)", "limit", "OutputLimit", "50,001 nodes"),
    "too large": ("values = ['x' * (1 << 20)] * 40", "limit", "OutputLimit", "the limit is 33,554,432"),
}


@pytest.mark.parametrize("case", ENDINGS)
def test_a_run_ends_with_a_clear_fault_and_the_next_one_works(case: str, run_program: RunProgram) -> None:
    code, state, fault_type, says = ENDINGS[case]
    started = time.monotonic()
    job = run_program(code, typed if fault_type == "TimeLimit" else patient)
    assert time.monotonic() - started < 10
    assert (job.state, job.result) == (state, None), job
    assert job.fault
    assert job.fault.type == fault_type
    assert says in job.fault.message
    assert job.fault.repair
    assert run_program("print(6 * 7)").result.printed == "42\n"


@pytest.mark.parametrize("code", ["keep = []\nwhile True: keep.append('x' * 10**6)", "torch.zeros(2**40)"])
def test_private_memory_ends_as_an_exception_that_the_program_sees(code: str, run_program: RunProgram) -> None:
    job = run_program(code, patient)
    assert job.state == "done"
    assert job.result.fault.type in ("MemoryError", "RuntimeError")


def test_a_forged_answer_is_only_data(run_program: RunProgram) -> None:
    """A program can forge its own result; it stays what the schema allows, and its time cannot exceed the clock's."""
    body = '{"printed":"forged \\ud800","fault":null,"nodes":[],"values":null}'
    job = run_program(sending(body).replace("0.1", "1e9"))
    assert job.result == typed.Result("forged \ufffd", None, (), None)
    assert 0 <= job.seconds < 2


def test_a_killed_zygote_is_replaced_and_nobody_notices() -> None:
    executor = Executor(package=TRIALS, typed_code="sealed")
    try:
        assert executor.typed_code().available
        running = executor.submit("typed", typed.Params(code="import time; time.sleep(0.8); print('a')"), visitor="a")
        time.sleep(0.2)
        assert executor._routes.sealed
        spares = executor._routes.sealed._spares
        zygote = spares.start()
        os.kill(zygote.pid, signal.SIGKILL)
        after = executor.submit("typed", typed.Params(code="print('b')"), visitor="b")
        assert finish(executor, running).result.printed == "a\n"
        assert finish(executor, after).result.printed == "b\n"
        assert spares.start().pid != zygote.pid
    finally:
        executor.close()


def test_a_zygote_that_saw_many_crashes_is_replaced_while_runs_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.execution.sealed.spares._MANY_CRASHES", 2)
    executor = Executor(package=TRIALS, typed_code="sealed")
    try:
        assert executor.typed_code().available
        assert executor._routes.sealed
        spares = executor._routes.sealed._spares
        worn = spares.start()
        for n in range(2):
            crash = typed.Params(code=f"import ctypes; ctypes.string_at({n})")
            finish(executor, executor.submit("typed", crash, visitor="a"))
        slowest_s, deadline = 0.0, time.monotonic() + 30
        while spares.start() is worn or not worn.dead.is_set():
            assert time.monotonic() < deadline
            started = time.monotonic()
            job = finish(executor, executor.submit("typed", typed.Params(code="1"), visitor="a", fresh=True))
            assert job.state == "done"
            slowest_s = max(slowest_s, time.monotonic() - started)
        assert slowest_s < 2, "nobody waits for the new one"
    finally:
        executor.close()


SERVER = f"""
import sys, time
from lab.execution.executor import Executor
from tests.lab.execution.trial_experiments import rough, typed
executor = Executor(package={TRIALS!r}, typed_code="sealed")
executor.typed_code(), executor.host()
executor.submit("rough", rough.Params(act="deaf"), visitor="a")
executor.submit("typed", typed.Params(code="while True: pass"), visitor="b")
time.sleep(0.3)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_no_process_outlives_the_server(signum: int) -> None:
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert server.stdout
    with server.stdout as said:
        assert said.readline() == "ready\n"
    family = descendants(server.pid)
    assert len(family) >= 3, "a worker, a zygote and its children"
    assert all(is_alive(pid) for pid in family)
    server.send_signal(signum)
    server.wait(20)
    deadline = time.monotonic() + 5
    while (left := [pid for pid in family if is_alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def descendants(pid: int) -> list[int]:
    children = [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    for task in Path(f"/proc/{pid}/task").iterdir():
        children += [int(p) for p in (task / "children").read_text().split() if int(p) not in children]
    return children + [grandchild for child in children for grandchild in descendants(child)]


def is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"
