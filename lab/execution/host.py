"""Facts about the machine, and whether it can contain visitors' programs."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

Mode = Literal["sealed", "gpu", "trusted", "off"]


@dataclass(frozen=True)
class Host:
    """What a measurement ran on; the first thing a worker says."""

    python: str
    torch: str
    platform: str
    cpu: str
    """Model of the processor."""
    cores: int
    """Logical processors that this process may use."""
    threads: int
    """Threads of one operation on the CPU."""
    memory_bytes: int
    """Memory of the machine or of the container, the smaller one; 0 when unknown."""
    cuda: str
    """Name of the CUDA device, empty when there is none."""
    cuda_reason: str
    """Why there is no CUDA device, empty when there is one."""


@dataclass(frozen=True)
class TypedCode:
    """May programs that visitors type run here?"""

    mode: Mode
    available: bool
    reason: str
    """Why not and what to do, for the visitor; empty when available."""


def mode(text: str) -> Mode:
    """The mode that LAB_TYPED_CODE names. Raises ValueError."""
    known: tuple[Mode, ...] = get_args(Mode)
    for name in known:
        if name == text:
            return name
    raise ValueError(f"LAB_TYPED_CODE is {text!r}; it must be one of {', '.join(known)}")


def gpu_memory_bytes() -> int:
    """LAB_GPU_MEMORY_BYTES, what this lab may use of the GPU; 0 for no limit. Raises ValueError."""
    text = os.environ.get("LAB_GPU_MEMORY_BYTES", "")
    if text and not (text.isdigit() and int(text)):
        raise ValueError(f"LAB_GPU_MEMORY_BYTES is {text!r}; it must be a positive whole number of bytes")
    return int(text or 0)


def measure() -> Host:
    """Look at this machine through torch. Creates a CUDA context where there is a device: for worker processes only."""
    import torch

    cuda, cuda_reason = _cuda()
    return Host(
        python=platform.python_version(),
        torch=torch.__version__,
        platform=platform.platform(terse=True),
        cpu=_processor(),
        cores=_cores(),
        threads=torch.get_num_threads(),
        memory_bytes=_memory_bytes(),
        cuda=cuda,
        cuda_reason=cuda_reason,
    )


def _cuda() -> tuple[str, str]:
    import torch

    if not torch.backends.cuda.is_built():
        return "", f"this build of PyTorch ({torch.__version__}) has no CUDA support"
    try:
        torch.cuda.init()
        return torch.cuda.get_device_name(0), ""
    except (RuntimeError, AssertionError) as error:
        return "", str(error).splitlines()[0][:200]


def _processor() -> str:
    about = Path("/proc/cpuinfo")
    if about.exists():
        for line in about.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _memory_bytes() -> int:
    if sys.platform == "win32":
        return 0
    sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.exists() and (text := limit.read_text().strip()).isdigit():
        sizes.append(int(text))
    return min(sizes)
