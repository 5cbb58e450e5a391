"""The experiment: conservation, verdicts on steps with a known bottleneck, own models, traps, lessons with their scripts."""

from __future__ import annotations

import contextlib
import io
import math
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

from lab import torch_private, wire
from lab.contract import Cancelled, NotAvailableError, ParamsError, silent
from lab.execution.executor import Executor
from lab.experiments import op_profile
from lab.experiments.op_profile.device_work import covered_ns, kernels
from lab.experiments.op_profile.lessons import headline_of
from lab.experiments.op_profile.schema import TRAPS, Params, Result
from lab.experiments.op_profile.timeline import thinned
from lab.experiments.op_profile.trap_programs import PROGRAMS
from lab.experiments.op_profile.traps import spring
from lab.experiments.op_profile.trials import changes
from lab.experiments.op_profile.verdict import verdict
from lab.instruments.profiling.ceilings import measure_ceilings
from lab.instruments.profiling.dispatch import usual_ns
from lab.instruments.profiling.threads import BARE_THREADS, bare_threads
from lab.program.own_model import EXAMPLE
from lab.records.profiling import Dispatch, StepParts

ENDS_THE_OUTER = torch.__version__.startswith("2.11.")
"""There a profiler inside another is an error when the outer one ends; since then it is silent."""
SPRUNG = sorted(set(PROGRAMS) - ({"nested"} if ENDS_THE_OUTER else set()))
SMALL: dict[str, Any] = {"layers": 1, "width": 32, "batch": 2, "seq": 8, "steps": 2, "warmup": 1}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def measured(**knobs) -> Result:
    return op_profile.run(Params(**{**SMALL, **knobs}), silent)


@pytest.fixture(scope="module", params=["mlp", "cnn", "gpt", "lstm"])
def result(request: pytest.FixtureRequest) -> Result:
    return measured(model=request.param)


def profiled_s(result: Result) -> float:
    return sum(i.total_s for i in result.iterations if i.kind == "profiled")


def test_the_parts_add_up_to_the_step(result):
    for iteration in result.iterations:
        if iteration.parts:
            *parts, total_s = vars(iteration.parts).values()
            assert math.fsum(p for p in parts if p is not None) == pytest.approx(total_s, rel=1e-12)
            assert all(p is not None and p >= 0 for p in parts)
    assert result.step
    assert result.step.total_s * result.profiled_steps == pytest.approx(profiled_s(result), rel=1e-9)
    assert result.step.forward_s * result.profiled_steps == pytest.approx(
        sum(i.parts.forward_s for i in result.iterations if i.kind == "profiled" and i.parts), rel=1e-9
    )


def test_self_times_add_up_to_the_profiled_steps_and_a_planted_call_does_not(result):
    assert math.fsum(result.operators.self_s) == pytest.approx(profiled_s(result), rel=1e-9)
    assert math.fsum(result.calls.self_s) == pytest.approx(profiled_s(result), rel=1e-9)
    planted = replace(result.operators, self_s=(*result.operators.self_s, 1e-6))
    assert math.fsum(planted.self_s) != pytest.approx(profiled_s(result), rel=1e-9)


def test_the_timeline_has_the_same_time_as_the_operators(result):
    timeline = result.timeline
    roots = [d for d, depth in zip(timeline.duration_s, timeline.depth, strict=True) if depth == 0]
    assert math.fsum(roots) == pytest.approx(profiled_s(result), rel=1e-9)
    assert len(timeline.name) == timeline.events
    assert timeline.steps == result.profiled_steps == 2
    order = list(zip(timeline.lane, timeline.start_s, timeline.depth, strict=True))
    assert order == sorted(order)


def test_the_memory_curve_ends_at_what_the_operators_kept(result):
    timeline = result.timeline
    assert timeline.memory_bytes[-1] == sum(result.operators.bytes)
    assert list(timeline.memory_s) == sorted(timeline.memory_s)
    assert max(timeline.memory_bytes) > 0


