"""The measurement on its own, in plain PyTorch; the headline number is printed last."""

from __future__ import annotations

from lab.experiments.checkpoint_resume.programs import HEADLINES
from lab.experiments.checkpoint_resume.schema import LEAVE_OUT, Params

_CURVE = """import io
import random

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
device, stop, accumulate = "{device}", {stop}, {accumulate}
left_out = {left_out}
own = torch.Generator().manual_seed(5)
classes = torch.randint(0, 4, (160,), generator=own)
centres = torch.randn(4, 8, generator=own) * 1.5
inputs = centres[classes] + torch.randn(160, 8, generator=own)
inputs, classes = inputs.to(device), classes.to(device)


class Run:
    def __init__(self):
        torch.manual_seed({seed})
        random.seed({seed})
        self.model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout({dropout}), nn.Linear(32, 4)).to(device)
        self.optimizer = {optimizer}
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=40)
        self.scaler = torch.amp.GradScaler(device, init_scale=2.0**14, growth_interval=10)
        self.ema = torch.optim.swa_utils.AveragedModel(self.model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
        self.rng = torch.Generator().manual_seed({seed} + 11)
        self.order, self.position, self.micro = torch.randperm(160, generator=self.rng).tolist(), 0, 0

    def step(self):
        if self.position + 16 > 160:
            self.order, self.position = torch.randperm(160, generator=self.rng).tolist(), 0
        chosen = self.order[self.position : self.position + 16]
        self.position += 16
        x = inputs[chosen]
        if random.random() < 0.5:
            x = x + 0.05 * random.random()
        loss = F.cross_entropy(self.model(x), classes[chosen])
        self.scaler.scale(loss / accumulate).backward()
        self.micro += 1
        if self.micro % accumulate == 0:
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()
            self.scheduler.step()
            self.ema.update_parameters(self.model)
        return loss.item()

    def evaluate(self, model):
        model.eval()
        with torch.no_grad():
            loss = F.cross_entropy(model(inputs), classes).item()
        model.train()
        return loss

    def save(self):
        state, buffers = self.model.state_dict(), {{n for n, _ in self.model.named_buffers()}}
        file = io.BytesIO()
        torch.save({{
            "model": {{k: v for k, v in state.items() if k not in buffers}}, "buffers": {{k: v for k, v in state.items() if k in buffers}},
            "optimizer": self.optimizer.state_dict(), "scheduler": self.scheduler.state_dict(), "scaler": self.scaler.state_dict(),
            "ema": self.ema.state_dict(), "sampler": (self.rng.get_state(), self.order, self.position),
            "gradients": (self.micro, [p.grad for p in self.model.parameters()]),
            "python_rng": random.getstate(), "torch_rng": torch.get_rng_state(),
        }}, file)
        file.seek(0)
        return file

    def load(self, file):
        saved = torch.load(file, map_location="cpu")
        for name, part in saved.items():
            if name == "gradients":
                self.micro = part[0] if name not in left_out else part[0] // accumulate * accumulate
            if name in left_out:
                continue
            if name in ("model", "buffers"):
                self.model.load_state_dict(part, strict=False)
            elif name == "sampler":
                self.rng.set_state(part[0])
                self.order, self.position = part[1:]
            elif name == "gradients":
                for p, gradient in zip(self.model.parameters(), part[1]):
                    p.grad = None if gradient is None else gradient.to(device)
            elif name == "python_rng":
                random.setstate(part)
            elif name == "torch_rng":
                torch.set_rng_state(part)
            else:
                getattr(self, name).load_state_dict(part)


def after(run):
    seen = run.evaluate(run.model), run.evaluate(run.ema)
    losses, rates = [], []
    for _ in range(60):
        losses.append(run.step())
        rates.append(run.optimizer.param_groups[0]["lr"])
    return losses, rates, seen


first = Run()
for _ in range(stop):
    first.step()
file = first.save()
straight, rates, seen = after(first)
second = Run()
torch.manual_seed(123)
random.seed(321)
second.load(file)
resumed, rates_resumed, seen_resumed = after(second)
gaps = [abs(a - b) for a, b in zip(straight, resumed)]
different = [k for k, gap in enumerate(gaps) if gap]
print("evaluation right after loading:", [b - a for a, b in zip(seen, seen_resumed)])
print("first different step:", different[0] if different else "never")
print({last})
"""
_OPTIMIZERS = {
    "AdamW": "torch.optim.AdamW(self.model.parameters(), lr=2e-2, weight_decay=0.1)",
    "SGD": "torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)",
}
_LAST = {
    "buffers": "seen_resumed[0] - seen[0]",
    "ema": "seen_resumed[1] - seen[1]",
    "scheduler": "rates_resumed[(-stop - 1) % accumulate]",
}
_FILE = """import io

import torch


def size(obj):
    file = io.BytesIO()
    torch.save(obj, file)
    return file.tell()


big = torch.zeros(100_000)
print("its clone", size(big[:10].clone()))
print(size(big[:10]))
"""
_KEYS = """import torch
from torch import nn

model = lambda head=4: nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8), nn.Linear(8, head))
torch.manual_seed(7)
state = {{k: v.clone() for k, v in model({head}).state_dict().items()}}
file = {file}
torch.manual_seed(8)
with torch.device("{device}"):
    other = model()
try:
    print(other.load_state_dict(file, strict={strict}, assign={assign}))
except RuntimeError as error:
    print(error)
here = other.state_dict()
print(sum(not v.is_meta and k in file and v.shape == file[k].shape and torch.equal(v.cpu(), file[k]) for k, v in here.items()))
"""
_ORDER = """import torch
from torch import nn

torch.manual_seed(9)
model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8), nn.Linear(8, 4))
names = [name for name, _ in model.named_parameters()]
swap = {"0": "2", "2": "0"}
order = [swap.get(name[0], name[0]) + name[1:] for name in names]
saved = torch.optim.AdamW(model.parameters())
model(torch.randn(16, 8)).square().mean().backward()
saved.step()
by_name = dict(model.named_parameters())
other = torch.optim.AdamW([by_name[name] for name in order])
other.load_state_dict(saved.state_dict())
wrong = [n for n, p in by_name.items() if not torch.equal(other.state[p]["exp_avg"], saved.state[p]["exp_avg"])]
print(wrong)
print(len(wrong))
"""
_LOADING = """import argparse, collections, datetime, io, pathlib, random, sys, types
import numpy as np
import torch
from torch import nn

train = sys.modules["train"] = types.ModuleType("train")  # a module with classes of its own, as a training script has them
exec("import dataclasses, enum\\nclass Colour(enum.Enum):\\n    RED = 1\\n@dataclasses.dataclass\\nclass Config:\\n    lr: float = 0.1", train.__dict__)
optimizer = torch.optim.Adam([nn.Parameter(torch.ones(1))])
objects = [
    nn.Linear(2, 2).state_dict(), optimizer.state_dict(), torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5).state_dict(),
    random.getstate(), {"a": [1, 2.0, 1j, True, None], "b": {1}, "c": b"x"}, collections.OrderedDict(a=1),
    (torch.float32, torch.device("cpu"), torch.Size([1]), nn.Parameter(torch.ones(1))),
    nn.Linear(2, 2), np.float64(1.0), np.ones(3), np.random.RandomState(0).get_state(), argparse.Namespace(lr=0.1), train.Config(), train.Colour.RED,
    pathlib.PurePosixPath("x"), datetime.datetime(2026, 1, 1), collections.defaultdict(int),
]
refused = 0
for obj in objects:
    file = io.BytesIO()
    torch.save({"entry": obj}, file)
    file.seek(0)
    try:
        torch.load(file, weights_only=True)
    except Exception as error:
        refused += 1
        file.seek(0)
        print(type(obj).__name__, torch.serialization.get_unsafe_globals_in_checkpoint(file))
del sys.modules["train"]
print(refused)
"""
_HEAD = """import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed({seed})
"""


