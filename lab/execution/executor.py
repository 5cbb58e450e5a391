"""Submit a run, look at it, wait for it, cancel it. The web application and the command line know no more than this.

NOTE: how a request becomes a job.

1. A job is one visitor's request; a run is the work. Equal requests that wait or run share one run, and a finished
   result is remembered, so a job may be over at once. A run that no job wants any more is cancelled.
2. A visitor has at most one job running and one waiting; a newer request takes the place of the waiting one.
3. Runs wait in one line, in order of arrival. A run starts when its lane has a slot free and one of its visitors has
   nothing else running.
4. Every look renews a job's lease. A job that nobody looks at any more (a closed tab) is cancelled.
5. One lock guards all of this. Routes are called without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import threading
import time
import traceback
import uuid
from dataclasses import dataclass, field, replace
from typing import Any

from lab import wire
from lab.contract import Fault
from lab.execution import faults, perform
from lab.execution.host import Host, TypedCode, mode
from lab.execution.jobs import Job, Outcome, Request, Route, State, finished
from lab.execution.routes import Routes
from lab.execution.sealed.confine import LAYERS
from lab.execution.store import BoundedStore
from lab.execution.workers.process import WorkerError

__all__ = ["Executor", "Host", "Job", "State", "TypedCode"]

_KEPT_JOBS = 1024


@dataclass(eq=False)
class _Run:
    """Work that one or more jobs wait for. Guarded by the executor's lock."""

    key: str
    request: Request
    route: Route
    jobs: dict[str, _Ticket] = field(default_factory=dict)
    running: bool = False
    fraction: float = 0.0
    line: str = ""
    part: Outcome | None = None
    """The result as far as it is finished."""
    parts: int = 0
    unwanted: threading.Event = field(default_factory=threading.Event)


@dataclass(eq=False)
class _Ticket:
    """One visitor's place in a run."""

    id: str
    visitor: str
    params: Any
    run: _Run
    seen_at: float