def test_a_long_curve_keeps_its_peak_and_its_valley():
    curve = [(at, (at * 7919) % 1009) for at in range(10_000)]
    short = thinned(curve, 100)
    assert len(short) <= 100
    assert max(y for _, y in short) == 1008
    assert min(y for _, y in short) == 0
    assert short == sorted(short)


def test_shares_of_the_verdict_add_up_to_one(result):
    assert result.verdict
    assert sum(result.verdict.shares.values()) == pytest.approx(1)
    assert result.verdict.shares[result.verdict.bound] == max(result.verdict.shares.values())


def test_it_crosses_the_wire_unchanged(result):
    assert wire.decode(Result, wire.loads(wire.dumps(result))) == result


def test_operators_name_modules_and_lines(result):
    assert not result.places_missing
    calls = result.calls
    heads = [at for at, module in enumerate(calls.module) if module == "head (Linear)"]
    assert {"aten::linear", "aten::mm"} <= {calls.name[at] for at in heads}  # forward, and backward by sequence number
    assert all(calls.line[at] for at in heads)


@pytest.mark.parametrize("precision", ["fp32", "bf16_autocast"])
def test_a_product_counts_once_also_when_autocast_calls_it_twice(precision):
    program = """class Product(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 96))

    def forward(self, x):
        return torch.mm(x, self.weight)

model, batch = Product(), torch.randn(32, 64)
loss = lambda model, batch: model(batch).float().sum()
"""
    found = measured(model="own", code=program, precision=precision)
    counted = sum(n for n in found.calls.flops if n is not None)
    assert counted == found.profiled_steps * 2 * (2 * 32 * 64 * 96)  # the product, and the gradient of the weight


