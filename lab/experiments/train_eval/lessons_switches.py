"""Lessons on the two switches and on a forgotten one: rows M6, G1 and M4."""

from __future__ import annotations

from lab.contract import Lesson
from lab.experiments.train_eval.readings import accuracy_lost, combination, evidence, modes
from lab.experiments.train_eval.schema import Params

MC_PROGRAM = """model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))
model.eval()
for module in model.modules():
    if isinstance(module, nn.Dropout):
        module.train()

batch = (torch.randn(32, 8), torch.randint(0, 3, (32,)))
"""

_EVAL_GRADIENTS = Lesson(
    row="M6",
    title="eval keeps gradients",
    params=Params(view="switches", mode="eval", gradients="grad"),
    question="model.eval() was called, nothing else. Does a forward keep memory for backward?",
    choices={
        "yes": "eval() sets module.training. Recording belongs to the gradient mode, which is still on.",
        "no: eval() switches gradients off": "It sets one flag on modules, and autograd does not read it.",
        "only for Dropout": "Dropout does nothing in eval mode, so it is the one that keeps nothing.",
    },
    answer=lambda r: "yes" if combination(r).requires_grad else "no: eval() switches gradients off",
    evidence=evidence,
    evidence_name="bytes kept for backward",
    requirement="Say what eval() does to gradients. Assume no other context.",
    mechanism="eval() is train(False): module.training = False, recursively. grad_fn is recorded as long as grad mode is on.",
    proof="requires_grad of the output is True after eval(), with a graph and bytes kept; under no_grad both are gone.",
    recovery="Out of memory during validation: add torch.inference_mode(). Gradients of a frozen network's input need eval() with grad.",
)

_NO_GRAD_DROPS = Lesson(
    row="G1",
    title="no_grad keeps dropout",
    params=Params(view="switches", mode="train", gradients="no_grad"),
    question="Validation runs under torch.no_grad(), without eval(). What does Dropout do?",
    choices={
        "it drops": "no_grad decides what is recorded, not what is computed.",
        "nothing: there is no training": "The layer reads module.training, which is still True.",
        "it scales without dropping": "Both belong to the same branch.",
    },
    answer=lambda r: "it drops" if combination(r).dropped_fraction > 0 else "nothing: there is no training",
    evidence=evidence,
    evidence_name="share of active units dropped",
    requirement="Say which switch Dropout listens to. Assume validation code that only has no_grad.",
    mechanism="Mode and recording are independent: 2 × 3 combinations, all legal. Layers read the mode, autograd reads the gradient mode.",
    proof="Under train() and no_grad about half of the active units are 0, two calls differ, and BatchNorm counted a batch.",
    recovery="Always both: model.eval() and torch.inference_mode(). Then model.train() again.",
)

_INFERENCE = Lesson(
    row="G1",
    title="both switches off",
    params=Params(view="switches", mode="eval", gradients="inference_mode"),
    question="eval() and inference_mode together. Compared with eval() alone, does the output change?",
    choices={
        "no: only what is kept": "The same numbers to the last bit; no graph, no bytes, no version counter.",
        "yes: inference_mode is less precise": "It changes bookkeeping, not arithmetic.",
        "yes: BatchNorm switches": "BatchNorm listens to the mode only.",
    },
    answer=lambda r: (
        "no: only what is kept"
        if len({row.output for row in r.switches if row.mode == "eval"}) == 1
        else "yes: BatchNorm switches"
    ),
    evidence=evidence,
    evidence_name="share of active units dropped",
    requirement="Say what prediction code should set. Assume nobody needs gradients.",
    mechanism="eval() makes layers deterministic and independent of the batch; inference_mode drops graph and version counting.",
    proof="Outputs of the eval row are equal bit by bit; bytes kept fall to 0; the result is an inference tensor.",
    recovery="An inference tensor can never enter a graph: use no_grad where the result is trained on later.",
)

_FORGOTTEN = Lesson(
    row="M6",
    title="forgotten eval",
    params=Params(view="scan", study="forgotten eval", p=0.3),
    question="A classifier with BatchNorm and Dropout answers 99% in eval mode. eval() is forgotten, batches of two. How much accuracy is lost?",
    choices={
        "more than 10 points": "Two samples give a mean and a variance that say little, and Dropout removes units on top.",
        "about 1 point": "That is nearer to large batches.",
        "nothing: the weights are the same": "The weights are. What the layers compute with them is not.",
    },
    answer=lambda r: (
        "more than 10 points"
        if accuracy_lost(r) > 0.1
        else "about 1 point"
        if accuracy_lost(r) > 0.002
        else "nothing: the weights are the same"
    ),
    evidence=evidence,
    evidence_name="accuracy lost",
    requirement="Say how a forgotten eval() shows. Assume BatchNorm and Dropout in the network.",
    mechanism="Dropout adds noise, BatchNorm takes its statistics from the test batch, and stores them: later evaluations suffer too.",
    proof="One trained network, one test set: accuracy by mode and batch size, and once more with data sorted by class.",
    recovery="A metric that depends on the batch size or on the order of the data is the sign. Call eval(); recompute the statistics.",
)

_CONVNET = Lesson(
    row="M4",
    title="a model that ignores eval",
    params=Params(view="scan", study="modules", model="convnet"),
    question="All modules of this network are in eval mode. Do two calls with the same input agree?",
    choices={
        "no: a function in forward still drops": "F.dropout(x, p) in forward has training=True by default.",
        "yes: eval() reaches every module": "It does, and a function is no module.",
        "no: BatchNorm is random": "BatchNorm in eval mode is a fixed scale and shift.",
    },
    answer=lambda r: (
        "no: a function in forward still drops" if modes(r).ignoring else "yes: eval() reaches every module"
    ),
    evidence=evidence,
    evidence_name="relative distance of two eval outputs",
    requirement="Say how to find what ignores eval() in code that is not yours. Assume a model that runs.",
    mechanism="In eval mode every call should be a fixed function. Whatever moves the random generator then has not listened.",
    proof="The call is named with its module and its argument, and two eval outputs differ.",
    recovery="training=self.training; for attention dropout_p=self.p if self.training else 0.0.",
)

_PER_LAYER = Lesson(
    row="M4",
    title="your own model, mixed modes",
    params=Params(view="scan", study="modules", model="own", code=MC_PROGRAM),
    question="eval() on the model, then train() on its dropout layer only. How many modules can change the output under a mode switch?",
    choices={
        "2: BatchNorm and Dropout": "Linear and ReLU never read the mode.",
        "1: only Dropout": "BatchNorm reads it too; here it happens to be in eval mode.",
        "5: every module has the flag": "All have it. Two read it.",
    },
    answer=lambda r: {2: "2: BatchNorm and Dropout", 1: "1: only Dropout"}.get(
        sum(row.gap > 0 for row in modes(r).modules), "5: every module has the flag"
    ),
    evidence=evidence,
    evidence_name="modules that change the output",
    requirement="Say which modes a model can be in. Assume MC dropout or a frozen backbone.",
    mechanism="training is a flag of each module; train() and eval() only set it recursively. Mixed modes are legal.",
    proof="The scan lists the mode in which each module was handed over and the gap that each causes alone.",
    recovery="Print {name: m.training for name, m in model.named_modules()} before an evaluation that looks odd.",
)

SWITCHES = (_EVAL_GRADIENTS, _NO_GRAD_DROPS, _INFERENCE, _FORGOTTEN, _CONVNET, _PER_LAYER)
