"""The lab's own experiments in warm worker processes, and visitors' programs where there are no walls."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.contract import silent
from lab.execution.executor import Executor, Job
from lab.execution.host import gpu_memory_bytes, measure
from tests.lab.execution.conftest import TRIALS, finish
from tests.lab.execution.trial_experiments import rough, typed


@pytest.fixture(scope="module")
def lab() -> Iterator[Executor]:
    executor = Executor(package=TRIALS, typed_code="off", workers=2, wall_s=3.0)
    yield executor
    executor.close()


def run(lab: Executor, *, visitor: str = "a", **knobs: Any) -> Job:
    return finish(lab, lab.submit("rough", rough.Params(**knobs), visitor=visitor, fresh=True))


def test_a_run_in_a_worker_equals_the_run_here(lab: Executor) -> None:
    job = run(lab, size=17)
    here = rough.run(rough.Params(size=17), silent)
    assert replace(job.result, pid=here.pid, threads=here.threads) == here
    assert job.findings == rough.explain(here)
    assert run(lab, size=18).result.total != here.total
    assert job.result.pid != os.getpid()
    assert (job.state, job.sealed, job.result.threads) == ("done", False, 1)


def test_workers_stay_warm_and_answer_fast(lab: Executor) -> None:
    pid = run(lab).result.pid
    started = time.monotonic()
    assert run(lab, size=5).result.pid == pid
    assert time.monotonic() - started < 0.5


def test_host_says_what_torch_says(lab: Executor) -> None:
    host = lab.host()
    here = measure()
    assert replace(host, threads=here.threads) == here
    assert host.threads == 1
    assert host.torch == torch.__version__
    assert bool(host.cuda) == torch.cuda.is_available() != bool(host.cuda_reason)
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    assert host.memory_bytes <= int(total.split()[1]) * 1024
    assert host.memory_bytes > 1 << 30


def test_the_gpu_share_is_bytes_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAB_GPU_MEMORY_BYTES", raising=False)
    assert gpu_memory_bytes() == 0
    monkeypatch.setenv("LAB_GPU_MEMORY_BYTES", "1073741824")
    assert gpu_memory_bytes() == 1 << 30
    for wrong in ("1 GiB", "-5", "0"):
        monkeypatch.setenv("LAB_GPU_MEMORY_BYTES", wrong)
        with pytest.raises(ValueError, match=f"LAB_GPU_MEMORY_BYTES is '{wrong}'"):
            gpu_memory_bytes()


@pytest.mark.parametrize(
    ("act", "state", "fault_type", "says"),
    [
        ("segfault", "failed", "Crashed", "SIGSEGV"),
        ("exit", "failed", "Crashed", "exit status 7"),
        ("deaf", "limit", "TimeLimit", "3 s"),
        ("raise", "failed", "ZeroDivisionError", "divides by zero"),
        ("swallow memory", "limit", "MemoryLimit", "more than it can get"),
    ],
)
def test_a_worker_may_crash_or_hang_and_the_next_job_works(
    act: str, state: str, fault_type: str, says: str, lab: Executor
) -> None:
    job = run(lab, act=act)
    assert (job.state, job.result) == (state, None), job
    assert job.fault
    assert job.fault.type == fault_type
    assert says in job.fault.message
    assert ("rough.py" in job.trace) == (act == "raise")
    assert run(lab).result.total == 3.0


def test_what_an_experiment_prints_does_not_break_the_protocol(lab: Executor) -> None:
    assert run(lab, act="print", size=2).result.total == 2.0


def test_cancel_is_polite_first_and_kills_what_does_not_listen() -> None:
    lab = Executor(package=TRIALS, typed_code="off", workers=1)
    pid = run(lab).result.pid
    job_id = lab.submit("rough", rough.Params(act="patient"), visitor="a")
    while not (job := lab.look(job_id)).line.endswith("s left"):
        time.sleep(0.01)
    assert 0 <= job.fraction < 1
    started = time.monotonic()
    lab.cancel(job_id)
    assert lab.look(job_id).state == "cancelled"
    assert run(lab).result.pid == pid
    assert time.monotonic() - started < 1
    job_id = lab.submit("rough", rough.Params(act="deaf"), visitor="a")
    lab.wait(job_id, 0.2)
    started = time.monotonic()
    lab.cancel(job_id)
    assert run(lab, visitor="b").result.pid != pid
    assert 2 <= time.monotonic() - started < 10
    lab.close()


def test_a_worker_that_was_killed_while_idle_is_replaced(lab: Executor) -> None:
    pid = run(lab).result.pid
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.1)
    assert run(lab).result.total == 3.0


def test_several_workers_run_side_by_side(lab: Executor) -> None:
    jobs = [lab.submit("rough", rough.Params(act="patient", seconds=0.5 + n / 100), visitor=f"v{n}") for n in (0, 1)]
    assert len({finish(lab, job).result.pid for job in jobs}) == 2


def test_a_forged_request_is_refused_in_the_worker(lab: Executor) -> None:
    """``object.__setattr__`` passes by the check that building ``Params`` makes, as a bad client would."""
    params = rough.Params()
    object.__setattr__(params, "size", 10**9)
    job = finish(lab, lab.submit("rough", params, visitor="a"))
    assert (job.state, job.result) == ("refused", None)
    assert job.fault
    assert "size = 1000000000 is outside 1 to 1,000" in job.fault.message


def test_a_forged_request_is_refused_behind_the_walls(sealed: Executor) -> None:
    params = typed.Params(code="print(1)")
    object.__setattr__(params, "seed", -1)
    job = finish(sealed, sealed.submit("typed", params, visitor="forger"))
    assert (job.state, job.sealed) == ("refused", True)
    assert job.fault
    assert "seed = -1" in job.fault.message


def test_our_own_programs_run_unsealed_and_changed_ones_do_not(sealed: Executor) -> None:
    for code in (typed.Params().code, typed.lessons[0].params.code):
        job = finish(sealed, sealed.submit("typed", typed.Params(code=code), visitor="a"))
        assert (job.state, job.sealed) == ("done", False)
    code = typed.Params().code + " "
    assert finish(sealed, sealed.submit("typed", typed.Params(code=code), visitor="a")).sealed


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens on a machine without CUDA")
def test_without_cuda_the_reason_is_given(lab: Executor) -> None:
    job = run(lab, device="cuda")
    assert job.state == "refused"
    assert job.fault
    assert "no CUDA" in job.fault.message
    assert job.fault.repair == "Set device to cpu."


def test_sealed_programs_are_refused_on_cuda(sealed: Executor) -> None:
    job = sealed.look(sealed.submit("typed", typed.Params(code="print(1)", device="cuda"), visitor="a"))
    assert job.state == "refused"
    assert job.fault
    assert "run on the CPU here" in job.fault.message


def test_off_refuses_programs_and_runs_presets(lab: Executor) -> None:
    assert not lab.typed_code().available
    assert "LAB_TYPED_CODE=sealed" in lab.typed_code().reason
    job = lab.look(lab.submit("typed", typed.Params(code="print(1)"), visitor="a"))
    assert (job.state, job.result) == ("refused", None)
    assert finish(lab, lab.submit("typed", typed.Params(), visitor="a")).result.printed == "hello\n"


def test_trusted_runs_any_program_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_TYPED_CODE", "trusted")
    trusted = Executor(package=TRIALS)
    assert trusted.typed_code().available

    def say(code: str) -> Job:
        return finish(trusted, trusted.submit("typed", typed.Params(code=code), visitor="a", fresh=True))

    first = say("import os; torch.set_default_dtype(torch.float64); print(os.getpid(), len(os.listdir('/')) > 0)")
    second = say("import os; print(os.getpid(), torch.get_default_dtype())")
    assert first.result.printed.endswith(" True\n")
    assert second.result.printed.endswith(" torch.float32\n")
    assert first.result.printed.split()[0] != second.result.printed.split()[0]
    assert not first.sealed
    hung = say("while True: pass")
    assert (hung.state, hung.fault and hung.fault.type) == ("limit", "TimeLimit")
    trusted.close()


def test_a_run_hands_over_what_is_finished_while_it_goes_on(lab: Executor) -> None:
    job_id = lab.submit("rough", rough.Params(act="parts", size=2, seconds=0.5), visitor="parts", fresh=True)
    first = lab.wait(job_id, 30, parts=0)
    assert (first.state, first.parts, first.result.total) == ("running", 1, 0.0)
    assert first.findings == rough.explain(first.result)
    second = lab.wait(job_id, 30, parts=1)
    assert (second.state, second.parts, second.result.total) == ("running", 2, 1.0)
    last = finish(lab, job_id)
    assert (last.state, last.result.total) == ("done", 2.0)


def test_what_was_handed_over_outlives_a_run_that_meets_its_limit(lab: Executor) -> None:
    job = run(lab, act="parts", size=2, seconds=30, visitor="slow")
    assert (job.state, job.fault.type if job.fault else "", job.result.total) == ("limit", "TimeLimit", 0.0)
    assert job.finished_at < time.time() - 2


def test_a_remembered_result_keeps_the_time_of_its_run(lab: Executor) -> None:
    first = finish(lab, lab.submit("rough", rough.Params(size=77), visitor="a"))
    time.sleep(0.05)
    again = finish(lab, lab.submit("rough", rough.Params(size=77), visitor="b"))
    assert again.finished_at == first.finished_at
