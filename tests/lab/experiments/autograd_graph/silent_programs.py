"""Programs that end without an error and do not what was meant, one a kind, each with a healthy twin.

``# here`` marks the line that a finding must name. ``N`` stands for the number of elements.
"""

from __future__ import annotations

import re
from textwrap import indent
from typing import NamedTuple


class Kind(NamedTuple):
    words: str
    """In the title of the finding."""
    program: str
    twin: str
    """A healthy program that looks alike: nothing with these words may be said."""


NET = "net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))\nx = torch.randn(N, 3)\n"
LOOP = NET + "opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"

KINDS = {
    "log of a negative number": Kind(
        "log made NaN",
        "x = torch.full((N,), 2.0)\nx[1] = -2.0\nx.requires_grad_()\ny = torch.log(x)  # here\ny.sum().backward()",
        "x = torch.full((N,), 2.0)\nx[1] = 0.5\nx.requires_grad_()\ny = torch.log(x)\ny.sum().backward()",
    ),
    "slope of sqrt at zero": Kind(
        "gradient comes from sqrt",
        "x = torch.ones(N)\nx[0] = 0.0\nx.requires_grad_()\ny = x.sqrt()  # here\ny.sum().backward()",
        "x = torch.ones(N)\nx[0] = 0.0\nx.requires_grad_()\ny = (x + 1e-6).sqrt()\ny.sum().backward()",
    ),
    "where on the output": Kind(
        "gradient comes from log",
        "x = torch.zeros(N, requires_grad=True)\nlogs = x.log()  # here\ny = torch.where(x > 0, logs, torch.zeros(N))\ny.sum().backward()",
        "x = torch.zeros(N, requires_grad=True)\nlogs = torch.where(x > 0, x, torch.ones(N)).log()\nlogs.sum().backward()",
    ),
    "division by zero": Kind(
        "div made infinity",
        "w = torch.ones(N, requires_grad=True)\ny = w / (w.detach() - w.detach())  # here\ny.sum().backward()",
        "w = torch.ones(N, requires_grad=True)\ny = w / (w.detach() + 1)\ny.sum().backward()",
    ),
    "dead units": Kind(
        "relu hands on zero",
        "x = torch.full((N,), -1.0, requires_grad=True)\ny = torch.relu(x)  # here\ny.sum().backward()",
        "x = torch.full((N,), 1.0, requires_grad=True)\ny = torch.relu(x)\ny.sum().backward()",
    ),
    "outside a clamp": Kind(
        "clamp stops the gradient",
        "x = torch.linspace(0, 2, N).requires_grad_()\ny = x.clamp(max=1.0)  # here\ny.sum().backward()",
        "x = torch.linspace(0, 0.9, N).requires_grad_()\ny = x.clamp(max=1.0)\ny.sum().backward()",
    ),
    "a step function": Kind(
        "round hands on zero",
        "x = torch.rand(N, requires_grad=True)\ny = torch.round(x * 7)  # here\n(y * 2).sum().backward()",
        "x = torch.rand(N, requires_grad=True)\ny = x * 7\ny = y + (y.round() - y).detach()\n(y * 2).sum().backward()",
    ),
    "everything dropped": Kind(
        "dropout hands on zero",
        "x = torch.randn(N, requires_grad=True)\ny = nn.functional.dropout(x, 1.0)  # here\ny.sum().backward()",
        "x = torch.randn(N, requires_grad=True)\ny = nn.functional.dropout(x, 0.3)\ny.sum().backward()",
    ),
    "detach on the only way": Kind(
        ".grad is None",
        NET + "h = net[0](x).detach()  # here\nloss = net[2](h.tanh()).mean()\nloss.backward()",
        NET + "h = net[0](x)\nloss = net[2](h.tanh()).mean() + h.detach().mean()\nloss.backward()",
    ),
    "detach before a layer that is trained": Kind(
        ".grad is None",
        NET + "opt = torch.optim.SGD(net.parameters(), lr=0.1)\nh = net[0](x).detach()  # here\nloss = net[2](h.tanh()).mean()\nloss.backward()\nopt.step()",
        NET + "target = nn.Linear(3, 1)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\ny = target(x).detach()\n"
        "loss = (net(x) - y).square().mean()\nopt.zero_grad()\nloss.backward()\nopt.step()",
    ),
    "a copy that is a new leaf": Kind(
        ".grad is None",
        "w = torch.randn(N, requires_grad=True)\ny = torch.tensor(w * 2, requires_grad=True)  # here\ny.sum().backward()",
        "w = torch.randn(N, requires_grad=True)\ny = w * 2\ny.sum().backward()",
    ),
    "a leaf that nothing used": Kind(
        ".grad is None",
        "w = torch.randn(N, requires_grad=True)\nb = torch.zeros(N, requires_grad=True)  # here\nloss = (w * 2).sum()\nloss.backward()",
        "w = torch.randn(N, requires_grad=True)\nb = torch.zeros(N, requires_grad=True)\nloss = (w * 2 + b).sum()\nloss.backward()",
    ),
    "grad of a result": Kind(
        ".grad of a result is None",
        "x = torch.randn(N, requires_grad=True)\ny = x * 2\ny.sum().backward()\nprint(y.grad)  # here",
        "x = torch.randn(N, requires_grad=True)\ny = x * 2\ny.retain_grad()\ny.sum().backward()\nprint(y.grad)",
    ),
    "gradients never cleared": Kind(
        "is a sum over backward passes",
        LOOP + "for step in range(3):\n    loss = net(x).square().mean()\n    loss.backward()  # here\n    opt.step()",
        LOOP + "for step in range(3):\n    loss = net(x).square().mean()\n    opt.zero_grad()\n    loss.backward()\n    opt.step()",
    ),
    "a loss that broadcasts": Kind(
        "The loss compares",
        re.sub(r"\bN\b", "20", NET) + "target = torch.randn(20)\nloss = nn.functional.mse_loss(net(x), target)  # here\nloss.backward()",
        re.sub(r"\bN\b", "20", NET) + "target = torch.randn(20, 1)\nloss = nn.functional.mse_loss(net(x), target)\nloss.backward()",
    ),
    "a write through data": Kind(
        "overwritten through .data",
        "x = torch.randn(N, requires_grad=True)\ny = x.exp()\ny.data.mul_(2)  # here\ny.sum().backward()",
        "x = torch.randn(N, requires_grad=True)\ny = x.exp()\ny.sum().backward()\ny.data.mul_(2)",
    ),
    "a hook that scales": Kind(
        "A hook changes the gradient",
        "x = torch.randn(N, requires_grad=True)\ny = x * 2\ny.register_hook(lambda g: g * 10)  # here\ny.sum().backward()",
        "x = torch.randn(N, requires_grad=True)\ny = x * 2\nseen = []\ny.register_hook(lambda g: seen.append(g.norm().item()))\ny.sum().backward()",
    ),
    "the optimizer of another network": Kind(
        "The optimizer holds other parameters",
        NET + "old = nn.Linear(3, 1)\nopt = torch.optim.SGD(old.parameters(), lr=0.1)  # here\nloss = net(x).mean()\nloss.backward()\nopt.step()",
        NET + "old = nn.Linear(3, 1)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\nloss = net(x).mean()\nloss.backward()\nopt.step()",
    ),
    "cleared before the step": Kind(
        "step() found no gradients",
        LOOP + "for step in range(2):\n    loss = net(x).square().mean()\n    loss.backward()\n    opt.zero_grad()  # here\n    opt.step()",
        LOOP + "for step in range(2):\n    loss = net(x).square().mean()\n    opt.zero_grad()\n    loss.backward()\n    opt.step()",
    ),
    "clipped after the step": Kind(
        "clipped after the step",
        LOOP + "for step in range(2):\n    opt.zero_grad()\n    net(x).square().mean().backward()\n    opt.step()\n"
        "    nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # here",
        LOOP + "for step in range(2):\n    opt.zero_grad()\n    net(x).square().mean().backward()\n"
        "    nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n    opt.step()",
    ),
    "a graph that grows": Kind(
        "The graph grows",
        "w = torch.ones(N, requires_grad=True)\nh = torch.zeros(N)\nfor step in range(4):\n    h = (h + w)\n"
        "    h.sum().backward(retain_graph=True)  # here",
        "w = torch.ones(N, requires_grad=True)\nh = torch.zeros(N)\nfor step in range(4):\n    h = (h.detach() + w)\n    h.sum().backward()",
    ),
    "a total that keeps graphs": Kind(
        "keeps the graph of every step",
        LOOP + "total = 0.0\nfor step in range(4):\n    loss = net(x).square().mean()\n    opt.zero_grad()\n    loss.backward()\n    opt.step()\n"
        "    total += loss  # here",
        LOOP + "total = 0.0\nfor step in range(4):\n    loss = net(x).square().mean()\n    opt.zero_grad()\n    loss.backward()\n    opt.step()\n"
        "    total += loss.item()",
    ),
    "a wrong derivative": Kind(
        "the derivative is wrong",
        "class Cube(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        ctx.save_for_backward(x)\n        return x ** 3\n"
        "    @staticmethod\n    def backward(ctx, g):\n        (x,) = ctx.saved_tensors\n        return 2 * x ** 2 * g  # here\n"
        "x = torch.randn(N, requires_grad=True)\nCube.apply(x).sum().backward()",
        "class Cube(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        ctx.save_for_backward(x)\n        return x ** 3\n"
        "    @staticmethod\n    def backward(ctx, g):\n        (x,) = ctx.saved_tensors\n        return 3 * x ** 2 * g\n"
        "x = torch.randn(N, requires_grad=True)\nCube.apply(x).sum().backward()",
    ),
    "an advantage that was not detached": Kind(
        "The policy loss also reaches",
        "actor, critic = nn.Linear(3, 2), nn.Linear(3, 1)\nobs, returns = torch.randn(N, 3), torch.randn(N)\n"
        "dist = torch.distributions.Categorical(logits=actor(obs))\nacts = dist.sample()\nadvantage = returns - critic(obs).squeeze(-1)  # here\n"
        "loss = -(dist.log_prob(acts) * advantage).mean()\nloss.backward()",
        "actor, critic = nn.Linear(3, 2), nn.Linear(3, 1)\nobs, returns = torch.randn(N, 3), torch.randn(N)\n"
        "dist = torch.distributions.Categorical(logits=actor(obs))\nacts = dist.sample()\nadvantage = returns - critic(obs).squeeze(-1)\n"
        "loss = -(dist.log_prob(acts) * advantage.detach()).mean() + advantage.square().mean()\nloss.backward()",
    ),
    "a second derivative of straight pieces": Kind(
        "The second derivative of relu is 0",
        "net = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 1))\nx = torch.randn(N, 1, requires_grad=True)\n"
        "d, = torch.autograd.grad(net(x).sum(), x, create_graph=True)\ndd, = torch.autograd.grad(d.sum(), x, create_graph=True)  # here\n"
        "loss = (dd - 1).square().mean()\nloss.backward()",
        "net = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 1))\nx = torch.randn(N, 1, requires_grad=True)\n"
        "d, = torch.autograd.grad(net(x).sum(), x, create_graph=True)\npenalty = (d.norm(dim=1) - 1).square().mean()\npenalty.backward()",
    ),
    "grad read too early": Kind(
        "runs before .grad is stored",
        "layer = nn.Linear(N, 1)\ndef look(module, grad_in, grad_out):\n    print(module.weight.grad is None)  # here\n"
        "layer.register_full_backward_hook(look)\nlayer(torch.ones(1, N)).sum().backward()",
        "layer = nn.Linear(N, 1)\ndef look(module, grad_in, grad_out):\n    print(grad_out[0].shape)\n"
        "layer.register_full_backward_hook(look)\nlayer(torch.ones(1, N)).sum().backward()\nprint(layer.weight.grad is None)",
    ),
    "a repeated index": Kind(
        "scatter with a repeated index",
        "x = torch.randn(N, requires_grad=True)\nindex = torch.zeros(N, dtype=torch.long)\ny = torch.zeros(4).scatter(0, index, x)  # here\ny.sum().backward()",
        "x = torch.randn(N, requires_grad=True)\nindex = torch.zeros(N, dtype=torch.long)\ny = torch.zeros(4).scatter_add(0, index, x)\ny.sum().backward()",
    ),
    "a bias before batch normalisation": Kind(
        "cannot matter before batch normalisation",
        "net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))  # here\nx = torch.randn(N, 3)\nnet(x).relu().sum().backward()",
        "net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4))\nx = torch.randn(N, 3)\nnet(x).relu().sum().backward()",
    ),
    "gradients left off": Kind(
        "Gradients are off since",
        "w = torch.randn(N, requires_grad=True)\ntorch.set_grad_enabled(False)  # here\nprint((w * 2).sum())",
        "w = torch.randn(N, requires_grad=True)\nwith torch.set_grad_enabled(False):\n    print((w * 2).sum())",
    ),
    "enable_grad in inference mode": Kind(
        "enable_grad has no effect",
        "w = torch.randn(N, requires_grad=True)\nwith torch.inference_mode():\n    with torch.enable_grad():  # here\n        y = (w * 2).sum()",
        "w = torch.randn(N, requires_grad=True)\nwith torch.no_grad():\n    with torch.enable_grad():\n        y = (w * 2).sum()\ny.backward()",
    ),
    "the imaginary part": Kind(
        "The imaginary part is dropped",
        "w = torch.randn(N, dtype=torch.complex64, requires_grad=True)\ny = (w * 1j).float()  # here\ny.square().sum().backward()",
        "w = torch.randn(N, dtype=torch.complex64, requires_grad=True)\ny = (w * 1j).real\ny.square().sum().backward()",
    ),
}  # fmt: skip


