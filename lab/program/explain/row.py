"""One line of the tables: which errors it explains, and in which words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from lab.records.program import Ended


@dataclass(frozen=True)
class Row:
    """Explains every error in whose "Type: message" the pattern is found."""

    pattern: str
    explanation: str
    repair: str = ""
    deeper: Callable[[Ended, Any], tuple[str, str] | None] | None = None
    """From the error and the page's record of the run: (explanation, repair), or None where there is nothing more to say."""

    about: Literal["", "shape", "dtype", "numbers", "device"] = ""
    """What of the operands belongs to the explanation, where a record holds them."""

    def texts(self, ended: Ended, record: Any) -> tuple[str, str]:
        return (self.deeper(ended, record) if self.deeper else None) or (self.explanation, self.repair)
