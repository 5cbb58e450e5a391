"""An executor without processes: it answers at once, or with the state that a test asks for."""

from __future__ import annotations

import uuid
from dataclasses import replace
from types import ModuleType
from typing import Any

from lab.contract import Fault, silent
from lab.execution.executor import Host, Job, State, TypedCode


class FakeExecutor:
    """``experiment``: runs everything that is submitted. ``end``: how the next runs end, "running" for never."""

    def __init__(self, experiment: ModuleType) -> None:
        self.experiment = experiment
        self.end: State = "done"
        self.fault: Fault | None = None
        self.submitted: list[tuple[Any, bool]] = []
        self.cancelled: list[str] = []
        self.finished_at = 1e9
        self.part: Any = None
        """A result that running jobs have handed over."""
        self.jobs: dict[str, Job] = {}

    def warm_up(self) -> None: ...

    def submit(self, experiment: str, params: Any, *, visitor: str, fresh: bool = False) -> str:
        self.submitted.append((params, fresh))
        job = Job(uuid.uuid4().hex, experiment, params, self.end, fault=self.fault, finished_at=self.finished_at)
        if self.end == "done":
            result = self.experiment.run(params, silent)
            job = replace(
                job,
                result=result,
                findings=self.experiment.explain(result),
                seconds=0.012,
                finished_at=self.finished_at,
                sealed=True,
            )
        elif self.end == "queued":
            job = replace(job, position=3)
        elif self.end == "running":
            job = replace(job, fraction=0.25, line="layer 1 of 4", finished_at=0.0)
            if self.part is not None:
                job = self.with_part(job)
        self.jobs[job.id] = job
        return job.id

    def with_part(self, job: Job) -> Job:
        return replace(job, result=self.part, findings=self.experiment.explain(self.part), parts=1, finished_at=1e9)

    def look(self, job_id: str) -> Job:
        return self.jobs[job_id]

    def wait(self, job_id: str, seconds: float) -> Job:
        return self.jobs[job_id]

    def cancel(self, job_id: str) -> None:
        self.cancelled.append(job_id)
        self.jobs[job_id] = replace(self.jobs[job_id], state="cancelled", fault=Fault("Cancelled", "You cancelled it."))

    def host(self) -> Host:
        return Host("3.11", "2.13.0", "Linux", "Example CPU", 2, 2, 1 << 34, "", "this host has no CUDA device")

    def typed_code(self) -> TypedCode:
        return TypedCode("sealed", True, "")
