"""Run the modules in both modes; only what the view asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import torch
import torch.nn.functional as F

from lab.contract import Report
from lab.experiments.train_eval.faults import batchnorm_fault
from lab.experiments.train_eval.schema import Params, Result
from lab.experiments.train_eval.studies.batchnorm_freezing import read_recomputed, read_treatments
from lab.experiments.train_eval.studies.batchnorm_gaps import BATCH_SIZES, serving_rows, size_rows
from lab.experiments.train_eval.studies.batchnorm_trace import NormSettings, trace_batches
from lab.experiments.train_eval.studies.dropout_passes import read_dropout
from lab.experiments.train_eval.studies.forgotten_eval import read_forgotten_eval
from lab.experiments.train_eval.studies.listeners import DROPOUTS, NORMS, read_listeners
from lab.experiments.train_eval.studies.mc_dropout import read_mc_dropout
from lab.experiments.train_eval.studies.norm_reach import read_reach
from lab.experiments.train_eval.studies.switches import read_switches
from lab.instruments.modes.scan import scan_modes
from lab.program import run as program
from lab.program.explain import explain_fault
from lab.program.own_model import first_tensor
from lab.program.trained import model_of
from lab.records.modes import Chosen, Scan
from lab.torch_private import require
from lab.workloads.channel_batches import batch_of
from lab.workloads.mode_models import convnet, small_net, transformer

LOSS_REPEATS = 8


def run(params: Params, report: Report) -> Result:
    """Measure what the view and the study ask for. A fault of the visitor's model, or of a batch that torch refuses, is data."""
    require("function transforms", "mode stacks")
    params = params.settled()
    report(0.0, f"running the {params.view} view")
    with torch.random.fork_rng(), torch.enable_grad():
        torch.manual_seed(params.seed)
        return replace(_VIEWS[params.view](params, report), device=params.device)


def _empty(params: Params, **parts: Any) -> Result:
    chosen = Chosen(**{f.name: getattr(params, f.name) for f in fields(Chosen)})
    return Result(params.view, params.study, params.module, params.shape, chosen, **parts)


def _dropout(params: Params, report: Report) -> Result:
    torch.manual_seed(params.seed)
    x = dropout_input(params.inputs, params.shape).to(params.device)
    reading = read_dropout(
        params.module, params.p, x, params.passes, params.seed, params.same_mask, lambda f: report(f, "dropping")
    )
    mc = study = None
    if params.study == "MC dropout":
        mc = read_mc_dropout(params.p, params.passes, params.seed, params.device)
    if params.study == "who listens":
        study = read_listeners(DROPOUTS | NORMS, params.p, params.seed, params.device)
    return _empty(params, dropout=reading, mc_dropout=mc, listeners=study)


def dropout_input(kind: str, shape: tuple[int, ...]) -> torch.Tensor:
    """ones, a standard normal from the global generator, or a ramp (i + 1)/count."""
    if kind == "ones":
        return torch.ones(shape)
    if kind == "normal":
        return torch.randn(shape)
    count = torch.Size(shape).numel()
    return (torch.arange(1, count + 1) / count).view(shape)


def _batchnorm(params: Params, report: Report) -> Result:
    dtype = getattr(torch, params.dtype)
    settings = NormSettings(
        params.module, params.channels, params.eps, params.momentum, params.affine, params.track_running_stats
    )
    layer = settings.make().to(params.device, dtype)
    batches = [batch_of(params.shape, dtype, params.device) for _ in range(params.batches)]
    fresh = batch_of((256, *params.shape[1:]), dtype, params.device)
    parts: dict[str, Any] = {"dtype": params.dtype}
    try:
        parts["batchnorm"] = trace_batches(layer, batches, fresh)
    except ValueError as error:
        parts |= {"batchnorm": (), "fault": batchnorm_fault(error, params)}
    report(0.5, "reading the statistics")
    if params.study == "batch size" or not parts["batchnorm"]:
        sizes = tuple(sorted({*BATCH_SIZES, params.batch}))
        parts["sizes"] = size_rows(settings, sizes, params.size, fresh, params.seed)
    elif params.study == "serving" and parts["batchnorm"]:
        parts["serving"] = serving_rows(layer, fresh, params.shift, params.scale)
    elif params.study == "other norms":
        parts["norms"] = read_reach(params.seed, params.device)
        parts["listeners"] = read_listeners(NORMS, params.p, params.seed, params.device)
    elif params.study == "freezing":
        parts["treatments"] = read_treatments(params.channels, params.batch, params.seed, params.device)
        parts["recomputed"] = read_recomputed(params.channels, params.batch, params.batches, params.seed, params.device)
    return _empty(params, **parts)


