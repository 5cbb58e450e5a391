"""The measurement on its own, in plain PyTorch; the headline number is printed last."""

from __future__ import annotations

from lab.experiments.tensor_anatomy.lessons_program import HEADLINES
from lab.experiments.tensor_anatomy.schema import OF_PROGRAM, Params

_HEAD = """import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed({seed})
"""

_TENSORS = """
for name, value in list(globals().items()):
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        memory = value.untyped_storage()
        print(name, list(value.shape), value.stride(), value.storage_offset(), value.dtype, "memory at", memory.data_ptr(), memory.nbytes(), "B")
"""

_REFUSED = """try:
    {last}
except RuntimeError as error:
    print(error)
before = {tensor}
copied = before.reshape({shape})
print(copied.untyped_storage().nbytes() if copied.data_ptr() != before.data_ptr() else 0)
"""


def script(params: Params) -> str:
    """A program of its own."""
    if params.view in OF_PROGRAM:
        return _program(params)
    head = _HEAD.format(seed=params.seed) if params.view in ("devices", "data") else "import torch\n"
    return head + _PANELS[params.view].format(params=params)


def _program(params: Params) -> str:
    head = _HEAD.format(seed=params.seed)
    if params.device != "cpu":
        head += f'torch.set_default_device("{params.device}")\n'
    lines = params.code.rstrip("\n").split("\n")
    if lines[-1] == "merged = swapped.view(B, T, H * D)":
        tail = _REFUSED.format(last=lines[-1], tensor="swapped", shape="B, T, H * D")
        return f"{head}\n" + "\n".join(lines[:-1]) + f"\n{tail}"
    headline = HEADLINES.get(params.code)
    end = f"\nprint({headline})\n" if headline else _TENSORS
    return f"{head}\n" + "\n".join(lines) + f"\n{end}"


_PROMOTION = """
a = torch.ones(2).to(torch.{params.dtype_a})
b = torch.ones(2).to(torch.{params.dtype_b})
total = a + b
print(total.dtype)
print(total.element_size())
"""

_PRECISION = """
generator = torch.Generator().manual_seed({params.seed})
x = torch.rand({params.count}, generator=generator)
true = x.double().sum().item()
print("torch.sum", abs(x.sum().item() - true) / true)
print("one after the other", abs(x.cumsum(0)[-1].item() - true) / true, "(cumsum may add up wider)")

generator = torch.Generator().manual_seed({params.seed})
a = torch.randn(32, {params.inner}, generator=generator).bfloat16()
b = torch.randn({params.inner}, 32, generator=generator).bfloat16()
true = a.double() @ b.double()
total = torch.zeros(32, 32, dtype=torch.bfloat16)
for k in range({params.inner}):
    total = total + a[:, k : k + 1] * b[k : k + 1, :]
print("float32 inside", ((a @ b).double() - true).norm().item() / true.norm().item())
print("bfloat16 inside:")
print((total.double() - true).norm().item() / true.norm().item())
"""

_NUMPY = """import numpy

a = numpy.zeros(3)
shared, copied = torch.from_numpy(a), torch.tensor(a)
a[0] = 7.0
print("from_numpy", shared[0].item() == 7.0)
print("tensor", copied[0].item() == 7.0)
print(int(shared[0] == 7.0) + int(copied[0] == 7.0))
"""

_DEVICES = """
m, t = nn.Linear(2, 2), torch.ones(2)
optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
weight = m.weight
same_module = m.to(torch.float64) is m and m.weight is weight
same_tensor = t.to(torch.float64) is t
print("module", same_module, "tensor", same_tensor, "optimizer keeps", optimizer.param_groups[0]["params"][0] is m.weight)
print("accelerator", torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "none")
print(int(same_module) + int(same_tensor))
"""

_DATA = """
rows, columns = torch.arange(4), torch.arange(6)
red, green = (40 * rows)[:, None].expand(4, 6), (30 * columns)[None, :].expand(4, 6)
image = torch.stack([red, green, torch.full_like(red, 200)], dim=-1).to(torch.uint8).float()
right, wrong = image.permute(2, 0, 1), image.reshape(3, 4, 6)
with torch.no_grad():
    nn.Conv2d(3, 8, 3)(wrong[None])  # nothing is refused
print("pixel (1, 2):", image[1, 2].tolist(), "permuted", right[:, 1, 2].tolist(), "reshaped", wrong[:, 1, 2].tolist())
print(int((right != wrong).sum()))
"""

_PANELS = {"promotion": _PROMOTION, "precision": _PRECISION, "numpy": _NUMPY, "devices": _DEVICES, "data": _DATA}
