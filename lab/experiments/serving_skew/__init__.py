"""Works in training, fails in serving: where do the two paths part?

A model is served with everything around it: the order of its columns, the constants that normalise, the dtype, the mode of
each module, the weights that were really loaded, the function after the logits, the list of names. Each of these is copied
into another program, and a copy that departs raises no error.

The same golden rows go through both paths, and every stage is compared in order. The first stage that parts is where to
look: everything before it is equal bit for bit, everything after it only follows. Tables of weights, modes and dtypes, taken
before anything runs, then name the cause. Comparing labels alone is blind to most of it: many skews change no label.

Gap: largest difference over the standard deviation of the stage. Drift is something else: both paths agree and the live rows
have moved.
"""

from lab.experiments.serving_skew.findings import explain
from lab.experiments.serving_skew.lessons import lessons
from lab.experiments.serving_skew.measure import run
from lab.experiments.serving_skew.readings import agreement, headline, passed
from lab.experiments.serving_skew.schema import Params, Result, offered
from lab.experiments.serving_skew.script import script

__all__ = ["Params", "Result", "agreement", "explain", "headline", "lessons", "offered", "passed", "run", "script"]
