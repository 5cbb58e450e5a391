"""The autograd page: what a visitor types, and what comes back."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest

from components.frame.share_link import pack
from tests.pages.test_every_page import measured, opened, run, until

PAGE = "autograd_graph.py"
BROKEN = "x = torch.ones(3, requires_grad=True)\nprint('**not bold**')\ny = x @ torch.ones(4)\n"
FIXED = "x = torch.ones(3, requires_grad=True)\nloss = (2 * x).sum()\nloss.backward()\n"


def press_run(at: AppTest, code: str, number: int) -> AppTest:
    at.session_state["ag-editor"] = {"sent": {"text": code, "run": number}}
    run(at)
    return until(at, lambda at: not at.progress and (measured(at) or bool(at.code)))


def table(at: AppTest, column: str) -> list[dict]:
    """Rows of the table that has this column."""
    for tab in ("Backward order", "Saved tensors", "Leaves", "Named tensors", "Variables"):
        at.session_state["ag-b-details"] = tab
        at.run()
        found = [frame.value for frame in at.dataframe if column in frame.value.columns]
        if found:
            return found[0].to_dict("records")
    raise AssertionError(f"no tab has a table with a column {column}")


def gradients(at: AppTest) -> dict[str, str]:
    return {row["name"]: row["grad"] for row in table(at, "grad")}


def test_the_default_program_has_its_tables():
    at = until(opened(PAGE), measured)
    steps = table(at, "handed on")
    assert [row["step"] for row in steps] == list(range(1, len(steps) + 1))
    assert steps[0]["node"] == "SumBackward0"
    # x: sigmoid'(0.5) * 0.5 + 1, sigmoid'(-2) * -1 + 1
    assert gradients(at)["x"] == "[1.1175, 0.895006]"
    assert {row["slot"] for row in table(at, "slot")} == {"self", "other", "result"}


def test_type_meet_an_error_at_its_line_and_fix_it():
    at = press_run(until(opened(PAGE), measured), BROKEN, 1)
    assert any("Your program stopped" in element.value and "line 3" in element.value for element in at.markdown)
    assert at.code[0].value.startswith("RuntimeError")
    assert any(block.value == "**not bold**" for block in at.code)
    press_run(at, FIXED, 2)
    assert not any("Your program stopped" in element.value for element in at.markdown)
    assert gradients(at) == {"x": "[2.0, 2.0, 2.0]"}


def test_text_without_run_is_kept_and_not_run():
    at = until(opened(PAGE), measured)
    at.session_state["ag-editor"] = {"sent": {"text": FIXED, "run": 0}}
    run(at)
    assert set(gradients(at)) == {"w", "x"}
    assert any("Press Run" in element.value for element in at.text)
    assert "ag-code" in at.query_params


def test_a_program_in_a_link_waits_for_run():
    at = opened(PAGE, ag_code=pack(FIXED))
    assert any("Read it, then press Run" in element.value for element in at.text)
    assert not at.dataframe
    press_run(at, FIXED, 1)
    assert gradients(at) == {"x": "[2.0, 2.0, 2.0]"}


def test_a_damaged_link_is_said():
    at = opened(PAGE, ag_code="x!", ag_seed="-1")
    said = [element.value for element in at.warning]
    assert any("damaged" in text for text in said)
    assert any("seed = -1 is outside" in text for text in said)


OVERWRITTEN = (
    "x = torch.tensor([1.0, 2.0], requires_grad=True)\ny = torch.tanh(x)\ny += 1\nloss = y.sum()\nloss.backward()\n"
)


def buttons(at: AppTest) -> list[str]:
    return [button.label for button in at.button]


def test_a_tested_repair_is_applied_and_compared():
    at = press_run(until(opened(PAGE), measured), OVERWRITTEN, 1)
    until(at, lambda at: "Apply and compare" in buttons(at))
    assert [block.value for block in at.code if block.language == "diff"] == ["- y += 1\n+ y = y + 1"]
    assert sum("Your program stopped" in element.value for element in at.markdown) == 1
    assert not any("RuntimeError on line" in element.value for element in at.text)  # one card, not two
    next(button for button in at.button if button.label == "Apply and compare").click()
    run(at)
    until(at, lambda at: not at.progress and "Apply and compare" not in buttons(at))
    assert at.session_state["ag:values"]["code"] == OVERWRITTEN.replace("y += 1", "y = y + 1")
    assert "Unpin A" in buttons(at)
    assert [element.value for element in at.markdown if element.value in ("**A**", "**B**")] == ["**A**", "**B**"]
    assert gradients(at)["x"] == "[0.419974, 0.0706508]"  # 1 − tanh²


def test_a_late_message_of_the_editor_does_not_undo_a_repair():
    at = press_run(until(opened(PAGE), measured), OVERWRITTEN, 1)
    until(at, lambda at: "Apply and compare" in buttons(at))
    before = at.session_state["ag:revision"]
    next(button for button in at.button if button.label == "Apply and compare").click()
    at.session_state["ag-editor"] = {"sent": {"text": OVERWRITTEN + "#", "run": 7, "serial": 1, "revision": before}}
    run(at)
    until(at, lambda at: not at.progress)
    assert at.session_state["ag:values"]["code"] == OVERWRITTEN.replace("y += 1", "y = y + 1")
    at.session_state["ag-editor"] = {"sent": {"text": FIXED, "run": 8, "serial": 2, "revision": before + 1}}
    run(at)
    assert at.session_state["ag:values"]["code"] == FIXED


def test_an_untested_repair_is_advice_without_a_button():
    at = press_run(
        until(opened(PAGE), measured), OVERWRITTEN.replace("1.0, 2.0", "0.0, 2.0").replace("tanh", "sqrt"), 1
    )
    assert any("Repair:" in element.value for element in at.text)
    assert "Apply and compare" not in buttons(at)
