"""One explanation on every page; the sizes and lines in it are those of the run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lab.contract import Fault, silent
from lab.experiments import autograd_graph, gradient_flow, memory_timeline, op_profile, train_eval
from lab.program.explain import Row, explain_fault
from lab.program.run import namespace, run_program
from lab.records.program import Ended

PAGES = {
    "autograd_graph": lambda code: autograd_graph.run(autograd_graph.Params(code=code), silent),
    "gradient_flow": lambda code: gradient_flow.run(gradient_flow.Params(family="own", code=code), silent),
    "memory_timeline": lambda code: memory_timeline.run(memory_timeline.Params(model="own", code=code), silent),
    "op_profile": lambda code: op_profile.run(op_profile.Params(model="own", code=code), silent),
    "train_eval": lambda code: train_eval.run(train_eval.Params(view="scan", model="own", code=code), silent),
}


def explained(code: str) -> Fault:
    ran = run_program(code, namespace(), wall_s=5, printed_bytes=1000)
    assert ran.ended
    return explain_fault(ran.ended)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(
    ("last", "kind", "words"),
    [
        ("undefined\n", "NameError", "not defined"),
        ("torch.ones(2, 3) @ torch.ones(4, 5)\n", "RuntimeError", "3 is not 4"),
        ("torch.ones(2, 2) @ torch.ones(2, 2).double()\n", "RuntimeError", "different dtypes"),
        ("torch.ones(2, device='meta') + torch.ones(2)\n", "RuntimeError", "one device"),
    ],
)
def test_an_error_is_explained_alike_on_every_page(page: str, last: str, kind: str, words: str) -> None:
    result: Any = PAGES[page]("print('before')\n" + last)
    assert (result.fault.type, result.fault.line) == (kind, 2)
    assert words in result.fault.explanation
    assert result.fault.repair
    assert result.printed == "before\n"


@pytest.mark.parametrize("code", ["", "  \n\n", "# only a comment\n"])
def test_no_program_is_said_alike_on_every_page_that_needs_one(code: str) -> None:
    faults: list[Fault] = [run(code).fault for page, run in PAGES.items() if page != "autograd_graph"]
    assert {fault.message for fault in faults} == {"There is no program yet."}
    assert len({(fault.type, fault.explanation, fault.repair) for fault in faults}) == 1
    assert "defines model and batch" in faults[0].explanation


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("m = nn.Linear(8, 4)\nm(torch.ones(2, 3))\n", "3 is not 8"),
        ("F.cross_entropy(torch.ones(2, 3), torch.tensor([0, 3]))\n", "from 0 to classes - 1"),
        ("F.cross_entropy(torch.ones(2, 3), torch.tensor([0, 1, 2]))\n", "one target each"),
        ("nn.Embedding(3, 2)(torch.tensor([3]))\n", "does not have"),
        ("nn.Conv2d(3, 4, 3)(torch.ones(1, 1, 8, 8))\n", "number of channels"),
        ("torch.cat([torch.ones(2, 3), torch.ones(2, 4)])\n", "do not fit"),
        ("torch.ones(6).reshape(4, 2)\n", "do not fit"),
        ("if torch.ones(2):\n    pass\n", "truth value"),
        ("class M(nn.Module):\n    def forward(self, x, y): pass\nM()(1)\n", "parameters of the module's forward"),
        ("class M(nn.Module):\n    def __init__(self):\n        self.a = nn.Linear(1, 1)\nM()\n", "__init__"),
        ("class M(nn.Module): pass\nM()(1)\n", "runs its forward"),
        ("torch.ones(2, 2) @ torch.ones(2, 2, dtype=torch.bfloat16)\n", "half precision"),
    ],
)
def test_what_torch_says_is_explained(code: str, words: str) -> None:
    assert words in explained(code).explanation


@pytest.mark.parametrize("code", ["raise ValueError('my own words')\n", "assert 1 == 2, 'no'\n", "{}['k']\n"])
def test_what_the_program_says_itself_is_left_alone(code: str) -> None:
    fault = explained(code)
    assert (fault.explanation, fault.repair) == ("", "")


def test_rows_of_a_page_come_first_and_may_read_its_record() -> None:
    ended = Ended("NameError", "name 'w' is not defined", 3)
    row = Row("NameError", "plain", "do", deeper=lambda ended, record: (f"{record} knows", "ask") if record else None)
    assert explain_fault(ended, rows=[row], record="it").explanation == "it knows"
    assert explain_fault(ended, rows=[row]).explanation == "plain"
    assert explain_fault(ended).explanation.startswith("The name is not defined")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "emb = nn.Embedding(5, 2, sparse=True)\nopt = torch.optim.Adam(emb.parameters())\nemb(torch.tensor([1])).sum().backward()\nopt.step()\n",
            "sparse=True",
        ),
        (
            "def f(row):\n    table = torch.zeros(2, 3)\n    table[0] = row\n    return table\ntorch.func.vmap(f)(torch.ones(2, 3))\n",
            "batch dimension",
        ),
        ("torch.zeros(3).add_(torch.ones(2, 3))\n", "keeps the shape"),
        (
            "net = nn.Sequential(nn.Linear(2, 3), nn.Linear(4, 1))\nnet(torch.ones(5, 2))\n",
            "raised in 1 (Linear), which got [5, 3]",
        ),
    ],
)
def test_sparse_gradients_vmap_and_modules_are_explained(code: str, said: str) -> None:
    assert said in explained(code).explanation


def test_the_norm_of_a_sparse_gradient_is_explained_where_this_torch_refuses_it() -> None:
    code = "emb = nn.Embedding(5, 2, sparse=True)\nemb(torch.tensor([1])).sum().backward()\nnn.utils.clip_grad_norm_(emb.parameters(), 1.0)\n"
    ran = run_program(code, namespace(), wall_s=5, printed_bytes=1000)
    takes_it = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 14)
    assert (ran.ended is None) == takes_it
    assert ran.ended is None or "cannot take the norm" in explain_fault(ran.ended).explanation


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("torch.sotfmax(torch.ones(2), 0)\n", "Did you mean softmax?"),
        ("number = 1\nprint(nunber)\n", "Did you mean number?"),
        ("class A:\n    def __dir__(self): raise SystemExit\nA().other\n", ""),
        ("import sys\nsys.exit(3)\n", "exit status 3"),
        ("raise SystemExit('no data')\n", "with this message"),
        ("raise KeyboardInterrupt\n", "nobody pressed"),
        (
            "n = nn.Linear(2, 1)\nn.load_state_dict({'module.' + k: v for k, v in n.state_dict().items()})\n",
            "begins with 'module.'",
        ),
        (
            "nn.Linear(2, 1).load_state_dict(nn.Linear(3, 1).state_dict())\n",
            "weight is [1, 3] in the state dict and [1, 2]",
        ),
        (
            "nn.Linear(2, 1).load_state_dict({'weight': torch.ones(1, 2), 'b': torch.ones(1)})\n",
            "lacks bias; it holds b",
        ),
    ],
)
def test_names_exits_and_state_dicts_are_explained(code: str, words: str) -> None:
    assert words in explained(code).explanation


def test_an_error_outside_of_modules_names_none() -> None:
    assert "raised in" not in explained("torch.ones(2, 3) @ torch.ones(4, 5)\n").explanation
