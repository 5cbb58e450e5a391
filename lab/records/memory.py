"""Records of what was in memory and when. Everything that looks at memory speaks in these. All sizes in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lab.contract import Fault
from lab.records.memory_plan import CheckpointPlan
from lab.records.program import Said

CATEGORY_TEXTS = {
    "parameters": "parameters",
    "buffers": "buffers",
    "optimizer_state": "optimizer state",
    "gradients": "gradients",
    "weight_casts": "weight casts",
    "saved": "saved activations",
    "recomputed": "recomputed",
    "inputs": "inputs",
    "held": "held by the program",
    "temporaries": "temporaries",
    "workspaces": "workspaces",
}
"""The categories as they are printed."""
CATEGORIES = tuple(CATEGORY_TEXTS)
"""In stacking order from the bottom. A storage is counted in the first one that fits; see ``lab.instruments.memory``."""


@dataclass(frozen=True)
class Timeline:
    """Columns, one row an operation of the dispatcher: the moment at which most was alive while it ran.

    The first row is the state before the first operation.
    """

    index: tuple[int, ...]
    """Number of the operation; -1 before the first."""
    op: tuple[str, ...]
    phase: tuple[str, ...]
    """start, zero_grad, forward, backward, recompute, optimizer."""
    module: tuple[str, ...]
    step: tuple[int, ...]
    """Training step, from 0."""
    line: tuple[int | None, ...]
    """Line of the visitor's program."""
    parameters: tuple[int, ...]
    buffers: tuple[int, ...]
    optimizer_state: tuple[int, ...]
    gradients: tuple[int, ...]
    weight_casts: tuple[int, ...]
    saved: tuple[int, ...]
    recomputed: tuple[int, ...]
    inputs: tuple[int, ...]
    held: tuple[int, ...]
    """The program keeps it, by a name or in an object: it was there before the run, or outlives its phase."""
    temporaries: tuple[int, ...]
    """Born and gone within one phase."""
    workspaces: tuple[int, ...]
    """In the allocator, and not seen by the dispatcher: 0 in a prediction."""
    unseen: tuple[int, ...] | None = None
    """The same as ``workspaces``; None when it was not measured."""

    def totals(self) -> list[int]:
        """Bytes over all categories, a row each."""
        return [sum(row) for row in zip(*(getattr(self, category) for category in CATEGORIES), strict=True)]


@dataclass(frozen=True)
class Lives:
    """Columns, one row a piece of memory with one category, alive in rows ``first`` up to but not including ``end``."""

    first: tuple[int, ...]
    end: tuple[int, ...]
    """Rows of the timeline."""
    category: tuple[int, ...]
    """Position in ``CATEGORIES``."""
    bytes: tuple[int, ...]
    storage: tuple[int, ...]
    """Row of ``Storages``."""


@dataclass(frozen=True)
class Storages:
    """Columns, one row a storage that some row of the timeline saw alive."""

    op: tuple[str, ...]
    """The operation that made it; "before the run" for what was there already."""
    phase: tuple[str, ...]
    module: tuple[str, ...]
    name: tuple[str, ...]
    """Name of the parameter, buffer or input; "cast of weight"; else empty."""
    shape: tuple[str, ...]
    dtype: tuple[str, ...]
    line: tuple[int | None, ...]


@dataclass(frozen=True)
class Owner:
    """Who holds memory at one instant, storages with the same answer taken together."""

    category: str
    module: str
    op: str
    name: str
    """Of the largest storage, when it has one."""
    bytes: int
    count: int


@dataclass(frozen=True)
class Peak:
    """The instant at which most was alive."""

    bytes: int
    index: int
    """Number of the operation."""
    row: int
    """Row of the timeline."""
    op: str
    phase: str
    module: str
    step: int
    categories: dict[str, int]
    owners: tuple[Owner, ...]
    """The largest, largest first."""


