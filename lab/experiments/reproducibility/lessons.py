"""Presets with a prediction to make, and the answers to the interview questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from lab.contract import Lesson
from lab.experiments.reproducibility.programs import LOADER, PREFIX, ULP
from lab.experiments.reproducibility.readings import last_gap, level, operation
from lab.experiments.reproducibility.schema import Params, Result

_REQUIREMENT = {
    "R1": "Say why two runs differ, show the first operation where they do, and what pins it.",
    "R4": "Say which sameness is meant: bits, curve or conclusion, and measure the one that is claimed.",
}


def _lesson(row: str, title: str, params: Params, question: str, choices: Mapping[str, str], answer: Callable[[Result], str], evidence: Callable[[Result], float], name: str, texts: tuple[str, str, str]) -> Lesson:  # fmt: skip
    return Lesson(
        row=row, title=title, params=params, question=question, choices=choices, answer=answer, evidence=evidence,
        evidence_name=name, requirement=_REQUIREMENT[row], mechanism=texts[0], proof=texts[1], recovery=texts[2], view=params.view,
    )  # fmt: skip


def _value(name: str, result: Result) -> float:
    return (result.values or {})[name]


def _where(result: Result) -> str:
    first = result.first
    if first is None or first.kind != "bits":
        return "nowhere"
    return (
        "in a forward pass"
        if "forward" in first.place
        else "in a backward pass"
        if "backward" in first.place
        else "in the first operation"
    )


def _slow(result: Result) -> float:
    return result.cost["deterministic"] / result.cost["as it is"]


lessons = (
    _lesson(
        "R1", "one thread, then two", Params(change="threads"),
        "The same seed, the same program, one thread and then two. Where do the runs part first?",
        {"in a forward pass": "The forward of this network adds in the same order either way.", "in a backward pass": "A product of matrices is split among the threads, and its sums are added in another order.",
         "nowhere": "Some sums are split among the threads."},
        _where, last_gap, "relative gap of the parameters after the last step",
        ("Addition of floating-point numbers is not associative, and threads decide the order.",
         "The first difference is a product in the first backward, by 1.5e-8; after six steps the weights are 2e-8 apart.",
         "Pin the number of threads, or compare within the spread over seeds."),
    ),
    _lesson(
        "R1", "one draw more", Params(change="extra draw"),
        "Before step 3 the second run draws one number and throws it away. Where do the runs part?",
        {"nowhere": "Dropout draws from the same tape, and its place has moved.", "in a forward pass": "The next dropout mask is another one.",
         "in a backward pass": "Backward draws nothing; the masks of forward differ first."},
        _where, last_gap, "relative gap of the parameters after the last step",
        ("A seed fixes a sequence. A draw more shifts everything that is drawn after it.",
         "Three steps are equal bit for bit; in step 3 the dropout mask differs, and the weights follow.",
         "Give data, dropout and initialisation generators of their own."),
    ),
    _lesson(
        "R1", "another layout of an optimizer", Params(change="optimizer form"),
        "Adam updates all tensors at once, or one after another. Do the weights differ after six steps?",
        {"yes, by rounding": "Each element goes through the same operations in the same order.", "no, not in any bit": "Hundreds of operations more, with the same results.",
         "yes, by a few percent": "The formula is the same."},
        lambda r: "no, not in any bit" if last_gap(r) == 0 else "yes, by rounding" if last_gap(r) < 1e-4 else "yes, by a few percent",
        last_gap, "relative gap of the parameters after the last step",
        ("Elementwise updates do not depend on how tensors are grouped.",
         "Other operations, and parameters that are equal bit for bit.",
         "Compare bits: a difference in the log is not one in the result."),
    ),
    _lesson(
        "R1", "checkpointing", Params(change="checkpoint"),
        "A block with dropout before it is recomputed in the backward pass. What differs?",
        {"the dropout mask": "The state of the generator is put back for the second forward.", "the last bits": "The same operations on the same numbers.",
         "nothing": "There are operations more, and every result is the same."},
        lambda r: "nothing" if last_gap(r) == 0 else "the last bits" if last_gap(r) < 1e-4 else "the dropout mask",
        last_gap, "relative gap of the parameters after the last step",
        ("A checkpoint runs the forward again with the generator as it was.",
         "More operations, gap 0.",
         "If runs part here, the block draws from another generator or changes state."),
    ),
    _lesson(
        "R1", "how many numbers were asked for", Params(view="program", change="nothing", code=PREFIX),
        "Seed 0, then randn(8) or randn(16). Are the first eight numbers the same?",
        {"yes": "From 16 numbers on the CPU draws in blocks by another algorithm.", "no": "The first numbers depend on how many are asked for."},
        lambda r: "yes" if _value("equal", r) else "no", partial(_value, "equal"), "the first eight are equal",
        ("randn on a CPU has one algorithm below 16 numbers and one in blocks of 16 above.",
         "randn(8) is not the beginning of randn(16).",
         "A layer that grows changes every number. Copy weights; do not repeat the seed."),
    ),
    _lesson(
        "R1", "a loop that only reads", Params(view="program", change="nothing", code=LOADER),
        "A DataLoader without shuffling and without workers is iterated. Has torch's generator moved?",
        {"no": "It draws a seed for its workers each time, also when there are none.", "yes": "Once for each iteration."},
        lambda r: "yes" if _value("moved", r) else "no", partial(_value, "moved"), "the generator moved",
        ("Iterating a DataLoader draws a base seed.",
         "One draw on the line of the loop.",
         "A generator of its own for each loader; then validation shifts nothing."),
    ),
    _lesson(
        "R1", "one ulp in", Params(view="program", change="nothing", code=ULP),
        "Each weight of the first layer is moved to the next number. How far apart are two ReLU networks after 100 steps?",
        {"still at rounding": "A unit has changed side by then, and the gap jumps.", "far above rounding": "The first unit that changes side carries it on."},
        lambda r: "far above rounding" if _value("far", r) else "still at rounding", partial(_value, "far"), "the gap is above 1e-5",
        ("Rounding grows slowly while all units stay on their side, and jumps when one does not.",
         "The relative gap is far above 1e-5 after 100 steps, and below 1e-6 for the first fifty.",
         "Do not chase bits over many steps: find the first operation that differs."),
    ),
    _lesson(
        "R1", "adding into the same places", Params(view="host", repeats=20),
        "The gradient of x[index] adds 65,536 rows into 50. How many distinct results do 20 calls with two threads give?",
        {"1": "Threads add in whatever order they come.", "many": "Nearly every call adds in another order.", "2, one for each thread": "The order varies from call to call."},
        lambda r: "1" if operation(r, "gradient of x[index]").distinct == 1 else "2, one for each thread" if operation(r, "gradient of x[index]").distinct == 2 else "many",
        lambda r: float(len(r.refused)), "operations that the flag refuses",
        ("Addition of floating-point numbers depends on the order, and two threads have none.",
         "Many distinct results of 20 with two threads, 1 with the flag.",
         "use_deterministic_algorithms(True), or one thread for that operation."),
    ),
    _lesson(
        "R4", "which sameness", Params(view="levels", change="threads"),
        "The same training with one thread and with two. Which levels of sameness hold?",
        {"none": "The curve is far inside the spread over seeds.", "curve and conclusion": "Bits differ in the last place.", "all three": "Sums are added in another order."},
        lambda r: "all three" if level(r, "the same bits") else "curve and conclusion" if level(r, "the same curve") and level(r, "the same conclusion") else "none",
        lambda r: r.levels[1].yardstick, "spread of the losses over five seeds",
        ("Bits are one claim, a curve within the spread over seeds another, a conclusion a third.",
         "Losses differ by less than 1e-6, over seeds by about 1.",
         "Measure the spread first: without it no difference means anything."),
    ),
)  # fmt: skip