def test_a_kernel_that_this_processor_lacks_is_a_fault_of_the_run(monkeypatch):
    def lacking(*inputs):
        raise RuntimeError("could not create a primitive descriptor for the LSTM forward propagation primitive.")

    monkeypatch.setattr(torch.nn.LSTM, "forward", lacking)
    fault = measured(model="lstm").fault
    assert fault
    assert "no kernel" in fault.explanation
    monkeypatch.setattr(torch.nn.LSTM, "forward", lambda *inputs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        measured(model="lstm")


def test_flops_of_a_step_are_those_of_the_formula():
    result = measured(model="mlp", layers=3, width=64, batch=8, steps=1, optimizer="sgd", optimizer_impl="fused")
    counted = sum(n for n in result.calls.flops if n is not None)
    forward = 2 * 8 * (3 * 64 * 64 + 64 * 10)
    assert counted == 3 * forward - 2 * 8 * 64 * 64  # the first layer needs no gradient of its input


def test_iterations_come_in_order_and_are_counted():
    kinds = [i.kind for i in measured(model="mlp", warmup=2, steps=3).iterations]
    assert kinds[:3] == ["first", "warm-up", "warm-up"]
    assert kinds.count("profiled") == 3
    assert kinds.count("bare") >= 3
    assert kinds[3] == "bare"


@pytest.mark.parametrize("by", ["name", "shape", "module", "stack"])
def test_groupings(by):
    operators = measured(model="mlp", group_by=by).operators
    keys = {"name": ("name",), "shape": ("name", "shapes"), "module": ("name", "module"), "stack": ("name", "stack")}[
        by
    ]
    rows = list(zip(*(getattr(operators, key) for key in keys), strict=True))
    assert len(rows) == len(set(rows))
    ranked = list(zip(operators.is_operator, operators.self_s, strict=True))
    assert ranked == sorted(ranked, reverse=True)  # no range among the operators
    assert not {"forward", "step", "optimizer"} & {
        n for n, ours in zip(operators.name, operators.is_operator, strict=True) if ours
    }
    assert operators.device_self_s == (None,) * len(rows)


def test_a_slow_loader_makes_the_step_input_bound():
    result = measured(model="mlp", batch=16, decode_us=1000)
    assert result.verdict
    assert result.verdict.bound == "input"
    assert {"workers": 1} in [trial.change for trial in result.trials]
    assert result.step
    assert (result.step.data_loading_s or 0) > 0.016


def test_loader_processes_serve_the_same_step():
    result = measured(model="mlp", workers=1)
    assert result.fault is None
    assert result.profiled_steps == 2


def test_tiny_layers_are_host_bound_and_large_ones_are_not():
    tiny, large = (
        measured(model="mlp", layers=4),
        measured(model="mlp", layers=1, width=1536, batch=64, optimizer="sgd"),
    )
    assert tiny.verdict
    assert large.verdict
    assert tiny.verdict.shares["host"] > large.verdict.shares["host"]
    assert large.verdict.bound == "device"


def test_fused_runs_fewer_operators_than_the_loop():
    def calls(implementation: str) -> int:
        found = measured(model="mlp", layers=4, optimizer_impl=implementation).calls
        inside = set()
        for at, name in enumerate(found.name):
            if name == "optimizer" or found.parent[at] in inside:
                inside.add(at)
        return sum(found.calls[at] for at in inside)

    assert calls("fused") < calls("forloop") / 3


@pytest.mark.parametrize("precision", ["fp32", "bf16_autocast", "fp16_autocast", "bf16"])
def test_every_precision_runs(precision):
    result = measured(model="mlp", precision=precision)
    assert result.ceilings
    assert result.ceilings.dtype == {"fp32": "float32", "fp16_autocast": "float16"}.get(precision, "bfloat16")


@pytest.mark.parametrize(
    "knobs", [{"optimizer": o} for o in ("sgd", "momentum", "adamw")] + [{"optimizer_impl": "foreach"}]
)
def test_every_optimizer_runs(knobs):
    assert measured(model="mlp", **knobs).step


def test_settings_without_effect_are_named():
    result = measured(model="mlp", pin_memory=True, channels_last=True)
    assert len(result.notes) == 2
    assert [f.title for f in op_profile.explain(result)].count("A setting that did not take effect") == 2


def test_channels_last_reaches_the_convolution():
    names = measured(model="cnn", channels_last=True).operators.name
    assert "aten::convolution" in names


def test_a_run_that_is_not_wanted_ends():
    def report(fraction: float, line: str, part: object = None) -> None:
        if fraction > 0.2:
            raise Cancelled

    with pytest.raises(Cancelled):
        op_profile.run(Params(**SMALL), report)
    assert measured(model="mlp").step  # the session was closed


def test_a_compiled_step_has_its_compilation_apart(monkeypatch):
    compiled = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model: compiled(model, backend="eager"))  # without a C++ compiler
    result = measured(model="mlp", compile=True)
    assert result.fault is None, result.fault
    assert result.compile_s == result.iterations[0].total_s
    assert "generated code" in result.places_missing
    assert result.step


def test_a_host_that_cannot_compile_says_so(monkeypatch):
    def broken(model: torch.nn.Module) -> Any:
        def call(*args: Any) -> Any:
            raise RuntimeError("no C++ compiler found")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    fault = measured(model="mlp", compile=True).fault
    assert fault
    assert fault.message == "no C++ compiler found"
    assert "compile to false" in fault.repair


def test_a_torch_that_cannot_be_read_is_said_and_shows_no_numbers(monkeypatch):
    monkeypatch.setitem(torch_private.SELF_TESTS, "profiler events", lambda: [][0])
    torch_private.missing.cache_clear()
    try:
        with pytest.raises(NotAvailableError, match=r"Profiler events are not available with torch .*IndexError"):
            measured(model="mlp")
    finally:
        torch_private.missing.cache_clear()


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"model": "gpt", "width": 200}, "3 heads; take 192 or 256"),
        ({"model": "mlp", "layers": 48, "width": 4096}, "805 million"),
        ({"model": "own", "compile": True}, "compiler"),
        ({"steps": 31}, "1 to 30"),
    ],
)
def test_impossible_settings_are_refused(knobs, said):
    with pytest.raises(ParamsError, match=said):
        Params(**knobs)


# --- a visitor's own model ------------------------------------------------------------------------------------------


