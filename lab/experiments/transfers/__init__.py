"""Where does the host wait for the device?

A GPU works through a queue while Python runs ahead. A line that needs a value on the host (item(), an if on a tensor, a
boolean index) has to wait until the queue is empty, and then the queue has to fill again. The operator that brings a value to
the host is the same on every device, so the waits of a program can be counted here, with their lines, whatever it runs on;
what each costs can only be measured with a GPU.

Copies between host and device are asynchronous only from pinned memory, and reading the target before the copy has ended
reads what was there before. Between places on the host a copy costs what memory gives: more where strides jump.
Source: the CUDA semantics notes of PyTorch; the tutorial on pinned memory and non_blocking.
"""

from lab.experiments.transfers.findings import explain
from lab.experiments.transfers.lessons import lessons
from lab.experiments.transfers.measure import run
from lab.experiments.transfers.readings import agreement, headline
from lab.experiments.transfers.schema import Params, Result, offered
from lab.experiments.transfers.script import script

__all__ = ["Params", "Result", "agreement", "explain", "headline", "lessons", "offered", "run", "script"]
