"""The bodies of the take-away scripts of the dropout view."""

from __future__ import annotations

from lab.experiments.train_eval.schema import Params

_FUNCTIONAL = """

class FunctionalDropout(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        return F.dropout(x, self.p)  # training is True, whatever the mode


"""


_DROPOUT = """
x = {inputs}.to(device)
layer = {layer}
torch.manual_seed({seed})
outputs = []
for _ in range({passes}):
    {reseed}outputs.append(layer(x))
outputs = torch.stack(outputs).double()  # (passes, ...)
"""


def _dropout_layer(params: Params) -> str:
    return f"{_FUNCTIONAL if params.module == 'F.dropout' else ''}{_DROPOUT}".format(
        inputs={
            "ones": f"torch.ones({params.shape})",
            "normal": f"torch.randn({params.shape})",
            "ramp": f"(torch.arange(1, {_count(params)} + 1) / {_count(params)}).view({params.shape})",
        }[params.inputs],
        layer=("FunctionalDropout" if params.module == "F.dropout" else f"nn.{params.module}") + f"({params.p})",
        passes=max(params.passes, 2) if params.same_mask else params.passes,
        reseed=f"torch.manual_seed({params.seed}); " if params.same_mask else "",
        seed=params.seed,
    )


def _count(params: Params) -> int:
    count = 1
    for extent in params.shape:
        count *= extent
    return count


def masks(params: Params) -> str:
    body = _dropout_layer(params)
    if params.same_mask:
        return body + 'print("two passes have the same mask:")\nprint(float(torch.equal(outputs[0], outputs[1])))\n'
    if params.module == "F.dropout":
        return (
            body + 'layer.eval()\nprint("share dropped after eval():")\nprint((layer(x) == 0).double().mean().item())\n'
        )
    if params.module == "AlphaDropout" and params.p < 1:
        return body + (
            "alpha = -1.7580993408473766\n"
            f"a = ((1 - {params.p}) * (1 + {params.p} * alpha**2)) ** -0.5\n"
            f"dropped = (outputs - (a * alpha - a * {params.p} * alpha)).abs() < 1e-5\n"
            "print(dropped.double().mean().item())\n"
        )
    return body + 'print("share dropped:")\nprint((outputs == 0).double().mean().item())\n'


def convergence(params: Params) -> str:
    mean, variance = "print(outputs.mean().item())\n", "print(outputs.var(correction=0).item())\n"
    return _dropout_layer(params) + (mean + variance if params.module == "AlphaDropout" else variance + mean)


def mc_dropout(params: Params) -> str:
    return f"""
net = nn.Sequential(nn.Linear(1, 64), nn.BatchNorm1d(64), nn.Tanh(), nn.Dropout({params.p}), nn.Linear(64, 1)).to(device)
x = torch.linspace(-2, 2, 33, device=device).unsqueeze(1)
net.eval()
net[3].train()  # the dropout layer only: BatchNorm keeps its statistics
with torch.no_grad():
    outputs = torch.stack([net(x) for _ in range({params.passes})]).double()  # (passes, N, 1)
print("std over passes, mean over inputs:")
print(outputs.std(0, correction=0).mean().item())
"""


def listeners(params: Params) -> str:
    return f"""
x = torch.randn(4, 6, 5).to(device)
attention = lambda t: F.scaled_dot_product_attention(t, t, t, dropout_p={params.p})
random_after_eval = {{
    "nn.Dropout": nn.Dropout({params.p}).eval(),
    "nn.AlphaDropout": nn.AlphaDropout({params.p}).eval(),
    "nn.Dropout1d": nn.Dropout1d({params.p}).eval(),
    "nn.RReLU": nn.RReLU().eval(),
    "nn.BatchNorm1d": nn.BatchNorm1d(6).to(device).eval(),
    "F.dropout": lambda t: F.dropout(t, {params.p}),
    "F.dropout(training=False)": lambda t: F.dropout(t, {params.p}, training=False),
    "F.scaled_dot_product_attention": attention,
}}
random_after_eval = [name for name, layer in random_after_eval.items() if not torch.equal(layer(x), layer(x))]
print(random_after_eval)
print(float(len(random_after_eval)))
"""
