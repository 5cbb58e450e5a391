"""Which later use of a tensor fails: each kind is made, each use is run, on tensors of its own.

Every cell is the program that it shows: one text that makes the tensor, one that uses it.
"""

from __future__ import annotations

import math
import warnings

import torch
from torch import nn

from lab.contract import Report
from lab.records.gradient_modes import Use

_W = "w = torch.ones(3, requires_grad=True)\n"
KINDS = {
    "grad result": "t = w * 2",
    "leaf": "t = w",
    "plain": "t = torch.ones(3)",
    "no_grad": "with torch.no_grad(): t = w * 2",
    "view made in no_grad": "b = w * 1\nwith torch.no_grad(): t = b[:]",
    "inference": "with torch.inference_mode(): t = w * 2",
    "view made in inference of a grad tensor": "b = w * 1\nwith torch.inference_mode(): t = b[:]",
    "view made in inference of a plain tensor": "b = torch.ones(3)\nwith torch.inference_mode(): t = b[:]",
    "detach": "t = (w * 2).detach()",
    ".data": "t = (w * 2).data",
    "clone of inference outside": "with torch.inference_mode(): i = w * 2\nt = i.clone()",
}
_OWN = """class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g * 2
"""
USES = {
    "backward()": "t.sum().backward()",
    "requires_grad_()": "r = t.requires_grad_().requires_grad",
    "in place": "t.add_(1)",
    "in place with a parameter": "t.add_(p)",
    "times a parameter": "(t * p).sum().backward()",
    "plus a parameter": "(t + p).sum().backward()",
    "view in grad mode": "r = t.view(3).is_inference()",
    "in place on a view": "t[:2].add_(1)",
    "set its .grad": "t.grad = torch.ones(3)",
    "as a parameter's .grad": "p.grad = t",
    "_version": "r = t._version",
    "nn.Parameter(t)": "r = nn.Parameter(t).is_inference()",
    "train nn.Parameter(t)": "q = nn.Parameter(t)\n(q * 1).sum().backward()\ntorch.optim.SGD([q], lr=0.1).step()",
    "SGD([t])": "torch.optim.SGD([t], lr=0.1)",
    "SGD trains it": "o = torch.optim.SGD([t], lr=0.1)\nbefore = t.tolist()\n(t * p.detach()).sum().backward() if t.requires_grad else None\no.step()\nr = 'moves' if t.tolist() != before else 'does not move'",
    "copy_ into it": "t.copy_(torch.zeros(3))",
    "copy_ from it": "torch.zeros(3).copy_(t)",
    "numpy()": "t.numpy()",
    "deepcopy": "r = copy.deepcopy(t).is_inference()",
    "torch.save": "torch.save(t, io.BytesIO())",
    "out=": "torch.add(torch.ones(3), 1, out=t)",
    "saved by a custom Function": _OWN
    + "(Double.apply(t) * p.detach()).sum()\n(Double.apply(p * 1) + t).sum().backward()",
    "input of nn.Linear": "nn.Linear(3, 2)(t).sum().backward()",
    "detach_()": "t.detach_()",
    "in place inside no_grad": "with torch.no_grad(): t.add_(1)",
    "in place inside inference_mode": "with torch.inference_mode(): t.add_(1)\nr = None if t.is_inference() else t._version",
}


def measure_uses(report: Report) -> tuple[Use, ...]:
    """All cells, kind by kind."""
    found = []
    for number, (kind, born) in enumerate(KINDS.items()):
        report(number / len(KINDS), f"{kind}: {len(USES)} uses")
        found += [_tried(kind, born, use, text) for use, text in USES.items()]
    return tuple(found)


def program_of(born: str, use: str) -> str:
    """The cell as a program."""
    imports = "".join(f"import {name}\n" for name in ("copy", "io") if f"{name}." in use)
    given = (
        "w" if "w" in born.replace("with", "").replace("view", "") else "",
        "p" if "p." in use or "p)" in use or "* p" in use else "",
    )
    made = "".join(f"{name} = torch.ones(3, requires_grad=True)\n" for name in given if name)
    return f"{imports}import torch\nfrom torch import nn\n{made}{born}\n{use}\n"


def _tried(kind: str, born: str, use: str, text: str) -> Use:
    import copy
    import io

    names = {"torch": torch, "nn": nn, "copy": copy, "io": io, "math": math}
    code = f"w = torch.ones(3, requires_grad=True)\np = torch.ones(3, requires_grad=True)\n{born}\n"
    outcome, message = "ok", ""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        exec(compile(code, "<kind>", "exec"), names)
        try:
            exec(compile(text, "<use>", "exec"), names)
            message = str(names["r"]) if names.get("r") is not None else ""
        except Exception as error:  # noqa: BLE001 - what torch says is the result
            outcome, message = type(error).__name__, str(error)
    if outcome == "ok" and told:
        message = f"{message} (warns: {told[0].message})".strip()[:300]
    return Use(kind, use, outcome, message, program_of(born, text))
