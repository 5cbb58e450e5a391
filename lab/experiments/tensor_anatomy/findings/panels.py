"""What the panels show, each sentence from its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lab.contract import Finding
from lab.experiments.tensor_anatomy.schema import Result


def _promotion(result: Result) -> Iterator[Finding]:
    a, b = result.chosen_pair
    pair = next(p for p in result.promotion if (p.a, p.b) == (a, b))
    if pair.result:
        other = f" NumPy gives {pair.numpy}." if pair.numpy and pair.numpy != pair.result else ""
        yield Finding(
            level="fact",
            title=f"{a} + {b} = {pair.result}",
            text=f"Measured by adding two tensors with dimensions.{other}",
            evidence={"result": pair.result},
        )
    else:
        yield Finding(
            level="surprise",
            title=f"{a} + {b} is refused",
            text=pair.reason,
            evidence={"result": "refused"},
            repair="Convert one of them first.",
        )
    works = [p for p in result.promotion if p.result]
    told = [p for p in works if p.documented]
    agree = sum(p.result == p.documented for p in told)
    yield Finding(
        level="fact" if agree == len(told) else "warning",
        title=f"{len(works)} of {len(result.promotion)} pairs add",
        text=f"{agree} of {len(told)} agree with torch.promote_types. {len(result.promotion) - len(works)} are refused.",
        evidence={"pairs": len(result.promotion), "add": len(works), "agree": agree},
    )
    differ = [p for p in works if p.numpy and p.numpy != p.result and p.a <= p.b]
    if differ:
        first = next((p for p in differ if {p.a, p.b} == {"float16", "int32"}), differ[0])
        yield Finding(
            level="surprise",
            title=f"{len(differ)} pairs come out otherwise in NumPy",
            text=f"{first.a} + {first.b} is {first.result} in torch and {first.numpy} in NumPy: torch keeps the width of the float.",
            evidence={"pairs": len(differ)},
        )
    wrapped = next((t for t in result.tiers if "uint8" in t.expression), None)
    if wrapped and wrapped.value.startswith("[44"):
        yield Finding(
            level="surprise",
            title="A Python number does not widen the format",
            text=f"{wrapped.expression} gives {wrapped.value}: {wrapped.why}.",
            evidence={"value": wrapped.value},
        )


def _precision(result: Result) -> Iterator[Finding]:
    rows = list(
        zip(
            result.errors.what,
            result.errors.dtype,
            result.errors.how,
            result.errors.size,
            result.errors.error,
            strict=True,
        )
    )
    sums = {how: error for what, dtype, how, _, error in rows if what == "sum" and dtype == "float32"}
    if sums.get("sequential", 0) > 3 * sums.get("torch", 0) > 0:
        yield Finding(
            level="fact",
            title=f"The order of a sum: {sums['sequential']:.1e} against {sums['torch']:.1e}",
            text="Relative error against float64 of the same float32 numbers, added one after the other and as torch adds them.",
            evidence={"sequential": sums["sequential"], "torch": sums["torch"]},
        )
    own = {
        size: error
        for what, dtype, how, size, error in rows
        if what == "product" and dtype == "bfloat16" and how == "own"
    }
    wide = {
        size: error
        for what, dtype, how, size, error in rows
        if what == "product" and dtype == "bfloat16" and how == "float32"
    }
    both = sorted(own.keys() & wide.keys())
    if len(both) > 1 and own[both[-1]] > 3 * wide[both[-1]]:
        k = both[-1]
        yield Finding(
            level="fact",
            title=f"K = {k:,} in bfloat16: {wide[k]:.1e} with float32 inside, {own[k]:.1e} without",
            text=f"The error of the kernel is {wide[both[0]]:.1e} at K = {both[0]} and {wide[k]:.1e} at K = {k:,}: only the result is rounded. Adding up in "
            f"bfloat16 takes it from {own[both[0]]:.1e} to {own[k]:.1e}.",
            evidence={"float32 inside": wide[k], "bfloat16 inside": own[k]},
        )
    stops = {row.dtype: row.counts_to for row in result.formats}
    if stops.get("bfloat16") == 256:
        yield Finding(
            level="surprise",
            title="A counter in bfloat16 stops at 256",
            text=f"256 + 1 rounds back to 256, for bfloat16 has 8 significant bits. float16 stops at {stops['float16']:,.0f}, float32 at {stops['float32']:,.0f}.",
            evidence={"bfloat16": stops["bfloat16"], "float16": stops["float16"]},
        )
    narrow = {
        dtype: value
        for what, dtype, _, _, value in zip(
            result.errors.what,
            result.errors.dtype,
            result.errors.how,
            result.errors.size,
            result.errors.value,
            strict=True,
        )
        if what == "sum"
    }
    if narrow.get("float16") == float("inf"):
        yield Finding(
            level="warning",
            title="The sum does not fit into float16",
            text="It is larger than 65,504, the largest float16, and came out infinite.",
            evidence={"largest": 65504},
        )


def _numpy(result: Result) -> Iterator[Finding]:
    ways = [row for row in result.bridges if row.shares is not None]
    into = [row for row in ways if row.call.startswith("torch.") and "read-only" not in row.call]
    shares = [row for row in into if row.shares]
    if shares and len(shares) < len(into):
        yield Finding(
            level="fact",
            title=f"{len(shares)} of {len(into)} ways into torch share memory",
            text=f"A write into the array arrived after {', '.join(row.call for row in shares[:3])} and {len(shares) - 3} more; not after "
            f"{', '.join(row.call for row in into if not row.shares)}.",
            evidence={"share": len(shares), "copy": len(into) - len(shares)},
        )
    constant = next((row for row in result.bridges if "read-only" in row.call), None)
    if constant and constant.shares:
        yield Finding(
            level="warning",
            title="A read-only array can be written through torch",
            text=f"{constant.call}: {constant.error}.",
            evidence={"changed": True},
            repair="torch.tensor(array) copies.",
        )
    refused = [row for row in result.bridges if row.shares is None and ":" in row.error]
    if refused:
        yield Finding(
            level="fact",
            title=f"{len(refused)} are refused",
            text="; ".join(f"{row.call}" for row in refused) + ".",
            evidence={"refused": len(refused)},
        )


def _devices(result: Result) -> Iterator[Finding]:
    moves = {row.call: row for row in result.moves}
    module, tensor = moves["m.to(torch.float64)"], moves["t.to(torch.float64)"]
    if module.same_object and tensor.same_object is False:
        yield Finding(
            level="fact",
            title="module.to keeps the object, tensor.to returns another",
            text="m.to(torch.float64) returned the same module with the same Parameter objects, and the optimizer still holds them. "
            "t.to(torch.float64) returned a new tensor; t itself is as before.",
            evidence={"module: same object": module.same_object, "tensor: same object": tensor.same_object},
        )
    meta = moves.get('m.to("meta")')
    if meta and meta.optimizer_keeps is False:
        yield Finding(
            level="surprise",
            title="To meta the parameters are new objects",
            text='After m.to("meta") the optimizer holds parameters that the model no longer has. Ties between layers come apart in the same way.',
            evidence={"optimizer keeps them": False},
            repair="Build the optimizer after the move.",
        )
    silent = [row for row in result.mixed if not row.refused_by_torch and row.refused_by_rule]
    if silent:
        yield Finding(
            level="warning",
            title=f"{len(silent)} mixtures of devices are not refused by torch",
            text=f"With one tensor on meta, {', '.join(row.call for row in silent)} return a tensor whose numbers nobody computed. The rule of one device "
            "for all inputs refuses each of them.",
            evidence={"not refused": len(silent)},
        )
    both = [row for row in result.layouts if row.contiguous and row.channels_last]
    refused = [row for row in result.layouts if row.view == "refused"]
    if refused:
        yield Finding(
            level="fact",
            title="channels_last changes strides, not the shape",
            text=f"{refused[0].tensor} has strides {list(refused[0].stride)}: view(N, -1) is refused, for C, H and W no longer lie in that order."
            + (f" {both[0].tensor[:1].upper()}{both[0].tensor[1:]} is contiguous in both formats." if both else ""),
            evidence={"stride": str(list(refused[0].stride))},
        )
    here = result.accelerator
    if here:
        yield Finding(
            level="fact",
            title=f"torch.accelerator picks {here.device} here",
            text=f"is_available() is {here.available}; {here.count} device{'s' * (here.count != 1)}. The same three lines serve cuda, mps, xpu and the CPU.",
            evidence={"available": here.available, "devices": here.count},
        )


def _data(result: Result) -> Iterator[Finding]:
    swap = result.swap
    if swap and swap.wrong_elements:
        yield Finding(
            level="warning",
            title="A swapped layout raises nothing",
            text=f"reshape gives {list(swap.shape)} as permute does, and {swap.accepted_by} takes it. Pixel (1, 2) was {_numbers(swap.pixel)} and is "
            f"{_numbers(swap.reshaped)} after reshape; {swap.wrong_elements} of {swap.elements} elements are others.",
            evidence={"wrong elements": swap.wrong_elements, "elements": swap.elements},
            repair="image.permute(2, 0, 1), and look at one pixel before and after.",
        )
    grown = [row for row in result.data if "torch.cat([tokens" in row.call]
    if len(grown) > 1:
        yield Finding(
            level="fact",
            title=f"{len(grown)} tokens, one at a time",
            text=f"The ids are int64 of shape {list(grown[0].shape)}, then {list(grown[1].shape)}: each new token is joined to the sequence, and the "
            "whole sequence goes in again.",
            evidence={"first": str(list(grown[0].shape)), "last": str(list(grown[-1].shape))},
        )
    image = next((row for row in result.data if row.data == "image"), None)
    if image and image.dtype == "uint8":
        yield Finding(
            level="fact",
            title="Images come as bytes",
            text="uint8 from 0 to 255 with channels last; a model wants floats with channels first.",
            evidence={"dtype": image.dtype},
        )


def _numbers(values: tuple[float, ...]) -> str:
    return f"({', '.join(f'{value:g}' for value in values)})"


PANELS: dict[str, Callable[[Result], Iterator[Finding]]] = {
    "promotion": _promotion,
    "precision": _precision,
    "numpy": _numpy,
    "devices": _devices,
    "data": _data,
}
