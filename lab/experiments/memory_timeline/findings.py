"""What to notice in a timeline, computed from the result: faults first, then what surprises, then plain facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lab.contract import Finding, by_level
from lab.experiments.memory_timeline.faults import metadata_pairs
from lab.experiments.memory_timeline.kept_findings import LOOKS as KEPT
from lab.experiments.memory_timeline.plan_findings import LOOKS as PLAN
from lab.experiments.memory_timeline.readings import run_with
from lab.experiments.memory_timeline.retention import LOOKS as RETENTION
from lab.experiments.memory_timeline.schema import Result
from lab.experiments.memory_timeline.second_step import LOOKS as SECOND_STEP
from lab.experiments.memory_timeline.silent_parts import LOOKS as SILENT_PARTS
from lab.experiments.memory_timeline.words import category_text, module_text, phase_text
from lab.quantities import bytes_text
from lab.records.memory import Change, Run

MOST = 6
_SMALL = 0.02
"""A change of the peak below this share is called none."""


def explain(result: Result) -> tuple[Finding, ...]:
    """At most ``MOST`` things to notice, the most important first."""
    if not result.timeline.index:
        return ()
    found = [finding for look in _LOOKS for finding in look(result)]
    return tuple(by_level(found)[:MOST])


def _checkpoint_fault(result: Result) -> Iterator[Finding]:
    if result.fault and (pairs := metadata_pairs(result.fault.message)):
        position, saved, recomputed = pairs[0]
        evidence = {"tensor at position": position, "saved": saved, "recomputed": recomputed}
        yield Finding(
            level="fault", title="The second forward made another tensor", text=result.fault.explanation, evidence=evidence, line=result.fault.line,
            repair=result.fault.repair,
        )  # fmt: skip


def _why_predicted(result: Result) -> Iterator[Finding]:
    if result.predicted_reason:
        evidence = {"predicted peak_bytes": result.peak.bytes}
        yield Finding(
            level="warning", title="Predicted instead of run", text=result.predicted_reason, evidence=evidence
        )
    if result.assumed_scalars:
        text = "The model asks tensors for values. A prediction has none and answers 0 or False, so it may take another path than the real run."
        evidence = {"values assumed": result.assumed_scalars}
        yield Finding(level="warning", title="The prediction had to assume values", text=text, evidence=evidence)


def _unseen_by_prediction(result: Result) -> Iterator[Finding]:
    """Tensors of oneDNN's recurrent layer are opaque: a run sees their workspace, a prediction does not."""
    fused = sum(operation.startswith("mkldnn_rnn_layer") for operation in result.timeline.op)
    if result.predicted and fused:
        text = (
            "oneDNN runs this LSTM in one operator and keeps a workspace for backward that a prediction cannot know. "
            "The real peak on this CPU is higher; measure it with a smaller setting."
        )
        evidence = {"fused operators": fused, "predicted peak_bytes": result.peak.bytes}
        yield Finding(level="warning", title="The prediction is too low for this LSTM", text=text, evidence=evidence)


def _without_gradient(result: Result) -> Iterator[Finding]:
    if result.without_gradient and result.step_ends and any("requires_grad=True" in w.text for w in result.warned):
        text = (
            "Reentrant checkpointing runs the segment without a graph first. Where none of its inputs requires gradients, "
            "it never builds one, so the parameters inside get no gradient. torch only warns."
        )
        evidence = {"parameter tensors without .grad": result.without_gradient}
        yield Finding(
            level="warning", title="A checkpointed segment is not trained", text=text, evidence=evidence, repair="Use use_reentrant=False.",
            change={"reentrant": False},
        )  # fmt: skip


def _peak(result: Result) -> Iterator[Finding]:
    peak = result.peak
    parts = sorted(((size, name) for name, size in peak.categories.items() if size), reverse=True)
    largest = ", ".join(f"{category_text(name)} {bytes_text(size)}" for size, name in parts[:3])
    kind = "The predicted peak" if result.predicted else "The peak"
    text = f"{peak.op} of {module_text(peak.module)} runs when most is alive. The largest parts: {largest}."
    evidence = {"peak_bytes": peak.bytes, f"{category_text(parts[0][1])}_bytes": parts[0][0]} if parts else {}
    yield Finding(
        level="fact", title=f"{kind} is in {phase_text(peak.phase)}, step {peak.step + 1}", text=text, evidence=evidence
    )


