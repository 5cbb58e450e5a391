"""Errors of modules, state dicts, optimizers, scalers, checkpoints and data loaders."""

from __future__ import annotations

import re
from typing import Any

from lab.program.explain.row import Row
from lab.records.program import Ended


def _state_dict(ended: Ended, record: Any) -> tuple[str, str] | None:
    """What differs: names that are missing or too many, a prefix that all of them share, shapes."""
    listed = {kind: _keys(kind, ended.message) for kind in ("Missing", "Unexpected")}
    missing, more = listed["Missing"], listed["Unexpected"]
    shapes = re.findall(
        r"size mismatch for (\S+): .*?torch\.Size\((\[.*?\])\) from checkpoint, .*?torch\.Size\((\[.*?\])\)",
        ended.message,
    )
    prefix = next((m.removesuffix(f) for m in more for f in missing if m.endswith(f".{f}")), "")
    if prefix and all(key.startswith(prefix) for key in more):
        return (
            f"Every key of the state dict begins with {prefix!r}, and the names of this module do not: it was saved from a model that "
            "held this one.",
            f"Take it off: {{k.removeprefix({prefix!r}): v for k, v in state.items()}}.",
        )
    told = [f"{name} is {saved} in the state dict and {here} in the module" for name, saved, here in shapes[:3]]
    told += [f"the state dict lacks {_several(missing)}"] if missing else []
    told += [f"it holds {_several(more)}, which the module has not"] if more else []
    if not told:
        return None
    text = "; ".join(told)
    return (
        f"{text[0].upper() if not shapes else text[0]}{text[1:]}.",
        "Build the module with the settings it was saved with.",
    )


def _keys(kind: str, message: str) -> list[str]:
    found = re.search(rf"{kind} key\(s\) in state_dict: (.*)", message)
    return re.findall(r'"([^"]+)"', found[1]) if found else []


