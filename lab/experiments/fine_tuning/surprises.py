"""What of a program moved, or did not, against what was meant; each with the predicate that was checked."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from lab.experiments.fine_tuning.training_watch import Known, Made, TrainingWatch
from lab.instruments.describing.names import named_tensors
from lab.program.lines import program_tree
from lab.records.fine_tuning import Surprise

Foreign = list[tuple[str, torch.Tensor]]
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def surprises_of(watch: TrainingWatch, names: dict[str, Any]) -> tuple[tuple[Surprise, ...], Foreign, tuple[str, ...]]:
    """(surprises, what optimizers hold and no module has, trainable tensors of trained modules that nobody holds)."""
    now = {id(t): name for name, t in reversed(list(named_tensors([names])))}
    now |= {
        key: known.name for key, known in watch.known.items() if key not in now and known.name and _alive(known, names)
    }
    held = {id(p) for made in watch.optimizers.values() for g in made.optimizer.param_groups for p in g["params"]}
    stale = [(made, key) for made in watch.optimizers.values() for key in made.names if _replaced(made, key, names)]
    missing = _missing(watch, names, held)
    foreign = [(made.names[key], next(t for t in made.tensors if id(t) == key)) for made, key in stale]
    found = [
        *_stale(watch, stale, missing),
        *_left_out(watch, missing, bool(stale)),
        *_unheld_gradients(watch, held, missing),
        *_stuck(watch),
        *_frozen_moves(watch, now),
        *_woken(watch, names),
        *_eval_trains(watch, names),
        *_statistics(watch, names),
        *_cut(watch),
        *_nothing(watch, held),
    ]
    return tuple(found), foreign, missing


def _alive(known: Known, names: dict[str, Any]) -> bool:
    """Its name still leads to it: variables of functions that have ended lead nowhere, and count as alive."""
    root = known.name.split(".")[0].split("[")[0]
    return root not in names


def _modules(names: dict[str, Any]) -> dict[str, nn.Module]:
    return {name: m for name, m in names.items() if isinstance(m, nn.Module) and not name.startswith("_")}


def _replaced(made: Made, key: int, names: dict[str, Any]) -> bool:
    """It was a parameter of a module when the optimizer was built; under that name there is another tensor now."""
    name = made.names[key]
    root, dot, path = name.partition(".")
    module = names.get(root)
    if not dot or not isinstance(module, nn.Module):
        return False
    found = dict(module.named_parameters()).get(path)
    return found is None or id(found) != key


def _missing(watch: TrainingWatch, names: dict[str, Any], held: set[int]) -> tuple[str, ...]:
    """Trainable tensors, that nobody holds, of modules of which some tensors are held or were when an optimizer was built."""
    once = {name.partition(".")[0] for made in watch.optimizers.values() for name in made.names.values() if "." in name}
    found: list[str] = []
    known: set[int] = set()
    for root, module in _modules(names).items():
        parameters = dict(module.named_parameters())
        if root not in once and not any(id(p) in held for p in parameters.values()):
            continue
        for path, p in parameters.items():
            if p.requires_grad and id(p) not in held and id(p) not in known:
                known.add(id(p))
                found.append(f"{root}.{path}")
    return tuple(found)


def _cut(watch: TrainingWatch) -> Iterator[Surprise]:
    if watch.cut_line:
        yield Surprise("cut by checkpoint", watch.cut_line, None, (), float(watch.cut_count))


def _nothing(watch: TrainingWatch, held: set[int]) -> Iterator[Surprise]:
    """Steps were taken, and no tensor that an optimizer holds has changed in any bit."""
    known = [k for key, k in watch.known.items() if key in held]
    if watch.steps and known and all(torch.equal(k.tensor.detach(), k.before) for k in known):
        without = sum(k.gradient == "none" for k in known)
        line = next((m.line for m in watch.optimizers.values() if m.steps), None)
        yield Surprise(
            "nothing moved", line, None, tuple(k.name for k in known[:4]), float(watch.steps), float(without)
        )


def _stale(watch: TrainingWatch, stale: list[tuple[Made, int]], missing: tuple[str, ...]) -> Iterator[Surprise]:
    for made in {id(m): m for m, _ in stale}.values():
        gone = [made.names[key] for one, key in stale if one is made]
        line = _assigned_after(gone[0], made.line)
        count = sum(t.numel() for t in made.tensors if made.names[id(t)] in gone)
        yield Surprise("stale", made.line, line, tuple(gone[:4]), float(count), float(len(missing)))


def _assigned_after(name: str, line: int) -> int | None:
    """The line below ``line`` that puts something in place of a module on the way to ``name``."""
    parts = name.split(".")[1:-1]
    for node in ast.walk(program_tree()):
        if isinstance(node, ast.Assign) and node.lineno > line:
            for target in node.targets:
                last = target.attr if isinstance(target, ast.Attribute) else None
                if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                    last = str(target.slice.value)
                if last in parts:
                    return node.lineno
    return None


def _left_out(watch: TrainingWatch, missing: tuple[str, ...], stale: bool) -> Iterator[Surprise]:
    made = [m for m in watch.optimizers.values() if m.line]
    if missing and made and not stale:
        line = made[-1].line
        groups = _given_on(line)
        yield Surprise("left out", groups or line, line if groups else None, missing[:6], float(len(missing)))


def _given_on(line: int) -> int | None:
    """The line that made the list which the optimizer of ``line`` got by its name."""
    for node in ast.walk(program_tree()):
        if isinstance(node, ast.Call) and node.lineno == line and node.args and isinstance(node.args[0], ast.Name):
            return _born(node.args[0].id)
    return None


def _unheld_gradients(watch: TrainingWatch, held: set[int], missing: tuple[str, ...]) -> Iterator[Surprise]:
    """A leaf had a gradient when a step was taken, no optimizer held it, and it is held by now or belongs to no trained module."""
    found = [known for known in watch.known.values() if known.unheld_line and known.name not in missing]
    later = [known for known in found if id(known.tensor) in held]
    if later:
        made = next(iter(watch.optimizers.values()))
        yield Surprise(
            "not held when it had a gradient", made.line, later[0].unheld_line, tuple(k.name for k in later[:4]), float(len(later))
        )  # fmt: skip


def _stuck(watch: TrainingWatch) -> Iterator[Surprise]:
    """Two or more tensors of zeros whose gradients were zero in every step: each is a factor of the other's."""
    stuck = [
        known
        for known in watch.known.values()
        if known.zero_steps >= 3 and not known.live_steps and not bool(known.tensor.detach().any()) and not bool(known.before.any())
    ]  # fmt: skip
    if len(stuck) >= 2:
        line = next((m.line for m in watch.optimizers.values()), None)
        yield Surprise(
            "stuck at zero",
            _born(stuck[0].name) or line,
            line,
            tuple(k.name for k in stuck[:4]),
            float(stuck[0].zero_steps),
        )


