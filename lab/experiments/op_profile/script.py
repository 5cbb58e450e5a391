"""The measurement without the lab: the same model, the same step, one headline number printed last."""

from __future__ import annotations

import inspect

from lab.experiments.op_profile.lessons import headline_of
from lab.experiments.op_profile.schema import Params
from lab.experiments.op_profile.trap_programs import HEAD, PROGRAMS
from lab.workloads import models
from lab.workloads.optimizers import implementation, optimizer_source
from lab.workloads.precision import autocast_source
from lab.workloads.profiled_step import Samples

_IMPORTS = """import time
from contextlib import nullcontext
from statistics import median

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import DataLoader, Dataset
from torch.utils.flop_counter import FlopCounterMode
"""

_CLASSES = {
    "mlp": (models.MLP,),
    "cnn": (models.CNN,),
    "gpt": (models.GPTBlock, models.GPT),
    "lstm": (models.LSTM,),
}
_BATCHES = {
    "mlp": "torch.randn({batch}, {width}), torch.randint(CLASSES, ({batch},))",
    "cnn": "torch.randn({batch}, 3, IMAGE, IMAGE), torch.randint(CLASSES, ({batch},))",
    "lstm": "torch.randn({batch}, {seq}, {width}), torch.randint(CLASSES, ({batch},))",
    "gpt": "torch.randint(VOCABULARY, ({batch}, {seq})), torch.randint(VOCABULARY, ({batch}, {seq}))",
}
_MODELS = {
    "mlp": "MLP({layers}, {width})", "cnn": "CNN({layers}, {width})", "lstm": "LSTM({layers}, {width})",
    "gpt": "GPT({layers}, {width}, {seq})",
}  # fmt: skip
_LOSSES = {
    "gpt": "F.cross_entropy(model(inputs).flatten(0, 1), target.flatten())",
    "own": "loss_of_batch()",
}
_STEP = """

def step(mark=lambda part: nullcontext()):
    with mark("data_loading"):
        {load}
    with mark("copy_to_device"):
        {copy}
    with mark("forward"), {autocast}:
        value = {loss}
    with mark("backward"):
        {backward}
    with mark("optimizer"):
        {optimizer_step}
        optimizer.zero_grad(set_to_none={set_to_none})
    with mark("synchronisation"):
        value.item()
"""
_MEASURE = """

def seconds(mark=lambda part: nullcontext()):
    started = time.perf_counter()
    step(mark)
    return time.perf_counter() - started


first_s = seconds()
for _ in range({warmup}):
    seconds()
bare, profiled, fastest = [], [], {{}}
for _ in range({steps}):
    bare += [seconds() for _ in range(3)]
    with profile(activities=[ProfilerActivity.CPU{cuda}], record_shapes=True, profile_memory=True) as prof:
        with record_function("step"):
            profiled.append(seconds(record_function))
    rows = {{row.key: row.cpu_time_total / 1e6 for row in prof.key_averages()}}
    parts = ("data_loading", "copy_to_device", "forward", "backward", "optimizer", "synchronisation", "step")
    fastest |= {{part: min(rows[part], fastest.get(part, rows[part])) for part in parts if part in rows}}
print(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=15))
for part, least_s in fastest.items():
    print(f"{{part:>16}} {{least_s * 1e3:10.3f}} ms")
print(f"first step {{first_s * 1e3:.3f}} ms, bare {{median(bare) * 1e3:.3f}} ms, profiled {{median(profiled) * 1e3:.3f}} ms")
"""
_TRAP = """
device = "{device}"

# as people write it
try:
{wrong}
    as_written = result
except Exception as error:
    as_written = str(error)
print("as written:", as_written)

# repaired
{right}
print("repaired:", result)
print({headline})
"""


_REACHED = """

def reached_share():
    \"\"\"FLOP/s of the bare step against those of a large matmul.\"\"\"
    with FlopCounterMode(display=False) as counter:
        step()
    a, best_s = torch.randn(768, 768, device="{device}"), []
    for _ in range(5):
        started = time.perf_counter()
        (a @ a)[0, 0].item()
        best_s.append(time.perf_counter() - started)
    return counter.get_total_flops() / median(bare) / (2 * 768**3 / min(best_s))


"""


