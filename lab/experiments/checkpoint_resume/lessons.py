"""Presets with a prediction to make, and the answers to the interview questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from lab.contract import Lesson
from lab.experiments.checkpoint_resume.programs import ADAM, PERMUTATION, PREFIX, RATE, SCHEDULE
from lab.experiments.checkpoint_resume.readings import case_bytes, moved_positions
from lab.experiments.checkpoint_resume.schema import Params, Result

_REQUIREMENT = {
    "V1": "Say which state a training carries from step to step, save all of it, and prove that a resumed run goes on as the one that never stopped.",
    "V2": "Say what a checkpoint file is, why loading one may run code, and how to load it safely on another device.",
}
_AT_ONCE, _LATER, _NEVER = "in the first loss", "some losses later", "in no training loss"


def _lesson(row: str, title: str, params: Params, question: str, choices: Mapping[str, str], answer: Callable[[Result], str], evidence: Callable[[Result], float], name: str, texts: tuple[str, str, str]) -> Lesson:  # fmt: skip
    return Lesson(
        row=row, title=title, params=params, question=question, choices=choices, answer=answer, evidence=evidence,
        evidence_name=name, requirement=_REQUIREMENT[row], mechanism=texts[0], proof=texts[1], recovery=texts[2],
        view=params.view,
    )  # fmt: skip


def _where(result: Result) -> str:
    at = result.first_different
    return _NEVER if at is None else _AT_ONCE if at == 0 else _LATER


def _gap(result: Result) -> float:
    return result.chosen.first_gap if result.chosen else float("nan")


def _rate(result: Result) -> str:
    one = result.chosen
    assert one is not None
    return (
        "the one that is due"
        if one.lr == one.lr_due
        else "the first one, 0.02"
        if one.lr == 0.02
        else "another one near it"
    )


def _value(name: str, result: Result) -> float:
    return (result.values or {})[name]


def _loaded(result: Result) -> float:
    return float(result.keys.changed) if result.keys else float("nan")


def _refused(result: Result) -> float:
    return float(sum(case.refused for case in result.refusals))


lessons = (
    _lesson(
        "V1", "everything saved", Params(leave_out="nothing"),
        "Ten parts are saved and loaded into a run that was built anew. How far apart are the losses after the stop?",
        {"about 1e-7": "Rounding differs only where the arithmetic does. Here the same operations run on the same bits.",
         "exactly 0": "Every part was restored: nothing is left that could differ.",
         "about 1e-3": "That would be another dropout mask or another batch; both generators were restored."},
        lambda r: "exactly 0" if not max(r.gap) else "about 1e-7" if max(r.gap) < 1e-5 else "about 1e-3",
        _gap, "first gap of the losses",
        ("A step is a function of weights, buffers, optimizer, schedule, scaler, average, batch order, generators and open gradients.",
         "All 60 losses after the stop are equal bit for bit, and so are the weights.",
         "Load into a run built anew under other seeds, else what was never saved is still there. Generators last."),
    ),
    _lesson(
        "V1", "the statistics of BatchNorm", Params(leave_out="buffers"),
        "Parameters are restored, buffers are not. Where does the training loss show it?",
        {_AT_ONCE: "In train mode BatchNorm uses the batch; its running statistics are not read.",
         _LATER: "They are updated in training and never read there, however long it goes on.",
         _NEVER: "Running statistics are read in eval mode alone."},
        _where, lambda r: r.eval_gap_model, "evaluation loss after loading, less before",
        ("Running mean and variance are buffers: training updates them, only evaluation reads them.",
         "60 training losses are equal bit for bit; the evaluation right after loading is 0.09 higher.",
         "Save the whole state dict, not parameters(); evaluate once before and after a resume."),
    ),
    _lesson(
        "V1", "the average of the weights", Params(leave_out="ema"),
        "The moving average of the weights is not restored. What differs right after loading?",
        {"the next training losses": "The average follows the weights; it does not act on them.",
         "nothing that is measured": "The average is what gets evaluated and shipped.",
         "its own evaluation": "Training never reads the average."},
        lambda r: "the next training losses" if r.first_different is not None else "its own evaluation" if r.eval_gap_average else "nothing that is measured",
        lambda r: r.eval_gap_average, "evaluation loss of the average after loading, less before",
        ("An average of the weights is an output of training, never an input.",
         "Training losses are equal; the average of the new run evaluates 0.99 worse at first, and closer with every step.",
         "Save the average by its own name, and evaluate it right after loading."),
    ),
    _lesson(
        "V1", "without the optimizer", Params(leave_out="optimizer"),
        "The optimizer's state is lost. Where does the training loss show it?",
        {_LATER: "The first loss is computed before the first update: it cannot know.",
         _AT_ONCE: "The first forward uses the restored weights and batch; the optimizer has not acted yet.",
         _NEVER: "The moments decide the size and direction of each update."},
        _where, _gap, "first gap of the losses",
        ("Adam's moments scale every update. Without them its first steps are about one learning rate for every weight, whatever the gradient.",
         "The first loss is equal, the next one is 0.076 apart; after 60 steps the weights differ by 11 percent.",
         "Save optimizer.state_dict(), and compare several losses after a resume."),
    ),
    _lesson(
        "V1", "without the schedule", Params(leave_out="scheduler"),
        "The optimizer's state is loaded, the schedule is built anew. Which learning rate does the next step use?",
        {"the first one, 0.02": "Loading the optimizer brought the rate of the stop back.",
         "another one near it": "The cosine goes on from the loaded rate with a counter of zero.",
         "the one that is due": "The rate at the stop is right; the counter from which the next one follows is not."},
        _rate, lambda r: r.chosen.lr if r.chosen else float("nan"), "learning rate after the first optimizer step",
        ("The rate is stored in the optimizer, the place on the curve in the schedule. Torch's cosine computes each rate from the last.",
         "0.01381 was used where 0.01309 was due; the first losses are still equal.",
         "Build optimizer and schedule, then load both. Compare rates, not losses."),
    ),
    _lesson(
        "V1", "stopped inside an accumulation", Params(leave_out="gradients", stop_after=31),
        "Gradients of two micro-steps are added, and the run stops after the 31st. The open gradients are not saved. Where does it show?",
        {_AT_ONCE: "The weights are the same: the forward does not read gradients.",
         _NEVER: "One half of a batch is missing from the next update.",
         _LATER: "The next update is the first that misses them."},
        _where, _gap, "first gap of the losses",
        ("Between two optimizer steps .grad holds state. A stop there loses a part of a batch.",
         "The first loss after loading is equal, the second differs by 0.0076.",
         "Stop at a multiple of the accumulation, or save the gradients and the count of micro-steps."),
    ),
    _lesson(
        "V1", "stopped at its end", Params(leave_out="gradients", stop_after=30),
        "The same, stopped after the 30th micro-step. Where does it show that gradients are not saved?",
        {_LATER: "After an optimizer step the gradients were cleared: nothing is open.",
         _NEVER: "There was nothing to lose at this stop.",
         _AT_ONCE: "The forward does not read gradients."},
        _where, _gap, "first gap of the losses",
        ("zero_grad leaves no gradient between two accumulations.",
         "All losses are equal bit for bit: the same fault is invisible at this stop.",
         "Test a resume inside an accumulation, inside an epoch and before the schedule's end; elsewhere half of the parts cannot show."),
    ),
    _lesson(
        "V1", "the order of the samples", Params(leave_out="sampler"),
        "The sampler's permutation and position are not saved. Where does it show?",
        {_NEVER: "Other samples have other losses.",
         _LATER: "The very first batch is another one.",
         _AT_ONCE: "The new run starts with the first batch of its own permutation."},
        _where, _gap, "first gap of the losses",
        ("Within an epoch the data order is state: a permutation, a position in it, and the generator of the next one.",
         "The first loss after loading already differs, by 0.24: some samples are seen twice in this epoch, others not at all.",
         "Save permutation, position and generator, or seed each epoch by its number and skip."),
    ),
    _lesson(
        "V1", "state by position", Params(view="keys", names="as in the model", order="layers swapped"),
        "An optimizer gets the parameters of two equal layers in swapped order and loads the state of the first. How many of its 8 states are in the wrong place?",
        {"0": "Keys of an optimizer's state are numbers: it cannot see names.", "2": "Weight and bias of both layers change places.",
         "4": "Two weights and two biases, all of equal shapes: nothing complains."},
        lambda r: f"{moved_positions(r)}", lambda r: float(moved_positions(r)), "states at another parameter",
        ("state_dict() of an optimizer has the keys 0, 1, 2 …, in the order of its groups.",
         "4 of 8 states now steer another parameter, silently, for their shapes are equal.",
         "Keep the order, or key the state by name: torch.distributed.checkpoint.state_dict."),
    ),
    _lesson(
        "V1", "Adam begins again", Params(view="program", code=ADAM),
        "Adam with learning rate 0.01 has converged to steps of 0.0005. It is built anew on the same weights. How far does its first step move them?",
        {"0.0005": "That size came from its moments, and they are gone.", "0.01": "m / sqrt(v) is 1 in the first step, for every weight.",
         "1.0": "The gradient's size cancels in m / sqrt(v)."},
        lambda r: "0.01" if 0.005 < _value("moved", r) < 0.02 else "0.0005" if _value("moved", r) < 0.005 else "1.0",
        partial(_value, "moved"), "largest change of a weight",
        ("In its first step Adam divides a gradient by its own size: each weight moves by the learning rate.",
         "The first step moved the weights by 0.01, twenty times the last step before.",
         "Load the optimizer's state with the weights, or warm the rate up."),
    ),
    _lesson(
        "V1", "built after loading", Params(view="program", code=SCHEDULE),
        "The rate has fallen from 1.0 to 0.001. The optimizer is built and loaded, then its schedule is built. Which rate is in use?",
        {"0.001": "Loading brought it back, and then the schedule was built.", "0.1": "That would be one tick after the first rate.",
         "1.0": "A new schedule sets its optimizer to the first rate."},
        lambda r: f"{_value('rate', r):g}" if _value("rate", r) != 1 else "1.0", partial(_value, "rate"), "learning rate in use",
        ("A schedule's constructor takes its first tick and writes the rate into the optimizer.",
         "After loading 0.001 was in use; building the schedule set it back to 1.0.",
         "Build both, then load both."),
    ),
    _lesson(
        "V1", "a new rate, an old file", Params(view="program", code=RATE),
        "A run is restarted with the learning rate 1e-5; the file is from a run with 1e-3. Which is in use after loading?",
        {"1e-05": "The constructor set it; loading replaced the group's settings.", "0.001": "A group's settings are part of the state dict."},
        lambda r: f"{_value('rate', r):g}", partial(_value, "rate"), "learning rate in use",
        ("An optimizer's state dict holds its groups: learning rate, weight decay, betas.",
         "1e-5 was asked for, 0.001 is in use.",
         "Set the rate after loading, in each group and in the schedule's base_lrs."),
    ),
    _lesson(
        "V1", "skipping what was done", Params(view="program", code=PERMUTATION),
        "Six of twelve samples are done. The generator's state of that moment is restored, a permutation is drawn, six are skipped. How many samples are seen twice?",
        {"none": "The state was taken after the first permutation was drawn: the next one differs.",
         "some": "Another permutation: the skipped half is not the half that was seen.",
         "all six": "Only if the second half repeated the first."},
        lambda r: "none" if not _value("twice", r) else "all six" if _value("twice", r) == 6 else "some",
        partial(_value, "twice"), "samples seen twice",
        ("A permutation depends on the generator's state before it was drawn, not on the state in the middle of the epoch.",
         "Four samples were seen twice, and four never.",
         "Save the permutation and the position, or the generator's state before the draw."),
    ),
    _lesson(
        "V2", "what a file may hold", Params(view="loading"),
        "torch.load reads with weights_only. Which of 17 kinds of object does it refuse?",
        {"whole modules only": "Every name outside tensors, containers and numbers is refused, numpy's too.",
         "none that torch wrote itself": "torch.save writes any object that pickle takes, and load refuses what could run code.",
         "whatever needs a class of its own": "Namespaces, dataclasses, enumerations, dates, paths, numpy and modules need one."},
        lambda r: "whole modules only" if _refused(r) == 1 else "whatever needs a class of its own" if _refused(r) else "none that torch wrote itself",
        _refused, "kinds that are refused",
        ("Unpickling calls whatever functions the file names. weights_only allows a fixed list of them.",
         "Ten of 17 kinds are refused, each with the name that it asked for.",
         "Store plain data. Allow classes with safe_globals only for files whose origin you trust."),
    ),
    _lesson(
        "V2", "ten floats", Params(view="file"),
        "Ten floats that are a slice of 100,000 are saved. How large is the file?",
        {"40 bytes": "A file has a container of over a kilobyte, and more is saved than the slice.",
         "about 1.6 kB": "That is the size for a clone of the slice.",
         "about 400 kB": "The slice is a view: its whole storage is saved."},
        lambda r: "40 bytes" if case_bytes(r, "a view of 10 floats") < 100 else "about 1.6 kB" if case_bytes(r, "a view of 10 floats") < 10_000 else "about 400 kB",
        lambda r: case_bytes(r, "a view of 10 floats"), "bytes of the file",
        ("torch.save writes storages, so that tensors which share memory share it again after loading.",
         "401,577 bytes for the view, 1,577 for its clone.",
         "clone() what is a part of something larger before it is saved."),
    ),
    _lesson(
        "V2", "compiled, then loaded", Params(view="program", code=PREFIX),
        "The state dict of a compiled model is loaded into a plain one with strict=False. How many of its 4 tensors arrive?",
        {"4": "The names differ: each begins with _orig_mod.", "2": "All names carry the prefix, weights and biases.",
         "0": "No name fits, and strict=False does not complain."},
        lambda r: f"{_value('loaded', r):g}", partial(_value, "loaded"), "tensors that were loaded",
        ("A wrapper keeps the model as a submodule, so every name gets its prefix. strict=False ignores names that do not fit.",
         "0 of 4 tensors were loaded; every name is both missing and unexpected.",
         "Save the inner model's state dict or strip the prefix, and read the answer of load_state_dict."),
    ),
    _lesson(
        "V2", "a model without memory", Params(view="keys", names="as in the model", meta=True),
        "A model built on the meta device loads a fitting state dict. How many of its 11 tensors hold the values of the file?",
        {"11": "Copying into a tensor without memory does nothing.", "0": "They stay without memory; only a warning says so.",
         "8": "Parameters and buffers are treated alike."},
        lambda r: f"{_loaded(r):g}", _loaded, "tensors that were loaded",
        ("Meta tensors have a shape and no memory. load_state_dict copies into what is there.",
         "0 of 11 hold the file's values, and no error is raised.",
         "assign=True puts the file's tensors in their place."),
    ),
)  # fmt: skip
