"""What each operation did to memory, against writing and looking; a planted error is caught."""

from __future__ import annotations

import pytest
import torch

from lab.experiments.tensor_anatomy.self_check import ORACLES
from tests.lab.experiments.tensor_anatomy.programs_watched import told, watched

KINDS = {
    "x.t()": "view",
    "x[1:, ::2]": "view",
    "x.narrow(0, 0, 2)": "view",
    "x[0].expand(5, 4)": "view",
    "x.detach()": "view",
    "x.data": "view",
    "x.squeeze()": "view",
    "x.flatten()": "view",
    "x.view(2, 6)": "view",
    "x.T": "view",
    "x[[0, 2]]": "new memory",
    "x[x > 3]": "new memory",
    "x.repeat(1, 2)": "new memory",
    "torch.stack([x, x])": "new memory",
    "x.clone()": "new memory",
    "x.t().flatten()": "new memory",
    "x.t().contiguous()": "new memory",
    "x.to(torch.float64)": "new memory",
    "x.to(torch.float32)": "same object",
    "x.contiguous()": "same object",
    "x.add_(1)": "in place",
}


def shares_by_writing(expression: str) -> bool:
    """Whether a write into the result arrives in x."""
    x = torch.arange(12.0).reshape(3, 4)
    result = eval(expression, {"torch": torch, "x": x})
    before = x.clone()
    if 0 in result.stride():
        result = result[0]
    result.copy_(torch.full_like(result, -7.0))
    return not torch.equal(x, before)


@pytest.mark.parametrize("expression", KINDS)
def test_the_kind_of_a_result(expression: str):
    result = watched(f"x = torch.arange(12.0).reshape(3, 4)\nr = {expression}\n")
    assert result.lines[-1].kind == KINDS[expression]
    assert (result.lines[-1].kind != "new memory") == shares_by_writing(expression)


def test_a_kind_told_by_name_alone_would_be_caught():
    """flatten is listed among the operations that give views."""
    assert not shares_by_writing("x.t().flatten()")
    assert shares_by_writing("x.flatten()")


def test_new_memory_is_what_lives():
    """Conservation: bytes of distinct pieces at the end = new memory of the rows that made them."""
    code = "a = torch.ones(8)\nb = a.t()\nc = a * 2\nd = c[2:]\ne = torch.cat([a, c])\nc += 1\n"
    result = watched(code)
    living = {
        number: size
        for number, size, names in zip(
            result.storages.number, result.storages.bytes, result.storages.names, strict=True
        )
        if names
    }
    made = {line.storage: line.new_bytes for line in result.lines if line.kind == "new memory"}
    assert living == {number: size for number, size in made.items() if number in living}
    assert sum(living.values()) == 8 * 4 + 8 * 4 + 16 * 4
    assert (result.names, result.pieces) == (5, 3)


def test_strips_and_names_over_the_steps():
    result = watched("x = torch.arange(6.0)\ny = x[1::2]\nx = y * 2\n")
    strips = {strip.name: strip for strip in result.strips}
    assert strips["y"].positions == (1, 3, 5)
    assert strips["x"].positions == (0, 1, 2)
    assert strips["x"].storage != strips["y"].storage
    assert list(zip(result.bindings.step, result.bindings.name, strict=True)) == [(1, "x"), (2, "y"), (3, "x")]


def test_values_of_a_write_through_a_view_are_those_of_the_memory():
    result = watched("x = torch.zeros(4)\ny = x[2:]\ny += 5\n")
    assert result.storages.values[0] == (0.0, 0.0, 5.0, 5.0)
    (write,) = [line for line in result.lines if line.kind == "in place"]
    assert (write.name, write.shares_with, write.new_bytes) == ("y", ("x",), 0)


