"""Presets with a prediction to make, and the answers to the interview questions."""

from __future__ import annotations

from lab.contract import Lesson
from lab.experiments.autograd_graph.readings import (
    contributions,
    first_grad,
    kept_after,
    node_count,
    pass_names,
    total,
    variable,
)
from lab.experiments.autograd_graph.schema import DEFAULT_PROGRAM, Params

_TWO_NODES = """x = torch.tensor(2.0, requires_grad=True)
y = x ** 2
z = 3 * y
z.backward()
"""

_BRANCH = """def f(x):
    if x.sum() > 0:
        return (2 * x).sum()
    return (x ** 3 + x).sum()

a = torch.tensor([1.0, 2.0], requires_grad=True)
b = torch.tensor([1.0, -2.0], requires_grad=True)
loss_a = f(a)
loss = f(b)
loss_a.backward()
loss.backward()
"""

_VIEW = """x = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
y = torch.exp(x)
first = y[:2]
first.mul_(10)
loss = y.sum()
"""

_BROADCAST = """x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
b = torch.zeros(2, requires_grad=True)
y = x + b
loss = y.sum()
loss.backward()
"""

_DETACH = """x = torch.tensor(3.0, requires_grad=True)
a = x ** 2
b = a.detach() * x
loss = a + b
loss.backward()
"""

_NO_GRAD = """w = torch.tensor(2.0, requires_grad=True)
x = torch.tensor(3.0)
with torch.no_grad():
    scale = w * x
loss = scale * w
loss.backward()
"""

_CUSTOM = """class RoundStraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient

x = torch.tensor([0.2, 1.7, -2.4], requires_grad=True)
y = RoundStraightThrough.apply(x)
loss = (y * torch.tensor([1.0, 2.0, 3.0])).sum()
loss.backward()
"""

_HOOK = """x = torch.tensor(2.0, requires_grad=True)
y = x ** 2
y.register_hook(lambda gradient: gradient * 10)
loss = 3 * y
loss.backward()
"""

_CHECKPOINT = """from torch.utils.checkpoint import checkpoint

calls = []

def block(t):
    calls.append(1)
    return torch.sigmoid(2 * t) * t

x = torch.linspace(-1, 1, 1000, requires_grad=True)
y = checkpoint(block, x, use_reentrant=False)
loss = y.sum()
loss.backward()
"""

_TWO_BACKWARDS = """x = torch.tensor(5.0, requires_grad=True)
loss = x ** 2
loss.backward(retain_graph=True)
loss.backward()
"""

_RETAIN = """x = torch.linspace(0, 1, 1000, requires_grad=True)
y = torch.sigmoid(x) * x
loss = y.sum()
loss.backward(retain_graph=True)
"""

_DOUBLE = """x = torch.tensor(2.0, requires_grad=True)
y = x ** 3
(gradient,) = torch.autograd.grad(y, x, create_graph=True)
(second,) = torch.autograd.grad(gradient, x)
"""

_FROZEN = """net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
for parameter in net[0].parameters():
    parameter.requires_grad_(False)

x = torch.randn(16, 4)
loss = net(x).square().mean()
loss.backward()
"""

_NETWORK = """net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
x = torch.randn(16, 4)
target = torch.randn(16, 1)

loss = F.mse_loss(net(x), target)
loss.backward()
"""

HEADLINES = {
    DEFAULT_PROGRAM: "x.grad[0].item()",
    _TWO_NODES: "x.grad.item()",
    _BRANCH: "len(nodes(loss))",
    _VIEW: "y._version",
    _BROADCAST: "b.grad[0].item()",
    _DETACH: "x.grad.item()",
    _NO_GRAD: "w.grad.item()",
    _CUSTOM: "x.grad.sum().item()",
    _HOOK: "x.grad.item()",
    _CHECKPOINT: "len(calls)",
    _TWO_BACKWARDS: "x.grad.item()",
    _RETAIN: "sum(kept.values())",
    _DOUBLE: "second.item()",
    _FROZEN: "len(nodes(loss))",
    _NETWORK: "sum(kept.values())",
}
"""Program of a preset -> the expression that gives its headline number in plain PyTorch."""

