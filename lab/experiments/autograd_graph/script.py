"""The program on its own, without the lab."""

from __future__ import annotations

from lab.experiments.autograd_graph.lessons import HEADLINES
from lab.experiments.autograd_graph.schema import Params

_HEAD = """import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed({seed})
"""

_DEVICE = 'torch.set_default_device("{device}")\n'

_KEPT = """
kept = {}  # every storage that autograd saves for backward: address -> bytes


def pack(tensor):
    kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    return tensor


torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor).__enter__()
"""

_NODES = """

def nodes(tensor):
    \"\"\"Every node of the graph behind ``tensor``, once.\"\"\"
    found, todo = set(), [torch.autograd.graph.get_gradient_edge(tensor).node]
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo.extend(parent for parent, _ in node.next_functions if parent is not None)
    return found

"""

_GRADIENTS = """
for name, value in list(globals().items()):
    if isinstance(value, torch.Tensor) and value.requires_grad:
        print(f"{name}.grad =", value.grad if value.is_leaf else "not kept: it is a result", "| made by", value.grad_fn)
"""


def script(params: Params) -> str:
    """The program as it is. A preset prints its headline number last; another program prints what its tensors hold."""
    head = _HEAD.format(seed=params.seed) + (_DEVICE.format(device=params.device) if params.device != "cpu" else "")
    program = params.code.rstrip("\n") + "\n"
    headline = HEADLINES.get(params.code)
    if headline is None:
        return f"{head}\n{program}{_GRADIENTS}"
    before = _KEPT if "kept" in headline else ""
    after = _NODES if "nodes(" in headline else ""
    return f"{head}{before}\n{program}{after}\nprint({headline})\n"
