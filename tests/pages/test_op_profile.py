"""The page of the operator profile: views, the next step as a button, A | B, traps, an own model."""

from __future__ import annotations

import gzip
import json

from streamlit.testing.v1 import AppTest

from lab.records.profiling import Timeline
from tests.pages.test_every_page import measured, opened, run, until

PAGE = "op_profile.py"
QUICK = {"op_model": "mlp", "op_layers": "2", "op_width": "32", "op_steps": "2", "op_warmup": "1"}


def quick(**query: str) -> AppTest:
    return until(opened(PAGE, **{**QUICK, **query}), measured)


def view(at: AppTest, name: str) -> AppTest:
    at.segmented_control(key="op-view").set_value(name)
    return run(at)


def said(at: AppTest) -> str:
    return "\n".join(e.value for e in (*at.markdown, *at.text, *at.caption))


def test_the_verdict_comes_first_and_every_view_opens():
    at = quick()
    assert "Bound by" in said(at)
    for name in ("Operators", "Timeline", "Ceilings", "Kernels"):
        view(at, name)
    assert "Kernels need a CUDA device" in said(at)
    assert not at.exception


def test_the_next_step_is_a_button_that_shows_the_difference():
    at = quick()
    button = next(b for b in at.button if b.key and b.key.endswith("-next"))
    button.click()
    run(at)
    until(at, lambda at: measured(at) and "Operator by operator" in said(at))
    rows = next(f.value for f in at.dataframe if "operator" in f.value.columns)
    assert {"A (ms)", "B (ms)", "B − A (ms)"} <= set(rows.columns)
    assert "aten::addmm" in set(rows["operator"])
    assert any("A" in f.value.columns and "bare step" in set(f.value.iloc[:, 0]) for f in at.dataframe)


def test_a_trap_opens_its_view_and_shows_both_programs():
    at = quick(op_trap="nested")
    assert at.segmented_control(key="op-view").value == "Traps"
    assert sum("with profile(" in block.value for block in at.code) >= 2
    assert "events of the outer" in said(at)


def test_an_own_model_without_a_program_says_what_to_write():
    at = quick(op_model="own")
    assert any("defines model and batch" in block.value for block in (*at.code, *at.text))


def test_the_trace_file_is_what_trace_viewers_read():
    from components.op_profile.trace_file import trace_file

    timeline = Timeline(
        lanes=("main thread",), names=("step", "aten::mm", "[[2, 3], [3, 4]]"), lane=(0, 0), name=(0, 1),
        kind=("range", "op"), depth=(0, 1), start_s=(0.0, 1e-6), duration_s=(5e-6, 2e-6), shapes=(-1, 2),
        memory_s=(), memory_bytes=(), steps=1, events=2,
    )  # fmt: skip
    events = json.loads(gzip.decompress(trace_file(timeline)))["traceEvents"]
    assert [e["name"] for e in events] == ["thread_name", "ProfilerStep#0", "aten::mm"]
    assert events[2]["args"] == {"Input Dims": [[2, 3], [3, 4]]}
    assert (events[2]["ts"], events[2]["dur"], events[2]["cat"]) == (1.0, 2.0, "cpu_op")
