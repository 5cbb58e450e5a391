"""What an operation did to shapes: both inputs repeated, memory read again in other sizes, a batch squeezed away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from lab.contract import Site
from lab.experiments.tensor_anatomy.layout import broadcast, permutation
from lab.experiments.tensor_anatomy.watch.calls import Call, Row
from lab.experiments.tensor_anatomy.watch.states import State, dtype_of
from lab.experiments.tensor_anatomy.watch.values import readable
from lab.records.tensors import Note

COMPARES = {"eq", "ne", "lt", "le", "gt", "ge", "isclose"}
LOSSES = {
    *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "gaussian_nll_loss", "poisson_nll_loss"),
    *("binary_cross_entropy", "binary_cross_entropy_with_logits", "soft_margin_loss"),
}
ELEMENTWISE = {
    *("add", "sub", "mul", "div", "rsub", "radd", "rmul", "rdiv", "truediv", "rtruediv", "true_divide", "pow", "rpow"),
    *("maximum", "minimum", "where", "and", "or", "xor", "logical_and", "logical_or", "atan2", "fmod", "remainder"),
    *("floordiv", "floor_divide", "lerp", "addcmul", "addcdiv", "bitwise_and", "bitwise_or", "logaddexp", "hypot"),
    *("add_", "sub_", "mul_", "div_", "iadd", "isub", "imul", "itruediv"),
    *COMPARES,
}  # fmt: skip
PROMOTES = ELEMENTWISE | {"cat", "stack", "concat", "hstack", "vstack"}
_SPREADS = {
    *("unsqueeze", "getitem", "view", "reshape", "expand"),
    *("mean", "sum", "amax", "amin", "max", "min", "norm", "std", "var"),
}  # fmt: skip
"""They can leave a dimension of 1 that is meant to be repeated."""


def expanded_inputs(op: str, inputs: tuple[State, ...]) -> tuple[State, ...]:
    """Inputs that were repeated to fit the others."""
    if op not in ELEMENTWISE | LOSSES or len(inputs) < 2:
        return ()
    common = broadcast(*(state.shape for state in inputs))
    if common is None:
        return ()
    return tuple(state for state in inputs if state.shape != common and state.numel > 0 and state.shape)


def both_expanded(call: Call, rows: list[Row], result: Any) -> Iterator[Note]:
    """The result is larger than each input, where squeezing the ones away makes the inputs alike."""
    dims = [state for state in call.states[:2] if state.shape]
    if len(dims) < 2 or len(expanded_inputs(call.op, tuple(dims))) < 2:
        return
    a, b = dims
    common = broadcast(a.shape, b.shape)
    if common is None:
        return
    alike = [n for n in a.shape if n != 1] == [n for n in b.shape if n != 1]
    meant = call.op not in LOSSES and _is_meant(a, b, call.line)
    if not alike or meant:
        return
    evidence = {
        "op": call.op, "a": a.label, "a_shape": list(a.shape), "b": b.label, "b_shape": list(b.shape),
        "result": list(common), "elements": _count(common), "expected": max(a.numel, b.numel),
        "loss": call.op in LOSSES, "compares": call.op in COMPARES,
    }  # fmt: skip
    sites = [Site(call.line, "both repeated here", "", None, str(list(common)))] if call.line else []
    for state in (a, b):
        born = _shape_birth(state)
        if born.line and born.line != call.line:
            sites.append(Site(born.line, "shape from here", state.label, None, str(list(state.shape))))
    yield Note("both expanded", call.line, evidence, tuple(sites))


def _is_meant(a: State, b: State, line: int | None) -> bool:
    """A dimension of 1 was put there for this: on the same line, or in both."""
    spread = [s for s in (a, b) if 1 in s.shape and s.op in _SPREADS and s.line == line]
    return bool(spread) or (len(a.shape) == len(b.shape) and sum(_opened(s) for s in (a, b)) == 2)


def _opened(state: State) -> bool:
    return state.op in _SPREADS and 1 in state.shape


def _shape_birth(state: State) -> State:
    return state.first(lambda s: all(p.shape != s.shape for p in s.parents)) or state


REDUCTIONS = {
    "sum",
    "mean",
    "norm",
    "std",
    "var",
    "amax",
    "amin",
    "max",
    "min",
    "logsumexp",
    "prod",
    "median",
    "nansum",
}


def note_reduction(call: Call, rows: list[Row]) -> None:
    """Remember along which dimension a result lost one."""
    if call.op not in REDUCTIONS or len(call.states) != 1 or not rows:
        return
    dim = call.kwargs.get(
        "dim",
        call.args[2] if call.op == "norm" and len(call.args) > 2 else call.args[1] if len(call.args) > 1 else None,
    )
    if isinstance(dim, (list, tuple)) and len(dim) == 1:
        dim = dim[0]
    source, state = call.states[0], rows[0].state
    if (
        isinstance(dim, int)
        and len(state.shape) == len(source.shape) - 1
        and -len(source.shape) <= dim < len(source.shape)
    ):
        state.reduced = source, dim % len(source.shape)


def misaligned(call: Call, rows: list[Row], result: Any) -> Iterator[Note]:
    """A tensor met its own sums without keepdim: they were lined up with the last dimension, and belong to another."""
    if call.op not in ELEMENTWISE or len(call.states) != 2 or not isinstance(result, torch.Tensor) or not rows:
        return
    whole, small = call.states
    if small.reduced is None or small.reduced[1] == 0 or call.inputs[0][0].shape != result.shape:
        return
    source, dim = small.reduced
    if source.shape != whole.shape or not any(state is source for state in whole.back()):
        return
    a, b = call.inputs[0][0], call.inputs[1][0]
    if not readable(a) or not readable(b) or not readable(result) or call.op.endswith("_"):
        return
    meant = call.func(a, b.unsqueeze(dim))
    wrong = int((meant != result).sum())
    if wrong and meant.shape == result.shape:
        evidence = {
            "op": call.op, "whole": whole.label, "shape": list(whole.shape), "small": small.label, "small_shape": list(small.shape),
            "reduction": small.op, "dim": dim, "wrong": wrong, "elements": result.numel(),
        }  # fmt: skip
        sites = [Site(call.line, "lined up with the last dimension", small.label)] if call.line else []
        sites += (
            [Site(small.line, "dimension dropped here", small.label)] if small.line and small.line != call.line else []
        )
        yield Note("misaligned", call.line, evidence, tuple(sites))


def read_again(call: Call, rows: list[Row], result: Any) -> Iterator[Note]:
    """``view`` or ``reshape`` to the same sizes in another order: the memory is read again, nothing is transposed."""
    if call.op not in ("view", "reshape") or len(call.inputs) != 1 or not isinstance(result, torch.Tensor):
        return
    tensor, state, _ = call.inputs[0]
    order = permutation(state.shape, tuple(result.shape))
    if order is None or not readable(tensor) or len(result.shape) < 2:
        return
    wrong = int((tensor.permute(order) != result).sum())
    if not wrong:
        return
    swapped = [dim for dim, from_dim in enumerate(order) if dim != from_dim]
    evidence = {
        "op": call.op, "tensor": state.label, "shape": list(state.shape), "result": list(result.shape), "order": list(order),
        "swapped": swapped, "wrong": wrong, "elements": result.numel(),
        "got": result.flatten()[:6].tolist(), "transposed": tensor.permute(order).flatten()[:6].tolist(),
    }  # fmt: skip
    yield Note(
        "read again", call.line, evidence, (Site(call.line or 0, "read again here", state.label),) if call.line else ()
    )


def squeezed_batch(call: Call, rows: list[Row], result: Any) -> Iterator[Note]:
    """``squeeze()`` without a dimension that took dimension 0 with it."""
    if call.op != "squeeze" or len(call.args) != 1 or call.kwargs or not call.states:
        return
    state = call.states[0]
    gone = [dim for dim, size in enumerate(state.shape) if size == 1]
    if len(gone) < 2 or gone[0] != 0 or not isinstance(result, torch.Tensor):
        return
    evidence = {"tensor": state.label, "shape": list(state.shape), "result": list(result.shape), "removed": gone}
    yield Note(
        "batch squeezed",
        call.line,
        evidence,
        (Site(call.line or 0, "dimension 0 gone", state.label),) if call.line else (),
    )


def integer_mask(call: Call, rows: list[Row], result: Any) -> Iterator[Note]:
    """Zeros and ones of an integer dtype, one for each entry, used as an index: they pick entries 0 and 1."""
    if call.op != "getitem" or len(call.inputs) != 2 or not isinstance(call.args[1], torch.Tensor):
        return
    (whole, state, _), (index, mask, _) = call.inputs
    if index.dtype not in (torch.int64, torch.int32, torch.int8) or index.dim() != 1 or len(index) != whole.shape[0]:
        return
    if len(index) < 3 or not readable(index) or set(index.unique().tolist()) != {0, 1}:
        return
    evidence = {
        "mask": mask.label,
        "tensor": state.label,
        "dtype": dtype_of(mask),
        "ones": int(index.sum()),
        "picked": len(index),
    }
    sites = [Site(call.line, "used as an index", mask.label)] if call.line else []
    sites += (
        [Site(mask.line, f"{dtype_of(mask)} from here", mask.label)] if mask.line and mask.line != call.line else []
    )
    yield Note("integer mask", call.line, evidence, tuple(sites))


def both_formats(call: Call, rows: list[Row], result: Any) -> Iterator[Note]:
    """A tensor that is contiguous in both memory formats, where the program asks or converts."""
    asks = call.op == "is_contiguous" and bool(call.args[1:] or call.kwargs)
    converts = call.op in ("to", "contiguous") and call.kwargs.get("memory_format") is torch.channels_last
    if not (asks or converts) or not call.inputs:
        return
    tensor, state, _ = call.inputs[0]
    after = result if isinstance(result, torch.Tensor) else tensor
    if after.dim() != 4 or not after.is_contiguous() or not after.is_contiguous(memory_format=torch.channels_last):
        return
    evidence = {"tensor": state.label, "shape": list(state.shape), "stride": list(after.stride())}
    sites = [Site(state.line, "made here", state.label)] if state.line else []
    yield Note("both formats", state.line or call.line, evidence, tuple(sites))


def mixed_devices(call: Call, rows: list[Row], result: Any) -> Iterator[Note]:
    """A result from tensors on two devices, which no device can compute."""
    if call.op in MAY_MIX or not isinstance(result, torch.Tensor):
        return
    placed = [state for state in call.states if state.shape or state.device != "cpu"]
    if len({state.device for state in placed}) < 2:
        return
    yield Note("mixed devices", call.line, devices_evidence(call.op, placed), device_sites(call.line, placed))


MAY_MIX = {
    *("copy_", "to", "type_as", "cpu", "cuda", "getitem", "setitem", "data", "index_put", "index_put_", "to_empty"),
    *("empty_like", "zeros_like", "ones_like", "rand_like", "randn_like", "full_like", "new_zeros", "new_ones", "new_tensor"),
}  # fmt: skip


def devices_evidence(op: str, placed: list[State]) -> dict[str, Any]:
    return {"op": op} | {state.label: state.device for state in placed}


def device_sites(line: int | None, placed: list[State]) -> tuple[Site, ...]:
    """Where each of them came to its device; the ones away from the CPU first."""
    sites = [Site(line, "two devices here")] if line else []
    for state in sorted(placed, key=lambda s: s.device == "cpu"):
        born = state.first(lambda s: all(p.device != s.device for p in s.parents)) or state
        if born.line:
            sites.append(Site(born.line, f"on {state.device} from here", state.label))
    return tuple(sites)


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
