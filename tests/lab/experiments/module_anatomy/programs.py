"""Programs of many kinds: what is to be said of them, on which line; and sound ones of which no warning is to be given."""

from __future__ import annotations

HEAD = """import logging
logging.basicConfig(level=logging.INFO)
log = logging.getLogger("train")
"""
"""Three lines, so that line 4 is the first of a program."""

BLAMED: dict[str, tuple[str, int, str]] = {
    # name -> (program, line, words of the title or text)
    "layers appended to a list, in a function": (
        """def build(width, depth):
    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, width)
            self.blocks = []
            for _ in range(depth):
                self.blocks.append(nn.Linear(width, width))
            self.head = nn.Linear(width, 2)
        def forward(self, x):
            x = self.first(x)
            for block in self.blocks:
                x = torch.relu(block(x))
            return self.head(x)
    return Mlp()

def main():
    torch.manual_seed(0)
    model = build(8, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x, y = torch.randn(16, 4), torch.randint(0, 2, (16,))
    for step in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        print("step", step, round(loss.item(), 4))

main()
""",
        6,
        "not registered",
    ),
    "experts in a dict": (
        """class Experts(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.gate = nn.Linear(d, 2)
        self.experts = {"a": nn.Linear(d, d), "b": nn.Linear(d, d)}

    def forward(self, x):
        share = self.gate(x).softmax(-1)
        return share[:, :1] * self.experts["a"](x) + share[:, 1:] * self.experts["b"](x)


model = Experts(6)
batch = torch.randn(5, 6)
""",
        5,
        "not registered",
    ),
    "a plain mask in attention": (
        """class Causal(nn.Module):
    def __init__(self, d, t):
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d)
        self.mask = torch.full((t, t), float("-inf")).triu(1)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return (q @ k.mT / q.shape[-1] ** 0.5 + self.mask).softmax(-1) @ v


net = Causal(8, 4)
batch = torch.randn(2, 4, 8)
""",
        5,
        "plain tensor",
    ),
    "positions on float64": (
        """class Positions(nn.Module):
    def __init__(self, t, d):
        super().__init__()
        self.table = torch.randn(t, d)
        self.out = nn.Linear(d, d)

    def forward(self, x):
        return self.out(x + self.table)


model = Positions(3, 4)
model.double()
print(model.table.dtype)
batch = torch.randn(2, 3, 4).double()
""",
        4,
        "left table behind",
    ),
    "a Parameter that is cast": (
        """class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.gain = nn.Parameter(torch.ones(3)).to(torch.float64)

    def forward(self, x):
        return self.linear(x) * self.gain.float()


model = Scale()
batch = torch.randn(2, 3)
""",
        5,
        "not a parameter any more",
    ),
    "Parameters in a list": (
        """class Mixture(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.base = nn.Linear(4, 4)
        self.means = [nn.Parameter(torch.randn(4)) for _ in range(n)]

    def forward(self, x):
        return self.base(x) + sum(self.means)


model = Mixture(3)
batch = torch.randn(2, 4)
""",
        5,
        "no module knows",
    ),
    "a tensor that requires a gradient": (
        """class Bias(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.shift = torch.zeros(2, requires_grad=True)

    def forward(self, x):
        return self.linear(x) + self.shift


model = Bias()
batch = torch.randn(3, 2)
""",
        5,
        "no Parameter",
    ),
    "a projection made in forward": (
        """class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)

    def forward(self, x):
        hidden = self.body(x).relu()
        project = nn.Linear(4, 2)
        return project(hidden)


model = Head()
x, y = torch.randn(6, 4), torch.randint(0, 2, (6,))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
        8,
        "makes a new Linear",
    ),
    "one layer six times": (
        """class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*([nn.Linear(5, 5)] * 6))

    def forward(self, x):
        return self.layers(x)


model = Deep()
batch = torch.randn(2, 5)
""",
        4,
        "6 names, one Linear",
    ),
    "an output that is kept": (
        """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        h = self.fc(x)
        self.hidden = h
        return h.sum()


model = Net()
batch = torch.randn(2, 3)
model(batch)
print("kept", model.hidden.shape)
""",
        8,
        "keeps a graph alive",
    ),
    "an optimizer before the new head": (
        """model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model[2] = nn.Linear(8, 3)
batch = (torch.randn(8, 4), torch.randint(0, 3, (8,)))
""",
        2,
        "does not have",
    ),
    "an encoder that is never called": (
        """class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(4, 4)
        self.decoder = nn.Linear(4, 4)

    def forward(self, x):
        return self.decoder(x)


model = Two()
batch = torch.randn(2, 4)
""",
        4,
        "no part in the loss",
    ),
    "forward by name in a function": (
        """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x):
        return self.fc(x)


