"""The page on train and eval mode: views, presets, and what torch refuses."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest

from tests.pages.test_every_page import measured, opened, run, until

PAGE = "train_eval.py"


def shown(at: AppTest) -> str:
    return " | ".join(element.value for element in (*at.markdown, *at.caption, *at.text))


def drawn(at: AppTest, words: str) -> AppTest:
    return until(at, lambda at: measured(at) and words in shown(at))


def controls(at: AppTest) -> set[str]:
    every = (*at.selectbox, *at.slider, *at.number_input, *at.toggle, *at.button_group)
    keys = [element.key or "" for element in every]
    return {key.removeprefix("te-") for key in keys if key.startswith("te-")}


def test_the_default_shows_the_share_and_only_its_controls():
    at = drawn(opened(PAGE), "### 0.5039")  # torch's generator with seed 0, see the lesson's script
    assert {"view", "study", "module", "p", "passes"} <= controls(at)
    assert not {"momentum", "eps", "shift", "treatment", "model", "size"} & controls(at)
    assert any("share of dropped elements agrees" in element.value for element in at.text)


def test_another_view_brings_its_controls_and_its_module():
    at = drawn(opened(PAGE), "Output mean")
    at.button_group(key="te-view").set_value("batchnorm")
    drawn(run(at), "Variance that is stored")
    assert {"momentum", "batches", "eps"} <= controls(at)
    assert not {"p", "passes"} & controls(at)
    assert at.query_params["te-module"] == "BatchNorm1d"
    assert not at.warning
    at.button_group(key="te-view").set_value("dropout")
    drawn(run(at), "Output mean")
    assert "te-module" not in at.query_params


def test_a_batch_of_one_is_said_in_the_words_of_torch():
    at = drawn(opened(PAGE, te_preset="a-batch-of-one"), "PyTorch refuses this")
    assert any("Expected more than 1 value per channel" in block.value for block in at.code)
    assert any("drop_last=True" in element.value for element in at.text)


def test_a_forgotten_eval_has_its_price():
    at = drawn(opened(PAGE, te_preset="forgotten-eval"), "Accuracy after eval()")
    table = next(frame.value for frame in at.dataframe if "accuracy" in frame.value.columns)
    assert len(table) == 10


def test_a_preset_with_a_program_shows_the_editor_and_runs():
    at = drawn(opened(PAGE, te_preset="your-own-model-mixed-modes"), "Modules that know the mode")
    assert any("both modes at once" in element.value for element in at.text)
    assert not at.warning
