"""The measurement of one study in plain PyTorch, without the lab; the headline number is printed last."""

from __future__ import annotations

from collections.abc import Callable

from lab.experiments.train_eval import script_batchnorm as batchnorm
from lab.experiments.train_eval import script_dropout as dropout
from lab.experiments.train_eval import script_switches as switches
from lab.experiments.train_eval.schema import Params

_HEAD = """import copy
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

device = "{device}"
torch.manual_seed({seed})
"""

_BODIES: dict[str, Callable[[Params], str]] = {
    "masks": dropout.masks,
    "convergence": dropout.convergence,
    "MC dropout": dropout.mc_dropout,
    "who listens": dropout.listeners,
    "batch by batch": batchnorm.batches,
    "batch size": batchnorm.batch_size,
    "serving": batchnorm.serving,
    "other norms": batchnorm.other_norms,
    "freezing": batchnorm.freezing,
    "both switches": switches.both_switches,
    "modules": switches.modules,
    "forgotten eval": switches.forgotten_eval,
}


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
