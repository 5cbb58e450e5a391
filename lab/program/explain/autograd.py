"""Errors of backward, of leaves and of custom functions."""

from __future__ import annotations

from lab.program.explain.row import Row

AUTOGRAD = (
    Row(
        r"modified by an inplace operation",
        "A node kept this tensor for its backward formula, and the program has overwritten it since. torch compares version "
        "counters, sees that the kept value is gone, and refuses to compute a wrong gradient.",
        "Write into a copy (t = t.clone() before the write) or use the out-of-place form (t = t + 1 instead of t += 1).",
    ),
    Row(
        r"backward through the graph a second time",
        "The first backward freed the saved tensors of this graph, so a second one has nothing to compute with.",
        "Add the losses and call backward once; or run the forward again; or keep the graph with retain_graph=True. "
        "In a loop, detach what is carried over: h = h.detach().",
    ),
    Row(
        r"does not require grad and does not have a grad_fn|[Tt]he loss has no graph",
        "The tensor has no graph: nothing that requires gradients leads to it by differentiable operations.",
        "Set requires_grad=True on a leaf, and look for detach, no_grad, .item(), integer results or torch.tensor(t) on the way. "
        "In a model, leave at least one parameter unfrozen.",
    ),
    Row(
        r"a view of a leaf Variable that requires grad is being used in an in-place",
        "Indexing or reshaping gave a view of a leaf, and the write goes through it into the leaf, whose history must stay empty.",
        "Edit parameters inside `with torch.no_grad():`.",
    ),
    Row(
        r"a leaf Variable that requires grad is being used in an in-place",
        "A leaf that requires gradients has no history; an in-place operation would give it one.",
        "Edit it inside `with torch.no_grad():`, or compute a new tensor: w = w - lr * g.",
    ),
    Row(
        r"more than one element of the written-to tensor refers to a single memory location",
        "expand() repeats memory without copying it (stride 0), so one write would hit several elements. This has nothing to do with autograd.",
        "Copy first: t = t.clone() or t.contiguous().",
    ),
    Row(
        r"grad can be (implicitly )?(be )?(implicitly )?created only for (real )?scalar outputs",
        "backward() without an argument starts from the gradient 1, which is defined for one real number only.",
        "Reduce to a scalar first (.sum() or .mean()), or pass gradient=..., a tensor of the same shape.",
    ),
    Row(
        r"Can't call numpy\(\) on Tensor that requires grad",
        "NumPy would share the memory and could change values without autograd knowing.",
        "Use t.detach().numpy(), or t.detach().cpu().numpy() from a device.",
    ),
    Row(
        r"returned an incorrect number of gradients",
        "backward of a custom Function returns one value for each argument of forward, in the same order.",
        "Return None for the arguments that need no gradient.",
    ),
    Row(
        r"BackwardHookFunction.* is a view and is being modified inplace",
        "A full backward hook wraps the output of the module in a node whose result must not be overwritten.",
        "Use inplace=False in the next layer, or hook the output tensor instead of the module.",
    ),
    Row(
        r"appears to not have been used in the graph",
        "There is no path from this input to the result in the graph. A derivative that was computed without create_graph, or inside a "
        "Function marked once_differentiable, has none either.",
        "Check that the result depends on the input; allow_unused=True gives None instead of this error.",
    ),
    Row(
        r"marked with @once_differentiable",
        "The backward of this custom Function was computed without a graph, so it has no derivative of its own.",
        "Write backward with differentiable operations on saved tensors and remove once_differentiable.",
    ),
    Row(
        r"'NoneType' object has no attribute '(norm|data|abs|item)'",
        "If this is a .grad: it is None before the first backward, after zero_grad() (the default sets it to None), for a frozen "
        "parameter, and for one that was not used.",
        "Read gradients between backward() and zero_grad(), and skip those that are None.",
    ),
    Row(
        r"Output \d+ of \w+ is a view and is being modified inplace",
        "The call returned several views of one tensor together, and torch does not let one of them be overwritten.",
        "Use the out-of-place form (t = t * 2), or write into a copy: t = t.clone().",
    ),
    Row(
        r"nference tensor",
        "A tensor that was made in inference mode has no version counter and never takes part in gradients.",
        "Make a normal tensor of it outside the mode: t = t.clone(). Or compute it under no_grad instead.",
    ),
    Row(
        r"Mismatch in shape: grad_output",
        "The gradient that is handed to backward has one number for each element of the result, so both have the same shape.",
        "Pass a tensor of the shape of the result, such as torch.ones_like(y).",
    ),
    Row(
        r"returned an invalid gradient at index",
        "backward of this node returned a gradient whose shape or dtype is not that of the input it belongs to.",
        "Return a gradient of the shape of each input: sum over what the forward broadcast.",
    ),
    Row(
        r"expected Variable or None \(got",
        "backward of a custom Function returned something that is no tensor.",
        "Return a tensor for each argument of forward, or None where no gradient is needed.",
    ),
    Row(
        r"save_for_backward can only save",
        "ctx.save_for_backward takes tensors (or None) only.",
        "Store numbers and other objects on ctx itself: ctx.k = k.",
    ),
    Row(
        r"Legacy autograd function with non-static forward",
        "A custom Function is not called as an object. Its forward and backward are static methods, and apply runs them.",
        "Write @staticmethod above forward and backward, and call Name.apply(x).",
    ),
    Row(
        r"must implement either the backward or vjp method|must implement the forward",
        "This custom Function has no method of that name, so the engine has nothing to run.",
        "Write both as static methods: def forward(ctx, x) and def backward(ctx, grad_output).",
    ),
    Row(
        r"^\w+: hook .* has changed the (size|type) of value|but hook returned",
        "What a tensor hook returns replaces the gradient, so it must be a tensor of the same shape and dtype.",
        "Return a tensor like the one that the hook is given, or nothing to leave it as it is.",
    ),
    Row(
        r"cannot register a hook on a tensor that doesn't require gradient|can't retain_grad on Tensor",
        "No gradient arrives at a tensor that does not require gradients.",
        "Create the leaf with requires_grad=True before, or put it on a result that depends on one.",
    ),
    Row(
        r"One of the differentiated Tensors does not require grad",
        "autograd.grad was asked for the derivative with respect to a tensor that does not require gradients.",
        "Create that tensor with requires_grad=True before the result is computed from it.",
    ),
    Row(
        r"support the deepcopy protocol",
        "A result holds the graph that it came from, and deepcopy copies leaves only.",
        "Copy its values: t.detach().clone(). In a module, keep results out of self before it is copied.",
    ),
    Row(
        r"cannot resize variables that require grad|[Ss]etting .*\.data.*|set_\w* .*is not allowed on a Tensor created from \.data",
        "The graph relies on the shape and the memory that a tensor had when it was recorded.",
        "Make a new tensor of the size that is wanted.",
    ),
    Row(
        r"you can only change requires_grad flags of leaf variables",
        "Whether a result requires gradients follows from what it was computed from; only a leaf can be switched.",
        "Use t.detach() for the values without the graph, or switch the leaves before the computation.",
    ),
    Row(
        r"attempting to assign a gradient of size|assigned grad has data of a different",
        "A gradient has one number for each element of its tensor: same shape, dtype and device.",
        "Assign a tensor like the leaf, such as torch.zeros_like(w).",
    ),
    Row(
        r"can't optimize a non-leaf Tensor",
        "An optimizer moves leaves. This tensor is the result of an operation, and backward fills no .grad for it.",
        "Create the leaf last: convert first, then requires_grad_() or nn.Parameter.",
    ),
)
