"""Benchmarks are not timed in tests; that each of them can be started is."""

import importlib
import pkgutil

import pytest

import benchmarks

MODULES = [
    m.name for m in pkgutil.iter_modules(benchmarks.__path__) if not m.name.startswith("_") and m.name != "turns"
]


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_can_be_started(name: str) -> None:
    assert callable(importlib.import_module(f"benchmarks.{name}").measure)


def test_there_are_some() -> None:
    assert {"autograd_graph", "browser"} <= set(MODULES)
