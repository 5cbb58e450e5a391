"""The measurement on its own, in plain PyTorch; the headline number is printed last."""

from __future__ import annotations

from lab.experiments.fine_tuning.schema import Params

_HEAD = """import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)


def data(seed, classes, n=256, shift=0.0, far=False):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (n,), generator=g)
    centres = torch.randn(classes, 8, generator=torch.Generator().manual_seed(40 + classes)) * 1.5
    x = centres[y] + torch.randn(n, 8, generator=g) + shift
    return (-x.flip(1) if far else x), y


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU())
        self.head = nn.Linear(32, classes)

    def forward(self, x):
        return self.head(self.backbone(x))


def train(model, optimizer, x, y, steps, before=lambda step: None, set_to_none=True, seed=9):
    g = torch.Generator().manual_seed(seed)
    model.train()
    for step in range(steps):
        before(step)
        chosen = torch.randint(0, len(x), (32,), generator=g)
        optimizer.zero_grad(set_to_none=set_to_none)
        F.cross_entropy(model(x[chosen]), y[chosen]).backward()
        optimizer.step()


def new_head(seed=7):
    torch.manual_seed(seed)
    return nn.Linear(32, 3)


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        return (model(x).argmax(1) == y).double().mean().item()


torch.manual_seed(0)
base = Net(5)
train(base, torch.optim.Adam(base.parameters(), lr=1e-2), *data(1, 5), 200)
shift = {shift}
far = {far}
x, y = data(2, 3, {rows}, shift, far)
xv, yv = data(3, 3, 256, shift, far)
model = copy.deepcopy(base)
"""
_ADAM = "torch.optim.{optimizer}({given}, lr={lr}, weight_decay={weight_decay}{momentum})"
_RECIPES = {
    "everything": "model.head = new_head()\noptimizer = {make_all}\n",
    "groups": "model.head = new_head()\noptimizer = {make_groups}\n",
    "backbone frozen": "model.head = new_head()\nmodel.backbone.requires_grad_(False)\noptimizer = {make_head}\n",
    "frozen and BatchNorm in eval": "model.head = new_head()\nmodel.backbone.requires_grad_(False)\noptimizer = {make_head}\n",
    "optimizer before the new head": "optimizer = {make_all}\nmodel.head = new_head()\n",
    "optimizer before the new head, backbone frozen": (
        "model.backbone.requires_grad_(False)\noptimizer = {make_trainable}\nmodel.head = new_head()\n"
    ),
    "frozen after the optimizer was built": (
        "model.head = new_head()\noptimizer = {make_all}\nmodel.backbone.requires_grad_(False)\n"
    ),
}
_MOVED = """before = copy.deepcopy(model.state_dict())
train(model, optimizer, x, y, {steps}, {prepare}, {set_to_none})
moved = {{k: (v.double() - before[k].double()).norm().item() for k, v in model.state_dict().items() if v.is_floating_point()}}
for name, distance in moved.items():
    print(f"{{name:32s}} {{distance:.4g}}")
part = lambda keep: sum(d**2 for k, d in moved.items() if keep(k)) ** 0.5
print("accuracy", accuracy(model, xv, yv))
"""
_NODES = """loss = F.cross_entropy(model(x), y)
seen, todo = set(), [loss.grad_fn]
while todo:
    node = todo.pop()
    if node is not None and node not in seen:
        seen.add(node)
        todo += [parent for parent, _ in node.next_functions]
print(len(seen))
"""
_LAST = {
    "optimizer before the new head": 'print(part(lambda k: k.startswith("head")))\n',
    "optimizer before the new head, backbone frozen": "print(accuracy(model, xv, yv))\n",
    "groups": 'print(part(lambda k: k.startswith("backbone") and "running" not in k))\n',
    "frozen after the optimizer was built": _NODES,
}
_STATISTICS = 'print(part(lambda k: "running" in k))\n'
_MIDWAY = """model.head = new_head()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
train(model, optimizer, x, y, 10)
model.backbone.requires_grad_(False)
before = [p.detach().clone() for p in model.backbone.parameters()]
optimizer.zero_grad(set_to_none=False)
g = torch.Generator().manual_seed(1)
for _ in range(20):
    chosen = torch.randint(0, 256, (32,), generator=g)
    F.cross_entropy(model(x[chosen]), y[chosen]).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
print(torch.stack([(p.detach() - q).double().norm() for p, q in zip(model.backbone.parameters(), before)]).norm().item())
"""
_LORA = """

class LowRank(nn.Module):
    def __init__(self, base, rank):
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + (x @ self.a.T) @ self.b.T


model.head = new_head()
model.backbone.requires_grad_(False)
torch.manual_seed(3)
model.backbone[3] = LowRank(model.backbone[3], {rank})
model.backbone[0] = LowRank(model.backbone[0], {rank})
optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
F.cross_entropy(model(x[:32]), y[:32]).backward()
first = model.backbone[3].a.grad.norm().item()
print("gradient of A in the first step", first, "of B", model.backbone[3].b.grad.norm().item())
train(model, optimizer, x, y, {steps}, lambda step: model.eval())
singular = torch.linalg.svdvals((model.backbone[3].b @ model.backbone[3].a).detach().double())
rank = int((singular > 1e-6 * singular[0]).sum())
print({last})
"""
_SHARE = """score = {{}}
for frozen in ((), (0, 1, 3, 4)):
    score[frozen] = 0.0
    for seed in (9, 10, 11):
        model = copy.deepcopy(base)
        model.head = new_head(seed)
        for at in frozen:
            model.backbone[at].requires_grad_(False)
        train(model, torch.optim.Adam(model.parameters(), lr={lr}), x, y, {steps}, seed=seed)
        score[frozen] += accuracy(model, xv, yv) / 3
print(score)
print(score[()] - score[0, 1, 3, 4])
"""


