"""The program on its own, without the lab: the same training under the profiler's allocation events, or a track of thirty lines.

The allocator's events give the peak of a run on the CPU. What they cannot say (tensors without data, the bytes at one
request or after a step, another device) a dispatch mode does.
"""

from __future__ import annotations

import inspect

from lab.experiments.memory_timeline.program_text import program_text
from lab.experiments.memory_timeline.schema import Params, block_numbers
from lab.experiments.memory_timeline.settings import forward_only
from lab.workloads import checkpointing
from lab.workloads.optimizers import implementation, optimizer_source
from lab.workloads.precision import autocast_source

_HEAD = '''"""What is alive while a model trains, in bytes."""

import contextlib
import functools
import gc
import json
import math
import tempfile
import weakref
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

'''
_ALLOCATOR = '''
class Track:
    """``peak`` in bytes: what was there before, and what the allocator gave out and took back since."""

    def __init__(self):
        self.there, self.now, self.peak = {}, 0, 0

    def add(self, tensor):
        storage = tensor.untyped_storage()
        self.there[storage.data_ptr()] = storage.nbytes()

    def __enter__(self):
        self.session = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
        self.session.__enter__()

    def __exit__(self, *error):
        self.session.__exit__(*error)
        with tempfile.TemporaryDirectory() as folder:
            self.session.export_chrome_trace(f"{folder}/trace.json")
            with open(f"{folder}/trace.json") as file:
                events = [e for e in json.load(file)["traceEvents"] if e["name"] == "[memory]"]
        alive = self.now = self.peak = sum(self.there.values())
        for event in sorted(events, key=lambda e: e["ts"]):
            size, address = event["args"]["Bytes"], event["args"]["Addr"]
            if size > 0:
                self.there[address] = size
                alive += size
            else:
                alive -= self.there.pop(address, 0)
            self.peak = max(self.peak, alive)
'''
_DISPATCH = '''
class Track(TorchDispatchMode):
    """``now`` and ``peak`` in bytes. A storage dies when the last tensor lets go of it; a weak reference says when."""

    def __init__(self, cap=math.inf):
        super().__init__()
        self.known, self.now, self.peak, self.cap, self.alive_then = {}, 0, 0, cap, None

    def add(self, tensor):
        storage = tensor.untyped_storage()
        key, size = id(storage), storage.nbytes()
        if tensor.device.type != DEVICE or key in self.known or not size:
            return
        self.known[key] = weakref.ref(storage, lambda _: self.remove(key, size))
        self.now += size
        if self.now > self.cap:
            self.alive_then = self.now - size
            raise MemoryError(f"asked for {size:,} B with {self.alive_then:,} B alive, the cap is {self.cap:,} B")
        self.peak = max(self.peak, self.now)

    def remove(self, key, size):
        self.known.pop(key, None)
        self.now -= size

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if torch.is_inference_mode_enabled() and func._can_decompose():  # it brings composite operations here whole
            with self:
                return func.decompose(*args, **(kwargs or {}))
        # where gradients meet, the engine adds in place, except under a dispatch mode: done here as it does without
        meets = func is torch.ops.aten.add.Tensor and torch._C._current_autograd_node() is not None
        alone = meets and args[0]._use_count() == 4
        if alone and torch._C._storage_Use_Count(args[0].untyped_storage()._cdata) == 2 and args[0].is_contiguous():
            return args[0].add_(args[1])
        out = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self.add(tensor)
        return out
'''

