"""Records of where a training step spends its time. Times in seconds, sizes in bytes, tables as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from lab.contract import Fault
from lab.records.program import Said


@dataclass(frozen=True)
class Spread:
    """Seconds of repeated measurements."""

    median: float
    min: float
    max: float


@dataclass(frozen=True)
class Ceilings:
    """Best of a few tries on this device."""

    flops_per_s: float
    bytes_per_s: float
    """Read and written together."""
    dtype: str
    threads: int | None
    """Of the CPU; None on a device."""
    matmul_side: int
    copy_bytes: int


@dataclass(frozen=True)
class Operators:
    """The flat table, largest self time first."""

    name: tuple[str, ...]
    calls: tuple[int, ...]
    self_s: tuple[float, ...]
    """Time in the operation itself, without what it called."""
    total_s: tuple[float, ...]
    """With what it called: the same second is in the total of every caller."""
    device_self_s: tuple[float | None, ...]
    """Time of the kernels that it launched itself. None without a device."""
    flops: tuple[int | None, ...]
    """None where they are not counted."""
    bytes: tuple[int, ...]
    """Allocated minus freed by the operation itself; negative when it freed more."""
    moved_bytes: tuple[int | None, ...]
    """Least traffic: every input read once, every output written once."""
    shapes: tuple[str | None, ...]
    """Of the inputs; None when the row joins several."""
    module: tuple[str | None, ...]
    """None outside modules, or when the row joins several."""
    line: tuple[int | None, ...]
    stack: tuple[str | None, ...]


@dataclass(frozen=True)
class StepParts:
    """Host time of one step. The parts add up to ``total_s``: what lies between them is ``rest_s``."""

    data_loading_s: float | None
    """Waiting for the next batch. None for a program's own batch, which is there already."""
    copy_to_device_s: float | None
    forward_s: float
    """On a device: until everything is launched."""
    backward_s: float
    optimizer_s: float
    """step() and zero_grad()."""
    synchronisation_s: float
    """Reading the loss: on a device the wait until it is done."""
    rest_s: float
    total_s: float


@dataclass(frozen=True)
class Iteration:
    """One step that was run, in order."""

    kind: Literal["first", "warm-up", "bare", "profiled"]
    parts: StepParts | None
    """None for a bare step: only its whole is measured."""
    total_s: float


@dataclass(frozen=True)
class Overhead:
    """What looking costs."""

    bare_s: Spread
    """Steps without any instrument."""
    profiled_s: Spread
    """Steps with the profiler on."""
    ratio: float
    """Fastest against fastest: what else the machine does only makes steps slower."""
    events_per_step: int
    marked_s: float | None
    """The one step in which modules and lines were recorded; in no other number. None where that is not possible."""


@dataclass(frozen=True)
class Verdict:
    """What the step is bound by."""

    bound: Literal["host", "device", "copies", "input"]
    text: str
    shares: dict[str, float]
    """Share of the step, by what it could be bound by."""
    next_change: dict[str, Any]
    """Knobs of the one next step to try; empty when none is left."""
    next_label: str
    next_reason: str


@dataclass(frozen=True)
class CallTree:
    """Merged calls of the profiled steps, as columns. Row ``parent`` is the caller; -1 at the top."""

    parent: tuple[int, ...]
    name: tuple[str, ...]
    is_operator: tuple[bool, ...]
    """Not a range: ranges are the step, its parts, and what a program marks with ``record_function``."""
    shapes: tuple[str, ...]
    module: tuple[str | None, ...]
    line: tuple[int | None, ...]
    stack: tuple[str, ...]
    calls: tuple[int, ...]
    self_s: tuple[float, ...]
    total_s: tuple[float, ...]
    device_self_s: tuple[float | None, ...]
    flops: tuple[int | None, ...]
    bytes: tuple[int, ...]
    moved_bytes: tuple[int | None, ...]


@dataclass(frozen=True)
class Kernels:
    """Work on the device, as columns; one row a kernel and the operator that launched it."""

    name: tuple[str, ...]
    calls: tuple[int, ...]
    total_s: tuple[float, ...]
    operator: tuple[str | None, ...]
    occupancy: tuple[float | None, ...]
    """Estimated share of the resident warps that an SM can hold. None when the driver does not say."""
    grid: tuple[str | None, ...]
    block: tuple[str | None, ...]


@dataclass(frozen=True)
class Timeline:
    """Events of the profiled steps in order of lane and start, as columns."""

    lanes: tuple[str, ...]
    names: tuple[str, ...]
    lane: tuple[int, ...]
    name: tuple[int, ...]
    """Position in ``names``."""
    kind: tuple[Literal["op", "range", "runtime", "kernel", "copy"], ...]
    depth: tuple[int, ...]
    """How many events are around it."""
    start_s: tuple[float, ...]
    """From the start of the first profiled step."""
    duration_s: tuple[float, ...]
    shapes: tuple[int, ...]
    """Position in ``names`` of the input shapes, -1 for none."""
    memory_s: tuple[float, ...]
    """Instants of the memory curve; at most 1,500, peak and valley of each bucket kept."""
    memory_bytes: tuple[int, ...]
    """Allocated minus freed since the first profiled step began, on all threads. What was there before is not in it."""
    steps: int
    """How many of the profiled steps are in it."""
    events: int
    """How many events all profiled steps have."""


@dataclass(frozen=True)
class Reading:
    """One number that a trap gives."""

    name: str
    value: float | str | None
    """None: not measured, ``note`` says why. Text for what is no number."""
    program: Literal["as written", "repaired"]
    unit: Literal["s", "bytes", "count", "ratio", ""] = ""
    note: str = ""


@dataclass(frozen=True)
class Trap:
    """A way to read a profile wrong, tried."""

    name: str
    title: str
    code: str
    """What people write."""
    repaired: str
    """What to write instead."""
    readings: tuple[Reading, ...]
    message: str
    """What PyTorch says, empty when nothing."""
    explanation: str


@dataclass(frozen=True)
class ProfileResult(Said):
    """Where the step spends its time."""

    step: StepParts | None
    """The profiled step with the median total. None when a program ended before."""
    iterations: tuple[Iteration, ...]
    profiled_steps: int
    """Steps in ``operators``, ``calls`` and ``kernels``."""
    steps_cut: str
    """Why fewer steps than asked for; empty when all were run."""
    operators: Operators
    """One row per ``group_by``, over all profiled steps."""
    calls: CallTree
    kernels: Kernels | None
    """None without a device."""
    device_busy_s: float | None
    """Time in which at least one kernel or copy ran, of all profiled steps. None without a device."""
    timeline: Timeline
    overhead: Overhead | None
    ceilings: Ceilings | None
    verdict: Verdict | None
    trap: Trap | None
    lines_of: Literal["program", "model"]
    """Whose lines the tables name: the visitor's program, or the source of the lab's models."""
    places_missing: str
    """Why modules and lines are missing; empty when they are there."""
    compile_s: float | None
    """The first step with torch.compile, compilation included."""
    notes: tuple[str, ...]
    """Settings that have no effect here, and why."""
    device: str
    fault: Fault | None
