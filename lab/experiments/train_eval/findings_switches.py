"""What to notice in the matrix of both switches and in the scan of a model."""

from __future__ import annotations

from collections.abc import Iterator

from lab.contract import Finding
from lab.experiments.train_eval import readings
from lab.experiments.train_eval.findings_state import state_of_model
from lab.experiments.train_eval.schema import Result
from lab.quantities import bytes_text, number_text
from lab.records.modes_models import Ignorer, ModelScan


def both_switches(result: Result) -> Iterator[Finding]:
    rows = {(r.mode, r.gradients): r for r in result.switches or ()}
    eval_grad, train_off, eval_off = rows["eval", "grad"], rows["train", "no_grad"], rows["eval", "no_grad"]
    yield Finding(
        level="surprise",
        title="eval() leaves gradients on",
        text=f"After eval() the output still has requires_grad={eval_grad.requires_grad}, a graph of {eval_grad.graph_nodes} nodes, and "
        f"{bytes_text(eval_grad.saved_bytes)} kept for a backward that nobody will call.",
        evidence={
            "saved_bytes": eval_grad.saved_bytes,
            "with no_grad_bytes": eval_off.saved_bytes,
            "nodes": eval_grad.graph_nodes,
        },
        repair="Predict in eval mode and under torch.inference_mode().",
        change={"mode": "eval", "gradients": "inference_mode"},
    )
    yield Finding(
        level="surprise",
        title="no_grad leaves Dropout on and BatchNorm moving",
        text=f"In train mode under no_grad {train_off.dropped_fraction:.1%} of the active units were dropped, two calls differ by "
        f"{number_text(train_off.output_spread)}, and BatchNorm counted {train_off.batches_counted} batch.",
        evidence={"dropped": train_off.dropped_fraction, "batches counted": train_off.batches_counted},
        repair="model.eval() before validation.",
    )
    outputs = {
        mode: {rows[mode, g].output for g in ("grad", "no_grad", "inference_mode")} for mode in ("train", "eval")
    }
    same = all(len(found) == 1 for found in outputs.values())
    yield Finding(
        level="fact",
        title="The switches are independent",
        text="The mode decides what layers compute; recording decides what is remembered. With the same seed the output of a mode is "
        f"{'the same to the last bit' if same else 'not the same'} under grad, no_grad and inference_mode.",
        evidence={"distinct outputs in train mode": len(outputs["train"]), "in eval mode": len(outputs["eval"])},
    )
    yield Finding(
        level="fact",
        title="What recording costs in time",
        text="Median of several forwards of this small network, in eval mode. Larger layers hide the difference.",
        evidence={f"{g}_s": rows["eval", g].forward_s for g in ("grad", "no_grad", "inference_mode")},
    )


def modules(result: Result) -> Iterator[Finding]:
    scan, scanned = result.scan, readings.modes(result)
    assert scan
    yield from state_of_model(scanned)
    yield from _ignoring(scanned)
    yield from _both_modes(scanned)
    yield from _gaps(scanned)
    if scan.loss_train is not None and scan.loss_eval is not None:
        yield Finding(
            level="fact",
            title=f"Loss {number_text(scan.loss_train)} in train mode, {number_text(scan.loss_eval)} in eval mode",
            text=f"Same weights, same data; {scan.loss_name}.",
            evidence={"train mode": scan.loss_train, "eval mode": scan.loss_eval},
        )


def _ignoring(scanned: ModelScan) -> Iterator[Finding]:
    for call in scanned.ignoring[:2]:
        if not call.registered:
            yield _out_of_reach(call, scanned)
            continue
        where = f" in {call.module}" if call.module else ""
        yield Finding(
            level="warning",
            title=f"{call.function} ignores eval(){where}",
            text=f"It ran with {call.argument or 'no argument that could switch it off'} while every module was in eval mode. Two calls after eval() "
            f"differ by {scanned.eval_spread:.1%} of the output.",
            evidence={"relative distance of two eval outputs": scanned.eval_spread, "kind": call.kind},
            line=call.line,
            repair="dropout_p=self.p if self.training else 0.0"
            if "dropout_p" in call.argument
            else "training=self.training",
        )


