"""The batch that BatchNorm refuses."""

from __future__ import annotations

from dataclasses import replace

from lab.contract import Fault
from lab.experiments.train_eval.schema import Params
from lab.program.explain import explain_fault


def batchnorm_fault(error: ValueError, params: Params) -> Fault:
    """The batch that BatchNorm refused."""
    fault = explain_fault(error)
    if params.track_running_stats:
        return fault
    told = "Without running statistics the layer uses the batch in eval mode too, so eval() does not help."
    return replace(fault, explanation=f"{fault.explanation} {told}")
