"""Programs run in this process, as in a warm worker: one thread, and what torch imports late is there."""

from __future__ import annotations

import pytest
import torch
import torch._dynamo  # checkpoint and optimizers import it, inside the time limit of a program


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)
