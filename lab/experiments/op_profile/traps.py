"""Run the two programs of a trap and read what they say."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from lab.contract import NotAvailableError
from lab.experiments.op_profile.trap_programs import HEAD, PROGRAMS
from lab.instruments.profiling.session import only_session
from lab.records.profiling import Reading, Trap

_UNITS = {"_s": "s", "_bytes": "bytes", "_ratio": "ratio"}


def spring(name: str, device: str) -> Trap | None:
    """Try the trap; None for ``none``."""
    if name == "none":
        return None
    programs = PROGRAMS[name]
    with only_session():
        wrong, said = _tried(programs.wrong, device)
        right, _ = _tried(programs.right, device)
    if programs.measures and not wrong:
        raise NotAvailableError(f"{programs.title}: torch {torch.__version__} ends the program with {said}")
    readings = (*_readings(wrong, "as written"), *_readings(right, "repaired"))
    return Trap(name, programs.title, programs.wrong, programs.right, readings, said, programs.explanation)


def _tried(source: str, device: str) -> tuple[dict[str, Any], str]:
    """(``result`` of the program, the error or the warnings that it met)."""
    names: dict[str, Any] = {"device": device}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            exec(HEAD + source, names)
        except Exception as error:  # noqa: BLE001 - the error is what the trap shows
            return names.get("result", {}), f"{type(error).__name__}: {error}"[:500]
    said = dict.fromkeys(f"{w.category.__name__}: {w.message}"[:300] for w in caught)
    return names.get("result", {}), "\n".join(said)


def _readings(result: dict[str, Any], which: Any) -> list[Reading]:
    readings = []
    for name, given in result.items():
        value, why = given if isinstance(given, tuple) else (given, "")
        suffix = next((suffix for suffix in _UNITS if name.endswith(suffix)), "")
        unit: Any = _UNITS.get(suffix, "" if isinstance(value, str) else "count")
        words = name.removesuffix(suffix).replace("_", " ")
        readings.append(
            Reading(words, value if isinstance(value, str) or value is None else float(value), which, unit, why)
        )
    return readings
