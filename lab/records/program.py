"""What a visitor's program said and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Warned:
    """A warning that the program caused."""

    text: str
    line: int | None
    """Line of the program, from 1."""


@dataclass(frozen=True, kw_only=True)
class Said:
    """What came out of the program. The Result of every experiment that takes one inherits these fields."""

    printed: str = ""
    """Standard output and standard error, in the order of writing."""
    echo: str = ""
    """``repr`` of the last line when that is an expression, as in a notebook."""
    warned: tuple[Warned, ...] = ()

    def fields(self) -> dict[str, Any]:
        """The fields by name, to be handed on from one record to another."""
        return {"printed": self.printed, "echo": self.echo, "warned": self.warned}


SILENT = Said()


@dataclass(frozen=True)
class Ended:
    """Why a program ended early."""

    type: str
    """Class name of the exception, or TimeLimit, MemoryLimit, OutputLimit, Refused."""
    message: str
    line: int | None
    module: str = ""
    """In which module it was raised and what that got, in words; empty outside of modules."""