def script(params: Params) -> str:
    """A program of its own."""
    if params.view == "curve":
        left_out = LEAVE_OUT[params.leave_out]
        return _CURVE.format(
            device=params.device, stop=params.stop_after, accumulate=params.accumulate, left_out=left_out, seed=params.seed,
            dropout=params.dropout, optimizer=_OPTIMIZERS[params.optimizer],
            last=_LAST.get(params.leave_out, "gaps[different[0]] if different else 0.0"),
        )  # fmt: skip
    if params.view == "file":
        return _FILE
    if params.view == "loading":
        return _LOADING
    if params.view == "keys":
        return _ORDER if params.names == "as in the model" and not params.meta else _keys(params)
    headline = HEADLINES.get(params.code)
    return f"{_HEAD.format(seed=params.seed)}\n{params.code.rstrip()}\n" + (f"print({headline})\n" if headline else "")


def _keys(params: Params) -> str:
    file = {
        "one layer less": '{k: v for k, v in state.items() if not k.startswith("3.")}',
        "another head": "state",
        "as in the model": "state",
    }.get(params.names, f'{{"{params.names}" + k: v for k, v in state.items()}}')
    return _KEYS.format(
        head=6 if params.names == "another head" else 4, file=file, device="meta" if params.meta else params.device,
        strict=params.strict, assign=params.assign,
    )  # fmt: skip
