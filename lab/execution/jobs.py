"""What is asked for, what comes back, and what a visitor sees in between."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from lab.contract import Fault, Finding, Limits

State = Literal["queued", "running", "done", "failed", "refused", "limit", "cancelled"]


@dataclass(frozen=True)
class Job:
    """One visitor's request at one moment. Never changes: ask ``Executor.look`` for the next snapshot."""

    id: str
    experiment: str
    params: Any
    state: State
    fraction: float = 0.0
    """Share done, 0 to 1, as the run reports it."""
    line: str = ""
    """What is happening, in one line."""
    position: int = 0
    """1 is next in the queue; 0 when running or over."""
    result: Any = None
    """``Result`` of the experiment; unless ``state`` is done, as far as it was handed over, else None."""
    parts: int = 0
    """How often the run has handed over what was finished."""
    findings: tuple[Finding, ...] = ()
    fault: Fault | None = None
    """Why there is no result; None unless the job ended without one."""
    trace: str = ""
    """Traceback of a fault of the lab itself, for the operator."""
    seconds: float = 0.0
    """Time of the run where it ran."""
    finished_at: float = 0.0
    """``time.time()`` of the end of the run, which may be older than the request; 0 before."""
    sealed: bool = False
    """Ran as a visitor's program inside the walls."""

    @property
    def over(self) -> bool:
        return self.state not in ("queued", "running")


@dataclass(frozen=True)
class Request:
    """One run to be made."""

    experiment: str
    params: Any
    data: dict[str, Any]
    """``params`` in wire form."""
    limits: Limits | None
    """What the visitor's program may use; None when no such program runs."""
    device: str


@dataclass(frozen=True)
class Outcome:
    """How a run ended; ``running`` for what it handed over before."""

    state: State
    result: Any = None
    findings: tuple[Finding, ...] = ()
    fault: Fault | None = None
    trace: str = ""
    seconds: float = 0.0
    sealed: bool = False
    wire_bytes: int = 0
    """Size of the answer on the wire."""
    at: float = field(default_factory=time.time)
    """``time.time()`` of the end of the run."""


class Progress(Protocol):
    """Called by a route while a run goes on."""

    def __call__(self, fraction: float, line: str, part: Outcome | None = None) -> None: ...


def finished(job_id: str, experiment: str, params: Any, outcome: Outcome) -> Job:
    """The job whose run ended with ``outcome``, perhaps some time ago."""
    return Job(
        job_id,
        experiment,
        params,
        outcome.state,
        fraction=1.0 if outcome.state == "done" else 0.0,
        line=outcome.fault.message if outcome.fault else "",
        result=outcome.result,
        findings=outcome.findings,
        fault=outcome.fault,
        trace=outcome.trace,
        seconds=outcome.seconds,
        finished_at=outcome.at,
        sealed=outcome.sealed,
    )


class Route(Protocol):
    """One way of running a request. Another engine joins the executor by being one more of these."""

    @property
    def lane(self) -> str:
        """Runs of routes that name the same lane take turns."""
        ...

    @property
    def slots(self) -> int:
        """Runs that the lane takes at once, as far as is known now."""
        ...

    def run(self, request: Request, report: Progress, cancelled: Callable[[], bool]) -> Outcome:
        """Run to the end, in the calling thread. ``cancelled`` is asked often; a run that it ends is ``cancelled``."""
        ...

    def warm_up(self) -> None:
        """Start what takes long, ahead of the first request. May block."""
        ...

    def tend(self) -> None:
        """Called about once a second: end what idles, replace what died."""
        ...

    def close(self) -> None: ...


def progress(fraction: Any, line: Any) -> tuple[float, str]:
    """Progress as it may be shown: the sender is not trusted."""
    fits = isinstance(fraction, (int, float)) and math.isfinite(fraction)
    return (min(max(float(fraction), 0.0), 1.0) if fits else 0.0), str(line)[:200]