def _born(name: str) -> int | None:
    """The first line that gives the variable a value."""
    root = name.split(".")[0].split("[")[0]
    lines = [
        node.lineno
        for node in ast.walk(program_tree())
        if isinstance(node, ast.Assign)
        for target in node.targets
        for part in ast.walk(target)
        if isinstance(part, ast.Name) and part.id == root
    ]
    return min(lines, default=None)


def _frozen_moves(watch: TrainingWatch, now: dict[int, str]) -> Iterator[Surprise]:
    moved = [known for known in watch.known.values() if known.frozen_moved]
    if moved:
        total = sum(known.frozen_moved**2 for known in moved) ** 0.5
        names = tuple(known.name or now.get(id(known.tensor), "a parameter") for known in moved[:4])
        yield Surprise(
            "frozen moves",
            watch.zeroed_line or moved[0].frozen_line,
            moved[0].frozen_line,
            names,
            total,
            float(len(moved)),
        )


def _norms(names: dict[str, Any]) -> Iterator[tuple[str, nn.Module]]:
    for root, module in _modules(names).items():
        for path, part in module.named_modules():
            if isinstance(part, _NORMS) and getattr(part, "running_mean", None) is not None:
                yield f"{root}.{path}".rstrip("."), part


def _drift(watch: TrainingWatch, norm: nn.Module) -> float:
    known = watch.known.get(id(norm.running_mean))
    if known is None:
        return 0.0
    return float((known.tensor.detach().double() - known.before.double()).abs().max())


def _woken(watch: TrainingWatch, names: dict[str, Any]) -> Iterator[Surprise]:
    """eval() was called on it, or on a part around it, and train() on something larger afterwards; it is in train mode."""
    for name, norm in _norms(names):
        put = [
            s for s in watch.switches if not s.training and s.line and any(part is norm for part in s.module.modules())
        ]
        woken = [
            s for s in watch.switches
            if s.training and put and watch.switches.index(s) > watch.switches.index(put[0])
            and any(part is put[0].module for part in s.module.modules()) and s.module is not put[0].module
        ]  # fmt: skip
        frozen = all(not p.requires_grad for p in norm.parameters())
        if woken and norm.training and frozen:
            yield Surprise("woken", woken[0].line, put[0].line, (name,), _drift(watch, norm))
            return


def _eval_trains(watch: TrainingWatch, names: dict[str, Any]) -> Iterator[Surprise]:
    """A module was in eval mode at the last step, and a weight of it moved."""
    for root, module in _modules(names).items():
        if watch.modes.get(id(module), True) or not any(isinstance(m, (*_NORMS, nn.Dropout)) for m in module.modules()):
            continue
        moved = [
            known
            for p in module.parameters()
            if (known := watch.known.get(id(p))) and not torch.equal(p.detach(), known.before)
        ]
        called = [s for s in watch.switches if not s.training and s.module is module and s.line]
        if moved and called:
            yield Surprise(
                "eval trains", called[-1].line, None, (root,), float(len(moved)), float(len(list(module.parameters())))
            )


def _statistics(watch: TrainingWatch, names: dict[str, Any]) -> Iterator[Surprise]:
    """Every weight of a BatchNorm is frozen, and its running statistics moved while steps were taken."""
    found = []
    for name, norm in _norms(names):
        frozen = all(not p.requires_grad for p in norm.parameters())
        drift = _drift(watch, norm)
        if (
            frozen
            and drift
            and watch.steps
            and not any(s for s in watch.switches if not s.training and any(m is norm for m in s.module.modules()))
        ):
            found.append((name, drift))
    if found:
        yield Surprise(
            "statistics move",
            None,
            None,
            tuple(name for name, _ in found[:4]),
            max(d for _, d in found),
            float(len(found)),
        )
