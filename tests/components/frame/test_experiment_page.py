"""The frame around an example experiment: what a visitor sees and what is asked of the executor."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Selectbox

from components import navigation
from components.frame import execution
from components.frame.predict import shuffled
from lab.contract import Fault
from tests.components.frame import example_experiment
from tests.components.frame.example_experiment import HOSTILE, Params
from tests.components.frame.fake_executor import FakeExecutor

PAGE = Path(__file__).with_name("example_page.py")
LINE = navigation.Page("example_experiment", "ex", "Examples", "Example", "star", "Factors.")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeExecutor]:
    made = FakeExecutor(example_experiment)
    monkeypatch.setattr(execution, "Executor", lambda: made)
    monkeypatch.setattr(navigation, "PAGES", (LINE,))
    execution.executor.clear()
    yield made
    execution.executor.clear()


def visit(*, live: bool = True, **query: str) -> AppTest:
    at = AppTest.from_file(str(PAGE), default_timeout=20)
    at.session_state["test-live"] = live
    for name, value in query.items():
        at.query_params[name.replace("_", "-")] = value
    return run(at)


def run(at: AppTest) -> AppTest:
    at.run()
    assert not at.exception
    return at


def texts(at: AppTest) -> list[str]:
    return [element.value for element in at.text]


def prose(at: AppTest) -> str:
    """Everything that went through Markdown."""
    return "\n".join(element.value for kind in (at.markdown, at.caption, at.warning, at.subheader) for element in kind)


def query(at: AppTest) -> dict[str, str]:
    return {name: value if isinstance(value, str) else value[0] for name, value in at.query_params.items()}


def test_the_first_view_shows_a_complete_result(fake):
    at = visit()
    assert at.title[0].value == "How large is the product?"
    assert "figure ex-b: 1.0625" in texts(at)
    assert fake.submitted == [(Params(), False)]
    assert query(at) == {}


def test_the_footer_says_where_the_numbers_come_from(fake):
    said = prose(visit())
    for fact in ("Example CPU", "torch 2.13.0", "float64", "seed 0", "2001-09-09", "12 ms", "sealed", "Costs nothing.", "Sees all."):  # fmt: skip
        assert fact in said


def test_a_control_is_followed_live_and_goes_into_the_address(fake):
    at = visit()
    at.slider(key="ex-depth").set_value(9)
    run(at)
    assert fake.submitted[-1] == (Params(depth=9), False)
    assert query(at) == {"ex-depth": "9"}
    at.slider(key="ex-depth").set_value(4)
    run(at)
    assert query(at) == {}


def test_without_live_nothing_runs_until_run_is_pressed(fake):
    at = visit(live=False)
    at.slider(key="ex-depth").set_value(9)
    run(at)
    assert len(fake.submitted) == 1
    assert any("Press Run" in text for text in texts(at))
    assert "figure ex-b: 1.0625" in texts(at)
    at.button(key="ex-run").click()
    run(at)
    assert fake.submitted[1:] == [(Params(depth=9), True)]


def test_run_measures_again_what_has_not_changed(fake):
    at = visit()
    at.button(key="ex-run").click()
    run(at)
    assert fake.submitted == [(Params(), False), (Params(), True)]
    run(at)
    assert len(fake.submitted) == 2


def test_an_address_shows_its_state(fake):
    at = visit(ex_depth="7", ex_rate="2.5", ex_bias="false", ex_norm="layer", ex_clip="0.5", ex_name="bert")
    assert fake.submitted[-1][0] == Params(7, 2.5, False, "cpu", "layer", 0.5, "bert")
    assert at.slider(key="ex-depth").value == 7
    assert at.number_input(key="ex-clip").value == 0.5
    assert query(at)["ex-rate"] == "2.5"


def test_what_is_wrong_in_an_address_is_said(fake):
    at = visit(ex_depth="9999", ex_colour="red")
    said = prose(at)
    assert "depth = 9999 is outside 1 to 64" in said
    assert "no control called 'colour'" in said
    assert fake.submitted == [(Params(), False)]


def test_an_address_that_is_older_than_the_controls_changes_nothing(fake):
    at = visit(ex_depth="7")
    at.slider(key="ex-depth").set_value(9)
    at.query_params["ex-depth"] = "7"
    run(at)
    at.query_params["ex-depth"] = "7"
    run(at)
    assert at.slider(key="ex-depth").value == 9
    assert fake.submitted[-1][0] == Params(depth=9)
    assert query(at) == {"ex-depth": "9"}


def test_the_first_controls_are_in_sight_and_the_rest_one_click_away(fake):
    at = visit()
    rest = at.expander[0]
    assert rest.label == "3 more settings"
    assert [widget.key for widget in rest.number_input] == ["ex-clip", "ex-seed"]


def preset_of(at: AppTest) -> Selectbox:
    """The selector of presets; it has a key of its own for each state."""
    return next(box for box in at.selectbox if box.label == "Preset")


def test_a_preset_sets_every_control_and_names_the_address(fake):
    at = visit()
    at.slider(key="ex-depth").set_value(9)
    run(at)
    preset_of(at).select("Doubling, 30 deep")
    run(at)
    assert fake.submitted[-1][0] == Params(depth=30, rate=2.0)
    assert at.slider(key="ex-depth~2").value == 30  # a widget of its own: the old one's late messages are about nothing
    assert query(at) == {"ex-preset": "doubling-30-deep"}
    at.slider(key="ex-depth~2").set_value(31)
    run(at)
    assert preset_of(at).value is None
    assert query(at) == {"ex-depth": "31", "ex-rate": "2.0"}


@pytest.mark.parametrize(
    ("end", "title"),
    [("failed", "The run failed"), ("refused", "Not run"), ("limit", "Ended at a limit"), ("cancelled", "Cancelled")],
)
def test_every_end_without_a_result_is_explained(fake, end, title):
    at = visit()
    fake.end, fake.fault = end, Fault("ValueError", f"it took {HOSTILE}", 3, "It took too long.", "Use fewer layers.")
    at.slider(key="ex-depth").set_value(9)
    run(at)
    assert title in prose(at)
    assert at.code[0].value == f"ValueError: it took {HOSTILE}"
    assert {"It took too long.", "Repair: Use fewer layers."} <= set(texts(at))
    assert "figure ex-b: 1.0625" in texts(at), "the last finished result stays"
    assert any("An earlier result" in text for text in texts(at))


def test_a_run_that_takes_long_shows_progress_and_can_be_cancelled(fake):
    at = visit()
    fake.end = "running"
    at.slider(key="ex-depth").set_value(9)
    run(at)
    assert at.progress[0].value == 25
    assert "layer 1 of 4" in texts(at)
    assert "figure ex-b: 1.0625" in texts(at)
    at.button(key="ex-cancel").click()
    run(at)
    assert len(fake.cancelled) == 1
    run(at)
    assert "Cancelled" in prose(at)


def test_a_run_that_waits_says_its_place(fake):
    fake.end = "queued"
    at = visit()
    assert "Waiting, number 3 in the queue." in texts(at)
    assert not any(text.startswith("figure") for text in texts(at))


def test_texts_of_findings_are_never_markdown(fake):
    at = visit()
    assert HOSTILE in texts(at)
    assert "kept 2.00 KiB (2,048 B)" in texts(at)
    assert "line 3" in prose(at)
    assert "onerror" not in prose(at)


def test_a_repair_is_one_click_and_only_sets_what_a_control_accepts(fake):
    at = visit()
    button = at.button(key="finding-0-change")
    assert button.label == "Set rate = 2.0"
    button.click()
    run(at)
    assert fake.submitted[-1][0] == Params(rate=2.0)
    assert at.number_input(key="ex-rate~2").value == 2.0


def test_predict_first_covers_the_answer_until_a_guess(fake):
    at = visit()
    at.toggle(key="ex-predict-first").set_value(True)
    run(at)
    assert not any(text.startswith("figure") or text == HOSTILE for text in texts(at))
    assert "Does the product grow?" in prose(at)
    at.button(key="ex-choice-0").click()
    run(at)
    assert "figure ex-b: 1.0625" in texts(at)
    assert "You predicted: grows. A factor below one shrinks it." in prose(at)
    preset_of(at).select("Doubling, 30 deep")
    run(at)
    at.button(key="ex-choice-0").click()
    run(at)
    assert "As you predicted" in prose(at)


def test_two_states_side_by_side(fake):
    at = visit()
    at.button(key="ex-pin").click()
    run(at)
    at.number_input(key="ex-rate").set_value(2.0)
    run(at)
    assert {"figure ex-a: 1.0625", "figure ex-b: 17.0"} <= set(texts(at))
    rows = at.dataframe[0].value.to_numpy().tolist()
    assert ["rate", "0.5", "2.0", ""] in rows
    assert ["product", "1.062", "17", "+15.94"] in rows
    assert ["kept", "32 B", "32 B", "0"] in rows
    at.button(key="ex-unpin").click()
    run(at)
    assert not at.dataframe


def test_a_link_brings_what_is_held_as_a(fake):
    at = visit()
    at.button(key="ex-pin").click()
    run(at)
    at.number_input(key="ex-rate").set_value(2.0)
    run(at)
    link = query(at)
    assert link == {"ex-rate": "2.0", "ex.a": "1"}
    other = visit(live=True, **link)
    assert {"figure ex-a: 1.0625", "figure ex-b: 17.0"} <= set(texts(other))
    other.button(key="ex-unpin").click()
    run(other)
    assert query(other) == {"ex-rate": "2.0"}


def test_choices_are_shuffled_and_titles_hidden_until_a_guess(fake):
    at = visit()
    assert preset_of(at).options[0] == "half, four deep"
    at.toggle(key="ex-predict-first").set_value(True)
    run(at)
    assert preset_of(at).options[0] == "1. Does the product grow?"
    lessons = [replace(example_experiment.lessons[0], title=f"lesson {n}") for n in range(40)]
    first = [shuffled(item)[0] for item in lessons]
    assert {first.count(choice) > 5 for choice in lessons[0].choices} == {True}
    assert first == [shuffled(item)[0] for item in lessons]


def test_presenter_mode_keeps_the_address_whole_and_shows_one_finding(fake):
    at = visit(present="1", ex_depth="9")
    assert query(at) == {"present": "1", "ex-depth": "9"}
    assert HOSTILE in texts(at)
    assert "It is second." not in texts(at)
    assert at.slider(key="ex-depth").value == 9, "controls are hidden by CSS, not left out"


def test_the_code_and_the_interview_texts(fake):
    at = visit()
    assert any(block.value == "print(0.5 ** 4)" for block in at.code)
    said = prose(at)
    assert "the norm of a product" in said
    for part in ("**Requirement.** the requirement", "**Recovery.** the recovery", "Question N1"):
        assert part in said


def test_a_contradiction_between_controls_is_said_and_nothing_runs(fake, monkeypatch):
    at = visit()
    at.text_input(key="ex-name").set_value("a" * 20_000)
    run(at)
    assert "Name has 20,000 bytes; the limit is 16,384." in prose(at)
    assert len(fake.submitted) == 1


def test_a_lost_result_is_measured_again(fake):
    at = visit()
    fake.jobs.clear()
    run(at)
    assert len(fake.submitted) == 2
    assert "figure ex-b: 1.0625" in texts(at)


def test_the_session_holds_plain_values_only(fake):
    at = visit()
    at.button(key="ex-pin").click()
    run(at)
    for name, value in at.session_state.items():
        assert _plain(value), f"{name} = {value!r}"
    assert not _plain(Params())


def _plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _plain(item) for key, item in value.items())
    return value is None or type(value) in (bool, int, float, str)


def test_a_site_is_one_line_of_text() -> None:
    from components.frame.site_list import site_text
    from lab.contract import Site

    assert site_text(Site(4, "overwritten here", "p", "version 0", "version 1")) == (
        "line 4 · overwritten here · p · version 0 → version 1"
    )
    assert site_text(Site(7, "fails here")) == "line 7 · fails here"


def test_a_part_of_a_result_is_shown_while_its_run_goes_on(fake):
    fake.end, fake.part = "running", example_experiment.Result(7.5, 8)
    at = visit()
    assert "figure ex-b: 7.5" in texts(at)
    assert "layer 1 of 4" in texts(at)
    assert not any(button.label == "Pin as A" for button in at.button)


def test_what_was_measured_before_a_run_ended_early_stays(fake):
    fake.end, fake.part, fake.fault = "running", example_experiment.Result(7.5, 8), None
    at = visit()
    (job_id,) = fake.jobs
    fake.jobs[job_id] = replace(fake.jobs[job_id], state="limit", fault=Fault("TimeLimit", "It took too long."))
    at = run(at)
    assert "figure ex-b: 7.5" in texts(at)
    assert any("measured before" in text for text in texts(at))
    assert any("It took too long." in text for text in texts(at))


def test_a_remembered_result_says_so(fake):
    at = visit()
    assert any("finished at" in text and "is remembered" in text for text in texts(at))
    fake.finished_at = time.time() + 60
    at.slider(key="ex-depth").set_value(9)
    at = run(at)
    assert any("finished at" in text and "remembered" not in text for text in texts(at))
