"""Track the chosen setting, set others beside it, predict it, run it out of memory. Times come from separate runs.

NOTE In which order, and why.
1. What is shown first is ready first: a small training of the lab's own runs at once, anything else is predicted before,
   since only the prediction says whether it may be run here. A deep model of equal blocks is first predicted from few of them.
2. Whatever is finished is handed over: the timeline, then settings beside it, then times, then changes.
3. Time and memory are never measured in the same run; the settings take turns under the clock. The bare run beside which the track is held is a third.
4. Everything after the timeline is priced by the runs before it, and skipped, with the reason, when it does not fit the time.
5. Other settings and changes are measured like the chosen one while that is quick; else changes are predicted.
6. The capped run is the same training again, stopped at the first request beyond the cap. The cap counts what the
   dispatcher sees, so a real card fails a little earlier: it also holds workspaces, rounding and a context.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from lab.contract import NotAvailableError, Report
from lab.experiments.memory_timeline import assemble
from lab.experiments.memory_timeline.blocks import NoPlanError
from lab.experiments.memory_timeline.clock import step_seconds
from lab.experiments.memory_timeline.depth import extrapolated
from lab.experiments.memory_timeline.fitting import largest_batch, shards
from lab.experiments.memory_timeline.on_cuda import cuda_differences
from lab.experiments.memory_timeline.oom_message import taken_apart
from lab.experiments.memory_timeline.planning import checkpoint_plan
from lab.experiments.memory_timeline.price import Price, priced
from lab.experiments.memory_timeline.rulers import allocator_models
from lab.experiments.memory_timeline.schema import Params, Result
from lab.experiments.memory_timeline.settings import Setting, changes, compared, forward_only
from lab.experiments.memory_timeline.sizing import REAL_BYTES, surely_small, too_large
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
from lab.records.memory import OOM, Allocator, Change, Prediction, Run, Seconds, Skipped
from lab.torch_private import missing, require

NEEDED = (
    *("saved tensors", "versions", "node records", "checkpoint markers", "storages", "mode stacks", "dispatch modes"),
    *("engine hooks", "engine sums", "tensor parts", "function transforms"),
)

OWN_S, LAB_S = 24.0, 45.0
"""A run that goes on beyond the timeline may take so long: a visitor's program is stopped at 40 s."""
QUICK_S = 1.0
"""Up to this long a tracked run may take, for every change to be measured and not predicted."""


def run(params: Params, report: Report) -> Result:
    """Measure, or predict, what is in memory. Faults of a visitor's program do not raise: they are in ``fault``."""
    if params.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device = cuda: this host has no CUDA device, and predictions for CUDA need one. Use cpu.")
    require(*NEEDED)
    require_working()
    params = params.resolved()
    with steady_collector():
        try:
            return _Measurement(params, report).result()
        except SubjectError as error:
            return assemble.nothing(params, error)


