"""What a program does to state: what it saves and loads, and which optimizers, schedules and scalers it builds.

While it runs, the functions that save, load and build pass through here; their results and errors are those of torch.
Files that torch.save and torch.load name by a path live in memory: a typed program has none on disk.
"""

from __future__ import annotations

import ast
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from lab import torch_private
from lab.experiments.checkpoint_resume.going_on import leaves
from lab.experiments.checkpoint_resume.keys import compare_keys
from lab.program.lines import program_tree
from lab.program.passing import Passing, line_now, outer_line
from lab.records.resume import Event, Keys

_COPIED = 4_000_000
"""Elements of parameters that are copied to be compared later; larger optimizers are not."""
_EVENTS = 300


@dataclass
class OptimizerStory:
    """One optimizer from its making on."""

    optimizer: Optimizer
    line: int
    born: int
    """Events before it."""
    lr: float
    """As asked for."""
    steps: int = 0
    loaded: int | None = None
    """Line where its state was loaded."""
    groups_before: Any = None
    """The list of groups that the load replaced."""
    lr_before: float = 0.0
    lr_loaded: float = 0.0
    initial_lr: float | None = None
    """Of the state that was loaded, as a schedule notes it."""
    taken: Taken | None = None
    """Its state when ``state_dict()`` was last called."""
    first_values: list[torch.Tensor] | None = None
    """Parameters before its first step."""
    first_was_empty: bool = False
    before_step: list[torch.Tensor] | None = None
    movement: float = 0.0
    """Largest change of an element in the last step."""
    first_movement: float = 0.0

    @property
    def parameters(self) -> list[torch.Tensor]:
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def copies(self) -> list[torch.Tensor] | None:
        parameters = self.parameters
        if sum(p.numel() for p in parameters) > _COPIED:
            return None
        return [p.detach().clone() for p in parameters]


@dataclass
class Taken:
    """The state of an optimizer when its ``state_dict`` was taken."""

    line: int
    at: int
    """Events before."""
    parameters: list[torch.Tensor]
    values: list[torch.Tensor] | None
    states: list[torch.Tensor | None]
    """The first tensor of each parameter's state that has its shape, copied."""


@dataclass
class Loading:
    """Optimizer state on its way into another optimizer."""

    line: int
    story: OptimizerStory
    source: OptimizerStory
    taken: Taken


@dataclass
class Schedule:
    """A learning rate schedule from its making on."""

    schedule: LRScheduler
    line: int
    born: int
    lr_before: float
    lr_after: float
    loaded: bool = False
    taken_at: int | None = None
    """Events before its state was taken."""
    counter_taken: int = 0
    taken_line: int = 0


@dataclass
class Scaler:
    """A gradient scaler from its making on."""

    scaler: Any
    line: int
    born: int
    loaded: bool = False
    taken_at: int | None = None
    scale_taken: float = 0.0
    taken_line: int = 0


@dataclass
class ModelLoad:
    """One ``load_state_dict`` of a module."""

    line: int
    keys: Keys
    name: str
    """The variable that held the state dict; empty where it is no plain name."""
    strict: bool


@dataclass
class Save:
    """One ``torch.save``: tensors that are parts of larger storages."""

    line: int
    used_bytes: int
    storage_bytes: int
    file_bytes: int | None


@dataclass
class Draw:
    """A permutation that was drawn from torch's generator."""

    line: int
    outer: int
    values: list[int]
    at: int


