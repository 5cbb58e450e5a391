"""State that a program had and lost on the way through its files, each with the predicate that was checked."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from typing import Any

import torch

from lab.experiments.checkpoint_resume.state_watch import (
    Loading,
    ModelLoad,
    OptimizerStory,
    StateWatch,
)
from lab.instruments.describing.names import named_tensors
from lab.program.lines import assigned_line, program_tree
from lab.records.resume import StateLoss

_SMALL = 4096
"""Bytes of a storage that are not worth a word."""


def losses_of(watch: StateWatch, names: dict[str, Any]) -> tuple[StateLoss, ...]:
    """In the order of what a colleague would say first."""
    found = [
        *_models(watch),
        *_other_order(watch, names),
        *_fresh_optimizers(watch),
        *_rates(watch),
        *_fresh_schedules(watch),
        *_fresh_scalers(watch),
        *_permutations(watch),
        *_groups(watch, names),
        *_views(watch),
    ]
    return tuple({(loss.cause, loss.line, loss.name): loss for loss in found}.values())


def _models(watch: StateWatch) -> Iterator[StateLoss]:
    for load in watch.models:
        keys, total = load.keys, len(load.keys.missing) + load.keys.matched
        if keys.on_meta:
            yield StateLoss("on meta", load.line, None, load.name, "", "", (), keys.on_meta, total)
        elif not keys.matched and total:
            yield StateLoss(
                "nothing loaded", _emptied(load), load.line, load.name, keys.prefix, len(keys.unexpected), keys.missing[:3], 0, total
            )  # fmt: skip
        elif keys.missing:
            yield StateLoss(
                "partly loaded", load.line, None, load.name, keys.prefix, len(keys.unexpected), keys.missing[:4], keys.matched, total
            )  # fmt: skip


def _emptied(load: ModelLoad) -> int:
    """The line that deleted the entries of a dict that arrived empty, else the one that loaded."""
    if load.keys.unexpected or not load.name:
        return load.line
    for node in ast.walk(program_tree()):
        if isinstance(node, ast.Delete) and any(_entry_of(target, load.name) for target in node.targets):
            return node.lineno
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("pop", "clear", "popitem")
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == load.name
        ):
            return node.lineno
    return load.line


def _entry_of(target: ast.expr, name: str) -> bool:
    return isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and target.value.id == name


def _other_order(watch: StateWatch, names: dict[str, Any]) -> Iterator[StateLoss]:
    known = {id(tensor): name for name, tensor in reversed(list(named_tensors([names])))}
    for loading in watch.loadings:
        moved = list(_moved(loading, known))
        if moved:
            was, now, _ = moved[0]
            yield StateLoss(
                "another order", loading.story.line, loading.line, "", was, now,
                tuple(f"{a} → {b}" for a, b, _ in moved[:4]), len(moved), float(sum(fits for _, _, fits in moved)),
            )  # fmt: skip


def _moved(loading: Loading, known: dict[int, str]) -> Iterator[tuple[str, str, bool]]:
    """(saved for, loaded into, same shape) of each position whose parameter is another one."""
    before, after = loading.taken.parameters, loading.story.parameters
    ids = {id(p) for p in after}
    for old, new, state in zip(before, after, loading.taken.states, strict=False):
        if old is new or state is None:
            continue
        was, now = known.get(id(old), ""), known.get(id(new), "")
        inside = id(old) in ids  # the parameter is there, at another position
        renamed = bool(was and now) and was.rpartition(".")[2] != now.rpartition(".")[2] and _own(was) != _own(now)
        if inside or (renamed and not inside and _same_model(was, now)):
            yield was or "a parameter", now or "another", old.shape == new.shape


def _own(name: str) -> str:
    """A parameter's name inside its model: ``0.weight`` of ``net.0.weight``."""
    return name.partition(".")[2]


def _same_model(was: str, now: str) -> bool:
    """Both are parameters of models, so their names inside them can be compared."""
    return "." in was and "." in now


def _fresh_optimizers(watch: StateWatch) -> Iterator[StateLoss]:
    for story in watch.optimizers.values():
        source = _went_on_from(watch, story)
        if source is not None and source.taken is not None:
            yield StateLoss(
                "optimizer fresh", story.line, source.taken.line, type(story.optimizer).__name__, source.movement, story.first_movement,
                (), float(sum(state is not None for state in source.taken.states)), story.lr,
            )  # fmt: skip


