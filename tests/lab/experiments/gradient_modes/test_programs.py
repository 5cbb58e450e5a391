"""Programs of the same kinds: in functions and modules, with logging, large tensors, caught errors; and healthy ones."""

from __future__ import annotations

import pytest
import torch

from lab.contract import apply_edits
from lab.experiments.gradient_modes import explain
from tests.lab.experiments.gradient_modes.test_cases import blamed, seen

FAULTS = {
    "cache in a function": ("cache = {}\ndef mask(n):\n    if n not in cache:\n        cache[n] = torch.ones(n)\n    return cache[n]\nwith torch.inference_mode():\n    mask(3)\nw = torch.ones(3, requires_grad=True)\nprint('train')\ny = w * mask(3)\n", 4),
    "buffer of a module": ("class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.seen = None\n    def forward(self, x):\n        if self.seen is None:\n            self.seen = torch.zeros(4)\n        self.seen.add_(1)\n        return x + self.seen\nm = M()\nwith torch.inference_mode():\n    m(torch.ones(4))\nm(torch.ones(4))\n", 7),
    "features of a frozen encoder": ("enc, head = nn.Linear(4, 4), nn.Linear(4, 1)\n@torch.inference_mode()\ndef encode(x):\n    return enc(x)\nz = encode(torch.ones(2, 4))\nprint(z.shape)\nhead(z).sum().backward()\n", 4),
    "large": ("with torch.inference_mode():\n    big = torch.zeros(1000, 1000)\nw = torch.ones(1000, requires_grad=True)\nout = big * w\n", 2),
    "requires_grad_ in a loop": ("latents = []\nfor i in range(3):\n    with torch.inference_mode():\n        z = torch.randn(2)\n    latents.append(z)\nfor z in latents:\n    z.requires_grad_()\n", 4),
    "view under no_grad": ("def halves(t):\n    with torch.no_grad():\n        return t[:2]\nbase = torch.ones(4, requires_grad=True) * 1\nfirst = halves(base)\nfirst.add_(1)\n", 3),
    "view in inference": ("base = torch.ones(4, requires_grad=True) * 1\nwith torch.inference_mode():\n    v = base.view(2, 2)\nv.mul_(2)\n", 3),
    "version of an inference tensor": ("with torch.inference_mode():\n    t = torch.ones(2)\nprint(t._version)\n", 2),
    "loss under no_grad": ("model = nn.Linear(2, 1)\ndef step(x):\n    with torch.no_grad():\n        out = model(x)\n    return out.sum()\nloss = step(torch.ones(1, 2))\nloss.backward()\n", 3),
    "call that stays": ("model = nn.Linear(2, 1)\ndef validate():\n    torch.set_grad_enabled(False)\n    return model(torch.ones(1, 2))\nvalidate()\nloss = model(torch.ones(1, 2)).sum()\nloss.backward()\n", 3),
    "detached loss": ("model = nn.Linear(2, 1)\npred = model(torch.ones(1, 2))\npred = pred.detach()\nloss = (pred - 1).square().mean()\nloss.backward()\n", 3),
    "leaf in place": ("w = torch.zeros(3, requires_grad=True)\nw.add_(1)\n", 1),
    "overwritten": ("w = torch.ones(3, requires_grad=True)\nh = torch.sigmoid(w)\nprint('x')\nh.mul_(2)\nh.sum().backward()\n", 4),
    "result in an optimizer": ("w = torch.ones(2, requires_grad=True)\nz = w * 2\ntorch.optim.SGD([z], lr=0.1)\n", 2),
    "after a caught error": ("with torch.inference_mode():\n    a = torch.ones(2)\n    b = torch.ones(2)\nw = torch.ones(2, requires_grad=True)\ntry:\n    w * a\nexcept RuntimeError:\n    print('again')\nw * b\n", 3),
}  # fmt: skip
LEAKS = {
    "call at the end": ("torch.set_grad_enabled(False)\nx = torch.ones(2)\n", 1),
    "entered by hand": ("m = torch.no_grad()\nm.__enter__()\nx = torch.ones(2)\n", 2),
    "generator": ("def rows():\n    with torch.no_grad():\n        for i in range(3):\n            yield torch.ones(2) * i\nw = torch.ones(2, requires_grad=True)\nfor r in rows():\n    y = w * r\n", 2),
    "recycling": ("lin = nn.Linear(2, 2)\nh = torch.ones(1, 2)\nfor i in range(4):\n    with torch.set_grad_enabled(i > 2):\n        h = lin(h)\nh.sum().backward()\n", 4),
    "an optimizer over nothing": ("def make():\n    with torch.no_grad():\n        return torch.ones(3, requires_grad=True) * 0.5\nw = make()\nopt = torch.optim.SGD([w], lr=0.1)\nprint('step')\nopt.step()\n", 3),
    "inside inference": ("w = torch.ones(2, requires_grad=True)\n@torch.inference_mode()\ndef f():\n    with torch.enable_grad():\n        return w * 2\nf()\n", 4),
}  # fmt: skip
HEALTHY = {
    "validation": "model = nn.Linear(2, 1)\nwith torch.no_grad():\n    out = model(torch.ones(1, 2))\nmodel(torch.ones(1, 2)).sum().backward()\n",
    "decorator": "@torch.no_grad()\ndef f(x):\n    return x * 2\nw = torch.ones(2, requires_grad=True)\nf(w)\n(w * 3).sum().backward()\n",
    "decorated generator": "@torch.no_grad()\ndef g():\n    yield 1\n    yield 2\nw = torch.ones(2, requires_grad=True)\nfor i in g():\n    y = (w * i).sum()\n    y.backward()\n",
    "context manager": "import contextlib\n@contextlib.contextmanager\ndef quiet():\n    with torch.no_grad():\n        yield\nw = torch.ones(2, requires_grad=True)\nwith quiet():\n    v = w * 2\n(w * 2).sum().backward()\n",
    "exception inside": "w = torch.ones(2, requires_grad=True)\ntry:\n    with torch.no_grad():\n        raise ValueError\nexcept ValueError:\n    pass\n(w * 2).sum().backward()\n",
    "switched back": "torch.set_grad_enabled(False)\nx = torch.ones(2)\ntorch.set_grad_enabled(True)\nw = torch.ones(2, requires_grad=True)\n(w * x).sum().backward()\n",
    "validation between steps": "class N(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.lin = nn.Linear(2, 2)\n    def forward(self, x):\n        return self.lin(x).relu()\nn = N()\nopt = torch.optim.SGD(n.parameters(), lr=0.1)\nfor i in range(2):\n    opt.zero_grad()\n    n(torch.ones(1, 2)).sum().backward()\n    opt.step()\n    with torch.no_grad():\n        n(torch.ones(1, 2))\n",
    "moving average": "m = nn.Linear(3, 3)\nema = [p.clone() for p in m.parameters()]\nfor i in range(3):\n    m(torch.ones(1, 3)).sum().backward()\n    with torch.no_grad():\n        for e, p in zip(ema, m.parameters()):\n            e.mul_(0.9).add_(p, alpha=0.1)\n",
    "clone outside": "with torch.inference_mode():\n    t = torch.ones(2)\nt = t.clone()\nw = torch.ones(2, requires_grad=True)\n(w * t).sum().backward()\n",
    "moving average of a network": "net, ema = nn.Linear(2, 2), nn.Linear(2, 2)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\nfor _ in range(3):\n    loss = net(torch.ones(4, 2)).square().mean()\n    opt.zero_grad()\n    loss.backward()\n    opt.step()\n    with torch.no_grad():\n        for a, b in zip(ema.parameters(), net.parameters()):\n            a.mul_(0.9).add_(b, alpha=0.1)\n",
    "gradients by hand": "w = torch.ones(2)\nw.grad = torch.ones(2)\ntorch.optim.SGD([w], lr=0.1).step()\n",
    "first step without gradients": "w = torch.ones(2)\nopt = torch.optim.SGD([w], lr=0.1)\nfor i in range(2):\n    if i:\n        w.requires_grad_()\n        w.square().sum().backward()\n    opt.step()\n",
    "enable inside no_grad": "w = torch.ones(2, requires_grad=True)\nwith torch.no_grad():\n    with torch.enable_grad():\n        y = (w * 2).sum()\ny.backward()\n",
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_led_back_to_its_line(name: str):
    code, line = FAULTS[name]
    result = seen(code)
    assert result.fault is not None
    assert result.fault.sites[0].line == line, result.fault


@pytest.mark.parametrize("name", LEAKS)
def test_a_mode_that_is_not_what_it_seems(name: str):
    code, line = LEAKS[name]
    result = seen(code)
    assert result.fault is None
    assert line in blamed(result)
    assert any(finding.level in ("warning", "surprise") for finding in explain(result))


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_programs_are_not_accused(name: str):
    result = seen(HEALTHY[name])
    assert result.fault is None
    assert not [finding for finding in explain(result) if finding.level != "fact"]


@pytest.mark.parametrize("name", ["cache in a function", "buffer of a module", "large"])
def test_a_repair_is_run_and_cures(name: str):
    result = seen(FAULTS[name][0])
    repair = next((r for r in result.repairs if r.accepted), None)
    assert repair, [(r.edits, r.why_not) for r in result.repairs]
    assert next(f for f in explain(result) if f.level == "fault").edit_tested
    edited = apply_edits(result.code, repair.edits)
    assert edited
    assert seen(edited).fault is None


def test_a_leaked_mode_does_not_reach_the_next_run():
    seen(LEAKS["call at the end"][0])
    seen("torch.inference_mode().__enter__()\nx = torch.ones(2)\n")
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()
    assert seen("w = torch.ones(2, requires_grad=True)\ny = w * 2\n").lines[-1].grad_fn == "MulBackward0"
