"""The measurement on its own, in plain PyTorch; the headline number is printed last."""

from __future__ import annotations

from lab.experiments.serving_skew.schema import Params

_HEAD = """import copy

import torch
import torch.nn.functional as F
from torch import nn

columns = ["age", "income", "clicks", "visits"]


def rows(n, seed, shift=0.0):
    g = torch.Generator().manual_seed(seed)
    table = torch.stack([
        torch.randint(18, 80, (n,), generator=g).float() + shift, torch.rand(n, generator=g) * 9e4 + 1e4,
        torch.randint(0, 50, (n,), generator=g).float(), torch.randint(0, 20, (n,), generator=g).float(),
    ], 1)
    return table


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.bn, self.act, self.drop, self.fc2 = nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3)

    def forward(self, x):
        return self.fc2(self.drop(self.act(self.bn(self.fc1(x)))))


torch.manual_seed(0)
table = rows(512, 5)
mean, std = table.mean(0), table.std(0)
classes = (table[:, 1] > 4e4).long() + (table[:, 2] > 25).long()
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(300):
    chosen = torch.randint(0, 512, (64,))
    optimizer.zero_grad()
    F.cross_entropy(net((table[chosen] - mean) / std), classes[chosen]).backward()
    optimizer.step()
net.eval()


def path(x, net=net, mean=mean, std=std, order=(0, 1, 2, 3), dtype=torch.float32, share=lambda y: y.softmax(1), labels=(0, 1, 2)):
    x = x[:, list(order)]
    if -1 in order:
        x[:, [k for k, at in enumerate(order) if at == -1]] = 0.0
    stages = {"features": x, "normalised": (x - mean) / std}
    y = stages["normalised"].to(dtype)
    stages["dtype"] = y.float()
    with torch.no_grad():
        for name, module in net.named_children():
            y = module(y)
            stages["module " + name] = y.float()
    stages["probabilities"] = share(y.float())
    stages["label"] = torch.tensor(labels)[stages["probabilities"].argmax(1)]
    return stages


def older(net):
    with torch.no_grad():
        net.fc1.weight.mul_(0.999)


def headless(net):
    torch.manual_seed(99)
    fresh = Net()
    net.fc2.load_state_dict(fresh.fc2.state_dict())


def int8(net):
    with torch.no_grad():
        for w in (net.fc1.weight, net.fc2.weight):
            scale = w.abs().amax(1, keepdim=True) / 127
            w.copy_((w / scale).round().clamp(-127, 127) * scale)


def changed(act):
    other = copy.deepcopy(net)
    act(other)
    return {"net": other}


served = rows(64, 77, 15.0)
skews = {
    "none": {}, "feature order": {"order": (1, 0, 2, 3)}, "missing feature read as 0": {"order": (0, 1, 2, -1)},
    "not normalised": {"mean": torch.zeros(4), "std": torch.ones(4)},
    "statistics of the serving batch": {"mean": served.mean(0), "std": served.std(0)},
    "biased for unbiased std": {"std": table.std(0, unbiased=False)}, "constants through float16": {"mean": mean.half().float()},
    "bfloat16": {"dtype": torch.bfloat16, "net": copy.deepcopy(net).to(torch.bfloat16)},
    "train mode": changed(lambda n: n.train()), "only dropout left on": changed(lambda n: n.drop.train()),
    "only BatchNorm left in train": changed(lambda n: n.bn.train()), "running statistics not loaded": changed(lambda n: n.bn.reset_running_stats()),
    "head not loaded": changed(headless), "old checkpoint": changed(older), "int8 weights": changed(int8),
    "sigmoid for softmax": {"share": torch.sigmoid}, "temperature 2": {"share": lambda y: (y / 2).softmax(1)},
    "labels permuted": {"labels": (0, 2, 1)}, "batches of one": {},
}


def gap(a, b):
    return ((a.double() - b.double()).abs().max() / a.double().std()).item()

"""
_STAGES = """x = rows({rows}, {seed} + 1)
a = path(x)
torch.manual_seed({seed} + 1)
b = path(x, **skews["{skew}"])
gaps = {{name: gap(a[name], b[name]) for name in a if name != "label"}}
first = next((name for name, value in gaps.items() if value > {tolerance}), None)
print("first stage that parts:", first)
print(gaps.get(first, 0.0))
"""
_LABELS = 'print((a["label"] != b["label"]).double().mean().item())\n'
_POWER = """x = rows({rows}, {seed} + 1)
a = path(x)
count = 0
for at, (skew, change) in enumerate(skews.items()):
    torch.manual_seed({seed} + 1)
    share = (a["label"] != path(x, **change)["label"]).double().mean().item()
    count += share > 0
    print(skew, share)
print(count)
"""
_DRIFT = """live = rows(256, {seed} + 8, {shift})
print(((live.mean(0) - mean) / std)[0].item())
"""
_BY_LABEL = ("feature order", "head not loaded", "labels permuted")


def script(params: Params) -> str:
    """A program of its own."""
    if params.view == "own":
        return _own(params)
    known = {"rows": params.golden_rows, "seed": params.seed, "skew": params.skew, "tolerance": params.tolerance}
    if params.view == "power":
        return _HEAD + _POWER.format(**known)
    if params.view == "drift":
        return _HEAD + _DRIFT.format(**known, shift=params.age_shift)
    return _HEAD + _STAGES.format(**known) + (_LABELS if params.skew in _BY_LABEL else "")


def _own(params: Params) -> str:
    return (
        "import math\n\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n"
        f"torch.manual_seed({params.seed})\n\n{params.code.rstrip()}\n\n"
        'g = torch.Generator().manual_seed(1)\nrows = [{"age": float(a), "income": float(b), "clicks": 3.0, "visits": 2.0} for a, b in '
        f"zip(torch.randint(18, 80, ({params.golden_rows},), generator=g), torch.rand({params.golden_rows}, generator=g) * 9e4)]\n"
        "for name, a in train_path(rows).items():\n    b = serve_path(rows).get(name)\n"
        "    print(name, a.equal(b) if isinstance(a, torch.Tensor) else a == b)\n"
    )
