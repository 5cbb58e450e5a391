"""The experiment on its own, without the lab: the network's source as it was measured, the steps, one number."""

from __future__ import annotations

import inspect

from lab.experiments.gradient_flow.lessons import reading_of
from lab.experiments.gradient_flow.readings import NAMES
from lab.experiments.gradient_flow.schema import NORM_TYPES, Params
from lab.workloads import deep_networks
from lab.workloads.optimizers import optimizer_source

_HEAD = """import math

import torch
import torch.nn.functional as F
from torch import nn

{threads}torch.manual_seed({seed})
"""
_ONE_THREAD = "torch.set_num_threads(1)  # sums in one order: a training that jumps about magnifies rounding\n"
_DEVICE = 'torch.set_default_device("{device}")\n'

_SOURCES = {
    "mlp": (deep_networks.Layer, deep_networks.MLP),
    "rnn": (deep_networks.Cell, deep_networks.RecurrentStep, deep_networks.RNN),
    "transformer": (deep_networks.TransformerBlock, deep_networks.Transformer),
}

_FAMILY = """
x, target = classification_batch({shape})
model = {family}(
    depth={depth}, width={width}, activation="{activation}", norm="{norm}", norm_position="{norm_position}", residual={residual}
).to(torch.promote_types(torch.{dtype}, torch.float32))
for linear in model.modules():
    if isinstance(linear, nn.Linear):
        initialise(linear, "{init}", {gain})
model, x = model.to(torch.{dtype}), x.to(torch.{dtype})
layers = list(model.layers)
"""
_LOSSES = {
    "cross_entropy": 'def compute_loss():\n    return F.cross_entropy(model(x), target, reduction="{reduction}")\n',
    "mse": 'wanted = F.one_hot(target, CLASSES).to(x.dtype)\n\n\ndef compute_loss():\n    return F.mse_loss(model(x), wanted, reduction="{reduction}")\n',
    "random": "cotangent = torch.randn(len(target), CLASSES).to(x.dtype)\n\n\ndef compute_loss():\n    return (model(x) * cotangent).sum() / {divisor}\n",
}
_OWN = """

inputs, target = batch if isinstance(batch, (tuple, list)) else (batch, None)
layers = [m for m in model.modules() if any(True for _ in m.parameters(recurse=False))]


def compute_loss():
    if "loss" in globals():
        return loss(model, batch)
    output = model(**inputs) if isinstance(inputs, dict) else model(inputs)
    if target is None:
        return output.square().mean()
    return F.mse_loss(output, target) if target.is_floating_point() else F.cross_entropy(output, target)

"""

_WATCH = """
outputs = []  # one a layer, in the order in which they run


def keep(module, inputs, output):
    if output.requires_grad:
        output.retain_grad()
        outputs.append(output)


for layer in layers:
    layer.register_forward_hook(keep)
"""
_SLOPE = """

def decades_per_layer(norms):
    \"\"\"Least squares through log10 of the norms over the inner half of the depth, counted on the way back.\"\"\"
    margin = len(norms) // 4 if len(norms) >= 8 else 0
    points = [(i, math.log10(n)) for i, n in enumerate(norms) if margin <= i < len(norms) - margin and 0 < n < math.inf]
    i_mean, y_mean = (sum(column) / len(points) for column in zip(*points))
    return -sum((i - i_mean) * (y - y_mean) for i, y in points) / sum((i - i_mean) ** 2 for i, _ in points)

"""
_STEP = """
parameters = [p for p in model.parameters() if p.requires_grad]
optimizer = {optimizer}
for step in range({steps}):
    optimizer.zero_grad()
    loss_value = compute_loss()
    {backward}
"""
_FIRST_STEP_ONLY = {"cosine", "returned", "norm after", "zeroed layers", "total norm"}
_NO_STEP = {"slope", "ratio", "underflow", "bias", "missing"}

_NORMS = "norms = [output.grad.double().norm().item() for output in outputs]\n"
_FIRST_GRADIENT = 'gradient = next(p for name, p in layers[0].named_parameters() if "weight" in name).grad\n'
_TAILS = {
    "slope": _NORMS + "print(decades_per_layer(norms))",
    "ratio": _NORMS + "print(norms[0] / norms[-1])",
    "underflow": _FIRST_GRADIENT
    + "live = gradient != 0\nprint(((gradient.half() == 0) & live).sum().item() / live.sum().item())",
    "bias": "linear = layers[0].linear\nprint(linear.bias.grad.double().norm().item() / linear.weight.grad.double().norm().item())",
    "missing": "print(sum(all(p.grad is None for p in m.parameters(recurse=False)) for m in layers))",
    "total norm": "print(before.norm().item())",
    "cosine": "print(((before / before.norm()) @ (after / after.norm())).item())",
    "returned": "print(float(returned))",
    "norm after": "print(after.norm().item())",
    "zeroed layers": 'print(sum(all((p.grad == 0).all() for n, p in layer.named_parameters() if "bias" not in n) for layer in layers))',
    "clipped share": "print(sum(clipped) / len(clipped))",
    "final loss": "print(compute_loss().item())",
}


