"""Programs of the lessons: the same step with its waits and without."""

from __future__ import annotations

WHERE = """x = torch.randn(64, 16)
kept = torch.zeros(())

for step in range(20):
    clipped = torch.where(x > 0, x, 0.0)
    kept = kept + clipped.sum()
"""
TENTH = """model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step in range(20):
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(loss.item())
"""
CLIP = """model = nn.Linear(8, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

for step in range(20):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).square().mean().backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""
