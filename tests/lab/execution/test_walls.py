"""What the kernel enforces on a sealed process, seen from inside and from outside, and the check that it does."""

from __future__ import annotations

import ctypes
import json
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.execution.executor import Executor
from lab.execution.sealed import confine, self_check
from lab.execution.sealed.children import ROOT
from tests.lab.execution.conftest import TRIALS, RunProgram, finish
from tests.lab.execution.trial_experiments import typed

MIB = 1 << 20
LIBC = "import ctypes, os\nL = ctypes.CDLL(None, use_errno=True)\n"
REFUSED_CALLS = {
    "fcntl F_SETOWN, then signals go to the parent": "L.fcntl(3, 8, os.getppid())",
    "fcntl F_SETSIG": "L.fcntl(3, 10, 9)",
    "prctl PR_SET_DUMPABLE": "L.prctl(4, 1, 0, 0, 0)",
    "prlimit of the parent, reading": "L.syscall(302, ctypes.c_long(os.getppid()), 0, None, ctypes.create_string_buffer(16))",
    "prlimit of itself, writing": "L.syscall(302, ctypes.c_long(0), 0, ctypes.create_string_buffer(16), None)",
    "tgkill of the parent": "L.syscall(234, ctypes.c_long(os.getppid()), ctypes.c_long(os.getppid()), 0)",
    "clone without CLONE_THREAD": "L.syscall(56, ctypes.c_ulong(17), None, None, None, None)",
    "socketpair": "L.syscall(53, 1, 1, 0, ctypes.create_string_buffer(8))",
    "memfd_create": "L.syscall(319, ctypes.create_string_buffer(b'x'), 0)",
    "timer_create": "L.syscall(222, 0, None, ctypes.create_string_buffer(8))",
    "setsid": "L.syscall(112)",
    "capset": "L.syscall(126, None, None)",
    "seccomp, another filter": "L.syscall(317, 1, 0, None)",
}


@pytest.mark.parametrize("call", REFUSED_CALLS)
def test_a_raw_call_is_refused_with_eperm(call: str, run_program: RunProgram) -> None:
    job = run_program(f"{LIBC}print({REFUSED_CALLS[call]}, ctypes.get_errno())")
    assert job.result.printed == "-1 1\n", job


