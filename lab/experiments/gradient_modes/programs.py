"""The programs of the lessons, and what each prints last."""

from __future__ import annotations

CACHE = """class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = None
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        if self.table is None:
            self.table = torch.arange(3.0)
        return x * self.scale * self.table

model = Rotary()
with torch.inference_mode():
    validation = model(torch.ones(3))
loss = model(torch.ones(3)).sum()
loss.backward()
"""

ENABLE = """w = torch.ones(2, requires_grad=True)
recorded = 0
for mode in (torch.no_grad, torch.inference_mode):
    with mode():
        with torch.enable_grad():
            y = w * 2
    recorded += y.requires_grad
"""

PLUS_TIMES = """with torch.inference_mode():
    shift = torch.ones(2)
w = torch.ones(2, requires_grad=True)
errors = 0
for operation in (torch.add, torch.mul):
    try:
        operation(w, shift).sum().backward()
    except RuntimeError as error:
        print(operation.__name__, error)
        errors += 1
"""

DETACHED = """features = nn.Linear(2, 2).requires_grad_(False)
target = torch.zeros(1, 2)

image = torch.ones(1, 2, requires_grad=True)
loss = (features(image) - features(target).detach()).square().sum()
loss.backward()
with_target = image.grad is not None

image = torch.ones(1, 2, requires_grad=True)
loss = (features(image).detach() - features(target)).square().sum()
with_prediction = loss.requires_grad
"""

GENERATOR = """w = torch.ones(2, requires_grad=True)

def batches():
    with torch.no_grad():
        yield w * 2
    yield w * 3

stream = batches()
first = next(stream)
loss = (w * 5).sum()
enabled = torch.is_grad_enabled()
second = next(stream)
"""

CLONE = """with torch.inference_mode():
    x = torch.ones(2)
    copy = x.clone()
later = x.clone()
inside, outside = copy.is_inference(), later.is_inference()
"""

NOTHING = """with torch.no_grad():
    weight = torch.randn(3) * 0.1
bias = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
before = weight.clone()
for _ in range(10):
    optimizer.zero_grad()
    loss = ((torch.ones(4, 3) * weight).sum(1) + bias - 1).square().mean()
    loss.backward()
    optimizer.step()
moved = int((weight != before).sum())
"""

GAN = """G, D = nn.Linear(2, 2), nn.Linear(2, 1)
noise = torch.ones(1, 2)

fake = G(noise)
D(fake).sum().backward()
filled = sum(p.grad is not None for p in G.parameters())

G.zero_grad(), D.zero_grad()
fake = G(noise)
D(fake.detach()).sum().backward()
filled_detached = sum(p.grad is not None for p in G.parameters())
"""

HEADLINES = {
    ENABLE: "recorded", PLUS_TIMES: "errors", DETACHED: "int(with_target)", GENERATOR: "int(enabled)", CLONE: "int(inside)",
    NOTHING: "moved", GAN: "filled",
}  # fmt: skip
