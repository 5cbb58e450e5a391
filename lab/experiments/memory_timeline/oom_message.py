"""The message of torch.OutOfMemoryError, number by number. Both forms: since 2.1, and the one before."""

from __future__ import annotations

import re

from lab.quantities import bytes_text
from lab.records.memory import OomMessage, OomNumber

_SIZE = r"([\d.]+) ?(bytes|KiB|MiB|GiB|TiB)"
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_NUMBERS = (
    ("asked for", (rf"Tried to allocate {_SIZE}",), "The one request that failed: rarely what fills the memory."),
    ("capacity", (rf"total capacity of {_SIZE}", rf"{_SIZE} total capacity"), "Of the device."),
    ("free on the device", (rf"of which {_SIZE} is free", rf"{_SIZE} free"), "What the driver could still give."),
    ("in use by this process", (rf"this process has {_SIZE} memory in use", rf"including non-PyTorch memory, this process has {_SIZE}"), "Context, libraries and everything that PyTorch reserved."),
    ("allowed", (rf"{_SIZE} allowed",), "The share that set_per_process_memory_fraction leaves to this process."),
    ("allocated by PyTorch", (rf"allocated memory {_SIZE} is allocated by PyTorch", rf"{_SIZE} already allocated"), "Blocks of live tensors."),
    ("reserved and not allocated", (rf"{_SIZE} is reserved by PyTorch but unallocated",), "Free blocks inside the segments of the allocator: its cache."),
    ("reserved", (rf"{_SIZE} reserved in total by PyTorch",), "Segments of the allocator, free blocks included."),
)  # fmt: skip


def taken_apart(message: str) -> OomMessage | None:
    """None where the text is no such message."""
    found: dict[str, int] = {}
    numbers = []
    for name, patterns, meaning in _NUMBERS:
        match = next((m for pattern in patterns if (m := re.search(pattern, message, re.IGNORECASE))), None)
        if match:
            found[name] = round(float(match[1]) * _UNITS[match[2]])
            numbers.append(OomNumber(name, found[name], meaning))
    if "asked for" not in found or len(numbers) < 2:
        return None
    if "reserved" in found and "allocated by PyTorch" in found:
        found["reserved and not allocated"] = found["reserved"] - found["allocated by PyTorch"]
        meaning = "Reserved less allocated: the cache."
        numbers.append(OomNumber("reserved and not allocated", found["reserved and not allocated"], meaning))
    others = _others(found)
    if others is not None:
        numbers.append(
            OomNumber("neither free nor PyTorch's", others, "Contexts, libraries, and other processes on the device.")
        )
    return OomMessage(tuple(numbers), *_verdict(found, others))


def _others(found: dict[str, int]) -> int | None:
    if not {"capacity", "free on the device", "allocated by PyTorch", "reserved and not allocated"} <= found.keys():
        return None
    ours = found["allocated by PyTorch"] + found["reserved and not allocated"]
    return max(0, found["capacity"] - found["free on the device"] - ours)


def _verdict(found: dict[str, int], others: int | None) -> tuple[str, str]:
    asked, cached = found["asked for"], found.get("reserved and not allocated", 0)
    allocated, capacity = found.get("allocated by PyTorch", 0), found.get("capacity", 0)
    if cached >= asked:
        return (
            f"{bytes_text(cached)} are reserved and free, more than the {bytes_text(asked)} asked for, and no one block of them "
            "was large enough: fragmentation.",
            "Set PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before 2.10), and keep sizes from changing between steps.",
        )
    if others is not None and others > max(allocated, capacity // 4):
        return (
            f"{bytes_text(others)} belong neither to live tensors nor to PyTorch's cache: other processes or libraries hold them.",
            "See who is on the device with nvidia-smi; end what is not needed.",
        )
    if capacity and allocated + asked > capacity:
        return (
            f"Live tensors and the request together are {bytes_text(allocated + asked)}, more than the device has.",
            "No setting of the allocator helps: make what is alive smaller.",
        )
    return (
        f"Live tensors hold {bytes_text(allocated)} of the device; the cache has less free than was asked for.",
        "Make what is alive smaller; emptying the cache gives nothing back that the allocator would not have given itself.",
    )
