"""What to notice, computed from the numbers of the study."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lab.contract import Finding, by_level
from lab.experiments.train_eval import findings_batchnorm as batchnorm
from lab.experiments.train_eval import findings_dropout as dropout
from lab.experiments.train_eval import findings_switches as switches
from lab.experiments.train_eval.schema import Result

MOST = 4
_LOOKS: dict[str, Callable[[Result], Iterator[Finding]]] = {
    "masks": dropout.masks,
    "convergence": dropout.masks,
    "MC dropout": dropout.mc_dropout,
    "who listens": dropout.listeners,
    "batch by batch": batchnorm.batches,
    "batch size": batchnorm.batch_sizes,
    "serving": batchnorm.serving,
    "other norms": batchnorm.other_norms,
    "freezing": batchnorm.freezing,
    "both switches": switches.both_switches,
    "modules": switches.modules,
    "forgotten eval": switches.forgotten_eval,
}


def explain(result: Result) -> tuple[Finding, ...]:
    """At most ``MOST`` findings, warnings first. Beside a fault only what was measured in its place."""
    instead = batchnorm.batch_sizes(result) if result.sizes else ()
    found = instead if result.fault else _LOOKS[result.study](result)
    return tuple(by_level(found)[:MOST])