def script(params: Params) -> str:
    """A preset prints its headline number last; other settings print the slope over depth."""
    kind = reading_of(params)
    head = _HEAD.format(seed=params.seed, threads=_ONE_THREAD if kind == "bias" or kind not in _NO_STEP else "") + (
        _DEVICE.format(device=params.device) if params.device != "cpu" else ""
    )
    subject = f"\n{params.code.rstrip()}\n{_OWN}" if params.family == "own" else _family(params)
    comment = f"# {NAMES[kind]}\n"
    if kind in _NO_STEP:
        watch = _WATCH if kind in ("slope", "ratio") else ""
        slope = _SLOPE if kind == "slope" else ""
        return f"{head}{subject}{watch}{slope}\ncompute_loss().backward()\n{comment}{_TAILS[kind]}\n"
    return f"{head}{subject}{_training(params, kind)}{comment}{_TAILS[kind]}\n"


def _family(params: Params) -> str:
    norms, activations = deep_networks.NORMS[params.norm_used], deep_networks.ACTIVATIONS[params.activation]
    batchnorm = params.norm_used == "batch"
    norm_source = deep_networks.BatchNorm.__name__ if batchnorm else f"nn.{norms.__name__}"
    constants = (
        f'CLASSES = {deep_networks.CLASSES}\nACTIVATIONS = {{"{params.activation}": nn.{activations.__name__}}}\n'
    )
    table = f'NORMS = {{"{params.norm_used}": {norm_source}}}\n'
    parts = [
        constants + ("" if batchnorm else table),
        *([inspect.getsource(deep_networks.BatchNorm), table] if batchnorm else []),
        inspect.getsource(deep_networks.initialise),
        *(inspect.getsource(part) for part in _SOURCES[params.family]),
        inspect.getsource(deep_networks.classification_batch),
    ]
    shape = deep_networks.input_shape(params.family, params.depth, params.width, params.batch)
    made = _FAMILY.format(
        shape=shape,
        family=_SOURCES[params.family][-1].__name__,
        norm=params.norm_used,
        residual=params.residual_used,
        **{n: getattr(params, n) for n in ("depth", "width", "activation", "norm_position", "init", "gain", "dtype")},
    )
    divisor = params.batch if params.reduction == "mean" else 1
    loss = _LOSSES[params.loss].format(reduction=params.reduction, divisor=divisor)
    sources = "\n\n".join(part.replace("Callable[[torch.Tensor], torch.Tensor]", "nn.Module") for part in parts)
    return f"\n{sources}\n{made}\n\n{loss}\n"


def _training(params: Params, kind: str) -> str:
    scaled = params.trap == "unscale"
    lines = [
        _STEP.format(
            optimizer=optimizer_source(params.optimizer, "parameters", lr=params.lr),
            steps=1 if kind in _FIRST_STEP_ONLY else params.steps,
            backward="scaler.scale(loss_value).backward()" if scaled else "loss_value.backward()",
        ).rstrip("\n")
    ]
    if scaled:
        lines.insert(0, f'\nscaler = torch.amp.GradScaler("{params.device}", init_scale=65536.0)')
    if kind == "clipped share":
        lines.insert(0, "\nclipped = []")
    if params.trap in ("inf", "nan", "overflow"):
        value = "torch.finfo(p.dtype).max ** 0.5 * 10" if params.trap == "overflow" else f'float("{params.trap}")'
        lines.append(
            f"    if step == 0:\n        p = next(layers[{params.depth // 2}].parameters())\n        p.grad.view(-1)[0] = {value}"
        )
    lines.append("    before = torch.cat([p.grad.double().flatten() for p in parameters])")
    lines += _clip_lines(params)
    if scaled:
        lines.append("    scaler.unscale_(optimizer)  # too late: the clipped gradients are divided now")
    lines.append("    after = torch.cat([p.grad.double().flatten() for p in parameters])")
    if kind == "clipped share":
        lines.append("    clipped.append(bool((before != after).any()))")
    if kind not in _FIRST_STEP_ONLY:
        lines.append("    optimizer.step()")
    return "\n".join(lines) + "\n\n"


def _clip_lines(params: Params) -> list[str]:
    limit = -params.clip_limit if params.trap == "negative" else params.clip_limit
    norm_type = 'float("inf")' if params.norm_type == "inf" else str(NORM_TYPES[params.norm_type])
    if params.clip == "none":
        return []
    if params.clip == "value":
        return [f"    nn.utils.clip_grad_value_(parameters, {limit})"]
    call = f"    returned = nn.utils.clip_grad_norm_({{}}, {limit}, norm_type={norm_type})"
    if params.trap == "generator":
        return ["    generator = model.parameters()", "    count = sum(p.numel() for p in generator)  # now it is exhausted", call.format("generator")]  # fmt: skip
    return [call.format("parameters")]
