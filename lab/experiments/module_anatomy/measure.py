"""Run the program, walk what its modules hold, and measure what the view asks for."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from lab.contract import Fault, Report, knobs
from lab.experiments.module_anatomy import assemble
from lab.experiments.module_anatomy.actions import do_action
from lab.experiments.module_anatomy.brackets import record_brackets
from lab.experiments.module_anatomy.census import Census, vars_of
from lab.experiments.module_anatomy.edits import answer_is_read, calls_forward_by_name
from lab.experiments.module_anatomy.faults import fault_of
from lab.experiments.module_anatomy.findings import candidates
from lab.experiments.module_anatomy.loading import load_into_copy
from lab.experiments.module_anatomy.marks import measure_marks
from lab.experiments.module_anatomy.repairs import tested
from lab.experiments.module_anatomy.schema import Params, Result
from lab.experiments.module_anatomy.spelling import suspects_of
from lab.experiments.module_anatomy.subject import input_for, roots_of
from lab.experiments.module_anatomy.twin import moved_names, real_copy, without_data
from lab.experiments.module_anatomy.watch import ModuleWatch
from lab.instruments.describing.values import dtype_name
from lab.program import run as program
from lab.program.own_model import OwnModelError, first_tensor
from lab.program.trained import model_of
from lab.records.anatomy import Conversion, DirectCall, Load
from lab.torch_private import require

SHARE, SHARE_OF_ALL, AGAIN_S = 0.4, 0.85, 5.0
"""Of the wall time of a program: what it takes itself, and with the trials of its repairs."""
MANY = 10_000_000
"""Parameters from which the memory of one run is missed by the next."""


@dataclass
class Subject:
    """The models of a program that has run, and how to run the first of them."""

    params: Params
    ran: program.Ran
    watch: ModuleWatch
    roots: list[tuple[str, nn.Module]]
    inputs: tuple[Any, ...] | None = None
    loss: Callable[[], torch.Tensor] | None = None
    loss_name: str = ""
    missing: str = ""
    made_up: str = ""
    """Shape of an input that the program does not have."""

    @property
    def model(self) -> nn.Module:
        return self.roots[0][1]


def run(params: Params, report: Report) -> Result:
    """A fault of the program is data: what was recorded up to there is shown. Its repairs are tried."""
    require("hook tables", "storages")
    report(0.0, "running the program")
    started = time.perf_counter()
    result = _run_once(params, report)
    edits = candidates(result)
    if not edits:
        return result
    report(0.8, "trying the repair", result)
    if result.parameter_count > MANY:
        gc.collect()  # what the program held is needed for the next
    limits = knobs(Params)["code"].program
    assert limits is not None
    left = lambda: SHARE_OF_ALL * limits.wall_s - (time.perf_counter() - started)  # noqa: E731
    return replace(result, repairs=tested(result, params, edits, left, lambda p: _run_once(p, report)))


def _run_once(params: Params, report: Report) -> Result:
    with program.torch_defaults(params.seed, params.device):
        watch = ModuleWatch(calls_forward=calls_forward_by_name(params.code))
        with watch:
            ran = program.run_typed(params, share=SHARE)
        watch.measuring = True
        said = ran.said
        result = Result(view=params.view, root="", code=params.code, device=params.device, **said.fields())
        if not params.code.strip():
            missing = "Write a program that makes a module, then press Run."
            return replace(result, fault=Fault("Refused", missing, repair="model = nn.Sequential(...)"))
        report(0.4, "walking the modules")
        roots = roots_of(ran, watch)
        if roots:
            result = _described(result, Subject(params, ran, watch, roots))
        elif ran.ended is None:
            missing = "The program makes no module."
            result = replace(
                result, fault=Fault("OwnModelError", missing, repair="model = nn.Sequential(nn.Linear(4, 2))")
            )
        return replace(result, fault=fault_of(ran.ended, result) if ran.ended else result.fault)


def _described(result: Result, subject: Subject) -> Result:
    roots, watch, code = subject.roots, subject.watch, subject.params.code
    census = Census(roots, watch)
    _find_inputs(subject)
    numbers = assemble.Numbers()
    lazy = tuple(row.name for row in census.tensors if is_lazy(row.tensor))
    result = replace(
        result,
        root=roots[0][0],
        roots=tuple(name for name, _ in roots),
        tree=assemble.tree_rows(census, numbers),
        shared=assemble.shared_rows(census, code),
        optimizers=assemble.optimizer_rows(census, watch),
        hooks=assemble.hook_rows(census, watch, numbers),
        direct=_direct(census, watch),
        loads=_loads(subject, code),
        conversions=_conversions(census, subject),
        lazy=lazy,
        parametrized=_parametrized(census),
        suspects=suspects_of(subject.ran.namespace, code),
        loss_name=subject.loss_name,
        batch_by_lab=subject.made_up,
        cut=census.cut,
        **_counts(census),
    )
    return _VIEWS[subject.params.view](result, subject, census)


def _find_inputs(subject: Subject) -> None:
    """The batch and the loss of the program, else an input made for the first layer."""
    try:
        own = model_of(subject.ran)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - classes of the program may raise when they are looked at
        subject.missing = (
            str(error)[:300] if isinstance(error, OwnModelError) else f"{type(error).__name__}: {error}"[:300]
        )
        return _make_up(subject)
    at = next((i for i, (_, root) in enumerate(subject.roots) if root is own.model), None)
    if at is None:  # a part of a model that was called by itself
        subject.missing = "No call of the whole model was seen. Write batch = inputs."
        if subject.ran.seen.backwards:  # its loss is that of the training step all the same
            subject.loss, subject.loss_name = own.loss, own.loss_name
            return None
        return _make_up(subject)
    if at:
        subject.roots.insert(0, subject.roots.pop(at))
    subject.inputs, subject.loss, subject.loss_name = own.inputs, own.loss, own.loss_name


def _make_up(subject: Subject) -> None:
    if len(subject.roots) != 1 or subject.ran.ended is not None:
        return
    model, given = subject.model, input_for(subject.model)
    if given is None or not _runs(model, given):
        return
    subject.inputs, subject.made_up = (given,), str(tuple(given.shape))
    subject.loss, subject.loss_name = lambda: first_tensor(model(given)).square().mean(), "mean square of the output"


def _runs(model: nn.Module, given: torch.Tensor) -> bool:
    """Whether a copy of the model takes this input: a copy, for a forward may change what it runs on."""
    import copy

    with contextlib.suppress(Exception), torch.random.fork_rng():
        first_tensor(copy.deepcopy(model)(given))
        return True
    return False


def _tree(result: Result, subject: Subject, census: Census) -> Result:
    moved, why = _moved(subject, census)
    action = do_action(subject, census) if subject.params.action != "none" else None
    with subject.watch:  # layers that a forward makes
        marks = measure_marks(census, subject.roots, list(subject.watch.calls.optimizers.values()), subject.loss)
    census = Census(subject.roots, subject.watch) if result.lazy else census
    return replace(
        result,
        tensors=assemble.tensor_rows(census, marks, moved),
        unregistered=assemble.unregistered_rows(census, subject.watch, subject.params.code),
        optimizer=marks.optimizer,
        no_gradient=marks.why_not or ("" if subject.loss else subject.missing),
        no_moves=why,
        action=action,
    )


def _moved(subject: Subject, census: Census) -> tuple[dict[str, bool] | None, str]:
    """Which tensors a conversion reaches, and why that is not known."""
    try:
        try:
            return moved_names(without_data(subject.roots, census), census, subject.watch), ""
        except Exception:  # noqa: BLE001 - a class of the program may refuse to be copied
            roots, watch = _again(subject)
            return moved_names(roots, census, watch), ""
    except Exception as error:  # noqa: BLE001 - or to be converted
        return None, f"{type(error).__name__}: {str(error)[:120]}"


def _again(subject: Subject) -> tuple[list[tuple[str, nn.Module]], ModuleWatch]:
    """What the program makes when it runs once more with the same seed."""
    watch = ModuleWatch(calls_forward=False)
    torch.manual_seed(subject.params.seed)
    with watch:
        ran = program.run_program(subject.params.code, program.namespace(), wall_s=AGAIN_S, printed_bytes=1 << 20)
    roots = roots_of(ran, watch)
    wanted = [name for name, _ in subject.roots]
    roots.sort(key=lambda pair: wanted.index(pair[0]) if pair[0] in wanted else len(wanted))
    return roots, watch


def _hooks(result: Result, subject: Subject, census: Census) -> Result:
    if subject.inputs is None:
        return replace(result, no_events=subject.missing)
    found = record_brackets(subject, census)
    return replace(
        result,
        events=found.events,
        no_events=found.why_not,
        events_note=found.note,
        hooks=found.counted(result.hooks),
        own_hooks_skipped=found.skipped,
    )


def _state_dict(result: Result, subject: Subject, census: Census) -> Result:
    keys = load_into_copy(subject, lambda: real_copy(subject.model, census))
    if not keys.rows and keys.error and subject.params.file != "the program's":  # no copy: the program makes another
        keys = load_into_copy(subject, lambda: _again(subject)[0][0][1])
    return replace(result, keys=keys)


_VIEWS = {"tree": _tree, "hooks": _hooks, "state dict": _state_dict}


def _counts(census: Census) -> dict[str, int]:
    rows = [r for r in census.tensors if r.kind == "parameter" and not is_lazy(r.tensor)]
    once = {id(row.tensor): row.tensor.numel() for row in rows}
    return {"parameter_count": sum(once.values()), "count_by_module": sum(row.tensor.numel() for row in rows)}


def _parametrized(census: Census) -> tuple[str, ...]:
    found = []
    for row in census.modules:
        if not row.again and parametrize.is_parametrized(row.module):
            names = vars_of(row.module)["_modules"]["parametrizations"].keys()
            found += [f"{row.path}.{name}".lstrip(".") for name in names]
    return tuple(found)


def _direct(census: Census, watch: ModuleWatch) -> tuple[DirectCall, ...]:
    found = []
    for call in watch.calls.direct.values():
        module = call.module()
        path = next(iter(census.paths(module)), "") if module is not None else ""
        found.append(DirectCall(call.line, call.class_, path, call.hooks, call.times))
    return tuple(found)


def _loads(subject: Subject, code: str) -> tuple[Load, ...]:
    known = subject.ran.namespace
    found = []
    for module, load in subject.watch.calls.loads:
        name = next((n for n, v in known.items() if v is module() and v is not None), load.module)
        found.append(replace(load, module=name, answer_used=answer_is_read(code, load.line)))
    return tuple(found)


def _conversions(census: Census, subject: Subject) -> tuple[Conversion, ...]:
    """With what each left behind: plain floating-point tensors below it that have another dtype now."""
    found = []
    for module, conversion in subject.watch.calls.conversions:
        held = module()
        paths = census.paths(held) if held is not None else []
        left = tuple(
            f"{row.name} ({dtype_name(row.tensor.dtype)})"
            for row in census.tensors
            if conversion.dtype
            and not is_lazy(row.tensor)
            and row.tensor.is_floating_point()
            and dtype_name(row.tensor.dtype) != conversion.dtype
            and (row.kind == "plain tensor" or row.kind.endswith("unregistered module"))
            and row.tensor.grad_fn is None
            and not (row.place and row.place.in_forward)
            and any(not path or row.name.startswith(f"{path}.") for path in paths)
        )
        name = next((n for n, v in subject.ran.namespace.items() if v is held and v is not None), conversion.module)
        found.append(replace(conversion, left=left, module=name))
    return tuple(found)
