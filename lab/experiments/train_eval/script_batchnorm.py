"""The bodies of the take-away scripts of the batchnorm view."""

from __future__ import annotations

import inspect

from lab.experiments.train_eval.schema import Params
from lab.experiments.train_eval.studies import batchnorm_freezing

_CHANNELS = """

def batch_of(shape):
    # every channel has a mean and a spread of its own
    channels = torch.arange(shape[1], dtype=torch.float64).view(1, -1, *[1] * (len(shape) - 2))
    x = (1 + channels) + (1 + 0.5 * channels) * torch.randn(shape, dtype=torch.float64)
    return x.to(device, torch.{dtype})


layer = nn.{module}(
    {channels}, eps={eps}, momentum={momentum}, affine={affine}, track_running_stats={track_running_stats}
).to(device, torch.{dtype})
"""


def _norm_head(params: Params) -> str:
    return _CHANNELS.format(**vars(params))


def batches(params: Params) -> str:
    return (
        _norm_head(params)
        + f"""
try:
    for _ in range({params.batches}):
        x = batch_of({params.shape})
        layer(x)
    print("normalises with (biased):  ", x.transpose(0, 1).flatten(1).var(1, correction=0)[0].item())
    print("stores (unbiased):         ", x.transpose(0, 1).flatten(1).var(1)[0].item())
    if layer.running_mean is None:
        print(0.0)  # without running statistics both modes use the batch
    else:
        print("running mean of channel 0, batches:", layer.num_batches_tracked.item())
        print(layer.running_mean[0].item())
except ValueError as error:
    print(error)
    print(float(x.numel() // x.shape[1]))
"""
    )


def batch_size(params: Params) -> str:
    return (
        _norm_head(params)
        + f"""
layer.momentum = 1.0  # store exactly this batch
x = batch_of({params.shape})
n = x.numel() // x.shape[1]
std = lambda y: y.transpose(0, 1).flatten(1).double().std(1, correction=0)[0].item()
try:
    train = layer(x)
    evaluated = layer.eval()(x)
    print("limit sqrt((n - 1)/n):", math.sqrt((n - 1) / n))
    print(std(evaluated) / std(train))
except ValueError as error:
    print(error)
    print(float(n))
"""
    )


def serving(params: Params) -> str:
    return (
        _norm_head(params)
        + f"""
try:
    for _ in range({params.batches}):
        layer(batch_of({params.shape}))
except ValueError as error:
    raise SystemExit(f"{{error}}\\n{float(params.batch)}")
x = {params.scale} * batch_of({(256, *params.shape[1:])}) + {params.shift}
evaluated = layer.eval()(x)
train = copy.deepcopy(layer).train()(x)
print("rms distance of both modes on serving data:")
print((train - evaluated).double().square().mean().sqrt().item())
"""
    )


def other_norms(params: Params) -> str:
    return """
x = (torch.randn(6, 8, 3, 3, dtype=torch.float64) * 2 + 1).to(device).requires_grad_()
for layer in (nn.LayerNorm([8, 3, 3]), nn.GroupNorm(2, 8), nn.InstanceNorm2d(8), nn.BatchNorm2d(8)):
    y = layer.to(x)(x)
    (gradient,) = torch.autograd.grad(y[0, 0, 0, 0], x)  # non-zero where statistics are shared
    print(type(layer).__name__, "shares statistics over", int((gradient != 0).sum()), "values; samples among them:")
    print(float((gradient != 0).flatten(1).any(1).sum()))
"""


def freezing(params: Params) -> str:
    act, meaning = batchnorm_freezing.TREATMENTS[params.treatment]
    helpers = (batchnorm_freezing.FrozenNorm, batchnorm_freezing._step, batchnorm_freezing._backward)
    source = inspect.getsource(act)
    for helper in helpers:  # in the order in which they call each other
        if helper.__name__ in source:
            source = f"{inspect.getsource(helper).rstrip()}\n\n\n{source}"
    source = source.rstrip()
    shape = (max(params.batch, 4), params.channels)
    head = _norm_head(Params(**{**vars(params), "module": "BatchNorm1d"})).split("\n\nlayer")[0]
    return (
        head.replace(f"torch.{params.dtype}", "torch.float64")
        + f"""


{source.replace(" -> None", "").replace(" -> torch.Tensor", "").replace(" -> FrozenNorm", "")}


layer = nn.BatchNorm1d({params.channels}, dtype=torch.float64, device=device)
for _ in range({batchnorm_freezing.WARM_BATCHES}):
    layer(batch_of({shape}))
before = layer.running_mean.clone(), layer.num_batches_tracked.item()
# {meaning}
try:
    {act.__name__}(layer, batch_of({shape}))
except (ValueError, RuntimeError) as error:
    print(error)
print("running mean moved by", (layer.running_mean - before[0]).abs().max().item())
print("batches counted:")
print(float(layer.num_batches_tracked.item() - before[1]))
"""
    )