def test_lines_inside_a_module():
    code = (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(4, 2)\n"
        "    def forward(self, x):\n        h = self.fc(x)\n        return h.relu()\nout = Net()(torch.ones(3, 4))\n"
    )
    rows = {line.op: line for line in watched(code).lines}
    assert (rows["linear"].line, rows["linear"].shape, rows["linear"].name) == (6, (3, 2), "h")
    assert [tuple(i.shape) for i in rows["linear"].inputs] == [(3, 4), (2, 4), (2,)]
    assert rows["linear"].module == "fc (Linear)"
    assert rows["relu"].name == "out"


def test_promotion_and_repetition_are_noted():
    result = watched(
        "a = torch.ones(3)\nb = torch.ones(2, 3, dtype=torch.float64)\nc = a + b\nd = b[torch.tensor([0])]\n"
    )
    sums = next(line for line in result.lines if line.op == "add")
    assert (sums.promoted_from, sums.expanded, sums.dtype) == (("float32", "float64"), ("a",), "float64")
    assert all(not line.promoted_from for line in result.lines if line.op == "getitem")


def test_watching_changes_nothing():
    code = "import random\ntorch.manual_seed(1)\nx = torch.randn(4)\nprint(x.sum().item(), random.random())\nv = x._version\nprint(v)\n"
    torch.manual_seed(1)
    first = torch.randn(4).sum().item()
    assert watched(code).printed.startswith(f"{first} ")
    assert torch.from_numpy.__name__ == "from_numpy"
    assert type(torch.from_numpy).__name__ == "builtin_function_or_method"


@pytest.mark.parametrize(
    "code",
    [
        "x = torch.randn(8, 4)\nw = torch.randn(4, 3)\nb = torch.zeros(3)\ny = x @ w + b\nloss = y.square().mean()\n",
        "pos = torch.arange(50.0)[:, None]\nfreq = torch.arange(32.0)\nangles = pos * freq\n",
        "x = torch.randn(6, 2)\nd = (x[:, None, :] - x[None, :, :]).norm(dim=-1)\n",
        "ids = torch.tensor([1, 2, 1])\nsame = ids.unsqueeze(0) == ids.unsqueeze(1)\n",
        "h = torch.randn(2, 5, 8)\nq = h.view(2, 5, 2, 4).transpose(1, 2)\nback = q.transpose(1, 2).reshape(2, 5, 8)\n",
        "x = torch.ones(3)\nx = x + 1e-9\nx = x * (1 + 1e-10)\n",
        "img = torch.randint(0, 256, (4, 4, 3), dtype=torch.uint8)\nx = img.permute(2, 0, 1).float() / 255\n",
        "p = torch.softmax(torch.randn(4, 5), -1)\nm = torch.tril(torch.ones(5, 5)).bool()\ns = torch.randn(5, 5).masked_fill(~m, float('-inf'))\n",
        "net = nn.Linear(3, 1)\nnet.to(torch.float64)\nx = torch.ones(2, 3, dtype=torch.float64)\nloss = F.mse_loss(net(x), torch.zeros(2, 1, dtype=torch.float64))\n",
        "x = torch.zeros(3, dtype=torch.int64)\nx[0] = 2\nx[1] = 3.0\n",
        "history = []\nx = torch.zeros(2)\nfor _ in range(3):\n    x += 1\n    history.append(x.clone())\n",
    ],
)  # fmt: skip
def test_healthy_programs_draw_no_warning(code: str):
    assert not told(code), [finding.title for finding in told(code)]


def test_a_long_loop_ends_and_what_fails_after_it_is_explained():
    code = "x = torch.ones(4, 3)\nfor _ in range(10_000):\n    y = x + 1\nz = x.t().view(-1)\n"
    result = watched(code)
    assert result.fault is not None
    assert "no neighbours" in result.fault.explanation
    assert len(result.lines) + result.lines_cut == 10_002


def test_a_fault_in_a_long_loop_is_explained():
    code = "x = torch.ones(3)\nfor i in range(5_000):\n    y = x + (torch.ones(2) if i == 4_000 else x)\n"
    fault = watched(code).fault
    assert fault is not None
    assert "3 against 2" in fault.explanation


@pytest.mark.parametrize("name", ORACLES)
def test_the_page_checks_itself(name: str):
    assert ORACLES[name]("cpu")
