"""Findings about parts of a peak that no line of a program names: logits, dense gradients, frozen weights, copies."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator

from lab.contract import Finding
from lab.experiments.memory_timeline.schema import Result
from lab.experiments.memory_timeline.words import module_text
from lab.quantities import bytes_text
from lab.records.memory import CATEGORIES

_LARGE = 0.1
"""Share of the peak from which on a part is named."""
_CLASSES = 1000
"""From so many classes on it is called a vocabulary."""
_LOSS_OPS = ("_log_softmax", "_log_softmax_backward_data", "nll_loss_backward")


def _alive_at_peak(result: Result) -> Iterator[tuple[int, int]]:
    """(row of ``storages``, bytes) of what is alive at the peak."""
    lives, row = result.lives, result.peak.row
    for first, end, size, storage in zip(lives.first, lives.end, lives.bytes, lives.storage, strict=True):
        if first <= row < end:
            yield storage, size


def _logits(result: Result) -> Iterator[Finding]:
    table = result.storages
    copies = [(s, size) for s, size in _alive_at_peak(result) if table.op[s] in _LOSS_OPS]
    size = sum(size for _, size in copies)
    if not copies or size < 0.3 * result.peak.bytes:
        return
    shape = ast.literal_eval(table.shape[max(copies, key=lambda copy: copy[1])[0]])
    if len(shape) < 2 or max(shape[1], shape[-1]) < _CLASSES:
        return
    classes = shape[1] if len(shape) > 2 else shape[-1]
    tokens = math.prod(shape) // classes
    text = (
        f"Cross-entropy over {classes:,} classes for {tokens:,} tokens: at the peak {', '.join(table.op[s] for s, _ in copies)} "
        f"hold {len(copies)} tensors as large as the logits in {table.dtype[copies[0][0]]}, {size / result.peak.bytes:.0%} of the peak."
    )
    yield Finding(
        level="surprise", title="The logits fill the memory", text=text,
        evidence={"copies of the logits_bytes": size, "peak_bytes": result.peak.bytes},
        repair="Compute the loss in chunks of tokens, each with its backward, or with a fused loss that never holds all logits.",
    )  # fmt: skip


def _dense_embedding_gradient(result: Result) -> Iterator[Finding]:
    table = result.storages
    rows = {i for i, op in enumerate(table.op) if op == "embedding_dense_backward"}
    sizes = {s: size for s, size in zip(result.lives.storage, result.lives.bytes, strict=True) if s in rows}
    read = [
        math.prod(row.shape or ())
        for row in result.saved
        if row.operation == "EmbeddingBackward0" and row.slot == "indices"
    ]
    if not sizes or not read or max(sizes.values()) < _LARGE * result.peak.bytes:
        return
    largest = max(sizes, key=lambda s: sizes[s])
    vocabulary = ast.literal_eval(table.shape[largest])[0]
    if 4 * sum(read) > vocabulary:
        return
    text = (
        f"The forward reads at most {sum(read):,} of the {vocabulary:,} rows of the embedding {module_text(table.module[largest])}, "
        f"and its gradient has all of them: {bytes_text(sizes[largest])}, nearly all zeros."
    )
    evidence = {"dense gradient_bytes": sizes[largest], "rows read at most": sum(read), "rows": vocabulary}
    yield Finding(
        level="surprise", title="The gradient of the embedding is dense", text=text, evidence=evidence,
        repair="nn.Embedding(..., sparse=True) with an optimizer that takes sparse gradients: SGD, Adagrad, SparseAdam.",
    )  # fmt: skip


def _frozen(result: Result) -> Iterator[Finding]:
    if not result.frozen or not result.end["gradients"]:
        return
    if result.frozen_gradient_bytes:
        text = "requires_grad_(False) stops new gradients; the ones that were there stay until they are set to None."
        evidence = {"gradients of frozen parameters_bytes": result.frozen_gradient_bytes}
        yield Finding(
            level="warning", title="Frozen parameters still carry gradients", text=text, evidence=evidence,
            repair="model.zero_grad(set_to_none=True) once after freezing.",
        )  # fmt: skip
    share = result.frozen / result.parameters
    saved = result.peak.categories["saved"]
    text = (
        f"{result.frozen:,} of {result.parameters:,} parameters require no gradient: gradients are "
        f"{bytes_text(result.end['gradients'])} and optimizer state is {bytes_text(result.end['optimizer_state'])}."
    )
    if saved > _LARGE * result.peak.bytes:
        text += f" Activations stay wherever gradients pass through to what is trained: {bytes_text(saved)} are saved at the peak."
    evidence = {
        "frozen parameters": result.frozen,
        "all parameters": result.parameters,
        "saved at the peak_bytes": saved,
    }
    yield Finding(level="fact", title=f"{share:.0%} of the parameters are frozen", text=text, evidence=evidence)


def _copies(result: Result) -> Iterator[Finding]:
    table = result.storages
    saved = CATEGORIES.index("saved")
    lives = zip(result.lives.storage, result.lives.category, result.lives.bytes, strict=True)
    rows = {
        s: size
        for s, category, size in lives
        if category == saved and table.op[s] == "clone" and table.phase[s] == "forward"
    }
    alive = {s for s, _ in _alive_at_peak(result)}
    rows = {s: size for s, size in rows.items() if s in alive}
    size = sum(rows.values())
    if not rows or size < _LARGE * result.peak.bytes:
        return
    largest = max(rows, key=lambda s: rows[s])
    text = (
        f"{len(rows)} copies by clone are saved for backward at the peak, the largest in {module_text(table.module[largest])}. "
        "contiguous(), reshape() of a transposed tensor and clone() make them."
    )
    yield Finding(
        level="fact", title="Copies of activations are saved", text=text, line=table.line[largest],
        evidence={"copies_bytes": size, "peak_bytes": result.peak.bytes},
    )  # fmt: skip


LOOKS: tuple[Callable[[Result], Iterator[Finding]], ...] = (_logits, _dense_embedding_gradient, _frozen, _copies)
