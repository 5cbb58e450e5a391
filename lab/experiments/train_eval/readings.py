"""Numbers read from a result: the one that settles each study and that its script prints last, and those of a comparison."""

from __future__ import annotations

from lab.experiments.train_eval.schema import Result
from lab.records.modes_batchnorm import Treatment
from lab.records.modes_dropout import DropoutReading
from lab.records.modes_models import ForgottenEval, ModelScan, SwitchRow


def evidence(result: Result) -> float:
    """One number a study."""
    return _HEADLINES[result.study](result)


def treatment(result: Result) -> Treatment:
    """What was done to the layer, as chosen."""
    assert result.treatments
    return next(row for row in result.treatments if row.name == result.chosen.treatment)


def combination(result: Result) -> SwitchRow:
    """The cell of the matrix that was chosen."""
    assert result.switches
    chosen = result.chosen.mode, result.chosen.gradients
    return next(row for row in result.switches if (row.mode, row.gradients) == chosen)


def dropout(result: Result) -> DropoutReading:
    """The reading of the dropout view."""
    assert result.dropout
    return result.dropout


def cost(result: Result) -> ForgottenEval:
    """What forgetting eval() costs."""
    assert result.scan
    assert result.scan.cost
    return result.scan.cost


def modes(result: Result) -> ModelScan:
    """The scan of a model."""
    assert result.scan
    assert result.scan.modes
    return result.scan.modes


def accuracy_lost(result: Result) -> float:
    """Accuracy in eval mode less that in train mode, in batches of two."""
    rows = cost(result)
    return rows.row("eval").accuracy - rows.row("train", 2).accuracy


def values_of_a_channel(result: Result) -> int:
    """n of one batch."""
    count = 1
    for extent in (result.shape[0], *result.shape[2:]):
        count *= extent
    return count


def _masks(result: Result) -> float:
    reading = dropout(result)
    if result.chosen.same_mask:
        return float(reading.same_masks)
    return reading.eval_dropped_fraction if result.module == "F.dropout" else reading.dropped_fraction


def _convergence(result: Result) -> float:
    reading = dropout(result)
    return reading.variance if result.module == "AlphaDropout" else reading.mean


def _trace(result: Result) -> float:
    if not result.batchnorm:
        return float(values_of_a_channel(result))
    last = result.batchnorm[-1]
    return last.running_mean[0] if last.running_mean else last.mode_gap


def _size(result: Result) -> float:
    assert result.sizes
    row = next(row for row in result.sizes if row.batch == result.chosen.batch)
    return float(row.values) if row.ratio is None else row.ratio


def _serving(result: Result) -> float:
    if not result.serving:
        return _size(result)
    return next(row.gap for row in result.serving if row.shift == result.chosen.shift)


def _norms(result: Result) -> float:
    assert result.norms
    return float(next(row.samples for row in result.norms if row.layer == "BatchNorm2d" and row.mode == "train"))


def _switches(result: Result) -> float:
    row = combination(result)
    return float(row.saved_bytes) if row.gradients == "grad" else row.dropped_fraction


def _modules(result: Result) -> float:
    scanned = modes(result)
    return scanned.eval_spread if scanned.eval_spread else float(sum(row.gap > 0 for row in scanned.modules))


def _listeners(result: Result) -> float:
    return float(sum(row.eval_spread > 0 for row in result.listeners or ()))


def _mc(result: Result) -> float:
    assert result.mc_dropout
    return result.mc_dropout.mean_std


_HEADLINES = {
    "masks": _masks,
    "convergence": _convergence,
    "MC dropout": _mc,
    "who listens": _listeners,
    "batch by batch": _trace,
    "batch size": _size,
    "serving": _serving,
    "other norms": _norms,
    "freezing": lambda result: float(treatment(result).batches_counted),
    "both switches": _switches,
    "modules": _modules,
    "forgotten eval": accuracy_lost,
}


def headline(result: Result) -> dict[str, float]:
    """What two runs are compared by."""
    found: dict[str, float] = {}
    if result.dropout:
        found |= {
            "share dropped": result.dropout.dropped_fraction,
            "mean": result.dropout.mean,
            "variance": result.dropout.variance,
        }
    if result.batchnorm:
        last = result.batchnorm[-1]
        found |= {"gap of the modes": last.mode_gap, "gap on fresh data": last.fresh_gap}
        found |= {"running mean, channel 0": last.running_mean[0]} if last.running_mean else {}
    if result.switches:
        here = combination(result)
        found |= {"saved_bytes": here.saved_bytes, "share dropped": here.dropped_fraction, "forward_s": here.forward_s}
    if result.scan and result.scan.modes:
        found |= {"gap together": result.scan.modes.gap_together, "modules that change": len(result.scan.modes.modules)}
    return found