def script(params: Params) -> str:
    """A program of its own."""
    if params.view == "own":
        return (
            "import math\n\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n"
            f"torch.manual_seed({params.seed})\n\n{params.code.rstrip()}\n"
        )
    if params.view == "share":
        return _HEAD.format(shift=4.0, far=True, rows=16) + _SHARE.format(lr=params.lr, steps=params.steps)
    far = params.far if params.view != "midway" else False
    head = _HEAD.format(
        shift=4.0 if far else 1.0, far=far, rows=256 if params.view == "midway" else params.rows
    )  # fmt: skip
    if params.view == "midway":
        return head + _MIDWAY
    if params.view == "lora":
        return head + _LORA.format(rank=params.rank, steps=params.steps, last="rank" if params.rank == 8 else "first")
    return head + _recipe(params)


def _recipe(params: Params) -> str:
    def made(given: str) -> str:
        momentum = f", momentum={params.momentum}" if params.optimizer == "SGD" else ""
        return _ADAM.format(
            optimizer=params.optimizer, given=given, lr=params.lr, weight_decay=params.weight_decay, momentum=momentum
        )

    slow = params.lr * params.backbone_lr_factor
    recipe = _RECIPES[params.recipe].format(
        make_all=made("model.parameters()"),
        make_head=made("model.head.parameters()"),
        make_trainable=made("[p for p in model.parameters() if p.requires_grad]"),
        make_groups=made(f'[{{"params": model.backbone.parameters(), "lr": {slow}}}, {{"params": model.head.parameters()}}]'),
    )  # fmt: skip
    prepare = (
        "lambda step: model.backbone.eval()" if params.recipe == "frozen and BatchNorm in eval" else "lambda step: None"
    )
    moved = _MOVED.format(steps=params.steps, prepare=prepare, set_to_none=params.set_to_none)
    return recipe + moved + _LAST.get(params.recipe, _STATISTICS)