def evaluate(model, x):
    return model.forward(x)


model = Net()
seen = []
handle = model.register_forward_hook(lambda m, i, o: seen.append(1))
evaluate(model, torch.ones(1, 2))
print(len(seen))
""",
        11,
        "runs without hooks",
    ),
    "a hook in the training loop": (
        """model = nn.Linear(3, 1)
shapes = []
x, y = torch.randn(4, 3), torch.randn(4, 1)
for epoch in range(4):
    model.register_forward_hook(lambda m, i, o: shapes.append(o.shape))
    loss = F.mse_loss(model(x), y)
    loss.backward()
""",
        5,
        "has hooked",
    ),
    "a prefix, not strict": (
        """model = nn.Linear(4, 2)
weights = {"module." + key: value for key, value in nn.Linear(4, 2).state_dict().items()}
model.load_state_dict(weights, strict=False)
batch = torch.randn(3, 4)
""",
        3,
        "loaded nothing",
    ),
    "a mismatch that is caught": (
        """model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
other = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 5)).state_dict()
try:
    model.load_state_dict(other)
except RuntimeError as error:
    log.info("not loaded: %s", type(error).__name__)
batch = torch.randn(3, 4)
""",
        4,
        "has changed the module",
    ),
    "tied weights on meta": (
        """class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Embedding(6, 3)
        self.outer = nn.Linear(3, 6, bias=False)
        self.outer.weight = self.inner.weight


model = Tied()
model = model.to("meta").to_empty(device="cpu")
""",
        10,
        "apart",
    ),
    "a misspelt constructor": (
        """class Net(nn.Module):
    def _init_(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x):
        return x


model = Net()
""",
        2,
        "Nothing calls",
    ),
    "assign, then the old optimizer": (
        """model = nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.load_state_dict(nn.Linear(3, 2).state_dict(), assign=True)
batch = torch.randn(2, 3)
""",
        3,
        "old tensors",
    ),
    "a layer that appears in the first forward": (
        """class Grows(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = None

    def forward(self, x):
        h = self.first(x)
        if self.second is None:
            self.second = nn.Linear(h.shape[-1], 2)
        return self.second(h)


model = Grows()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batch = torch.randn(3, 4)
model(batch)
""",
        10,
        "in no optimizer",
    ),
    "a layer as a class attribute": (
        """class Shared(nn.Module):
    project = nn.Linear(4, 4)

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.project(x))


model = Shared()
batch = torch.randn(3, 4)
""",
        0,
        "not registered",
    ),
    "a queue that forward updates": (
        """class Queue(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(4, 3)
        self.queue = torch.randn(3, 8)

    def forward(self, x):
        q = self.encoder(x)
        scores = q @ self.queue.clone()
        self.queue = torch.cat([self.queue[:, 1:], q.detach().mean(0)[:, None]], 1)
        return scores


model = Queue()
batch = torch.randn(2, 4)
""",
        5,
        "plain tensor",
    ),
    "a layer in a closure": (
        """def make():
    project = nn.Linear(4, 4)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 2)

        def forward(self, x):
            return self.fc(project(x))

    return Net()


