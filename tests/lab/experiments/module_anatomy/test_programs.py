"""Many programs: the line to blame is named with its reason, and of sound ones no warning is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab import wire
from lab.contract import Finding, apply_edits, silent
from lab.experiments.module_anatomy import Params, Result, explain, run
from tests.lab.experiments.module_anatomy.programs import BLAMED, ENDED, HEAD, SOUND

CASES = Path(__file__).resolve().parents[3] / "cases" / "module_cases.jsonl"
ROWS: dict[str, dict[str, Any]] = {
    row["id"]: row for row in map(json.loads, CASES.read_text(encoding="utf-8").splitlines())
}


def observed(code: str, **knobs: Any) -> Result:
    """The result, after the trip through the wire that every result makes."""
    result = run(Params(code=code, **knobs), silent)
    back = wire.decode(Result, wire.loads(wire.dumps(result)))
    assert wire.dumps(back) == wire.dumps(result)
    return back


def lines_of(finding: Finding) -> list[int]:
    return [*([finding.line] if finding.line else []), *(site.line for site in finding.sites)]


def told(result: Result) -> list[Finding]:
    """What is more than a fact."""
    return [f for f in explain(result) if f.level != "fact"]


@pytest.mark.parametrize("at", ROWS)
def test_reported_confusions_name_their_line(at: str) -> None:
    row = ROWS[at]
    result = observed(row["snippet"])
    assert (result.fault.type if result.fault else None) == row["error"]
    found = explain(result)
    culprit = row["culprit_line"]
    if row["error"]:
        assert result.fault
        assert found[0].level == "fault"
        assert result.fault.explanation
        assert result.fault.sites[0].line == culprit
    else:
        assert culprit in lines_of(next(f for f in found if f.line or f.sites)), [f.title for f in found]


@pytest.mark.parametrize("name", BLAMED)
@pytest.mark.parametrize("before", ["", HEAD], ids=["plain", "with logging"])
def test_the_line_to_blame(name: str, before: str) -> None:
    code, line, words = BLAMED[name]
    if "log." in code and not before:
        before = HEAD
    result = observed(before + code)
    assert result.fault is None, result.fault
    shift = before.count("\n")
    hits = [f for f in told(result) if words in f.title or words in f.text]
    assert hits, [(f.title, f.text) for f in explain(result)]
    if line:
        assert line + shift in lines_of(hits[0])


@pytest.mark.parametrize("name", ENDED)
def test_what_ended_a_program(name: str) -> None:
    code, line, words = ENDED[name]
    result = observed(HEAD + code)
    assert result.fault
    assert result.fault.sites[0].line == line + 3
    assert words in result.fault.explanation


@pytest.mark.parametrize("name", SOUND)
def test_sound_programs_draw_no_warning(name: str) -> None:
    code = SOUND[name]
    result = observed(HEAD + code)
    assert result.fault is None
    assert not [f for f in explain(result) if f.level in ("warning", "fault")]
    assert all(u.in_forward or u.what == "activation" for u in result.unregistered)


REPAIRED = (
    "layers appended to a list, in a function", "experts in a dict", "a plain mask in attention", "a Parameter that is cast",
    "Parameters in a list", "a tensor that requires a gradient", "a projection made in forward", "one layer six times",
    "an output that is kept", "forward by name in a function", "a prefix, not strict", "a misspelt constructor", "a table over two lines", "a queue that forward updates", "dropouts in a list",
)  # fmt: skip


@pytest.mark.parametrize("name", REPAIRED)
def test_a_repair_is_run_and_cures(name: str) -> None:
    code, _, words = BLAMED[name]
    result = observed(code)
    finding = next(f for f in explain(result) if words in f.title or words in f.text)
    assert finding.edit_tested, [(r.why_not, r.edits) for r in result.repairs]
    edited = apply_edits(code, finding.edits)
    assert edited
    after = observed(edited)
    assert after.fault is None
    assert not [f for f in told(after) if words in f.title or words in f.text]


def test_an_edit_that_does_not_cure_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    code = BLAMED["a plain mask in attention"][0]
    planted = "lab.experiments.module_anatomy.edits.as_buffer"
    original = __import__("lab.experiments.module_anatomy.edits", fromlist=["edits"]).as_container
    monkeypatch.setattr(planted, lambda source, line, name: original(source, line, name, "ParameterList"))
    result = observed(code)
    assert not any(f.edit_tested for f in explain(result))


def test_the_program_is_left_as_it_was() -> None:
    """Prints, warnings, generators and torch's own methods are those of a bare run."""
    from torch import nn

    before = {
        name: vars(nn.Module)[name] for name in ("__init__", "__setattr__", "register_buffer", "load_state_dict", "to")
    }
    code = "m = nn.Linear(2, 2)\nm.register_forward_hook(lambda m, i, o: print('hook'))\nbatch = torch.ones(1, 2)\nprint(torch.rand(1).item())\nm(batch)\n"
    result = observed(code)
    import torch

    torch.manual_seed(0)
    nn.Linear(2, 2)
    assert result.printed == f"{torch.rand(1).item()}\nhook\n"
    assert all(vars(nn.Module)[name] is function for name, function in before.items())


def test_a_model_that_cannot_be_copied_is_made_again() -> None:
    result = observed(SOUND["what cannot be copied"])
    assert [t.moves for t in result.tensors] == [True, True]
    keys = observed(SOUND["what cannot be copied"], view="state dict").keys
    assert keys
    assert (keys.loaded, keys.changed) == (2, 2)


def test_the_view_of_hooks_takes_sparse_gradients_and_large_models() -> None:
    sparse = observed(
        "model = nn.EmbeddingBag(10, 3, sparse=True)\nbatch = torch.randint(0, 10, (2, 4))\n", view="hooks"
    )
    assert not sparse.no_events
    large = observed(SOUND["a transformer of twelve blocks"], view="hooks")
    assert "first 60" in large.events_note
    inplace = observed(
        "model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True))\nbatch = torch.ones(1, 2)\n", view="hooks"
    )
    assert "Without probes on full backward" in inplace.events_note
    assert inplace.events


HOOKED = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x, scale=1.0):
        return self.fc(x) * scale


model = Net()
model.register_forward_pre_hook(lambda m, args, kwargs: (args, {"scale": 2.0}), with_kwargs=True)
model.register_forward_pre_hook(lambda m, args: None)
model.register_forward_hook(lambda m, i, o: [o.mul_(2), None][1])
model.fc.weight.register_hook(lambda g: g)
model.fc.bias.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))
batch = torch.ones(1, 2)
"""


def test_what_a_hook_changed_is_told_and_nothing_else() -> None:
    events = observed(HOOKED, view="hooks", hook_kinds="the program's own").events
    changed = {e.line: e.changed for e in events if e.by == "program"}
    assert changed == {
        11: "returns other inputs",
        12: "",
        13: "writes in place",
        14: "",
        15: "puts another .grad in place",
    }


def test_names_that_fit_after_a_prefix_are_counted() -> None:
    code = (
        "whole = nn.ModuleDict({'body': nn.Linear(2, 2), 'head': nn.Linear(2, 1)})\n"
        "whole.load_state_dict(nn.Linear(2, 2).state_dict())\n"
    )
    fault = observed(code).fault
    assert fault
    assert "2 of the 2 given names fit once body. is added." in fault.explanation


def test_findings_come_in_the_order_of_the_program() -> None:
    lines = [f.line for f in explain(run(Params(), silent)) if f.level == "warning"]
    assert lines == [5, 6, 9]