_OWN_BATCH = """
TARGETS, given = ("target", "targets", "label", "labels", "y"), globals().get("loss")


def cut(batch, count):
    if isinstance(batch, torch.Tensor):
        return list(batch.tensor_split(count))
    columns = batch.values() if isinstance(batch, dict) else batch
    rows = zip(*(column.tensor_split(count) for column in columns))
    return [dict(zip(batch, row)) if isinstance(batch, dict) else tuple(row) for row in rows]


def loss_of(model, batch):
    if given is not None and not isinstance(given, nn.Module):
        return given(model, batch)
    if isinstance(batch, dict):
        inputs = [value for name, value in batch.items() if name not in TARGETS]
        target = next((batch[name] for name in TARGETS if name in batch), None)
    else:
        *inputs, target = (batch, None) if isinstance(batch, torch.Tensor) else batch
    output = model(*inputs)
    while not isinstance(output, torch.Tensor):
        output = output[0]
    if given is not None:
        return given(output, target)
    if target is None:
        return output.square().mean()
    if target.is_floating_point():
        return F.mse_loss(output, target.reshape(output.shape).to(output.dtype))
    if output.shape[:-1] == target.shape:
        output, target = output.reshape(-1, output.shape[-1]), target.reshape(-1)
    return F.cross_entropy(output, target)
"""

_FIND_BLOCKS = """
{sources}

lists = list(lists_below(model))
if not lists:
    alone = [m for m in model.modules() if is_list(m)]
    lists = [max(alone, key=lambda m: (sum(p.numel() for p in m.parameters()), len(list(m.children()))))]
blocks = [block for chain in lists for block in chain.children()]
"""
_CHECKPOINT = """
for number, block in enumerate(blocks):
    if number in {chosen}:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant={reentrant})
"""


def script(params: Params) -> str:
    """Prints the headline number last: the peak; with a leak what the last step left behind; under a cap what was alive."""
    params = params.resolved()
    by_step = params.leak != "none" and params.steps > 1
    needs_mode = params.predict or params.cap_bytes or by_step or params.device != "cpu"
    parts = [
        _HEAD,
        _DISPATCH if needs_mode else _ALLOCATOR,
        f'\nDEVICE = "{params.device}"\ntorch.manual_seed({params.seed})\n',
    ]
    if params.device != "cpu":
        parts.append("torch.set_default_device(DEVICE)\n")
    if params.precision == "bf16":
        parts.append("torch.set_default_dtype(torch.bfloat16)\n")
    if params.predict:
        parts.append(
            "from torch._subclasses.fake_tensor import FakeTensorMode\n\nFakeTensorMode().__enter__()  # shapes without data\n"
        )
    parts.append(_own(params) if params.model == "own" else _built(params))
    return "".join(parts) + _setup(params) + _loop(params) + _report(params) + _message(params)


def _built(params: Params) -> str:
    classes, made, rule = program_text(params)
    if params.checkpoint == "chosen" and params.model != "lstm":
        made += "blocks = list(model.blocks)\n" + _checkpointed(params)
    elif params.checkpoint != "none" and params.model != "lstm":
        made += (
            f"every = len(model.blocks) if {params.checkpoint == 'all'} else min({params.every}, len(model.blocks))\n"
        )
        made += f"model.blocks.every, model.blocks.reentrant = every, {params.reentrant}\n"
    loss = f"\n\ndef loss_of(model, batch):\n    x, y = batch\n    return {rule}\n"
    return f"{classes}\n\n{made}batch = (x, y)\n{loss}"


def _own(params: Params) -> str:
    found = ""
    if params.checkpoint != "none":
        parts = (checkpointing.is_list, checkpointing.is_list_of_blocks, checkpointing.lists_below)
        found = _FIND_BLOCKS.format(sources="\n\n".join(inspect.getsource(part) for part in parts)) + _checkpointed(
            params
        )
    return f"\n{params.code.rstrip()}\n{found}{_OWN_BATCH}"


def _checkpointed(params: Params) -> str:
    chosen = sorted(block_numbers(params.blocks)) if params.checkpoint == "chosen" else "range(len(blocks))"
    return _CHECKPOINT.format(chosen=chosen, reentrant=params.reentrant)


