"""What the experiment takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lab.contract import Fault, Knob, Limits, ParamsError, check, knob
from lab.instruments.profiling.ceilings import Ceilings
from lab.instruments.profiling.step_clock import Spread
from lab.instruments.profiling.tables import Operators
from lab.workloads.models import HEAD_WIDTH

TRAPS = (
    "none", "clocks", "warm_up", "self_total", "inside_with", "nested", "stacks", "schedule", "shapes", "memory",
    "tiny_operations", "sort_key", "export_twice", "no_device", "step_rows", "backward_rows", "labels",
)  # fmt: skip
MOST_PARAMETERS = 60_000_000
"""Of one of the lab's models: parameters, gradients and Adam state are then 1 GB."""


@dataclass(frozen=True)
class Params:
    """The step to profile."""

    model: str = knob("gpt", choices=("mlp", "cnn", "gpt", "lstm", "own"))
    """What is trained. own: your program defines `model` and `batch`."""
    layers: int = knob(2, low=1, high=48)
    """Blocks of the model."""
    width: int = knob(128, low=8, high=4096)
    """Features; channels of the cnn. gpt: up to 127, or a multiple of its heads of 64."""
    batch: int = knob(8, low=1, high=4096)
    """Samples in a step."""
    seq: int = knob(64, low=1, high=1024)
    """Tokens or time steps of gpt and lstm."""
    steps: int = knob(5, low=1, high=30)
    """Steps with the profiler, and as many without."""
    warmup: int = knob(3, low=0, high=20)
    """Steps after the first that are drawn but do not count."""
    precision: str = knob("fp32", choices=("fp32", "bf16_autocast", "fp16_autocast", "bf16"))
    """bf16: parameters too. Autocast keeps them in fp32."""
    optimizer: str = knob("adam", choices=("sgd", "momentum", "adam", "adamw"))
    """Update rule."""
    optimizer_impl: str = knob("forloop", choices=("forloop", "foreach", "fused"))
    """One parameter after the other, lists of them, or one kernel."""
    set_to_none: bool = knob(True)
    """zero_grad drops the gradients instead of filling them with zeros."""
    compile: bool = knob(False)
    """torch.compile the model."""
    channels_last: bool = knob(False)
    """Memory format of images: matters for the cnn only."""
    workers: int = knob(0, low=0, high=8)
    """Processes of the DataLoader."""
    pin_memory: bool = knob(False)
    """Page-locked batches. Matters with a CUDA device only."""
    decode_us: int = knob(0, low=0, high=20_000, unit="µs")
    """Work in Python for each sample, which stands for reading and decoding it."""
    group_by: str = knob("name", choices=("name", "shape", "module", "stack"))
    """What one row of the operator table is."""
    trap: str = knob("none", choices=TRAPS)
    """A way to read a profile wrong, tried beside the run."""
    code: str = knob("", program=Limits(wall_s=30.0, memory_bytes=2 << 30))
    """For model = own: a program that defines `model` and `batch`, and perhaps `loss(model, batch)`."""
    seed: int = knob(0, low=0, high=2**31 - 1)
    """Seed of every random generator."""
    device: str = knob("cpu", choices=("cpu", "cuda"))
    """Where the step runs."""

    def __post_init__(self) -> None:
        check(self)
        heads = max(1, self.width // HEAD_WIDTH)
        if self.model == "gpt" and self.width % heads:
            near = self.width // HEAD_WIDTH * HEAD_WIDTH
            raise ParamsError(
                f"width = {self.width} cannot be cut into {heads} heads; take {near} or {near + HEAD_WIDTH}"
            )
        weights = {"mlp": 1, "cnn": 9, "gpt": 12, "lstm": 8}.get(self.model, 0) * self.layers * self.width**2
        if weights > MOST_PARAMETERS:
            raise ParamsError(
                f"{self.model} with layers = {self.layers} and width = {self.width} has some {weights / 1e6:,.0f} million "
                f"parameters; the limit is {MOST_PARAMETERS / 1e6:,.0f} million. Take fewer layers or less width"
            )
        if self.model == "own" and self.compile:
            raise ParamsError(
                "compile = true needs a compiler, which a typed program has not. Choose one of the other models"
            )


_NOT_OWN = ("layers", "width", "batch", "seq", "compile", "channels_last", "workers", "pin_memory", "decode_us")


def offered(values: Mapping[str, Any], k: Knob) -> Knob | None:
    """The visitor's own model brings its sizes and its batch; the others need no program."""
    own = values["model"] == "own"
    if k.name == "code":
        return k if own else None
    if own and k.name in _NOT_OWN:
        return None
    if k.name == "seq" and values["model"] not in ("gpt", "lstm"):
        return None
    if k.name == "channels_last" and values["model"] != "cnn":
        return None
    return k


@dataclass(frozen=True)
class Step:
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
    parts: Step | None
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
    """Instants of the memory curve; at most ``timeline.INSTANTS``, peak and valley of each bucket kept."""
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
class Result:
    """Where the step spends its time."""

    step: Step | None
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
