"""The floors of the house: who may import whom, names, sizes."""

from __future__ import annotations

import ast
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
    ("lab/torch_private/", ("lab.contract", "lab.torch_private"), DRAWING),
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
PRIVATE_TORCH_HOME = "lab/torch_private/"
OURS_OR_PYTHONS = {
    *("sys._getframe", "sys._current_frames", "os._exit", "_make"),
    *("batchnorm_freezing._step", "batchnorm_freezing._backward"),  # their text is part of a script
    "torch._dynamo",  # imported ahead of its first use, where there is one; nothing of it is read
}
"""What begins with an underscore and is no attribute of ``self`` or ``cls``, and may stand where it stands."""


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


def results_as_dicts(place: str, source: str) -> list[str]:
    """Where a component or page turns a result into dicts. Only an interactive figure encodes what it draws."""
    tree = ast.parse(source)
    found = [f"line {n.lineno}: .wire" for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == "wire"]
    encoders = [name for name in imports(tree) if name.startswith("lab.wire") and name != "lab.wire.collector_off"]
    draws = place.endswith("/scene.py") or "components_v2.component(" in source
    return found + ([] if draws else encoders)


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


@pytest.mark.parametrize("path", [p for p in SOURCES if not relative(p).startswith("lab/")], ids=relative)
def test_figures_take_records(path):
    assert not results_as_dicts(relative(path), path.read_text())


@pytest.mark.parametrize(
    "planted", ["draw(side.wire)", "from lab.wire import encode", "from lab import wire", "import lab.wire"]
)
def test_a_planted_dict_of_a_result_is_found(planted):
    assert results_as_dicts("components/op_profile/x.py", planted)


@pytest.mark.parametrize(
    "module", ["lab.execution.executor", "lab.contract", "lab.wire", "components.frame.experiment"]
)
def test_the_web_process_can_be_imported_without_torch(module):
    probe = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize("path", [p for p in SOURCES if relative(p).startswith("lab/")], ids=relative)
def test_no_module_of_lab_bears_a_standard_library_name(path):
    assert path.stem in ("__init__", "__main__") or path.stem not in sys.stdlib_module_names


def test_no_name_is_a_module_and_a_package_at_once():
    assert not [
        path
        for folder in ("lab", "components", "pages")
        for path in (ROOT / folder).rglob("*.py")
        if path.with_suffix("").is_dir()
    ]


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


def is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.endswith("__") for part in name.split("."))


def private_names(source: str) -> list[str]:
    """Names with an underscore that are fetched from something else than self or cls, imported, or named in a text."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(attr=name) if is_private(name):
                found.append(ast.unparse(node))
            case ast.Import() | ast.ImportFrom():
                found += [name for name in imports(node) if is_private(name)]
            case ast.Call(
                func=ast.Name(id="getattr" | "hasattr" | "setattr"), args=[_, ast.Constant(value=str(name)), *_]
            ):
                found += [name] if is_private(name) else []
            case ast.Call(args=[ast.Constant(value=str(name)), *_]) if "import_module" in ast.unparse(node.func):
                found += [name] if is_private(name) else []
    return [name for name in found if name not in OURS_OR_PYTHONS]


@pytest.mark.parametrize("path", [p for p in SOURCES if relative(p).startswith("lab/")], ids=relative)
def test_private_names_of_torch_live_in_one_module(path):
    if not relative(path).startswith(PRIVATE_TORCH_HOME):
        assert not private_names(path.read_text())


@pytest.mark.parametrize(
    "planted",
    [
        "x = node._raw_saved_self.data",
        "x = node.saved[0]._version",
        "x = tensor._base if tensor._is_view() else None",
        "x = torch._C._current_graph_task_id()",
        "x = tensor.untyped_storage()._cdata",
        "x = model._modules['a']",
        "x = func._can_decompose()",
        "x = torch.ops.aten._to_copy.default",
        "x = getattr(tensor, '_version')",
        "x = self.node._saved_self",
        "from torch._subclasses.fake_tensor import FakeTensor",
        "from torch.autograd import _engine_run_backward",
        "import torch._dynamo.config",
        "importlib.import_module('torch._inductor')",
        "from torch.utils import _pytree as tree",
    ],
)
def test_a_planted_private_name_is_found(planted):
    assert private_names(planted)


def test_what_is_ours_is_no_private_name_of_torch():
    assert not private_names('self._x = cls._y = a.__name__; sys._getframe(1); """Reads ``_raw_saved_x``."""')