model = make()
batch = torch.randn(3, 4)
""",
        2,
        "enclosing function",
    ),
    "a learning rate of 0": (
        """model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
batch = (torch.randn(8, 4), torch.randint(0, 2, (8,)))
""",
        2,
        "learning rate is 0",
    ),
    "dropouts in a list": (
        """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.drops = [nn.Dropout(0.5), nn.Dropout(0.1)]

    def forward(self, x):
        for drop in self.drops:
            x = drop(self.fc(x))
        return x


model = Net().eval()
batch = torch.randn(3, 4)
""",
        5,
        "eval() does not reach",
    ),
    "a table over two lines": (
        """class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.frequencies = 1.0 / (
            10000 ** (torch.arange(0, 3).float() / 3)
        )

    def forward(self, x):
        return self.fc(x * self.frequencies)


model = Rotary()
batch = torch.randn(2, 3)
""",
        5,
        "plain tensor",
    ),
}

ENDED: dict[str, tuple[str, int, str]] = {
    # name -> (program, first line of its sites, words of the explanation)
    "a list and nothing else": (
        """class Net(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.layers = [nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])]


def train():
    net = Net([4, 8, 2])
    log.info("training")
    return torch.optim.Adam(net.parameters())


train()
""",
        4,
        "plain list",
    ),
    "super too late": (
        """class Net(nn.Module):
    def __init__(self):
        self.fc = nn.Linear(2, 2)
        super().__init__()


Net()
""",
        3,
        "on line 7",
    ),
    "a constant stays behind": (
        """class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.rotation = torch.eye(3)

    def forward(self, x):
        return self.fc(x) @ self.rotation


def check():
    net = Norm().to(torch.float64)
    return net(torch.randn(2, 3, dtype=torch.float64))


check()
""",
        5,
        "rotation",
    ),
    "a copy of a model with a result": (
        """import copy
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.cached = self.fc(torch.ones(1, 2))

    def forward(self, x):
        return self.fc(x) + self.cached


ema = copy.deepcopy(Net())
""",
        6,
        "no leaf",
    ),
    "a plain tensor in place of a weight": (
        """layer = nn.Linear(2, 2)
layer.weight = torch.zeros(2, 2)
""",
        2,
        "only a Parameter or None",
    ),
    "a list of modules that is called": (
        """blocks = nn.ModuleList([nn.Linear(2, 2)])
blocks(torch.ones(1, 2))
""",
        2,
        "no forward",
    ),
    "a property that hides what is missing": (
        """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    @property
    def weight(self):
        return self.fc.wieght

    def forward(self, x):
        return x @ self.weight


Net()(torch.ones(1, 2))
""",
        7,
        "property",
    ),
    "a dot in a name": (
        """heads = nn.ModuleDict({"a.b": nn.Linear(2, 2)})
""",
        1,
        "paths",
    ),
    "one weight in two groups": (
        """a, b = nn.Embedding(9, 3), nn.Linear(3, 9, bias=False)
b.weight = a.weight
model = nn.Sequential(a, b)
optimizer = torch.optim.SGD([{"params": a.parameters()}, {"params": b.parameters()}], lr=0.1)
""",
        2,
        "one object",
    ),
    "a hook before a layer that writes in place": (
        """model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
