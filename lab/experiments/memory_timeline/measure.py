"""Track the chosen setting, set others beside it, predict it, run it out of memory. Times come from separate runs.

NOTE In which order, and why.
1. The prediction comes first: it costs nothing in memory, and says whether the real run may be done here at all.
2. Time and memory are never measured in the same run; the settings take turns under the clock. The bare run beside which the track is held is a third.
3. Other settings and changes are measured like the chosen one while that is quick; else changes are predicted.
4. The capped run is the same training again, stopped at the first request beyond the cap. The cap counts what the
   dispatcher sees, so a real card fails a little earlier: it also holds workspaces, rounding and a context.
"""

from __future__ import annotations

import time
from dataclasses import replace

import torch

from lab.contract import NotAvailableError, Report
from lab.experiments.memory_timeline import assemble
from lab.experiments.memory_timeline.clock import step_seconds
from lab.experiments.memory_timeline.schema import Params, Result
from lab.experiments.memory_timeline.settings import changes, compared
from lab.experiments.memory_timeline.subject import SubjectError
from lab.experiments.memory_timeline.tracking import (
    Tracked,
    bare_peak_bytes,
    run_out_of_memory,
    steady_collector,
    track,
)
from lab.instruments.memory import allocator as memory_allocator
from lab.instruments.memory.self_check import prediction_missing, require_working
from lab.records.memory import Allocator, Change, Prediction, Run, Seconds
from lab.torch_private import missing, require

NEEDED = (
    *("saved tensors", "versions", "node records", "checkpoint markers", "storages", "mode stacks", "dispatch modes"),
    *("engine hooks", "engine sums", "tensor parts", "function transforms"),
)

REAL_BYTES = {"cpu": 2 << 30}
"""A real run may have this peak; the rest is predicted. On a GPU what is free on it."""
REAL_FLOPS = 4e11
"""And about this much work a step: some ten seconds on one core."""
QUICK_S = 1.0
"""Up to this long a tracked run may take, for every change to be measured and not predicted."""


def run(params: Params, report: Report) -> Result:
    """Measure, or predict, what is in memory. Faults of a visitor's program do not raise: they are in ``fault``."""
    if params.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device = cuda: this host has no CUDA device, and predictions for CUDA need one. Use cpu.")
    require(*NEEDED)
    require_working()
    with steady_collector():
        try:
            return _Measurement(params, report).result()
        except SubjectError as error:
            return assemble.nothing(params, error)


