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
class Dispatch:
    """What calling an operator costs before it does any work: ``x + 1`` on one element, the least of a few measurements."""

    call_s: float
    """From one call to the next, without a profiler."""
    profiled_s: float
    """Its self time in a profile, median of many calls."""


@dataclass(frozen=True)
class PythonLine:
    """Where Python was seen at work."""

    function: str
    line: int | None
    """None outside the program, such as in an optimizer of PyTorch."""
    share: float
    """Of Python's time."""


@dataclass(frozen=True)
class PythonTime:
    """Python's own work in a step, between operators that do something, outside loading, copying and waiting."""

    self_s: float
    """Of one profiled step, the mean. Exact: gaps of the profile."""
    share: float
    """Of the step, without what other programs took of it."""
    lines: tuple[PythonLine, ...]
    """The most frequent first."""
    notes: int
    """How many times the sampling thread saw it."""
    cost_ratio: float | None
    """A sampled step against a bare one; sampled steps are used for ``lines`` alone."""


@dataclass(frozen=True)
class Trial:
    """A change that was tried beside the step, in turn with it."""

    change: dict[str, Any]
    label: str
    factor: float | None
    """How many times as fast: median over pairs of steps. None: not tried, ``why_not`` says why."""
    low: float | None
    """Slowest and fastest pair, without the outermost fifth at each end."""
    high: float | None
    pairs: int
    per: Literal["step", "sample"]
    """What is compared: the time of a step, or of a sample where the batch changes."""
    why_not: str = ""


@dataclass(frozen=True)
class Operators:
    """The flat table: operators, largest self time first, then the ranges around them."""

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
    """All frames of the program, the innermost first."""
    is_operator: tuple[bool, ...]
    """Not a range: the self time of a range is Python between the operators."""


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
    disturbed: bool = False
    """Other programs took the processor away for more than 5 % of it."""


@dataclass(frozen=True)
class Overhead:
    """What looking costs."""

    bare_s: Spread
    """Steps without any instrument."""
    profiled_s: Spread
    """Steps with the profiler on."""
    ratio: float
    """Median against median, of steps that were left alone."""
    events_per_step: int
    marked_s: float | None
    """The one step in which modules and lines were recorded; in no other number. None where that is not possible."""
    steady: bool = True
    """The bare steps agree well enough to be compared."""


@dataclass(frozen=True)
class Verdict:
    """What the step is bound by."""

    bound: Literal["host", "device", "copies", "input"]
    text: str
    shares: dict[str, float]
    """Share of the step, by what it could be bound by."""
    next_change: dict[str, Any]
    """Knobs of the change that helped most when it was tried; empty when none did."""
    next_label: str
    next_reason: str
    """What the trials gave."""
    withheld: str = ""
    """Why nothing is said about ``bound``: the steps do not agree, since the machine is busy."""


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
    """The mean of the profiled steps, so that the tables add up to it. None when a program ended before."""
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
    threads: int | None = None
    """Of the step on the CPU: as many as a bare program has. None when nothing was measured."""
    backends: tuple[str, ...] = ()
    """Which library ran convolutions, recurrent layers and attention, as far as the names of the operators say."""
    dispatch: Dispatch | None = None
    tiny_share: float | None = None
    """Of the calls of operators: those that are mostly dispatch."""
    python: PythonTime | None = None
    trials: tuple[Trial, ...] = ()
    busy: str = ""
    """What says that the machine is busy; empty when the steps were left alone."""
    stateful: bool = False
    """The optimizer keeps state, which its first step creates."""
    point: str = ""
    """Of a preset: which finding is its point."""