def _out_of_reach(call: Ignorer, scanned: ModelScan) -> Finding:
    name = call.module.strip("() ") or call.function
    if call.held:
        where, repair = (
            f"It lies in {call.held}, a plain container: what lies there is not registered",
            f"Make {call.held} an nn.ModuleList or nn.ModuleDict.",
        )
    elif call.made_anew:
        where, repair = (
            "Every forward makes it anew, in train mode, and it is not registered",
            "Make it once, in __init__, as an attribute of the module.",
        )
    else:
        where, repair = (
            "It is not registered as a submodule",
            "Make it an attribute of a module of the model.",
        )
    return Finding(
        level="warning",
        title=f"{name} is no submodule: eval() does not reach it",
        text=f"{where}, so model.eval() leaves it in train mode. Two calls after eval() differ by {scanned.eval_spread:.1%} of the output.",
        evidence={"relative distance of two eval outputs": scanned.eval_spread, "kind": call.kind},
        line=call.line,
        repair=repair,
    )


def _both_modes(scanned: ModelScan) -> Iterator[Finding]:
    if scanned.kept_in_eval:
        kept = ", ".join(scanned.kept_in_eval[:3]) + (" and others" if len(scanned.kept_in_eval) > 3 else "")
        yield Finding(
            level="surprise",
            title="train() leaves a part in eval mode",
            text=f"After model.train() these are in eval mode: {kept}. The model's own train() keeps them there, as one does with frozen BatchNorm.",
            evidence={"in eval mode after train()": len(scanned.kept_in_eval)},
        )
    elif scanned.in_train_mode and scanned.in_eval_mode:
        yield Finding(
            level="warning",
            title="The model is in both modes at once",
            text=f"{scanned.in_train_mode} modules are in train mode and {scanned.in_eval_mode} in eval mode. That is right for frozen BatchNorm and "
            "for MC dropout, and a mistake otherwise.",
            evidence={"in train mode": scanned.in_train_mode, "in eval mode": scanned.in_eval_mode},
            repair="model.train() or model.eval() sets all of them.",
        )


def _gaps(scanned: ModelScan) -> Iterator[Finding]:
    possible = [m for m in scanned.modules if f"{m.path} ({m.type})" not in scanned.kept_in_eval]
    changing = sorted((m for m in possible if m.gap > 0), key=lambda m: -m.gap)
    if changing:
        first = changing[0]
        together = f"; all {len(changing)} modules that change something together by {scanned.gap_together:.1%}. Gaps do not add up: one layer works on what another changed"
        yield Finding(
            level="fact",
            title=f"{first.path} ({first.type}) changes the output most",
            text=f"Alone in train mode it moves the output by {first.gap:.1%}{together if len(changing) > 1 else ''}.",
            evidence={"alone": first.gap, "together": scanned.gap_together, "modules": len(changing)},
        )
    elif not scanned.ignoring and not scanned.gap_together > 0:
        yield Finding(
            level="fact",
            title="Nothing changes under eval()",
            text="The output of this model in train mode is its output in eval mode.",
            evidence={"modules": scanned.module_count},
        )


def forgotten_eval(result: Result) -> Iterator[Finding]:
    cost = readings.cost(result)
    right, small, large = cost.row("eval"), cost.row("train", 2), cost.row("train")
    ordered, after = cost.row("sorted_in_train"), cost.row("eval_after_sorted")
    yield Finding(
        level="warning",
        title=f"Forgetting eval() costs {right.accuracy - small.accuracy:.1%} of accuracy in batches of two",
        text=f"The same trained weights answer {right.accuracy:.1%} of {cost.test_points:,} test points in eval mode, {small.accuracy:.1%} in train mode "
        f"with batches of 2, {large.accuracy:.1%} with batches of 128: the smaller the batch, the noisier its statistics.",
        evidence={"eval()": right.accuracy, "batches of 2": small.accuracy, "batches of 128": large.accuracy},
        repair="model.eval() before validation, model.train() after it.",
    )
    yield Finding(
        level="surprise",
        title="Sorted data are worse than small batches",
        text=f"When a batch holds one class only, BatchNorm subtracts what tells the classes apart: {ordered.accuracy:.1%}.",
        evidence={"shuffled": large.accuracy, "sorted by class": ordered.accuracy},
        repair="Shuffle, or evaluate in eval mode, where the batch does not matter.",
    )
    yield Finding(
        level="surprise",
        title="The forgotten pass leaves its mark",
        text=f"It stored the statistics of the test batches. eval() afterwards: loss {number_text(after.loss)} instead of {number_text(right.loss)}.",
        evidence={"loss before": right.loss, "loss after": after.loss},
        repair="Restore the buffers from a checkpoint, or recompute the statistics on training data.",
    )  # fmt: skip