def test_an_own_model_is_profiled_with_its_lines():
    code = "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.f = nn.Linear(8, 4)\n    def forward(self, x):\n        y = self.f(x)\n        return y.exp()\n\nmodel = Net()\nbatch = torch.randn(3, 8)\n"
    result = measured(model="own", code=code)
    assert result.fault is None
    assert result.step
    assert result.step.data_loading_s is None  # no loader: its batch is there already
    lines = {name: line for name, line in zip(result.calls.name, result.calls.line, strict=True) if line}
    assert lines["aten::exp"] == 7
    assert lines["aten::addmm"] == 6
    assert lines["ExpBackward0"] == 7


@pytest.mark.parametrize(
    ("code", "type_", "line"),
    [
        ("", "OwnModelError", None),
        ("model = 3\nbatch = torch.ones(2)", "OwnModelError", 1),
        ("model = nn.Linear(2, 2)\nbatch = torch.ones(1, 3)", "RuntimeError", None),
        ("model = nn.Linear(2, 2).requires_grad_(False)\nbatch = torch.ones(1, 2)", "OwnModelError", None),
        ("x = 1 / 0", "ZeroDivisionError", 1),
        ("model = (", "SyntaxError", 1),
        ("class M(nn.Linear):\n    def forward(self, x):\n        raise KeyError('no')\nmodel = M(2, 2)\nbatch = torch.ones(1, 2)", "KeyError", 3),
    ],
)  # fmt: skip
def test_a_faulty_program_is_data(code, type_, line):
    result = measured(model="own", code=code)
    assert result.fault
    assert (result.fault.type, result.fault.line) == (type_, line)
    assert result.step is None
    assert wire.loads(wire.dumps(result))
    assert isinstance(op_profile.explain(result), tuple)


def test_a_model_that_profiles_itself_is_told_so():
    code = (
        "from torch.profiler import profile, ProfilerActivity\nclass M(nn.Linear):\n    def forward(self, x):\n"
        "        with profile(activities=[ProfilerActivity.CPU]):\n            return super().forward(x)\n"
        "model = M(2, 2)\nbatch = torch.ones(1, 2)\n"
    )
    fault = measured(model="own", code=code).fault
    assert fault
    assert fault.type in ("ProfileLostError", "RuntimeError")  # torch 2.11 says it itself
    assert "second session empties the first" in fault.explanation
    assert measured(model="mlp").step  # and the next run has its profiler


def test_an_own_model_is_profiled_behind_the_walls():
    executor = Executor(workers=1, program_slots=1)
    try:
        params = Params(**{**SMALL, "model": "own", "code": EXAMPLE + "# mine\n"})
        job = executor.wait(executor.submit("op_profile", params, visitor="test"), 90)
        if executor.typed_code().mode == "off":
            assert job.state == "refused"
            return
        assert (job.state, job.fault) == ("done", None)
        assert job.sealed
        assert job.result.fault is None
        assert math.fsum(job.result.operators.self_s) == pytest.approx(profiled_s(job.result), rel=1e-9)
        assert "0 (Linear)" in job.result.calls.module
    finally:
        executor.close()


# --- traps ----------------------------------------------------------------------------------------------------------


def test_every_trap_has_programs():
    assert set(TRAPS) == {"none", *PROGRAMS}


@pytest.fixture(scope="module")
def trapped():
    return {name: spring(name, "cpu") for name in SPRUNG}


def value(trap, name, program):
    return next(r.value for r in trap.readings if (r.name, r.program) == (name, program))


@pytest.mark.parametrize("name", SPRUNG)
def test_every_repaired_program_gives_numbers(trapped, name):
    assert any(r.program == "repaired" and r.value is not None for r in trapped[name].readings)


@pytest.mark.skipif(ENDS_THE_OUTER, reason="torch 2.11 ends the outer profiler with an error")
def test_an_inner_profiler_takes_the_events(trapped):
    assert value(trapped["nested"], "events of the outer", "as written") == 0
    assert value(trapped["nested"], "events of the outer", "repaired") > 3


