"""The floors of the house: who may import whom, names, sizes."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(path for folder in ("lab", "components", "pages") for path in (ROOT / folder).rglob("*.py"))
OURS = ("lab", "components", "pages", "tests", "benchmarks")
DRAWING = ("streamlit", "altair", "pandas")
PLAIN = ("lab.records", "lab.wire", "lab.quantities")
"""What any floor may import: data and its words."""

# Floor -> our modules it may import (prefixes) and libraries it may not. The first floor that fits a path counts.
FLOORS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("lab/__init__.py", (), ("torch", *DRAWING)),
    ("lab/Home.py", ("components",), ("torch", "altair")),
    ("lab/__main__.py", ("lab",), DRAWING),
    ("lab/check.py", ("lab",), DRAWING),
    ("lab/contract.py", (), ("torch", *DRAWING)),
    ("lab/wire.py", (), ("torch", *DRAWING)),
    ("lab/quantities.py", (), ("torch", *DRAWING)),
    ("lab/records/", ("lab.records", "lab.contract"), ("torch", *DRAWING)),
    ("lab/torch_private/", ("lab.torch_private",), DRAWING),
    ("lab/instruments/", ("lab.records", "lab.torch_private", "lab.instruments"), DRAWING),
    (
        "lab/program/",
        ("lab.contract", "lab.quantities", "lab.records", "lab.torch_private", "lab.instruments", "lab.program"),
        DRAWING,
    ),
    (
        "lab/workloads/",
        ("lab.records", "lab.torch_private", "lab.instruments", "lab.program", "lab.workloads"),
        DRAWING,
    ),
    (
        "lab/experiments/",
        (
            *("lab.contract", "lab.quantities", "lab.records", "lab.torch_private"),
            *("lab.instruments", "lab.program", "lab.workloads", "lab.experiments.<self>"),
        ),
        DRAWING,
    ),
    ("lab/execution/", ("lab.contract", "lab.wire", "lab.execution"), ("pickle", *DRAWING)),
    ("components/navigation.py", (), ("torch", "altair", "pandas")),
    ("components/kit/", ("components.kit", *PLAIN), ("torch",)),
    (
        "components/frame/",
        (
            "components.frame",
            "components.kit",
            "components.navigation",
            "lab.contract",
            "lab.execution.executor",
            *PLAIN,
        ),
        ("torch",),
    ),
    (
        "components/<page>/charts/",
        ("components.kit.palette", "components.<page>.charts", *PLAIN),
        ("streamlit", "torch"),
    ),
    (
        "components/<page>/",
        ("components.<page>", "components.frame", "components.kit", "lab.contract", *PLAIN),
        ("torch",),
    ),
    ("components/", (), ("torch",)),
    ("pages/", ("components", "lab.experiments"), ("torch", "altair")),
)
PRIVATE_TORCH = re.compile(r"\._raw_saved_|\._saved_|torch\._C\b|\b_C\._|\b_unsafe_preserve|\b_get_graph_exec_group\b")
PRIVATE_TORCH_HOME = "lab/torch_private/"


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(tree: ast.AST) -> Iterator[str]:
    """Dotted names that a module imports, at any depth. ``from a import b`` counts as a and as a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            assert node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def wrong_imports(place: str, source: str) -> list[str]:
    """Imports of the file ``place`` that its floor does not allow."""
    parts = place.split("/")
    page = parts[1] if len(parts) > 2 else ""
    own = parts[2].removesuffix(".py") if place.startswith("lab/experiments/") else ""
    _, ours, banned = next(entry for entry in FLOORS if place.startswith(entry[0].replace("<page>", page)))
    allowed = [prefix.replace("<self>", own).replace("<page>", page) for prefix in ours]
    wrong = []
    for name in imports(ast.parse(source)):
        top = name.split(".")[0]
        if top in OURS:
            if not any(name == prefix or name.startswith(f"{prefix}.") for prefix in allowed):
                wrong.append(name)
        elif top in banned:
            wrong.append(name)
    return wrong


def page_faults(source: str) -> list[str]:
    """What a page must not contain."""
    forbidden = (ast.Try, ast.TryStar, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [type(node).__name__ for node in ast.walk(ast.parse(source)) if isinstance(node, forbidden)]
    return found + [word for word in ("cache_data", "cache_resource", "threading", "Thread(") if word in source]


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_imports_stay_on_their_floor(path):
    assert not wrong_imports(relative(path), path.read_text())


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("pages/x.py", "import torch.nn"),
        ("pages/x.py", "from lab.execution.executor import Executor"),
        ("components/frame/x.py", "from lab.experiments import autograd_graph"),
        ("components/frame/x.py", "from lab.execution.workers.worker import main"),
        ("components/frame/x.py", "from components.autograd_graph import tables"),
        ("components/kit/x.py", "from components.frame import controls"),
        ("components/op_profile/x.py", "from components.memory_timeline import figures"),
        ("components/op_profile/charts/x.py", "import streamlit as st"),
        ("lab/records/x.py", "import torch"),
        ("lab/instruments/graph/x.py", "from lab.program.run import run_program"),
        ("lab/experiments/a/x.py", "from lab.experiments.b import run"),
        ("lab/instruments/x.py", "from lab.contract import knob"),
        ("lab/execution/x.py", "def f():\n    import streamlit"),
        ("lab/execution/x.py", "import pickle"),
        ("lab/contract.py", "import torch"),
    ],
)
def test_a_planted_import_is_found(place, line):
    assert wrong_imports(place, line)


@pytest.mark.parametrize(
    "module", ["lab.execution.executor", "lab.contract", "lab.wire", "components.frame.experiment"]
)
def test_the_web_process_can_be_imported_without_torch(module):
    probe = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize("path", [p for p in SOURCES if relative(p).startswith("lab/")], ids=relative)
def test_no_module_of_lab_bears_a_standard_library_name(path):
    assert path.stem in ("__init__", "__main__") or path.stem not in sys.stdlib_module_names


def test_streamlit_does_not_find_pages_by_itself():
    assert not (ROOT / "lab/pages").exists()


@pytest.mark.parametrize("path", [p for p in SOURCES if relative(p).startswith("pages/")], ids=relative)
def test_a_page_is_short_and_defines_nothing(path):
    source = path.read_text()
    assert len(source.splitlines()) <= 80
    assert not page_faults(source)


@pytest.mark.parametrize(
    "planted", ["try:\n    f()\nexcept E:\n    g()", "class A: ...", "import threading", "def f(): ..."]
)
def test_a_planted_page_fault_is_found(planted):
    assert page_faults(planted)


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_private_names_of_torch_live_in_one_module(path):
    if not relative(path).startswith(PRIVATE_TORCH_HOME):
        assert not PRIVATE_TORCH.findall(_code_without_strings(path.read_text()))


def test_a_planted_private_name_is_found():
    assert PRIVATE_TORCH.findall(_code_without_strings("x = node._raw_saved_self.data"))
    assert not PRIVATE_TORCH.findall(_code_without_strings('"""Reads ``_raw_saved_x``."""'))


def _code_without_strings(source: str) -> str:
    """The statements, without comments and texts."""

    class Emptied(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.Constant:
            return ast.Constant("") if isinstance(node.value, str) else node

        def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.Constant:
            return ast.Constant("")

    return ast.unparse(Emptied().visit(ast.parse(source)))
