"""Where does the gradient go?

The chain rule multiplies one Jacobian for every layer on the way back. Depth turns a factor that is a little below or
above 1 into a gradient that vanishes or explodes.

In a wide random network the factor is known. With W_ij ~ N(0, σw²/width), the mean square q of what enters an activation
function φ and the mean square of the gradient change from layer to layer by

    q' = σw² · E[φ(√q z)²] + σb²        χ = σw² · E[φ'(√q z)²]        z ~ N(0, 1)

so the gradient's norm changes by ½ · log10 χ decades a layer (Schoenholz et al. 2017). For ReLU χ = σw² / 2. torch's
default initialisation of a linear layer, U(-1/√n, 1/√n), has σw² = 1/3.

What is shown was measured by hooks on the layers of one network during real training steps; the theory is drawn beside it.
Slopes are compared over the inner half of the depth, for a random tensor sent back from the last layer's output, as the
theory assumes; the loss's own gradient is measured as well. Their difference may grow with √(depth / width).
"""

from lab.contract import Agreement
from lab.experiments.gradient_flow.findings import explain
from lab.experiments.gradient_flow.lessons import lessons
from lab.experiments.gradient_flow.measure import run
from lab.experiments.gradient_flow.readings import headline
from lab.experiments.gradient_flow.schema import Params, Result, offered
from lab.experiments.gradient_flow.script import script

agreement = Agreement(relative=1e-3)

__all__ = ["Params", "Result", "agreement", "explain", "headline", "lessons", "offered", "run", "script"]
