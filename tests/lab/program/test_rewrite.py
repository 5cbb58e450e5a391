"""Edits from the syntax tree: comments, indentation, calls over several lines and other statements of a line stay."""

from __future__ import annotations

import ast

import pytest

from lab.contract import apply_edits
from lab.program.rewrite import Source


@pytest.mark.parametrize(
    ("code", "line", "new"),
    [
        ("y += 1  # one\n", 1, "y = y + 1  # one\n"),
        ("y *= 2 + x\n", 1, "y = y * (2 + x)\n"),
        ("y *= (2 + x)\n", 1, "y = y * (2 + x)\n"),
        ("a = 1; y -= x; b = 2\n", 1, "a = 1; y = y - x; b = 2\n"),
        ("y += (x *\n      2)  # two\n", 1, "y = y + (x *\n      2)  # two\n"),
        ("y.add_(\n    x,  # in\n)\n", 1, "y = y.add(\n    x,  # in\n)\n"),
        ("if 1:\n\ty.mul_(2)\n", 2, "if 1:\n\ty = y.mul(2)\n"),
        ("F.relu_(y)  # act\n", 1, "y = F.relu(y)  # act\n"),
        ("y = y.add_(1)\n", 1, "y = y.add(1)\n"),
        ("a = 'größe'; y //= 2\n", 1, "a = 'größe'; y = y // 2\n"),
        ("z = y.add_(1)\n", 1, None),
        ("y[0] += 1\n", 1, None),
        ("self.y += 1\n", 1, "self.y = self.y + 1\n"),
    ],
)
def test_out_of_place(code: str, line: int, new: str | None) -> None:
    source = Source(code)
    statement = source.statement(line, lambda s: "y" in ast.unparse(s))
    assert apply_edits(code, source.out_of_place(statement)[1]) == new


@pytest.mark.parametrize(
    ("code", "new"),
    [
        ("w -= g  # step|", "with torch.no_grad():|    w -= g  # step|"),
        (
            "for p in w:|    p.sub_(|        g|    )|",
            "for p in w:|    with torch.no_grad():|        p.sub_(|            g|        )|",
        ),
        ("a = 1; w -= g|", None),
        ("if 1: w -= g|", None),
    ],
)
def test_under_a_header(code: str, new: str | None) -> None:
    code = code.replace("|", "\n")
    source = Source(code)
    statement = source.statement(2 if "for" in code else 1, lambda s: not isinstance(s, ast.Assign))
    assert statement
    assert apply_edits(code, source.under(statement, "with torch.no_grad():")) == (new and new.replace("|", "\n"))


@pytest.mark.parametrize(
    ("code", "new"),
    [
        ("h = f(h)  # next", "h = h.detach()\nh = f(h)  # next"),
        ("for t in x: h = f(h)", "for t in x: h = h.detach(); h = f(h)"),
        ("a = 1; h = f(h)", "a = 1; h = h.detach(); h = f(h)"),
    ],
)
def test_before_a_statement(code: str, new: str) -> None:
    source = Source(code)
    statement = source.statement(1, lambda s: "f(h)" in ast.unparse(s))
    assert statement
    assert apply_edits(code, source.before(statement, "h = h.detach()")) == new


def test_a_statement_is_taken_out_of_a_block_that_holds_others() -> None:
    code = "a.backward()  # first\nif 1:\n    b.backward()\n"
    source = Source(code)
    first, only = source.statement(1), source.statement(3)
    assert first
    assert only
    assert apply_edits(code, source.removed(first)) == "if 1:\n    b.backward()\n"
    assert source.removed(only) == ()
    assert not source.are_beside(first, only)


def test_what_cannot_be_parsed_has_no_statements() -> None:
    assert Source("x = (\n").statement(1) is None
