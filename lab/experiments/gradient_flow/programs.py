"""Programs of presets that bring their own model."""

FROZEN = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.used = nn.Linear(4, 4)
        self.spare = nn.Linear(4, 4)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.used(x) * 0 + self.frozen(x))

model = Net()
batch = (torch.randn(16, 4), torch.randn(16, 1))
"""

ON_THE_BOUND = """class Level(nn.Module):
    def __init__(self):
        super().__init__()
        self.level = nn.Parameter(torch.tensor([3.0]))

    def forward(self, x):
        return F.hardtanh(self.level, -2.0, 3.0) * x

model = Level()
batch = torch.ones(1)

def loss(model, batch):
    return model(batch).sum()
"""
