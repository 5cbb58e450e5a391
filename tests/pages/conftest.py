"""The pages of the real application, on the real executor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from components.frame.execution import executor

HOME = Path(__file__).resolve().parents[2] / "lab/Home.py"


@pytest.fixture(scope="session", autouse=True)
def processes_end() -> Iterator[None]:
    """The workers and the zygote that the pages started end with the tests."""
    yield
    executor().close()
    executor.clear()