_USED_TWICE = Lesson(
    row="A1",
    title="a value used twice",
    params=Params(code=DEFAULT_PROGRAM),
    question="x goes into the product and into the sum. What ends up in x.grad?",
    choices={
        "the sum of what both paths bring": "The chain rule for several paths adds: dL/dx is the sum over every use of x.",
        "what the last path brings": "AccumulateGrad adds every gradient that arrives. No path overwrites another.",
        "what the larger path brings": "The engine never compares paths. It adds them.",
    },
    answer=lambda r: (
        "the sum of what both paths bring"
        if abs(sum(contributions(r, "x")) - first_grad(r, "x")) < 1e-6
        else "what the last path brings"
    ),
    evidence=lambda r: first_grad(r, "x"),
    evidence_name="x.grad[0]",
    requirement="Say how a gradient reaches a value that is used in several places. Assume one loss and no clearing in between.",
    mechanism=(
        "Each use of x is an edge of the graph. backward walks the graph from the loss; each node multiplies the gradient of its "
        "output by its own derivative and hands it to its parents. Where edges meet, the engine adds before it runs the node."
    ),
    proof=(
        "Step through the backward pass: mul brings 0.1175 to the first element of x, add brings 1.0, and x.grad[0] is 1.1175. "
        "It would be wrong if x.grad held only one of them."
    ),
    recovery=(
        "If a shared weight gets too large a gradient, count its uses: tied weights get one contribution a use. Detach a use "
        "that should not count."
    ),
)

_CHAIN = Lesson(
    row="A1",
    title="z = 3x² at x = 2",
    params=Params(code=_TWO_NODES),
    question="backward starts at z. Which node does the engine run first?",
    choices={
        "MulBackward0, the last operation": "The gradient of z with respect to itself is known, so the last operation comes first.",
        "PowBackward0, the first operation": "Its incoming gradient is not known before MulBackward0 has run.",
        "AccumulateGrad, the leaf": "The leaf comes last: it adds what has arrived to x.grad.",
    },
    answer=lambda r: {
        "MulBackward0": "MulBackward0, the last operation",
        "PowBackward0": "PowBackward0, the first operation",
    }.get(pass_names(r)[0], "AccumulateGrad, the leaf"),
    evidence=lambda r: first_grad(r, "x"),
    evidence_name="dz/dx",
    requirement="Say what autograd records for z = 3x² and how dz/dx comes out. Assume x is a leaf that requires gradients.",
    mechanism=(
        "The forward leaves two nodes: PowBackward0, which keeps x, and MulBackward0, which keeps 3. backward starts with 1 at z: "
        "MulBackward0 hands on 3, PowBackward0 multiplies by 2x = 4, AccumulateGrad stores 12."
    ),
    proof="The two nodes run in this order and x.grad is 12. Any other order, or another number, would refute it.",
    recovery="When a gradient looks wrong, step through the nodes: the first one with a wrong incoming gradient is behind the fault.",
)

_BRANCHED = Lesson(
    row="A2",
    title="a branch taken",
    params=Params(code=_BRANCH),
    question="f is called with a and with b. The sums have different signs. Do both calls leave the same graph?",
    choices={
        "no: each graph holds what ran": "The graph is written while operations run. The if itself is never recorded.",
        "yes: one graph for the function": "autograd does not read the source of f. It sees operations on tensors only.",
        "yes: one graph with both branches": "The branch that was not taken ran no operation, so it left no node.",
    },
    answer=lambda r: (
        "no: each graph holds what ran" if pass_names(r, 0) != pass_names(r, 1) else "yes: one graph for the function"
    ),
    evidence=node_count,
    evidence_name="nodes behind f(b)",
    requirement="Say what dynamic means for the graph. Assume eager mode, without torch.compile.",
    mechanism="Every call builds its graph anew, from the operations that ran on the tensors of this call. Control flow is plain Python.",
    proof="f(a) leaves mul and sum, f(b) leaves pow, add and sum: different node classes from the same function.",
    recovery=(
        "A branch on a tensor value is allowed and costs a device synchronisation. Where both branches must get gradients, "
        "compute both and select with torch.where."
    ),
)

_ACCUMULATED = Lesson(
    row="A3",
    title="two backwards",
    params=Params(code=_TWO_BACKWARDS),
    question="Each backward alone gives x.grad = 10. What does x.grad hold after both?",
    choices={
        "20": "AccumulateGrad adds the new gradient to the one that is there.",
        "10": "The second backward does not replace .grad. It adds to it.",
        "an error": "retain_graph=True kept the saved tensors, so the second backward can run.",
    },
    answer=lambda r: "an error" if r.fault else f"{first_grad(r, 'x'):g}",
    evidence=lambda r: first_grad(r, "x"),
    evidence_name="x.grad",
    requirement="Say what a second backward does to .grad. Assume nobody clears it in between.",
    mechanism="A leaf has one AccumulateGrad node. It does .grad = .grad + incoming. Nothing in backward clears .grad.",
    proof="The leaf's step shows .grad before and after: 10, then 20. If backward replaced it, 10 would stay.",
    recovery=(
        "Call optimizer.zero_grad() once a step. Leave it out on purpose to accumulate over micro-batches, and then divide each "
        "loss by their number."
    ),
)

