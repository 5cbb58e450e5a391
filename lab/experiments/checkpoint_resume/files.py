"""Ways of writing and reading a file, each tried now, and which objects ``weights_only`` refuses."""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime
import io
import pathlib
import random
import re
import sys
import types
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from lab.experiments.checkpoint_resume.keys import plain
from lab.records.resume import FileCase, LoadCase
from lab.workloads.resumable_training import file_of

FLOATS, FEW = 100_000, 10
_GLOBAL = re.compile(r"GLOBAL ([\w.]+) was not an allowed global")


def file_cases() -> Iterator[FileCase]:
    """Sizes first, then what refuses to load."""
    big = torch.zeros(FLOATS)
    yield _written("a view of 10 floats", big[:FEW], "torch.save(big[:10], file)")
    yield _written("its clone", big[:FEW].clone(), "torch.save(big[:10].clone(), file)")
    yield _written("two names of one tensor", {"a": big, "b": big}, 'torch.save({"a": big, "b": big}, file)')
    yield _written("two tensors", {"a": big, "b": big.clone()}, 'torch.save({"a": big, "b": big.clone()}, file)')
    whole = file_of({"weight": torch.ones(1000)})
    cut = whole[: len(whole) // 2]
    yield _read("half of a file", cut, "torch.load(file)")
    forged = from_cuda(file_of({"weight": torch.ones(2)}))
    if not torch.cuda.is_available():
        yield _read("a file written on a GPU", forged, "torch.load(file)")
    yield _read("the same, mapped to the CPU", forged, 'torch.load(file, map_location="cpu")', map_location="cpu")
    yield _read("the same, shapes only", forged, 'torch.load(file, map_location="meta")', map_location="meta")


def _written(what: str, obj: Any, code: str) -> FileCase:
    file = file_of(obj)
    tensors = list(obj.values()) if isinstance(obj, dict) else [obj]
    holds = sum(t.numel() * t.element_size() for t in tensors)
    return FileCase(what, len(file), f"the tensors have {holds:,} bytes", False, code)


def _read(what: str, file: bytes, code: str, **how: Any) -> FileCase:
    try:
        tensor = torch.load(io.BytesIO(file), **how)["weight"]
    except Exception as error:  # noqa: BLE001 - what it says is what is shown
        return FileCase(what, len(file), f"{type(error).__name__}: {plain(str(error))[:300]}", True, code)
    return FileCase(what, len(file), f"loads: a tensor on {tensor.device}, shape {list(tensor.shape)}", False, code)


def from_cuda(file: bytes) -> bytes:
    """The file of a tensor as a process with a GPU writes it: the device's name in the pickle is another one."""
    result = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(file)) as source,
        zipfile.ZipFile(result, "w", zipfile.ZIP_STORED) as target,
    ):
        for name in source.namelist():
            data = source.read(name)
            if name.endswith("data.pkl"):
                data = data.replace(b"\x03\x00\x00\x00cpu", b"\x06\x00\x00\x00cuda:0")
            target.writestr(name, data)
    return result.getvalue()


_TRAIN = """
import dataclasses, enum

class Colour(enum.Enum):
    RED = 1

@dataclasses.dataclass
class Config:
    lr: float = 0.1
"""


@contextlib.contextmanager
def a_training_script() -> Iterator[types.ModuleType]:
    """A module ``train`` with classes of its own, as long as it is needed."""
    before = sys.modules.get("train")
    module = types.ModuleType("train")
    sys.modules["train"] = module
    try:
        exec(_TRAIN, module.__dict__)
        yield module
    finally:
        del sys.modules["train"]
        if before is not None:
            sys.modules["train"] = before


_Made = Callable[[], Any]


def _optimizer() -> torch.optim.Optimizer:
    return torch.optim.Adam([nn.Parameter(torch.ones(1))])


_OBJECTS: dict[str, tuple[_Made, str]] = {
    "a state dict of a model": (lambda: nn.Linear(2, 2).state_dict(), ""),
    "a state dict of an optimizer": (lambda: _optimizer().state_dict(), ""),
    "a state dict of a schedule": (
        lambda: torch.optim.lr_scheduler.CosineAnnealingLR(_optimizer(), 5).state_dict(),
        "",
    ),
    "Python's generator state": (random.getstate, ""),
    "dict, list, set, numbers, bytes": (lambda: {"a": [1, 2.0, 1j, True, None], "b": {1}, "c": b"x"}, ""),
    "OrderedDict and Counter": (lambda: (collections.OrderedDict(a=1), collections.Counter("ab")), ""),
    "dtype, device, Size, Parameter": (
        lambda: (torch.float32, torch.device("cpu"), torch.Size([1]), nn.Parameter(torch.ones(1))),
        "",
    ),
    "a whole module": (
        lambda: nn.Linear(2, 2),
        "Save model.state_dict(), build the model from its code, then load_state_dict.",
    ),
    "numpy scalar": (lambda: np.float64(1.0), "Store float(value)."),
    "numpy array": (lambda: np.ones(3), "Store torch.from_numpy(array)."),
    "numpy's generator state": (
        lambda: np.random.RandomState(0).get_state(),
        "Store its array as torch.from_numpy(state[1]) and the rest as plain numbers.",
    ),
    "argparse.Namespace": (lambda: argparse.Namespace(lr=0.1), "Store vars(args), a plain dict."),
    "dataclass": (lambda: sys.modules["train"].Config(), "Store dataclasses.asdict(config)."),
    "enumeration": (lambda: sys.modules["train"].Colour.RED, "Store its name or value."),
    "pathlib.Path": (lambda: pathlib.PurePosixPath("x"), "Store str(path)."),
    "datetime": (lambda: datetime.datetime(2026, 1, 1), "Store when.isoformat()."),
    "defaultdict": (lambda: collections.defaultdict(int), "Store dict(counts)."),
}


def load_cases() -> Iterator[LoadCase]:
    """Each kind of object saved, its globals listed without running it, and loaded."""
    for what, (make, repair) in _OBJECTS.items():
        with a_training_script():
            file = file_of({"entry": make()})
            unsafe = unsafe_globals(file)
            message = refusal_of(file)
        yield LoadCase(
            what=what,
            global_=unsafe[0] if unsafe else "",
            refused=bool(message),
            repair=repair if message else "",
            message=message[:400],
        )


def refusal_of(file: bytes) -> str:
    """Why ``torch.load`` with ``weights_only`` refuses the file; empty where it loads."""
    try:
        torch.load(io.BytesIO(file), weights_only=True)
    except Exception as error:  # noqa: BLE001 - what it says is what is shown
        return plain(str(error)) or type(error).__name__
    return ""


def unsafe_globals(file: bytes) -> list[str]:
    """Names that the pickle of a file asks for and torch does not allow. Nothing of the file runs."""
    with contextlib.suppress(Exception):
        return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(file)))
    return []


def refused_global(message: str) -> str:
    """The name in torch's refusal; empty where it names none."""
    found = _GLOBAL.search(plain(message))
    return found[1] if found else ""