model[0].register_full_backward_hook(lambda module, given, received: None)
model(torch.randn(2, 3, requires_grad=True)).sum().backward()
""",
        2,
        "in place",
    ),
}

_BLOCK = """class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attention = nn.MultiheadAttention(d, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


"""
SOUND: dict[str, str] = {
    "ModuleList and ParameterDict": """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])
        self.scales = nn.ParameterDict({"a": nn.Parameter(torch.ones(3))})
        self.register_buffer("mask", torch.ones(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x) * self.scales["a"] * self.mask
        return x


model = Net()
batch = torch.randn(2, 3)
""",
    "a list of what is registered": """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        self.order = [self.a, self.b]

    def forward(self, x):
        for layer in self.order:
            x = layer(x)
        return x


model = Net()
batch = torch.randn(2, 3)
""",
    "an LSTM": """model = nn.LSTM(4, 8, num_layers=2)
batch = torch.randn(5, 2, 4)
""",
    "a transformer of twelve blocks": f"""{_BLOCK}model = nn.Sequential(*[Block(8) for _ in range(12)])
batch = torch.randn(2, 3, 8)
""",
    "losses and counters": """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.steps, self.names, self.history = 0, ["a", "b"], []
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, x, y):
        self.steps += 1
        loss = self.criterion(self.fc(x), y)
        self.history.append(loss.detach())
        return loss


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = model(torch.randn(4, 3), torch.randint(0, 2, (4,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    log.info("loss %.3f", loss.item())
""",
    "tied on purpose": """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.embedding(x))


model = Net()
batch = (torch.randint(0, 10, (2, 3)), torch.randint(0, 10, (2, 3)))
""",
    "a detached copy": """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        h = self.fc(x)
        self.last = h.detach()
        return h


model = Net()
batch = torch.randn(2, 3)
model(batch)
""",
    "a hook that is removed": """model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
batch, seen = torch.randn(2, 3), []
for _ in range(3):
    handle = model[0].register_forward_hook(lambda m, i, o: seen.append(o.shape))
    model(batch)
    handle.remove()
""",
    "a state dict that fits": """model, other = nn.Linear(3, 2), nn.Linear(3, 2)
model.load_state_dict(other.state_dict())
batch = torch.randn(2, 3)
""",
    "a frozen backbone": """backbone, head = nn.Linear(4, 8), nn.Linear(8, 2)
backbone.requires_grad_(False)
model = nn.Sequential(backbone, nn.ReLU(), head)
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
batch = (torch.randn(6, 4), torch.randint(0, 2, (6,)))
""",
    "super().forward": """class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x):
        return self.fc(x)


class Net(Base):
    def forward(self, x):
        return super().forward(x).relu()


model = Net()
batch = torch.randn(3, 2)
model(batch)
""",
    "two networks and their optimizers on one line": """first, second = nn.Linear(2, 4), nn.Linear(4, 1)
one, two = torch.optim.Adam(first.parameters()), torch.optim.Adam(second.parameters())
for _ in range(2):
    loss = second(first(torch.randn(3, 2)).relu()).mean()
    loss.backward()
    one.step()
    two.step()
""",
    "a loop over models": """for width in (2, 4, 8):
    net = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loss = net(torch.randn(5, 3)).square().mean()
    loss.backward()
    optimizer.step()
    log.info("%d %.3f", width, loss.item())
""",
    "low rank beside frozen layers": """class Low(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(2, base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, 2))

    def forward(self, x):
        return self.base(x) + x @ self.a.T @ self.b.T


model = nn.Sequential(Low(nn.Linear(4, 8)), nn.ReLU(), Low(nn.Linear(8, 2)))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
batch = (torch.randn(8, 4), torch.randint(0, 2, (8,)))
""",
    "hooks put on at once": """model, seen = nn.Linear(3, 3), []
for name in ("a", "b"):
    model.register_forward_hook(lambda m, i, o, name=name: seen.append(name))
batch = torch.randn(2, 3)
model(batch)
""",
    "a move that changes nothing": """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.register_buffer("scale", torch.ones(3, dtype=torch.float64))

    def forward(self, x):
        return self.fc(x * self.scale.float())


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.to("cpu")
batch = torch.randn(2, 3)
""",
    "a compiled model that is called by name": """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x):
        return self.fc(x).relu()


model = torch.jit.script(Net())
y = model.forward(torch.ones(1, 2))
""",
    "what cannot be copied": """import threading


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.lock = threading.Lock()

    def forward(self, x):
        with self.lock:
            return self.fc(x)


model = Net()
batch = torch.ones(1, 2)
""",
}