def test_a_trap_that_ends_early_where_it_should_measure_is_refused(monkeypatch):
    ended = replace(PROGRAMS["nested"], wrong="raise RuntimeError('not running')")
    monkeypatch.setitem(PROGRAMS, "nested", ended)
    with pytest.raises(NotAvailableError, match=r"torch .* ends the program with RuntimeError: not running"):
        spring("nested", "cpu")


def test_what_the_traps_show(trapped):
    assert value(trapped["stacks"], "operators with a stack", "as written") == 0
    assert value(trapped["stacks"], "operators with a stack", "repaired") > 0
    assert value(trapped["shapes"], "rows for mm", "as written") == 1
    assert value(trapped["shapes"], "rows for mm", "repaired") == 2
    assert value(trapped["memory"], "release new", "as written") == -2000
    assert value(trapped["memory"], "release old", "as written") == 0
    assert value(trapped["memory"], "self", "repaired") < value(trapped["memory"], "total", "repaired")
    assert value(trapped["self_total"], "sum of totals over sum of self", "repaired") > 3
    assert value(trapped["step_rows"], "row with the largest total", "as written") == "ProfilerStep*"
    assert value(trapped["labels"], "attention", "repaired") >= value(trapped["labels"], "scores", "repaired")
    messages = {name: trap.message for name, trap in trapped.items() if trap.message}
    assert messages["schedule"].startswith("AssertionError")
    assert value(trapped["inside_with"], "rows", "as written") == 0
    assert value(trapped["inside_with"], "rows", "repaired") > 0
    assert "self_cpu_time" in messages["sort_key"]
    assert messages["export_twice"] == "RuntimeError: Trace is already saved."


def test_device_clocks_are_missing_with_a_reason_and_not_zero(trapped):
    missing = [r for r in trapped["clocks"].readings if r.value is None]
    assert {r.name for r in missing} == {"events", "profiler device"}
    assert all(r.note for r in missing)


def test_a_large_matmul_takes_the_same_by_timer_and_profiler(trapped):
    timer, profiler = (value(trapped["clocks"], name, "repaired") for name in ("benchmark timer", "profiler host"))
    assert timer == pytest.approx(profiler, rel=0.6)  # a few percent on an idle machine


# --- device work, on rows as Kineto gives them ------------------------------------------------------------------------


def test_overlapping_kernels_are_busy_once():
    assert covered_ns([(0, 10), (5, 15), (20, 30), (22, 25)]) == 25
    assert covered_ns([]) == 0


def test_kernels_keep_what_the_driver_says():
    from lab.instruments.profiling.events import Events
    from lab.instruments.profiling.tree import build_tree

    events = Events(
        name=["aten::mm", "gemm", "gemm"], kind=["op", "kernel", "kernel"], start_ns=[0, 50, 200], duration_ns=[10, 100, 60],
        thread=[1, 7, 7], number=[4, 0, 0], launched_by=[0, 4, 4], sequence=[-1] * 3, forward_thread=[0] * 3, shapes=[()] * 3,
        dtypes=[()] * 3, arguments=[()] * 3, bytes=[0] * 3,
        details=["", '"grid": [128, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 50', ""],
    )  # fmt: skip
    table = kernels([build_tree(events)])
    assert (table.name, table.calls, table.operator) == (("gemm",), (2,), ("aten::mm",))
    assert table.total_s == (160e-9,)
    assert (table.occupancy, table.grid) == ((0.5,), ("128 × 1 × 1",))


def device_step(copy_s: float, kernel_ns: int) -> tuple[StepParts, Any]:
    """A step of 1 ms on a device: how long it copies, how long a kernel runs."""
    from lab.instruments.profiling.events import Events
    from lab.instruments.profiling.tree import build_tree

    step = StepParts(0.0, copy_s, 2e-4, 2e-4, 1e-4, 0.0, 5e-4 - copy_s, 1e-3)
    events = Events(
        name=["step", "aten::mm", "gemm"], kind=["range", "op", "kernel"], start_ns=[0, 10, 50], duration_ns=[10**6, 10, kernel_ns],
        thread=[1, 1, 7], number=[1, 2, 0], launched_by=[0, 0, 2], sequence=[-1] * 3, forward_thread=[0] * 3, shapes=[()] * 3,
        dtypes=[()] * 3, arguments=[()] * 3, bytes=[0] * 3, details=[""] * 3,
    )  # fmt: skip
    return step, build_tree(events)