def _switches(params: Params, report: Report) -> Result:
    x = torch.randn(max(params.batch, 2), 8).to(params.device)
    rows = read_switches(lambda: small_net(params.p), x, params.seed)
    return replace(_empty(params, switches=rows), module="", shape=tuple(x.shape))


def _scan(params: Params, report: Report) -> Result:
    if params.study == "forgotten eval" or params.model == "classifier":
        report(0.1, "training a small classifier")
        net, inputs, cost = read_forgotten_eval(params.p, params.seed, params.device)
        modes = None
        if params.study == "modules":
            report(0.7, "scanning its modules")
            modes = scan_modes(net, lambda: net(inputs), seed=params.seed, file="", device=params.device)
        losses = cost.row("train").loss, cost.row("eval").loss
        scan = Scan("classifier", modes, "cross-entropy on the test set", *losses, cost)
        return replace(_empty(params, scan=scan), module="", shape=tuple(inputs.shape))
    if params.model == "own":
        return _own(params, report)
    model, inputs, target = {"convnet": convnet, "transformer": transformer}[params.model](
        params.p, max(params.batch, 2)
    )
    model, inputs, target = model.to(params.device), inputs.to(params.device), target.to(params.device)
    modes = scan_modes(model, lambda: model(inputs), seed=params.seed, file="", device=params.device)
    losses = _losses(model, lambda: F.cross_entropy(model(inputs), target), params.seed)
    scan = Scan(params.model, modes, "cross-entropy", *losses, None)
    return replace(_empty(params, scan=scan), module="", shape=tuple(inputs.shape))


def _losses(model: torch.nn.Module, loss: Callable[[], torch.Tensor], seed: int) -> tuple[float, float]:
    """In train mode and in eval mode."""
    return _mean_loss(model, loss, True, seed), _mean_loss(model, loss, False, seed)


@torch.no_grad()
def _mean_loss(model: torch.nn.Module, loss: Callable[[], torch.Tensor], mode: bool, seed: int) -> float:
    """Mean over seeds, for the random layers. In train mode the buffers move, as they would."""
    model.train(mode)
    total = 0.0
    for i in range(LOSS_REPEATS):
        torch.manual_seed(seed + i)
        total += loss().item() / LOSS_REPEATS
    return total


def _own(params: Params, report: Report) -> Result:
    nothing = replace(_empty(params, scan=Scan("own", None, "", None, None, None)), module="", shape=())
    with program.torch_defaults(params.seed, params.device):
        ran = program.run_typed(params, share=0.5)
        nothing = replace(nothing, **ran.said.fields())
        if ran.ended:
            return replace(nothing, fault=explain_fault(ran.ended))
        report(0.4, "scanning the model")
        try:
            own = model_of(ran)
            modes = scan_modes(
                own.model,
                lambda: first_tensor(own.model(*own.inputs)),
                seed=params.seed,
                file=program.FILE,
                device=params.device,
            )
            nothing = replace(nothing, scan=Scan("own", modes, "", None, None, None))
            trained, evaluated = _losses(own.model, own.loss, params.seed)
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - the visitor's model may raise anything, and is told what
            return replace(nothing, fault=explain_fault(error), **ran.said.fields())
    return replace(nothing, **ran.said.fields(), scan=Scan("own", modes, own.loss_name, trained, evaluated, None))


_VIEWS = {"dropout": _dropout, "batchnorm": _batchnorm, "switches": _switches, "scan": _scan}