def script(params: Params) -> str:
    """A preset prints its evidence last, other settings the median of the bare steps in seconds."""
    if params.trap != "none":
        return _trap_script(params)
    parts = [_IMPORTS, f"torch.manual_seed({params.seed})"]
    parts += [_own(params)] if params.model == "own" else [_ours(params)]
    if params.model == "own" and params.precision == "bf16":
        parts.append("model.to(torch.bfloat16)")
    parts.append(_optimizer(params))
    headline = headline_of(params)
    reached = _REACHED.format(device=params.device) if "reached_share" in headline else ""
    return "\n".join(parts) + _step(params) + _measure(params) + f"{reached}print({headline})\n"


def _trap_script(params: Params) -> str:
    programs = PROGRAMS[params.trap]
    wrong = "\n".join(f"    {line}".rstrip() for line in programs.wrong.rstrip().splitlines())
    return HEAD + _TRAP.format(
        device=params.device, wrong=wrong, right=programs.right.rstrip(), headline=headline_of(params)
    )


def _ours(params: Params) -> str:
    sizes = {name: getattr(params, name) for name in ("layers", "width", "batch", "seq")}
    classes = [inspect.getsource(cls).rstrip() for cls in (*_CLASSES[params.model], Samples)]
    constants = "\n".join(
        f"{name} = {getattr(models, name)}" for name in ("VOCABULARY", "CLASSES", "HEAD_WIDTH", "IMAGE")
    )
    placed = f'.to("{params.device}"{", torch.bfloat16" if params.precision == "bf16" else ""})'
    lines = [
        constants,
        "\n\ndef Blocks(blocks):\n    return nn.Sequential(*blocks)\n",
        "\n\n\n".join(classes),
        "\n",
        f"model = {_MODELS[params.model].format(**sizes)}{placed}",
        f"samples = Samples({_BATCHES[params.model].format(**sizes)}, {params.decode_us})",
        f"batches = iter(DataLoader(samples, {params.batch}, num_workers={params.workers}, pin_memory={params.pin_memory and params.device == 'cuda'}))",
    ]
    if params.channels_last and params.model == "cnn":
        lines.append("model = model.to(memory_format=torch.channels_last)")
    return "\n".join(lines)


def _own(params: Params) -> str:
    device = f'torch.set_default_device("{params.device}")\n' if params.device != "cpu" else ""
    return f"""{device}{params.code.rstrip()}

def loss_of_batch():
    if callable(globals().get("loss")):
        return loss(model, batch)
    inputs, target = batch if isinstance(batch, (tuple, list)) else (batch, None)
    output = model(inputs)
    if target is None:
        return output.square().mean()
    return F.mse_loss(output, target) if target.is_floating_point() else F.cross_entropy(output, target)

"""


def _optimizer(params: Params) -> str:
    impl = implementation(params.optimizer_impl)
    lines = [f"optimizer = {optimizer_source(params.optimizer, 'model.parameters()', **impl)}"]
    if params.compile:
        lines.append("model = torch.compile(model)")
    if params.precision == "fp16_autocast":
        lines.append(f'scaler = torch.amp.GradScaler("{params.device}")')
    return "\n".join(lines)


def _step(params: Params) -> str:
    """Own batches are there already: nothing is loaded or copied."""
    own, fp16 = params.model == "own", params.precision == "fp16_autocast"
    text = _STEP
    if own:
        text = text.replace(
            '    with mark("data_loading"):\n        {load}\n    with mark("copy_to_device"):\n        {copy}\n', ""
        )
    return text.format(
        load="inputs, target = next(batches)",
        copy=_copy(params),
        autocast=autocast_source(f'"{params.device}"', params.precision),
        loss=_LOSSES.get(params.model, "F.cross_entropy(model(inputs), target)"),
        backward="scaler.scale(value).backward()" if fp16 else "value.backward()",
        optimizer_step="scaler.step(optimizer); scaler.update()" if fp16 else "optimizer.step()",
        set_to_none=params.set_to_none,
    )


def _copy(params: Params) -> str:
    how = [f'"{params.device}"']
    if params.precision == "bf16" and params.model != "gpt":
        how.append("torch.bfloat16")
    if params.pin_memory and params.device == "cuda":
        how.append("non_blocking=True")
    last = ["memory_format=torch.channels_last"] if params.channels_last and params.model == "cnn" else []
    return f"inputs, target = inputs.to({', '.join([*how, *last])}), target.to({how[0]})"


def _measure(params: Params) -> str:
    cuda = params.device == "cuda"
    return _MEASURE.format(
        cuda=", ProfilerActivity.CUDA" if cuda else "",
        warmup=params.warmup,
        steps=params.steps,
    )