@pytest.mark.parametrize(
    ("copy_s", "kernel_ns", "bound", "change"),
    [
        (4e-4, 10**5, "host", {"pin_memory": True}),
        (5e-4, 10**5, "copies", {"pin_memory": True}),
        (0.0, 9 * 10**5, "device", {"precision": "bf16_autocast"}),
        (0.0, 10**5, "host", {"batch": 64}),
    ],
)
def test_a_step_on_a_device_is_bound_by_what_takes_most(copy_s, kernel_ns, bound, change):
    step, tree = device_step(copy_s, kernel_ns)
    found = verdict([(step, tree, usual_ns([tree], Dispatch(3e-6, 2e-6))[0])], Dispatch(3e-6, 2e-6), on_device=True)
    assert found.bound == bound
    assert found.next_change == {}  # nothing was tried
    assert next(changes(Params(device="cuda"), step, found.shares)).change == change
    assert sum(found.shares.values()) == pytest.approx(1)


def test_ceilings_are_reached_by_a_matmul_and_not_by_ten_times_more():
    ceilings = measure_ceilings("cpu", torch.float32)
    assert 1e8 < ceilings.bytes_per_s < 2e12
    assert 1e8 < ceilings.flops_per_s < 1e14


# --- lessons ----------------------------------------------------------------------------------------------------------

WIDE = {"five clocks on one matmul": 4, "a profiler inside a profiler": 1}
"""Lesson -> how far the script's number may be off, as a factor; the others may be off by six: times on a busy machine."""


def printed_by(source: str) -> list[str]:
    """Lines that a script prints, in this process: starting torch anew for each would take minutes."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), bare_threads():  # as a process of its own has them
        exec(source, {"__name__": "__main__"})
    return output.getvalue().strip().splitlines()


@pytest.mark.parametrize("lesson", op_profile.lessons, ids=lambda lesson: lesson.title)
def test_the_script_of_a_lesson_gives_its_number(lesson):
    if ENDS_THE_OUTER and lesson.params.trap == "nested":
        with pytest.raises(NotAvailableError, match="Can't disable Kineto profiler"):
            op_profile.run(lesson.params, silent)
        return
    result = op_profile.run(lesson.params, silent)
    evidence = lesson.evidence(result)
    assert lesson.answer(result) in lesson.choices
    printed = float(printed_by(op_profile.script(lesson.params))[-1])
    factor = WIDE.get(lesson.title, 6)
    assert evidence / factor <= printed <= evidence * factor


def test_the_rows_of_this_page_have_lessons():
    assert {lesson.row for lesson in op_profile.lessons} == {"H2", "H3", "H4", "H8"}
    assert headline_of(Params(steps=7)) == "median(bare)"


@pytest.mark.parametrize(
    "knobs",
    [
        {"model": "lstm", "precision": "bf16", "optimizer": "momentum"},
        {"model": "cnn", "channels_last": True, "precision": "fp16_autocast", "optimizer_impl": "fused"},
        {"model": "own", "code": EXAMPLE, "optimizer": "adamw", "precision": "bf16_autocast"},
        {"trap": "schedule"},
    ],
)
def test_scripts_of_other_settings_run(knobs):
    assert printed_by(op_profile.script(Params(**{**SMALL, **knobs})))


def test_a_step_has_the_threads_that_a_bare_program_has():
    source = "import torch; print(torch.get_num_threads())"
    bare = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert measured(model="mlp").threads == BARE_THREADS == int(bare.stdout)
    assert torch.get_num_threads() == 1  # and puts back what was


def test_a_script_runs_on_its_own():
    source = op_profile.script(Params(**SMALL))
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    assert "lab" not in source.replace("label", "")
    assert 0 < float(run.stdout.strip().splitlines()[-1]) < 10
