"""A copy of a model that costs no memory: what a conversion reaches is seen on it, and the model stays as it is.

NOTE How "moves" is measured.
1. The model is copied with its structure; in place of each floating-point tensor stands one of the same shape and dtype
   without data, the same one wherever the original was the same. Integer tensors are copied as they are.
2. torch's own ``to`` converts the copy to a dtype that no tensor has. What changed its dtype was reached.
3. Integers have no other dtype to go to: they are reached when ``to("meta")`` changes their device.
4. The copy is walked as the model was; a tensor is found by its name.
5. Where a model cannot be copied, the program is run again with the same seed, and what it makes is converted.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from lab.experiments.module_anatomy.census import Census
from lab.experiments.module_anatomy.watch import ModuleWatch

_TARGETS = (torch.float64, torch.bfloat16, torch.float16, torch.float32)
Roots = list[tuple[str, nn.Module]]


def moved_names(twin: Roots, census: Census, watch: ModuleWatch) -> dict[str, bool]:
    """Name of each tensor -> whether a conversion of ``twin`` reaches it. ``census`` is of the original."""
    present = {row.tensor.dtype for row in census.tensors}
    target = next(dtype for dtype in _TARGETS if dtype not in present or dtype is _TARGETS[-1])
    before = {row.name: row.tensor.dtype for row in Census(twin, watch).tensors}
    found: dict[str, bool] = {}
    with warnings.catch_warnings(action="ignore"):
        for _, root in twin:
            root.to(target)
        for row in Census(twin, watch).tensors:
            if is_lazy(row.tensor) or row.tensor.dtype.is_floating_point or row.tensor.dtype.is_complex:
                found[row.name] = row.tensor.dtype != before.get(row.name)
        for _, root in twin:
            root.to("meta")
        found |= {row.name: row.tensor.is_meta for row in Census(twin, watch).tensors if row.name not in found}
    return found


def without_data(roots: Roots, census: Census) -> Roots:
    """The copy. Functions are shared with the original, and with them what they close over."""
    memo: dict[int, Any] = {}
    for row in census.tensors:
        tensor = row.tensor
        if row.way in ("closure", "global", "class attribute"):
            continue
        if id(tensor) not in memo and type(tensor) in (torch.Tensor, nn.Parameter) and not is_lazy(tensor):
            memo[id(tensor)] = _like(tensor)
    return copy.deepcopy(roots, memo)


def _like(tensor: torch.Tensor) -> torch.Tensor:
    data = tensor.detach()
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        data = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    else:
        data = data.clone()
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(data, requires_grad=tensor.requires_grad)
    return data


def real_copy(root: nn.Module, census: Census) -> nn.Module:
    """A copy with data; tensors that are results are copied without their history."""
    memo: dict[int, Any] = {
        id(r.tensor): r.tensor.detach().clone() for r in census.tensors if r.tensor.grad_fn is not None
    }
    return copy.deepcopy(root, memo)