def test_the_same_raw_calls_do_something_else_here() -> None:
    """The oracle is alive: without walls these return something, or fail for another reason than EPERM."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(4, 1, 0, 0, 0) == 0
    assert libc.syscall(302, ctypes.c_long(0), 0, None, ctypes.create_string_buffer(16)) == 0


def test_threads_time_and_random_numbers_are_left() -> None:
    code = "import os, threading, time\nt = threading.Thread(target=lambda: print('ran'))\nt.start(); t.join()\n"
    code += "time.sleep(0.01); print(len(os.urandom(4)), torch.get_num_threads())"
    with_walls = Executor(package=TRIALS, typed_code="sealed")
    job = finish(with_walls, with_walls.submit("typed", typed.Params(code=code), visitor="a"))
    with_walls.close()
    assert job.result.printed == "ran\n4 1\n"


def test_what_the_kernel_says_about_a_sealed_process(sealed: Executor) -> None:
    code = "import os, time\nreport(0.5, str(os.getpid()))\ntime.sleep(1)"
    job_id = sealed.submit("typed", typed.Params(code=code), visitor="looker")
    while not (job := sealed.look(job_id)).line.isdigit():
        assert not job.over
        time.sleep(0.01)
    about = Path(f"/proc/{job.line}")
    status = dict(line.split(":\t", 1) for line in (about / "status").read_text().splitlines())
    limits = {line[:25].strip(): line[26:47].strip() for line in (about / "limits").read_text().splitlines()}
    finish(sealed, job_id)
    assert (status["Seccomp"], status["NoNewPrivs"], status["Threads"]) == ("2", "1", "1")
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
    names = ("Max core file size", "Max file size", "Max open files", "Max locked memory")
    assert [limits[name] for name in names] == ["0", "0", "32", "0"]


@pytest.mark.parametrize(("mebibytes", "fits"), [(200, True), (300, False)])
def test_the_memory_budget_counts_from_the_warm_process(mebibytes: int, fits: bool, run_program: RunProgram) -> None:
    """``typed`` allows 256 MiB."""
    job = run_program(f"x = torch.ones({mebibytes} * 2**20, dtype=torch.uint8)\nprint(int(x[-1]))")
    assert (job.result.fault is None) == fits, job
    if not fits:
        assert "can't allocate memory" in job.result.fault.message


def test_the_self_check_finds_these_walls_sound(sealed: Executor) -> None:
    typed_code = sealed.typed_code()
    assert (typed_code.mode, typed_code.available, typed_code.reason) == ("sealed", True, "")


@pytest.fixture(params=[(), ("rlimits", "landlock")], ids=["nothing", "no seccomp"])
def leaky(request: pytest.FixtureRequest) -> Iterator[Executor]:
    executor = Executor(package=TRIALS, typed_code="sealed", layers=request.param)
    yield executor
    executor.close()


def test_the_self_check_switches_programs_off_when_a_wall_is_missing(leaky: Executor) -> None:
    typed_code = leaky.typed_code()
    assert not typed_code.available
    assert "opened a socket" in typed_code.reason
    assert "LAB_TYPED_CODE=trusted" in typed_code.reason
    job = finish(leaky, leaky.submit("typed", typed.Params(code="print(1)"), visitor="a"))
    assert (job.state, job.result) == ("refused", None)
    assert job.fault
    assert "opened a socket" in job.fault.message


def test_the_verdict_needs_every_probe_refused_and_exec_killed() -> None:
    held = dict.fromkeys(self_check.NAMES[:-1], "")
    assert self_check.verdict(held, -31) == ""
    assert "start programs" in self_check.verdict(held, 0)
    assert "saw /" in self_check.verdict({**held, "stat": "saw /"}, -31)
    assert self_check.verdict({**held, "stat": "saw /"}, -31, gpu=True) == ""
    assert "before write" in self_check.verdict({k: v for k, v in held.items() if k != "write"}, 1)


CONFINED_FOR_GPU = """
import json
from lab.execution.sealed import confine, self_check
confine.confine(memory_bytes=1 << 30, cpu_s=5, gpu=True)
self_check.probe(lambda name, reached: print(json.dumps([name, reached]), flush=True))
"""


def test_with_the_driver_in_reach_the_other_walls_stand() -> None:
    child = subprocess.run(
        [sys.executable, "-c", CONFINED_FOR_GPU], cwd=ROOT, capture_output=True, text=True, check=False
    )
    reached = dict(map(json.loads, child.stdout.splitlines()))
    assert self_check.verdict(reached, child.returncode, gpu=True) == ""
    assert self_check.verdict(reached, child.returncode) == f"a contained process {reached['stat']}"


def test_gpu_mode_runs_programs_for_the_cpu_behind_the_sealed_walls() -> None:
    executor = Executor(package=TRIALS, typed_code="gpu")
    assert executor.typed_code().available
    job = finish(executor, executor.submit("typed", typed.Params(code="print(open('/'))"), visitor="a"))
    executor.close()
    assert (job.sealed, job.result.fault.type) == (True, "PermissionError")


@pytest.mark.parametrize(
    ("where", "name", "value", "says"),
    [(sys, "platform", "darwin", "Linux only"), (platform, "machine", lambda: "riscv64", "system calls of riscv64")],
)
def test_other_systems_have_no_walls_and_say_so(
    where: object, name: str, value: object, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert confine.why_not() == ""
    monkeypatch.setattr(where, name, value)
    assert says in confine.why_not()
    executor = Executor(package=TRIALS, typed_code="sealed")
    assert says in executor.typed_code().reason
    executor.close()


def test_a_sealed_program_can_have_its_result_shown_in_parts(sealed: Executor) -> None:
    code = "import time\nfrom tests.lab.execution.trial_experiments.typed import Result\nreport(0.5, 'half', Result('half of it', None, (), 1))\ntime.sleep(1)"
    job_id = sealed.submit("typed", typed.Params(code=code), visitor="parts", fresh=True)
    part = sealed.wait(job_id, 30, parts=0)
    assert (part.state, part.result.printed, part.sealed) == ("running", "half of it", True)
    assert finish(sealed, job_id).state == "done"


@pytest.mark.parametrize(
    "forged", ['{"kind":"part"}', '{"kind":"part","result":{"printed":3}}', '{"kind":"part","result":[]}']
)
def test_a_forged_part_ends_the_run(forged: str, run_program: RunProgram) -> None:
    code = f"import os, struct\nbody = {forged!r}.encode()\nos.write(3, struct.pack('>I', len(body)) + body)\nimport time\ntime.sleep(2)"
    job = run_program(code)
    assert job.fault
    assert (job.state, job.fault.type) == ("failed", "Crashed")
