"""The tables against independent routes, each of which is shown to catch a planted error."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from lab.contract import silent
from lab.experiments.gradient_modes import Params, Result, run, script
from lab.experiments.gradient_modes.uses import KINDS, USES
from lab.records.gradient_modes import ModeRow


@pytest.fixture(scope="module")
def matrix() -> Result:
    return run(Params(view="matrix", repeats=3), silent)


@pytest.fixture(scope="module")
def uses() -> Result:
    return run(Params(view="uses"), silent)


def wrong_rows(rows: tuple[ModeRow, ...]) -> set[str]:
    """Modes whose row is not what differentiating by the engine gives."""
    found = set()
    contexts = {
        "no_grad": (torch.no_grad,),
        "set_grad_enabled(False)": (lambda: torch.set_grad_enabled(False),),
        "inference_mode": (torch.inference_mode,),
        "enable_grad in no_grad": (torch.no_grad, torch.enable_grad),
        "enable_grad in inference_mode": (torch.inference_mode, torch.enable_grad),
        "inference_mode(False) in inference_mode": (torch.inference_mode, lambda: torch.inference_mode(False)),
    }
    for row in rows:
        leaf = torch.ones(4, requires_grad=True)
        with contextlib.ExitStack() as stack:
            for enter in contexts.get(row.mode, ()):
                stack.enter_context(enter())
            y = leaf * 2
        y = y.detach() if row.mode in ("detach", ".data") else y
        try:
            reached = torch.autograd.grad(y.sum(), leaf)[0] is not None
        except RuntimeError:
            reached = False
        if reached != row.records or row.saved_bytes != (32 * 128 * 4 * 2 if reached else 0):
            found.add(row.mode)
    return found


def test_what_is_recorded_is_what_the_engine_reaches(matrix: Result):
    assert not wrong_rows(matrix.modes)


def test_a_row_that_believes_the_flag_is_caught(matrix: Result):
    planted = [
        replace(row, records=True) if row.mode == "enable_grad in inference_mode" else row for row in matrix.modes
    ]
    assert wrong_rows(tuple(planted)) == {"enable_grad in inference_mode"}


def test_bytes_that_count_parameters_are_caught(matrix: Result):
    planted = [replace(row, saved_bytes=46_080) if row.mode == "grad" else row for row in matrix.modes]
    assert wrong_rows(tuple(planted)) == {"grad"}


@pytest.mark.parametrize(("width", "batch"), [(64, 8), (256, 1)])
def test_saved_bytes_follow_the_closed_form(width: int, batch: int):
    rows = run(Params(view="matrix", repeats=3, width=width, batch=batch), silent).modes
    assert next(row for row in rows if row.mode == "grad").saved_bytes == batch * width * 4 * 2


def test_train_and_eval(matrix: Result):
    cells = {(c.training, c.mode): c for c in matrix.matrix23}
    assert [c.saved_bytes for c in cells.values() if c.mode == "grad"] == [919_552, 393_216]
    assert all(c.saved_bytes == c.nodes == 0 for c in cells.values() if c.mode != "grad")
    assert all(c.stats_moved == c.training and c.two_calls_equal != c.training for c in cells.values())


def failed_elsewhere(cells: list[tuple[str, str, str]]) -> set[tuple[str, str]]:
    """(kind, use) that fail when each shown program runs by itself in another process."""
    runner = (
        "import sys, json\nfor kind, use, code in json.loads(sys.stdin.read()):\n"
        "    try: exec(code, {})\n    except Exception: print(json.dumps([kind, use]))\n"
    )
    import json

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", runner],
        input=json.dumps(cells),
        capture_output=True,
        text=True,
        check=True,
    )
    return {tuple(json.loads(line)) for line in done.stdout.splitlines() if line.startswith("[")}


def test_each_shown_program_does_what_its_cell_says(uses: Result):
    assert len(uses.uses) == len(KINDS) * len(USES) == 11 * 26
    failed = {(u.kind, u.use) for u in uses.uses if u.outcome != "ok"}
    cells = [(u.kind, u.use, u.code) for u in uses.uses]
    assert failed_elsewhere(cells) == failed
    planted = [(k, u, c.replace("t * p", "t + p")) for k, u, c in cells]
    assert failed_elsewhere(planted) != failed


def test_times_fails_where_the_node_saves_the_operand(uses: Result):
    """Which operand an operation saves, read from a node of the same operation on normal tensors."""
    cells = {(u.kind, u.use): u.outcome for u in uses.uses}
    a, p = torch.ones(3), torch.ones(3, requires_grad=True)
    saves = {
        name: node is not None and getattr(node, "_saved_self", None) is not None
        for name, node in {"times": (a * p).grad_fn, "plus": (a + p).grad_fn}.items()
    }
    assert {name: cells["inference", f"{name} a parameter"] != "ok" for name in saves} == saves


def test_versions_count_the_writes():
    code = "t = torch.zeros(2)\nfor _ in range(5):\n    t.add_(1)\n"
    assert [op.version for op in run(Params(code=code), silent).lines] == [0, 1, 2, 3, 4, 5]


def test_the_table_of_uses_is_what_its_script_counts(uses: Result):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script(Params(view="uses"))], capture_output=True, text=True, check=True
    )
    assert int(done.stdout.split()[-1]) == sum(u.outcome != "ok" for u in uses.uses)
