"""Moving tensors and modules, mixing devices, and memory formats.

The second device of a host without an accelerator is ``meta``: shapes without data. torch does not refuse all mixtures
with it, so the rule "one device for all inputs of an operation" is checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from lab import torch_private
from lab.contract import Report
from lab.experiments.tensor_anatomy.schema import Params, Result
from lab.experiments.tensor_anatomy.watch.shapes import MAY_MIX
from lab.records.tensors import Accelerator, Layout, Mixed, Move

PICK = """device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
model = model.to(device)      # in place: the same module
batch = batch.to(device)      # a new tensor: keep it
"""


def measure(params: Params, report: Report) -> Result:
    """Moves, mixtures, layouts, and which accelerator there is."""
    return Result(
        view="devices",
        moves=tuple(moves(params.device)),
        mixed=tuple(mixtures()),
        layouts=tuple(layouts()),
        accelerator=accelerator(),
        device=params.device,
    )


def accelerator() -> Accelerator:
    """The device that torch.accelerator picks here."""
    here = torch.accelerator.is_available()
    picked = str(torch.accelerator.current_accelerator()) if here else "cpu"
    return Accelerator(here, picked, torch.accelerator.device_count() if here else 0, PICK)


def moves(device: str) -> Iterator[Move]:
    """``Tensor.to`` beside ``Module.to``."""
    for call, way in _TENSOR_MOVES.items():
        yield _moved_tensor(call, way)
    for call, way in _MODULE_MOVES.items():
        yield _moved_module(call, way)
    for name in ("cuda", "mps", "xpu"):
        yield _moved_tensor(f't.to("{name}")', lambda t, name=name: t.to(name))


_TENSOR_MOVES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "t.to(t.dtype)": lambda t: t.to(t.dtype),
    't.to("cpu")': lambda t: t.to("cpu"),
    "t.to(torch.float64)": lambda t: t.to(torch.float64),
    't.to("cpu", copy=True)': lambda t: t.to("cpu", copy=True),
    't.to("meta")': lambda t: t.to("meta"),
    "t.contiguous()": lambda t: t.contiguous(),
    "t.detach()": lambda t: t.detach(),
    "t.clone()": lambda t: t.clone(),
}
_MODULE_MOVES: dict[str, Callable[[nn.Module], nn.Module]] = {
    "m.to(torch.float64)": lambda m: m.to(torch.float64),
    'm.to("cpu")': lambda m: m.to("cpu"),
    'm.to("meta")': lambda m: m.to("meta"),
    'm.to_empty(device="meta")': lambda m: m.to_empty(device="meta"),
}


def _moved_tensor(call: str, way: Callable[[torch.Tensor], torch.Tensor]) -> Move:
    tensor = torch.ones(2)
    try:
        after = way(tensor)
    except Exception as error:  # noqa: BLE001 - what this build refuses is what is shown
        return Move(call, "tensor", None, None, None, f"{type(error).__name__}: {str(error).splitlines()[0][:160]}")
    return Move(call, "tensor", after is tensor, _address(after) == _address(tensor), None, "")


def _moved_module(call: str, way: Callable[[nn.Module], nn.Module]) -> Move:
    module = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    weight, address = module.weight, _address(module.weight)
    after = way(module)
    same = after is module and module.weight is weight
    kept = optimizer.param_groups[0]["params"][0] is module.weight
    return Move(call, "module", same, _address(module.weight) == address, kept, "")


def _address(tensor: torch.Tensor) -> int:
    return torch_private.storage_key(tensor) if tensor.is_meta else tensor.data_ptr()


class OneDevice(TorchFunctionMode):
    """Refuses an operation whose inputs are on several devices; a 0-dim CPU tensor may join any."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        given = [t for t in _flat((args, kwargs or {})) if t.dim() or t.device.type != "cpu"]
        if len({t.device for t in given}) > 1 and name.strip("_") not in MAY_MIX and name not in MAY_MIX:
            said = ", ".join(f"{list(t.shape)} on {t.device}" for t in given)
            raise MixedError(f"{name.strip('_')}: {said}")
        return func(*args, **(kwargs or {}))


class MixedError(RuntimeError):
    """Inputs on several devices."""


def _flat(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    elif isinstance(value, dict):
        yield from _flat(list(value.values()))


def _mixtures() -> dict[str, Callable[[], Any]]:
    def cpu(*shape: int) -> torch.Tensor:
        return torch.ones(*shape)

    def far(*shape: int) -> torch.Tensor:
        return torch.ones(*shape, device="meta")

    return {
        "a + b": lambda: cpu(2) + far(2),
        "torch.cat([a, b])": lambda: torch.cat([cpu(2), far(2)]),
        "LayerNorm": lambda: nn.LayerNorm(2, device="meta")(cpu(1, 2)),
        "mse_loss": lambda: nn.functional.mse_loss(cpu(2), far(2)),
        "a @ b": lambda: cpu(2, 2) @ far(2, 2),
        "Conv2d": lambda: nn.Conv2d(1, 1, 1, device="meta")(cpu(1, 1, 2, 2)),
        "Linear without bias": lambda: nn.Linear(2, 2, bias=False, device="meta")(cpu(1, 2)),
        "Embedding": lambda: nn.Embedding(3, 2, device="meta")(torch.tensor([1])),
        "torch.bmm": lambda: torch.bmm(cpu(1, 2, 2), far(1, 2, 2)),
        "tensor(2.) * b": lambda: torch.tensor(2.0) * far(2),
        "a.to(b.device)": lambda: cpu(2).to(far(2).device),
    }


def mixtures() -> Iterator[Mixed]:
    """The same operation, once as it is and once under the rule. Values of what torch returns are not read."""
    for call, way in _mixtures().items():
        try:
            out = way()
            said, refused = f"returns a tensor on {out.device}", False
        except Exception as error:  # noqa: BLE001
            said, refused = f"{type(error).__name__}: {str(error).splitlines()[0][:160]}", True
        try:
            with OneDevice():
                way()
            by_rule = False
        except MixedError:
            by_rule = True
        except Exception:  # noqa: BLE001 - refused by torch, for another reason
            by_rule = False
        yield Mixed(call, said, refused, by_rule)


def layouts() -> Iterator[Layout]:
    """The two memory formats of images."""
    x = torch.arange(2 * 3 * 4 * 4.0).reshape(2, 3, 4, 4)
    one = torch.ones(4, 1, 3, 3)
    for name, tensor in {
        "x": x,
        "x.to(memory_format=torch.channels_last)": x.to(memory_format=torch.channels_last),
        "the same times 2": x.to(memory_format=torch.channels_last) * 2,
        "one channel": one,
    }.items():
        try:
            tensor.view(tensor.shape[0], -1)
            said = "a view"
        except RuntimeError:
            said = "refused"
        formats = tensor.is_contiguous(), tensor.is_contiguous(memory_format=torch.channels_last)
        yield Layout(name, tuple(tensor.shape), tensor.stride(), *formats, said)
