"""Presets with a prediction to make, and the answers to the interview questions: rows M1, M2, M3."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lab.contract import Lesson
from lab.experiments.module_anatomy import programs
from lab.experiments.module_anatomy.programs import PRINTED
from lab.experiments.module_anatomy.readings import keys, own_hooks_fired, parameters, tensor
from lab.experiments.module_anatomy.schema import Params, Result

HEADLINES = PRINTED
"""Program of a lesson -> the lines that print its number last."""


def _params(code: str, **more: Any) -> Params:
    return Params(code=code, **more)


_LIST = Lesson(
    row="M1",
    title="a list of layers",
    params=_params(programs.LIST_OF_LAYERS),
    question="Three Linear(2, 2) lie in a plain Python list, and forward uses all of them. How many numbers does parameters() give?",
    choices={
        "18: three times 4 + 2": "That many exist, and all of them get gradients. Registered is another matter.",
        "6: the list counts once": "A list is not looked into at all.",
        "0": "nn.Module registers Parameters and Modules that are attributes. A list is neither.",
    },
    answer=lambda r: {0: "0", 18: "18: three times 4 + 2"}.get(r.parameter_count, "6: the list counts once"),
    evidence=lambda r: float(r.parameter_count),
    evidence_name="numbers in parameters()",
    requirement="Say what nn.Module registers. Assume layers whose number is an argument.",
    mechanism="Module.__setattr__ looks at the type of the value: Parameter and Module go into tables, everything else becomes a plain attribute.",
    proof="The optimizer refuses the model, or with one registered layer beside the list trains only that one; gradients arrive all the same.",
    recovery="nn.ModuleList([...]). Compare sum(p.numel() for p in model.parameters()) with a count by hand.",
)
_THREE = Lesson(
    row="M2",
    title="plain tensor, buffer, not persistent",
    params=_params(programs.THREE_TENSORS),
    question="Three constants: a plain tensor, a buffer, a buffer with persistent=False. How many of the three move with to()?",
    choices={
        "3: all of them are attributes": "to() walks the tables of the module, and a plain tensor is in none.",
        "2": "Both buffers are in the table that to() walks; persistent is a matter of the state dict.",
        "1: only what is saved": "What is saved and what moves are two lists: the buffer that is not persistent moves.",
    },
    answer=lambda r: {3: "3: all of them are attributes", 2: "2"}.get(
        sum(bool(tensor(r, n).moves) for n in ("plain", "kept", "scratch")), "1: only what is saved"
    ),
    evidence=lambda r: float(sum(bool(tensor(r, n).moves) for n in ("plain", "kept", "scratch"))),
    evidence_name="constants that move",
    requirement="Say which tensors move, train and are saved. Assume a mask, a running mean and a cache.",
    mechanism="Parameters move, train and are saved; buffers move and are saved; with persistent=False they only move; plain tensors do nothing of it.",
    proof="Moves 0, 1, 1 and saved 0, 1, 0 for plain tensor, buffer, buffer that is not persistent.",
    recovery="register_buffer for constants of the model, persistent=False for what can be computed again.",
)
_UNUSED = Lesson(
    row="M2",
    title="an unused layer",
    params=_params(programs.UNUSED),
    question="A layer is registered and the optimizer holds it, but forward never uses it. How many of its two tensors does a step change?",
    choices={
        "2: weight decay or not, the optimizer holds them": "Without a gradient SGD passes over them.",
        "0": "No path leads from the loss to them, .grad stays None, and the step leaves them out.",
        "1: only the bias": "Weight and bias are both off the path.",
    },
    answer=lambda r: {
        0: "0",
        2: "2: weight decay or not, the optimizer holds them",
    }.get(sum(bool(t.changed) for t in r.tensors if t.owner == "unused"), "1: only the bias"),
    evidence=lambda r: float(sum(bool(t.changed) for t in r.tensors if t.owner == "unused")),
    evidence_name="tensors of the unused layer that changed",
    requirement="Say what it takes for a parameter to train. Assume a branch that is never taken.",
    mechanism="Registered, a gradient, in the optimizer, a step: four conditions, and registration gives only the first.",
    proof="Its tensors are held by the optimizer and saved; the graph of the loss does not end in them, .grad is None, no bit changes.",
    recovery="After a backward list the names whose .grad is None. DistributedDataParallel stops at such parameters.",
)
_TIED = Lesson(
    row="M3",
    title="tied weights",
    params=_params(programs.TIED),
    question="The head of a language model uses the weight of the embedding, 100 × 8. How many numbers does parameters() count?",
    choices={
        "1,600: two layers of 800": "Summing layer by layer gives that, and counts one object twice.",
        "800": "One Parameter under two names; parameters() gives each object once.",
        "0: a shared tensor is no parameter": "It is registered twice.",
    },
    answer=lambda r: {800: "800", 1600: "1,600: two layers of 800"}.get(
        r.parameter_count, "0: a shared tensor is no parameter"
    ),
    evidence=lambda r: float(r.parameter_count),
    evidence_name="numbers in parameters()",
    requirement="Say what sharing a weight means. Assume an embedding and an output layer.",
    mechanism="Both modules hold the same object. The state dict lists both names, the optimizer one object, the gradient is the sum over both uses.",
    proof="800 once, 1,600 by layer, two keys, one piece of memory.",
    recovery="Tie by assigning the Parameter; assign again after to_empty(), a move to the meta device, or load_state_dict(assign=True).",
)
_FORWARD = Lesson(
    row="M1",
    title="model.forward(x)",
    params=_params(programs.FORWARD, view="hooks", call="model.forward(x)", hook_kinds="the program's own"),
    question="A forward hook hangs on the model. Someone writes model.forward(x). How often does it run?",
    choices={
        "1: forward is forward": "Hooks stand around the call, and forward is what the call runs inside.",
        "0": "Hooks are run by __call__, which was not used.",
        "2: before and after": "A forward hook runs once, after forward, when the module is called.",
    },
    answer=lambda r: {0: "0", 1: "1: forward is forward"}.get(own_hooks_fired(r), "2: before and after"),
    evidence=lambda r: float(own_hooks_fired(r)),
    evidence_name="runs of the hook",
    requirement="Say what model(x) does beside forward. Assume code that calls forward by name.",
    mechanism="__call__ runs pre-hooks, forward, hooks, and sets up those of backward. forward alone is a plain method.",
    proof="The bracket of the call is missing in the record, and the hook with it; a call has both.",
    recovery="Always call the module. Inside a class, self.layer(x), never self.layer.forward(x).",
)
_ONE_OBJECT = Lesson(
    row="M3",
    title="three hooks on one object",
    params=_params(programs.ONE_OBJECT, view="hooks", hook_kinds="the program's own"),
    question="One GELU is used in three blocks. A loop over the blocks hooks it once a block. One forward: how many records?",
    choices={
        "3: one a block": "Each of three calls runs every hook of the object, and all three hang on the same one.",
        "9": "Three hooks on one object, three calls of it.",
        "1: it is one object": "It is one object with three hooks.",
    },
    answer=lambda r: {9: "9", 3: "3: one a block"}.get(own_hooks_fired(r), "1: it is one object"),
    evidence=lambda r: float(own_hooks_fired(r)),
    evidence_name="records",
    requirement="Say where a hook hangs. Assume blocks that share an activation.",
    mechanism="Hooks are kept in a table of the object. Names of modules are places in a tree, and one object may have many.",
    proof="named_modules() gives the GELU once; its table has three hooks; each call runs all.",
    recovery="Hook by named_modules(), which gives each object once, or make an activation for each block.",
)
_PREFIX = Lesson(
    row="M2",
    title="a prefix on every key",
    params=_params(programs.PREFIX, view="state dict", file="the program's", strict=False),
    question="The checkpoint of a wrapped model has module. before every key. It is loaded with strict=False. How many of the 6 tensors are loaded?",
    choices={
        "6: the prefix is ignored": "Keys are compared as they are.",
        "0": "No name fits, and strict=False makes that no error.",
        "It raises": "strict=False is what keeps it from raising.",
    },
    answer=lambda r: "It raises" if keys(r).error else "0" if keys(r).loaded == 0 else "6: the prefix is ignored",
    evidence=lambda r: float(keys(r).loaded),
    evidence_name="tensors loaded",
    requirement="Say what strict means. Assume a checkpoint from DataParallel.",
    mechanism="load_state_dict copies where names agree. strict only decides whether the rest is an error or an answer.",
    proof="6 missing, 6 unexpected, 0 loaded, no error.",
    recovery='Take the prefix off: {k.removeprefix("module."): v for ...}, and load with strict=True.',
)
_MISMATCH = Lesson(
    row="M2",
    title="a size mismatch",
    params=_params(programs.MISMATCH, view="state dict", file="the program's", strict=False),
    question="Of the keys in a file one fits and two have another shape; strict=False. load_state_dict raises. How many tensors of the module have changed by then?",
    choices={
        "0: an error changes nothing": "Complaints are collected while it copies, and raised at the end.",
        "1": "What fits is copied before the error is raised.",
        "3: shapes are adapted": "A mismatch in shape is an error, also with strict=False.",
    },
    answer=lambda r: {0: "0: an error changes nothing", 1: "1"}.get(keys(r).changed, "3: shapes are adapted"),
    evidence=lambda r: float(keys(r).changed),
    evidence_name="tensors changed",
    requirement="Say what a failed load leaves behind. Assume code that catches the error.",
    mechanism="The walk over submodules copies as it goes and collects messages; the error comes when it is through.",
    proof="Compared bit by bit: one tensor is the file's, the others are as before.",
    recovery="Compare {k: v.shape} of both sides first, or load into a fresh model.",
)
_CAST = Lesson(
    row="M1",
    title="Parameter, then double",
    params=_params(programs.CAST),
    question="self.gain = nn.Parameter(torch.rand(3)).double() and self.shift = nn.Parameter(torch.rand(3).double()). How many parameters are registered?",
    choices={
        "2: both are Parameters": "double() gives a new tensor, and that is a plain one.",
        "1": "The cast of a Parameter is the result of an operation: a tensor with a history, no Parameter.",
        "0: float64 is not trained": "Any floating-point dtype is.",
    },
    answer=lambda r: {1: "1", 2: "2: both are Parameters"}.get(len(parameters(r)), "0: float64 is not trained"),
    evidence=lambda r: float(len(parameters(r))),
    evidence_name="registered parameters",
    requirement="Say what makes a tensor a parameter. Assume an initial value in another dtype or on a device.",
    mechanism="A Parameter is a leaf of its own class. to(), double(), cuda() on it return a Tensor that was computed from it.",
    proof="gain is no leaf and not in the table; nothing would step it, and no deep copy of the model is possible.",
    recovery="Convert first, wrap last: nn.Parameter(x.double()).",
)
_TOO_EARLY = Lesson(
    row="M3",
    title="optimizer first, weight_norm second",
    params=_params(programs.TOO_EARLY),
    question="An optimizer is made over a Linear, then weight_norm is put on it. The layer has three parameters now. How many does the optimizer hold?",
    choices={
        "3: it is the same model": "An optimizer keeps objects, not the model.",
        "1": "The bias is the same object; the weight was replaced by a magnitude and a direction.",
        "2: weight and bias": "The weight is no parameter any more: it is computed.",
    },
    answer=lambda r: {3: "3: it is the same model", 1: "1"}.get(
        sum(bool(t.owned) for t in parameters(r)), "2: weight and bias"
    ),
    evidence=lambda r: float(sum(bool(t.owned) for t in parameters(r))),
    evidence_name="parameters that the optimizer holds",
    requirement="Say when an optimizer may be built. Assume parametrizations, new heads, loaded weights.",
    mechanism="A parametrization registers new tensors and turns weight into a property. Old objects stay in the optimizer and get no gradient.",
    proof="Compare identities: id(p) of the model against id(p) in param_groups.",
    recovery="Build the optimizer last. Conversions of the dtype are harmless: they keep the objects.",
)
_BIAS = Lesson(
    row="M2",
    title="a bias before BatchNorm",
    params=_params(programs.BIAS),
    question="Linear with a bias, then BatchNorm, loss = the mean of the fourth power. How many elements of the bias have a gradient other than 0?",
    choices={
        "8: all of them": "BatchNorm subtracts the mean, and with it whatever the bias adds.",
        "0": "The output does not depend on the bias: the mean takes it away.",
        "They have no gradient: None": "They are on the path, so .grad is a tensor. It is 0.",
    },
    answer=lambda r: {"zero": "0", "value": "8: all of them"}.get(
        tensor(r, "0.bias").gradient, "They have no gradient: None"
    ),
    evidence=lambda r: 8.0 if tensor(r, "0.bias").gradient == "value" else 0.0,
    evidence_name="elements with a gradient other than 0",
    requirement="Tell no gradient from a gradient of 0. Assume a list of parameters that do not move.",
    mechanism="None: no path from the loss. 0: a path, and a derivative that is 0 there.",
    proof="The bias is reached by the graph, its .grad is a tensor, and no element differs from 0.",
    recovery="bias=False in front of BatchNorm; with other losses the gradient is 0 up to rounding.",
)
_AGAIN = Lesson(
    row="M3",
    title="a hook on every call",
    params=_params(programs.HOOK_AGAIN),
    question="A function registers a forward hook and calls the model. It is called three times. How many records are there?",
    choices={
        "3: one a call": "The hooks of earlier calls are still there.",
        "6": "1 + 2 + 3: hooks add up until they are removed.",
        "9: three hooks, three calls": "The first call has only one hook.",
    },
    answer=lambda r: {3: "3: one a call", 6: "6"}.get(_records(r), "9: three hooks, three calls"),
    evidence=lambda r: float(_records(r)),
    evidence_name="records",
    requirement="Say how long a hook lives. Assume feature extraction inside a loop.",
    mechanism="register_forward_hook puts the function into a table and returns a handle; only handle.remove() takes it out.",
    proof="Three hooks from one line hang on the module after three calls: 1 + 2 + 3 records.",
    recovery="Register once; or with a context: handle = ..., try ... finally handle.remove().",
)


def _records(result: Result) -> int:
    """What hooks left that were registered one more with each call: 1 + 2 + … ."""
    alive = len(result.hooks)
    return alive * (alive + 1) // 2


_FEATURES = Lesson(
    row="M3",
    title="feature extraction",
    params=_params(programs.FEATURES, view="hooks", hook_kinds="the program's own"),
    question="A forward hook on the ReLU keeps the output, detached. It returns None. Does the output of the model change?",
    choices={
        "no: it only looks": "A hook that returns None and writes nothing in place leaves everything as it was.",
        "yes: it returns None": "None means: go on with the output as it is.",
        "yes: detach cuts the graph": "detach makes a new tensor; the output itself keeps its history.",
    },
    answer=lambda r: (
        "yes: it returns None" if any(e.changed for e in r.events if e.by == "program") else "no: it only looks"
    ),
    evidence=lambda r: float(_width(r)),
    evidence_name="features kept",
    requirement="Get an inner activation without touching the model. Assume a model of someone else.",
    mechanism="A forward hook gets (module, inputs, output) after forward. What it returns replaces the output, None replaces nothing.",
    proof="2-norm, shape and version of the output are the same before and after the hook.",
    recovery="Keep output.detach(), or the graph of every batch stays alive; remove the handle afterwards.",
)


def _width(result: Result) -> int:
    kept = next(e for e in result.events if e.by == "program")
    return int(kept.shape.strip("[]").split(",")[-1])


_SURGERY = Lesson(
    row="M3",
    title="gradient surgery",
    params=_params(programs.SURGERY, view="hooks", hook_kinds="the program's own"),
    question="A full backward hook on the Tanh returns half of the gradient of its input. What happens to the gradient in front of it?",
    choices={
        "it is halved": "What the hook returns goes on in place of the gradient.",
        "nothing: backward hooks only look": "They do when they return None.",
        "it is halved twice: hook and module": "The hook replaces what the module computed, once.",
    },
    answer=lambda r: (
        "nothing: backward hooks only look"
        if _kept(r) == 1
        else "it is halved"
        if abs(_kept(r) - 0.5) < 1e-6
        else "it is halved twice: hook and module"
    ),
    evidence=lambda r: _kept(r),
    evidence_name="gradient after over before",
    requirement="Change a gradient on its way. Assume one module whose input gradient is to be scaled or reversed.",
    mechanism="A full backward hook gets the gradients of inputs and outputs; a tuple that it returns replaces those of the inputs.",
    proof="The 2-norm after the hook is half of that before, and so is that of everything in front of it.",
    recovery="For one tensor register_hook on the tensor is enough, and makes no views of inputs and outputs.",
)


def _kept(result: Result) -> float:
    event = next(e for e in result.events if e.by == "program" and e.phase == "backward")
    return (event.after or 0.0) / (event.before or 1.0)


_ALL = (
    *(_LIST, _THREE, _FORWARD, _TIED, _UNUSED, _ONE_OBJECT, _PREFIX, _MISMATCH, _CAST, _TOO_EARLY, _BIAS, _AGAIN),
    *(_FEATURES, _SURGERY),
)


def _turned(lesson: Lesson, by: int) -> Lesson:
    """The choices in another order, so that the measured one is not always in the same place."""
    choices = list(lesson.choices.items())
    start = by % len(choices)
    return replace(lesson, choices=dict(choices[start:] + choices[:start]))


lessons = tuple(_turned(lesson, number) for number, lesson in enumerate(_ALL))
