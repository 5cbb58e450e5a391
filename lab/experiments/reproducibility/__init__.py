"""Where do two runs part?

Two runs that should be the same are recorded operation by operation, with the bits of every result. The recordings are
aligned, and the first operation that differs is named: everything after it only follows. A seed fixes a sequence of draws,
not each draw: one draw more shifts all that come after. Threads, batch size and layout choose the order in which numbers are
added, and floating-point addition is not associative: the last bits differ, and the error does not.

How far the gap grows is another question. It stays near rounding until a unit changes side, and then it jumps. Whether that
matters has three levels: the same bits, the same curve within the spread over seeds, the same conclusion.
Source: the notes on reproducibility of PyTorch; Goldberg 1991, "What every computer scientist should know about floating-point".
"""

from lab.experiments.reproducibility.findings import explain
from lab.experiments.reproducibility.lessons import lessons
from lab.experiments.reproducibility.measure import run
from lab.experiments.reproducibility.readings import agreement, headline
from lab.experiments.reproducibility.schema import Params, Result, offered
from lab.experiments.reproducibility.script import script

__all__ = ["Params", "Result", "agreement", "explain", "headline", "lessons", "offered", "run", "script"]