class _Measurement:
    """One request: the chosen setting and everything that is set beside it."""

    def __init__(self, params: Params, report: Report) -> None:
        self.params, self.report = params, _never_back(report)
        self.predicted, self.predicted_reason = params.predict, ""
        self.kept: dict[Params, Tracked] = {}
        self.times: dict[Params, Seconds] = {}
        self.time_reason = ""
        self.few_s = 0.0
        """What few blocks took."""
        self.price = Price(OWN_S if params.model == "own" else LAB_S)
        self.parts: dict[str, Any] = dict.fromkeys(
            ("prediction", "bare_peak_bytes", "oom", "allocator", "extrapolation", "fit", "plan")
        )
        self.parts["message"] = taken_apart(params.message) if params.message else None
        self.parts |= dict.fromkeys(("runs", "changes", "allocator_models", "on_cuda"), ()) | dict.fromkeys(
            ("prediction_reason", "unseen_reason", "plan_reason"), ""
        )

    def result(self) -> Result:
        """The whole; what is ready before is handed over."""
        prediction = None if surely_small(self.params) else self._predicted_first()
        chosen = self._chosen(prediction)
        self._hand_over(0.15, "the timeline is there", chosen)
        if prediction is None and not chosen.fault and self.price.affords("the prediction", 3 * chosen.seconds):
            prediction = self._predict()
        if prediction:
            self.parts["prediction"] = assemble.prediction(prediction, None if self.predicted else chosen)
        self.parts["bare_peak_bytes"], self.parts["unseen_reason"] = self._bare(chosen)
        if not chosen.fault:
            self.parts["allocator_models"] = models_of = allocator_models(prediction or chosen)
            self.parts["on_cuda"] = cuda_differences(self.params, chosen, models_of)
            if self.params.peak_only:
                self.price.skipped += [
                    Skipped(name, "Only the peak was asked for.") for name in ("settings beside it", OOM)
                ]
            else:
                for part in self._parts_in_order():
                    part(chosen, prediction)
        self.report(0.98, "reading")
        return replace(self._so_far(chosen), complete=True)

    def _parts_in_order(self) -> list[Callable[[Tracked, Tracked | None], None]]:
        """What was asked for first; for a deep model what few blocks say before what needs all of them."""
        settings = [self._compare]
        answers = [self._try_changes, self._run_out, self._fit]
        order = [*answers, *settings] if self.parts["extrapolation"] and self.predicted else [*settings, *answers]
        return [self._plan, *order] if self.params.budget_bytes else [*order, self._plan]

    def _predicted_first(self) -> Tracked | None:
        """The prediction; for a deep model after a first answer from few blocks."""
        if not prediction_missing():
            self.report(0.0, "predicting a few blocks")
            started = time.monotonic()
            found = extrapolated(self.params)
            self.few_s = time.monotonic() - started
            self.parts["extrapolation"] = found
            if found:
                self.report(0.02, "predicting all blocks", assemble.first_answer(self.params, found))
        return self._predict()

    def _chosen(self, prediction: Tracked | None) -> Tracked:
        """The chosen setting, run or predicted."""
        params = self.params
        if not self.predicted and prediction:
            self.predicted_reason = too_large(params, prediction)
            self.predicted = bool(self.predicted_reason)
        self.report(0.1, "tracking the chosen setting")
        if self.predicted:
            chosen = prediction or track(params, fake=True)
        else:
            counted = params.device == "cuda"
            if counted:
                memory_allocator.start()
            with self.price.paid(params, fake=False):
                chosen = track(params, fake=False)
            self.parts["allocator"] = self._allocator_stops(chosen) if counted else None
        self.kept[params] = chosen
        if found := self.parts["extrapolation"]:
            same = None if not self.predicted else found.peak_bytes == chosen.peak_bytes
            self.parts["extrapolation"] = replace(found, confirmed=same)
        return chosen

    def _compare(self, chosen: Tracked, prediction: Tracked | None) -> None:
        """Settings and their times, as far as the time allows."""
        settings = self._settings()
        self.parts["runs"] = self._rows(settings)
        self._hand_over(0.5, "single steps of all settings, in turns", chosen)
        if not self.predicted:
            self._clock([params for params in settings.values() if not self.kept[params].fault])
            self.parts["runs"] = self._rows(settings)
            self._hand_over(0.65, "trying changes", chosen)

    def _try_changes(self, chosen: Tracked, prediction: Tracked | None) -> None:
        self.parts["changes"] = self._changes(chosen, prediction)

    def _run_out(self, chosen: Tracked, prediction: Tracked | None) -> None:
        self.report(0.92, "running out of memory")
        cap = self.params.cap_bytes or int(0.9 * max(chosen.seen))
        if self.price.affords(OOM, self.price.of(self.params, self.predicted)):
            self.parts["oom"] = run_out_of_memory(self.params, cap, fake=self.predicted)

    def _fit(self, chosen: Tracked, prediction: Tracked | None) -> None:
        """The largest batch by predictions, and ranks by formula."""
        params, peak_bytes = self.params, max(chosen.seen)
        training = not forward_only(params)
        more: dict[str, Any] = {"shards": shards(params, chosen) if training else ()}
        if params.model == "own":
            more["largest_reason"] = "The batch is made by the program: change it there."
        elif prediction_missing():
            more["largest_reason"] = prediction_missing()
        else:
            self._hand_over(0.94, "looking for the largest batch", chosen)
            started = time.monotonic()

            def goes_on(tries: int) -> bool:
                each = (
                    (time.monotonic() - started) / (tries - 1)
                    if tries > 1
                    else self.few_s or self.price.of(params, fake=True)
                )
                self.report(0.94 + 0.003 * tries, "looking for the largest batch")
                return self.price.affords("the largest batch", each)

            more["largest"] = largest_batch(params, peak_bytes, goes_on)
            if more["largest"] is None:
                more["largest_reason"] = "It did not fit the time."
        self.parts["fit"] = assemble.fit_of(params, chosen.peak_bytes, **more)

    def _plan(self, chosen: Tracked, prediction: Tracked | None) -> None:
        """Which blocks to checkpoint under the budget."""
        fake = self.predicted
        self._hand_over(0.96, "which blocks to checkpoint", chosen)
        try:
            self.parts["plan"] = checkpoint_plan(
                self.params, lambda params, name: self._tracked(params, fake, name), fake, not self.time_reason
            )
        except NoPlanError as error:
            self.parts["plan_reason"] = str(error)

    def _hand_over(self, fraction: float, line: str, chosen: Tracked) -> None:
        self.report(fraction, line, self._so_far(chosen))

    def _so_far(self, chosen: Tracked) -> Result:
        return assemble.result(
            self.params,
            chosen,
            predicted=self.predicted,
            predicted_reason=self.predicted_reason,
            step_s=self.times.get(self.params),
            time_reason=self.time_reason,
            skipped=tuple(self.price.skipped),
            complete=False,
            **self.parts,
        )

    def _predict(self) -> Tracked | None:
        """The same training on fake tensors; None, and the reason noted, where a program needs values."""
        if why := prediction_missing():
            if self.params.predict:
                raise NotAvailableError(why)
            self.parts["prediction_reason"] = why
            return None
        self.report(0.16 if self.kept else 0.05, "predicting on tensors without data")
        try:
            with self.price.paid(self.params, fake=True):
                found = track(self.params, fake=True)
        except SubjectError as error:
            if self.params.predict:
                raise
            fault = error.fault
        else:
            if found.fault is None or self.params.predict:
                return found
            fault = found.fault
        self.parts["prediction_reason"] = f"{fault.type}: {fault.explanation or fault.message}"[:300]
        return None

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
        if not self.price.affords("the run without the instrument", chosen.seconds):
            return None, self.price.skipped[-1].reason
        self.report(0.2, "once more without the instrument, under the allocator's eyes")
        try:
            return bare_peak_bytes(self.params), ""
        except Exception as error:
            if self.params.model != "own":
                raise
            return None, f"A second run failed: {type(error).__name__}: {error}"[:300]

    def _tracked(self, params: Params, fake: bool, name: str) -> Tracked | None:
        """None when it does not fit the time, or a program cannot be trained in this way, such as a batch of 3 in 4 parts."""
        if params not in self.kept and self.price.affords(name, self.price.of(params, fake)):
            try:
                with self.price.paid(params, fake):
                    self.kept[params] = track(params, fake=fake)
            except SubjectError:
                return None
        return self.kept.get(params)

    def _settings(self) -> dict[Setting, Params]:
        """What is set beside the chosen one, as far as it could be tracked."""
        settings = {setting: setting.of(self.params) for setting in compared(self.params)}
        for number, (setting, params) in enumerate(settings.items()):
            self.report(0.25 + 0.25 * number / len(settings), f"{setting.name}: memory")
            self._tracked(params, self.predicted, setting.name)
        return {setting: params for setting, params in settings.items() if params in self.kept}

    def _rows(self, settings: Mapping[Setting, Params]) -> tuple[Run, ...]:
        return tuple(
            assemble.run_row(setting, self.kept[params], params == self.params, self.predicted, self.times.get(params))
            for setting, params in settings.items()
        )

    def _clock(self, settings: list[Params]) -> None:
        """In turns while they all fit in memory together, else one after the other."""
        seconds = 4 * sum(self.kept[params].seconds / params.steps for params in settings)  # one to warm up, 3 or more
        if not self.price.affords("the times of single steps", seconds):
            self.time_reason = self.price.skipped[-1].reason
            return
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
        found, settings, deep = [], changes(self.params), fake and self.parts["extrapolation"] is not None
        for number, setting in enumerate(settings):
            self.report(0.65 + 0.25 * number / len(settings), f"what if: {setting.name}")
            params = setting.of(self.params)
            few_s = self.few_s if deep and params not in self.kept else 0.0
            if few_s and not self.price.affords(setting.name, few_s):
                continue
            if few_s and (few := extrapolated(params)):
                found.append(assemble.change(setting, few.peak_bytes, against, self.params.card_bytes, measured=False))
                continue
            tracked = self._tracked(params, fake, setting.name)
            if tracked and not tracked.fault:
                found.append(
                    assemble.change(setting, tracked.peak_bytes, against, self.params.card_bytes, measured=not fake)
                )
        found = priced(self.params, found, self.price)
        return tuple(sorted(found, key=lambda change: -change.saving_bytes))

    def _allocator_stops(self, chosen: Tracked) -> Allocator:
        read = memory_allocator.stop()
        lines = memory_allocator.reconciled(chosen.peak_bytes, read)
        return Allocator(chosen.peak_bytes, lines=lines, **vars(read))


def _never_back(report: Report) -> Report:
    """Parts of a run come in several orders; progress only goes on."""
    furthest = 0.0

    def said(fraction: float, line: str, part: Any = None) -> None:
        nonlocal furthest
        furthest = max(furthest, fraction)
        report(furthest, line, part)

    return said


def prediction_of(params: Params) -> Prediction:
    """The prediction alone, for whoever wants to know how long it takes."""
    with steady_collector():
        return assemble.prediction(track(replace(params, predict=True), fake=True), None)