def _first_change(result: Result) -> Iterator[Finding]:
    useful = [c for c in result.changes if c.saving_bytes > _SMALL * result.peak.bytes and len(c.knobs) <= 2]
    useful = [c for c in useful if not _trains_otherwise(c)] or useful
    if not useful:
        return
    best = useful[0]
    how = "measured" if best.measured else "predicted"
    others = "; ".join(f"{c.title} {bytes_text(c.saving_bytes).partition(' (')[0]}" for c in useful[1:3])
    text = f"{best.title} lowers this peak by {best.saving_bytes / result.peak.bytes:.0%} ({how})." + (
        f" Next: {others}." if others else ""
    )
    evidence = {"peak now_bytes": result.peak.bytes, "with the change_bytes": best.peak_bytes}
    yield Finding(level="fact", title=f"First: {best.title}", text=text, evidence=evidence, change=best.knobs)


def _trains_otherwise(change: Change) -> bool:
    """The change is not only about memory: another optimizer or another batch."""
    return bool({"optimizer", "batch"} & change.knobs.keys())


def _fit(result: Result) -> Iterator[Finding]:
    fit = result.fit
    if fit.fits and not result.predicted:
        return
    evidence = {"peak_bytes": fit.peak_bytes, "card_bytes": fit.card_bytes}
    caveat = f"Predicted for the kernels of {fit.device}; a CUDA card also holds a context, workspaces and rounding."
    if fit.device == "cpu":
        caveat += " It may hold less of others: its dropout masks have 1 byte an element, and attention and convolution keep other buffers."
    if fit.fits:
        yield Finding(level="fact", title="It fits on the card", text=caveat, evidence=evidence)
        return
    if not result.changes:
        yield Finding(level="warning", title="It does not fit on the card", text=caveat, evidence=evidence)
        return
    fitting = [c for c in result.changes if c.fits]
    helps = min(fitting, key=lambda c: (_trains_otherwise(c), len(c.knobs), c.peak_bytes), default=None)
    if helps is None:
        least = min((c.peak_bytes for c in result.changes), default=fit.peak_bytes)
        text = f"No change that was tried makes it fit; the smallest peak was {bytes_text(least)}. {caveat}"
        yield Finding(
            level="warning",
            title="It does not fit on the card",
            text=text,
            evidence=evidence,
            repair="Shard it, or take a larger card.",
        )
        return
    text = f"With {helps.title} the peak is {bytes_text(helps.peak_bytes)}, which fits. {caveat}"
    more = evidence | {"with the change_bytes": helps.peak_bytes}
    yield Finding(
        level="warning",
        title="It does not fit on the card",
        text=text,
        evidence=more,
        repair=helps.title,
        change=helps.knobs,
    )


def _largest_batch(result: Result) -> Iterator[Finding]:
    found = result.fit.largest
    if found and found.batch and found.peak_bytes and found.next_peak_bytes:
        text = (
            f"Predicted {len(found.tried)} times. With {found.batch:,} samples the peak is {bytes_text(found.peak_bytes)}, "
            f"with one more {bytes_text(found.next_peak_bytes)}."
        )
        evidence = {"card_bytes": result.fit.card_bytes, "peak with it_bytes": found.peak_bytes}
        change = {} if result.fit.fits else {"batch": found.batch}
        yield Finding(
            level="fact",
            title=f"The largest batch that fits is {found.batch:,}",
            text=text,
            evidence=evidence,
            change=change,
        )


def _sharding(result: Result) -> Iterator[Finding]:
    helps = next((shard for shard in result.fit.shards if shard.fits), None)
    if helps and not result.fit.fits and not any(change.fits for change in result.changes) and result.complete:
        text = (
            f"By formula: ZeRO stage {helps.stage} over {helps.ranks} ranks leaves {bytes_text(helps.peak_bytes)} on each, and "
            f"each sends {bytes_text(helps.sent_bytes)} in a step."
        )
        evidence = {"peak of a rank_bytes": helps.peak_bytes, "sent in a step_bytes": helps.sent_bytes}
        yield Finding(level="fact", title=f"Sharded over {helps.ranks} ranks it fits", text=text, evidence=evidence)


def _message(result: Result) -> Iterator[Finding]:
    if result.message:
        evidence = {f"{number.name}_bytes": number.bytes for number in result.message.numbers}
        yield Finding(
            level="warning",
            title="What the message says",
            text=result.message.verdict,
            evidence=evidence,
            repair=result.message.repair,
        )


def _fragmentation(result: Result) -> Iterator[Finding]:
    fixed = next((m for m in result.allocator_models if not m.expandable), None)
    if (
        fixed
        and fixed.failed_free_bytes >= fixed.failed_request_bytes > 0
        and result.fit.card_bytes < fixed.needed_bytes
    ):
        text = (
            f"In the model of CUDA's allocator the card fails although {bytes_text(fixed.failed_free_bytes)} are in no block when "
            f"{bytes_text(fixed.failed_request_bytes)} are asked for."
        )
        evidence = {"requested at most_bytes": fixed.requested_peak_bytes, "smallest device_bytes": fixed.needed_bytes}
        yield Finding(level="surprise", title="It would fail with enough memory free", text=text, evidence=evidence)


