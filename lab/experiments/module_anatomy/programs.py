"""The programs of the lessons, and the lines that print their numbers in plain PyTorch."""

from __future__ import annotations

LIST_OF_LAYERS = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(2, 2) for _ in range(3)]

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


model = Net()
batch = torch.randn(4, 2)
"""
THREE_TENSORS = """class Mask(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.plain = torch.ones(3)
        self.register_buffer("kept", torch.ones(3))
        self.register_buffer("scratch", torch.ones(3), persistent=False)

    def forward(self, x):
        return self.linear(x) * self.plain * self.kept * self.scratch


model = Mask()
batch = torch.randn(4, 3)
"""
UNUSED = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.used = nn.Linear(4, 4)
        self.unused = nn.Linear(4, 4)

    def forward(self, x):
        return self.used(x)


model = Net()
batch = torch.randn(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
TIED = """class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 8)
        self.head = nn.Linear(8, 100, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


model = LanguageModel()
batch = (torch.randint(0, 100, (4, 6)), torch.randint(0, 100, (4, 6)))
"""
FORWARD = """model = nn.Linear(2, 2)
batch = torch.ones(1, 2)
log = []
model.register_forward_hook(lambda module, inputs, output: log.append("ran"))
"""
ONE_OBJECT = """activation = nn.GELU()
model = nn.Sequential(*[nn.Sequential(nn.Linear(2, 2), activation) for _ in range(3)])
batch = torch.ones(1, 2)
calls = []
for block in model:
    block[1].register_forward_hook(lambda module, inputs, output: calls.append(1))
"""
SMALL_NET = """model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
batch = torch.randn(4, 4)
"""
PREFIX = f"""{SMALL_NET}state = {{f"module.{{key}}": value + 1 for key, value in model.state_dict().items()}}
"""
MISMATCH = """model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
batch = torch.randn(4, 4)
state = {key: value + 1 for key, value in nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 2)).state_dict().items()}
"""
CAST = """class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(3)).double()
        self.shift = nn.Parameter(torch.rand(3).double())

    def forward(self, x):
        return x * self.gain + self.shift


model = Scale()
batch = torch.randn(4, 3)
"""
TOO_EARLY = """model = nn.Linear(4, 2)
batch = torch.randn(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
nn.utils.parametrizations.weight_norm(model)
"""
BIAS = """model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))
nn.init.zeros_(model[0].bias)
half = torch.randn(8, 4)
batch = torch.stack([half, -half], 1).flatten(0, 1)  # in pairs, so that nothing is left of rounding


def loss(model, batch):
    return (model(batch) ** 4).mean()
"""
HOOK_AGAIN = """model, seen = nn.Linear(2, 2), []
batch = torch.ones(1, 2)


def features(x):
    model.register_forward_hook(lambda module, inputs, output: seen.append(tuple(output.shape)))
    return model(x)


for _ in range(3):
    features(batch)
"""
FEATURES = """model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
batch = torch.randn(5, 4)
features = {}


def keep(module, inputs, output):
    features["middle"] = output.detach()


handle = model[1].register_forward_hook(keep)
"""
SURGERY = """model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
batch = torch.randn(5, 4)
handle = model[1].register_full_backward_hook(lambda module, given, received: (given[0] * 0.5,))
"""

PRINTED = {
    LIST_OF_LAYERS: "print(sum(p.numel() for p in model.parameters()))\n",
    THREE_TENSORS: """before = {n: getattr(model, n).dtype for n in ("plain", "kept", "scratch")}
saved = [n for n in before if n in model.state_dict()]
model.to(torch.float64)
moved = [n for n, dtype in before.items() if getattr(model, n).dtype != dtype]
print("saved:", saved, "moved:", moved)
print(len(moved))
""",
    UNUSED: """before = [p.detach().clone() for p in model.unused.parameters()]
model(batch).square().mean().backward()
optimizer.step()
print("held:", sum(any(p is q for q in optimizer.param_groups[0]["params"]) for p in model.unused.parameters()))
print(sum(not torch.equal(p, old) for p, old in zip(model.unused.parameters(), before)))
""",
    TIED: """print("by layer:", sum(p.numel() for m in model.modules() for p in m.parameters(recurse=False)))
print(sum(p.numel() for p in model.parameters()))
""",
    FORWARD: """model.forward(batch)
print(len(log))
""",
    ONE_OBJECT: """model(batch)
print(len(calls))
""",
    PREFIX: """answer = model.load_state_dict(state, strict=False)
print("missing:", len(answer.missing_keys), "unexpected:", len(answer.unexpected_keys))
print(len(model.state_dict()) - len(answer.missing_keys))
""",
    MISMATCH: """before = {key: value.clone() for key, value in model.state_dict().items()}
try:
    model.load_state_dict(state, strict=False)
except RuntimeError as error:
    print(error)
print(sum(not torch.equal(value, before[key]) for key, value in model.state_dict().items()))
""",
    CAST: """print(len(list(model.named_parameters())))
""",
    TOO_EARLY: """held = {id(p) for p in optimizer.param_groups[0]["params"]}
print(sum(id(p) in held for p in model.parameters()))
""",
    BIAS: """loss(model, batch).backward()
print("weight:", model[0].weight.grad.abs().max().item())
print(torch.count_nonzero(model[0].bias.grad).item())
""",
    HOOK_AGAIN: "print(len(seen))\n",
    FEATURES: """model(batch)
print(features["middle"].shape[1])
""",
    SURGERY: """x = batch.clone().requires_grad_(True)
model(x).square().mean().backward()
halved = x.grad.norm()
handle.remove()
x.grad = None
model(x).square().mean().backward()
print((halved / x.grad.norm()).item())
""",
}