@dataclass(frozen=True)
class SavedTensor:
    """One slot in which an autograd node keeps a tensor for backward, at the end of a forward pass."""

    operation: str
    """Class of the node, such as AddmmBackward0."""
    slot: str
    """Name in the derivative formula: self, result, mat2."""
    module: str
    shape: tuple[int, ...] | None
    """None for a placeholder of checkpointing, which has none."""
    dtype: str | None
    bytes: int | None
    """Of the tensor itself; None for a placeholder."""
    storage_bytes: int | None
    """Of the whole storage that it keeps alive."""
    storage: int | None
    """Number of the storage: equal numbers are one piece of memory."""
    holds: str
    """Category of that storage: a saved parameter costs nothing more."""
    kept: bool
    """False: recomputed when backward asks for it."""


@dataclass(frozen=True)
class Kept:
    """Storages that are alive when the last step is over, born in one step at one place and held in one way."""

    step: int
    """In which they were born; -1 for before the run."""
    op: str
    phase: str
    module: str
    line: int | None
    shape: str
    dtype: str
    bytes: int
    count: int
    name: str
    """Path of what holds them, as the program writes it, ``*`` for each index; empty when nothing found does."""
    name_line: int | None
    """Line of the program that stores into it."""
    kind: str
    """variable, attribute, list, dict, closure, hook, context (of a custom Function), or empty."""
    holds: str
    """tensor: the thing itself; view: a smaller view of it; graph: a graph that saved it and that a tensor so named holds."""
    view_bytes: int
    """Of the views, all together; 0 where the holder has it whole."""
    with_graph: bool
    """The tensor that is held has a graph."""


@dataclass(frozen=True)
class CapHit:
    """The first request that did not fit under a cap on what the dispatcher sees."""

    cap_bytes: int
    request_bytes: int
    """Size of the storage that was asked for."""
    alive_bytes: int
    """Alive when it was asked for, without it."""
    index: int
    op: str
    phase: str
    module: str
    step: int
    line: int | None
    shape: str
    dtype: str
    categories: dict[str, int]
    """Alive when it was asked for."""
    owners: tuple[Owner, ...]
    held_by_exception_bytes: int
    """Freed only once the exception, whose traceback holds the frames and their tensors, was let go of."""
    after_bytes: int
    """Alive after that."""


@dataclass(frozen=True)
class Seconds:
    """Time of one step, from runs without the instrument."""

    median: float
    min: float
    max: float
    repeats: int


@dataclass(frozen=True)
class Curve:
    """Total bytes over operations, at most some hundred points: the largest of each stretch."""

    index: tuple[int, ...]
    bytes: tuple[int, ...]


@dataclass(frozen=True)
class Run:
    """One setting beside the others."""

    setting: str
    """Its caption: for the eye only."""
    knobs: dict[str, Any]
    """The values that make it, and by which it is found."""
    square_root: bool
    """Its segments have √n of the n blocks."""
    chosen: bool
    """It is what the controls say."""
    predicted: bool
    peak_bytes: int | None
    """None when it failed, see ``failed``."""
    peak_phase: str
    peak_op: str
    peak_module: str
    categories: dict[str, int]
    """At its peak."""
    saved_bytes: int
    """Kept for backward at the end of the last forward, parameters and inputs not counted."""
    operations: int
    recomputed_ops: int
    segments: int
    """Checkpointed segments."""
    growth_bytes: int
    """What the last step left behind."""
    step_s: Seconds | None
    curve: Curve
    failed: str


@dataclass(frozen=True)
class Change:
    """One knob set differently, and the peak that results."""

    title: str
    knobs: dict[str, Any]
    peak_bytes: int
    saving_bytes: int
    measured: bool
    """False: predicted on fake tensors."""
    fits: bool
    """On the card."""
    step_ratio: float | None = None
    """Time of a step with the change over that without, clocked on a small model of the same kind."""


@dataclass(frozen=True)
class PhasePeak:
    """The largest total in one phase of one step."""

    step: int
    phase: str
    bytes: int


