"""The memory experiment: its result holds together, its lessons' scripts agree to the byte, faults are data."""

from __future__ import annotations

import dataclasses
import gc
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from lab import wire
from lab.contract import ParamsError, silent
from lab.experiments import memory_timeline
from lab.experiments.memory_timeline import measure
from lab.experiments.memory_timeline.schema import Params, Result
from lab.records.memory import CATEGORIES, Seconds
from lab.torch_private import has_dispatch_mode
from lab.workloads.models import CLASSES

MLP = Params(model="mlp", layers=2, width=64, batch=32, optimizer="adam")
_KEPT: dict[Params, Result] = {}


@pytest.fixture(scope="module", autouse=True)
def _one_thread_and_no_clock() -> Iterator[None]:
    """Times are not compared here, and the collector has nothing to look through."""
    threads, clock = torch.get_num_threads(), measure.step_seconds
    torch.set_num_threads(1)
    measure.step_seconds = lambda settings: [Seconds(1.0, 1.0, 1.0, 3) for _ in settings]
    gc.collect()
    yield
    measure.step_seconds = clock
    torch.set_num_threads(threads)


def measured(params: Params) -> Result:
    if params not in _KEPT:
        _KEPT[params] = memory_timeline.run(params, silent)
    return _KEPT[params]


def titles(result: Result) -> str:
    return " | ".join(finding.title for finding in memory_timeline.explain(result))


def own(code: str, **knobs) -> Params:
    return Params(model="own", code=code, **knobs)


def test_the_result_crosses_the_wire_whole():
    result = measured(MLP)
    assert wire.decode(Result, wire.loads(wire.dumps(result))) == result


def test_rows_sum_to_totals_and_the_peak_is_their_maximum():
    result = measured(MLP)
    totals = result.timeline.totals()
    assert max(totals) == totals[result.peak.row] == result.peak.bytes == sum(result.peak.categories.values())
    assert len(totals) == result.operations + 1
    assert set(result.peak.categories) == set(CATEGORIES)
    for row, total in enumerate(totals):
        spans = zip(result.lives.first, result.lives.end, result.lives.bytes, strict=True)
        assert sum(size for first, end, size in spans if first <= row < end) == total


def test_closed_form_of_an_mlp_with_adam():
    result, width, layers, batch = measured(MLP), 64, 2, 32
    parameters = 4 * (layers * (width * width + width) + width * CLASSES + CLASSES)
    assert result.start["parameters"] == parameters == 4 * result.parameters
    assert result.end["gradients"] == parameters
    assert result.end["optimizer_state"] == 2 * parameters + 4 * (2 * layers + 2)
    assert result.saved_bytes == layers * batch * width * 4 + batch * CLASSES * 4 + 4


def test_the_prediction_is_the_measurement():
    for params in (MLP, Params(precision="bf16_autocast", checkpoint="every", optimizer="sgd", width=64, batch=2)):
        prediction = measured(params).prediction
        assert prediction is not None
        assert prediction.same_operations
        assert prediction.largest_gap_bytes == 0
        predicted = measured(dataclasses.replace(params, predict=True))
        assert predicted.peak.bytes == prediction.peak_bytes
        assert (
            predicted.peak.bytes
            <= measured(params).peak.bytes
            <= predicted.peak.bytes + (measured(params).unseen_bytes or 0)
        )
        assert predicted.predicted
        assert predicted.step_s is None


def test_a_planted_wrong_prediction_is_seen(monkeypatch):
    original = measure.track
    wider = dataclasses.replace(MLP, batch=33)
    monkeypatch.setattr(measure, "track", lambda params, *, fake: original(wider if fake else params, fake=fake))
    prediction = memory_timeline.run(MLP, silent).prediction
    assert prediction is not None
    assert prediction.largest_gap_bytes


def test_what_does_not_fit_here_is_predicted(monkeypatch):
    monkeypatch.setitem(measure.REAL_BYTES, "cpu", measured(MLP).peak.bytes - 1)
    result = memory_timeline.run(MLP, silent)
    assert result.predicted
    assert result.peak == measured(MLP).peak
    assert "done here" in result.predicted_reason
    assert "Predicted instead of run" in titles(result)


