"""What does this module own?

``nn.Module`` keeps three tables: parameters, buffers, submodules. What gets into them is decided by one method, ``__setattr__``:
a Parameter or a Module that becomes an attribute is registered; a buffer is by ``register_buffer``. Everything that walks a
model reads these tables and nothing else: ``parameters()`` and with it the optimizer, ``to()``, ``state_dict()``, ``train()``.
What lies in a list, a dict, or as a plain tensor beside them is used in forward all the same, and none of them finds it.

What is shown was measured: a copy of the model was converted, one step was run, the state dict was read by identity, and every
other attribute was searched for tensors and modules, with the line that put them there.
"""

from lab.experiments.module_anatomy.findings import explain
from lab.experiments.module_anatomy.lessons import lessons
from lab.experiments.module_anatomy.measure import run
from lab.experiments.module_anatomy.readings import headline
from lab.experiments.module_anatomy.schema import Params, Result, offered
from lab.experiments.module_anatomy.script import script

__all__ = ["Params", "Result", "explain", "headline", "lessons", "offered", "run", "script"]
