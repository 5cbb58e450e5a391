"""The step to profile: one of the lab's models, or the model that a visitor's program defines."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from lab.contract import Fault
from lab.experiments.op_profile.schema import Params
from lab.program import run as program
from lab.program.own_model import EXAMPLE, OwnModelError, own_model
from lab.records.program import SILENT, Said
from lab.workloads import models
from lab.workloads.profiled_step import LoadedStep, Loading, OwnStep, Placement, Step
from lab.workloads.training_step import Recipe

FILES = (program.FILE, models.__file__)
"""Whose lines are shown: the program's, and those of the lab's models."""


@dataclass(frozen=True)
class Subject:
    """A step and what is said about it."""

    step: Step
    notes: tuple[str, ...] = ()
    said: Said = SILENT


@dataclass(frozen=True)
class NoStep:
    """A program that gives no step, and why."""

    fault: Fault
    said: Said = SILENT


def subject(params: Params) -> Subject | NoStep:
    """Build it. A program that gives no step is data."""
    recipe = Recipe(
        optimizer=params.optimizer,  # pyright: ignore[reportArgumentType] - the knob's choices are the recipe's
        optimizer_impl=params.optimizer_impl,  # pyright: ignore[reportArgumentType]
        precision=params.precision,  # pyright: ignore[reportArgumentType]
        set_to_none=params.set_to_none,
    )
    if params.model == "own":
        return _own_subject(params, recipe)
    task = models.build(params.model, layers=params.layers, width=params.width, batch=params.batch, seq=params.seq)
    loading = Loading(params.batch, params.workers, params.pin_memory, params.decode_us)
    placement = Placement(params.device, params.compile, params.channels_last)
    return Subject(LoadedStep(task, recipe, placement, loading), tuple(_without_effect(params)))


def _without_effect(params: Params) -> list[str]:
    notes = []
    if params.pin_memory and params.device == "cpu":
        notes.append(
            "pin_memory has no effect: pinned memory speeds up copies to a CUDA device, and this step has none."
        )
    if params.channels_last and params.model != "cnn":
        notes.append(f"channels_last has no effect: it orders the memory of images, and {params.model} has none.")
    if params.optimizer_impl == "foreach" and params.device == "cpu":
        notes.append("foreach on a CPU launches no fewer kernels: it loops inside one call.")
    return notes


def _own_subject(params: Params, recipe: Recipe) -> Subject | NoStep:
    if not params.code.strip():
        return NoStep(
            Fault(
                "OwnModelError",
                f"There is no program. Write one that defines model and batch, such as:\n{EXAMPLE}",
                explanation="model = own profiles a training step of the model that your program defines.",
                repair="Type it into the editor and press Run, or take the preset called your own model.",
            )
        )
    ran = program.run_typed(params, share=0.3)
    if ran.ended:
        return NoStep(fault_of(ran.ended.type, ran.ended.message, ran.ended.line), ran.said)
    try:
        own = own_model(ran.namespace)
        if params.precision == "bf16":
            own.model.to(torch.bfloat16)
        if not any(p.requires_grad for p in own.model.parameters()):
            raise OwnModelError("The model has no parameter that requires gradients: there is nothing to train.")
        return Subject(OwnStep(own.model, own.loss, recipe, params.device), tuple(_unused(params)), ran.said)
    except Exception as error:  # noqa: BLE001 - classes of the program may raise anything when they are looked at
        return NoStep(fault_of_error(error), ran.said)


def _unused(params: Params) -> list[str]:
    given = [name for name in ("workers", "decode_us", "pin_memory", "channels_last") if getattr(params, name)]
    return [f"{', '.join(given)}: no effect on a program's own batch."] if given else []


_MISSING_KERNEL = r"could not create a primitive"
_KNOWN = [
    (_MISSING_KERNEL, "oneDNN, which runs this operation on a CPU, has no kernel for it in this dtype on this processor.", "Set precision to fp32 or bf16_autocast."),
    (r"^OwnModelError", "The program ran. What it left does not make a training step yet.", ""),
    (r"^TimeLimit", "The program did not come to an end in time.", "Use a smaller model or batch, or fewer steps."),
    (r"^MemoryLimit", "The program asked for more memory than one run may use.", "Use a smaller model or batch."),
    (r"^Refused", "", "The names torch, nn, F and math are there without import."),
    (r"^(SyntaxError|IndentationError|TabError)", "Python cannot read the program at this place.", "Look at the mark, and at the end of the line before it."),
    (r"^NameError", "The name is not defined at this point.", "torch, nn, F and math are given; everything else must be assigned first."),
    (r"does not require grad", "The loss has no way back to a parameter: frozen, detached, or computed under no_grad.", "Compute the loss from model(inputs) with gradients on."),
    (r"same dtype|expected scalar type|must have the same dtype", "Two tensors have different dtypes, and this operation does not convert.", "Convert inputs and model to one dtype. Precision bf16 converts the model, not your batch."),
    (r"cannot be multiplied|must match|Expected input batch_size", "The shapes do not fit together.", "Inner sizes of a matrix product must be equal; print the shapes on the line before."),
    (r"[Pp]rofil", "A program may not profile while it is being profiled: a second session empties the first.", "Leave torch.profiler out of the program."),
]  # fmt: skip


def fault_of(kind: str, message: str, line: int | None = None) -> Fault:
    """With the explanation that is known for it."""
    for pattern, explanation, repair in _KNOWN:
        if re.search(pattern, f"{kind}: {message}"):
            return Fault(kind, message, line, explanation, repair)
    return Fault(kind, message, line)


def fault_of_error(error: Exception) -> Fault:
    """Of what the visitor's model or loss raised while it ran."""
    if isinstance(error, OwnModelError):
        return fault_of("OwnModelError", str(error), error.line)
    memory = isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)
    kind = "MemoryLimit" if memory else type(error).__name__
    return fault_of(kind, str(error)[:4000], program.program_line(error.__traceback__))


def is_missing_kernel(error: Exception) -> bool:
    """The library has no kernel for this operation here: a fact of the processor, whoever wrote the model."""
    return re.search(_MISSING_KERNEL, str(error)) is not None


def compile_fault(error: Exception) -> Fault:
    """Of torch.compile on a host where it does not work."""
    return Fault(
        type(error).__name__,
        str(error)[:4000],
        explanation="torch.compile could not compile the model here. On a CPU it needs a C++ compiler and the headers of Python.",
        repair="Set compile to false, or install g++ and the Python headers on this machine.",
    )
