"""From an error of torch or Python to what it means and what to change.

One table for every page: the first row that fits counts. A page puts rows of its own in front, for what only it knows.
Rows say what the message itself does not.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lab.contract import Fault
from lab.instruments.describing.modules import failing_module
from lab.program.lines import program_line
from lab.program.source import Refused
from lab.records.program import Ended


@dataclass(frozen=True)
class Row:
    """Explains every error in whose "Type: message" the pattern is found."""

    pattern: str
    explanation: str
    repair: str = ""
    deeper: Callable[[Ended, Any], tuple[str, str] | None] | None = None
    """From the error and the page's record of the run: (explanation, repair), or None where there is nothing more to say."""

    def texts(self, ended: Ended, record: Any) -> tuple[str, str]:
        return (self.deeper(ended, record) if self.deeper else None) or (self.explanation, self.repair)


def explain_fault(cause: Ended | BaseException, *, rows: Sequence[Row] = (), record: Any = None) -> Fault:
    """The fault with its explanation, where there is one. ``rows`` come before the common ones."""
    ended = end_of(cause) if isinstance(cause, BaseException) else cause
    explanation, repair = explanation_of(ended, rows=rows, record=record)
    if ended.module:
        explanation = f"It was raised in {ended.module}. {explanation}".rstrip()
    return Fault(ended.type, ended.message, ended.line, explanation, repair)


def explanation_of(ended: Ended, *, rows: Sequence[Row] = (), record: Any = None) -> tuple[str, str]:
    """(explanation, repair); empty texts when the message says it all."""
    head = f"{ended.type}: {ended.message}"
    for row in (*rows, *ROWS):
        if re.search(row.pattern, head, re.DOTALL):
            return row.texts(ended, record)
    return "", ""


def end_of(error: BaseException) -> Ended:
    """What the program raised, by name, message and line of the program. Never raises."""
    name = "MemoryLimit" if is_out_of_memory(error) else type(error).__name__
    if isinstance(error, Refused) and len(error.args) == 2:
        return Ended("Refused", str(error.args[0]), error.args[1])
    line = getattr(error, "line", None)  # an OwnModelError knows where
    message = message_of(error)
    if isinstance(error, (OSError, ImportError)) and _passed_through(
        error.__traceback__, "torch/utils/data/dataloader.py"
    ):
        message += f" ({_WORKERS})"
    line = line if isinstance(line, int) else program_line(error.__traceback__)
    return Ended(name, message, line, failing_module(error.__traceback__))


_WORKERS = "DataLoader was starting a worker process"


def _passed_through(trace: types.TracebackType | None, file: str) -> bool:
    while trace is not None and not trace.tb_frame.f_code.co_filename.endswith(file):
        trace = trace.tb_next
    return trace is not None


def message_of(error: BaseException) -> str:
    """At most 4000 characters of its text. Never raises."""
    try:
        return str(error)[:4000]
    except Exception:  # noqa: BLE001 - an exception class of the program may fail to describe itself
        return "(the exception has no text)"


