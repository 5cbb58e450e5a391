"""What a visitor's program said and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lab.contract import Edit


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
    meant: str = ""
    """A name that nearly is the one that was not found."""


@dataclass(frozen=True)
class Repair:
    """An edit of the program that was run."""

    edits: tuple[Edit, ...]
    accepted: bool
    """It ended clean, and the gradients of its passes agree with differences of its own forward in float64."""
    why_not: str = ""
    compared: int = 0
    """Passes whose gradients were compared."""
    gradients: dict[str, Any] = field(default_factory=dict)
    """``.grad`` of its leaves at the end, by name."""
    loss: Any = None
    """Where the last pass started, as plain data."""
