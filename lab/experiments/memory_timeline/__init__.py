"""What fills the memory?

Parameters, their gradients, what the optimizer keeps, and what autograd saves between forward and backward: the last is
the part that grows with the batch, and the one that mixed precision and checkpointing are about.

Every operation of a training step is seen by the dispatcher. The storage behind each result is followed from its birth to
its death; what it became in between says what it was: for a block of a transformer with u = 4·B·T·d bytes autograd saves
16u, with checkpointing 1u and one more forward. The peak is the largest sum of what is alive at one operation, and is
exact for every tensor. The same operations on tensors without data predict it for models that do not fit.
"""

from lab.contract import Agreement
from lab.experiments.memory_timeline.findings import explain
from lab.experiments.memory_timeline.lessons import lessons
from lab.experiments.memory_timeline.measure import run
from lab.experiments.memory_timeline.readings import headline
from lab.experiments.memory_timeline.schema import Params, Result, offered
from lab.experiments.memory_timeline.script import script

agreement = Agreement(
    relative=0,
    absolute=0,
    smaller={"1.3 billion parameters on a 24 GiB card": {"layers": 2}},
)

__all__ = ["Params", "Result", "agreement", "explain", "headline", "lessons", "offered", "run", "script"]
