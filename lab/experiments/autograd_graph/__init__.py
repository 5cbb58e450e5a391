"""What did autograd record?

Every operation on a tensor that requires gradients leaves a node behind: how to go back, and what to remember for it.

Together the nodes are the graph that ``backward`` walks. For z = f(y), y = g(x) the chain rule says
dz/dx = dz/dy · dy/dx: each node takes the gradient of its output, multiplies by its own derivative, and hands the product
to its parents. Where a value was used twice, the gradients of both paths are added. The leaves keep the sum in ``.grad``.

What is shown was read from the graph that PyTorch built while the program ran: ``grad_fn`` and ``next_functions`` of each
node, its saved tensors without unpacking them, and hooks on every node while the engine ran.
"""

from lab.experiments.autograd_graph.findings import explain
from lab.experiments.autograd_graph.lessons import lessons
from lab.experiments.autograd_graph.measure import run
from lab.experiments.autograd_graph.readings import headline
from lab.experiments.autograd_graph.schema import Params, Result
from lab.experiments.autograd_graph.script import script

__all__ = ["Params", "Result", "explain", "headline", "lessons", "run", "script"]
