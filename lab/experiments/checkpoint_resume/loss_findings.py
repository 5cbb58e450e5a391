"""Lost state as findings: what was there, what is there now, the lines, and what to change."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lab.contract import Finding, Level, Site
from lab.experiments.checkpoint_resume.readings import short
from lab.experiments.checkpoint_resume.schema import Result
from lab.quantities import bytes_text
from lab.records.resume import StateLoss

Told = tuple[Level, str, str, str, str, str]
"""Level, title, text, repair, role of the first line, role of the other."""


def loss_findings(result: Result) -> Iterator[Finding]:
    """One a loss, in their order."""
    for loss in result.losses:
        level, title, text, repair, role, other = _TOLD[loss.cause](loss)
        sites = [Site(loss.line, role, loss.name, loss.before, loss.after)]
        if loss.other_line and loss.other_line != loss.line:
            sites.append(Site(loss.other_line, other, loss.name))
        yield Finding(
            level=level, title=title, text=text, evidence={"before": loss.before, "after": loss.after, **_counted(loss)},
            line=loss.line, repair=repair, sites=tuple(sites),
        )  # fmt: skip


def _counted(loss: StateLoss) -> dict[str, float]:
    return {"number": loss.number, "of": loss.total} if loss.total else {}


def _number(value: float | str) -> str:
    return short(value) if isinstance(value, float) else str(value)


def _nothing(loss: StateLoss) -> Told:
    title = f"0 of {loss.total:.0f} tensors were loaded"
    if not loss.after:
        text = "The state dict that arrived was empty, and strict=False does not complain."
        return "warning", title, text, "Rename the keys instead of deleting them.", "emptied here", "loaded here"
    if loss.before:
        text = f"Every name in the state dict begins with {loss.before!r}, so each is unexpected and each of the model's is missing. strict=False says so only in the answer that the call returns."
        repair = f"Load {{k.removeprefix({loss.before!r}): v for k, v in state.items()}}, and read missing_keys."
        return "warning", title, text, repair, "loads nothing", ""
    text = f"No name of the state dict is one of the model's ({', '.join(loss.names)} …). strict=False says so only in the answer."
    return "warning", title, text, "Read missing_keys and unexpected_keys of the answer.", "loads nothing", ""


def _partly(loss: StateLoss) -> Told:
    title = f"{loss.number:.0f} of {loss.total:.0f} tensors were loaded"
    rest = ", ".join(loss.names)
    text = f"{rest} {'keeps the value' if len(loss.names) == 1 else 'keep the values'} from when the model was built: the state dict has no such name."
    return "fact", title, text, "", "loaded in part", ""


def _on_meta(loss: StateLoss) -> Told:
    title = f"{loss.number:.0f} of {loss.total:.0f} tensors still have no memory"
    text = "The model was built on the meta device. Copying into a tensor without memory does nothing; only a warning says so."
    return "warning", title, text, "load_state_dict(state, assign=True)", "copied into nothing", ""


def _optimizer(loss: StateLoss) -> Told:
    title = f"The {loss.name} on line {loss.line} starts without the state of the one before"
    text = (
        f"It went on from the same weights at the same rate, and its state was empty at its first step; the state dict of line {loss.other_line} held some for "
        f"{loss.number:.0f} {'parameter' if loss.number == 1 else 'parameters'}. Its first step moved a weight by up to {_number(loss.after)}, the last step before by {_number(loss.before)}."
    )
    return (
        "warning",
        title,
        text,
        "optimizer.load_state_dict(...) after the model's.",
        "built without state",
        "state was taken here",
    )


def _lr_replaced(loss: StateLoss) -> Told:
    title = f"The learning rate in use is {_number(loss.after)}, not {_number(loss.before)}"
    text = f"load_state_dict replaces the settings of the groups too. {_number(loss.before)} was asked for on line {loss.other_line}."
    return (
        "surprise",
        title,
        text,
        "Set group['lr'] for each group after loading, and the base_lrs of a schedule as well.",
        "replaced here",
        "asked for here",
    )


def _lr_reset(loss: StateLoss) -> Told:
    title = f"Building the schedule set the rate back from {_number(loss.before)} to {_number(loss.after)}"
    text = f"The optimizer's state was loaded on line {loss.other_line} with the rate {_number(loss.before)}. A schedule that is built afterwards starts from the first rate again."
    return (
        "warning",
        title,
        text,
        "Build optimizer and schedule first, then load both.",
        "rate set back here",
        "rate loaded here",
    )


def _scheduler(loss: StateLoss) -> Told:
    title = f"The schedule counts {loss.after} where {loss.before} was due"
    text = f"The {loss.name} on line {loss.line} was built anew and never loaded, while its optimizer was. The rate is {_number(loss.number)} now."
    return (
        "warning",
        title,
        text,
        "scheduler.load_state_dict(...) with the state of line " + str(loss.other_line) + ".",
        "counts from 0",
        "state was taken here",
    )


def _scaler(loss: StateLoss) -> Told:
    title = f"The scale starts at {_number(loss.after)}; it stood at {_number(loss.before)}"
    text = "A scaler that is built anew begins with its first scale: other gradients underflow, or the first steps overflow and are skipped."
    return "warning", title, text, "scaler.load_state_dict(...)", "built without state", "state was taken here"


def _order(loss: StateLoss) -> Told:
    title = f"{loss.number:.0f} optimizer {'state' if loss.number == 1 else 'states'} landed on another parameter"
    quiet = (
        f" {loss.total:.0f} of them have the same shape: nothing complains."
        if loss.total
        else " Their shapes differ: the next step fails."
    )
    text = f"State is matched by position, not by name: {', '.join(loss.names)}.{quiet}"
    return (
        "warning",
        title,
        text,
        "Give the optimizer its parameters in the order in which they were when the state was saved.",
        "other order here",
        "loaded here",
    )


def _view(loss: StateLoss) -> Told:
    before, after = int(loss.before), int(loss.after)
    title = f"{bytes_text(after)} are stored for {bytes_text(before)} of tensors"
    text = "A tensor that is a part of a larger storage is saved with all of it."
    return "surprise", title, text, "Save tensor.clone().", "saved here", ""


def _groups(loss: StateLoss) -> Told:
    title = f"{loss.name} is no longer the optimizer's: {_number(loss.before)} there, {_number(loss.after)} in use"
    text = (
        f"load_state_dict on line {loss.other_line} made new group dictionaries; {loss.name} still holds the old ones."
    )
    return (
        "warning",
        title,
        text,
        "Ask the optimizer each time: optimizer.param_groups.",
        "kept here",
        "groups replaced here",
    )


def _permutation(loss: StateLoss) -> Told:
    title = "The order of the samples was drawn again, and is another one"
    text = (
        f"The generator's state of line {loss.other_line} was taken after line {_number(loss.before)} had drawn its permutation of {loss.number:.0f}. "
        f"Set back on line {_number(loss.after)}, it gives a different one: skipping what was done skips the wrong samples."
    )
    repair = "Save the permutation and the position, or give the sampler a generator of its own whose state is saved before it draws."
    return "warning", title, text, repair, "drawn again here", "state was taken here"


_TOLD: dict[str, Callable[[StateLoss], Told]] = {
    "nothing loaded": _nothing, "partly loaded": _partly, "on meta": _on_meta, "optimizer fresh": _optimizer,
    "lr replaced": _lr_replaced, "lr reset": _lr_reset, "scheduler fresh": _scheduler, "scaler fresh": _scaler,
    "another order": _order, "view saved": _view, "groups kept": _groups, "permutation drawn again": _permutation,
}  # fmt: skip