@dataclass
class StateWatch:
    """Context manager around the run of a program in this thread."""

    events: list[Event] = field(default_factory=list)
    moment: int = 0
    optimizers: dict[int, OptimizerStory] = field(default_factory=dict)
    schedules: dict[int, Schedule] = field(default_factory=dict)
    scalers: dict[int, Scaler] = field(default_factory=dict)
    models: list[ModelLoad] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)
    draws: list[Draw] = field(default_factory=list)
    generator_taken: list[tuple[int, int]] = field(default_factory=list)
    """(line, moment) of each get_rng_state."""
    generator_set: list[tuple[int, int]] = field(default_factory=list)
    loadings: list[Loading] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    passing: Passing = field(default_factory=Passing)

    def __enter__(self) -> StateWatch:
        for hook in (
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ):
            self.passing.at_end(torch_private.remove_global_hook, hook)
        self.passing.wrap(torch, "save", self._save)
        self.passing.wrap(torch, "load", self._load)
        self.passing.wrap(torch, "get_rng_state", self._get_rng)
        self.passing.wrap(torch, "set_rng_state", self._set_rng)
        self.passing.wrap(torch, "randperm", self._randperm)
        self.passing.wrap(nn.Module, "load_state_dict", self._load_module)
        self.passing.wrap(Optimizer, "__init__", self._make_optimizer)
        self.passing.wrap(Optimizer, "state_dict", self._take_optimizer)
        self.passing.wrap(Optimizer, "load_state_dict", self._load_optimizer)
        for cls in (LRScheduler, *_own(LRScheduler, "load_state_dict")):
            self.passing.wrap(cls, "load_state_dict", self._load_schedule)
        for cls in (LRScheduler, *_own(LRScheduler, "state_dict")):
            self.passing.wrap(cls, "state_dict", self._take_schedule)
        self.passing.wrap(LRScheduler, "__init__", self._make_schedule)
        self.passing.wrap(torch.amp.GradScaler, "__init__", self._make_scaler)
        self.passing.wrap(torch.amp.GradScaler, "state_dict", self._take_scaler)
        self.passing.wrap(torch.amp.GradScaler, "load_state_dict", self._load_scaler)
        return self

    def __exit__(self, *error: object) -> None:
        self.passing.close()

    def _note(self, kind: Any, text: str, line: int | None = None) -> int:
        """An event, and the line where it happened."""
        here = line or line_now()
        self.moment += 1
        if here and len(self.events) < _EVENTS:
            self.events.append(Event(kind, here, text))
        return here

    # files

    def _save(self, original: Any, obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        file = io.BytesIO() if _is_path(f) else f
        before = file.tell() if isinstance(file, io.BytesIO) else 0
        answer = original(obj, file, *args, **kwargs)
        size = file.tell() - before if isinstance(file, io.BytesIO) else None
        if _is_path(f):
            self.files[os.fspath(f)] = file.getvalue()
        text = "" if size is None else f", {size:,} bytes"
        line = self._note("save", f"torch.save{text}")
        used, whole = _bytes_of(obj)
        self.saves.append(Save(line, used, whole, size))
        return answer

    def _load(self, original: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_path(f):
            if os.fspath(f) not in self.files:
                known = ", ".join(self.files) or "none"
                raise FileNotFoundError(f"{os.fspath(f)!r} was not saved by this program (files so far: {known})")
            f = io.BytesIO(self.files[os.fspath(f)])
        answer = original(f, *args, **kwargs)
        self._note("load", "torch.load")
        return answer

    # generators

    def _get_rng(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(*args, **kwargs)
        self.generator_taken.append((self._note("generator", "torch.get_rng_state"), self.moment))
        return answer

    def _set_rng(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(*args, **kwargs)
        self.generator_set.append((self._note("generator", "torch.set_rng_state"), self.moment))
        return answer

    def _randperm(self, original: Any, n: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(n, *args, **kwargs)
        line = line_now()
        if line and isinstance(n, int) and n <= _COPIED and kwargs.get("generator") is None and len(self.draws) < 200:
            outer = self._note("generator", f"torch.randperm({n})", outer_line())
            self.draws.append(Draw(line, outer, answer.tolist(), self.moment))
        return answer

    # models

    def _load_module(self, original: Any, module: nn.Module, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        strict = kwargs.get("strict", args[0] if args else True)
        here = line_now()
        if not here or not isinstance(state_dict, Mapping):
            return original(module, state_dict, *args, **kwargs)
        given = {k: v for k, v in state_dict.items() if isinstance(k, str)}
        shapes = {k: tuple(t.shape) for k, t in module.state_dict().items() if isinstance(t, torch.Tensor)}
        answer = original(module, state_dict, *args, **kwargs)
        keys = compare_keys(module, given, shapes)
        self._note("model", f"load_state_dict: {keys.changed} of {len(shapes)} tensors", here)
        self.models.append(ModelLoad(here, keys, _argument(here), bool(strict)))
        return answer

    # optimizers

    def _make_optimizer(self, original: Any, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        answer = original(optimizer, *args, **kwargs)
        line = self._note("optimizer", f"{type(optimizer).__name__} made")
        self.optimizers[id(optimizer)] = OptimizerStory(optimizer, line, self.moment, _lr(optimizer))
        return answer

    def _take_optimizer(self, original: Any, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        answer = original(optimizer, *args, **kwargs)
        story = self.optimizers.get(id(optimizer))
        if story is not None:
            line = self._note("optimizer", "state_dict of the optimizer")
            parameters = story.parameters
            states = [_first_state(optimizer, p) for p in parameters]
            story.taken = Taken(line, self.moment, parameters, story.copies(), states)
        return answer

    def _load_optimizer(self, original: Any, optimizer: Optimizer, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        groups, lr = optimizer.param_groups, _lr(optimizer)
        answer = original(optimizer, state_dict, *args, **kwargs)
        story = self.optimizers.get(id(optimizer))
        if story is None:
            return answer
        line = self._note("optimizer", "load_state_dict of the optimizer")
        story.loaded, story.groups_before, story.lr_before, story.lr_loaded = line, groups, lr, _lr(optimizer)
        saved = state_dict["param_groups"][0]
        story.initial_lr = float(saved["initial_lr"]) if "initial_lr" in saved else None
        source = self._source(story, state_dict)
        if source is not None and source.taken is not None:
            self.loadings.append(Loading(line, story, source, source.taken))
        return answer

    def _source(self, story: OptimizerStory, state_dict: Any) -> OptimizerStory | None:
        """The optimizer whose state this was, by its values."""
        held = state_dict.get("state", {})
        order = [key for group in state_dict["param_groups"] for key in group["params"]]
        for other in reversed(list(self.optimizers.values())):
            taken = other.taken
            if taken is None or len(taken.states) != len(order) or not any(s is not None for s in taken.states):
                continue
            if all(_same_state(known, held.get(key, {})) for known, key in zip(taken.states, order, strict=True)):
                return other
        return None

    def _before_step(self, optimizer: Optimizer, *rest: Any) -> None:
        story = self.optimizers.get(id(optimizer))
        if story is None or self.passing.depth:
            return
        story.before_step = story.copies()
        if story.steps == 0:
            story.first_values, story.first_was_empty = story.before_step, not optimizer.state

    def _after_step(self, optimizer: Optimizer, *rest: Any) -> None:
        story = self.optimizers.get(id(optimizer))
        if story is None or self.passing.depth:
            return
        story.steps += 1
        if story.before_step is not None:
            pairs = zip(story.parameters, story.before_step, strict=True)
            story.movement = max((float((p.detach() - q).abs().max()) for p, q in pairs if p.numel()), default=0.0)
            if story.steps == 1:
                story.first_movement = story.movement
        story.before_step = None

    # schedules and scalers

    def _make_schedule(self, original: Any, schedule: LRScheduler, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        before = _lr(optimizer)
        answer = original(schedule, optimizer, *args, **kwargs)
        line = self._note("scheduler", f"{type(schedule).__name__} made")
        self.schedules[id(schedule)] = Schedule(schedule, line, self.moment, before, _lr(optimizer))
        return answer

    def _take_schedule(self, original: Any, schedule: LRScheduler, *args: Any, **kwargs: Any) -> Any:
        answer = original(schedule, *args, **kwargs)
        story = self.schedules.get(id(schedule))
        if story is not None:
            story.taken_line = self._note("scheduler", "state_dict of the schedule")
            story.taken_at, story.counter_taken = self.moment, int(schedule.last_epoch)
        return answer

    def _load_schedule(self, original: Any, schedule: LRScheduler, *args: Any, **kwargs: Any) -> Any:
        answer = original(schedule, *args, **kwargs)
        self._note("scheduler", "load_state_dict of the schedule")
        if id(schedule) in self.schedules:
            self.schedules[id(schedule)].loaded = True
        return answer

    def _make_scaler(self, original: Any, scaler: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(scaler, *args, **kwargs)
        line = self._note("scaler", "GradScaler made")
        self.scalers[id(scaler)] = Scaler(scaler, line, self.moment)
        return answer

    def _take_scaler(self, original: Any, scaler: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(scaler, *args, **kwargs)
        story = self.scalers.get(id(scaler))
        if story is not None:
            story.taken_line = self._note("scaler", "state_dict of the scaler")
            story.taken_at, story.scale_taken = self.moment, float(answer.get("scale", 0.0))
        return answer

    def _load_scaler(self, original: Any, scaler: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(scaler, *args, **kwargs)
        self._note("scaler", "load_state_dict of the scaler")
        if id(scaler) in self.scalers:
            self.scalers[id(scaler)].loaded = True
        return answer


def _own(base: type, name: str) -> list[type]:
    """Classes below ``base`` that define ``name`` themselves."""
    found, todo = [], list(base.__subclasses__())
    while todo:
        cls = todo.pop()
        todo += cls.__subclasses__()
        if name in cls.__dict__ and cls not in found:
            found.append(cls)
    return found


def _is_path(file: Any) -> bool:
    return isinstance(file, (str, os.PathLike))


def _lr(optimizer: Any) -> float:
    return float(optimizer.param_groups[0].get("lr", float("nan")))


def _first_state(optimizer: Optimizer, parameter: torch.Tensor) -> torch.Tensor | None:
    state = optimizer.state.get(parameter, {})
    found = (v for v in state.values() if isinstance(v, torch.Tensor) and v.shape == parameter.shape)
    first = next(found, None)
    return None if first is None or first.numel() > _COPIED else first.detach().clone()


def _same_state(known: torch.Tensor | None, state: Mapping[str, Any]) -> bool:
    """Whether ``known`` is in the state; a parameter without one has none there."""
    tensors = [v for v in state.values() if isinstance(v, torch.Tensor)]
    if known is None:
        return not any(v.dim() for v in tensors)
    return any(v.shape == known.shape and torch.equal(v.detach().cpu(), known.cpu()) for v in tensors)


def _bytes_of(obj: Any) -> tuple[int, int]:
    """Bytes of the distinct tensors in ``obj``, and of the storages that a file of them holds."""
    seen: dict[tuple[Any, ...], int] = {}
    whole: dict[int, int] = {}
    for leaf in leaves(obj):
        if type(leaf) in (torch.Tensor, nn.Parameter) and leaf.layout is torch.strided and leaf.device.type != "meta":
            key = torch_private.storage_key(leaf)
            whole[key] = leaf.untyped_storage().nbytes()
            seen[key, leaf.storage_offset(), tuple(leaf.shape)] = leaf.numel() * leaf.element_size()
    return sum(seen.values()), sum(whole.values())


def _argument(line: int) -> str:
    """The plain name that ``load_state_dict`` gets on ``line``."""
    for node in ast.walk(program_tree()):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "load_state_dict"
            and node.lineno <= line <= (node.end_lineno or node.lineno)
            and node.args
            and isinstance(node.args[0], ast.Name)
        ):
            return node.args[0].id
    return ""
