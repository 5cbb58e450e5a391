"""What differs between two runs, in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from components.frame.compare import changed_knobs, changed_numbers
from lab.contract import Limits, knob, knobs
from lab.quantities import evidence_name, evidence_text


@dataclass(frozen=True)
class Params:
    code: str = knob("", program=Limits())
    width_mm: int = knob(1, unit="mm")
    clip: float | None = knob(None)


def test_changed_knobs_are_named_and_the_others_are_not():
    a, b = Params("x\ny\nz", 1), Params("x\ny\nw\nv", 2)
    assert changed_knobs(knobs(Params), a, b) == [
        ("code", "1 line of its own", "2 lines of its own", ""),
        ("width mm (mm)", "1", "2", ""),
    ]
    assert changed_knobs(knobs(Params), a, a) == []


def test_changed_numbers_carry_units_and_signs():
    a = {"kept_bytes": 2048, "wall_s": 0.25, "loss": 2.0, "gone": 1, "odd": math.nan}
    b = {"kept_bytes": 1024, "wall_s": 0.5, "loss": 2.0, "odd": 1.0}
    assert changed_numbers(a, b) == [
        ("kept", "2.00 KiB (2,048 B)", "1.00 KiB (1,024 B)", "−1.00 KiB (1,024 B)"),
        ("wall", "250 ms", "500 ms", "+250 ms"),
        ("loss", "2", "2", "0"),
        ("gone", "1", "–", ""),
        ("odd", "NaN", "1", "NaN"),
    ]


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("bytes before backward", 24, "before backward 24 B"),
        ("bytes", 24, "bytes 24 B"),
        ("share", 0.12345, "share 0.1235"),
        ("steps", 12_000, "steps 12,000"),
        ("step_s", 2e-6, "step 2 µs"),
        ("same", True, "same True"),
        ("gradient", "(1, 2)", "gradient (1, 2)"),
    ],
)
def test_evidence_reads_as_a_sentence(name, value, shown):
    assert f"{evidence_name(name)} {evidence_text(name, value)}" == shown
