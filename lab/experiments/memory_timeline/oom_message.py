"""The message of torch.OutOfMemoryError, number by number.

Forms: CUDA, HIP and XPU since 2.1, with its optional parts (what each process has in use, a share that is allowed, private
pools of CUDA graphs), the one before, MPS, and the allocator of the CPU. Line breaks inside are as good as spaces.
"""

from __future__ import annotations

import re

from lab.quantities import bytes_text
from lab.records.memory import OomMessage, OomNumber

_SIZE = r"([\d.]+) ?(bytes|B|[KMGT]i?B)\b"
_UNITS = {"bytes": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
"""All units of these messages are binary, also where they are written GB."""
_NUMBERS = (
    ("asked for", (rf"tried to allocate {_SIZE}",), "The one request that failed: rarely what fills the memory."),
    ("capacity", (rf"total capacity of {_SIZE}", rf"{_SIZE} total capacity"), "Of the device."),
    ("free on the device", (rf"of which {_SIZE} is free", rf"{_SIZE} free"), "What the driver could still give."),
    ("in use by this process", (rf"this process has {_SIZE}",), "Context, libraries and everything that PyTorch reserved."),
    ("allowed", (rf"{_SIZE} allowed", rf"max allowed: {_SIZE}"), "What this process may take: set_per_process_memory_fraction, or the high watermark of MPS."),
    ("allocated by PyTorch", (rf"{_SIZE} is allocated by PyTorch", rf"{_SIZE} already allocated", rf"MPS allocated: {_SIZE}"), "Blocks of live tensors."),
    ("in private pools", (rf"{_SIZE} allocated in private pools",), "Of it, in pools of CUDA graphs: other requests cannot use their free blocks."),
    ("reserved and not allocated", (rf"{_SIZE} is reserved by PyTorch but unallocated",), "Free blocks inside the segments of the allocator: its cache."),
    ("reserved", (rf"{_SIZE} reserved in total by PyTorch",), "Segments of the allocator, free blocks included."),
    ("other allocations", (rf"other allocations: {_SIZE}",), "Of this process on MPS, outside of PyTorch's tensors."),
)  # fmt: skip
_PROCESS = re.compile(rf"\bprocess (\d+) has {_SIZE} memory in use", re.IGNORECASE)
_HOST = re.compile(r"CPUAllocator|alloc_cpu", re.IGNORECASE)
_RESERVED_FREE = "reserved and not allocated"


def taken_apart(message: str) -> OomMessage | None:
    """None where the text is no such message."""
    message = " ".join(message.split())
    found: dict[str, int] = {}
    numbers = []
    for name, patterns, meaning in _NUMBERS:
        match = next((m for pattern in patterns if (m := re.search(pattern, message, re.IGNORECASE))), None)
        if match:
            found[name] = _bytes(match[1], match[2])
            numbers.append(OomNumber(name, found[name], meaning))
    for match in _PROCESS.finditer(message):
        numbers.append(
            OomNumber(f"in use by process {match[1]}", _bytes(match[2], match[3]), "As the driver counts it.")
        )
    if "asked for" not in found or (len(numbers) < 2 and not _HOST.search(message)):
        return None
    if "reserved" in found and "allocated by PyTorch" in found:
        found[_RESERVED_FREE] = found["reserved"] - found["allocated by PyTorch"]
        numbers.append(OomNumber(_RESERVED_FREE, found[_RESERVED_FREE], "Reserved less allocated: the cache."))
    for name, size, meaning in _differences(found):
        found[name] = size
        numbers.append(OomNumber(name, size, meaning))
    return OomMessage(tuple(numbers), *_verdict(found))


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * (_UNITS.get(unit) or _UNITS[unit[0].upper()]))


def _differences(found: dict[str, int]) -> list[tuple[str, int, str]]:
    """What the numbers say together."""
    if not {"allocated by PyTorch", _RESERVED_FREE} <= found.keys():
        return []
    ours, rows = found["allocated by PyTorch"] + found[_RESERVED_FREE], []
    if "in use by this process" in found:
        size = max(0, found["in use by this process"] - ours)
        rows.append(("this process, not PyTorch's", size, "Its context, libraries, and kernels that are loaded."))
    if {"capacity", "free on the device"} <= found.keys():
        size = max(0, found["capacity"] - found["free on the device"] - ours)
        rows.append((_OTHERS, size, "Contexts, libraries, and other processes on the device."))
    return rows


_OTHERS = "neither free nor PyTorch's"


def _verdict(found: dict[str, int]) -> tuple[str, str]:
    asked, cached, others = found["asked for"], found.get(_RESERVED_FREE, 0), found.get(_OTHERS, 0)
    allocated, capacity = found.get("allocated by PyTorch", 0), found.get("capacity", 0)
    if capacity and asked > capacity:
        return (
            f"The one request of {bytes_text(asked)} is more than the whole device has.",
            "Look at the shapes of the operation that asked: a product of two long dimensions, or sizes that are not meant so.",
        )
    if cached >= asked > 0:
        return _in_pieces(found)
    if others > max(allocated, capacity // 4):
        return (
            f"{bytes_text(others)} belong neither to live tensors nor to PyTorch's cache: other processes or libraries hold them.",
            "See who is on the device with nvidia-smi; end what is not needed.",
        )
    limit = found.get("allowed", 0)
    if limit and found.get("free on the device", 0) >= asked and allocated + cached + asked > limit:
        return (
            f"The device has {bytes_text(found['free on the device'])} free, but this process may take {bytes_text(limit)} in all.",
            "Raise the share in set_per_process_memory_fraction, or make what is alive smaller.",
        )
    if capacity and allocated + asked > capacity:
        return (
            f"Live tensors and the request together are {bytes_text(allocated + asked)}, more than the device has.",
            "No setting of the allocator helps: make what is alive smaller.",
        )
    if not allocated:
        return (
            f"The host did not give {bytes_text(asked)}: its memory is full, or a limit on this process is reached.",
            "See what else is in memory; a batch or a data set held whole is the usual cause.",
        )
    return (
        f"Live tensors hold {bytes_text(allocated)} of the device; the cache has less free than was asked for.",
        "Make what is alive smaller; emptying the cache gives nothing back that the allocator would not have given itself.",
    )


def _in_pieces(found: dict[str, int]) -> tuple[str, str]:
    """More is reserved and free than was asked for."""
    free, asked = bytes_text(found[_RESERVED_FREE]), bytes_text(found["asked for"])
    if found.get("in private pools"):
        return (
            f"{free} are reserved and free, more than the {asked} asked for. Blocks in the private pools of CUDA graphs serve only "
            "those graphs, so it is free memory in the wrong pool, or in pieces.",
            "Capture fewer shapes, share one pool among graphs, or set PYTORCH_ALLOC_CONF=expandable_segments:True.",
        )
    return (
        f"{free} are reserved and free, more than the {asked} asked for, and no one block of them was large enough: fragmentation.",
        "Set PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before 2.10), and keep sizes from changing between steps.",
    )
