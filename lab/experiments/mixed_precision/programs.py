"""Programs of the lessons: each loses something to 16 bits."""

from __future__ import annotations

STALE = """net = nn.Linear(2, 2, bias=False)
x = torch.ones(1, 2)
with torch.autocast("cpu", dtype=torch.bfloat16):
    first = net(x)
    with torch.no_grad():
        net.weight.zero_()
    second = net(x)
unchanged = torch.equal(first, second)
"""
SOFTMAX = """x = torch.randn(4, 8)
w = nn.Linear(8, 8)
with torch.autocast("cpu", dtype=torch.bfloat16):
    scores = w(x)
    share = scores.softmax(-1)
bits = torch.finfo(share.dtype).bits
"""
MASK = """low = torch.finfo(torch.float16).min
bias = torch.full((1, 3), low, dtype=torch.float16)
scores = torch.tensor([[-20.0, -40.0, -60.0]], dtype=torch.float16)
masked = scores + bias
share = masked.softmax(-1)
nans = share.isnan().sum().item()
"""
HEADLINES = {STALE: "float(unchanged)", SOFTMAX: "bits", MASK: "nans"}
"""The number that settles each program."""