@dataclass(frozen=True)
class Prediction:
    """The same run on tensors without data."""

    peak_bytes: int
    curve: Curve
    same_operations: bool | None
    """Whether both ran the same operations; None when nothing was measured to compare with."""
    largest_gap_bytes: int | None
    """Largest difference at any operation, where they did."""
    assumed_scalars: int
    """Times that the program asked for a value and got 0."""


@dataclass(frozen=True)
class Shard:
    """One rank of several under ZeRO, by formula: each category that is sharded is divided by the ranks."""

    stage: int
    """1: optimizer state, 2: also gradients, 3: also parameters."""
    ranks: int
    peak_bytes: int
    fits: bool
    sent_bytes: int
    """That each rank sends in a step: twice the parameters for stages 1 and 2, three times for 3, times (n - 1) / n."""


@dataclass(frozen=True)
class LargestBatch:
    """The largest batch that fits, by bisection on predictions."""

    batch: int
    """0: not even one sample fits."""
    peak_bytes: int
    """With it; 0 when there is none."""
    next_peak_bytes: int
    """With one sample more, which does not fit."""
    tried: tuple[tuple[int, int], ...]
    """(batch, peak) of every prediction, in order."""
    from_few_blocks: bool
    """The predictions follow few of the equal blocks."""


@dataclass(frozen=True)
class Fit:
    """Does it fit on the card?"""

    card_bytes: int
    peak_bytes: int
    fits: bool
    device: str
    """Whose kernels the answer is for."""
    largest: LargestBatch | None = None
    largest_reason: str = ""
    """Why the largest batch was not looked for; empty otherwise."""
    shards: tuple[Shard, ...] = ()


@dataclass(frozen=True)
class AllocatorModel:
    """The recorded events replayed through the published rules of CUDA's caching allocator: a model, nothing measured."""

    expandable: bool
    index: tuple[int, ...]
    """Operations, thinned."""
    requested: tuple[int, ...]
    allocated: tuple[int, ...]
    reserved: tuple[int, ...]
    requested_peak_bytes: int
    allocated_peak_bytes: int
    reserved_peak_bytes: int
    segments: int
    unused_bytes: int
    """Reserved and not allocated when most was allocated."""
    needed_bytes: int
    """Smallest device, in steps of 2 MiB, on which every request was served."""
    failed_request_bytes: int
    """The request that fails on a device smaller by one step; 0 when there is none."""
    failed_allocated_bytes: int
    failed_reserved_bytes: int
    failed_free_bytes: int
    """Of the device that no block held when it failed."""


@dataclass(frozen=True)
class CudaDifference:
    """What a peak on the CPU would have more or less on a CUDA device: a known fact or the allocator's model, not measured."""

    name: str
    bytes: int | None
    """None where no number is known."""
    known_from: str
    """known, or model."""
    text: str


@dataclass(frozen=True)
class OomNumber:
    """One number of an out-of-memory message."""

    name: str
    bytes: int
    meaning: str


@dataclass(frozen=True)
class OomMessage:
    """An out-of-memory message taken apart."""

    numbers: tuple[OomNumber, ...]
    verdict: str
    repair: str


@dataclass(frozen=True)
class OpDtype:
    """How often an operation of the forward gave this dtype."""

    op: str
    dtype: str
    count: int


@dataclass(frozen=True)
class Fragmentation:
    """What the segments of an allocator are made of at one moment."""

    segments: int
    reserved_bytes: int
    allocated_bytes: int
    rounding_bytes: int
    """Inside given blocks, beyond what was asked for."""
    pending_bytes: int
    """Freed by the program, and still in use on another stream."""
    releasable_bytes: int
    """Whole free segments: what empty_cache() gives back to the driver."""
    between_bytes: int
    """Free blocks in segments that are in use: no other process and no larger request can have them."""
    largest_free_small_bytes: int
    largest_free_large_bytes: int
    """Of each pool: a larger request needs a new segment."""


