"""The program on its own, without the lab. A preset prints its headline number last."""

from __future__ import annotations

from lab.experiments.module_anatomy.lessons import HEADLINES
from lab.experiments.module_anatomy.schema import Params

_HEAD = """import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed({seed})
{device}
{code}
"""
_TREE = """
models = [value for value in list(globals().values()) if isinstance(value, nn.Module)]
inner = {id(part) for m in models for part in m.modules() if part is not m}
for m in [m for m in models if id(m) not in inner]:
    saved = {id(t) for t in m.state_dict(keep_vars=True).values()}
    before = {name: t.dtype for name, t in [*m.named_parameters(), *m.named_buffers()]}
    for name, t in [*m.named_parameters(), *m.named_buffers()]:
        print(f"{name:40} {tuple(t.shape)!s:14} parameter {isinstance(t, nn.Parameter)}  saved {id(t) in saved}")
    for path, part in m.named_modules():
        for name, value in vars(part).items():
            if not name.startswith("_") and isinstance(value, (torch.Tensor, list, tuple, dict)):
                print(f"{path}.{name:30} {type(value).__name__}: not registered")
print(sum(p.numel() for m in models if id(m) not in inner for p in m.parameters()))
"""


def script(params: Params) -> str:
    """A preset ends in its number; another program lists what is registered."""
    device = f'torch.set_default_device("{params.device}")\n' if params.device != "cpu" else ""
    head = _HEAD.format(seed=params.seed, device=device, code=params.code.rstrip("\n"))
    ending = HEADLINES.get(params.code)
    return f"{head}\n{ending or _TREE}"