class _Measurement:
    """One request: the chosen setting and everything that is set beside it."""

    def __init__(self, params: Params, report: Report) -> None:
        self.params, self.report = params, report
        self.predicted, self.predicted_reason = params.predict, ""
        self.kept: dict[Params, Tracked] = {}
        self.times: dict[Params, Seconds] = {}
        self.time_reason = ""

    def result(self) -> Result:
        params, report = self.params, self.report
        report(0.0, "predicting on tensors without data")
        prediction, reason = self._predict()
        if not self.predicted and prediction:
            self.predicted_reason = too_large(params, prediction)
            self.predicted = bool(self.predicted_reason)
        report(0.1, "tracking the chosen setting")
        allocator = self._allocator_starts()
        chosen = prediction if self.predicted and prediction else track(params, fake=self.predicted)
        self.kept[params] = chosen
        allocator = self._allocator_stops(chosen) if allocator else None
        bare_bytes, unseen_reason = self._bare(chosen)
        if chosen.fault:
            runs, tried, oom = (), (), None
        else:
            runs = self._runs()
            tried = self._changes(chosen, prediction)
            report(0.92, "running out of memory")
            cap = params.cap_bytes or int(0.9 * max(chosen.seen))
            oom = run_out_of_memory(params, cap, fake=self.predicted)
        report(0.98, "reading")
        return assemble.result(
            params,
            chosen,
            predicted=self.predicted,
            predicted_reason=self.predicted_reason,
            prediction=assemble.prediction(prediction, None if self.predicted else chosen) if prediction else None,
            prediction_reason=reason,
            runs=runs,
            changes=tried,
            bare_peak_bytes=bare_bytes,
            unseen_reason=unseen_reason,
            step_s=self.times.get(params),
            time_reason=self.time_reason,
            oom=oom,
            allocator=allocator,
        )

    def _predict(self) -> tuple[Tracked | None, str]:
        """The same training on fake tensors; None with the reason where a program needs values."""
        if why := prediction_missing():
            if self.params.predict:
                raise NotAvailableError(why)
            return None, why
        try:
            found = track(self.params, fake=True)
        except SubjectError as error:
            if self.params.predict:
                raise
            fault = error.fault
        else:
            if found.fault is None or self.params.predict:
                return found, ""
            fault = found.fault
        return None, f"{fault.type}: {fault.explanation or fault.message}"[:300]

    def _bare(self, chosen: Tracked) -> tuple[int | None, str]:
        """Peak of the run without the track, or why it was not measured."""
        if self.predicted:
            return None, "A prediction has no allocator."
        if self.params.device != "cpu":
            return None, "On CUDA the allocator's own numbers say it."
        if chosen.fault:
            return None, "The run ended early."
        if why := missing("allocation events"):
            return None, why
        self.report(0.2, "once more without the instrument, under the allocator's eyes")
        try:
            return bare_peak_bytes(self.params), ""
        except Exception as error:
            if self.params.model != "own":
                raise
            return None, f"A second run failed: {type(error).__name__}: {error}"[:300]

    def _tracked(self, params: Params, fake: bool) -> Tracked | None:
        """None when a program's model cannot be trained in this way, such as a batch of 3 in 4 parts."""
        if params not in self.kept:
            try:
                self.kept[params] = track(params, fake=fake)
            except SubjectError:
                return None
        return self.kept[params]

    def _runs(self) -> tuple[Run, ...]:
        """Memory of every setting, then the time of those that ran."""
        settings = {setting: setting.of(self.params) for setting in compared(self.params)}
        for number, (setting, params) in enumerate(settings.items()):
            self.report(0.25 + 0.25 * number / len(settings), f"{setting.name}: memory")
            self._tracked(params, self.predicted)
        settings = {setting: params for setting, params in settings.items() if params in self.kept}
        if not self.predicted:
            self.report(0.5, "single steps of all settings, in turns")
            self._clock([params for params in settings.values() if not self.kept[params].fault])
        return tuple(
            assemble.run_row(setting, self.kept[params], params == self.params, self.predicted, self.times.get(params))
            for setting, params in settings.items()
        )

    def _clock(self, settings: list[Params]) -> None:
        """In turns while they all fit in memory together, else one after the other."""
        together = sum(self.kept[params].peak_bytes for params in settings) <= REAL_BYTES["cpu"]
        for group in [settings] if together else [[params] for params in settings]:
            try:
                self.times |= dict(zip(group, step_seconds(group), strict=True))
            except Exception as error:
                if self.params.model != "own":
                    raise
                self.time_reason = f"A later step failed: {type(error).__name__}: {error}"[:300]

    def _changes(self, chosen: Tracked, prediction: Tracked | None) -> tuple[Change, ...]:
        fake = self.predicted or (chosen.seconds > QUICK_S and prediction is not None)
        against = prediction if fake and prediction else chosen  # a prediction knows no workspaces: like with like
        if fake and prediction_missing():
            return ()
        found, settings = [], changes(self.params)
        deadline = time.monotonic() + 20
        for number, setting in enumerate(settings):
            if time.monotonic() > deadline:
                break
            self.report(0.65 + 0.25 * number / len(settings), f"what if: {setting.name}")
            tracked = self._tracked(setting.of(self.params), fake)
            if tracked and not tracked.fault:
                found.append(assemble.change(setting, tracked, against, self.params.card_bytes, measured=not fake))
        return tuple(sorted(found, key=lambda change: -change.saving_bytes))

    def _allocator_starts(self) -> bool:
        if self.params.device != "cuda" or self.predicted:
            return False
        memory_allocator.start()
        return True

    def _allocator_stops(self, chosen: Tracked) -> Allocator:
        read = memory_allocator.stop()
        lines = memory_allocator.reconciled(chosen.peak_bytes, read)
        return Allocator(chosen.peak_bytes, lines=lines, **vars(read))


def too_large(params: Params, prediction: Tracked) -> str:
    """Why the run is predicted and not done here, or empty."""
    limit = REAL_BYTES["cpu"] if params.device == "cpu" else torch.cuda.mem_get_info()[0]
    if prediction.peak_bytes > limit:
        return f"The run would need {prediction.peak_bytes:,} B; runs up to {limit:,} B are done here, larger ones are predicted."
    tokens = params.batch * (params.seq if params.model in ("gpt", "lstm") else 1024 if params.model == "cnn" else 1)
    flops = 6 * prediction.parameters * tokens
    if params.model != "own" and params.device == "cpu" and flops > REAL_FLOPS:
        return (
            f"A step would take about {flops:.0e} operations; up to {REAL_FLOPS:.0e} are done here, more is predicted."
        )
    return ""


def prediction_of(params: Params) -> Prediction:
    """The prediction alone, for whoever wants to know how long it takes."""
    with steady_collector():
        return assemble.prediction(track(replace(params, predict=True), fake=True), None)
