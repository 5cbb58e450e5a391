"""What the experiment takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lab.contract import Knob, Limits, check, knob
from lab.records.tensors import TensorResult as Result

__all__ = ["DEFAULT_PROGRAM", "DTYPES", "OF_PROGRAM", "Params", "Result", "offered"]

VIEWS = ("lines", "memory", "promotion", "precision", "numpy", "devices", "data")
OF_PROGRAM = ("lines", "memory")
"""Views that run the program."""
DTYPES = (
    *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2"),
)

DEFAULT_PROGRAM = """x = torch.arange(12.0).reshape(3, 4)
row = x[1]
t = x.t()
flat = t.reshape(12)
x += 100
twice = 2 * row
"""


@dataclass(frozen=True)
class Params:
    """What is looked at. Each view uses some of the knobs."""

    view: str = knob("lines", choices=VIEWS)
    """What to look at."""
    code: str = knob(DEFAULT_PROGRAM, program=Limits(wall_s=6.0, memory_bytes=1 << 30), max_bytes=1 << 16)
    """A PyTorch program. `torch`, `nn`, `F` and `math` are there without import."""
    dtype_a: str = knob("float32", choices=DTYPES)
    """Of the left tensor."""
    dtype_b: str = knob("float64", choices=DTYPES)
    """Of the right tensor."""
    count: int = knob(100_000, low=100, high=1_000_000)
    """Numbers that are added."""
    inner: int = knob(1024, low=16, high=16_384)
    """K of the matrix product (32, K) @ (K, 32)."""
    accumulate: str = knob("float32", choices=("float32", "own"))
    """What the products are added up in: float32 as the kernels do, or the format of the matrices."""
    order: str = knob("torch", choices=("torch", "sequential", "sorted", "chunks"))
    """In which order the numbers are added."""
    seed: int = knob(0, low=0, high=2**31 - 1)
    """Seed of every random generator."""
    device: str = knob("cpu", choices=("cpu", "cuda"))
    """Default device of new tensors."""

    def __post_init__(self) -> None:
        check(self)


USED = {
    "promotion": ("dtype_a", "dtype_b"),
    "precision": ("count", "order", "inner", "accumulate"),
}


def offered(values: Mapping[str, Any], k: Knob) -> Knob | None:
    """The knob beside these values; None where it does not matter."""
    view = values["view"]
    if k.name in ("view", "seed", "device") or k.name in USED.get(view, ()):
        return replace(k)
    return k if k.name == "code" and view in OF_PROGRAM else None
