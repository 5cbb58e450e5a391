"""What people reported about profiles of their own programs: what must be said, the planted error, and the healthy look-alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.contract import Finding, silent
from lab.experiments import op_profile
from lab.experiments.op_profile.advice import advice
from lab.experiments.op_profile.causes import copies, input_time, python_time, tiny_operators
from lab.experiments.op_profile.schema import Params, Result
from lab.experiments.op_profile.verdict import helps, verdict
from lab.instruments.profiling.dispatch import is_short, lost_ns, usual_ns
from lab.instruments.profiling.events import Events
from lab.instruments.profiling.tree import Tree, build_tree
from lab.records.profiling import Dispatch, StepParts, Trial

REPORTS = {
    report["id"]: report
    for line in (Path(__file__).resolve().parents[3] / "cases/profile_reports.jsonl").read_text().splitlines()
    if (report := json.loads(line))["page"] == "op_profile"
}


def reported(name: str) -> Result:
    report = REPORTS[name]
    return op_profile.run(Params(**report["params"], code=report["code"]), silent)


def own(code: str, **knobs) -> Result:
    given = {"steps": 2, "warmup": 1, "optimizer": "sgd"} | knobs
    return op_profile.run(Params(model="own", code=code, **given), silent)


def titles(result: Result) -> list[str]:
    return [finding.title for finding in op_profile.explain(result)]


def only(look: Callable, result: Result) -> Finding:
    found = list(look(result))
    assert len(found) == 1, titles(result)
    return found[0]


SMALL = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 64)
    def forward(self, x):
{body}
        return self.fc(x)
model, batch = Net(), torch.randn(64, 64)
"""
LINEAR = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(512, 512)
    def forward(self, x):
{body}
        return self.fc(x)
model, batch = Net(), torch.randn(512, 512)
"""


# --- Python's own time ------------------------------------------------------------------------------------------------


def test_a_loop_in_python_is_found_with_its_line():
    result = reported("p09")
    found = only(python_time, result)
    assert found.line in (8, 9)
    assert result.python
    assert result.python.share > 0.5
    assert result.verdict
    assert result.verdict.bound == "host"


def test_a_loop_in_a_helper_of_the_program_is_found_where_it_runs():
    body = "        total = work()\n"
    code = "def work():\n    found = []\n    for i in range(300000):\n        found.append(i * i)\n    return found\n"
    found = only(python_time, own(code + SMALL.format(body=body)))
    assert found.line in (3, 4)


def test_a_function_of_autograd_in_python_is_python():
    code = """class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        total = 0
        for i in range(300000):
            total += i
        return g * 2
""" + SMALL.format(body="        x = Slow.apply(self.fc(x))")
    found = only(python_time, own(code))
    assert found.line in (8, 9)


def test_operators_that_work_leave_python_unsaid():
    result = own(LINEAR.format(body="        for _ in range(3): x = self.fc(x)"))
    assert not list(python_time(result))


# --- a step of tiny operators -----------------------------------------------------------------------------------------


def test_a_loop_over_samples_is_a_step_of_tiny_operators():
    result = reported("p10")
    found = only(tiny_operators, result)
    assert found.line in (8, 9, 10)
    assert ".item()" in found.text
    assert result.verdict
    assert result.verdict.bound == "host"


def test_large_products_are_not_tiny():
    result = own(LINEAR.format(body="        for _ in range(8): x = torch.relu(self.fc(x))"))
    assert not list(tiny_operators(result))


def rows(self_ns: list[int], name: str = "aten::add") -> Tree:
    """A step of operators one after the other."""
    count, starts = len(self_ns), [10 + sum(self_ns[:at]) for at in range(len(self_ns))]
    nothing = [()] * (count + 1)
    kinds: list[Any] = ["range", *["op"] * count]
    return build_tree(
        Events(
            name=["step", *[name] * count], kind=kinds, start_ns=[0, *starts],
            duration_ns=[sum(self_ns) + 20, *self_ns], thread=[1] * (count + 1), number=[0] * (count + 1),
            launched_by=[0] * (count + 1), sequence=[-1] * (count + 1), forward_thread=[0] * (count + 1),
            shapes=list(nothing), dtypes=list(nothing), arguments=list(nothing), bytes=[0] * (count + 1), details=[""] * (count + 1),
        )
    )  # fmt: skip


COST = Dispatch(3e-6, 1.5e-6)


def parts(total_s: float) -> StepParts:
    return StepParts(None, None, total_s, 0.0, 0.0, 0.0, 0.0, total_s)


def test_a_call_that_was_interrupted_is_not_taken_for_work_and_ten_long_ones_are():
    tiny = rows([2000] * 30 + [4_000_000])  # another program had the processor for 4 ms
    usual = usual_ns([tiny], COST)
    assert all(is_short(of, COST) for of in usual[0][1:])
    assert lost_ns(tiny, usual[0]) == 4_000_000 - 3 * 2000
    found = verdict([(parts(4.06e-3), tiny, usual[0])], COST, on_device=False)
    assert found.bound == "host"
    real = rows([400_000] * 10)
    assert verdict([(parts(4e-3), real, usual_ns([real], COST)[0])], COST, on_device=False).bound == "device"


def test_steps_that_do_not_agree_have_no_verdict():
    work, idle = rows([400_000] * 10), rows([2000] * 10, "aten::mul")
    usual = usual_ns([work, idle], COST)
    steps = [(parts(4.2e-3), work, usual[0]), (parts(4.2e-3), idle, usual[1])]
    assert verdict(steps, COST, on_device=False).withheld
    assert not verdict(steps[:1], COST, on_device=False).withheld


# --- input ------------------------------------------------------------------------------------------------------------

SLOW_SET = """import time
class Slow(torch.utils.data.Dataset):
    def __len__(self): return 32
    def __getitem__(self, i):
        end = time.perf_counter() + {seconds}
        while time.perf_counter() < end: pass
        return torch.randn(32), torch.randint(0, 4, ())
