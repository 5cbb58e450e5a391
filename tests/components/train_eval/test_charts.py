"""The charts of the page on train and eval mode: valid, described, and drawn from the numbers of a real result."""

from __future__ import annotations

from typing import Any

import altair as alt
import pytest

from components.kit.palette import MODES, Theme
from components.train_eval import figures as mode_figures
from components.train_eval.charts import batchnorm, dropout, scan, switches
from components.train_eval.charts.lamps import Lamp, lamp_chart
from components.train_eval.headlines import headlines, part
from lab import wire
from lab.contract import silent
from lab.experiments import train_eval
from lab.experiments.train_eval import Params, run
from lab.experiments.train_eval.schema import STUDIES
from lab.records.modes import ModesResult
from tests.components.kit.test_palette import ciede2000, seen, too_close

THEMES: tuple[Theme, ...] = ("light", "dark")
SETTINGS = [
    *(Params(view=view, study=study) for view, studies in STUDIES.items() for study in studies),
    Params(module="Dropout2d", inputs="normal"),
    Params(module="AlphaDropout", study="convergence", p=0.0, passes=1),
    Params(p=1.0, batch=1, channels=1),
    Params(view="batchnorm", batch=1),
    Params(view="batchnorm", track_running_stats=False, batches=1, channels=1),
    Params(view="scan", model="convnet"),
]


@pytest.fixture(scope="module")
def results() -> list[ModesResult]:
    return [wire.decode(ModesResult, wire.encode(run(params, silent))) for params in SETTINGS]


def charts_of(result: ModesResult, theme: Theme, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the page would draw, without a page around it."""
    monkeypatch.setattr(mode_figures, "theme", lambda: theme)
    monkeypatch.setattr(mode_figures.st, "pills", lambda *args, **kwargs: 0)
    study = mode_figures._drawable(result)
    assert all(len(metric) == 3 and all(metric) for metric in headlines(study, result))
    charts = mode_figures._FIGURES[study](result, "key")
    return charts if isinstance(charts, list) else [charts]


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_every_figure_is_valid_and_described(
    number: int, theme: Theme, results: list[ModesResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    for chart in charts_of(results[number], theme, monkeypatch):
        spec = chart.to_dict()
        assert len(spec["description"]) > 20
        assert spec["height"] >= 100
        assert any(spec.get("datasets", {}).values())


def test_two_runs_are_compared_by_numbers() -> None:
    for params in SETTINGS:
        assert all(isinstance(value, (int, float)) for value in train_eval.headline(run(params, silent)).values())
    assert train_eval.headline(run(Params(view="batchnorm"), silent))["gap of the modes"] > 0


def rows_of(chart: alt.TopLevelMixin) -> list[dict[str, Any]]:
    return [row for rows in chart.to_dict()["datasets"].values() for row in rows]


def test_a_cell_of_the_mask_is_the_output(results: list[ModesResult]) -> None:
    reading = part(results[0].dropout)
    cells = [row for row in rows_of(dropout.mask_chart(reading, "light")) if "fate" in row]
    assert len(cells) == 3 * 16 * 8
    for cell in cells:
        name = {title: name for name, title in dropout.PANELS}[cell["panel"]]
        assert cell["value"] == getattr(reading.grid, name)[cell["row"]][cell["column"]]
        assert (cell["word"] == "×") == (cell["value"] == 0)


def test_a_point_of_the_trace_is_its_channel(results: list[ModesResult]) -> None:
    rows = part(next(r.batchnorm for r in results if r.view == "batchnorm"))
    drawn = rows_of(batchnorm.trace_charts(rows, 3, "light")[0])
    assert [row["value"] for row in drawn if row["series"] == "running"] == [part(row.running_mean)[3] for row in rows]


def test_the_matrix_marks_the_chosen_cell(results: list[ModesResult]) -> None:
    rows = part(next(r.switches for r in results if r.view == "switches"))
    lamps = rows_of(switches.switch_chart(rows, ("train", "no_grad"), "dark"))
    assert {lamp["column"] for lamp in lamps if lamp["marked"]} == {"train()|no_grad"}
    assert len({lamp["column"] for lamp in lamps}) == 6
    on = {(lamp["column"], lamp["row"]) for lamp in lamps if lamp["on"]}
    assert ("eval()|grad", "output requires grad") in on
    assert ("eval()|grad", "Dropout drops") not in on


def test_bars_are_the_gaps(results: list[ModesResult]) -> None:
    modes = part(part(results[-1].scan).modes)
    bars = rows_of(scan.gap_chart(modes, "light"))
    assert {bar["gap"] for bar in bars} == {m.gap for m in modes.modules} | {
        modes.gap_together,
        modes.eval_spread,
    }


def test_a_lamp_is_off_by_word_and_colour() -> None:
    chart = lamp_chart([Lamp("a", "b", False, "no", "0")], theme="light", row_title="row", description="x" * 30)
    assert rows_of(chart)[0] == {"row": "a", "column": "b", "on": False, "text": "no", "detail": "0", "marked": False}


@pytest.mark.parametrize("theme", THEMES)
def test_the_colours_are_told_apart(theme: Theme) -> None:
    colours = MODES[theme]
    assert too_close(colours) == []
    for one, other in (("train", "on"), ("train", "eval"), ("eval", "on")):  # lines of one panel
        for eye in ("normal", "protanope", "deuteranope"):
            assert ciede2000(seen(colours[one], eye), seen(colours[other], eye)) >= 15
    assert too_close({"on": colours["on"], "nearly on": colours["on"]})  # the check is alive