def _mixed_precision(result: Result) -> Iterator[Finding]:
    plain, *lower = (
        run_with(result, precision=precision, checkpoint="none")
        for precision in ("fp32", "bf16_autocast", "fp16_autocast")
    )
    low = next((run for run in lower if run), None)
    if plain is None or low is None or not plain.peak_bytes or not low.peak_bytes:
        return
    evidence = {
        "fp32 peak_bytes": plain.peak_bytes,
        "autocast peak_bytes": low.peak_bytes,
        "saved fp32_bytes": plain.saved_bytes,
        "saved autocast_bytes": low.saved_bytes,
        "weight casts at its peak_bytes": low.categories["weight_casts"],
    }
    if low.peak_bytes < (1 - _SMALL) * plain.peak_bytes:
        falls = low.saved_bytes < plain.saved_bytes
        text = (
            (
                f"Saved activations fall from {bytes_text(plain.saved_bytes)} to {bytes_text(low.saved_bytes)}. "
                if falls
                else ""
            )
            + "Matrix products run on half-size copies of the weights. Parameters, gradients and optimizer state stay float32."
        )
        saving = 1 - low.peak_bytes / plain.peak_bytes
        yield Finding(
            level="fact", title=f"Mixed precision lowers the peak by {saving:.0%}", text=text, evidence=evidence
        )
        return
    reason = (
        f"The peak is in the {phase_text(low.peak_phase)}, where everything is float32"
        if low.peak_phase in ("optimizer", "zero_grad")
        else "The half-size copies of the weights are as large as what the activations save"
        if low.categories["weight_casts"] >= plain.saved_bytes - low.saved_bytes > 0
        else "What is saved does not shrink"
        if low.saved_bytes >= plain.saved_bytes
        else "Activations are not what fills the memory here"
    )
    text = f"{reason}. Autocast shrinks saved activations only, and adds a copy of each weight it uses."
    yield Finding(
        level="surprise", title="Mixed precision does not lower this peak", text=text, evidence=evidence,
        repair="Raise the batch until activations dominate, or lower the part that the peak is made of.",
    )  # fmt: skip


def _checkpointing(result: Result) -> Iterator[Finding]:
    alike = [r for r in result.runs if "checkpoint" in r.knobs and r.knobs.get("precision", "fp32") == "fp32"]
    plain = next((r for r in alike if r.knobs["checkpoint"] == "none"), None)
    others = [r for r in alike if r.knobs["checkpoint"] != "none" and r.peak_bytes]
    if plain is None or not plain.peak_bytes or not others:
        return
    best = min(others, key=lambda r: r.peak_bytes or 0)
    if not best.segments and not result.without_gradient:
        text = "Checkpointing needs segments. This model has no repeated blocks, so nothing was recomputed and nothing saved."
        yield Finding(level="surprise", title="Nothing to checkpoint", text=text, evidence={"recomputed operations": 0})
        return
    evidence = {
        "without_bytes": plain.peak_bytes,
        "with_bytes": best.peak_bytes,
        "recomputed operations": best.recomputed_ops,
    }
    if plain.step_s and best.step_s:
        evidence |= {"step without_s": plain.step_s.median, "step with_s": best.step_s.median}
    assert best.peak_bytes is not None
    if best.peak_bytes > (1 - _SMALL) * plain.peak_bytes:
        text = _why_checkpointing_does_not_help(plain, best)
        yield Finding(level="surprise", title="Checkpointing does not lower this peak", text=text, evidence=evidence)
    else:
        saving = 1 - best.peak_bytes / plain.peak_bytes
        text = (
            "Blocks keep their inputs only and run a second time in backward: memory is paid for with one more forward."
        )
        yield Finding(
            level="fact",
            title=f"Checkpointing ({best.setting}) lowers the peak by {saving:.0%}",
            text=text,
            evidence=evidence,
        )


