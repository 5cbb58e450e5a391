"""Which ways between NumPy and torch share memory, found by writing on one side and looking at the other."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from lab.contract import Report
from lab.experiments.tensor_anatomy.schema import Params, Result
from lab.records.tensors import Bridge


def measure(params: Params, report: Report) -> Result:
    """Every way in and out."""
    return Result(view="numpy", bridges=(*ways_in(), *ways_out(), *refused(), *mixtures()), device=params.device)


def _ways() -> dict[str, Callable[[Any], torch.Tensor]]:
    return {
        "torch.from_numpy(a)": torch.from_numpy,
        "torch.as_tensor(a)": torch.as_tensor,
        "torch.asarray(a)": torch.asarray,
        "torch.from_dlpack(a)": torch.from_dlpack,
        "torch.frombuffer(a, dtype=torch.float64)": lambda a: torch.frombuffer(a, dtype=torch.float64),
        "torch.tensor(a)": torch.tensor,
        "torch.Tensor(a)": torch.Tensor,
        "torch.as_tensor(a, dtype=torch.float32)": lambda a: torch.as_tensor(a, dtype=torch.float32),
        "torch.asarray(a, copy=True)": lambda a: torch.asarray(a, copy=True),
    }


def ways_in() -> list[Bridge]:
    """A write into the array: does the tensor see it?"""
    import numpy

    found = []
    for call, way in _ways().items():
        array = numpy.arange(3.0)
        try:
            tensor = way(array)
        except Exception as error:  # noqa: BLE001 - what torch refuses is what is shown
            found.append(Bridge(call, None, "", _text(error)))
            continue
        array[0] = 99.0
        found.append(Bridge(call, tensor[0].item() == 99.0, _dtype(tensor), ""))
    return found


def ways_out() -> list[Bridge]:
    """A write into the tensor: does the array see it?"""
    import numpy

    ways: dict[str, Callable[[torch.Tensor], Any]] = {
        "t.numpy()": lambda t: t.numpy(),
        "numpy.asarray(t)": numpy.asarray,
        "t.detach().cpu().numpy()": lambda t: t.detach().cpu().numpy(),
        "t.numpy().copy()": lambda t: t.numpy().copy(),
        "numpy.array(t)": numpy.array,
        "t.tolist()": lambda t: t.tolist(),
    }
    found = []
    with warnings.catch_warnings(action="ignore"):
        for call, way in ways.items():
            tensor = torch.arange(3.0)
            out = way(tensor)
            tensor[0] = 99.0
            found.append(Bridge(call, float(out[0]) == 99.0, str(getattr(out, "dtype", "list")), ""))
    return found


def refused() -> list[Bridge]:
    """What torch does not take or give."""
    import numpy

    tries: dict[str, Callable[[], Any]] = {
        "torch.from_numpy(a[::-1])": lambda: torch.from_numpy(numpy.arange(3.0)[::-1]),
        "torch.from_numpy(big-endian)": lambda: torch.from_numpy(numpy.ones(2, ">f4")),
        "torch.from_numpy(objects)": lambda: torch.from_numpy(numpy.array(["a"], object)),
        "requires_grad tensor .numpy()": lambda: torch.ones(2, requires_grad=True).numpy(),
        "bfloat16 tensor .numpy()": lambda: torch.ones(2, dtype=torch.bfloat16).numpy(),
        "conjugated tensor .numpy()": lambda: torch.ones(2, dtype=torch.complex64).conj().numpy(),
    }
    found = []
    for call, way in tries.items():
        try:
            out = way()
            found.append(Bridge(call, None, str(out.dtype).removeprefix("torch."), "accepted"))
        except Exception as error:  # noqa: BLE001
            found.append(Bridge(call, None, "", _text(error)))
    found.append(_read_only())
    return found


def _read_only() -> Bridge:
    import numpy

    array = numpy.zeros(2)
    array.flags.writeable = False
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        tensor = torch.from_numpy(array)
    tensor[0] = 7
    told = (
        "a warning, once a process; then the constant array changes"
        if said
        else "no warning any more; the constant array changes"
    )
    return Bridge("torch.from_numpy(read-only array)", float(array[0]) == 7.0, _dtype(tensor), told)


def mixtures() -> list[Bridge]:
    """Expressions with both."""
    import numpy

    tries: dict[str, Callable[[], Any]] = {
        "numpy.ones(2) * t": lambda: numpy.ones(2) * torch.ones(2),
        "t * numpy.ones(2)": lambda: torch.ones(2) * numpy.ones(2),
        "numpy.float64(2) * t": lambda: numpy.float64(2) * torch.ones(2),
    }
    found = []
    with warnings.catch_warnings(action="ignore"):
        for call, way in tries.items():
            try:
                out: Any = way()
                found.append(Bridge(call, None, f"{type(out).__name__} of {str(out.dtype).removeprefix('torch.')}", ""))
            except Exception as error:  # noqa: BLE001
                found.append(Bridge(call, None, "", _text(error)))
    return found


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0][:160]}" if str(error) else type(error).__name__