model = nn.Linear(32, 4)
train_loader = torch.utils.data.DataLoader(Slow(), 16)
"""


def test_a_loader_inside_the_loss_is_input_time():
    result = reported("p17")
    assert result.verdict
    assert result.step
    assert (result.step.data_loading_s or 0) > 0.008  # 16 samples of 0.5 ms
    assert only(input_time, result).evidence["data loading"] > 0.15
    assert result.verdict.shares["input"] > 0.15


def test_a_loader_without_a_batch_feeds_the_step():
    result = own(SLOW_SET.format(seconds=0.0005))
    assert result.fault is None
    assert result.step
    assert (result.step.data_loading_s or 0) > 0.008
    assert "DataLoader" in only(input_time, result).text


def test_a_loader_whose_batches_do_not_fit_is_left_alone():
    result = own(
        SLOW_SET.format(seconds=0).replace("nn.Linear(32, 4)", "nn.Linear(8, 4)") + "batch = torch.randn(4, 8)\n"
    )
    assert result.fault is None
    assert result.step
    assert result.step.data_loading_s is None
    assert not list(input_time(result))


# --- copies, stacks, recursion ----------------------------------------------------------------------------------------


def test_copies_into_another_order_are_named_with_their_lines():
    found = only(copies, reported("p07"))
    assert found.line in (8, 10)


def test_products_without_copies_are_silent():
    assert not list(copies(own(LINEAR.format(body="        x = x.permute(1, 0).permute(1, 0)"))))


def test_stacks_are_whole():
    result = reported("p04")
    deepest = max((stack for stack in result.calls.stack), key=len)
    assert deepest.count("forward (line") == 8


def test_stacks_that_are_cut_say_so():
    code = REPORTS["p04"]["code"].replace("Deep(7)", "Deep(80)")
    result = own(code, steps=1)
    assert any(stack.endswith("… 17 more") for stack in result.calls.stack)


RECURSIVE = """from torch.profiler import record_function
class Deep(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.inner = Deep(n - 1) if n else nn.Linear(16, 16)
    def forward(self, x):
        with record_function("deep"):
            return self.inner(x)
model, batch = Deep(6), torch.randn(8, 16)
"""


def test_a_recursion_is_in_its_total_once():
    result = own(RECURSIVE)
    at = result.operators.name.index("deep")
    assert result.operators.calls[at] == 7 * 2
    assert result.operators.total_s[at] <= sum(i.total_s for i in result.iterations if i.kind == "profiled")
    counted_again = sum(t for t, name in zip(result.calls.total_s, result.calls.name, strict=True) if name == "deep")
    assert counted_again > 2 * result.operators.total_s[at]  # what a plain sum would say


# --- advice -----------------------------------------------------------------------------------------------------------


def trial(low: float, factor: float, high: float) -> Trial:
    return Trial({"precision": "bf16_autocast"}, "Compute in bfloat16", factor, low, high, 5, "step")


def test_what_makes_the_step_slower_is_not_advised():
    result = replace(reported("p04"), trials=(trial(0.2, 0.22, 0.25),))
    found = only(advice, result)
    assert not found.change
    assert "4.5 times as slow" in found.text
    helping = replace(result, trials=(trial(1.8, 2.0, 2.2),))
    assert only(advice, helping).change == {"precision": "bf16_autocast"}
    unclear = replace(result, trials=(trial(0.8, 1.4, 2.2),))
    assert not only(advice, unclear).change


def test_every_offer_was_measured():
    result = reported("p05")
    assert result.verdict
    if result.verdict.next_change:
        measured = next(t for t in result.trials if t.change == result.verdict.next_change)
        assert helps(measured)
    assert any(t.change == {"precision": "bf16_autocast"} for t in result.trials)
    for finding in op_profile.explain(result):
        assert not finding.change or any(helps(t) and t.change == finding.change for t in result.trials)


# --- what is said of the optimizer, the first step, a trap -----------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_state_is_created_only_where_there_is_some(optimizer):
    result = op_profile.run(
        Params(model="mlp", layers=2, width=256, batch=2, steps=2, warmup=1, optimizer=optimizer), silent
    )
    texts = " ".join(finding.text for finding in op_profile.explain(result))
    assert optimizer == "adam" or "state" not in texts.replace("parameter or its state", "")


def test_a_fused_optimizer_is_not_a_pass_over_each_parameter():
    result = op_profile.run(
        Params(model="mlp", layers=2, width=512, batch=1, steps=2, warmup=1, optimizer="sgd", optimizer_impl="fused"),
        silent,
    )
    assert not [f for f in op_profile.explain(result) if "Each is a pass over a parameter" in f.text]


def test_beside_a_trap_nothing_is_said_about_the_stand_in():
    result = op_profile.run(Params(model="mlp", layers=1, width=64, steps=1, warmup=1, trap="nested"), silent)
    assert len(titles(result)) == 1


@pytest.mark.parametrize(
    "lesson", [one for one in op_profile.lessons if one.params.trap == "none"], ids=lambda one: one.title
)
def test_a_preset_has_its_point_first_or_says_nothing_of_it(lesson):
    from lab.experiments.op_profile.findings import _LOOKS

    result = op_profile.run(lesson.params, silent)
    assert result.point
    about = list(_LOOKS[result.point](result))
    found = op_profile.explain(result)
    assert not about or found[0] == about[0]


def test_groupings_count_the_same_calls():
    by_stack = reported("p02")
    assert sum(by_stack.operators.calls) == sum(by_stack.calls.calls)
