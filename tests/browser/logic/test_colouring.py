"""Python in colours: no character lost, strings and comments told from words."""

from __future__ import annotations

import pytest

from tests.browser.logic.conftest import Call

EDITOR = "components/frame/code_editor/editor.js"
PROGRAMS = [
    'x = f"a{1}" # not "text"\n@deco.rated\ndef f(a, *, b=0x1F): return \'it\\\'s\' + """two\nlines"""\n',
    "unfinished = 'open\nnext = 1.5e-3j if True else None\n",
    "α = torch.ones(3)\n'''never closed\nat all",
    "elf = format; match = classy\n",
]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    ("path", "name"),
    [
        (EDITOR, "lines"),
        ("components/kit/colouring.js", "colouredLines"),
    ],
)
def test_colouring_keeps_every_character(call: Call, path: str, name: str, program: str) -> None:
    rows = call(path, f"m.{name}(v[0])", program)
    assert "\n".join("".join(piece for _, piece in row) for row in rows) == program


def kinds(rows: list, kind: str) -> list[str]:
    return [piece for row in rows for name, piece in row if name == kind]


def test_the_editor_tells_words_from_strings_and_comments(call: Call) -> None:
    rows = call(EDITOR, "m.lines(v[0])", PROGRAMS[0])
    assert kinds(rows, "string") == ['f"a{1}"', "'it\\'s'", '"""two', 'lines"""']
    assert kinds(rows, "comment") == ['# not "text"']
    assert kinds(rows, "decorator") == ["@deco.rated"]
    assert kinds(rows, "keyword") == ["def", "return"]
    assert kinds(rows, "call") == ["f"]
    assert kinds(rows, "number") == ["0x1F"]
    other = call(EDITOR, "m.lines(v[0])", PROGRAMS[3])
    assert kinds(other, "keyword") == ["match"]
