"""The measurement on its own, in plain PyTorch; the headline number is printed last."""

from __future__ import annotations

from lab.experiments.gradient_modes.programs import CACHE, HEADLINES
from lab.experiments.gradient_modes.schema import Params
from lab.experiments.gradient_modes.uses import KINDS, USES

_HEAD = """import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed({seed})
"""

_MODES = """
for name, value in list(globals().items()):
    if isinstance(value, torch.Tensor):
        print(name, "requires_grad", value.requires_grad, "grad_fn", value.grad_fn, "inference", value.is_inference())
print("gradients enabled at the end:", torch.is_grad_enabled())
"""

_CACHE = """
model = Rotary()
with torch.inference_mode():
    validation = model(torch.ones(3))
try:
    loss = model(torch.ones(3)).sum()
except RuntimeError as error:
    print(error)
print(model.table.is_inference(), "made by the assignment of self.table:")
print({line})
"""

_MATRIX = """
import time

torch.set_num_threads(1)
net = nn.Sequential(
    nn.Linear(64, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 10)
)
x = torch.randn(128, 64)
known = {t.untyped_storage().data_ptr() for t in (*net.parameters(), *net.buffers(), x)}
modes = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference_mode": torch.inference_mode}
kept, best = {}, {}
for training in (True, False):
    net.train(training)
    for name, mode in modes.items():
        saved, held = {}, []

        def pack(t):
            held.append(t)  # alive, so that no address is used twice
            saved[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t), mode():
            net(x)
        kept[training, name] = sum(size for at, size in saved.items() if at not in known)
for _ in range(10):
    for training, name in kept:
        net.train(training)
        with modes[name]():
            started = time.perf_counter()
            for _ in range(5):
                net(x)
            best[training, name] = min(best.get((training, name), 1e9), (time.perf_counter() - started) / 5)
for case in kept:
    print("train" if case[0] else "eval", case[1], kept[case], "B", f"{best[case] * 1e3:.2f} ms")
"""


def script(params: Params) -> str:
    """A program of its own."""
    head = _HEAD.format(seed=params.seed)
    if params.device != "cpu":
        head += f'torch.set_default_device("{params.device}")\n'
    if params.view == "matrix":
        timed = params.repeats == 8  # the lesson on time
        last = 'best[False, "grad"] / best[True, "no_grad"]' if timed else 'kept[False, "grad"]'
        return f"{head}{_MATRIX}print({last})\n"
    if params.view == "uses":
        return _uses()
    if params.code == CACHE:
        line = CACHE.split("\n").index("            self.table = torch.arange(3.0)") + 1
        return f"{head}\n{CACHE.split('model = Rotary()')[0]}{_CACHE.format(line=line)}"
    headline = HEADLINES.get(params.code)
    return f"{head}\n{params.code.rstrip()}\n" + (f"\nprint({headline})\n" if headline else _MODES)


def _uses() -> str:
    return (
        "import copy\nimport io\n\nimport torch\nfrom torch import nn\n\n"
        f"kinds = {dict(KINDS)!r}\nuses = {dict(USES)!r}\nfailed = 0\n"
        'given = "w = torch.ones(3, requires_grad=True)\\np = torch.ones(3, requires_grad=True)\\n"\n'
        "for kind, born in kinds.items():\n    for use, text in uses.items():\n"
        "        names = {'torch': torch, 'nn': nn, 'copy': copy, 'io': io}\n"
        "        exec(given + born, names)\n        try:\n            exec(text, names)\n"
        "        except Exception as error:\n            failed += 1\n            print(kind, '|', use, '|', error)\n"
        "print(failed)\n"
    )
