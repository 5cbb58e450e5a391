"""One script from modules: dependency order, each module once, names kept apart, other forms refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.kit.modules import script


def written(folder: Path, **modules: str) -> Path:
    for name, source in modules.items():
        (folder / f"{name}.js").write_text(source, encoding="utf-8")
    return folder / "main.js"


def test_a_module_comes_once_and_behind_what_it_imports(tmp_path: Path) -> None:
    entry = written(
        tmp_path,
        main='import { b } from "./left.js"\nimport {\n  c,\n} from "./right.js"\nexport default () => b + c',
        left='import { a } from "./deep.js"\nexport const b = a',
        right='import { a as other } from "./deep.js"\nexport const c = other',
        deep="export const a = 1",
    )
    text = script(entry)
    places = [text.index(f'// "{name}.js"') for name in ("deep", "left", "right", "main")]
    assert places == sorted(places)
    assert text.count("const a = 1") == 1
    assert "const { a: other } = module0" in text
    assert "import" not in text
    assert text.count("export ") == 1
    assert text.rstrip().endswith("export default module3.default")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('import * as all from "./deep.js"', "not a form"),
        ('import deep from "./deep.js"', "not a form"),
        ('import "./deep.js"', "not a form"),
        ('export { a } from "./deep.js"', "not a form"),
        ("export let a = 1", "not a form"),
        ('const a = await import("./deep.js")', "not a form"),
        ('import { a } from "https://example.com/a.js"', "not a form"),
        ('import { a } from "./main.js"\nexport const b = a', "main.js → main.js"),
    ],
)
def test_what_cannot_be_joined_is_refused(tmp_path: Path, source: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        script(written(tmp_path, main=source, deep="export const a = 1"))


def test_a_circle_of_modules_is_named(tmp_path: Path) -> None:
    entry = written(
        tmp_path,
        main='import { a } from "./left.js"\nexport const b = a',
        left='import { b } from "./main.js"\nexport const a = b',
    )
    with pytest.raises(ValueError, match=r"main\.js → left\.js → main\.js"):
        script(entry)
