"""Presets with a prediction to make, and the answers to the interview questions."""

from __future__ import annotations

from lab.contract import Lesson
from lab.experiments.memory_timeline.answers import C1, C2, C3, C4, C5, C6, C7
from lab.experiments.memory_timeline.plan_lesson import LESSON
from lab.experiments.memory_timeline.readings import (
    against,
    alive_under_cap,
    growth_bytes,
    largest_category,
    lowest,
    peak_bytes,
    peak_phase,
    unallocated_bytes,
)
from lab.experiments.memory_timeline.schema import GIB, Params, Result

_CHANGE = {
    "it falls by more than a third": "What the change acts on would have to be most of the peak; it is a part of it.",
    "it falls by less than a third": "That would be a part of the peak only. Look at what it is made of.",
    "it stays": "That is so when the peak is made of other things than the change acts on.",
    "it rises": "That needs something new at the peak that outweighs what is saved.",
}


def _allocation_growth(result: Result) -> str:
    growth = growth_bytes(result)
    return "the whole graph" if growth > 64 else "a few bytes" if growth > 0 else "nothing"


def _fits(result: Result) -> str:
    if result.fit.fits:
        return "yes, as it is"
    return "no, but a change makes it fit" if any(change.fits for change in result.changes) else "no, and nothing helps"


def _phase_of_failure(result: Result) -> str:
    """Where the capped run stopped."""
    assert result.oom is not None
    return {"optimizer": "optimizer step"}.get(result.oom.phase, result.oom.phase)


def _who_trains(result: Result) -> str:
    return "only the head" if result.without_gradient else "all of it"


def _cause(result: Result) -> str:
    """What stopped the request, by the numbers of its message."""
    assert result.message is not None
    numbers = {number.name: number.bytes for number in result.message.numbers}
    if numbers["reserved and not allocated"] >= numbers["asked for"]:
        return "free memory in pieces"
    return (
        "other processes" if numbers["neither free nor PyTorch's"] > numbers["allocated by PyTorch"] else "live tensors"
    )


_MESSAGE = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 23.64 GiB of which 1.12 GiB is free. "
    "Including non-PyTorch memory, this process has 22.52 GiB memory in use. Of the allocated memory 18.30 GiB is allocated by "
    "PyTorch, and 3.75 GiB is reserved by PyTorch but unallocated."
)
"""In the words of torch, numbers made up."""
_CATEGORIES = {
    "saved activations": "They grow with batch and sequence and can be most of it; here something else is larger.",
    "parameters": "They are counted once; Adam keeps two more numbers for each.",
    "gradients": "As large as the parameters, and not all there yet when activations are largest.",
    "optimizer state": "Twice the parameters with Adam, which is most of it when activations are small.",
}
_PHASES = {
    "forward": "The forward ends with all activations saved, but no gradient exists yet.",
    "backward": "Backward frees activations as it makes gradients.",
    "optimizer step": "Activations are gone by then; the optimizer adds temporaries to parameters, gradients and state.",
}
_GROWTH = {
    "nothing": "The list holds tensors, not numbers, so something stays.",
    "a few bytes": "After backward the graph has let go of what it saved. Has backward run?",
    "the whole graph": "Backward frees what the graph saved, also when the loss is kept.",
}

_FP32 = {"precision": "fp32", "checkpoint": "none"}
_AUTOCAST = {"precision": "bf16_autocast", "checkpoint": "none"}
_KEEPING_ALL = {"checkpoint": "none"}
_EVERY_BLOCK = {"checkpoint": "every", "every": 1}
_SEGMENTS = {
    "no checkpointing": _KEEPING_ALL,
    "every block": _EVERY_BLOCK,
    "every 3 blocks (√n)": {"checkpoint": "every", "every": 3},
    "all blocks in one": {"checkpoint": "all"},
}
_WHOLE_BATCH = {"accumulate": 1, "one_backward": False}
_BACKWARD_FOR_EACH = {"one_backward": False}
_MICRO_BATCHES = {
    "the whole batch at once": _WHOLE_BATCH,
    "4 micro-batches, backward for each": _BACKWARD_FOR_EACH,
    "4 micro-batches, one backward at the end": {"one_backward": True},
}