def _went_on_from(watch: StateWatch, story: OptimizerStory) -> OptimizerStory | None:
    """The optimizer whose weights this one went on from, at the same rate, without its state."""
    if story.loaded is not None or not story.steps or not story.first_was_empty or story.first_values is None:
        return None
    for other in watch.optimizers.values():
        taken = other.taken
        if other is story or taken is None or taken.values is None or taken.at > story.born:
            continue
        if type(other.optimizer) is not type(story.optimizer) or other.lr != story.lr:
            continue
        if not any(state is not None for state in taken.states) or len(taken.values) != len(story.first_values):
            continue
        if all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(taken.values, story.first_values, strict=True)):
            return other
    return None


def _rates(watch: StateWatch) -> Iterator[StateLoss]:
    for story in watch.optimizers.values():
        if story.loaded is None:
            continue
        own = [s for s in watch.schedules.values() if getattr(s.schedule, "optimizer", None) is story.optimizer]
        reset = next((s for s in own if s.lr_before == story.lr_loaded != s.lr_after), None)
        if reset is not None:
            yield StateLoss(
                "lr reset", reset.line, story.loaded, type(reset.schedule).__name__, reset.lr_before, reset.lr_after
            )
        elif story.lr_before != story.lr_loaded and story.lr_before == story.lr and story.initial_lr != story.lr:
            yield StateLoss(
                "lr replaced", story.loaded, story.line, type(story.optimizer).__name__, story.lr, story.lr_loaded
            )


def _fresh_schedules(watch: StateWatch) -> Iterator[StateLoss]:
    loaded = {id(story.optimizer) for story in watch.optimizers.values() if story.loaded is not None}
    for story in watch.schedules.values():
        if story.loaded or id(getattr(story.schedule, "optimizer", None)) not in loaded:
            continue
        counter = int(story.schedule.last_epoch)
        for other in watch.schedules.values():
            before = other.taken_at is not None and other.taken_at < story.born and other.counter_taken > 0
            if other is not story and before and type(other.schedule) is type(story.schedule) and counter > 0:
                yield StateLoss(
                    "scheduler fresh", story.line, other.taken_line, type(story.schedule).__name__, other.counter_taken + counter, counter,
                    (), float(story.schedule.get_last_lr()[0]),
                )  # fmt: skip
                break


def _fresh_scalers(watch: StateWatch) -> Iterator[StateLoss]:
    for story in watch.scalers.values():
        scale = float(story.scaler.get_scale())
        for other in watch.scalers.values():
            before = other.taken_at is not None and other.taken_at < story.born
            if other is not story and before and not story.loaded and other.scale_taken not in (0.0, scale):
                yield StateLoss("scaler fresh", story.line, other.taken_line, "GradScaler", other.scale_taken, scale)
                break


def _permutations(watch: StateWatch) -> Iterator[StateLoss]:
    for set_line, set_at in watch.generator_set:
        taken = [(line, at) for line, at in watch.generator_taken if at < set_at]
        if not taken:
            continue
        taken_line, taken_at = taken[-1]
        before = [d for d in watch.draws if d.at < taken_at]
        after = [d for d in watch.draws if d.at > set_at]
        pair = next(((a, b) for b in after[:1] for a in before[-1:] if len(a.values) == len(b.values) > 1), None)
        if pair and pair[0].values != pair[1].values:
            old, new = pair
            yield StateLoss(
                "permutation drawn again", new.outer, taken_line, "", old.outer, set_line, (), float(len(new.values)), float(new.line)
            )  # fmt: skip


def _groups(watch: StateWatch, names: dict[str, Any]) -> Iterator[StateLoss]:
    for story in watch.optimizers.values():
        old = story.groups_before
        if old is None or old is story.optimizer.param_groups:
            continue
        holder = next(
            (name for name, value in names.items() if value is old or any(value is group for group in old)), ""
        )
        asked, used = float(old[0].get("lr", math.nan)), float(story.optimizer.param_groups[0].get("lr", math.nan))
        if holder and asked != used:
            line = assigned_line(holder) or story.loaded or 0
            yield StateLoss("groups kept", line, story.loaded, holder, asked, used)


def _views(watch: StateWatch) -> Iterator[StateLoss]:
    for save in watch.saves:
        wasted = save.storage_bytes - save.used_bytes
        if save.line and wasted > _SMALL and save.storage_bytes >= 2 * save.used_bytes:
            yield StateLoss(
                "view saved", save.line, None, "", save.used_bytes, save.storage_bytes, (), float(save.file_bytes or 0)
            )
