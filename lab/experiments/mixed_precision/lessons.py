"""Presets with a prediction to make, and the answers to the interview questions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

from lab.contract import Lesson
from lab.experiments.mixed_precision.programs import MASK, SOFTMAX, STALE
from lab.experiments.mixed_precision.readings import measured_zero, moved, share, skips
from lab.experiments.mixed_precision.schema import Params, Result

_REQUIREMENT = "Train in 16 bits without losing gradients or updates, and say which of the two a format loses and why."


def _lesson(title: str, params: Params, question: str, choices: Mapping[str, str], answer: Callable[[Result], str], evidence: Callable[[Result], float], name: str, texts: tuple[str, str, str]) -> Lesson:  # fmt: skip
    return Lesson(
        row="H1", title=title, params=params, question=question, choices=choices, answer=answer, evidence=evidence,
        evidence_name=name, requirement=_REQUIREMENT, mechanism=texts[0], proof=texts[1], recovery=texts[2], view=params.view,
    )  # fmt: skip


def _value(name: str, result: Result) -> float:
    return (result.values or {})[name]


def _lost(result: Result) -> str:
    zero = measured_zero(result)
    return "none" if zero < 0.01 else "about a tenth" if zero < 0.3 else "more than half"


def _last_loss(result: Result) -> float:
    return result.steps[-1].loss


def _at_step(at: int) -> Callable[[Result], float]:
    return lambda result: result.steps[at].scale


lessons = (
    _lesson(
        "fp16 without a scale", Params(init_scale=1.0),
        "Twelve sigmoid layers, a real backward pass in fp16, no scaling. How many of the gradients become 0?",
        {"none": "Gradients of a deep network reach far below the smallest fp16 number, 2^-24.",
         "about a tenth": "That is what is left to lose at scale 2^16.",
         "more than half": "They lie below 2^-25, or hang on activation gradients that do."},
        _lost, measured_zero, "share that is 0 after a real backward",
        ("fp16 has forty powers of two, these gradients span fifty-one. What is below 2^-25 rounds to 0.",
         "59 percent are 0 after a real backward, 57 by casting afterwards; 7 of 13 layers get no gradient at all.",
         "Multiply the loss by a scale, unscale before the step; or take bf16."),
    ),
    _lesson(
        "fp16 with the usual scale", Params(init_scale=65536.0),
        "The same with the loss times 2^16. How many of the gradients are still 0?",
        {"about a tenth": "The window slides by sixteen powers of two; the longest tail is longer.",
         "none": "The first layer still gets none.", "more than half": "That is without a scale."},
        _lost, measured_zero, "share that is 0 after a real backward",
        ("A scale moves all gradients up by the same power of two. It does not widen the window.",
         "12 percent are 0, casting alone would say 7; layer 1 gets nothing.",
         "A larger scale until something overflows: that search is the scaler's work."),
    ),
    _lesson(
        "the same in bf16", Params(format="bf16", dtype="bf16", init_scale=1.0),
        "A real backward pass in bf16, no scaling. How many of the gradients become 0?",
        {"more than half": "bf16 has the exponents of float32.", "none": "Its window reaches down to 2^-133.", "about a tenth": "It loses digits, not range."},
        _lost, measured_zero, "share that is 0 after a real backward",
        ("bf16 gives three digits to keep the range of float32.",
         "By casting none become 0; after a real backward 0.1 percent are, and every layer gets gradients.",
         "bf16 needs no scaler; keep float32 weights, for small updates are lost in it."),
    ),
    _lesson(
        "the largest scale", Params(init_scale=2.0**24),
        "The loss is multiplied by 2^24, so that nothing becomes 0. What happens at the other end?",
        {"nothing": "The largest gradients are near 2^-5: times 2^24 they pass 65,504.", "some become infinite": "What is above 65,504 has no place in fp16.", "all become infinite": "Only the largest."},
        lambda r: "nothing" if not share(r, "fp16", 2.0**24).overflow else "some become infinite" if share(r, "fp16", 2.0**24).overflow < 0.5 else "all become infinite",
        lambda r: share(r, "fp16", 2.0**24).overflow, "share that overflows by casting",
        ("A window has two ends: the gradients span more than it is wide.",
         "0.9 percent overflow at 2^24 while a few are still 0: no scale fits all.",
         "Let the scaler settle below the overflow; where too much is lost, take bf16."),
    ),
    _lesson(
        "eight bits with one scale", Params(format="fp8 e4m3", init_scale=65536.0),
        "The gradients are stored in fp8 e4m3 with one scale of 2^16. How many become 0?",
        {"about a tenth": "Its window is 18 powers of two wide.", "about half": "One scale for all layers cannot fit.", "nearly all": "That is at scale 1."},
        lambda r: "about a tenth" if share(r, "fp8 e4m3", 65536.0).zero < 0.3 else "about half" if share(r, "fp8 e4m3", 65536.0).zero < 0.8 else "nearly all",
        lambda r: share(r, "fp8 e4m3", 65536.0).zero, "share that becomes 0 by casting",
        ("e4m3 holds 18 powers of two, gradients of one network span fifty.",
         "54 percent become 0 at 2^16, and 0.6 overflow already.",
         "A scale for each tensor, and e5m2 for gradients."),
    ),
    _lesson(
        "one bad batch", Params(view="scaler", bad_step=10, steps=20, growth_interval=2000),
        "The batch of step 10 is ten thousand times too large. What does the scaler do?",
        {"it ends with an error": "An overflow is what it is made for.", "it skips one step and halves the scale": "Its check found an infinity.",
         "it skips every step from there": "The next batch is finite again."},
        lambda r: "it skips one step and halves the scale" if skips(r) == 1 else "it skips every step from there",
        _at_step(11), "scale in the step after it",
        ("Before each step the scaler looks for infinities and NaN in the gradients; if there are any, it leaves the step out.",
         "1 step of 20 skipped, the scale went from 65,536 to 32,768.",
         "A single skip is healthy. Count them, and tell the schedule."),
    ),
    _lesson(
        "a NaN in every step", Params(view="scaler", nan=True, steps=200, growth_interval=2000),
        "The loss is NaN for a reason that has nothing to do with range. What does the scale do in 200 steps?",
        {"it stays": "Each skip halves it.", "it stops at 1": "There is no floor.", "it falls to 0": "Halved two hundred times."},
        lambda r: "it stays" if r.steps[-1].scale == r.steps[0].scale else "it falls to 0" if r.steps[-1].scale == 0 else "it stops at 1",
        lambda r: float(skips(r)), "skipped steps",
        ("The scaler takes every NaN for an overflow. No scale mends one that comes from elsewhere.",
         "200 of 200 steps skipped, the scale is exactly 0.",
         "Stop when skips do not end; find the operation that made the first NaN."),
    ),
    _lesson(
        "clip, then unscale", Params(view="scaler", clip="before unscale", growth_interval=2000),
        "Gradients are clipped to norm 1 before they are unscaled. The loss starts at 2.303. Where is it after 60 steps?",
        {"about 1.88": "That is with unscale_ before clipping.", "about 2.30": "After unscaling their norm is 1/65,536.", "NaN": "Nothing overflows."},
        lambda r: "about 2.30" if _last_loss(r) > 2.2 else "NaN" if math.isnan(_last_loss(r)) else "about 1.88",
        _last_loss, "loss in the last step",
        ("Clipping looks at the numbers in .grad, and these are 65,536 times too large.",
         "The loss ends at 2.302; with unscale_ first it ends at 1.882.",
         "scaler.unscale_(optimizer), clip, scaler.step(optimizer)."),
    ),
    _lesson(
        "small steps in bf16", Params(view="updates"),
        "Adam takes one step of 1e-5 on bf16 weights. How many of them move?",
        {"all": "Weights near 0.06 have neighbours 0.0002 apart.", "about half": "That is at 1e-4.", "about one in sixteen": "Only weights near 0 have neighbours that close."},
        lambda r: "all" if moved(r, "bf16", 1e-5) > 0.9 else "about half" if moved(r, "bf16", 1e-5) > 0.3 else "about one in sixteen",
        lambda r: moved(r, "bf16", 1e-5), "share of weights that moved",
        ("bf16 has eight bits of digits. A step of less than half the distance to the next number rounds back.",
         "6.4 percent move; the distance rule predicts 6.4.",
         "Float32 master weights, or stochastic rounding."),
    ),
    _lesson(
        "softmax of a bf16 input", Params(view="ops", code=SOFTMAX),
        "Inside autocast on a CPU a Linear feeds a softmax. In how many bits is the softmax computed?",
        {"32": "On CUDA autocast raises it; the list for CPUs is another one.", "16": "Its input has 16 bits and autocast leaves it so here."},
        lambda r: f"{_value('bits', r):g}", partial(_value, "bits"), "bits of the result",
        ("autocast lowers a list of operations and raises another; the lists differ by device and release.",
         "The softmax got bfloat16 and gave bfloat16.",
         "Measure the dtype of each operation; cast where it matters: scores.float().softmax(-1)."),
    ),
    _lesson(
        "edited inside autocast", Params(view="ops", code=STALE),
        "Inside an autocast region the weight is set to zero, and the layer is called again. What does it return?",
        {"zeros": "The weight that it used was cast before it changed.", "what it returned before": "The cast is kept until the region ends."},
        lambda r: "what it returned before" if _value("unchanged", r) else "zeros", partial(_value, "unchanged"), "both outputs are equal",
        ("autocast casts a weight once per region and keeps the copy.",
         "Both outputs are equal, though the weight is all zeros.",
         "No optimizer step and no copy into weights inside the region."),
    ),
    _lesson(
        "a mask in fp16", Params(view="ops", code=MASK),
        "The smallest fp16 number is added to scores to mask a row. How many of its 3 shares are NaN?",
        {"0": "The smallest number less twenty is below every fp16 number.", "3": "The row is all minus infinity, and softmax of that is 0/0.", "1": "The row is masked as a whole."},
        lambda r: f"{_value('nans', r):g}", partial(_value, "nans"), "NaN in the row",
        ("Adding to the largest number overflows. A row of minus infinities has no softmax.",
         "All three scores are minus infinity, all three shares are NaN.",
         "Mask with torch.where, keep one position of each row open."),
    ),
)  # fmt: skip
