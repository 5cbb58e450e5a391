"""The measurement on its own, in plain PyTorch; the headline number is printed last."""

from __future__ import annotations

from lab.experiments.mixed_precision.programs import HEADLINES
from lab.experiments.mixed_precision.schema import Params

_NETWORK = """import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)


def network(depth, activation):
    torch.manual_seed(0)
    layers = []
    for _ in range(depth):
        layers += [nn.Linear(64, 64), activation()]
    return nn.Sequential(*layers, nn.Linear(64, 10))


g = torch.Generator().manual_seed(1)
x, y = torch.randn(256, 64, generator=g), torch.randint(0, 10, (256,), generator=g)
"""
_WINDOW = """

def gradients(dtype, scale):
    model = network({depth}, nn.{activation})
    with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
        loss = F.cross_entropy(model(x), y)
    (loss * scale).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


full = gradients(torch.float32, 1.0)
full_nonzero = full[full != 0].double()
scaled, largest = full_nonzero * {scale}, torch.finfo({format}).max
stored = scaled.clamp(-largest, largest).float().to({format}).double()
print("by casting: zero", (stored == 0).double().mean().item())
over = ({over}).double().mean().item()
zero = (stored == 0).double().mean().item()
low = gradients({dtype}, {scale})
real = (low[full != 0] == 0).double().mean().item()
print("real backward: zero", real, "overflow by casting", over)
print({last})
"""
_SCALER = """
model = network(4, nn.ReLU)
optimizer = torch.optim.SGD(model.parameters(), lr={lr}, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale={scale}, growth_interval={growth})
ran, skipped, scales = [], 0, []
optimizer.register_step_post_hook(lambda *_: ran.append(True))
for step in range({steps}):
    ran.clear()
    scales.append(scaler.get_scale())
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype={dtype}, enabled={dtype} != torch.float32):
        loss = F.cross_entropy(model(x * (1e4 if step == {bad} else 1)), y)
    {nan}
    scaler.scale(loss).backward()
    {unscale}
    {clip}
    scaler.step(optimizer)
    scaler.update()
    skipped += not ran
print("skipped", skipped, "scale", scales[-1], "loss", loss.item())
print({last})
"""
_UPDATES = """import torch
from torch import nn

torch.manual_seed(0)
layer = nn.Linear(256, 256).to(torch.bfloat16)
before = layer.weight.detach().clone()
optimizer = torch.optim.Adam(layer.parameters(), lr=1e-5)
x = torch.randn(32, 256, generator=torch.Generator().manual_seed(2)).bfloat16()
layer(x).float().pow(2).mean().backward()
optimizer.step()
print((layer.weight != before).double().mean().item())
"""
_MATMUL = """import torch

torch.set_num_threads(1)
g = torch.Generator().manual_seed(1024)
a, b = torch.randn(8, 1024, generator=g), torch.randn(1024, 8, generator=g)
exact = a.double() @ b.double()
product = (a.bfloat16() @ b.bfloat16()).double()
print(((product - exact).square().mean().sqrt() / exact.square().mean().sqrt()).item())
"""
_TYPES = {
    "fp32": "torch.float32", "bf16": "torch.bfloat16", "fp16": "torch.float16", "fp8 e4m3": "torch.float8_e4m3fn",
    "fp8 e5m2": "torch.float8_e5m2",
}  # fmt: skip
_MODULES = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "ReLU", "gelu": "GELU"}


def script(params: Params) -> str:
    """A program of its own."""
    if params.view == "updates":
        return _UPDATES
    if params.view == "matmul":
        return _MATMUL
    if params.view == "ops":
        headline = HEADLINES.get(params.code)
        return (
            "import math\n\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n"
            f"torch.manual_seed({params.seed})\n\n{params.code.rstrip()}\n"
            + (f"print({headline})\n" if headline else "")
        )
    return _NETWORK + (_window(params) if params.view == "window" else _scaler(params))


def _window(params: Params) -> str:
    eight = params.format.startswith("fp8")
    last = "zero" if eight else "over" if params.init_scale == 2.0**24 else "real"
    return _WINDOW.format(
        depth=params.depth, activation=_MODULES[params.activation], scale=params.init_scale, format=_TYPES[params.format],
        dtype=_TYPES[params.dtype], last=last, over="scaled.abs() > largest" if eight else f"scaled.to({_TYPES[params.format]}).isinf()",
    )  # fmt: skip


def _scaler(params: Params) -> str:
    clip = "nn.utils.clip_grad_norm_(model.parameters(), 1.0)" if params.clip != "off" else "pass  # no clipping"
    last = (
        "skipped" if params.nan else f"scales[{params.bad_step + 1}]" if params.bad_step is not None else "loss.item()"
    )
    return _SCALER.format(
        lr=params.lr, scale=params.init_scale, growth=params.growth_interval, steps=params.steps, dtype=_TYPES[params.dtype],
        bad=params.bad_step, nan='loss = loss * float("nan")' if params.nan else "pass  # the loss as it is",
        unscale="scaler.unscale_(optimizer)" if params.clip == "after" else "pass  # still scaled", clip=clip, last=last,
    )  # fmt: skip
