"""Build the network, train it under watch, and put the theory beside it."""

from __future__ import annotations

import time
from dataclasses import replace

from lab.contract import Fault, Report, knobs
from lab.experiments.gradient_flow.prediction import predict, ratio, slope
from lab.experiments.gradient_flow.schema import NO_STATE, Params, Result
from lab.experiments.gradient_flow.subject import Subject, family_subject, own_subject
from lab.experiments.gradient_flow.training import Training
from lab.program import run as program
from lab.program.explain import explain_fault
from lab.records.gradients import Clipping, Headline, Layer, Prediction
from lab.records.program import SILENT, Said
from lab.torch_private import require

FAULTS = (Exception, SystemExit, KeyboardInterrupt)
"""What a visitor's model may raise and is told; the other BaseExceptions end the run."""
_MATRIX_KINDS_ONLY = ("Norm", "Embedding")


def run(params: Params, report: Report) -> Result:
    """Train for ``params.steps`` steps. Faults of a visitor's model do not raise: they are in ``fault``."""
    require("function transforms", "mode stacks")
    report(0.0, "building the network")
    with program.torch_defaults(params.seed, params.device):
        if params.family != "own":
            subject = family_subject(params)
            training = Training(subject, params, report)
            fault = _train(training, float("inf"), ours=True)
            return _result(params, subject, training, fault)
        return _own(params, report)


def _own(params: Params, report: Report) -> Result:
    limits = knobs(Params)["code"].program
    assert limits is not None
    until = time.monotonic() + 0.7 * limits.wall_s
    ran = program.run_typed(params, share=0.4)
    if ran.ended:
        return _nothing(params, explain_fault(ran.ended), ran.said)
    try:
        made = own_subject(ran)
        training = Training(made, params, report)
    except FAULTS as error:
        return _nothing(params, explain_fault(error), ran.said)
    fault = _train(training, until, ours=False)
    made.said = ran.said  # with what the model printed while it was trained
    return _result(params, made, training, fault)


def _train(training: Training, until: float, *, ours: bool) -> Fault | None:
    try:
        training.run(until)
    except FAULTS as error:
        if ours and str(error) != training.clipper.error:
            raise
        return explain_fault(error)
    return None


def _result(params: Params, subject: Subject, training: Training, fault: Fault | None) -> Result:
    layers, prediction = _with_prediction(params, subject, training)
    inner = [layer for layer in layers if layer.inner]
    activation = [layer.activation_grad_norm for layer in inner]
    weight = [layer.weight_grad_norm for layer in inner if layer.why_none != NO_STATE]
    bare_s, watched_s = training.clock.bare_s, training.clock.watched_s
    return Result(
        headline=Headline(ratio(activation), ratio(weight), slope(activation), slope(weight)),
        layers=tuple(layers),
        layers_cut=subject.layers_cut,
        steps=tuple(training.steps),
        loss=tuple(training.losses),
        final_loss=training.final_loss,
        loss_name=subject.loss_name,
        batch_size=subject.batch_size,
        clipping=training.clipper.record([layer.weight_grad_norm for layer in layers]),
        prediction=prediction,
        first_nonfinite=training.first_nonfinite,
        first_nonfinite_step=training.first_nonfinite_step,
        parameters=sum(p.numel() for p in subject.model.parameters()),
        tied=subject.tied,
        dtype=_dtype(subject),
        instrument_s=watched_s - bare_s if bare_s is not None and watched_s < float("inf") else None,
        settings=_settings(params),
        **subject.said.fields(),
        fault=fault,
        over_time=training.over_time,
        unused=_unused(training) if params.family == "own" else (),
        masked=_masked(subject) if params.family == "own" else (),
    )


def _unused(training: Training) -> tuple[str, ...]:
    """Parameters without a gradient; where a whole layer has none, the layer is named instead."""
    missing = {row.name for row in training.layers if row.weight_grad_norm is None}
    return tuple(name for name in training.without if (name.rpartition(".")[0] or "(model)") not in missing)


def _masked(subject: Subject) -> tuple[str, ...]:
    """``layer.requires_grad = False`` sets an attribute that nothing reads."""
    return tuple(
        path
        for path, module in subject.model.named_modules()
        if vars(module).get("requires_grad") is False and any(p.requires_grad for p in module.parameters())
    )


def _with_prediction(params: Params, subject: Subject, training: Training) -> tuple[list[Layer], Prediction]:
    """The layers of the first step with the predicted norms, and the prediction."""
    rows = training.layers
    if not subject.inner:
        rows = [replace(row, inner=_counts_as_depth(row)) for row in rows]
    if params.family == "rnn":
        rows = [replace(row, why_none=NO_STATE) if row.name == "step 1" else row for row in rows]
    inner = [row for row in rows if row.inner]
    prediction, norms = predict(params, subject.input_square, [row.cotangent_grad_norm for row in inner])
    at = dict(zip((row.name for row in inner), norms, strict=True))
    return [replace(row, predicted_grad_norm=at.get(row.name)) for row in rows], prediction


def _counts_as_depth(row: Layer) -> bool:
    """In a visitor's model: what ran and transforms, so neither normalisations nor embeddings."""
    return row.activation_norm is not None and not any(word in row.kind for word in _MATRIX_KINDS_ONLY)


def _dtype(subject: Subject) -> str:
    return str(next(subject.model.parameters()).dtype).removeprefix("torch.")


def _settings(params: Params) -> dict[str, str]:
    names = (
        "family",
        "activation",
        "init",
        "gain",
        "lr",
        "optimizer",
        "reduction",
        "trap",
        "loss",
        "steps",
        "clip_limit",
    )
    return {name: str(getattr(params, name)) for name in names} | {
        "norm": params.norm_used,
        "residual": str(params.residual_used),
        "norm_position": params.norm_position,
        "error_if_nonfinite": str(params.error_if_nonfinite),
    }


def _nothing(params: Params, fault: Fault, said: Said = SILENT) -> Result:
    """The result of a program that left nothing to measure but what it said."""
    return Result(
        headline=Headline(None, None, None, None),
        layers=(),
        layers_cut=0,
        steps=(),
        loss=(),
        final_loss=None,
        loss_name="",
        batch_size=None,
        clipping=Clipping(params.clip, None, params.norm_type, (), None, {}, "", "", 0),
        prediction=Prediction(False, "Nothing was measured."),
        first_nonfinite=None,
        first_nonfinite_step=None,
        parameters=0,
        tied=False,
        dtype=params.dtype,
        instrument_s=None,
        settings=_settings(params),
        **said.fields(),
        fault=fault,
    )