class Executor:
    """Thread-safe. Making one starts no process: that happens with ``warm_up`` or when one is first needed."""

    def __init__(
        self,
        *,
        typed_code: str | None = None,
        package: str = perform.PACKAGE,
        workers: int | None = None,
        program_slots: int | None = None,
        wall_s: float = 120.0,
        lease_s: float = 90.0,
        store_entries: int = 512,
        store_bytes: int = 64 << 20,
        layers: tuple[str, ...] = LAYERS,
    ) -> None:
        """``typed_code``: a mode of ``TypedCode``, by default LAB_TYPED_CODE or sealed. ``wall_s``: for the lab's own
        runs. ``store_bytes``: of answers as they came over the wire. ``package``, ``layers``: for tests."""
        cores = os.cpu_count() or 1
        self._routes = Routes(
            mode(typed_code or os.environ.get("LAB_TYPED_CODE") or "sealed"),
            package=package,
            workers=workers or max(1, min(3, cores // 2)),
            program_slots=program_slots or max(2, cores // 2),
            wall_s=wall_s,
            layers=layers,
        )
        self._package, self._lease_s = package, lease_s
        self._changed = threading.Condition()
        self._line: list[_Run] = []
        self._running: list[_Run] = []
        self._tickets: dict[str, _Ticket] = {}
        self._over = BoundedStore[Job](entries=_KEPT_JOBS, size_bytes=store_bytes)
        self._results = BoundedStore[Outcome](entries=store_entries, size_bytes=store_bytes)
        self._closing = threading.Event()
        self._tender: threading.Thread | None = None

    def submit(self, experiment: str, params: Any, *, visitor: str, fresh: bool = False) -> str:
        """Ask for a run; returns the job's id at once. ``fresh``: measure again, whatever is remembered.

        Raises ModuleNotFoundError or ValueError when there is no such experiment.
        """
        module = perform.find(experiment, self._package)
        route = self._routes.choose(module, params)
        key = hashlib.sha256(f"{experiment} {wire.dumps(params)}".encode()).hexdigest()
        with self._changed:
            if isinstance(route, Fault):
                return self._add_over(experiment, params, Outcome("refused", fault=route))
            if not fresh and (known := self._results.get(key)):
                return self._add_over(experiment, params, known)
            run = self._joinable(key, fresh)
            for ticket in [t for t in self._tickets.values() if t.visitor == visitor]:
                if ticket.run is run:
                    return ticket.id
                if not ticket.run.running:
                    self._end_job(ticket, _cancelled("A newer request took its place."))
            if run is None:
                run = _Run(key, self._routes.request(experiment, params, route), route)
                self._line.append(run)
            ticket = _Ticket(uuid.uuid4().hex, visitor, params, run, time.monotonic())
            run.jobs[ticket.id] = self._tickets[ticket.id] = ticket
            self._start_tending()
            self._start_runs()
            return ticket.id

    def look(self, job_id: str) -> Job:
        """The job as it is now; renews its lease. Raises KeyError for a job that never was or is long over."""
        with self._changed:
            return self._look(job_id)

    def wait(self, job_id: str, seconds: float, *, parts: int | float = math.inf) -> Job:
        """The job as soon as it is over or has handed over more than ``parts`` parts, or as it is after ``seconds``. Raises KeyError like ``look``."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while (
                not ((job := self._look(job_id)).over or job.parts > parts)
                and (left := deadline - time.monotonic()) > 0
            ):
                self._changed.wait(min(left, self._lease_s / 3))
            return job

    def cancel(self, job_id: str) -> None:
        """End this job; its run goes on while others want it. A job that is over stays as it is. Raises KeyError."""
        with self._changed:
            if job_id in self._tickets:
                self._end_job(self._tickets[job_id], _cancelled("Cancelled."))
                self._start_runs()
            elif job_id not in self._over:
                raise KeyError(job_id)

    def host(self) -> Host:
        """Facts for the badge. Blocks until the first worker has said them. Raises RuntimeError when none can start."""
        return self._routes.host()

    def typed_code(self) -> TypedCode:
        """May visitors' programs run? Blocks for the check of the walls the first time."""
        return self._routes.typed_code()

    def warm_up(self) -> None:
        """Start workers and the zygote in the background."""
        with self._changed:
            self._start_tending()
        for route in self._routes.all():
            threading.Thread(target=_warm_up, args=(route,), name="warm-up", daemon=True).start()

    def close(self) -> None:
        """End every process. Jobs that are not over are cancelled."""
        self._closing.set()
        with self._changed:
            for ticket in list(self._tickets.values()):
                self._end_job(ticket, _cancelled("The lab is closing."))
        for route in self._routes.all():
            route.close()
        with self._changed:
            self._changed.wait_for(lambda: not self._running, timeout=10)

    # --- below, the lock is held ------------------------------------------------------------------------------------

    def _joinable(self, key: str, fresh: bool) -> _Run | None:
        runs = self._line if fresh else self._line + self._running
        return next((run for run in runs if run.key == key and run.jobs), None)

    def _look(self, job_id: str) -> Job:
        ticket = self._tickets.get(job_id)
        if ticket is None:
            job = self._over.get(job_id)
            if job is None:
                raise KeyError(job_id)
            return job
        ticket.seen_at = time.monotonic()
        run = ticket.run
        if run.running:
            job = Job(job_id, run.request.experiment, ticket.params, "running", run.fraction, run.line)
            return job if run.part is None else _with_part(job, run.part, run.parts)
        before = self._line[: self._line.index(run)]
        position = 1 + sum(other.route.lane == run.route.lane for other in before)
        return Job(job_id, run.request.experiment, ticket.params, "queued", line="waiting", position=position)

    def _add_over(self, experiment: str, params: Any, outcome: Outcome) -> str:
        job_id = uuid.uuid4().hex
        self._over.put(job_id, finished(job_id, experiment, params, outcome), outcome.wire_bytes)
        return job_id

    def _end_job(self, ticket: _Ticket, outcome: Outcome) -> None:
        run = ticket.run
        del self._tickets[ticket.id], run.jobs[ticket.id]
        job, size = finished(ticket.id, run.request.experiment, ticket.params, outcome), outcome.wire_bytes
        if outcome.state != "done" and run.part:
            job, size = _with_part(job, run.part, run.parts), run.part.wire_bytes
        self._over.put(ticket.id, job, size)
        if not run.jobs:
            run.unwanted.set()
            if not run.running:
                self._line.remove(run)
        self._changed.notify_all()

    def _start_runs(self) -> None:
        for run in list(self._line):
            busy = {t.visitor for other in self._running for t in other.jobs.values()}
            taken = sum(other.route.lane == run.route.lane for other in self._running)
            if taken < run.route.slots and any(t.visitor not in busy for t in run.jobs.values()):
                self._line.remove(run)
                self._running.append(run)
                run.running = True
                threading.Thread(target=self._follow, args=(run,), name="run", daemon=True).start()
        self._changed.notify_all()

    def _start_tending(self) -> None:
        if self._tender is None:
            self._tender = threading.Thread(target=self._tend, name="tender", daemon=True)
            self._tender.start()

    # --- below, in threads of the executor's own, without the lock --------------------------------------------------

    def _follow(self, run: _Run) -> None:
        def report(fraction: float, line: str, part: Outcome | None = None) -> None:
            with self._changed:
                run.fraction, run.line = fraction, line
                if part:
                    run.part, run.parts = part, run.parts + 1
                    self._changed.notify_all()

        try:
            missing = self._routes.missing_device(run.request)
            if missing:
                outcome = Outcome("refused", fault=missing)
            else:
                outcome = run.route.run(run.request, report, run.unwanted.is_set)
        except Exception as error:  # noqa: BLE001 - a job must end, also when the lab itself is at fault
            traceback.print_exc()
            outcome = Outcome("failed", fault=faults.broken(error), trace=traceback.format_exc())
        with self._changed:
            self._running.remove(run)
            if outcome.state == "done":
                self._results.put(run.key, outcome, outcome.wire_bytes)
            for ticket in list(run.jobs.values()):
                self._end_job(ticket, outcome)
            self._start_runs()

    def _tend(self) -> None:
        while not self._closing.wait(min(1.0, self._lease_s / 4)):
            with self._changed:
                lapsed = time.monotonic() - self._lease_s
                for ticket in [t for t in self._tickets.values() if t.seen_at < lapsed]:
                    self._end_job(ticket, _cancelled("Nobody looked at it any more."))
                self._start_runs()
            for route in self._routes.all():
                route.tend()


def _cancelled(why: str) -> Outcome:
    return Outcome("cancelled", fault=faults.cancelled(why))


def _with_part(job: Job, part: Outcome, number: int) -> Job:
    """The job with what its run has handed over up to now."""
    return replace(
        job, result=part.result, findings=part.findings, sealed=part.sealed, finished_at=part.at, parts=number
    )


def _warm_up(route: Route) -> None:
    with contextlib.suppress(WorkerError):  # said to whoever asks for a run
        route.warm_up()
