"""A result with its indexes, and the words that findings share."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from lab.contract import Edit, Site
from lab.experiments.autograd_graph.schema import Result
from lab.program.rewrite import Source
from lab.quantities import number_text
from lab.records.graph import Node, Pass, Plain, Saved, Step
from lab.records.operations import Made, Refused, Written
from lab.records.program import Ended


@dataclass(frozen=True)
class Explained:
    """Why something failed or surprises, before it becomes a finding or a fault."""

    text: str
    repair: str = ""
    sites: tuple[Site, ...] = ()
    evidence: dict[str, Any] = field(default_factory=dict)
    edits: tuple[Edit, ...] = ()


class Record:
    """A result, looked at from several sides."""

    def __init__(self, result: Result) -> None:
        self.result = result
        self.source = Source(result.code)
        self.lines = self.source.lines

    @cached_property
    def nodes(self) -> dict[int, Node]:
        return {node.id: node for node in self.all_nodes}

    @cached_property
    def all_nodes(self) -> list[Node]:
        return [*self.result.nodes, *(node for run in self.result.passes for node in run.nodes)]

    @cached_property
    def made(self) -> dict[int, Made]:
        return {made.state: made for made in self.result.made}

    @cached_property
    def parents(self) -> dict[int, list[int]]:
        """By node: the nodes that it hands gradients to."""
        found: dict[int, list[int]] = {}
        for edges in (self.result.edges, *(run.edges for run in self.result.passes)):
            for edge in edges:
                found.setdefault(edge.target, []).append(edge.source)
        return found

    @property
    def tree(self) -> ast.AST | None:
        return self.source.tree

    def text(self, line: int | None) -> str:
        """The program's text on ``line``, empty when there is none."""
        return self.lines[line - 1] if line and 0 < line <= len(self.lines) else ""

    def own_passes(self) -> list[tuple[Pass, tuple[Step, ...]]]:
        """Passes that the program itself asked for, or that the lab ran for it; not those inside a library function."""
        pairs = zip(self.result.passes, self.result.backward, strict=True)
        return [(run, steps) for run, steps in pairs if not run.caller or run.by == "lab"]

    def behind(self, states: list[int] | tuple[int, ...]) -> Iterator[Made]:
        """What these contents were made from, themselves first, nearest first."""
        known, todo = set(), list(states)
        for state in todo:  # grows while it is walked
            made = self.made.get(state)
            if made is not None and state not in known:
                known.add(state)
                yield made
                todo.extend(made.inputs)

    def statement(self, line: int | None) -> ast.stmt | None:
        """The simple statement on a line, when there is one."""
        return self.source.statement(line)

    def inserted(self, line: int | None, new: str) -> tuple[Edit, ...]:
        """``new`` before the statement of the line."""
        statement = self.statement(line)
        return self.source.before(statement, new) if statement else ()

    def changed(self, line: int | None, old: str, new: str) -> tuple[Edit, ...]:
        """``old``, which the line holds once, replaced."""
        text = self.text(line)
        return (Edit(line, text, text.replace(old, new)),) if line and text.count(old) == 1 else ()

    def refused(self, ended: Ended) -> Refused | None:
        """The operation that torch refused with this error."""
        return next(
            (
                r
                for r in reversed(self.result.refused)
                if r.message[:100] == ended.message[:100] and (not ended.line or r.line == ended.line)
            ),
            None,
        )

    def write_of(self, saved: Saved) -> Written | None:
        """The first write into this saved tensor after it was saved."""
        if saved.saved_version is None:
            return None
        return next(
            (
                w
                for w in self.result.written
                if w.storage == saved.storage and not w.through_data and w.version and w.version > saved.saved_version
            ),
            None,
        )


def on_line(line: int | None) -> str:
    return f" on line {line}" if line else ""


def of_line(line: int | None) -> str:
    return f" of line {line}" if line else ""


def site(line: int | None, role: str, tensor: str = "", before: Any = None, after: Any = None) -> tuple[Site, ...]:
    """One site, none when the line is not known."""
    return (Site(line, role, tensor, before, after),) if line else ()


def tensor_words(made: Made | None) -> str:
    """ "y", else "sigmoid of line 3"."""
    if made is None:
        return "a tensor"
    return made.name or (f"{bare(made.operation)}{of_line(made.line)}" if made.operation else "a tensor")


def bare(operation: str) -> str:
    """ "__getitem__" -> "indexing"."""
    return _BARE.get(operation, operation.strip("_") if operation.startswith("__") else operation)


_BARE = {
    "__getitem__": "indexing",
    "__get__": "data",
    "rsub": "sub",
    "__rsub__": "sub",
    "__rpow__": "pow",
    "true_divide": "div",
    "__rtruediv__": "div",
    "scaled_dot_product_attention": "attention",
    "multi_head_attention_forward": "attention",
}


def module_words(module: str | None) -> str:
    """ " in module 1 (Sigmoid)", or empty."""
    if not module:
        return ""
    return f" in {module.strip('()')}" if module.startswith("(") else f" in module {module}"


def numbers(value: Plain) -> Iterator[float]:
    """Every number in a value; of a summary its extremes."""
    if isinstance(value, list):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, dict):
        yield from (float(value[key]) for key in ("min", "max", "norm") if key in value)
    elif isinstance(value, (int, float)):
        yield float(value)


def flat(value: Plain) -> list[float] | None:
    """The elements of a value in order; None for a summary or nothing."""
    if value is None or isinstance(value, (dict, str)):
        return None
    if not isinstance(value, list):
        return [float(value)]
    found: list[float] = []
    for item in value:
        part = flat(item)
        if part is None:
            return None
        found += part
    return found


def finite(value: Plain) -> bool:
    return all(map(math.isfinite, numbers(value)))


def is_zero(value: Plain) -> bool:
    found = list(numbers(value))
    return bool(found) and not any(found)


def words(value: Plain) -> str:
    """A gradient in a sentence: a number, "(0.1, −2)", or its size."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return (
            f"a tensor {value.get('shape')} of norm {number_text(float(value['norm']))}"
            if "norm" in value
            else "a tensor"
        )
    if isinstance(value, list):
        elements = flat(value)
        if elements is not None and len(elements) > 8 and any(isinstance(v, list) for v in value):
            return f"a tensor {_shape(value)} of norm {number_text(math.sqrt(sum(v * v for v in elements)))}"
        shown = [words(item) for item in value[:4]]
        return f"({', '.join(shown)}{', …' if len(value) > 4 else ''})"
    return number_text(float(value)) if isinstance(value, (int, float)) else str(value)


def _shape(value: Plain) -> list[int]:
    return [len(value), *(_shape(value[0]) if value else [])] if isinstance(value, list) else []


def short(message: str) -> str:
    return message if len(message) < 300 else message[:300] + "…"


def named_index(name: str, index: tuple[int, ...]) -> str:
    """ "x[0, 2]", or "x" for a scalar."""
    return f"{name}[{', '.join(map(str, index))}]" if index else name