def _several(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


TRAINING = (
    Row(
        r"unscale_\(\) has already been called",
        "A GradScaler divides the gradients by its scale once per step; update() makes it ready for the next, also when a step is skipped.",
        "Call unscale_ once, then clip, then step, then update().",
    ),
    Row(
        r"[Aa]ttempting to unscale FP16 gradients",
        "A GradScaler expects parameters in float32; half precision belongs into autocast.",
        "Keep the model in float32 and run the forward under torch.autocast.",
    ),
    Row(
        r"total norm of order .* is non-finite",
        "clip_grad_norm_ with error_if_nonfinite=True refuses to scale by a factor that is NaN or zero.",
        "Find the layer whose gradient is not finite, or skip the step.",
    ),
    Row(
        r"does not support sparse gradients",
        "An Embedding or EmbeddingBag with sparse=True hands its weight a sparse gradient: only the rows that were looked up. This "
        "optimizer keeps a state for every row and takes dense gradients only.",
        "Use SGD, SparseAdam or Adagrad for that weight, or leave sparse=True out.",
    ),
    Row(
        r"Could not run 'aten::linalg_vector_norm' with arguments from the 'Sparse",
        "A weight has a sparse gradient (sparse=True of an Embedding or EmbeddingBag), and clip_grad_norm_ cannot take the norm of one.",
        "Clip the other parameters only, or leave sparse=True out.",
    ),
    Row(
        r"vmap: inplace arithmetic",
        "Inside vmap every input has a batch dimension that the function does not see. The tensor that is written into was made "
        "without it, so a batched value does not fit into it.",
        "Make it from a batched tensor: torch.zeros_like(x) or x.new_zeros(x.shape); or collect the parts and torch.stack them.",
    ),
    Row(
        r"output with shape .* doesn't match the broadcast shape",
        "An in-place operation keeps the shape of the tensor that it writes into, and here the result would be larger: the other "
        "operand has more dimensions or longer ones.",
        "Use the out-of-place form (t = t + other), or make the tensor in the shape of the result.",
    ),
    Row(
        r"CheckpointError.*different metadata",
        "The second forward of a checkpointed segment did not make the same tensors as the first, so backward would use "
        "the wrong ones. Something in the segment changes between calls: a counter, a random shape, a cache.",
        "Make the segment a pure function of its inputs, or leave it out of checkpointing.",
    ),
    Row(
        r"CheckpointError",
        "The second forward of a checkpointed segment saved another number of tensors than the first.",
        "Make the segment take the same path both times.",
    ),
    Row(
        r"DataDependentOutputException|DynamicOutputShapeException",
        "Tensors without data have shapes and no values: the program reads a value (item, bool, nonzero), which does not exist.",
        "Measure instead of predicting, or take the value from outside the model.",
    ),
    Row(
        r"Expected more than 1 value per channel when training",
        "One value per channel has no variance, so train mode cannot normalise it. The last batch of an epoch is the "
        "usual cause: 257 samples in batches of 64 leave one over.",
        "eval() for prediction; drop_last=True in the DataLoader for training; GroupNorm or LayerNorm for tiny batches.",
    ),
    Row(
        r"Missing key\(s\) in state_dict.*num_batches_tracked",
        "num_batches_tracked is the counter that momentum=None needs. A state dict without version metadata is filled "
        "in; one with metadata counts as broken.",
        "Add the key, or load with strict=False.",
    ),
    Row(
        r"Error\(s\) in loading state_dict",
        "The names or shapes in the state dict are not those of this module.",
        "Build the module with the settings it was saved with; a prefix such as module. is removed from every key first.",
        deeper=_state_dict,
    ),
    Row(
        r"cannot assign (module|parameters?) before Module.__init__\(\) call",
        "nn.Module keeps submodules and parameters in tables that its own __init__ makes.",
        "Call super().__init__() first in __init__.",
    ),
    Row(
        r"is missing the required \"forward\" function",
        "Calling a module runs its forward, and this class has none under that name.",
        "Define def forward(self, x): in the class; look at its spelling and indentation.",
    ),
    Row(
        r"object has no attribute '_(parameters|modules|buffers|forward_hooks|forward_pre_hooks|backward_hooks|backward_pre_hooks)'",
        "nn.Module keeps submodules and parameters in tables that its own __init__ makes, and it did not run.",
        "Call super().__init__() first in __init__.",
    ),
    Row(
        r"optimizer got an empty parameter list",
        "An optimizer needs at least one parameter. A module knows those that are attributes of it; it does not look into plain "
        "lists and dicts, and a generator gives them only once.",
        "Use nn.ModuleList or nn.ParameterList instead of a list, and call parameters() anew.",
    ),
    Row(
        r"params argument given to the optimizer should be an iterable",
        "An optimizer takes several parameters: a list, or model.parameters().",
        "Put one tensor into a list: torch.optim.SGD([w], lr=0.1).",
    ),
    Row(
        r"loaded state dict (contains a parameter group|has a different number of parameter groups)",
        "The optimizer has other parameters than the one whose state was saved.",
        "Build the model and the optimizer as they were when the state was saved.",
    ),
    Row(
        r"cannot assign .* as (parameter|child module)",
        "This name is registered in the module, as a parameter or a submodule, and takes only its own kind.",
        "Wrap it: nn.Parameter(t). To change values in place: with torch.no_grad(): layer.weight.copy_(t).",
    ),
    Row(
        r"_scale is None|No inf checks were recorded",
        "A GradScaler finds its scale, and gradients to check, only after scaler.scale(loss).backward() filled them.",
        "Call scaler.scale(loss).backward() first, then scaler.step(optimizer), then scaler.update().",
    ),
    Row(
        r"step\(\) has already been called since the last update|unscale_\(\) is being called after step",
        "A GradScaler takes one unscale_ and one step for each update, in this order.",
        "Call unscale_, then step, then update() once in each iteration.",
    ),
    Row(
        r"default_collate: batch must contain",
        "The DataLoader joins the samples of a batch into tensors, and a sample holds something that it cannot join.",
        "Return tensors, numbers, or tuples and dicts of them from the data set, or pass collate_fn.",
    ),
    Row(
        r"num_samples should be a positive integer value, but got num_samples=0",
        "The data set is empty: its length is 0.",
        "Check len(dataset) before the DataLoader is made.",
    ),
    Row(
        r"must be divisible by (num_)?groups",
        "The channels are split evenly among the groups.",
        "Choose the number of groups as a divisor of the channels.",
    ),
    Row(
        r"embed_dim must be divisible by num_heads",
        "Attention splits the features evenly among its heads.",
        "Choose embed_dim as a multiple of num_heads.",
    ),
    Row(
        r"input\.size\(-1\) must be equal to input_size|input has inconsistent input_size|Expected hidden(\[\d\])? size",
        "A recurrent layer takes input_size features in the last dimension, and a state of (layers, batch, hidden_size).",
        "Give the layer the number of features that arrives; batch_first=True takes (batch, time, features).",
    ),
)
