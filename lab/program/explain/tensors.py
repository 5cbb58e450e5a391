"""Errors of one operation: shapes, dtypes, devices, indices."""

from __future__ import annotations

import re
from typing import Any

from lab.program.explain.row import Row
from lab.records.program import Ended

MISSING_KERNEL = r"could not create a primitive"


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


TENSORS = (
    Row(
        r"expected target dtype to be Long|expected scalar type Long but found|Expected floating point type for target",
        "Class numbers are integers, one for each row; probabilities are floating point, one for each class.",
        "Convert class numbers with target.long(). Targets of regression belong to mse_loss.",
        about="dtype",
    ),
    Row(
        r"multi-target not supported|1D target tensor expected",
        "A loss on classes takes one class number for each row, so the target has one dimension less than the output.",
        "Drop the last dimension: target.squeeze(1), or target.argmax(1) for one-hot targets.",
        about="shape",
    ),
    Row(
        r"[Uu]sing a target size .* that is different to the input size|Target size .* must be the same as input size",
        "This loss compares element by element, and output and target have different shapes.",
        "Bring both to one shape, such as output.squeeze(1).",
        about="shape",
    ),
    Row(
        r"all elements of (input|target) should be between 0 and 1",
        "binary_cross_entropy takes probabilities between 0 and 1, and what it got lies outside or is NaN.",
        "Put a sigmoid before it, or use binary_cross_entropy_with_logits on the raw output.",
        about="numbers",
    ),
    Row(
        r"view size is not compatible with input tensor's size and stride",
        "view only renames the elements in the order in which they lie in memory, and after t(), transpose or permute they lie in another.",
        "Use reshape, which copies where it must, or contiguous().view(...).",
        about="shape",
    ),
    Row(
        r"could not infer output dtype|Input dtype must be either a floating point",
        "A mean, a norm or a variance is a fraction, and integers cannot hold one.",
        "Convert first: t.float().mean().",
        about="dtype",
    ),
    Row(
        r"can't be cast to the desired output type",
        "An in-place operation keeps the dtype of the tensor that it writes into, and the result would be of another.",
        "Use the out-of-place form (t = t * 0.5), or make the tensor floating point first.",
        about="dtype",
    ),
    Row(
        r"index -?\d+ is out of bounds for (dimension|axis)|index out of bounds|is out of bounds for tensor",
        "Indices count from 0 to size - 1 of their dimension.",
        "Check the smallest and the largest index, and which dimension is meant.",
        about="shape",
    ),
    Row(
        r"Dimension out of range|too many indices for tensor",
        "Dimensions count from 0, or from the end with -1, and this tensor has fewer than the call asks for.",
        "Print t.shape on the line before; unsqueeze adds a dimension.",
        about="shape",
    ),
    Row(
        r"The shape of the [23]D attn_mask",
        "A mask of attention has one row for each query and one column for each key.",
        "Make it from the lengths: torch.ones(queries, keys).",
    ),
    Row(
        r"Expected dtype int32/int64 for index|tensors used as indices must be|index.* must be .*(int64|long)",
        "Indices are whole numbers, so their tensor holds integers.",
        "Convert it: index.long().",
        about="dtype",
    ),
    Row(
        r"The shape of the mask",
        "A mask chooses elements one by one, so it has the shape of the tensor, or of its first dimensions.",
        "Compute the mask from the tensor itself, or transpose it.",
        about="shape",
    ),
    Row(
        r"cannot be called on meta tensors|Cannot copy out of meta tensor",
        "A tensor on the meta device has a shape and no data, so its values cannot be read.",
        "Create it on a device with memory, such as the CPU, or fill it with to_empty and an initialisation.",
        about="device",
    ),
    Row(
        r"cannot be converted to Scalar|[Oo]nly one element tensors can be converted|only one element tensors",
        "A plain number is one element, and this tensor holds several.",
        "Reduce it first (sum, mean, max), choose one element (t[0]), or use tolist().",
        about="shape",
    ),
    Row(
        r"Kernel size can't be greater than actual input size|Output size is too small",
        "The input is smaller than the kernel that slides over it: earlier layers or strides have shrunk it.",
        "Use a larger input, padding, a smaller kernel, or fewer layers that halve the size.",
        about="shape",
    ),
    Row(
        r"Expected \dD \(unbatched\) or \dD \(batched\)|expected \dD or \dD input|Expected \d-?D or \d-?D",
        "The layer takes a fixed number of dimensions: channels and positions, and perhaps a batch in front.",
        "Bring the input to (batch, channels, ...): unsqueeze adds a dimension, flatten removes some.",
        about="shape",
    ),
    Row(
        r"einsum\(\)",
        "In einsum each letter stands for one size, equal wherever the letter appears, one letter for each dimension.",
        "Compare the letters with the shapes of the tensors, in order.",
        about="shape",
    ),
    Row(
        r"Tensors must have same number of dimensions",
        "cat joins tensors along one dimension that all of them have, so they need equally many dimensions.",
        "Add the missing one: t.unsqueeze(0). stack makes a new dimension.",
        about="shape",
    ),
    Row(
        r"\" not implemented for '\w+'",
        "torch has no code for this operation in this dtype on this device.",
        "Convert first, most often with float().",
        about="dtype",
    ),
    Row(
        r"must be (a )?(Tensor|tensor), not|expected Tensor as element \d+ in argument",
        "The function takes a tensor and was given another kind of object.",
        "Make one of it: torch.tensor(...) for numbers, torch.stack(...) for a list of tensors.",
    ),
    Row(
        r"input is not positive-definite|leading minor of order",
        "The factorisation exists for symmetric matrices with positive eigenvalues only.",
        "Add a small multiple of the identity to the diagonal, and check that the matrix is symmetric.",
    ),
    Row(
        r"singular|batches of square matrices",
        "Solving and inverting need a square matrix whose columns are independent.",
        "Use lstsq or pinv, or look at torch.linalg.cond of the matrix.",
        about="shape",
    ),
    Row(
        r"[Ee]xpected all tensors to be on the same device|is on (cpu|cuda\S*|meta), but expected|not on the expected device",
        "An operation takes tensors of one device only; nothing is copied between devices silently.",
        "Move one of them: t.to(other.device). A module moves with module.to(device), its inputs do not.",
        about="device",
    ),
    Row(
        r"mat1 and mat2 shapes cannot be multiplied",
        "The shapes do not fit together.",
        "Inner sizes of a matrix product must be equal; print the shapes on the line before.",
        deeper=_matrix_sizes,
        about="shape",
    ),
    Row(
        r"Expected input batch_size",
        "A loss compares one output row with one target each, and there are not equally many.",
        "Bring both to (N, classes) and (N,): flatten the same dimensions of output and target.",
        about="shape",
    ),
    Row(
        r"Target -?\d+ is out of bounds",
        "Cross-entropy takes class numbers from 0 to classes - 1, one output for each class.",
        "Check the smallest and largest target, and the size of the last layer.",
        about="numbers",
    ),
    Row(
        r"index out of range in self",
        "An embedding was asked for a row that its table does not have.",
        "Ids must be from 0 to num_embeddings - 1: print ids.min() and ids.max().",
        about="numbers",
    ),
    Row(
        r"expected input.* to have \d+ channels",
        "The convolution's weight is (out, in / groups, ...), and the input has another number of channels in dimension 1.",
        "Use (batch, channels, height, width), and give the layer the number of channels that arrives.",
        about="shape",
    ),
    Row(
        r"size of tensor a .* must match the size of tensor b|inconsistent tensor size|[Ss]izes of tensors must match|"
        r"shape '.*' is invalid for input of size|must match the existing size|(?:sizes|shapes) cannot be broadcast|"
        r"size mismatch|[Ee]xpected size for first two dimensions|stack expects each tensor to be equal size|normalized_shape=",
        "The shapes do not fit together.",
        "Print the shapes on the line before. Inner sizes of a matrix product must be equal; other sizes must be equal or 1.",
        about="shape",
    ),
    Row(
        r"expected .* same dtype|must have the same dtype|expected scalar type|Found dtype|expected (m1 and m2|both)",
        "Two tensors have different dtypes and this operation does not convert.",
        "Convert one of them: t.float(), or dtype= at its creation. Inputs and model need one dtype.",
        deeper=_half_precision,
        about="dtype",
    ),
    Row(
        r"Expected tensor for argument #1 'indices' to have one of the following scalar types",
        "An embedding looks rows up by number, so its input holds integers.",
        "Pass token ids: ids.long(), or torch.randint(...).",
        about="dtype",
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
        about="shape",
    ),
    Row(
        MISSING_KERNEL,
        "oneDNN, which runs this operation on a CPU, has no kernel for it in this dtype on this processor.",
        "Set precision to fp32 or bf16_autocast.",
    ),
)
