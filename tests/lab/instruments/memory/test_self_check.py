"""The self-check holds on this torch, and says what is wrong when an assumption breaks."""

from __future__ import annotations

import pytest

from lab.contract import NotAvailableError
from lab.instruments.memory import hooks
from lab.instruments.memory import self_check as memory_check


@pytest.mark.parametrize("name", memory_check.SELF_TESTS)
def test_the_check_holds(name):
    memory_check.SELF_TESTS[name]()


def test_a_broken_assumption_is_said_instead_of_a_number(monkeypatch):
    monkeypatch.setattr(hooks.Hooks, "_gradient_is_there", lambda self, parameter: None)
    memory_check._broken.cache_clear()
    with pytest.raises(NotAvailableError, match="not available with torch"):
        memory_check.require_working()
    memory_check._broken.cache_clear()