def is_out_of_memory(error: BaseException) -> bool:
    """Of Python, of a device, or of torch on the CPU."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in message_of(error)


IN_PLACE = r"modified by an inplace operation"
OVERWRITTEN = (
    "A node kept this tensor for its backward formula, and the program has overwritten it since. torch compares version "
    "counters, sees that the kept value is gone, and refuses to compute a wrong gradient."
)
COPY_FIRST = (
    "Write into a copy (t = t.clone() before the write) or use the out-of-place form (t = t + 1 instead of t += 1)."
)
MISSING_KERNEL = r"could not create a primitive"


def is_missing_kernel(error: BaseException) -> bool:
    """The library has no kernel for this operation here: a fact of the processor, whoever wrote the model."""
    return re.search(MISSING_KERNEL, message_of(error)) is not None


def _matrix_sizes(ended: Ended, record: Any) -> tuple[str, str] | None:
    sizes = re.search(r"\((\d+)x(\d+) and (\d+)x(\d+)\)", ended.message)
    if not sizes:
        return None
    rows, inner, other, columns = sizes.groups()
    return (
        f"A matrix product (m, k) @ (k, n) needs equal inner sizes. Here the left one is ({rows}, {inner}) and the right one "
        f"({other}, {columns}): {inner} is not {other}. A Linear holds its weight as (out, in), and the message shows it transposed.",
        f"Give the right side {inner} rows, such as nn.Linear({inner}, {columns}), or bring the input to {other} features.",
    )


def _half_precision(ended: Ended, record: Any) -> tuple[str, str] | None:
    if not re.search(r"BFloat16|Half", ended.message):
        return None
    return (
        "Two tensors have different dtypes and this operation does not convert. One is in half precision, which is what "
        "autocast, half() and bfloat16() give; outside autocast nothing brings it back.",
        "Convert one of them, such as h.float() where autocast ends, or put the whole forward under autocast.",
    )


_AUTOGRAD = (
    Row(IN_PLACE, OVERWRITTEN, COPY_FIRST),
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
)

_TRAINING = (
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
)

_TENSORS = (
    Row(
        r"[Ee]xpected all tensors to be on the same device|is on (cpu|cuda\S*|meta), but expected|not on the expected device",
        "An operation takes tensors of one device only; nothing is copied between devices silently.",
        "Move one of them: t.to(other.device). A module moves with module.to(device), its inputs do not.",
    ),
    Row(
        r"mat1 and mat2 shapes cannot be multiplied",
        "The shapes do not fit together.",
        "Inner sizes of a matrix product must be equal; print the shapes on the line before.",
        deeper=_matrix_sizes,
    ),
    Row(
        r"Expected input batch_size",
        "A loss compares one output row with one target each, and there are not equally many.",
        "Bring both to (N, classes) and (N,): flatten the same dimensions of output and target.",
    ),
    Row(
        r"Target -?\d+ is out of bounds",
        "Cross-entropy takes class numbers from 0 to classes - 1, one output for each class.",
        "Check the smallest and largest target, and the size of the last layer.",
    ),
    Row(
        r"index out of range in self",
        "An embedding was asked for a row that its table does not have.",
        "Ids must be from 0 to num_embeddings - 1: print ids.min() and ids.max().",
    ),
    Row(
        r"expected input.* to have \d+ channels",
        "The convolution's weight is (out, in / groups, ...), and the input has another number of channels in dimension 1.",
        "Use (batch, channels, height, width), and give the layer the number of channels that arrives.",
    ),
    Row(
        r"size of tensor a .* must match the size of tensor b|inconsistent tensor size|[Ss]izes of tensors must match|"
        r"shape '.*' is invalid for input of size|must match the existing size|(?:sizes|shapes) cannot be broadcast|"
        r"size mismatch|[Ee]xpected size for first two dimensions|normalized_shape=",
        "The shapes do not fit together.",
        "Print the shapes on the line before. Inner sizes of a matrix product must be equal; other sizes must be equal or 1.",
    ),
    Row(
        r"expected .* same dtype|must have the same dtype|expected scalar type|Found dtype|expected (m1 and m2|both)",
        "Two tensors have different dtypes and this operation does not convert.",
        "Convert one of them: t.float(), or dtype= at its creation. Inputs and model need one dtype.",
        deeper=_half_precision,
    ),
    Row(
        r"Expected tensor for argument #1 'indices' to have one of the following scalar types",
        "An embedding looks rows up by number, so its input holds integers.",
        "Pass token ids: ids.long(), or torch.randint(...).",
    ),
    Row(
        r"Only Tensors of floating point .*dtype can require gradients",
        "A derivative needs a continuous value; integers have none.",
        "Make the tensor floating point: torch.tensor([1.0, 2.0]).",
    ),
    Row(
        r"Boolean value of Tensor with more than one value is ambiguous",
        "if, and, or, not ask for one truth value, and this tensor holds several.",
        "Use .any(), .all() or torch.where; & | ~ work element by element.",
    ),
    Row(
        MISSING_KERNEL,
        "oneDNN, which runs this operation on a CPU, has no kernel for it in this dtype on this processor.",
        "Set precision to fp32 or bf16_autocast.",
    ),
)

_PYTHON = (
    Row(
        r"^RecursionError",
        "A function called itself too deeply. Tools that walk a graph recursively fail like this on long chains.",
        "Walk with a loop and a list of what is left to do.",
    ),
    Row(
        r"^ModuleNotFoundError: No module named 'torch\.",
        "This part of torch is read from a file on first use, and a program here has no files. torch.compile needs files and a compiler.",
        "Leave out what compiles, exports or starts workers; or run the lab with LAB_TYPED_CODE=trusted on your own machine.",
    ),
    Row(
        _WORKERS,
        "Workers of a DataLoader are processes of their own, and a program here has one process.",
        "Set num_workers=0: the data is then loaded in this process.",
    ),
    Row(
        r"can't start new thread",
        "A program here has one thread and one process; an executor or a pool would start more.",
        "Do the work in a plain loop.",
    ),
    Row(
        r"cannot set number of interop threads",
        "The lab has set the number of threads before the program began; torch takes it once.",
        "Leave out this line.",
    ),
    Row(
        r"Torch not compiled with CUDA enabled|No CUDA GPUs are available|Found no NVIDIA driver",
        "This run has the CPU alone, and the program asks for CUDA by name.",
        'Write device = "cuda" if torch.cuda.is_available() else "cpu", and use device everywhere.',
    ),
    Row(
        r"Parent directory .* does not exist|open file failed",
        "A program here has no files, so nothing can be saved or loaded.",
        "Keep it in memory: a variable, or copy.deepcopy(module.state_dict()).",
    ),
    Row(
        r"^(PermissionError|OSError|BlockingIOError|NotADirectoryError|FileNotFoundError: .*[Nn]o usable temporary)",
        "A program here has no files, no network and no other processes: the operating system refuses them.",
        "Keep everything in memory: make the data in the program.",
    ),
    Row(r"^OwnModelError", "The program ran. What it left does not make a measurement yet."),
    Row(
        r"^TimeLimit",
        "The program did not come to an end in time.",
        "Look at the loop on this line; use fewer steps, a smaller model or smaller tensors.",
    ),
    Row(
        r"^MemoryLimit",
        "The program asked for more memory than one run may use.",
        "Use smaller tensors, a smaller model or batch; look for a list that grows in a loop.",
    ),
    Row(r"^OutputLimit", "What was printed up to here is kept.", "Print less: every hundredth step, or a summary."),
    Row(r"^SystemExit", "The program ended itself.", "Leave out exit(): a program ends after its last line."),
    Row(r"^Refused: open\(\)", "", "Keep everything in memory: make the data in the program, print what it finds."),
    Row(r"^Refused", "", "The names torch, nn, F and math are there without import."),
    Row(
        r"^(SyntaxError|IndentationError|TabError)",
        "Python cannot read the program at this place.",
        "Look at the mark, and at the end of the line before it.",
    ),
    Row(
        r"^(NameError|UnboundLocalError)",
        "The name is not defined at this point.",
        "Names torch, nn, F and math are given; everything else must be assigned first.",
    ),
    Row(
        r"^TypeError: .*forward\(\) (missing|takes|got an unexpected)",
        "The arguments of the call do not fit the parameters of the module's forward.",
        "Compare them with the line that begins def forward(self, ...).",
    ),
)

ROWS = (*_AUTOGRAD, *_TRAINING, *_TENSORS, *_PYTHON)