def _why_checkpointing_does_not_help(plain: Run, best: Run) -> str:
    kept = f"{bytes_text(best.saved_bytes)} of {bytes_text(plain.saved_bytes)}"
    if best.saved_bytes >= 0.9 * plain.saved_bytes > 0:
        return (
            f"{best.segments} segments hold their inputs, and an input is about all that such a segment saves anyway: {kept} "
            "stay. Longer segments, of several layers, save something."
        )
    if plain.categories["saved"] < 0.5 * sum(plain.categories.values()):
        return (
            f"The peak is in the {phase_text(best.peak_phase)} and made of other things: checkpointing removes saved "
            f"activations, and they are {bytes_text(plain.categories['saved'])} of it."
        )
    return (
        f"At the end of the forward {kept} stay, but the peak of the {phase_text(best.peak_phase)} has "
        f"{bytes_text(best.categories['saved'] + best.categories['recomputed'])} of activations again: segments that are "
        "recomputed, or that are not checkpointed."
    )


def _square_root(result: Result) -> Iterator[Finding]:
    lengths = [r for r in result.runs if r.knobs.get("checkpoint") == "every" and "every" in r.knobs and r.peak_bytes]
    root = next((r for r in lengths if r.square_root), None)
    best = min(lengths, key=lambda r: r.peak_bytes or 0, default=None)
    if root and best and best is not root and (best.peak_bytes or 0) < 0.98 * (root.peak_bytes or 0):
        text = (
            "Segments of √n blocks are best when all layers keep alike. Here the inside of one block is much larger than "
            "its input, so the largest segment that is recomputed decides, and it should be short."
        )
        evidence = {f"{root.setting}_bytes": root.peak_bytes, f"{best.setting}_bytes": best.peak_bytes}
        yield Finding(
            level="surprise",
            title="√n is not the best segment length here",
            text=text,
            evidence=evidence,
            change=best.knobs,
        )


def _optimizer_temporaries(result: Result) -> Iterator[Finding]:
    temporary = result.peak.categories["temporaries"]
    if result.peak.phase != "optimizer" or temporary < _SMALL * result.peak.bytes:
        return
    fused = next((c for c in result.changes if c.knobs == {"optimizer_impl": "fused"}), None)
    whole = temporary > 0.5 * result.peak.categories["parameters"]
    how = "a temporary as large as the model" if whole else "temporaries of its largest parameter"
    text = f"The optimizer computes with {how}. Activations are gone by then: {bytes_text(result.peak.categories['saved'])} saved."
    evidence = {"temporaries at the peak_bytes": temporary, "peak_bytes": result.peak.bytes}
    if fused:
        evidence["peak fused_bytes"] = fused.peak_bytes
    repair, change = (
        ("One fused kernel has none: fused=True.", fused.knobs) if fused and fused.saving_bytes > 0 else ("", {})
    )
    yield Finding(
        level="surprise",
        title="The peak is inside optimizer.step()",
        text=text,
        evidence=evidence,
        repair=repair,
        change=change,
    )


def _unseen(result: Result) -> Iterator[Finding]:
    if result.unseen_bytes and result.unseen_bytes > 0.05 * result.peak.bytes and result.timeline.unseen:
        row = max(range(len(result.timeline.unseen)), key=result.timeline.unseen.__getitem__)
        at_peak = result.peak.categories["workspaces"]
        text = (
            f"While {result.timeline.op[row]} runs, {bytes_text(result.unseen_bytes)} are alive that no tensor of the program "
            f"explains: a workspace or a copy inside a kernel. They count where they are; {bytes_text(at_peak)} at the peak."
        )
        evidence = {"unseen at most_bytes": result.unseen_bytes, "peak_bytes": result.peak.bytes}
        yield Finding(level="fact", title="Some memory is seen only by the allocator", text=text, evidence=evidence)


def _changed_by_the_instrument(result: Result) -> Iterator[Finding]:
    bare = result.bare_peak_bytes
    if bare and abs(result.peak.bytes - bare) > 0.01 * bare:
        text = (
            f"Without the instrument this run peaks at {bytes_text(bare)}. Under it some formulas of backward (of prod, cumprod "
            "or max, for instance) take another path, so the timeline is not exact here."
        )
        evidence = {"peak of the bare run_bytes": bare, "peak shown_bytes": result.peak.bytes}
        yield Finding(level="warning", title="The bare run has another peak", text=text, evidence=evidence)


_LOOKS: tuple[Callable[[Result], Iterator[Finding]], ...] = (
    _checkpoint_fault,
    _why_predicted,
    _unseen_by_prediction,
    _message,
    _fit,
    _largest_batch,
    _sharding,
    _without_gradient,
    _changed_by_the_instrument,
    *KEPT,
    *RETENTION,
    *SILENT_PARTS,
    _mixed_precision,
    _checkpointing,
    _square_root,
    _optimizer_temporaries,
    *SECOND_STEP,
    *PLAN,
    _peak,
    _first_change,
    _fragmentation,
    _unseen,
)
