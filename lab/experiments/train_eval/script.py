"""The measurement of one study in plain PyTorch, without the lab; the headline number is printed last."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from lab.experiments.train_eval.schema import Params
from lab.instruments import batchnorm_freezing
from lab.workloads import mode_models, small_task

_HEAD = """import copy
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

device = "{device}"
torch.manual_seed({seed})
"""

_FUNCTIONAL = """

class FunctionalDropout(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        return F.dropout(x, self.p)  # training is True, whatever the mode


"""

_DROPOUT = """
x = {inputs}.to(device)
layer = {layer}
torch.manual_seed({seed})
outputs = []
for _ in range({passes}):
    {reseed}outputs.append(layer(x))
outputs = torch.stack(outputs).double()  # (passes, ...)
"""

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


def script(params: Params) -> str:
    """A program of its own; it prints what it measures, the headline number last."""
    params = params.settled()
    head = _HEAD.format(device=params.device, seed=params.seed)
    return f"{_imports(head, body := _BODIES[params.study](params))}{body}"


def _imports(head: str, body: str) -> str:
    """Leave out imports that the program does not use."""
    uses = {"import copy": "copy.", "import math": "math.", "as F": "F.", "checkpoint import": "checkpoint("}
    lines = head.splitlines(keepends=True)
    return "".join(line for line in lines if not any(mark in line and use not in body for mark, use in uses.items()))


def _values(params: Params) -> dict[str, Any]:
    return {**vars(params), "shape": params.shape}


def _dropout_layer(params: Params) -> str:
    return f"{_FUNCTIONAL if params.module == 'F.dropout' else ''}{_DROPOUT}".format(
        inputs={
            "ones": f"torch.ones({params.shape})",
            "normal": f"torch.randn({params.shape})",
            "ramp": f"(torch.arange(1, {_count(params)} + 1) / {_count(params)}).view({params.shape})",
        }[params.inputs],
        layer=("FunctionalDropout" if params.module == "F.dropout" else f"nn.{params.module}") + f"({params.p})",
        passes=max(params.passes, 2) if params.same_mask else params.passes,
        reseed=f"torch.manual_seed({params.seed}); " if params.same_mask else "",
        seed=params.seed,
    )


def _count(params: Params) -> int:
    count = 1
    for extent in params.shape:
        count *= extent
    return count


def _masks(params: Params) -> str:
    body = _dropout_layer(params)
    if params.same_mask:
        return body + 'print("two passes have the same mask:")\nprint(float(torch.equal(outputs[0], outputs[1])))\n'
    if params.module == "F.dropout":
        return (
            body + 'layer.eval()\nprint("share dropped after eval():")\nprint((layer(x) == 0).double().mean().item())\n'
        )
    if params.module == "AlphaDropout" and params.p < 1:
        return body + (
            "alpha = -1.7580993408473766\n"
            f"a = ((1 - {params.p}) * (1 + {params.p} * alpha**2)) ** -0.5\n"
            f"dropped = (outputs - (a * alpha - a * {params.p} * alpha)).abs() < 1e-5\n"
            "print(dropped.double().mean().item())\n"
        )
    return body + 'print("share dropped:")\nprint((outputs == 0).double().mean().item())\n'


def _convergence(params: Params) -> str:
    mean, variance = "print(outputs.mean().item())\n", "print(outputs.var(correction=0).item())\n"
    return _dropout_layer(params) + (mean + variance if params.module == "AlphaDropout" else variance + mean)


def _mc(params: Params) -> str:
    return f"""
net = nn.Sequential(nn.Linear(1, 64), nn.BatchNorm1d(64), nn.Tanh(), nn.Dropout({params.p}), nn.Linear(64, 1)).to(device)
x = torch.linspace(-2, 2, 33, device=device).unsqueeze(1)
net.eval()
net[3].train()  # the dropout layer only: BatchNorm keeps its statistics
with torch.no_grad():
    outputs = torch.stack([net(x) for _ in range({params.passes})]).double()  # (passes, N, 1)
print("std over passes, mean over inputs:")
print(outputs.std(0, correction=0).mean().item())
"""


def _listeners(params: Params) -> str:
    return f"""
x = torch.randn(4, 6, 5).to(device)
attention = lambda t: F.scaled_dot_product_attention(t, t, t, dropout_p={params.p})
random_after_eval = {{
    "nn.Dropout": nn.Dropout({params.p}).eval(),
    "nn.AlphaDropout": nn.AlphaDropout({params.p}).eval(),
    "nn.Dropout1d": nn.Dropout1d({params.p}).eval(),
    "nn.RReLU": nn.RReLU().eval(),
    "nn.BatchNorm1d": nn.BatchNorm1d(6).to(device).eval(),
    "F.dropout": lambda t: F.dropout(t, {params.p}),
    "F.dropout(training=False)": lambda t: F.dropout(t, {params.p}, training=False),
    "F.scaled_dot_product_attention": attention,
}}
random_after_eval = [name for name, layer in random_after_eval.items() if not torch.equal(layer(x), layer(x))]
print(random_after_eval)
print(float(len(random_after_eval)))
"""


def _norm_head(params: Params) -> str:
    return _CHANNELS.format(**_values(params))


def _trace(params: Params) -> str:
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


def _size(params: Params) -> str:
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


def _serving(params: Params) -> str:
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


def _norms(params: Params) -> str:
    return """
x = (torch.randn(6, 8, 3, 3, dtype=torch.float64) * 2 + 1).to(device).requires_grad_()
for layer in (nn.LayerNorm([8, 3, 3]), nn.GroupNorm(2, 8), nn.InstanceNorm2d(8), nn.BatchNorm2d(8)):
    y = layer.to(x)(x)
    (gradient,) = torch.autograd.grad(y[0, 0, 0, 0], x)  # non-zero where statistics are shared
    print(type(layer).__name__, "shares statistics over", int((gradient != 0).sum()), "values; samples among them:")
    print(float((gradient != 0).flatten(1).any(1).sum()))
"""


def _freezing(params: Params) -> str:
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


def _switches(params: Params) -> str:
    context = {"grad": "enable_grad", "no_grad": "no_grad", "inference_mode": "inference_mode"}[params.gradients]
    return f"""

{inspect.getsource(mode_models.small_net)}

x = torch.randn({max(params.batch, 2)}, 8).to(device)
torch.manual_seed({params.seed})
net = small_net({params.p}).to(device).{params.mode}()
seen, kept = [], {{}}
net[3].register_forward_hook(lambda module, inputs, output: seen.extend((inputs[0], output)))


def pack(tensor):
    kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    return tensor


with torch.{context}(), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
    output = net(x)
print("requires_grad:", output.requires_grad, "| batches counted:", net[1].num_batches_tracked.item())
""" + (
        'print("bytes kept for backward:")\nprint(float(sum(kept.values())))\n'
        if params.gradients == "grad"
        else 'print("share of active units dropped:")\n'
        "print((((seen[0] != 0) & (seen[1] == 0)).sum() / (seen[0] != 0).sum().clamp(min=1)).item())\n"
    )


_SCAN = """

def output(seed):
    torch.manual_seed(seed)
    buffers = [buffer.clone() for buffer in model.buffers()]
    with torch.no_grad():
        y = forward().double()
        for buffer, before in zip(model.buffers(), buffers):
            buffer.copy_(before)  # an output in train mode moves the running statistics
    return y


model.eval()
reference, still, changing = output({seed}), [output({seed} + i) for i in range(4)], []
for name, module in model.named_modules():
    module.training = True  # this module alone
    if any(not torch.equal(output({seed} + i), before) for i, before in enumerate(still)):
        changing.append(name)
    module.training = False
print("modules that change the output:", changing)
print(float(len(changing)))
spread = ((output({seed} + 1) - reference).square().mean() / reference.square().mean()).sqrt().item()
if spread:
    print("two calls after eval() differ by, relative:")
    print(spread)
"""


def _modules(params: Params) -> str:
    return _model_source(params) + _SCAN.format(seed=params.seed)


def _model_source(params: Params) -> str:
    if params.model == "own":
        given = "\n\n" + textwrap.dedent(params.code).rstrip() + "\n" if params.code.strip() else _MISSING
        return (
            given
            + "\ninputs = batch[0] if isinstance(batch, (tuple, list)) else batch\nforward = lambda: model(inputs)\n"
        )
    if params.model == "classifier":
        return f"""

{_source(small_task)}

model = trained_net({params.p}, {params.seed}, device)
inputs = spirals(1536, {params.seed} + 1)[0][:128].to(device)
forward = lambda: model(inputs)
"""
    kind = {"convnet": "ConvNet", "transformer": "Attention"}[params.model]
    parts = (getattr(mode_models, kind), getattr(mode_models, params.model))
    source = "\n\n".join(inspect.getsource(part) for part in parts)
    return f"""

{source}

model, inputs, _ = {params.model}({params.p}, {max(params.batch, 2)})
model, inputs = model.to(device), inputs.to(device)
forward = lambda: model(inputs)
"""


_MISSING = "\n\nmodel = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))  # your own model\nbatch = torch.randn(8, 4)\n"


def _source(module: Any) -> str:
    """Everything below the imports."""
    text = inspect.getsource(module)
    return text[text.index("ARMS = ") :].rstrip() + "\n"


def _cost(params: Params) -> str:
    return f"""

{_source(small_task)}

net = trained_net({params.p}, {params.seed}, device)
inputs, arms = (part.to(device) for part in spirals(1536, {params.seed} + 1))


def accuracy(mode, batch):
    torch.manual_seed({params.seed})
    return evaluate(copy.deepcopy(net).train(mode), inputs, arms, batch)[1]


print("eval():    ", accuracy(False, 128))
print("train mode:", accuracy(True, 2))
print("accuracy lost in batches of two:")
print(accuracy(False, 128) - accuracy(True, 2))
"""


_BODIES: dict[str, Callable[[Params], str]] = {
    "masks": _masks,
    "convergence": _convergence,
    "MC dropout": _mc,
    "who listens": _listeners,
    "batch by batch": _trace,
    "batch size": _size,
    "serving": _serving,
    "other norms": _norms,
    "freezing": _freezing,
    "both switches": _switches,
    "modules": _modules,
    "forgotten eval": _cost,
}