lessons: tuple[Lesson, ...] = (
    Lesson(
        row="C1", title="one training step, taken apart", params=Params(),
        question="A small GPT with AdamW, two steps. What is the largest part of memory at the peak?",
        choices=_CATEGORIES, answer=largest_category, evidence=peak_bytes, evidence_name="peak in bytes", **C1,
    ),
    Lesson(
        row="C1", title="the peak is inside the optimizer",
        params=Params(model="mlp", layers=4, width=256, batch=16, optimizer="adam", optimizer_impl="foreach"),
        question="An MLP with a small batch and foreach Adam. In which part of the step is most memory alive?",
        choices=_PHASES, answer=peak_phase, evidence=peak_bytes, evidence_name="peak in bytes", **C1,
    ),
    Lesson(
        row="C2", title="mixed precision that helps", view="settings",
        params=Params(batch=16, optimizer="sgd", precision="bf16_autocast"),
        question="The peak of a small GPT in fp32, then under bf16 autocast. What happens to it?",
        choices=_CHANGE, answer=lambda r: against(r, _FP32, _AUTOCAST), evidence=peak_bytes,
        evidence_name="peak in bytes", **C2,
    ),
    Lesson(
        row="C2", title="mixed precision that costs memory", view="settings",
        params=Params(model="mlp", layers=4, width=256, batch=4, optimizer="sgd", precision="bf16_autocast"),
        question="The same for an MLP with 4 samples. What does autocast do to the peak?",
        choices=_CHANGE, answer=lambda r: against(r, _FP32, _AUTOCAST), evidence=peak_bytes,
        evidence_name="peak in bytes", **C2,
    ),
    Lesson(
        row="C3", title="checkpoint every block", view="settings",
        params=Params(layers=4, optimizer="sgd", checkpoint="every"),
        question="Each block keeps its input only and runs again in backward. What happens to the peak?",
        choices=_CHANGE, answer=lambda r: against(r, _KEEPING_ALL, _EVERY_BLOCK), evidence=peak_bytes,
        evidence_name="peak in bytes", **C3,
    ),
    Lesson(
        row="C3", title="√n is for thin layers", view="settings",
        params=Params(model="mlp", layers=9, width=64, batch=1024, optimizer="sgd", checkpoint="every", every=3),
        question="Nine thin layers, a large batch. Which segments give the lowest peak?",
        choices={
            "no checkpointing": "Keeping everything is the most, not the least.",
            "every block": "Nine inputs are kept, and a thin layer has little inside to save.",
            "every 3 blocks (√n)": "Three inputs and the inside of one segment: best when all layers keep alike.",
            "all blocks in one": "The one segment is the whole network, and is recomputed whole.",
        },
        answer=lambda r: lowest(r, _SEGMENTS), evidence=peak_bytes, evidence_name="peak in bytes", **C3,
    ),
    Lesson(
        row="C3", title="checkpointing that does not help", view="settings",
        params=Params(model="mlp", layers=4, width=256, batch=8, optimizer="adam", checkpoint="every"),
        question="An MLP with 8 samples and Adam. What does checkpointing do to the peak?",
        choices=_CHANGE, answer=lambda r: against(r, _KEEPING_ALL, _EVERY_BLOCK), evidence=peak_bytes,
        evidence_name="peak in bytes", **C3,
    ),
    LESSON,
    Lesson(
        row="C3", title="a reentrant checkpoint that trains nothing",
        params=Params(model="mlp", layers=2, optimizer="sgd", checkpoint="every", reentrant=True),
        question="The old form of checkpoint around every block, on data that needs no gradient. What is trained?",
        choices={
            "all of it": "The inputs need no gradient, and the old form decides by them.",
            "only the head": "The blocks would need a graph, which a segment gets from its own parameters in the new form.",
        },
        answer=_who_trains, evidence=peak_bytes, evidence_name="peak in bytes", **C3,
    ),
    Lesson(
        row="C4", title="accumulation that raises the peak", view="settings",
        params=Params(model="mlp", layers=4, width=256, batch=64, optimizer="sgd", accumulate=4),
        question="The batch is cut into four micro-batches, with a backward for each. What happens to the peak?",
        choices=_CHANGE,
        answer=lambda r: against(r, _WHOLE_BATCH, _BACKWARD_FOR_EACH),
        evidence=peak_bytes, evidence_name="peak in bytes", **C4,
    ),
    Lesson(
        row="C4", title="one backward for all micro-batches", view="settings",
        params=Params(optimizer="sgd", accumulate=4, one_backward=True),
        question="Which way of using four micro-batches needs least memory?",
        choices={
            "the whole batch at once": "All activations of the batch are alive at the end of its forward.",
            "4 micro-batches, backward for each": "Each graph is freed before the next is built.",
            "4 micro-batches, one backward at the end": "All four graphs are alive when backward begins.",
        },
        answer=lambda r: lowest(r, _MICRO_BATCHES), evidence=peak_bytes, evidence_name="peak in bytes", **C4,
    ),
    Lesson(
        row="C4", title="gradients cleared too late",
        params=Params(optimizer="sgd", zero_grad="before_backward"),
        question="zero_grad stands between forward and backward. Where is the peak of the second step?",
        choices=_PHASES, answer=peak_phase, evidence=peak_bytes, evidence_name="peak in bytes", **C4,
    ),
    Lesson(
        row="C5", title="a list of losses, after backward",
        params=Params(model="mlp", layers=2, width=256, batch=64, steps=4, leak="loss"),
        question="losses.append(loss) after loss.backward(). What does each step leave behind in tensors?",
        choices=_GROWTH, answer=_allocation_growth, evidence=growth_bytes, evidence_name="bytes left by the last step", **C5,
    ),
    Lesson(
        row="C5", title="a list of losses, without backward",
        params=Params(model="mlp", layers=2, width=256, batch=64, steps=4, leak="loss_without_backward"),
        question="A validation loop without no_grad appends the loss. What does each step leave behind?",
        choices=_GROWTH, answer=_allocation_growth, evidence=growth_bytes, evidence_name="bytes left by the last step", **C5,
    ),
    Lesson(
        row="C5", title="retain_graph by habit", params=Params(optimizer="sgd", retain_graph=True),
        question="backward(retain_graph=True) in every step. Where is the peak of the second step?",
        choices=_PHASES, answer=peak_phase, evidence=peak_bytes, evidence_name="peak in bytes", **C5,
    ),
    Lesson(
        row="C6", title="out of memory, taken apart", view="oom", params=Params(cap_bytes=16_000_000),
        question="A card with 16 MB. Which part of the step asks for the memory that is not there?",
        choices=_PHASES, answer=_phase_of_failure, evidence=alive_under_cap,
        evidence_name="bytes alive at the failing request", **C6,
    ),
    Lesson(
        row="C6", title="ResNet-50 on a 16 GiB card", view="fit",
        params=Params(
            known_model="resnet-50", batch=256, optimizer="momentum", steps=1, predict=True, card_bytes=16 * GIB
        ),
        question="ResNet-50, fp32, 256 images of 224 × 224, SGD with momentum. Does a step fit?",
        choices={
            "yes, as it is": "Its 25.6 million parameters are little; what 53 convolutions save for 256 images is not.",
            "no, but a change makes it fit": "Activations are nearly all of it, and they shrink with the batch.",
            "no, and nothing helps": "That would be so if parameters, gradients and state alone were too much.",
        },
        answer=_fits, evidence=peak_bytes, evidence_name="peak in bytes", **C6,
    ),
    Lesson(
        row="C7", title="out of memory with memory free", view="oom",
        params=Params(model="mlp", layers=1, width=32, batch=4, optimizer="sgd", steps=1, peak_only=True, message=_MESSAGE),
        question="2.50 GiB were asked for, 1.12 GiB are free on the device, 3.75 GiB are reserved and unallocated. What stopped it?",
        choices={
            "live tensors": "They are most of the device, but what PyTorch holds in reserve is larger than the request.",
            "free memory in pieces": "What is reserved and unallocated would have to be smaller than the request.",
            "other processes": "They and the context hold what is neither free nor PyTorch's: a small rest here.",
        },
        answer=_cause, evidence=unallocated_bytes, evidence_name="reserved and unallocated, in bytes", **C7,
    ),
    Lesson(
        row="C6", title="1.3 billion parameters on a 24 GiB card", view="fit",
        params=Params(
            layers=24, width=2048, batch=4, seq=1024, optimizer_impl="fused", predict=True, card_bytes=24 * GIB
        ),
        question="A GPT with 1.3 billion parameters, fp32, fused AdamW, 4 × 1,024 tokens. Does a step fit?",
        choices={
            "yes, as it is": "Parameters, gradients and state alone are 16 bytes for each parameter, and activations come on top.",
            "no, but a change makes it fit": "Activations are a large part, and checkpointing removes most of them.",
            "no, and nothing helps": "That would be so if parameters, gradients and state alone were too much.",
        },
        answer=_fits, evidence=peak_bytes, evidence_name="peak in bytes", **C6,
    ),
)  # fmt: skip
