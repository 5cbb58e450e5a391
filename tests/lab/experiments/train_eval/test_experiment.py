"""Knobs, parts of the result, faults, and the reported confusions."""

from __future__ import annotations

import json
import math
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from lab import wire
from lab.contract import ParamsError, knobs, silent
from lab.experiments.train_eval import Params, Result, explain, offered, run
from lab.experiments.train_eval.schema import STUDIES, USED

CASES = Path(__file__).resolve().parents[3] / "cases/cases.jsonl"
ROWS = [row for row in map(json.loads, CASES.read_text(encoding="utf-8").splitlines()) if row["page"] == "train_eval"]
RELEASE = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
OWN = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.drop = nn.Linear(4, 3), nn.Dropout(0.5)

    def forward(self, x):
        return F.dropout(self.drop(self.fc(x)), 0.3)

model = Net()
batch = (torch.randn(16, 4), torch.randint(0, 3, (16,)))
print("ready")
"""
PARTS = {"dropout": "dropout", "batchnorm": "batchnorm", "switches": "switches", "scan": "scan"}


def wired(params: Params) -> dict[str, Any]:
    """The result as ``--json`` prints it."""
    return wire.encode(run(params, silent))


@pytest.mark.parametrize("view", PARTS)
def test_each_view_has_its_part_and_no_other(view: str) -> None:
    result = wired(Params(view=view))
    assert {name for name in PARTS if result[name] is not None} == {view}


def test_names_of_the_parts() -> None:
    dropout = wired(Params())["dropout"]
    assert {"dropped_fraction", "expected_interval", "mean", "variance", "predicted"} <= dropout.keys()
    assert dropout["predicted"].keys() == {"mean", "variance"}
    rows = wired(Params(view="batchnorm", batches=7, channels=3))["batchnorm"]
    lists = {
        "batch_mean",
        "batch_var_biased",
        "batch_var_unbiased",
        "running_mean",
        "running_var",
        "train_std",
        "eval_std",
    }
    assert len(rows) == 7
    assert all(len(row[name]) == 3 for row in rows for name in lists)
    assert len(wired(Params(view="switches"))["switches"]) == 6


def test_the_default_module_of_a_view() -> None:
    assert run(Params(view="batchnorm"), silent).module == "BatchNorm1d"
    assert run(Params(view="batchnorm", module="BatchNorm2d"), silent).shape == (16, 8, 4, 4)
    assert run(Params(module="BatchNorm2d", study="serving"), silent).study == "masks"


@pytest.mark.parametrize(
    "wrong",
    [
        {"p": 1.5},
        {"p": math.nan},
        {"passes": 0},
        {"momentum": -0.1},
        {"eps": 0.0},
        {"module": "LayerNorm"},
        {"view": "all"},
    ],
)
def test_limits(wrong: dict[str, Any]) -> None:
    with pytest.raises(ParamsError, match=next(iter(wrong))):
        Params(**wrong)


def test_too_much_work_is_refused_with_the_numbers() -> None:
    with pytest.raises(ParamsError, match="8,388,608,000"):
        Params(module="Dropout2d", batch=256, channels=64, size=16, passes=2000)


def test_only_what_matters_is_offered() -> None:
    known = knobs(Params)
    for view, studies in STUDIES.items():
        for study in studies:
            values = {name: k.default for name, k in known.items()} | {"view": view, "study": study}
            names = {name for name, k in known.items() if offered(values, k)}
            assert {"view", "seed", "device"} <= names
            assert names <= {"view", "study", "seed", "device", *USED[study]}
            study_knob = offered(values, known["study"])
            assert study_knob is None if len(studies) == 1 else study_knob and study_knob.choices == studies
    scan = {name: k.default for name, k in known.items()} | {"view": "scan", "study": "modules", "model": "own"}
    assert offered(scan, known["code"])
    assert not offered(scan | {"model": "convnet"}, known["code"])
    assert offered({**scan, "view": "dropout", "study": "masks", "module": "Dropout2d"}, known["size"])
    assert not offered({**scan, "view": "dropout", "study": "masks", "module": "Dropout"}, known["size"])


def test_every_knob_matters_somewhere() -> None:
    everywhere = {"view", "study", "seed", "device", "code"}
    assert {name for used in USED.values() for name in used} | everywhere == set(knobs(Params))


def test_equal_params_give_equal_numbers_whatever_ran_before() -> None:
    first = wired(Params(view="batchnorm", study="serving"))
    torch.rand(3)
    run(Params(seed=4), silent)
    assert wired(Params(view="batchnorm", study="serving")) == first


def test_a_run_leaves_the_generator_as_it_was() -> None:
    before = torch.get_rng_state()
    run(Params(), silent)
    run(Params(view="scan", model="own", code=OWN), silent)
    assert torch.equal(before, torch.get_rng_state())


def test_a_visitors_model() -> None:
    result = run(Params(view="scan", model="own", code=OWN), silent)
    assert result.fault is None
    assert result.printed == "ready\n"
    assert result.scan
    assert result.scan.modes
    assert [row.path for row in result.scan.modes.modules] == ["drop"]
    (call,) = result.scan.modes.ignoring
    assert (call.function, call.argument, call.line) == ("F.dropout", "training=True", 7)
    assert result.scan.loss_name == "cross-entropy"
    assert result.scan.loss_train != result.scan.loss_eval
    warning = explain(result)[0]
    assert (warning.level, warning.line) == ("warning", 7)


@pytest.mark.parametrize(
    ("code", "kind", "line"),
    [
        ("", "OwnModelError", None),
        ("x = 1\n", "OwnModelError", None),
        ("model = nn.Linear(2, 2)\nbatch = torch.ones(3, 5)\n", "RuntimeError", None),
        ("model = nn.Linear(2, 2\n", "SyntaxError", 1),
        ("batch = 1\nraise KeyError('k')\n", "KeyError", 2),
        ("model = nn.BatchNorm1d(4)\nbatch = torch.ones(1, 4)\n", "ValueError", None),
        (
            "class Net(nn.Module):\n    def forward(self, x):\n        raise SystemExit\nmodel, batch = Net(), torch.ones(1)\n",
            "SystemExit",
            3,
        ),
    ],
)
def test_faults_of_a_visitors_model_are_data(code: str, kind: str, line: int | None) -> None:
    result = run(Params(view="scan", model="own", code=code), silent)
    assert result.fault
    assert (result.fault.type, result.fault.line) == (kind, line)
    assert explain(result) == ()
    assert wire.decode(Result, wire.loads(wire.dumps(result))) == result


def test_a_loss_that_fails_leaves_the_modules_that_were_scanned() -> None:
    code = "model = nn.Sequential(nn.Linear(4, 4), nn.Dropout())\nbatch = torch.ones(5, 4)\ndef loss(m, b):\n    return b[9]\n"
    result = run(Params(view="scan", model="own", code=code), silent)
    assert result.fault
    assert (result.fault.type, result.fault.line) == ("IndexError", 4)
    assert result.scan
    assert result.scan.modes
    assert [row.type for row in result.scan.modes.modules if row.gap > 0] == ["Dropout"]
    assert (result.scan.loss_train, result.scan.loss_name) == (None, "")


def test_a_batch_of_one_is_a_fault_with_the_sizes_that_work() -> None:
    result = run(Params(view="batchnorm", batch=1), silent)
    assert result.fault
    assert (result.fault.type, result.batchnorm) == ("ValueError", ())
    assert "drop_last=True" in result.fault.repair
    assert result.sizes
    assert [row.batch for row in result.sizes if row.error] == [1]
    untracked = run(Params(view="batchnorm", batch=1, track_running_stats=False), silent)
    assert untracked.fault
    assert "eval mode too" in untracked.fault.explanation


def test_findings_follow_the_numbers() -> None:
    def titles(**settings: Any) -> str:
        return " | ".join(finding.title for finding in explain(run(Params(**settings), silent)))

    assert "still remember their start" in titles(view="batchnorm", batches=5)
    assert "still remember their start" not in titles(view="batchnorm", batches=5, momentum=None)
    assert "F.dropout drops after eval()" in titles(module="F.dropout")
    assert "F.dropout drops after eval()" not in titles(module="Dropout")
    assert "p = 1 gives zeros" in titles(p=1.0)
    assert "same units" in titles(same_mask=True)
    assert "ignores eval()" in titles(view="scan", model="transformer")


# The reported confusions, plainly.


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return {name: plain(item) for name, item in value.items()} if isinstance(value, dict) else value


def agrees(expected: Any, got: Any) -> bool:
    """As the cases write numbers: six digits; a tensor of one number may stand as the number or as a list of it."""
    if isinstance(expected, dict):
        return expected.keys() == got.keys() and all(agrees(v, got[name]) for name, v in expected.items())
    if isinstance(expected, list):
        return isinstance(got, list) and len(expected) == len(got) and all(map(agrees, expected, got))
    if isinstance(expected, float):
        return bool(math.isclose(expected, got, rel_tol=2e-5))
    return expected == got


def observe(row: dict[str, Any]) -> tuple[dict[str, Any], list[str], BaseException | None]:
    names: dict[str, Any] = {}
    error = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            exec(compile(row["snippet"], row["id"], "exec"), names)
        except Exception as raised:  # noqa: BLE001 - what it raises is what is compared
            error = raised
    return names, [f"{w.category.__name__}: {w.message}" for w in caught], error


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_torch_does_what_was_observed(row: dict[str, Any]) -> None:
    names, warned, error = observe(row)
    observed = row["observed"]
    assert (type(error).__name__ if error else None) == row["error"]
    if "version-dependent" in row["tags"] and RELEASE != (2, 13):
        return
    if error:
        assert " ".join(str(error).split()) == observed["message"]
    else:
        assert agrees(observed["result"], plain(names["result"]))
    for text in observed.get("warnings", ()):
        assert any(text in said for said in warned)


def test_the_comparison_is_alive() -> None:
    row = next(row for row in ROWS if row["id"] == "te-04")
    names, _, _ = observe(row)
    assert not agrees({**row["observed"]["result"], "biased": 3.6}, plain(names["result"]))


SHOWN = {
    "te-01": (Params(view="batchnorm", batch=1), "drop_last"),
    "te-03": (Params(view="batchnorm", batch=1, track_running_stats=False), "eval mode too"),
    "te-04": (Params(view="batchnorm", batch=4), "biased"),
    "te-08": (Params(view="batchnorm", study="freezing", treatment="requires_grad=False"), "not the statistics"),
    "te-13": (Params(view="batchnorm", study="freezing", treatment="two micro-batches"), "normalised and stored on its own"),
    "te-14": (Params(view="batchnorm", study="freezing", treatment="empty state dict"), "this version"),
    "te-15": (Params(view="batchnorm", study="freezing", treatment="state dict without counter"), "momentum=None"),
    "te-16": (Params(study="who listens"), "SyncBatchNorm"),
    "te-18": (Params(view="batchnorm", study="other norms"), "InstanceNorm does not change"),
    "te-19": (Params(module="F.dropout"), "training=self.training"),
    "te-20": (Params(view="scan", model="transformer"), "dropout_p=self.p if self.training"),
    "te-23": (Params(study="who listens"), "Use Dropout1d"),
    "te-24": (Params(study="MC dropout"), "Only the dropout layer"),
    "te-25": (Params(view="switches"), "independent"),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_the_page_shows_the_insight(row: dict[str, Any]) -> None:
    params, words = SHOWN[row["id"]]
    result = run(params, silent)
    said = wire.dumps({"result": result, "findings": list(explain(result))})
    assert words in json.dumps(json.loads(said), ensure_ascii=False)
