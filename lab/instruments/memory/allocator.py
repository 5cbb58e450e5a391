"""What the CUDA allocator and the driver say, to set beside the track: requested, allocated, reserved.

``requested_bytes`` is the sum of the sizes asked for and compares with the track; blocks are multiples of 512 bytes;
reserved blocks that are free are the cache. Peaks of the four may fall at different moments.
"""

from __future__ import annotations

import base64
import pickle  # written only: the format of PyTorch's memory viewer; nothing here ever reads one
import zlib
from dataclasses import dataclass
from typing import Any

import torch

from lab.instruments.memory.fragmentation import fragmentation
from lab.records.memory import Fragmentation
from lab.torch_private import cuda_snapshot, missing, record_cuda_history

_RECORDS = "CUDA allocator records"
"""Without them there is no snapshot; the peaks are there all the same."""
_SNAPSHOT_BYTES = 12 << 20
"""Largest compressed snapshot that is passed on."""


@dataclass
class AllocatorReading:
    """Peaks since ``start``."""

    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    driver_bytes: int
    snapshot: str
    fragmentation: Fragmentation | None = None


def start() -> None:
    """Warm up what allocates once for good (cuBLAS), then begin counting."""
    x = torch.ones(64, 64, device="cuda", requires_grad=True)
    (x @ x).sum().backward()
    del x
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    if not missing(_RECORDS):
        record_cuda_history(True)


def stop() -> AllocatorReading:
    """Peaks since ``start``, and the snapshot for PyTorch's viewer."""
    torch.cuda.synchronize()
    snapshot, pieces = "", None
    if not missing(_RECORDS):
        try:
            recorded = cuda_snapshot()
            snapshot, pieces = packed(recorded), fragmentation(_of_device(recorded["segments"]))
        finally:
            record_cuda_history(False)
    peaks = torch.cuda.memory_stats()
    requested, allocated, reserved = (
        int(peaks[f"{name}_bytes.all.peak"]) for name in ("requested", "allocated", "reserved")
    )
    free, total = torch.cuda.mem_get_info()
    return AllocatorReading(requested, allocated, reserved, total - free, snapshot, pieces)


def _of_device(segments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the present device."""
    return [segment for segment in segments if segment["device"] == torch.cuda.current_device()]


def reconciled(tracked_bytes: int, reading: AllocatorReading) -> dict[str, int]:
    """Four lines that sum to what is reserved."""
    return {
        "tensors that the track saw": tracked_bytes,
        "not seen by the dispatcher": reading.requested_bytes - tracked_bytes,
        "rounding to blocks": reading.allocated_bytes - reading.requested_bytes,
        "cached and free": reading.reserved_bytes - reading.allocated_bytes,
    }


def requested_over_time(snapshot: dict[str, Any], device: int = 0, base_bytes: int = 0) -> list[int]:
    """Requested bytes after each event of a snapshot. Both kinds of event carry the requested size."""
    now, found = base_bytes, []
    for event in snapshot["device_traces"][device]:
        if event["action"] in ("alloc", "free_requested"):
            now += event["size"] if event["action"] == "alloc" else -event["size"]
            found.append(now)
    return found


def packed(snapshot: dict[str, Any]) -> str:
    """A pickle as the viewer reads it, compressed; empty when it is too large to pass on."""
    data = zlib.compress(pickle.dumps(snapshot))
    return base64.b64encode(data).decode() if len(data) <= _SNAPSHOT_BYTES else ""
