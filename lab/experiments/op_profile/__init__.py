"""Where does the step spend its time?

A training step is Python that calls operators, and operators that do the work. The profiler writes down when each began and ended.

Operators call operators: conv2d calls convolution, which calls the kernel. The total of an operator is its whole time, so
the same second is in the total of every caller. Its self time is what is left without the operators that it called:
self = total − Σ total of the called. Self times add up to the step, totals do not.

On a device the host only queues work. Then host time is the launch and device time the kernel: they run beside each other
and are never added. What is shown is measured twice: bare, with nothing but a clock, and with the profiler on.
"""

from lab.contract import Agreement
from lab.experiments.op_profile.findings import explain
from lab.experiments.op_profile.lessons import lessons
from lab.experiments.op_profile.measure import run
from lab.experiments.op_profile.readings import headline
from lab.experiments.op_profile.schema import Params, Result, offered
from lab.experiments.op_profile.script import script

agreement = Agreement(
    factor=6,  # times, on a machine that does other things as well
    factors={"five clocks on one matmul": 4, "a profiler inside a profiler": 1},
)

__all__ = ["Params", "Result", "agreement", "explain", "headline", "lessons", "offered", "run", "script"]