def _setup(params: Params) -> str:
    kind = optimizer_source(params.optimizer, "model.parameters()", **implementation(params.optimizer_impl))
    cast = autocast_source("DEVICE", params.precision, "contextlib.nullcontext()")
    micro = f"[tuple(parts) for parts in zip(*(t.tensor_split({params.accumulate}) for t in batch))]"
    tensors = "*batch"
    if params.model == "own":
        micro = f"cut(batch, {params.accumulate})" if params.accumulate > 1 else "[batch]"
        tensors = "*torch.utils._pytree.tree_leaves(batch)"
    cap = f"cap={params.cap_bytes}" if params.cap_bytes else ""
    scaled = params.precision == "fp16_autocast" and params.mode == "train"
    return (
        f"optimizer = {kind}\n"
        f"scaler = torch.amp.GradScaler(DEVICE, enabled={scaled})\n"
        f"micro = {micro}\n"
        f"track, losses, loss, ends = Track({cap}), [], None, []\n"
        f"for tensor in (*model.parameters(), *model.buffers(), {tensors}):\n    track.add(tensor)\n"
        "gc.collect()\ngc.disable()  # cyclic garbage would die at some later operation\n\n"
        f"\ndef autocast():\n    return {cast}\n\n"
    )


def _loop(params: Params) -> str:
    keep = {"none": [], "item": ["losses.append(loss.item())"]}.get(params.leak, ["losses.append(loss)"])
    forward = [
        "with autocast():",
        "    loss = loss_of(model, part)" + (f" / {params.accumulate}" if params.accumulate > 1 else ""),
    ]
    if forward_only(params):
        off = {"no_grad": "torch.no_grad()", "inference_mode": "torch.inference_mode()"}.get(params.mode)
        forward = ["with autocast():", "    loss = loss_of(model, part)"]
        forward = [f"with {off}, autocast():", forward[1]] if off else forward
        body = ["for part in micro:", *_indent(forward + keep)]
    else:
        body = _training(params, forward, keep)
    steps = [f"for step in range({params.steps}):", *_indent([*body, "ends.append(track.now)"])]
    if params.cap_bytes:
        steps = ["try:", *_indent(steps), "except MemoryError as error:", "    print(error)"]
    return "with track:\n" + "\n".join(_indent(steps)) + "\n"


def _training(params: Params, forward: list[str], keep: list[str]) -> list[str]:
    clear = f"optimizer.zero_grad(set_to_none={params.set_to_none})"
    retain = "retain_graph=True" if params.retain_graph else ""
    late = [f"if part is micro[{'-1' if params.one_backward else '0'}]:", f"    {clear}"]
    late = late if params.zero_grad == "before_backward" else []
    if params.one_backward:
        joined = [*forward, "    total = loss if total is None else total + loss"]
        body = [
            "total = None",
            "for part in micro:",
            *_indent(joined + late),
            f"scaler.scale(total).backward({retain})",
            *keep,
        ]
    else:
        body = ["for part in micro:", *_indent([*forward, *late, f"scaler.scale(loss).backward({retain})", *keep])]
    first = [clear] if params.zero_grad == "before_forward" else []
    last = [clear] if params.zero_grad == "after_step" else []
    return [*first, *body, "scaler.step(optimizer)", "scaler.update()", *last]


def _report(params: Params) -> str:
    if params.cap_bytes:
        return 'print("bytes alive at the failing request:")\nprint(track.alive_then)\n'
    if params.leak != "none" and params.steps > 1:
        return 'print("bytes that the last step left behind:")\nprint(ends[-1] - ends[-2])\n'
    return 'print("peak in bytes:")\nprint(track.peak)\n'


def _indent(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


_MESSAGE_PARSER = r"""
import re

print("reserved by PyTorch and not allocated, in bytes:")
size = r"([\d.]+) ?(bytes|KiB|MiB|GiB|TiB)"
unit = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
found = re.search(size + " is reserved by PyTorch but unallocated", MESSAGE)
print(round(float(found[1]) * unit[found[2]]) if found else "not in this message")
"""


def _message(params: Params) -> str:
    return f"MESSAGE = {params.message!r}\n{_MESSAGE_PARSER}" if params.message else ""