@dataclass(frozen=True)
class Allocator:
    """The CUDA allocator's own peaks beside the track's; ``lines`` sum to ``reserved_bytes``."""

    tracked_bytes: int
    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    driver_bytes: int
    """In use on the device, other processes included."""
    lines: dict[str, int]
    snapshot: str
    """For PyTorch's memory viewer: a pickle, zlib-compressed, base64. Empty when there is none."""
    fragmentation: Fragmentation | None = None
    """When the run was over, from the snapshot."""


OOM = "the run out of memory"
"""As it is called where it was skipped."""


@dataclass(frozen=True)
class Skipped:
    """What was not tried, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Extrapolation:
    """A deep model of equal blocks, predicted from few: the peaks of three depths lie on one line, to the byte."""

    blocks: int
    depths: tuple[int, ...]
    """Blocks of the models that were predicted."""
    peak_bytes: int
    step: int
    phase: str
    categories: dict[str, int]
    """At the peak."""
    phase_peaks: tuple[PhasePeak, ...]
    parameters: int
    """Numbers, not bytes."""
    confirmed: bool | None = None
    """Whether the prediction of all blocks has the same peak; None while it is not there."""


@dataclass(frozen=True)
class MemoryResult(Said):
    """What was alive at every operation."""

    timeline: Timeline
    lives: Lives
    storages: Storages
    peak: Peak
    phase_peaks: tuple[PhasePeak, ...]
    start: dict[str, int]
    """Bytes per category before the first operation."""
    end: dict[str, int]
    """After the last."""
    step_ends: tuple[int, ...]
    """Bytes alive when each step was over."""
    operations: int
    recomputed_ops: int
    parameters: int
    """Numbers, not bytes."""
    frozen: int
    """Of them those that require no gradient."""
    frozen_gradient_bytes: int
    """Gradients that frozen parameters still have at the end."""
    without_gradient: int
    """Parameter tensors that require a gradient and have none at the end of a training run."""
    segments: int
    """Checkpointed segments; 0 when nothing is checkpointed."""
    predicted: bool
    """The timeline itself is of tensors without data."""
    predicted_reason: str
    """Why it was predicted although a run was asked for; empty otherwise."""
    assumed_scalars: int
    runs: tuple[Run, ...]
    changes: tuple[Change, ...]
    """What would lower this peak, the largest saving first."""
    saved: tuple[SavedTensor, ...]
    """Of the last forward."""
    saved_bytes: int
    """Of the distinct storages that only autograd keeps."""
    dtypes: tuple[OpDtype, ...]
    kept: tuple[Kept, ...]
    """Alive after the last step besides parameters, their gradients, buffers, inputs and optimizer state; largest first."""
    unseen_bytes: int | None
    """At the worst instant: in the allocator, and not seen by the dispatcher."""
    unseen_reason: str
    """Why it was not measured; empty otherwise."""
    bare_peak_bytes: int | None
    """Peak of the same training without the instrument, from the allocator's events; None as ``unseen_bytes`` is."""
    step_s: Seconds | None
    tracked_step_s: float | None
    """One step with the instrument: what it costs."""
    step_s_reason: str
    prediction: Prediction | None
    prediction_reason: str
    extrapolation: Extrapolation | None
    skipped: tuple[Skipped, ...]
    """Comparisons and changes that did not fit the time, or were not asked for."""
    complete: bool
    """False: a part that was handed over while the run went on."""
    fit: Fit
    oom: CapHit | None
    allocator: Allocator | None
    allocator_reason: str
    allocator_models: tuple[AllocatorModel, ...]
    """With fixed and with expandable segments."""
    message: OomMessage | None
    """The pasted message, taken apart."""
    on_cuda: tuple[CudaDifference, ...]
    """Beside the peak of a run or prediction for the CPU."""
    plan: CheckpointPlan | None
    plan_reason: str
    """Why there is none; empty otherwise."""
    device: str
    fault: Fault | None
