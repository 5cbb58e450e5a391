"""What is this tensor, and whose memory is it?

A tensor is a description: shape, strides, offset and dtype, and a reference to a piece of memory, its storage. Element
(i, j) lies at offset + i·stride₀ + j·stride₁. Transposing, slicing and expanding write a new description of the same
memory; other operations take new memory. Which of the two happened shows in no printout.

Here every operation of a program is measured: the storage of its result and of its inputs, the version counters before
and after, the identity of the objects. Sources: E. Yang, "PyTorch internals" (2019); the documentation of tensor views.
"""

from lab.experiments.tensor_anatomy.findings import explain
from lab.experiments.tensor_anatomy.lessons import agreement, lessons
from lab.experiments.tensor_anatomy.measure import run
from lab.experiments.tensor_anatomy.readings import headline
from lab.experiments.tensor_anatomy.schema import Params, Result, offered
from lab.experiments.tensor_anatomy.script import script

__all__ = ["Params", "Result", "agreement", "explain", "headline", "lessons", "offered", "run", "script"]
