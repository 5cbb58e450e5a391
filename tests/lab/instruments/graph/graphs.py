"""Programs whose graphs the tests of the instruments read, and the way to trace one in this process."""

from __future__ import annotations

from typing import Any

import torch

from lab.instruments.graph.book import Graph
from lab.instruments.graph.program_trace import ProgramTrace

FILE = "<traced>"

GRAPHS = {
    "mlp": """
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
loss = F.mse_loss(net(torch.randn(5, 4)), torch.zeros(5, 1))
""",
    "conv": """
net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2, 1))
loss = net(torch.randn(3, 1, 4, 4)).square().mean()
""",
    "shared weights": """
w = torch.randn(3, 3, requires_grad=True)
loss = (w @ (w @ torch.ones(3)) + w.T @ torch.ones(3)).sum()
""",
    "used many times": """
x = torch.tensor(2.0, requires_grad=True)
loss = x * x * x + x
""",
    "cat, stack and unbind": """
x = torch.arange(6.0).reshape(2, 3).requires_grad_()
a, b = x.unbind(0)
values, where = x.sort(dim=1)
loss = torch.cat([a, b, a]).sum() + torch.stack([b, a]).sum() + (values[1] * b).sum() + x.max(dim=0).values.sum()
""",
    "views": """
x = torch.ones(4, requires_grad=True)
y = x * 2
v = y.view(2, 2).T[0]
v.mul_(3)
loss = (y * y).sum() + v.sum()
""",
    "custom function": """
class Two(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k, y):
        ctx.save_for_backward(x, y)
        return x * y, x + y
    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return g * y + h, None, g * x + h
x, y = torch.tensor(2.0, requires_grad=True), torch.tensor(3.0, requires_grad=True)
a, b = Two.apply(x, "k", y)
loss = a * b
""",
    "double backward": """
x = torch.tensor([1.0, 2.0], requires_grad=True)
g, = torch.autograd.grad((x ** 3).sum(), x, create_graph=True)
loss = (g.norm() - 1) ** 2
""",
    "complex": """
z = torch.tensor([1 + 2j, 3 - 1j], requires_grad=True)
loss = (z * z.conj()).real.sum()
""",
    "recurrent": """
cell = nn.LSTMCell(2, 3)
h = c = torch.zeros(1, 3)
for _ in range(3):
    h, c = cell(torch.ones(1, 2), (h, c))
loss = h.sum() + c.sum()
""",
}


def run_plainly(code: str) -> dict[str, Any]:
    """The namespace that ``code`` leaves, without any instrument."""
    torch.manual_seed(0)
    names: dict[str, Any] = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional}
    exec(compile(code, FILE, "exec"), names)
    return names


def traced(code: str) -> tuple[ProgramTrace, Graph, dict[str, Any]]:
    """The trace of ``code``, the walked graph of its ``loss``, and its live namespace."""
    torch.manual_seed(0)
    names: dict[str, Any] = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional}
    trace = ProgramTrace(FILE, names)
    with trace:
        exec(compile(code, FILE, "exec"), names)
    assert trace.broken is None
    graph = trace.walk([torch.autograd.graph.get_gradient_edge(names["loss"]).node])
    return trace, graph, names
