"""The queue and the store, with a route that does as it is told: no processes, no torch, no guessing about time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lab.contract import Cancelled, Fault, Report
from lab.execution import faults
from lab.execution.executor import Executor, Job
from lab.execution.host import Host, TypedCode
from lab.execution.jobs import Outcome, Request
from tests.lab.execution.conftest import TRIALS
from tests.lab.execution.trial_experiments.rough import Params

HOST = Host("3", "2", "here", "one", 1, 1, 1, "", "none here")


class Stage:
    """A route whose runs stay on until they are let go, and the other half of ``Routes`` around it."""

    lane = "stage"

    def __init__(self, slots: int = 1) -> None:
        self.slots = slots
        self.entered: list[int] = []
        """``size`` of each run, in order of start."""
        self.refuses: Fault | None = None
        self._let_go: dict[int, threading.Event] = {}
        self._lock = threading.Lock()

    def run(self, request: Request, report: Report, cancelled: Callable[[], bool]) -> Outcome:
        size = request.params.size
        with self._lock:
            self.entered.append(size)
            event = self._let_go.setdefault(size, threading.Event())
        report(0.5, f"run {size}")
        while not event.wait(0.05):
            if cancelled():
                return Outcome("cancelled", fault=faults.cancelled())
        if size == 666:
            raise ZeroDivisionError("a fault of the lab")
        return Outcome("done", result=size, seconds=1.0, wire_bytes=100)

    def let_go(self, size: int) -> None:
        with self._lock:
            self._let_go.setdefault(size, threading.Event()).set()

    def choose(self, module: Any, params: Any) -> Any:
        return self.refuses or self

    def request(self, experiment: str, params: Any, route: Any) -> Request:
        return Request(experiment, params, {}, None, params.device)

    def missing_device(self, request: Request) -> Fault | None:
        return faults.no_cuda("none here") if request.device == "cuda" else None

    def host(self) -> Host:
        return HOST

    def typed_code(self) -> TypedCode:
        return TypedCode("off", False, "")

    def all(self) -> list[Any]:
        return [self]

    def warm_up(self) -> None: ...

    def tend(self) -> None: ...

    def close(self) -> None: ...


class Theatre:
    """An executor with a stage instead of its engines."""

    def __init__(self, slots: int = 1, **settings: Any) -> None:
        self.stage = Stage(slots)
        self.executor = Executor(package=TRIALS, typed_code="off", **settings)
        self.executor._routes = self.stage  # type: ignore[assignment]

    def submit(self, size: int, visitor: str, **more: Any) -> str:
        return self.executor.submit("rough", Params(size=size), visitor=visitor, **more)

    def look(self, job_id: str) -> Job:
        return self.executor.look(job_id)

    def until(self, job_id: str, *states: str) -> Job:
        deadline = time.monotonic() + 5
        while (job := self.look(job_id)).state not in states:
            assert time.monotonic() < deadline, job
            time.sleep(0.002)
        return job


@pytest.fixture
def theatre() -> Iterator[Theatre]:
    made = Theatre()
    yield made
    made.executor.close()


def test_a_job_goes_from_running_to_done(theatre: Theatre) -> None:
    job_id = theatre.submit(1, "a")
    job = theatre.until(job_id, "running")
    while job.line == "":
        job = theatre.look(job_id)
    assert (job.fraction, job.line, job.position, job.over, job.finished_at) == (0.5, "run 1", 0, False, 0.0)
    theatre.stage.let_go(1)
    job = theatre.executor.wait(job_id, 5)
    assert (job.state, job.result, job.fault, job.over, job.seconds) == ("done", 1, None, True, 1.0)
    assert job.params == Params(size=1)
    assert time.time() - job.finished_at < 5


def test_wait_returns_early_when_over_and_late_when_not(theatre: Theatre) -> None:
    job_id = theatre.submit(1, "a")
    started = time.monotonic()
    assert theatre.executor.wait(job_id, 0.2).state == "running"
    assert 0.2 <= time.monotonic() - started < 1
    threading.Timer(0.1, theatre.stage.let_go, (1,)).start()
    assert theatre.executor.wait(job_id, 5).state == "done"
    assert time.monotonic() - started < 2


def test_first_come_first_served_but_one_at_a_time_for_each_visitor() -> None:
    theatre = Theatre(slots=2)
    jobs = {size: theatre.submit(size, visitor) for size, visitor in [(1, "a"), (2, "a"), (3, "b"), (4, "c")]}
    theatre.until(jobs[3], "running")
    assert theatre.look(jobs[2]).state == "queued", "a has one running already"
    assert [theatre.look(jobs[n]).position for n in (1, 2, 3, 4)] == [0, 1, 0, 2]
    theatre.stage.let_go(3)
    theatre.until(jobs[4], "running")
    theatre.stage.let_go(1)
    theatre.until(jobs[2], "running")
    assert sorted(theatre.stage.entered[:2]) == [1, 3]
    assert theatre.stage.entered[2:] == [4, 2]
    theatre.executor.close()


def test_a_newer_request_replaces_the_waiting_one_of_the_same_visitor(theatre: Theatre) -> None:
    running, waiting, other = theatre.submit(1, "a"), theatre.submit(2, "a"), theatre.submit(3, "b")
    newer = theatre.submit(4, "a")
    replaced = theatre.look(waiting)
    assert (replaced.state, replaced.line) == ("cancelled", "A newer request took its place.")
    assert theatre.look(running).state == "running"
    assert [theatre.look(job).position for job in (other, newer)] == [1, 2]
    for size in (1, 3, 4):
        theatre.stage.let_go(size)
    assert theatre.executor.wait(newer, 5).result == 4
    assert theatre.stage.entered == [1, 3, 4]


def test_equal_requests_share_a_run_and_each_visitor_keeps_a_job(theatre: Theatre) -> None:
    first, second = theatre.submit(1, "a"), theatre.submit(1, "b")
    assert first != second
    assert theatre.submit(1, "a") == first
    theatre.executor.cancel(first)
    assert theatre.look(first).state == "cancelled"
    assert theatre.look(second).state == "running"
    theatre.stage.let_go(1)
    assert theatre.executor.wait(second, 5).result == 1
    assert theatre.stage.entered == [1]


def test_a_run_that_nobody_wants_is_cancelled_and_not_joined(theatre: Theatre) -> None:
    first, second = theatre.submit(1, "a"), theatre.submit(1, "b")
    theatre.executor.cancel(first)
    theatre.executor.cancel(second)
    theatre.executor.cancel(second)
    again = theatre.submit(1, "c")
    assert theatre.look(again).state == "queued", "the run that winds down has the slot"
    theatre.stage.let_go(1)
    assert theatre.executor.wait(again, 5).state == "done"
    assert theatre.look(second).state == "cancelled"


def test_done_results_are_remembered_and_fresh_measures_again(theatre: Theatre) -> None:
    theatre.stage.let_go(1)
    theatre.executor.wait(theatre.submit(1, "a"), 5)
    again = theatre.look(theatre.submit(1, "b"))
    assert (again.state, again.result) == ("done", 1)
    assert theatre.stage.entered == [1]
    fresh = theatre.submit(1, "b", fresh=True)
    assert theatre.executor.wait(fresh, 5).result == 1
    assert theatre.stage.entered == [1, 1]


def test_fresh_joins_an_equal_run_that_waits_but_not_one_that_runs(theatre: Theatre) -> None:
    theatre.until(theatre.submit(1, "a"), "running")
    theatre.submit(1, "b", fresh=True)
    theatre.submit(1, "c", fresh=True)
    assert len(theatre.executor._line) == 1
    theatre.stage.let_go(1)
    deadline = time.monotonic() + 5
    while theatre.stage.entered != [1, 1] and time.monotonic() < deadline:
        time.sleep(0.005)
    assert theatre.stage.entered == [1, 1]


def test_the_store_is_bounded_and_failures_are_not_kept() -> None:
    theatre = Theatre(store_entries=2)
    for size in (1, 2, 3, 666):
        theatre.stage.let_go(size)
        theatre.executor.wait(theatre.submit(size, "a"), 5)
    assert len(theatre.executor._results) == 2
    for size in (3, 2, 1, 666):
        theatre.executor.wait(theatre.submit(size, "a"), 5)
    assert theatre.stage.entered == [1, 2, 3, 666, 1, 666]
    theatre.executor.close()


def test_a_fault_of_the_lab_fails_the_job_and_frees_the_slot(
    theatre: Theatre, capsys: pytest.CaptureFixture[str]
) -> None:
    theatre.stage.let_go(666)
    job = theatre.executor.wait(theatre.submit(666, "a"), 5)
    assert (job.state, job.result) == ("failed", None)
    assert job.fault
    assert job.fault.type == "ZeroDivisionError"
    assert "a fault of the lab" in job.trace
    assert "a fault of the lab" in capsys.readouterr().err
    theatre.stage.let_go(1)
    assert theatre.executor.wait(theatre.submit(1, "a"), 5).state == "done"


def test_a_lapsed_lease_cancels_and_looking_keeps_alive() -> None:
    theatre = Theatre(lease_s=0.3)
    watched, forgotten = theatre.submit(1, "a"), theatre.submit(2, "b")
    for _ in range(30):
        theatre.look(watched)
        time.sleep(0.02)
    assert theatre.look(watched).state == "running"
    assert theatre.look(forgotten).state == "cancelled"
    assert theatre.executor.wait(watched, 0.6).state == "running", "waiting counts as looking"
    time.sleep(0.6)
    assert theatre.look(watched).state == "cancelled"
    theatre.executor.close()


def test_what_is_refused_is_over_at_once(theatre: Theatre) -> None:
    cuda = theatre.executor.submit("rough", Params(device="cuda"), visitor="a")
    job = theatre.executor.wait(cuda, 5)
    assert job.state == "refused"
    assert job.fault
    assert "none here" in job.fault.message
    theatre.stage.refuses = faults.programs_off()
    job = theatre.look(theatre.submit(5, "a"))
    assert (job.state, job.fault) == ("refused", faults.programs_off())
    assert theatre.stage.entered == []


def test_unknown_names_and_ids_raise(theatre: Theatre) -> None:
    for call in (theatre.look, theatre.executor.cancel, lambda job: theatre.executor.wait(job, 1)):
        with pytest.raises(KeyError):
            call("no such job")
    with pytest.raises(ModuleNotFoundError):
        theatre.executor.submit("nothing", Params(), visitor="a")
    for name in ("os.path", "../rough", "_private", ""):
        with pytest.raises(ValueError, match="not the name"):
            theatre.executor.submit(name, Params(), visitor="a")


def test_close_cancels_what_waits_and_runs() -> None:
    theatre = Theatre()
    jobs = [theatre.submit(1, "a"), theatre.submit(2, "b")]
    theatre.until(jobs[0], "running")
    theatre.executor.close()
    assert [theatre.look(job).state for job in jobs] == ["cancelled", "cancelled"]
    assert theatre.executor._running == []


def test_an_unknown_mode_is_named() -> None:
    with pytest.raises(ValueError, match="LAB_TYPED_CODE is 'open'; it must be one of sealed, gpu, trusted, off"):
        Executor(typed_code="open")


def test_cancelled_is_not_an_exception_that_programs_catch() -> None:
    assert not issubclass(Cancelled, Exception)
