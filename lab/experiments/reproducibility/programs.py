"""Programs of the lessons, each with a number that settles it."""

from __future__ import annotations

PREFIX = """def draw(count):
    torch.manual_seed(0)
    return torch.randn(count)

equal = torch.equal(draw(8), draw(16)[:8])
"""
LOADER = """data = torch.utils.data.TensorDataset(torch.arange(8.0))
loader = torch.utils.data.DataLoader(data, batch_size=4)

before = torch.get_rng_state()
for (x,) in loader:
    x.sum()
moved = not torch.equal(before, torch.get_rng_state())
"""
ULP = """def train(nudge):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    if nudge:
        with torch.no_grad():
            w = net[0].weight
            w.copy_(torch.nextafter(w, torch.full_like(w, 9.0)))
    g = torch.Generator().manual_seed(3)
    x = torch.randn(512, 16, generator=g)
    y = torch.sin(3 * x[:, :1])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)
    for step in range(100):
        rows = torch.randint(0, 512, (32,), generator=g)
        optimizer.zero_grad()
        F.mse_loss(net(x[rows]), y[rows]).backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in net.parameters()])

torch.set_num_threads(1)
a, b = train(False), train(True)
gap = ((a - b).norm() / a.norm()).item()
far = gap > 1e-5
"""
HEADLINES = {PREFIX: "float(equal)", LOADER: "float(moved)", ULP: "float(far)"}
"""The number that settles each program."""