def _function(program: str) -> str:
    return f"def main():\n{indent(program, '    ')}\nmain()"


def _module(program: str) -> str:
    body = indent(program, "        ")
    return f"class Whole(nn.Module):\n    def forward(self):\n{body}\nWhole()()"


def _logging(program: str) -> str:
    """A line that logs before each statement that a plain line can stand before."""
    found = ["import logging", "log = logging.getLogger('run')"]
    for row in program.split("\n"):
        margin = row[: len(row) - len(row.lstrip())]
        if not row.lstrip().startswith(("@", "def ")) or not margin:
            found.append(f"{margin}log.info('next: %s', 1)" if not row.lstrip().startswith(("def ", "@")) else "pass")
        found.append(row)
    return "\n".join(row for row in found if row != "pass")


def _caught(program: str) -> str:
    return (
        f"try:\n    torch.ones(2) @ torch.ones(3)\nexcept RuntimeError as error:\n    print('caught', error)\n{program}"
    )


WRAPPED = {"plain": str, "function": _function, "module": _module, "logging": _logging, "caught error": _caught}


def written(program: str, wrapper: str, elements: int) -> tuple[str, int]:
    """The program in its wrapper, and the line that is marked in it, 0 for none."""
    text = WRAPPED[wrapper](re.sub(r"\bN\b", str(elements), program))
    line = next((n for n, row in enumerate(text.split("\n"), 1) if "# here" in row), 0)
    return text.replace("  # here", ""), line
