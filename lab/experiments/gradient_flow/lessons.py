"""Presets on depth with a prediction to make, and the answers to the interview questions. Clipping has its own module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab.contract import Lesson
from lab.experiments.gradient_flow.clip_lessons import CLIP_LESSONS
from lab.experiments.gradient_flow.programs import FROZEN, ON_THE_BOUND
from lab.experiments.gradient_flow.readings import NAMES, READINGS
from lab.experiments.gradient_flow.schema import Params, Result
from lab.program.own_model import EXAMPLE

_LEVEL, _VANISHES, _EXPLODES = "it stays about the same", "it vanishes", "it explodes"
_LEVEL_WHY = "Level means that one layer neither shrinks nor grows it: χ = σw²·E[φ'²] must be 1, and that takes the right initial weights."
_VANISHES_WHY = "It would vanish if one layer multiplied its mean square by less than 1: χ < 1."
_EXPLODES_WHY = "It would explode if one layer multiplied its mean square by more than 1: χ > 1."
_CHOICES = {_LEVEL: _LEVEL_WHY, _VANISHES: _VANISHES_WHY, _EXPLODES: _EXPLODES_WHY}


def _direction(result: Result) -> str:
    """More than a factor of ten over the depth counts as a change."""
    slope = READINGS["slope"](result) * (len([layer for layer in result.layers if layer.inner]) - 1)
    return _VANISHES if slope < -1 else _EXPLODES if slope > 1 else _LEVEL


def _lesson(
    kind: str,
    row: str,
    title: str,
    params: Params,
    question: str,
    texts: tuple[str, str, str, str],
    choices: dict[str, str] | None = None,
    answer: Callable[[Result], str] = _direction,
) -> tuple[str, Lesson]:
    made = Lesson(row, title, params, question, choices or _CHOICES, answer, READINGS[kind], NAMES[kind], *texts)
    return kind, made


_N1 = "Why gradients vanish or explode with depth, for layers that are initialised independently."
_N2 = "Which change to the network keeps the size of a gradient over depth, and how one knows."
_DEPTH_LESSONS: tuple[tuple[str, Lesson], ...] = (
    _lesson(
        "slope",
        "N1",
        "tanh, 30 layers, default weights",
        Params(),
        "The gradient of the loss goes back through 30 layers of tanh with PyTorch's default initialisation. What happens to its norm?",
        (
            _N1,
            "The chain rule multiplies one Jacobian a layer. In a wide random layer each multiplies the mean square of the gradient by χ = σw²·E[φ'²]. nn.Linear draws from U(-1/√n, 1/√n), so σw² = 1/3, and χ ≈ 1/3: half a power of ten every two layers.",
            "The line over depth is straight on a log axis with ½·log10 χ ≈ −0.24 decades a layer, measured and predicted. A bent line, or one that does not follow the initialisation, would prove this wrong.",
            "Choose σw² so that χ = 1: Xavier for tanh, Kaiming for ReLU. With normalisation or residual paths the default is fine, which is why it can stay the default.",
        ),
    ),
    _lesson(
        "slope",
        "N1",
        "sigmoid, 30 layers deep",
        Params(activation="sigmoid"),
        "Now sigmoid in the place of tanh, the rest the same. What reaches the first layer?",
        (
            _N1,
            "The derivative of sigmoid is at most 1/4. With σw² = 1/3 that makes χ = 0.02: every layer costs 0.85 decades, 30 layers cost 25.",
            "About 10^-24 of the gradient reaches layer 1. At depth 60 it falls below the smallest float32 and is exactly zero.",
            "Use ReLU-like activations in hidden layers, keep sigmoid for outputs and gates. A larger gain alone saturates the units.",
        ),
    ),
    _lesson(
        "slope",
        "N1",
        "ReLU with weights half too large",
        Params(activation="relu", init="kaiming", gain=1.5, steps=5),
        "Kaiming initialisation is right for ReLU. Multiply all weights by 1.5. What does the gradient do over 30 layers?",
        (
            _N1,
            "χ = σw²/2 for ReLU, in closed form. Kaiming gives 1; the factor 1.5 gives 2.25, and 2.25^15 = 2·10^5 over 30 layers. Activations grow in the same way.",
            "The predicted slope, +0.176 decades a layer, lies on the measured one. The loss is in the millions before the first step and NaN after it.",
            "Fix the initialisation, or normalise. Clipping the norm would keep the step finite and leave the loss where it is.",
        ),
    ),
    _lesson(
        "ratio",
        "N1",
        "a recurrent network over 50 time steps",
        Params(family="rnn", depth=50, steps=10),
        "An RNN reads 50 steps and is asked about the first. How much of the gradient arrives at step 1?",
        (
            "Why a plain recurrent network forgets, and what gating or orthogonal weights change.",
            "Backpropagation through time multiplies by the same matrix and by tanh' once a step. Default weights have singular values well below 1 on average, so the product shrinks by half a decade in less than two steps.",
            "About 10^-17 arrives at step 1. The weight's gradient is the sum over all steps, so the early ones are lost in it: the bars of the steps show their share.",
            "Orthogonal recurrent weights, gates (LSTM, GRU) that pass the state on with factor 1, or attention, which makes the path short.",
        ),
    ),
    _lesson(
        "slope",
        "N2",
        "ReLU with Kaiming initialisation",
        Params(activation="relu", init="kaiming"),
        "ReLU blocks half of the values. With weights of variance 2/n, what does the gradient do over 30 layers?",
        (
            _N2,
            "E[φ'²] = 1/2 for ReLU, so σw² = 2 gives χ = 1 exactly: what the zeros take away, the larger weights give back.",
            "The fitted slope is below 0.02 decades a layer. It is not 0: a single network of finite width wanders by about √(depth/width).",
            "Kaiming for ReLU and its relatives. Beyond some 100 layers the wandering itself becomes large: add residual paths.",
        ),
    ),
    _lesson(
        "ratio",
        "N2",
        "an orthogonal linear network keeps the norm",
        Params(activation="identity", init="orthogonal", steps=5),
        "No activation function, orthogonal weights. By which factor does the norm of the gradient change over 30 layers?",
        (
            _N2,
            "An orthogonal matrix keeps the length of every vector, and so does its transpose, which is what backward multiplies by.",
            "The ratio of the first to the last layer is 1 to within rounding. Any other value would mean that the measurement is wrong: this preset is its own check.",
            "With an activation function the norm is kept only on average; orthogonal weights then help because all directions are treated alike.",
        ),
        {
            "by a factor of 1, exactly": "Random matrices keep lengths only on average; orthogonal ones keep every length.",
            "by some percent": "That would be a random matrix with the right variance. Orthogonal means no change at all.",
            "it halves every few layers": "Only a matrix with singular values below 1 shrinks. Those of an orthogonal matrix are all 1.",
        },
        lambda r: "by a factor of 1, exactly" if abs(READINGS["ratio"](r) - 1) < 1e-3 else "by some percent",
    ),
    _lesson(
        "slope",
        "N2",
        "batch normalisation alone makes it explode",
        Params(activation="relu", init="kaiming", norm="batch", steps=5),
        "BatchNorm between linear and ReLU in every layer, no residual paths. What does the gradient do at initialisation?",
        (
            _N2,
            "BatchNorm fixes the size of the activations, not of the gradient: dividing by the batch's deviation multiplies the gradient back. With ReLU each layer makes its square larger by about 1.47 (Yang et al. 2019).",
            "The activations are level and the gradient grows by 0.08 decades a layer towards the input. Level gradients here would prove this wrong.",
            "Residual paths, as every deep network with BatchNorm has: the blocks' contributions are then small next to the identity.",
        ),
    ),
    _lesson(
        "slope",
        "N2",
        "residual paths make sigmoid trainable",
        Params(activation="sigmoid", residual=True, norm="layer", norm_position="pre", lr=0.02),
        "The sigmoid network that lost 25 decades, now with x + f(norm(x)) in every layer. What happens to its gradient?",
        (
            _N2,
            "d(x + f)/dx = 1 + f': the identity carries the gradient past the layer unchanged, however small f' is.",
            "The slope is within 0.01 decades a layer of zero, against −0.85 without.",
            "Residual paths with a normalisation in front are what lets transformers and ResNets be deep. Scale the last weight of a block down when the sum grows.",
        ),
    ),
    _lesson(
        "slope",
        "N2",
        "24 transformer blocks",
        Params(family="transformer", depth=24, width=64, batch=16, activation="gelu", norm_position="pre", steps=8, lr=0.02),
        "24 pre-norm transformer blocks with PyTorch's default weights. What does the gradient do on its way to the first?",
        (
            "What keeps a deep transformer trainable at initialisation.",
            "Every block adds to a residual stream, so the gradient of the stream passes by the block and collects a little from each: it grows slowly towards the input instead of multiplying.",
            "Some 0.02 decades a block. Take the residual paths away (a knob) and the norm of all gradients grows more than tenfold.",
            "Pre-norm needs no warm-up to start; post-norm puts a normalisation on the stream itself and does. Compare both with A | B.",
        ),
    ),
    _lesson(
        "underflow",
        "N1",
        "small gradients in half precision",
        Params(activation="sigmoid", depth=8, width=64, steps=5),
        "Eight layers of sigmoid, trained in float32. If the gradients were stored in fp16, how much of layer 1's would be zero?",
        (
            "Why fp16 training scales the loss, and bf16 training does not.",
            "The smallest fp16 number is 6·10^-8. In the first layer of this network most gradients are smaller. bf16 has the exponent range of float32.",
            "Nearly all of it in fp16, next to nothing after multiplying the loss by 65,536, nothing in bf16. Each share is counted on the measured gradients.",
            "Autocast with a GradScaler for fp16: scale the loss, unscale before clipping, skip steps with infinities. Or bf16.",
        ),
        {
            "less than a tenth": "Count decades: 8 layers at 0.85 each, from 10^-3 down, end near 10^-9, below the smallest fp16 number.",
            "about half": "Values spread over less than two decades in a layer, so the limit cuts off a part only where it falls inside this spread.",
            "nearly all of it": "It would need the gradients to lie below 6·10^-8.",
        },
        lambda r: "less than a tenth" if READINGS["underflow"](r) < 0.1 else "nearly all of it" if READINGS["underflow"](r) > 0.75 else "about half",
    ),
    _lesson(
        "bias",
        "N1",
        "a bias that gets no gradient",
        Params(activation="relu", init="kaiming", depth=6, norm="batch", steps=5),
        "The biases before BatchNorm get 10^-7 times the gradient of the weights. Is something broken?",
        (
            "How to tell a vanishing gradient from one that is zero by construction.",
            "BatchNorm subtracts the mean over the batch, so a constant added before it changes nothing: the true derivative is 0, and what is left is rounding.",
            "The bias gets about 10^-8 of the weight's gradient, in every layer alike. A vanishing gradient would fall over depth instead.",
            "Write bias=False before a BatchNorm: the same network with fewer parameters.",
        ),
        {
            "yes, it vanishes": "Vanishing gets worse over depth. This is equally small everywhere, right down to rounding.",
            "no, it is zero by construction": "A gradient near zero with a healthy one beside it needs a reason; rounding noise is one.",
        },
        lambda r: "no, it is zero by construction" if READINGS["bias"](r) < 1e-5 else "yes, it vanishes",
    ),
    _lesson(
        "slope",
        "N1",
        "a model of your own",
        Params(family="own", code=EXAMPLE),
        "A classifier with three linear layers and tanh. What happens to the gradient on its way to the first?",
        (
            "Where the gradient of a given model goes, layer by layer.",
            "Hooks on every module that owns parameters see its output and the gradient that arrives there. Any nn.Module with a batch can be measured.",
            "Over three layers the gradient loses a factor of about four: nothing to repair. The same change per layer over thirty would be a fault.",
            "Change the program: more layers, another activation, a layer that is not used. Define loss(model, batch) where the default does not fit.",
        ),
    ),
    _lesson(
        "missing",
        "N1",
        "None, zero and frozen are three things",
        Params(family="own", code=FROZEN, steps=3),
        "One layer multiplied by 0, one that is never called, one with requires_grad=False. How many have a gradient of None?",
        (
            "What a missing gradient says, and what a zero one says.",
            "backward writes .grad only for leaves it reaches. A frozen or unused parameter stays None; a path multiplied by 0 is reached, and gets zeros.",
            "The table lists used as 0, spare and frozen as None, each with its reason. A zero in the place of None would mean that it was reached.",
            "Read .grad is None as 'not connected' and 0 as 'connected, no slope'. Momentum and weight decay still move a parameter whose gradient is 0.",
        ),
        {
            "one": "The frozen layer is one. The layer that is never called is not reached by backward either.",
            "two": "Count the layers that backward does not reach at all.",
            "three": "Multiplying by 0 does not cut the graph: backward arrives there, with zeros.",
        },
        lambda r: {1.0: "one", 2.0: "two", 3.0: "three"}[READINGS["missing"](r)],
    ),
    _lesson(
        "final loss",
        "N1",
        "stuck on the bound of hardtanh",
        Params(family="own", code=ON_THE_BOUND, steps=3, lr=0.5),
        "A weight starts exactly on the upper bound of hardtanh, and the loss wants it smaller. Where is it after three steps?",
        (
            "Which gradient a kink has.",
            "At a kink the derivative is a convention, and any value between the slopes on its two sides would do: hardtanh takes 0 on its bounds.",
            "The loss stays at 3. Half a unit lower the same weight has the slope 1, and walks down.",
            "Start values that must move off the bound, do not count on a convention at a kink, and look for zero gradients together with values that sit on a bound.",
        ),
        {
            "still on the bound": "The gradient would have to be zero there, although the function falls to the left.",
            "half a unit below a step": "That needs the derivative 1; hardtanh takes 0 on the bound itself.",
        },
        lambda r: "still on the bound" if READINGS["final loss"](r) > 2.9 else "half a unit below a step",
    ),
)  # fmt: skip

_KINDS: dict[Params, str] = {lesson.params: kind for kind, lesson in (*_DEPTH_LESSONS, *CLIP_LESSONS)}
lessons: tuple[Lesson, ...] = tuple(lesson for _, lesson in (*_DEPTH_LESSONS, *CLIP_LESSONS))


def reading_of(params: Any) -> str:
    """Which of the ``READINGS`` a script for these params prints last."""
    return _KINDS.get(params, "slope")
