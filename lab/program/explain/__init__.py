"""From an error of torch or Python to what it means and what to change.

One table for every page, a file for each kind of error: the first row that fits counts. A page puts rows of its own in
front, for what only it knows. Rows say what the message itself does not. Causes that only the record of a run shows
(the line that overwrote, freed or cut) are ``lab.experiments.autograd_graph.faults``, for every page as well.

autograd   backward, leaves, custom functions, hooks
training   modules, state dicts, optimizers, scalers, checkpoints, data loaders
checkpoints files that torch saves and loads
tensors    one operation: shapes, dtypes, devices, indices
python     Python itself, and what a program may do here
"""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Sequence
from typing import Any

import torch

from lab.contract import Fault
from lab.instruments.describing.modules import failing_module
from lab.program.explain.autograd import AUTOGRAD
from lab.program.explain.checkpoints import CHECKPOINTS
from lab.program.explain.python import EVENT_LOOP, NO_PROGRAM, PROCESS, PYTHON, WORKERS, exit_message
from lab.program.explain.row import Row
from lab.program.explain.tensors import MISSING_KERNEL, TENSORS
from lab.program.explain.training import TRAINING
from lab.program.lines import program_line
from lab.program.source import Refused
from lab.records.program import Ended

__all__ = [
    "NO_PROGRAM",
    "ROWS",
    "Row",
    "end_of",
    "explain_fault",
    "explanation_of",
    "is_missing_kernel",
    "is_out_of_memory",
    "message_of",
    "row_of",
]

ROWS = (*AUTOGRAD, *CHECKPOINTS, *TRAINING, *TENSORS, *PYTHON)


def explain_fault(cause: Ended | BaseException, *, rows: Sequence[Row] = (), record: Any = None) -> Fault:
    """The fault with its explanation, where there is one. ``rows`` come before the common ones."""
    ended = end_of(cause) if isinstance(cause, BaseException) else cause
    explanation, repair = explanation_of(ended, rows=rows, record=record)
    if ended.module:
        explanation = f"It was raised in {ended.module}. {explanation}".rstrip()
    if ended.meant:
        explanation = f"{explanation} Did you mean {ended.meant}?".strip()
    return Fault(ended.type, ended.message, ended.line, explanation, repair)


def explanation_of(ended: Ended, *, rows: Sequence[Row] = (), record: Any = None) -> tuple[str, str]:
    """(explanation, repair); empty texts when the message says it all."""
    row = row_of(ended, rows=rows)
    return row.texts(ended, record) if row else ("", "")


def row_of(ended: Ended, *, rows: Sequence[Row] = ()) -> Row | None:
    """The first row that fits."""
    head = f"{ended.type}: {ended.message}"
    return next((row for row in (*rows, *ROWS) if re.search(row.pattern, head, re.DOTALL)), None)


def end_of(error: BaseException) -> Ended:
    """What the program raised, by name, message and line of the program. Never raises."""
    name = "MemoryLimit" if is_out_of_memory(error) else type(error).__name__
    if isinstance(error, Refused) and len(error.args) == 2:
        return Ended("Refused", str(error.args[0]), error.args[1])
    line = getattr(error, "line", None)  # an OwnModelError knows where
    message = exit_message(error) if isinstance(error, SystemExit) else message_of(error)
    if isinstance(error, (OSError, ImportError)):
        message += next((f" ({what})" for part, what in _ASKED if _passed_through(error.__traceback__, part)), "")
    line = line if isinstance(line, int) else program_line(error.__traceback__)
    return Ended(name, message, line, failing_module(error.__traceback__), _meant(error))


def _meant(error: BaseException) -> str:
    """The name nearest to the one that was not found. Looks into nothing that the program defines."""
    name, known = getattr(error, "name", None), []
    if isinstance(error, AttributeError) and error.obj is not None:
        owner = error.obj if isinstance(error.obj, types.ModuleType) else type(error.obj)
        is_own = getattr(owner, "__module__", "") == "__main__"
        known = [] if is_own else dir(owner)
    elif isinstance(error, NameError) and (last := _last_frame(error.__traceback__)):
        known = [*last.f_locals, *last.f_globals]
    found = difflib.get_close_matches(name, [k for k in known if type(k) is str], 1, 0.75) if type(name) is str else []
    return found[0] if found else ""


def _last_frame(trace: types.TracebackType | None) -> types.FrameType | None:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame if trace else None


_ASKED = (
    ("/torch/utils/data/dataloader.py", WORKERS),
    ("/multiprocessing/", PROCESS),
    ("/concurrent/futures/process.py", PROCESS),
    ("/asyncio/", EVENT_LOOP),
)
"""Who asked for what the operating system refused."""


def _passed_through(trace: types.TracebackType | None, part: str) -> bool:
    while trace is not None and part not in trace.tb_frame.f_code.co_filename:
        trace = trace.tb_next
    return trace is not None


_ANSI = re.compile(r"\x1b\[[0-9;]*m")
"""What makes a terminal write bold."""


def message_of(error: BaseException) -> str:
    """At most 4000 characters of its text. Never raises."""
    try:
        return _ANSI.sub("", str(error))[:4000]
    except Exception:  # noqa: BLE001 - an exception class of the program may fail to describe itself
        return "(the exception has no text)"


def is_out_of_memory(error: BaseException) -> bool:
    """Of Python, of a device, or of torch on the CPU."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in message_of(error)


def is_missing_kernel(error: BaseException) -> bool:
    """The library has no kernel for this operation here: a fact of the processor, whoever wrote the model."""
    return re.search(MISSING_KERNEL, message_of(error)) is not None
