"""What would be other bytes on a CUDA device: known facts and the model of its allocator, nothing measured.

Sources: aten/src/ATen/cuda/CublasHandlePool.cpp (workspace), ATen/native/Dropout.cpp and cuda/Dropout.cu (masks),
the autocast op reference of PyTorch's documentation (operations in float32), c10/cuda/CUDACachingAllocator.cpp (blocks).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lab.experiments.memory_timeline.schema import Params
from lab.experiments.memory_timeline.tracking import Tracked
from lab.instruments.memory.ledger import Storage
from lab.instruments.memory.timeline import peak
from lab.records.memory import AllocatorModel, CudaDifference

CUBLAS_BYTES, CUBLAS_90_BYTES = 4096 * 1024 * 2 + 16 * 1024 * 8, 4096 * 1024 * 8
"""Per handle and stream, on compute capability 9.0 the second; CUBLAS_WORKSPACE_CONFIG sets another."""
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "_addmm_activation", "matmul")
_FLOAT32_ON_CUDA = ("native_layer_norm", "_softmax", "_log_softmax")
_LOW = ("bfloat16", "float16")


def cuda_differences(params: Params, tracked: Tracked, models: Sequence[AllocatorModel]) -> tuple[CudaDifference, ...]:
    """Bytes that the peak would have more or less, one row a reason; none for a run on CUDA."""
    return tuple(_rows(params, tracked, models)) if params.device == "cpu" else ()


def _rows(params: Params, tracked: Tracked, models: Sequence[AllocatorModel]) -> Iterator[CudaDifference]:
    alive = alive_at_peak(tracked)
    masks = sum(s.bytes - s.bytes // _width(s) for s in alive if is_dropout_mask(tracked, s))
    if masks:
        yield CudaDifference(
            "dropout masks",
            -masks,
            "known",
            "A mask has 1 byte an element there; the CPU keeps it in the type of its input.",
        )
    raised = sum(s.bytes for s in alive if s.op_name in _FLOAT32_ON_CUDA and s.dtype.endswith(_LOW))
    if raised and "autocast" in params.precision:
        text = (
            "layer_norm and softmax give float32 under autocast there, and 2 bytes an element here. At least so much."
        )
        yield CudaDifference("float32 under autocast", raised, "known", text)
    workspaces = sum(s.bytes for s in alive if s.static == "workspaces")
    if workspaces:
        text = "Packed weights and buffers of this CPU's kernels. Kernels of CUDA have others, of sizes that are not known here."
        yield CudaDifference("workspaces of the CPU", -workspaces, "known", text)
    if any(operation.name in _PRODUCTS for operation in tracked.reading.operations):
        text = f"For good, once a process has multiplied matrices; {CUBLAS_90_BYTES:,} B on compute capability 9.0."
        yield CudaDifference("workspace of cuBLAS", CUBLAS_BYTES, "known", text)
    fixed = next((model for model in models if not model.expandable), None)
    if fixed:
        rounding = fixed.allocated_peak_bytes - fixed.requested_peak_bytes
        yield CudaDifference("rounding to blocks", rounding, "model", "Blocks are multiples of 512 B.")
        reserve = fixed.reserved_peak_bytes - fixed.allocated_peak_bytes
        yield CudaDifference(
            "reserved, not allocated", reserve, "model", "Free blocks in segments of 2 MiB, 20 MiB or more."
        )
    text = "Hundreds of MiB, by device, driver and loaded kernels; outside of what PyTorch counts, inside of what nvidia-smi shows."
    yield CudaDifference("context", None, "known", text)


def alive_at_peak(tracked: Tracked) -> list[Storage]:
    """What the peak is made of."""
    reading = tracked.reading
    most = peak(reading, reading.instants)
    event = next(event for op, event in reading.instants if op == most.index)
    numbers = {span.storage for span in reading.spans if span.start <= event < span.end}
    return [reading.storages[number] for number in sorted(numbers)]


def is_dropout_mask(tracked: Tracked, storage: Storage) -> bool:
    """Made empty, then filled with 0 and 1: what dropout does where it has no kernel of its own."""
    operations = tracked.reading.operations
    return (
        storage.op_name == "empty_like"
        and 0 <= storage.op < len(operations) - 1
        and operations[storage.op + 1].name.startswith("bernoulli_")
    )


def _width(storage: Storage) -> int:
    return 8 if storage.dtype.endswith("float64") else 2 if storage.dtype.endswith(_LOW) else 4