_IN_PLACE = Lesson(
    row="A6",
    title="view then in-place",
    params=Params(code=_VIEW),
    question="exp kept its output y for backward. first is a view of y and is multiplied in place. What does backward do?",
    choices={
        "it raises an error": "The view shares y's memory and its version counter: saved at version 0, now 1.",
        "it gives a wrong gradient": "torch compares the version counter before it uses a saved tensor, so it refuses.",
        "it gives the right gradient": "exp's derivative is exp(x) = y, and y no longer holds it.",
    },
    answer=lambda r: "it raises an error" if any(p.error for p in r.passes) else "it gives the right gradient",
    evidence=lambda r: float(max(s.current_version or 0 for n in r.nodes for s in n.saved if n.label == "exp")),
    evidence_name="version of y",
    requirement="Say when an in-place write breaks backward. Assume eager mode and a tensor that autograd saved.",
    mechanism=(
        "Every storage has a version counter that each in-place write raises, through any view. A node notes the version when "
        "it saves a tensor and compares it when backward needs it."
    ),
    proof="The saved result of exp was version 0 and is version 1 now. Multiplying a copy instead leaves it at 0 and backward runs.",
    recovery="Write into a clone, or use the out-of-place form. Operations that do not save the tensor (adding, for one) allow the write.",
)

_BIAS = Lesson(
    row="A1",
    title="broadcast bias",
    params=Params(code=_BROADCAST),
    question="b has two entries and is added to three rows. What is each entry of b.grad?",
    choices={
        "3: one for each row": "Broadcasting uses b three times; backward sums over the dimension that was expanded.",
        "1: the derivative of x + b": "That is the derivative for one use. Each entry of b is used in three rows.",
        "⅓: the mean over the rows": "Nothing divides here. A mean loss would.",
    },
    answer=lambda r: {3.0: "3: one for each row", 1.0: "1: the derivative of x + b"}.get(
        first_grad(r, "b"), "⅓: the mean over the rows"
    ),
    evidence=lambda r: first_grad(r, "b"),
    evidence_name="b.grad[0]",
    requirement="Say what gradient a broadcast operand gets. Assume a sum as the loss.",
    mechanism="Broadcasting repeats without copying. The backward of the addition sums the incoming gradient back to the operand's shape.",
    proof="AddBackward0 receives a 3×2 gradient of ones and hands b a gradient of shape [2] with 3 in each entry.",
    recovery="If a bias learns too fast, look at what its gradient is summed over; use a mean loss, or scale the learning rate.",
)

_DETACHED = Lesson(
    row="A5",
    title="detach",
    params=Params(code=_DETACH),
    question="loss = x² + detach(x²) · x at x = 3. What is x.grad?",
    choices={
        "15: detach makes its value a constant": "d/dx (x² + 9x) = 2x + 9 = 15: the detached square counts as the number 9.",
        "33: the true derivative of x² + x³": "That is 2x + 3x². detach removed the path through the second square.",
        "None: detach cuts x off": "Only one of three paths was cut. The other two still reach x.",
    },
    answer=lambda r: {
        15.0: "15: detach makes its value a constant",
        33.0: "33: the true derivative of x² + x³",
    }.get(first_grad(r, "x"), "None: detach cuts x off"),
    evidence=lambda r: first_grad(r, "x"),
    evidence_name="x.grad",
    requirement="Say what detach does to a gradient. Assume the detached value is used further on.",
    mechanism="detach returns a tensor with the same memory and no grad_fn. What is computed from it treats it as a constant.",
    proof="x.grad is 15 and not 33; the node list shows no edge from the product back to the square.",
    recovery="Use detach for targets and for carried state on purpose. If a gradient is too small or None, search for it, and for .item() and .data.",
)

