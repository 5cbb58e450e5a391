from __future__ import annotations

import pytest

from components.autograd_graph.graph_view.notation import (
    SPACE,
    clip,
    exact,
    number,
    shape_text,
    short,
    short_gradient,
    text_width,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (-0.12345, "−0.123"),
        (12345.6, "1.23e4"),
        (1e-5, "1e−5"),
        (3, "3"),
        (True, "True"),
        ("NaN", "NaN"),
        ("-Infinity", "−∞"),
        ("(1-2j)", "1−2j"),
    ],
)
def test_number(value: object, text: str) -> None:
    assert number(value) == text


def test_small_tensors_are_written_out_and_large_ones_summed_up() -> None:
    assert short([0.24, 0.21]) == f"0.24{SPACE}0.21"
    assert short([1.0, 2.0, 3.0, 4.0, 5.0]).endswith("3.0 …")
    assert short([[1.0, 2.0], [3.0, 4.0]]) == f"[1.0{SPACE}2.0]{SPACE}[3.0{SPACE}4.0]"
    matrix = [[3.0, -4.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    assert short(matrix) == "−4.0 … 3.0"
    assert short_gradient(matrix) == "norm 5.0"
    assert short_gradient({"shape": [9], "dtype": "float32", "min": 0.0, "max": 1.0, "norm": "Infinity"}) == "norm ∞"
    assert short(None) == ""
    assert short([]) == "empty"


def test_several_outputs_may_lack_a_gradient() -> None:
    assert short_gradient([None, [1.0, 2.0]]) == f"none{SPACE}[1.0{SPACE}2.0]"
    assert "norm 2.0" in short_gradient([{"shape": [9], "min": 0.0, "max": 1.0, "norm": 2.0}, None])


def test_exact_keeps_all_digits_and_ends() -> None:
    assert exact([0.1234567, "Infinity"]) == "[0.1234567, ∞]"
    assert len(exact([0.123456789] * 5000)) < 700


def test_shapes() -> None:
    assert [shape_text(s) for s in ([2, 3], [], None)] == ["[2, 3]", "scalar", ""]


def test_clipped_text_fits() -> None:
    for text in ("h = sigmoid", "W" * 80, "變數" * 40, "a_very_long_variable_name_that_goes_on_and_on"):
        assert text_width(clip(text, 120, 14, bold=True), 14, bold=True) <= 120
    assert clip("short", 120, 14) == "short"
