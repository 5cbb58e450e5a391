"""Programs of the lessons: each saves, loads, and lost something on the way."""

from __future__ import annotations

PREFIX = """net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
compiled = torch.compile(net, backend="eager")

plain = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
plain.load_state_dict(compiled.state_dict(), strict=False)
loaded = sum(torch.equal(v, net.state_dict()[k]) for k, v in plain.state_dict().items())
"""
ADAM = """w = nn.Parameter(torch.tensor([1.0, 1.0]))
scale = torch.tensor([1.0, 100.0])

def train(w, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        (w * scale).pow(2).sum().backward()
        optimizer.step()

optimizer = torch.optim.Adam([w], lr=0.01)
train(w, optimizer, 200)
saved, state = w.detach().clone(), optimizer.state_dict()

v = nn.Parameter(saved.clone())
optimizer = torch.optim.Adam([v], lr=0.01)
train(v, optimizer, 1)
moved = (v - saved).abs().max().item()
"""
SCHEDULE = """w = nn.Parameter(torch.ones(1))

def build():
    optimizer = torch.optim.SGD([w], lr=1.0)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.1 ** epoch)

optimizer, schedule = build()
for _ in range(3):
    optimizer.step()
    schedule.step()
state = optimizer.state_dict()

optimizer = torch.optim.SGD([w], lr=1.0)
optimizer.load_state_dict(state)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.1 ** epoch)
rate = optimizer.param_groups[0]["lr"]
"""
RATE = """w = nn.Parameter(torch.ones(1))
w.grad = torch.ones(1)
old = torch.optim.Adam([w], lr=1e-3)
old.step()

new = torch.optim.Adam([w], lr=1e-5)
new.load_state_dict(old.state_dict())
rate = new.param_groups[0]["lr"]
"""
PERMUTATION = """def order():
    return torch.randperm(12).tolist()

first = order()
noise = torch.rand(5)
state = torch.get_rng_state()
seen = first[:6]

torch.set_rng_state(state)
resumed = order()[6:]
twice = 12 - len(set(seen + resumed))
"""
HEADLINES = {PREFIX: "loaded", ADAM: "moved", SCHEDULE: "rate", RATE: "rate", PERMUTATION: "twice"}
"""The number that settles each program."""
