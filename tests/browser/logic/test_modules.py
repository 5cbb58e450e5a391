"""Every module is valid as it is written, and every figure's one script is a module that exports a function."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page

from components.kit.modules import script
from tests.browser.logic.conftest import ROOT, Call

SOURCES = sorted((ROOT / "components").rglob("*.js"))
ENTRIES = [path for path in SOURCES if "export default" in path.read_text(encoding="utf-8")]


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_the_browser_imports_the_source(call: Call, path: Path) -> None:
    assert call(named(path), "Object.keys(m).length") > 0


def test_a_name_that_is_not_exported_is_noticed(call: Call) -> None:
    with pytest.raises(Exception, match="does not provide an export"):
        call("tests/browser/logic/wrong_import.js", "m")


def test_no_figure_is_left_out() -> None:
    assert len(ENTRIES) >= 7


@pytest.mark.parametrize("path", ENTRIES, ids=named)
def test_the_one_script_exports_what_the_source_exports(module_page: Page, call: Call, path: Path) -> None:
    kinds = module_page.evaluate(
        """async text => {
          const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }))
          const made = await import(url)
          URL.revokeObjectURL(url)
          return [Object.keys(made), typeof made.default]
        }""",
        script(path),
    )
    assert kinds == [["default"], "function"]
    assert call(named(path), "typeof m.default") == "function"