_GRAD_OFF = Lesson(
    row="A5",
    title="no_grad",
    params=Params(code=_NO_GRAD),
    question="scale = w · x was computed under no_grad; loss = scale · w at w = 2, x = 3. What is w.grad?",
    choices={
        "6: scale is a constant": "Nothing was recorded under no_grad, so only the second use of w counts: d(6w)/dw.",
        "12: the true derivative of w²x": "That needs both uses of w in the graph.",
        "an error": "no_grad is no error. The result just does not require gradients.",
    },
    answer=lambda r: (
        "an error"
        if r.fault
        else {6.0: "6: scale is a constant"}.get(first_grad(r, "w"), "12: the true derivative of w²x")
    ),
    evidence=lambda r: first_grad(r, "w"),
    evidence_name="w.grad",
    requirement="Say what no_grad changes. Assume the result is used outside of it.",
    mechanism="Inside no_grad operations run as always and record nothing; results have requires_grad=False. Leaves keep their setting.",
    proof="w.grad is 6, not 12, and the graph holds one multiplication instead of two.",
    recovery="Use it for evaluation and weight updates. If a loss suddenly has no graph, look at which block the forward ran in.",
)

_BY_HAND = Lesson(
    row="A7",
    title="custom Function",
    params=Params(code=_CUSTOM),
    question="round has slope 0. This Function's backward returns the gradient unchanged. What is the sum of x.grad?",
    choices={
        "6: what backward returns": "torch uses the returned value as it is: (1, 2, 3).",
        "0: the true slope of round": "That is what torch.round gives. The Function replaces it.",
        "an error: the derivative is wrong": "torch does not check a derivative written by hand. gradcheck does.",
    },
    answer=lambda r: (
        "an error: the derivative is wrong"
        if r.fault
        else {6.0: "6: what backward returns"}.get(total(r, "x"), "0: the true slope of round")
    ),
    evidence=lambda r: total(r, "x"),
    evidence_name="sum of x.grad",
    requirement="Say what a custom autograd.Function puts into the graph. Assume a first derivative is enough.",
    mechanism="apply runs forward without recording its inside and adds one node that calls your backward with the incoming gradient.",
    proof="The graph has one node named after the class, and x.grad is (1, 2, 3): the straight-through gradient.",
    recovery="Check with gradcheck in float64; save tensors with save_for_backward; write backward with differentiable operations for second derivatives.",
)

_HOOKED = Lesson(
    row="A7",
    title="a hook on a result",
    params=Params(code=_HOOK),
    question="loss = 3x² at x = 2 gives x.grad = 12. A hook on y = x² multiplies its gradient by 10. What is x.grad now?",
    choices={
        "120: everything behind y sees it": "The hook runs before PowBackward0, which multiplies what the hook returned.",
        "12: a hook only looks": "A hook that returns a tensor replaces the gradient.",
        "30: only y's gradient changes": "30 is the gradient at y. It goes on through 2x = 4.",
    },
    answer=lambda r: {120.0: "120: everything behind y sees it", 12.0: "12: a hook only looks"}.get(
        first_grad(r, "x"), "30: only y's gradient changes"
    ),
    evidence=lambda r: first_grad(r, "x"),
    evidence_name="x.grad",
    requirement="Say what a tensor hook can do. Assume it returns a tensor.",
    mechanism="Hooks of a tensor run when its whole gradient is there, before its node. What they return replaces it for everything behind.",
    proof="PowBackward0 receives 30 although MulBackward0 handed on 3, and x.grad is 120.",
    recovery="Use hooks to look or to clip one place; remove them with the handle. A hook registered before an in-place write stays with the old value.",
)

_CHECKPOINTED = Lesson(
    row="A4",
    title="checkpoint",
    params=Params(code=_CHECKPOINT),
    question="block runs under checkpoint. How often has it run when backward is done?",
    choices={
        "2 times": "Once forward without keeping anything, once more in backward to get the saved tensors back.",
        "1 time": "Its saved tensors were thrown away, so backward has to run it again.",
        "3 times": "Looking at the graph does not run it: saved tensors are read without unpacking.",
    },
    answer=lambda r: "1 time" if variable(r, "calls") == 1 else f"{variable(r, 'calls'):g} times",
    evidence=lambda r: variable(r, "calls"),
    evidence_name="runs of block",
    requirement="Say what activation checkpointing keeps and what it costs. Assume the non-reentrant form.",
    mechanism="Saved tensors become markers. The first marker that backward asks for runs the forward again and fills them.",
    proof="Markers instead of bytes in the graph, and block has run twice. A third run would mean that looking recomputes.",
    recovery="Checkpoint the blocks whose activations are large and cheap to recompute. If the peak is elsewhere, it saves nothing.",
)

