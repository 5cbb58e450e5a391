"""The bodies of the take-away scripts of the matrix and of the scan."""

from __future__ import annotations

import inspect
import textwrap
from typing import Any

from lab.experiments.train_eval.schema import Params
from lab.workloads import mode_models, spirals


def both_switches(params: Params) -> str:
    context = {"grad": "enable_grad", "no_grad": "no_grad", "inference_mode": "inference_mode"}[params.gradients]
    return f"""

{inspect.getsource(mode_models.small_net)}

x = torch.randn({max(params.batch, 2)}, 8).to(device)
torch.manual_seed({params.seed})
net = small_net({params.p}).to(device).{params.mode}()
seen, kept = [], {{}}
net[3].register_forward_hook(lambda module, inputs, output: seen.extend((inputs[0], output)))


def pack(tensor):
    kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    return tensor


with torch.{context}(), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
    output = net(x)
print("requires_grad:", output.requires_grad, "| batches counted:", net[1].num_batches_tracked.item())
""" + (
        'print("bytes kept for backward:")\nprint(float(sum(kept.values())))\n'
        if params.gradients == "grad"
        else 'print("share of active units dropped:")\n'
        "print((((seen[0] != 0) & (seen[1] == 0)).sum() / (seen[0] != 0).sum().clamp(min=1)).item())\n"
    )


_SCAN = """

def output(seed):
    torch.manual_seed(seed)
    buffers = [buffer.clone() for buffer in model.buffers()]
    with torch.no_grad():
        y = forward().double()
        for buffer, before in zip(model.buffers(), buffers):
            buffer.copy_(before)  # an output in train mode moves the running statistics
    return y


model.eval()
reference, still, changing = output({seed}), [output({seed} + i) for i in range(4)], []
for name, module in model.named_modules():
    module.training = True  # this module alone
    if any(not torch.equal(output({seed} + i), before) for i, before in enumerate(still)):
        changing.append(name)
    module.training = False
print("modules that change the output:", changing)
print(float(len(changing)))
spread = ((output({seed} + 1) - reference).square().mean() / reference.square().mean()).sqrt().item()
if spread:
    print("two calls after eval() differ by, relative:")
    print(spread)
"""


def modules(params: Params) -> str:
    return _model_source(params) + _SCAN.format(seed=params.seed)


def _model_source(params: Params) -> str:
    if params.model == "own":
        given = "\n\n" + textwrap.dedent(params.code).rstrip() + "\n" if params.code.strip() else _MISSING
        return (
            given
            + "\ninputs = batch[0] if isinstance(batch, (tuple, list)) else batch\nforward = lambda: model(inputs)\n"
        )
    if params.model == "classifier":
        return f"""

{_source(spirals)}

model = trained_net({params.p}, {params.seed}, device)
inputs = spirals(1536, {params.seed} + 1)[0][:128].to(device)
forward = lambda: model(inputs)
"""
    kind = {"convnet": "ConvNet", "transformer": "Attention"}[params.model]
    parts = (getattr(mode_models, kind), getattr(mode_models, params.model))
    source = "\n\n".join(inspect.getsource(part) for part in parts)
    return f"""

{source}

model, inputs, _ = {params.model}({params.p}, {max(params.batch, 2)})
model, inputs = model.to(device), inputs.to(device)
forward = lambda: model(inputs)
"""


_MISSING = "\n\nmodel = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))  # your own model\nbatch = torch.randn(8, 4)\n"


def _source(module: Any) -> str:
    """Everything below the imports."""
    text = inspect.getsource(module)
    return text[text.index("ARMS = ") :].rstrip() + "\n"


def forgotten_eval(params: Params) -> str:
    return f"""

{_source(spirals)}

net = trained_net({params.p}, {params.seed}, device)
inputs, arms = (part.to(device) for part in spirals(1536, {params.seed} + 1))


def accuracy(mode, batch):
    torch.manual_seed({params.seed})
    return evaluate(copy.deepcopy(net).train(mode), inputs, arms, batch)[1]


print("eval():    ", accuracy(False, 128))
print("train mode:", accuracy(True, 2))
print("accuracy lost in batches of two:")
print(accuracy(False, 128) - accuracy(True, 2))
"""
