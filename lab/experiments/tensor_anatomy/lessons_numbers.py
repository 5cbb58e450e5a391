"""Lessons whose subject is a panel: rows T4, D1 and T5."""

from __future__ import annotations

from lab.contract import Lesson
from lab.experiments.tensor_anatomy.readings import error_of
from lab.experiments.tensor_anatomy.schema import Params, Result

_BYTES = {"float16": 2, "float32": 4, "float64": 8, "int32": 4}


def _pair(result: Result) -> str:
    return next(p.result for p in result.promotion if (p.a, p.b) == result.chosen_pair)


def _own(result: Result) -> float:
    return error_of(result, "product", "bfloat16", "own", 1024)


def _size(error: float) -> str:
    return "about 4 %" if 0.02 < error < 0.08 else "about 0.2 %" if error < 0.005 else "over 50 %"


def _same_objects(result: Result) -> float:
    moves = {row.call: row for row in result.moves}
    return float(sum(bool(moves[call].same_object) for call in ("m.to(torch.float64)", "t.to(torch.float64)")))


def _wrong(result: Result) -> float:
    return float(result.swap.wrong_elements) if result.swap else float("nan")


NUMBERS = (
    Lesson(
        row="T4",
        title="int32 plus float16",
        params=Params(view="promotion", dtype_a="int32", dtype_b="float16"),
        question="An int32 tensor and a float16 tensor are added, both with dimensions. Which dtype has the sum?",
        choices={
            "float16": "The category decides first: float beats integer. Within the category the float keeps its width.",
            "float32": "That is the result for float16 and bfloat16, where neither holds the other.",
            "float64": "NumPy says so, for float16 cannot hold all int32. torch does not widen.",
        },
        answer=_pair,
        evidence=lambda r: float(_BYTES[_pair(r)]),
        evidence_name="bytes of one element",
        requirement="Say how torch picks a dtype. Assume two tensors with dimensions.",
        mechanism="Categories bool < integer < float < complex, then the wider of that category. 0-dim tensors and Python numbers count only when their category is higher.",
        proof="Measured by adding all 289 pairs; 168 add, and each agrees with torch.promote_types on this release.",
        recovery="float16 holds whole numbers exactly to 2,048 only: convert large integers to float32 first.",
    ),
    Lesson(
        row="T4",
        title="K = 1024 in bfloat16",
        params=Params(view="precision", inner=1024, accumulate="own"),
        question="A product over K = 1024 in bfloat16 is off by 0.2 % when it adds up in float32. How far off is it when it adds up in bfloat16?",
        choices={
            "about 4 %": "Each of the 1,024 additions rounds to 8 bits; the errors add up about as the square root of K.",
            "about 0.2 %": "That is the rounding of the result alone, which does not grow with K.",
            "over 50 %": "Errors have both signs and cancel in part.",
        },
        answer=lambda r: _size(_own(r)),
        evidence=_own,
        evidence_name="relative error with bfloat16 inside",
        requirement="Say why matmuls of 16-bit inputs are usable. Assume normal random matrices.",
        mechanism="Kernels multiply in 16 bits and add up in float32, so only the result is rounded. The accumulator decides, not the inputs.",
        proof="Against float64 of the same rounded inputs the kernel stays at 1.6e-3 for every K; the loop in bfloat16 goes from 5e-3 at K = 16 to 4e-2.",
        recovery="Keep reductions in float32, also your own loops. On a GPU reduced-precision reductions are a switch: measure it.",
    ),
    Lesson(
        row="D1",
        title="module.to, tensor.to",
        params=Params(view="devices"),
        question="m.to(torch.float64) and t.to(torch.float64): how many of the two calls return the object that they were called on?",
        choices={
            "1": "A module is changed in place and returned; a tensor never is.",
            "2": "t.to returns a new tensor unless nothing has to be done.",
            "0": "Module.to replaces the data of its parameters and returns self.",
        },
        answer=lambda r: f"{_same_objects(r):g}",
        evidence=_same_objects,
        evidence_name="calls that return the same object",
        requirement="Move a model and its batches without losing either. Assume the optimizer exists already.",
        mechanism="Module.to assigns converted data to the same Parameter objects; Tensor.to returns its result. Identity matters because optimizers hold objects.",
        proof="Same module, same Parameter, optimizer still holds it: yes. Tensor: another object. To meta the parameters are new ones, and the optimizer loses them.",
        recovery="model.to(device) once, x = x.to(device) each batch. Pick the device with torch.accelerator; build the optimizer after the move.",
    ),
    Lesson(
        row="T5",
        title="an image with its layout swapped",
        params=Params(view="data"),
        question="A 4 × 6 picture with channels last is brought to channels first by reshape in place of permute. How many of its 72 numbers are in the wrong place?",
        choices={
            "61": "reshape takes neighbours of one pixel for neighbours of one channel: a pixel (40, 60, 200) is scattered.",
            "0": "The shape is right, the order is not.",
            "an error": "The convolution sees (3, 4, 6) and takes it.",
        },
        answer=lambda r: f"{_wrong(r):g}",
        evidence=_wrong,
        evidence_name="numbers in the wrong place",
        requirement="Bring a decoded image into the layout of a model. Assume uint8, channels last.",
        mechanism="permute moves the axis and keeps which number belongs to which pixel; reshape keeps the memory order and counts anew.",
        proof="Pixel (1, 2) was (40, 60, 200); after permute it still is, after reshape not. No error comes from the convolution.",
        recovery="permute, then float and scale. Look at one pixel, or at the picture, before training.",
    ),
)