_KEPT = Lesson(
    row="A4",
    title="retain_graph",
    params=Params(code=_RETAIN),
    question="sigmoid keeps its output and the product keeps both factors: 8,000 bytes. How many are kept after backward(retain_graph=True)?",
    choices={
        "8,000": "retain_graph=True keeps every saved tensor until the graph itself goes.",
        "0": "That is what backward without retain_graph leaves.",
        "16,000": "backward adds gradients to the leaves. It saves nothing more in the graph.",
    },
    answer=lambda r: f"{kept_after(r):,.0f}",
    evidence=kept_after,
    evidence_name="bytes kept after backward",
    requirement="Say when a graph is freed. Assume a scalar loss and one backward.",
    mechanism="backward frees the saved tensors of each node as it goes, unless retain_graph. Nodes go with the last reference to a result.",
    proof="Bytes kept before and after: equal with retain_graph, 0 without. The sigmoid output is saved twice and counted once.",
    recovery="Memory that grows each step is often a kept graph: store loss.item(), detach carried state, leave retain_graph out.",
)

_SECOND = Lesson(
    row="A7",
    title="double backward",
    params=Params(code=_DOUBLE),
    question="y = x³ at x = 2. gradient was taken with create_graph=True and differentiated again. What is second?",
    choices={
        "12: the second derivative 6x": "create_graph recorded the computation of 3x² as a graph of its own.",
        "8: the function again": "second is a derivative of the gradient, not the function.",
        "an error": "It would be one without create_graph: the gradient would have no graph.",
    },
    answer=lambda r: (
        "an error"
        if r.fault
        else {12.0: "12: the second derivative 6x"}.get(variable(r, "second"), "8: the function again")
    ),
    evidence=lambda r: variable(r, "second"),
    evidence_name="d²y/dx²",
    requirement="Say how a second derivative is computed. Assume every operation on the way is twice differentiable.",
    mechanism="With create_graph=True the backward formulas are themselves recorded, so the gradient has a grad_fn and can be differentiated.",
    proof="gradient has nodes of its own, and second is 6x = 12.",
    recovery="It keeps both graphs, so memory grows; use it for penalties on gradients. A custom Function must have a differentiable backward.",
)

_FREEZE = Lesson(
    row="A8",
    title="a frozen layer",
    params=Params(code=_FROZEN),
    question="The first of two linear layers is frozen. How much of it does backward visit?",
    choices={
        "nothing: it is not in the graph": "No input of it requires gradients, so its operations recorded no node.",
        "its nodes, but .grad stays None": "Nodes exist only where something behind them requires gradients.",
        "everything, the optimizer skips it": "Freezing acts when the graph is built, long before the optimizer.",
    },
    answer=lambda r: (
        "its nodes, but .grad stays None"
        if any((n.module or "").startswith("0 ") for n in r.nodes)
        else "nothing: it is not in the graph"
    ),
    evidence=node_count,
    evidence_name="nodes in the graph",
    requirement="Say what requires_grad=False on a layer changes. Assume it is the first layer and the data need no gradient.",
    mechanism="An operation records a node only if an input requires gradients. Below the first trainable parameter there is no graph.",
    proof="No node of module 0 is in the graph and fewer nodes run in backward; its parameters have .grad None.",
    recovery="Freeze before building the optimizer. A frozen layer behind a trainable one still has to pass gradients through.",
)

_SMALL_NETWORK = Lesson(
    row="A4",
    title="a small network",
    params=Params(code=_NETWORK),
    question="Two linear layers, tanh, a loss. After loss.backward(), how much does the graph still keep?",
    choices={
        "nothing: backward freed it": "Each node lets go of its saved tensors as soon as it has run.",
        "everything until loss goes": "That is what retain_graph=True does.",
        "only the weights": "The weights live because the model holds them. The graph let go of them.",
    },
    answer=lambda r: "nothing: backward freed it" if r.kept_bytes_after == 0 else "everything until loss goes",
    evidence=lambda r: float(r.kept_bytes),
    evidence_name="bytes kept before backward",
    requirement="Say what a network keeps between forward and backward. Assume one training step.",
    mechanism=(
        "Linear keeps its input, and its weight where the input needs a gradient; tanh its output; the loss both inputs. A storage counts once, "
        "leaves included."
    ),
    proof="The saved tensors add up to the bytes shown, and to 0 after backward.",
    recovery="To need less: a smaller batch, checkpointing, or a lower precision. Hold the loss as a number (.item()), not as a tensor.",
)

lessons: tuple[Lesson, ...] = (
    _USED_TWICE,
    _CHAIN,
    _BRANCHED,
    _IN_PLACE,
    _BIAS,
    _DETACHED,
    _GRAD_OFF,
    _BY_HAND,
    _HOOKED,
    _CHECKPOINTED,
    _ACCUMULATED,
    _KEPT,
    _SECOND,
    _FREEZE,
    _SMALL_NETWORK,
)
