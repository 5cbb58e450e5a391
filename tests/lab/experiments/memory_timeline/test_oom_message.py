"""Out-of-memory messages in all their forms, number by number; sizes and processes are made up."""

from __future__ import annotations

import pytest

from lab.experiments.memory_timeline.oom_message import taken_apart

GIB, MIB = 1 << 30, 1 << 20
HEAD = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked}. GPU 1 has a total capacity of {capacity} of which {free} is free. "
TAIL = (
    "Of the allocated memory {allocated} is allocated by PyTorch, {pools}and {cached} is reserved by PyTorch but unallocated. If reserved "
    "but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation"
)


def message(between: str = "", pools: str = "", **sizes: str) -> str:
    usual = {
        "asked": "2.00 GiB",
        "capacity": "80.00 GiB",
        "free": "1.00 GiB",
        "allocated": "70.00 GiB",
        "cached": "1.50 GiB",
    }
    return (HEAD + between + TAIL).format(pools=pools, **(usual | sizes))


def numbers(text: str) -> dict[str, int]:
    found = taken_apart(text)
    assert found is not None
    return {number.name: number.bytes for number in found.numbers}


THIS = "Including non-PyTorch memory, this process has 72.25 GiB memory in use. "


def test_every_number_of_the_usual_form():
    assert numbers(message(THIS)) == {
        "asked for": 2 * GIB, "capacity": 80 * GIB, "free on the device": GIB, "in use by this process": 72 * GIB + GIB // 4,
        "allocated by PyTorch": 70 * GIB, "reserved and not allocated": GIB + GIB // 2,
        "this process, not PyTorch's": 3 * GIB // 4, "neither free nor PyTorch's": 7 * GIB + GIB // 2,
    }  # fmt: skip


def test_other_processes_and_line_breaks():
    text = message("Process 4711 has 20.00 GiB memory in use. Process 4712 has 57.50 GiB memory in use. " + THIS)
    found = numbers(text.replace(". ", ".\n  "))
    assert found["in use by process 4711"] == 20 * GIB
    assert found["in use by process 4712"] == 57 * GIB + GIB // 2
    assert found["in use by this process"] == 72 * GIB + GIB // 4


def test_private_pools_are_named_in_the_verdict():
    text = message(THIS, "with 12.00 GiB allocated in private pools (e.g., CUDA Graphs), ", cached="18.00 GiB")
    assert numbers(text)["in private pools"] == 12 * GIB
    found = taken_apart(text)
    assert found is not None
    assert "private pools" in found.verdict


def test_a_share_that_is_allowed():
    text = message("40.00 GiB allowed; ", free="30.00 GiB", allocated="39.00 GiB", cached="0 bytes", asked="2.00 GiB")
    found = taken_apart(text)
    assert found is not None
    assert numbers(text)["allowed"] == 40 * GIB
    assert "may take 40.00 GiB" in found.verdict


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"asked": "130206.04 GiB"}, "more than the whole device"),
        ({"cached": "2.50 GiB"}, "fragmentation"),
        ({"allocated": "10.00 GiB", "cached": "512.00 MiB"}, "other processes"),
        ({"allocated": "79.00 GiB", "cached": "10.00 MiB", "free": "20.00 MiB"}, "more than the device has"),
        ({"allocated": "70.00 GiB"}, "less free than was asked for"),
    ],
)
def test_the_verdict_follows_from_the_numbers(sizes, words):
    found = taken_apart(message(**sizes))
    assert found is not None
    assert words in found.verdict


def test_xpu_and_mps_and_the_host():
    xpu = (
        message().replace("CUDA", "XPU").replace("If reserved", "Please use `empty_cache` to release all. If reserved")
    )
    assert numbers(xpu)["allocated by PyTorch"] == 70 * GIB
    mps = "MPS backend out of memory (MPS allocated: 17.50 GB, other allocations: 512.00 KB, max allowed: 18.13 GB). Tried to allocate 1.00 GB on private pool."
    found = numbers(mps)
    assert found["asked for"] == GIB
    assert found["other allocations"] == 1 << 19
    assert found["allowed"] == round(18.13 * GIB)
    host = "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000 bytes. Error code 12"
    assert numbers(host) == {"asked for": 4_000_000_000}


def test_planted_numbers_of_another_unit_are_seen():
    assert numbers(message(asked="2.00 MiB"))["asked for"] == 2 * MIB != numbers(message())["asked for"]