def test_running_out_of_memory_stops_at_the_first_request_beyond_the_cap():
    free = measured(MLP)
    for cap in (free.peak.bytes // 2, free.peak.bytes - 1):
        hit = measured(dataclasses.replace(MLP, cap_bytes=cap)).oom
        assert hit is not None
        assert hit.alive_bytes <= cap < hit.alive_bytes + hit.request_bytes
        assert hit.alive_bytes == sum(hit.categories.values())
        # the very request is on the free timeline
        assert free.timeline.op[free.timeline.index.index(hit.index)] == hit.op
    assert measured(dataclasses.replace(MLP, cap_bytes=free.peak.bytes)).oom is None


def test_a_kept_exception_keeps_memory():
    hit = measured(Params(cap_bytes=16_000_000)).oom
    assert hit is not None
    assert hit.held_by_exception_bytes > 0


@pytest.mark.parametrize("lesson", memory_timeline.lessons[:-1], ids=lambda lesson: lesson.title)
def test_a_lesson_is_answered_by_one_of_its_choices(lesson):
    result = measured(lesson.params)
    assert lesson.answer(result) in lesson.choices
    assert not result.fault
    assert memory_timeline.explain(result)


@pytest.mark.parametrize("lesson", memory_timeline.lessons[:-1], ids=lambda lesson: lesson.title)
def test_captions_may_be_renamed(lesson):
    result = measured(lesson.params)
    runs = tuple(dataclasses.replace(run, setting=f"caption {number}") for number, run in enumerate(result.runs))
    renamed = dataclasses.replace(result, runs=runs)
    assert lesson.answer(renamed) == lesson.answer(result)
    kinds = [
        [
            (found.level, found.repair, found.change, list(found.evidence.values()))
            for found in memory_timeline.explain(r)
        ]
        for r in (result, renamed)
    ]
    assert kinds[0] == kinds[1]


def test_the_scripts_of_the_lessons_print_the_evidence(tmp_path: Path):
    """In one process without the lab on its path; a mode that a script enters ends with it."""
    for number, lesson in enumerate(memory_timeline.lessons[:-1]):
        (tmp_path / f"lesson_{number}.py").write_text(memory_timeline.script(lesson.params))
    runner = (
        "import contextlib, io, json, runpy, sys, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "import torch; torch.set_num_threads(1)\n"
        "said = []\n"
        "for name in sys.argv[1:]:\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as out: runpy.run_path(name)\n"
        "    said.append(out.getvalue().split()[-1])\n"
        "print(json.dumps(said))\n"
    )
    names = [str(tmp_path / f"lesson_{number}.py") for number in range(len(memory_timeline.lessons) - 1)]
    done = subprocess.run(
        [sys.executable, "-I", "-c", runner, *names], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = [float(value) for value in json.loads(done.stdout.splitlines()[-1])]
    assert said == [lesson.evidence(measured(lesson.params)) for lesson in memory_timeline.lessons[:-1]]


def test_the_large_model_is_predicted_by_hand_and_by_script():
    lesson = memory_timeline.lessons[-1]
    p = dataclasses.replace(lesson.params, layers=2)
    done = subprocess.run(
        [sys.executable, "-I", "-c", memory_timeline.script(p)], capture_output=True, text=True, check=True
    )
    prediction = measure.prediction_of(p)
    assert float(done.stdout.split()[-1]) == prediction.peak_bytes
    # a block of width d has 12 d² weights and 13 d other parameters; parameters, gradients and two moments of 4 bytes
    blocks = 2 * (12 * p.width**2 + 13 * p.width)
    assert prediction.peak_bytes > 16 * blocks


def test_findings_name_the_cause_with_numbers():
    checks = {
        "Mixed precision does not lower this peak": Params(
            model="mlp", layers=4, width=256, batch=4, optimizer="sgd", precision="bf16_autocast"
        ),
        "√n is not the best segment length here": Params(layers=4, optimizer="sgd", checkpoint="every"),
        "Checkpointing does not lower this peak": Params(
            model="mlp", layers=4, width=256, batch=8, optimizer="adam", checkpoint="every"
        ),
        "Accumulation raises this peak": Params(
            model="mlp", layers=4, width=256, batch=64, optimizer="sgd", accumulate=4
        ),
        "The peak is inside optimizer.step()": Params(
            model="mlp", layers=4, width=256, batch=16, optimizer="adam", optimizer_impl="foreach"
        ),
        "The second step needs more than the first": Params(),
        "The graph outlives backward": Params(optimizer="sgd", retain_graph=True),
        "Old gradients stay through the forward": Params(optimizer="sgd", zero_grad="before_backward"),
        "All graphs are alive at once": Params(optimizer="sgd", accumulate=4, one_backward=True),
        "A checkpointed segment is not trained": Params(
            model="mlp", layers=2, optimizer="sgd", checkpoint="every", reentrant=True
        ),
    }
    for title, params in checks.items():
        found = [f for f in memory_timeline.explain(measured(params)) if f.title == title]
        assert found, (title, titles(measured(params)))
        assert found[0].evidence


def test_changes_are_measured_savings():
    result = measured(Params())
    assert result.changes == tuple(sorted(result.changes, key=lambda change: -change.saving_bytes))
    change = next(c for c in result.changes if c.knobs == {"checkpoint": "every", "every": 1})
    assert change.measured
    assert measured(Params(checkpoint="every")).peak.bytes == change.peak_bytes
    assert change.saving_bytes == result.peak.bytes - change.peak_bytes


def test_a_view_that_keeps_a_large_tensor_is_found():
    code = (
        "class Last(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.fc = nn.Linear(8, 8)\n"
        "    def forward(self, x):\n"
        "        return self.fc(x)[:, -1].square()\n"
        "model = Last()\n"
        "batch = (torch.randn(64, 256, 8), torch.randn(64, 8))\n"
    )
    result = measured(own(code))
    assert "A small view keeps a large tensor" in titles(result)
    assert any(line is not None for line in result.timeline.line)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("model = nn.Linear(2, 2)\n", "OwnModelError"),
        ("model = \n", "SyntaxError"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("model = nn.Linear(2, 2)\nbatch = (torch.ones(3, 5), torch.ones(3, 2))\n", "RuntimeError"),
    ],
)
def test_faults_of_a_program_are_data(code, kind):
    result = measured(own(code))
    assert result.fault is not None
    assert result.fault.type == kind
    assert wire.decode(Result, wire.loads(wire.dumps(result))) == result
    memory_timeline.explain(result)


def test_time_is_measured_without_the_instrument(monkeypatch):
    """The clock's own trainings run no dispatch mode, and the work of a step is in its time."""
    from lab.experiments.memory_timeline import clock
    from lab.workloads.training_step import Training

    small, large = MLP, dataclasses.replace(MLP, width=512, batch=256)
    (fast, slow) = clock.step_seconds([small, large])
    assert fast.repeats >= 3
    assert fast.min <= fast.median <= fast.max
    assert fast.median < slow.median
    seen, original = [], Training.run
    monkeypatch.setattr(Training, "run", lambda self, *a: seen.append(has_dispatch_mode()) or original(self, *a))
    clock.step_seconds([small])
    assert seen
    assert not any(seen)


def test_contradictions_between_knobs_are_refused():
    with pytest.raises(ParamsError, match="multiple of 64"):
        Params(width=200)
    with pytest.raises(ParamsError, match="more than batch"):
        Params(batch=2, accumulate=4)


def test_cuda_without_a_device_is_refused():
    if torch.cuda.is_available():
        assert measured(dataclasses.replace(MLP, device="cuda")).allocator is not None
    else:
        with pytest.raises(ValueError, match="no CUDA device"):
            memory_timeline.run(dataclasses.replace(MLP, device="cuda"), silent)


def test_every_optimizer_precision_and_model_runs():
    for knobs in (
        {"model": "cnn", "layers": 1, "width": 8, "optimizer": "momentum", "optimizer_impl": "fused"},
        {"model": "lstm", "layers": 1, "width": 16, "seq": 8, "precision": "bf16"},
        {"model": "mlp", "layers": 2, "precision": "fp16_autocast", "optimizer_impl": "foreach", "checkpoint": "all"},
        {"model": "mlp", "layers": 2, "mode": "inference_mode"},
        {"model": "mlp", "layers": 2, "mode": "forgot", "precision": "bf16_autocast", "zero_grad": "after_step"},
    ):
        result = measured(Params(**knobs))
        assert result.peak.bytes > 0
        assert not result.fault
        assert all(not run.failed for run in result.runs)


@pytest.mark.parametrize("batch", ["torch.randn(3, 4)", "torch.randn(1, 4)", "{'input': torch.randn(3, 4)}"])
def test_a_batch_that_cannot_be_cut_only_lacks_that_change(batch):
    result = measured(own(f"model = nn.Linear(4, 4)\nbatch = {batch}"))
    assert result.fault is None
    assert result.peak.bytes > 0
    assert not any("accumulate" in change.knobs and change.knobs["accumulate"] > 3 for change in result.changes)


def test_a_model_that_fails_in_a_later_step_keeps_its_memory_and_has_no_time(monkeypatch):
    def failing(settings):
        raise ValueError("the third call")

    monkeypatch.setattr(measure, "step_seconds", failing)
    result = memory_timeline.run(own("model, batch = nn.Linear(4, 4), torch.randn(4, 4)"), silent)
    assert result.fault is None
    assert result.step_s is None
    assert "the third call" in result.step_s_reason
    with pytest.raises(ValueError, match="third"):
        memory_timeline.run(MLP, silent)


def test_a_kernel_that_this_processor_lacks_is_a_fault_of_the_run(monkeypatch):
    def lacking(*inputs):
        raise RuntimeError("could not create a primitive descriptor for the LSTM forward propagation primitive.")

    monkeypatch.setattr(torch.nn.LSTM, "forward", lacking)
    fault = memory_timeline.run(Params(model="lstm", layers=1, width=8, batch=2, seq=4), silent).fault
    assert fault
    assert "no kernel" in fault.explanation


@pytest.mark.parametrize("model", ["mlp", "gpt"])
def test_inference_mode_shows_what_no_grad_shows(model):
    """Composite operations are taken apart: one as a whole would hide what is born and dies inside it."""
    size = Params(model=model, layers=1, width=32, batch=4, seq=8, leak="item")
    plain, inference = (measured(dataclasses.replace(size, mode=mode)) for mode in ("no_grad", "inference_mode"))
    assert "_log_softmax" in inference.timeline.op
    assert inference.timeline.totals() == plain.timeline.totals()


def test_a_model_that_catches_the_error_of_the_cap_is_stopped_there_all_the_same():
    program = """class Retry(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = nn.Linear(64, 64)

    def forward(self, x):
        try:
            return self.part(x)
        except RuntimeError:
            return self.part(x[:1])

model, batch = Retry(), torch.randn(256, 64)
"""
    result = measured(own(program, cap_bytes=(64 * 64 + 64 + 256 * 64) * 4 + 1000))
    assert result.oom
    assert (result.oom.op, result.oom.request_bytes) == ("addmm", 256 * 64 * 4)


def test_micro_batches_are_as_many_as_asked_for():
    """Five samples in four parts are 2, 1, 1, 1; ``chunk`` would make three."""
    result = measured(dataclasses.replace(MLP, batch=5, accumulate=4, steps=1))
    assert result.timeline.op.count("nll_loss_forward") == 4


@pytest.mark.parametrize(
    ("code", "accumulate"),
    [
        ("model, batch = nn.Linear(4, 4), torch.randn(8, 4)", 1),
        ("model, batch = nn.Linear(4, 4), {'input': torch.randn(8, 4), 'target': torch.randn(8, 4)}", 2),
        ("model, batch = nn.LSTM(4, 8, batch_first=True), torch.randn(3, 5, 4)", 1),
        ("model, batch = nn.Linear(4, 4), (torch.randn(8, 4), torch.zeros(8))\nloss = lambda m, b: m(b[0]).exp().mean()", 1),
    ],
)  # fmt: skip
def test_the_script_of_a_program_reads_its_batch_in_the_same_way(code, accumulate):
    params = own(code, accumulate=accumulate)
    ran = subprocess.run(
        [sys.executable, "-I", "-c", memory_timeline.script(params)], capture_output=True, text=True, check=True
    )
    result = measured(params)
    assert result.bare_peak_bytes == int(ran.stdout.split()[-1])
    assert result.bare_peak_bytes
    assert result.bare_peak_bytes - 64 <= result.peak.bytes <= result.bare_peak_bytes  # but for wrapped numbers


def test_a_prediction_of_a_fused_lstm_says_that_it_is_too_low():
    small = Params(model="lstm", layers=1, width=32, batch=2, seq=8)
    real, predicted = measured(small), measured(dataclasses.replace(small, predict=True))
    assert predicted.peak.bytes < real.peak.bytes
    assert "too low for this LSTM" in titles(predicted)
    assert "too low for this LSTM" not in titles(real)
    assert "too low for this LSTM" not in titles(measured(dataclasses.replace(small, model="mlp", predict=True)))
