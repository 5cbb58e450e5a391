"""What to notice, computed from the result."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from lab.contract import Finding, by_level
from lab.experiments.checkpoint_resume.loss_findings import loss_findings
from lab.experiments.checkpoint_resume.readings import never_in_training, part_words, short
from lab.experiments.checkpoint_resume.schema import LEAVE_OUT, Result
from lab.quantities import bytes_text
from lab.records.resume import Resumed

MOST = 6


def explain(result: Result) -> tuple[Finding, ...]:
    """The most pressing first."""
    return tuple(islice(by_level(_VIEWS[result.view](result)), MOST))


def _curve(result: Result) -> Iterator[Finding]:
    chosen = result.chosen
    if chosen is None:
        return
    told = [_first_sign(result, chosen), *_rate(chosen)]
    yield from reversed(told) if "scheduler" in LEAVE_OUT[chosen.left_out] else told
    hidden = never_in_training(result)
    if hidden:
        yield Finding(
            level="fact",
            title="No training loss shows these: " + ", ".join(part_words(one.left_out) for one in hidden),
            text="Each was left out in turn and every training loss stayed equal, bit for bit. Evaluation right after loading shows it: "
            + "; ".join(f"{part_words(one.left_out)}, {_evaluation(one)}" for one in hidden)
            + ".",
            evidence={part_words(one.left_out): one.eval_gap_model or one.eval_gap_average for one in hidden},
        )


def _rate(chosen: Resumed) -> Iterator[Finding]:
    if chosen.lr != chosen.lr_due:
        yield Finding(
            level="surprise", title="The learning rate is another one",
            text=f"After the first optimizer step it is {short(chosen.lr)}; {short(chosen.lr_due)} is due.",
            evidence={"learning rate": chosen.lr, "due": chosen.lr_due},
            repair="Build optimizer and schedule, then load both.",
        )  # fmt: skip


def _first_sign(result: Result, chosen: Resumed) -> Finding:
    """Where what was left out shows first: the point of the page."""
    steps, what = len(result.straight), part_words(chosen.left_out)
    evidence = {
        "first different step": chosen.first_different, "first gap": chosen.first_gap,
        "weights apart": chosen.weights_apart, "evaluation of the model": chosen.eval_gap_model,
        "evaluation of the average": chosen.eval_gap_average,
    }  # fmt: skip
    nothing_lost = not LEAVE_OUT.get(chosen.left_out, ("unknown",))
    evaluation = chosen.eval_gap_model or chosen.eval_gap_average
    if chosen.first_different is None and not chosen.weights_apart and not evaluation:
        title = "It goes on bit for bit" if nothing_lost else f"Without {what} nothing differs here"
        text = f"All {steps} losses after the stop are equal in every bit, and so are the weights and the evaluation."
        return Finding(level="fact", title=title, text=text, evidence=evidence)
    if chosen.first_different is None:
        also = f" The weights are {_percent(chosen.weights_apart)} apart at the end." if chosen.weights_apart else ""
        return Finding(
            level="surprise",
            title=f"Without {what} no training loss differs, evaluation does",
            text=f"All {steps} training losses are equal in every bit. Right after loading the evaluation loss is {_evaluation(chosen)}.{also}",
            evidence=evidence,
            repair="Evaluate once right after loading and compare with the evaluation before the stop.",
        )
    at, gap = chosen.first_different, short(chosen.first_gap)
    weights = f" After {steps} steps the weights are {_percent(chosen.weights_apart)} apart."
    if at == 0:
        return Finding(
            level="warning", title=f"Without {what} the very first loss differs",
            text=f"The first loss after loading is {gap} away.{weights}", evidence=evidence,
            repair="Save it and load it; generators last, for building a model draws from them.",
        )  # fmt: skip
    equal = "the first loss is equal" if at == 1 else f"the first {at} losses are equal"
    return Finding(
        level="surprise", title=f"Without {what} {equal}",
        text=f"After loading, {equal} in every bit; step {at} is the first that differs, by {gap}.{weights} To look at the first loss alone proves nothing.",
        evidence=evidence, repair="Save it and load it, and compare several steps, not the first one.",
    )  # fmt: skip


def _evaluation(one: Resumed) -> str:
    if one.eval_gap_model:
        return f"{one.eval_gap_model:+.3g} for the model"
    return f"{one.eval_gap_average:+.3g} for the average of the weights"


def _percent(share: float) -> str:
    return f"{share * 100:.2g} %"


def _file(result: Result) -> Iterator[Finding]:
    by = {case.what: case for case in result.files}
    view, clone = by["a view of 10 floats"], by["its clone"]
    if view.bytes > 2 * clone.bytes:
        yield Finding(
            level="surprise", title="A view is saved with its whole storage",
            text=f"10 floats of a large tensor make a file of {bytes_text(view.bytes)}; their clone makes one of {bytes_text(clone.bytes)}. Tensors that share memory share it again after loading, so the storage goes along.",
            evidence={"view_bytes": view.bytes, "clone_bytes": clone.bytes}, repair="Save tensor.clone() of what is a part of something larger.",
        )  # fmt: skip
    once, twice = by["two names of one tensor"], by["two tensors"]
    if once.bytes < 0.6 * twice.bytes:
        yield Finding(
            level="fact", title="One tensor under two names is stored once",
            text=f"{bytes_text(once.bytes)} against {bytes_text(twice.bytes)} for two tensors of the same size.",
            evidence={"shared_bytes": once.bytes, "separate_bytes": twice.bytes},
        )  # fmt: skip
    gpu = by.get("a file written on a GPU")
    mapped = by["the same, mapped to the CPU"]
    if gpu is not None and gpu.refused and not mapped.refused:
        yield Finding(
            level="fact", title="A file from a GPU does not load here as it is",
            text="Each tensor comes back to the device on which it was saved, and this host has no CUDA device. With map_location it loads.",
            evidence={"refused": 1, "mapped": "loads"}, repair='torch.load(file, map_location="cpu")',
        )  # fmt: skip
    cut = by["half of a file"]
    if cut.refused:
        yield Finding(
            level="fact", title="A file that was not written to its end cannot be read at all",
            text="The table of contents of the archive is its last part.", evidence={"bytes": cut.bytes},
            repair="Write to another name, then os.replace it: the old file stays until the new one is whole.",
        )  # fmt: skip
    largest = max(result.parts, key=lambda part: part.bytes)
    yield Finding(
        level="fact", title=f"The whole checkpoint has {bytes_text(result.file_bytes)}",
        text=f"The largest of its {len(result.parts)} parts is {part_words(largest.name)}: {bytes_text(largest.bytes)} in a file of its own, of which {bytes_text(largest.tensor_bytes)} are tensors.",
        evidence={"file_bytes": result.file_bytes, "largest_bytes": largest.bytes},
    )  # fmt: skip


def _keys(result: Result) -> Iterator[Finding]:
    keys = result.keys
    if keys is None:
        return
    total = keys.matched + len(keys.missing) + sum(row.state == "another shape" for row in keys.rows)
    prefix = f" Every name in the file begins with {keys.prefix!r}, none of the model's does." if keys.prefix else ""
    said = (
        " torch raised an error and names what does not fit."
        if keys.error
        else " Nothing was raised."
        if keys.changed < total
        else ""
    )
    evidence = {
        "loaded": keys.changed,
        "tensors": total,
        "missing": len(keys.missing),
        "unexpected": len(keys.unexpected),
    }
    if keys.on_meta:
        yield Finding(
            level="warning", title=f"{keys.on_meta} of {total} tensors still have no memory",
            text="The model was built on the meta device: copying into a tensor without memory does nothing, and only a warning says so.",
            evidence=evidence, repair="load_state_dict(state, assign=True): the file's tensors take their place.",
        )  # fmt: skip
    elif keys.changed < total:
        repair = (
            f"{{k.removeprefix({keys.prefix!r}): v for k, v in state.items()}}"
            if keys.prefix
            else "Read the answer: missing_keys and unexpected_keys."
        )
        yield Finding(
            level="warning" if not keys.error else "fact", title=f"{keys.changed} of {total} tensors were loaded",
            text=f"{len(keys.missing)} names are missing in the file, {len(keys.unexpected)} are in it and not in the model.{prefix}{said}",
            evidence=evidence, repair=repair,
        )  # fmt: skip
    else:
        yield Finding(
            level="fact",
            title=f"All {total} tensors were loaded",
            text="Each equals the file's, bit for bit.",
            evidence=evidence,
        )
    moved = [p for p in result.positions if p.saved_for != p.loaded_into]
    quiet = [p for p in moved if p.saved_shape == p.shape]
    if moved:
        some = quiet or moved
        yield Finding(
            level="surprise", title=f"{len(moved)} of {len(result.positions)} optimizer states belong to another parameter now",
            text=f"An optimizer's state dict has numbers for keys: position {some[0].position} was {some[0].saved_for} and is {some[0].loaded_into} here. {len(quiet)} of them have equal shapes, so no later step complains about them.",
            evidence={"moved": len(moved), "of equal shape": len(quiet)},
            repair="Give the optimizer its parameters in the same order, or key the state by name: torch.distributed.checkpoint.state_dict.get_optimizer_state_dict.",
        )  # fmt: skip


def _loading(result: Result) -> Iterator[Finding]:
    refused = [case for case in result.refusals if case.refused]
    yield Finding(
        level="surprise" if refused else "fact", title=f"{len(refused)} of {len(result.refusals)} kinds of object do not load",
        text="A pickle may call any function while it is read. With weights_only, torch.load builds tensors, containers and numbers, and refuses every other name: "
        + ", ".join(case.what for case in refused) + ".",
        evidence={case.what: case.global_ for case in refused},
        repair="Store plain data. Allow a class by torch.serialization.safe_globals only for files whose origin you trust.",
    )  # fmt: skip


def _program(result: Result) -> Iterator[Finding]:
    if result.chosen is not None:
        lost = [part for part in result.parts if not part.restored]
        if lost:
            names = ", ".join(part_words(part.name) for part in lost)
            yield Finding(
                level="warning", title=f"{len(lost)} of {len(result.parts)} parts did not come back: {names}",
                text="Each part of the new run was compared with the file of the whole state, bit for bit. "
                + " ".join(_cost(one) for one in result.omissions),
                evidence={one.left_out: one.first_different for one in result.omissions},
                repair="Save and load these as well; generators last.",
            )  # fmt: skip
        yield _first_sign(result, result.chosen)
        return
    yield from loss_findings(result)
    if not result.events and result.fault is None:
        yield Finding(
            level="fact", title="Nothing was saved or loaded",
            text="This page follows state_dict, load_state_dict, torch.save and torch.load. The program called none of them.",
            evidence={"events": 0}, repair="Define save(run) and load(run, file), or call them in the program.",
        )  # fmt: skip


def _cost(one: Resumed) -> str:
    what = part_words(one.left_out)
    what = what[0].upper() + what[1:]
    if one.first_different is not None:
        return f"{what} alone shows at step {one.first_different}, by {short(one.first_gap)}."
    if one.eval_gap_model or one.eval_gap_average:
        return f"{what} alone shows in no training loss; evaluation is {_evaluation(one)}."
    return f"{what} alone makes no difference at this stop."


_VIEWS = {"curve": _curve, "file": _file, "keys": _keys, "loading": _loading, "program": _program}
