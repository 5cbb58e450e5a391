"""Presets with a prediction to make, and the answers to the interview questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lab.contract import Lesson
from lab.experiments.transfers.programs import CLIP, TENTH, WHERE
from lab.experiments.transfers.readings import stride_ratio, total
from lab.experiments.transfers.schema import Params, Result

_REQUIREMENT = "Keep the device's queue full: know which lines wait for it, and what makes a copy asynchronous."


def _lesson(title: str, params: Params, question: str, choices: Mapping[str, str], answer: Callable[[Result], str], evidence: Callable[[Result], float], name: str, texts: tuple[str, str, str]) -> Lesson:  # fmt: skip
    return Lesson(
        row="H7", title=title, params=params, question=question, choices=choices, answer=answer, evidence=evidence,
        evidence_name=name, requirement=_REQUIREMENT, mechanism=texts[0], proof=texts[1], recovery=texts[2], view=params.view,
    )  # fmt: skip


def _count(result: Result) -> str:
    return f"{total(result):g}"


lessons = (
    _lesson(
        "a loop with three lines too many", Params(),
        "Twenty steps, each with a loss.item(), an if on the loss and a boolean index. How often would the host wait for a GPU?",
        {"20": "Only item() has that name; the other two need a number on the host as well.", "60": "Each of the three needs a value, or the size of a result, on the host.",
         "0": "Python cannot add, decide or make room without the value."},
        _count, total, "waits",
        ("A line that needs a value on the host waits until everything queued before it has run.",
         "60 waits in 20 steps, on three lines.",
         "Add up tensors and read once; torch.where for conditions; masks that keep the shape."),
    ),
    _lesson(
        "where instead of an index", Params(code=WHERE),
        "The same selection by torch.where. How often does the host wait in 20 steps?",
        {"20": "The shape of the result is known without the values.", "1": "Nothing asks for a value before the end of the program.", "0": "No size and no value is needed on the host."},
        _count, total, "waits",
        ("A boolean index has a result whose size depends on values; torch.where keeps the shape.",
         "0 waits.",
         "Keep shapes fixed; drop rows by weights of zero."),
    ),
    _lesson(
        "logging now and then", Params(code=TENTH),
        "The loss is printed every tenth step of twenty. How often does the host wait?",
        {"20": "item() is called in two steps only.", "2": "Only a line that runs can wait.", "0": "Printing needs the number."},
        _count, total, "waits",
        ("A wait costs what is queued at that moment; two of them cost a tenth of twenty.",
         "2 waits in 20 steps.",
         "Log every so many steps, and collect tensors in between."),
    ),
    _lesson(
        "clipping by norm", Params(code=CLIP),
        "clip_grad_norm_ computes a norm and scales by it, twenty times. How often does the host wait?",
        {"20": "The factor stays a tensor, and it multiplies also where it is 1.", "40": "Neither the norm nor the decision comes to the host.", "0": "Everything stays on the device, unless error_if_nonfinite is set."},
        _count, total, "waits",
        ("The coefficient is clamped to 1 instead of being compared on the host.",
         "0 waits; the optimizer's step counters live on the host.",
         "Write decisions as arithmetic on tensors."),
    ),
    _lesson(
        "a transposed copy", Params(view="copies"),
        "Sixteen mebibytes are copied as they lie, then transposed. How do the times compare on this host?",
        {"about equal": "The same bytes, but read across the lines of the cache.", "the transposed one is slower": "Every number read comes from another line of the cache.",
         "the transposed one is faster": "Nothing about it is simpler."},
        lambda r: "about equal" if 0.67 < stride_ratio(r) < 1.5 else "the transposed one is slower" if stride_ratio(r) >= 1.5 else "the transposed one is faster",
        stride_ratio, "time of the transposed copy over that of the plain one",
        ("Memory is read in lines of 64 bytes; a column uses four of them and wastes the rest.",
         "The ratio of the shortest times, from rounds in turns.",
         "Lay data out once as it is read; move contiguous blocks."),
    ),
)  # fmt: skip
