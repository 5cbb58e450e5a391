"""Programs that fail, one a kind. ``N`` is a size; ``# blame`` marks the line to blame.

kind: role of that line | words of the explanation | what a caught error is told of: yes or no
"""

from __future__ import annotations

PROGRAMS = """
## inplace relu after sigmoid out | overwritten here | kept its own output | yes
x = torch.randn(N, requires_grad=True)
s = torch.sigmoid(x)
F.relu_(s)  # blame
s.sum().backward()
## iadd exp | overwritten here | kept its own output | yes
x = torch.randn(N, requires_grad=True)
e = x.exp()
e += 1  # blame
loss = e.mean()
loss.backward()
## input overwritten by mul | overwritten here | kept u | yes
x = torch.randn(N, requires_grad=True)
u = x * 2
v = u * u
u.zero_()  # blame
v.sum().backward()
## view write | overwritten here | kept | yes
x = torch.randn(N, requires_grad=True)
h = torch.tanh(x)
first = h[:2]
first.add_(1)  # blame
h.sum().backward()
## optimizer step between | overwritten here | step | yes
net = nn.Sequential(nn.Linear(N, 4), nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
out = net(torch.randn(2, N))
a, b = out.sum(), out.pow(2).sum()
a.backward(retain_graph=True)
opt.step()  # blame
b.backward()
## unbind | views made here | several views | yes
x = torch.randn(2, N, requires_grad=True)
a, b = x.mul(1).unbind(0)  # blame
a.mul_(2)
(a * b).sum().backward()
## expanded | expanded here | expand() | yes
row = torch.zeros(1, N)
full = row.expand(4, N)  # blame
full[:, 0] = 1.0
## write leaf idx | overwritten here | history must stay empty | yes
w = torch.randn(N, requires_grad=True)
w[0] = 0.0  # blame
w.sum().backward()
## write leaf | overwritten here | has no history | yes
w = torch.randn(N, requires_grad=True)
g = torch.ones(N)
w -= 0.1 * g  # blame
## cut no_grad module | cut here | no_grad | yes
enc = nn.Linear(N, 2)
head = nn.Flatten(0)
with torch.no_grad():
    z = enc(torch.randn(3, N))  # blame
loss = head(z).sum()
loss.backward()
## cut numpy | cut here | out of the graph | yes
w = torch.randn(N, requires_grad=True)
a = w.detach().numpy() * 2  # blame
loss = torch.from_numpy(a).sum()
loss.backward()
## cut item | cut here | item | yes
w = torch.randn(N, requires_grad=True)
s = (w * w).sum().item()  # blame
loss = torch.tensor(s) + 1
loss.backward()
## cut data | cut here | data | yes
w = torch.randn(N, requires_grad=True)
h = w.data * 2  # blame
h.sum().backward()
## cut round to long | cut here | no derivative | yes
w = torch.randn(N, requires_grad=True)
q = (w * 10).long()  # blame
loss = q.float().mean()
loss.backward()
## frozen | frozen here | requires_grad=False | yes
net = nn.Linear(N, 1)
net.requires_grad_(False)  # blame
loss = net(torch.randn(2, N)).mean()
loss.backward()
## no leaf asks | born without requires_grad | has no graph | yes
w = torch.randn(N)  # blame
loss = (w * 2).sum()
loss.backward()
## inference | born in inference mode | inference | yes
w = torch.randn(N, requires_grad=True)
with torch.inference_mode():
    c = torch.ones(N) * 2  # blame
loss = (w * c).sum()
loss.backward()
## freed twice | freed here | second time | yes
w = torch.randn(N, requires_grad=True)
loss = (w * w).sum()
loss.backward()  # blame
loss.backward()
## freed shared | freed here | used and freed | yes
w = torch.randn(N, requires_grad=True)
h = torch.exp(w)
a, b = h.sum(), h.mean()
a.backward()  # blame
b.backward()
## freed growing | carried over from here | in the step before | yes
w = torch.randn(N, requires_grad=True)
h = torch.zeros(N)
for t in range(3):
    h = torch.tanh(h * w)  # blame
    h.sum().backward()
## nonscalar | fails here | one real number | yes
w = torch.randn(N, requires_grad=True)
y = w.pow(2)
y.backward()  # blame
## nonscalar autograd.grad | fails here | one real number | yes
w = torch.randn(N, requires_grad=True)
y = w.pow(2)
g, = torch.autograd.grad(y, w)  # blame
## several roots | fails here | one real number | yes
w = torch.randn(N, requires_grad=True)
a, b = w * 2, w.sum()
torch.autograd.backward([b, a])  # blame
## complex root | fails here | complex | no
w = torch.randn(N, dtype=torch.cfloat, requires_grad=True)
loss = (w * w).sum()
loss.backward()  # blame
## gradient shape | fails here | shape | yes
w = torch.randn(N, requires_grad=True)
y = w * 3
y.backward(torch.ones(2, N))  # blame
## custom too few | returns too few | must return 2 values | yes
class Op(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        return x * k
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * 2  # blame
w = torch.randn(N, requires_grad=True)
y = Op.apply(w, 2.0).sum()
y.backward()
## custom too many | returns too many | must return 2 values | yes
class Op(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        return x * k
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * 2, None, g  # blame
w = torch.randn(N, requires_grad=True)
y = Op.apply(w, 2.0).sum()
y.backward()
## custom wrong shape | returned here | shape | yes
class Op(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        return x * k
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return (g * 2).sum().expand(2, 2), None  # blame
w = torch.randn(N, requires_grad=True)
y = Op.apply(w, 2.0).sum()
y.backward()
## custom float | returned here | returns | yes
class Op(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        return x * k
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return 2.0, None  # blame
w = torch.randn(N, requires_grad=True)
y = Op.apply(w, 2.0).sum()
y.backward()
## custom unpack | fails here | ctx | no
class Op(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        return x * k
    @staticmethod
    def backward(ctx, g):
        x, k = ctx.saved_tensors  # blame
        return g * 2, None
w = torch.randn(N, requires_grad=True)
y = Op.apply(w, 2.0).sum()
y.backward()
## custom raises | fails here | backward | no
class Op(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        return x * k
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * undefined_k, None  # blame
w = torch.randn(N, requires_grad=True)
y = Op.apply(w, 2.0).sum()
y.backward()
## save nontensor | kept here | save_for_backward | no
class Op(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x, k)  # blame
        return x * k
    @staticmethod
    def backward(ctx, g):
        return g * 2, None
w = torch.randn(N, requires_grad=True)
Op.apply(w, 2.0).sum().backward()
## call Function | fails here | apply | no
class Op(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g * 2
w = torch.randn(N, requires_grad=True)
loss = Op()(w).sum()  # blame
loss.backward()
## no backward | fails here | backward | yes
class Op(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
w = torch.randn(N, requires_grad=True)
loss = Op.apply(w).sum()
loss.backward()  # blame
## once differentiable | cut here | once_differentiable | yes
from torch.autograd.function import once_differentiable
class Op(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3
    @staticmethod
    @once_differentiable  # blame
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return 3 * x ** 2 * g
w = torch.randn(N, requires_grad=True)
g, = torch.autograd.grad(Op.apply(w).sum(), w, create_graph=True)
g.sum().backward()
## create_graph missing | cut here | create_graph | yes
w = torch.randn(N, requires_grad=True)
loss = (w ** 3).sum()
g, = torch.autograd.grad(loss, w)  # blame
g.pow(2).sum().backward()
## hook wrong shape | hook put here | hook | yes
w = torch.randn(N, requires_grad=True)
y = w * 2
y.register_hook(lambda g: g.sum())  # blame
y.sum().backward()
## hook number | hook put here | hook | yes
w = torch.randn(N, requires_grad=True)
y = w * 2
y.register_hook(lambda g: 0.0)  # blame
y.sum().backward()
## hook on no grad | fails here | hook | no
w = torch.randn(N)
w.register_hook(print)  # blame
## retain_grad no grad | fails here | retain_grad | no
w = torch.randn(N)
w.retain_grad()  # blame
## matmul | fails here | is not | yes
x = torch.randn(4, N)
w = torch.randn(5, N)
y = x @ w  # blame
## linear | fails here | is not | yes
layer = nn.Linear(N, 2)
x = torch.randn(4, 7)
y = layer(x)  # blame
## mv | fails here | shape | yes
a = torch.randn(N, 4)
v = torch.randn(7)
y = a @ v  # blame
## bmm | fails here | shape | yes
a = torch.randn(2, 3, 4)
b = torch.randn(3, 4, 5)
y = torch.bmm(a, b)  # blame
## broadcast | fails here | do not fit | yes
a = torch.randn(2, N)
b = torch.randn(N, 2)
y = a + b  # blame
## einsum | fails here | einsum | yes
a = torch.randn(2, N)
b = torch.randn(4, 2)
y = torch.einsum("ij,jk->ik", a, b)  # blame
## conv | fails here | channels | yes
layer = nn.Conv2d(3, 4, 3)
x = torch.randn(2, 1, 8, 8)
y = layer(x)  # blame
## conv dims | fails here | dimension | yes
layer = nn.Conv2d(3, 4, 3)
x = torch.randn(5, N)
y = layer(x)  # blame
## conv kernel | fails here | kernel | yes
layer = nn.Conv2d(1, 4, 9)
x = torch.randn(2, 1, 5, 5)
y = layer(x)  # blame
## cat | fails here | do not fit | yes
a = torch.randn(2, 3)
b = torch.randn(4, 5)
y = torch.cat([a, b])  # blame
## stack | fails here | shape | yes
a = torch.randn(2, 3)
b = torch.randn(2, 5)
y = torch.stack([a, b])  # blame
## view | fails here | elements | yes
x = torch.randn(6, 5)
y = x.view(4, 8)  # blame
## view stride | fails here | in memory | yes
x = torch.randn(6, 5)
t = x.t()
y = t.view(30)  # blame
## dtype | fails here | dtype | yes
a = torch.randn(3, N)
b = torch.randn(N, 2, dtype=torch.float64)
y = a @ b  # blame
## numpy float64 into linear | fails here | dtype | yes
import numpy as np
x = torch.from_numpy(np.ones((2, N)))
layer = nn.Linear(N, 2)
y = layer(x)  # blame
## long into linear | fails here | dtype | yes
x = torch.arange(N)
layer = nn.Linear(N, 2)
y = layer(x)  # blame
## int mean | fails here | int64 | yes
x = torch.arange(N)
y = x.mean()  # blame
## bce target long | fails here | dtype | yes
p = torch.rand(N, requires_grad=True)
t = torch.randint(0, 2, (N,))
loss = F.binary_cross_entropy(p, t)  # blame
## bce out of range | fails here | between 0 and 1 | yes
p = torch.randn(N) * 5 + 3
t = torch.ones(N)
loss = F.binary_cross_entropy(p, t)  # blame
## ce float target 1d | fails here | class | yes
p = torch.randn(N, 4)
t = torch.randn(N)
loss = F.cross_entropy(p, t)  # blame
## ce target range | fails here | classes | yes
p = torch.randn(N, 4)
t = torch.full((N,), 4)
loss = F.cross_entropy(p, t)  # blame
## embedding range | fails here | numbers 0 to 9 | yes
emb = nn.Embedding(10, 4)
ids = torch.full((N,), 10)
y = emb(ids)  # blame
## embedding float | fails here | integers | yes
emb = nn.Embedding(10, 4)
ids = torch.ones(N)
y = emb(ids)  # blame
## index range | fails here | 0 to 2 | yes
x = torch.randn(3)
y = x[5]  # blame
## gather range | fails here | index | yes
x = torch.randn(3, 4)
i = torch.full((3, 1), 4)
y = x.gather(1, i)  # blame
## index_select | fails here | index | yes
x = torch.randn(3, 4)
i = torch.tensor([0, 9])
y = x[i]  # blame
## dim range | fails here | Dimensions | yes
x = torch.randn(3, 4)
y = x.sum(2)  # blame
## mask shape | fails here | mask | yes
x = torch.randn(3, 4)
m = torch.ones(4, 3).bool()
y = x[m]  # blame
## meta device | device chosen here | device | yes
w = torch.randn(N, device="meta")  # blame
x = torch.randn(N)
y = x + w
## meta item | device chosen here | data | yes
w = torch.randn(N, device="meta")  # blame
s = w.sum()
print(s.item())
## unused grad | made here, off the path | no path | yes
w = torch.randn(N, requires_grad=True)
b = torch.randn(N, requires_grad=True)  # blame
loss = (w * 2).sum()
torch.autograd.grad(loss, [w, b])
## grad of non-requires | born without requires_grad | require | yes
w = torch.randn(N, requires_grad=True)
b = torch.randn(N)  # blame
loss = (w * b).sum()
torch.autograd.grad(loss, b)
## deepcopy nonleaf | result since here | leaves | yes
import copy
w = torch.randn(N, requires_grad=True)
h = w * 2  # blame
c = copy.deepcopy(h)
## numpy | fails here | NumPy | yes
w = torch.randn(N, requires_grad=True)
h = w * 2
a = h.numpy()  # blame
## numpy asarray | fails here | NumPy | yes
import numpy as np
w = torch.randn(N, requires_grad=True)
a = np.asarray(w)  # blame
## resize | fails here | resize | yes
w = torch.randn(N, requires_grad=True)
w.resize_(2)  # blame
## requires_grad int | fails here | integers | yes
w = torch.arange(N)
w.requires_grad_()  # blame
## requires_grad False nonleaf | result since here | can switch leaves | no
w = torch.randn(N, requires_grad=True)
h = w * 2  # blame
h.requires_grad = False
## state dict keys | fails here | bias | no
net = nn.Linear(N, 2)
sd = {"weight": net.weight}
net.load_state_dict(sd)  # blame
## state dict size | fails here | weight is [2, 5] | no
net = nn.Linear(4, 2)
other = nn.Linear(5, 2)
net.load_state_dict(other.state_dict())  # blame
## state dict module prefix | fails here | module. | no
net = nn.Linear(4, 2)
sd = {"module." + k: v for k, v in net.state_dict().items()}
net.load_state_dict(sd)  # blame
## missing forward | forward is missing here | forward | no
class Net(nn.Module):  # blame
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(N, 1)
    def foward(self, x):
        return self.a(x)
net = Net()
net(torch.randn(2, N))
## missing super | super().__init__() is missing here | __init__ | no
class Net(nn.Module):
    def __init__(self):  # blame
        self.a = nn.Linear(N, 1)
    def forward(self, x):
        return self.a(x)
net = Net()
net(torch.randn(2, N))
## attr error module | fails here | attribute | no
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(N, 1)
    def forward(self, x):
        return self.layr(x)  # blame
net = Net()
net(torch.randn(2, N))
## forward args | fails here | forward | no
class Net(nn.Module):
    def forward(self, x, mask):
        return x * mask
net = Net()
y = net(torch.randn(2, N))  # blame
## modules in list | hidden here | parameter | no
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(N, 2)]  # blame
    def forward(self, x):
        return self.layers[0](x)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
## collate | fails here | stack | yes
from torch.utils.data import DataLoader
data = [torch.randn(2), torch.randn(3)]
for batch in DataLoader(data, batch_size=2):  # blame
    print(batch.shape)
## collate type | fails here | batch | no
from torch.utils.data import DataLoader
data = [None, None]
for batch in DataLoader(data, batch_size=2):  # blame
    print(batch)
## dataset no len | __len__ is missing here | __len__ | no
from torch.utils.data import DataLoader, Dataset
class D(Dataset):  # blame
    def __getitem__(self, i):
        return torch.ones(2)
loader = DataLoader(D(), batch_size=2, shuffle=True)
for b in loader:
    pass
## scaler step no unscale | fails here | scale | no
net = nn.Linear(N, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
scaler.step(opt)  # blame
## scaler twice | fails here | once per step | no
net = nn.Linear(N, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
scaler.scale(net(torch.randn(2, N)).mean()).backward()
scaler.unscale_(opt)
scaler.unscale_(opt)  # blame
## optimizer nonleaf | result since here | not a leaf | no
w = torch.randn(N, requires_grad=True) * 0.1  # blame
opt = torch.optim.SGD([w], lr=0.1)
## optimizer tensor | fails here | a list | no
w = torch.randn(N, requires_grad=True)
opt = torch.optim.SGD(w, lr=0.1)  # blame
## optimizer empty | fails here | parameter | no
opt = torch.optim.Adam([], lr=0.1)  # blame
## param assign tensor | fails here | registered | no
net = nn.Linear(N, 1)
net.weight = torch.randn(1, N)  # blame
## grad None | fails here | None | no
w = torch.randn(N, requires_grad=True)
loss = (w * 2).sum()
print(w.grad.norm())  # blame
## grad shape assign | fails here | shape | no
w = torch.randn(N, requires_grad=True)
w.grad = torch.ones(2, N)  # blame
## bool | fails here | truth | yes
x = torch.randn(N)
if x > 0:  # blame
    print("positive")
## item many | fails here | one element | yes
x = torch.randn(N)
v = x.item()  # blame
## batchnorm one | fails here | variance | no
net = nn.BatchNorm1d(4)
y = net(torch.randn(1, 4))  # blame
## none forward | returns nothing | None | no
class Net(nn.Module):
    def forward(self, x):  # blame
        x * 2
y = Net()(torch.randn(2, N))
loss = y.sum()
## list tensor op | fails here | takes a tensor | no
xs = [torch.ones(2), torch.ones(2)]
y = torch.relu(xs)  # blame
## tuple lstm | a tuple from here | tuple | no
rnn = nn.LSTM(4, 5)
out = rnn(torch.randn(3, 1, 4))  # blame
y = out.sum()
## lstm input size | fails here | input | no
rnn = nn.LSTM(4, 5)
out, _ = rnn(torch.randn(3, 1, 6))  # blame
## mha dim | fails here | evenly | no
att = nn.MultiheadAttention(10, 3)  # blame
## layernorm | fails here | ln.weight | yes
ln = nn.LayerNorm(5)
y = ln(torch.randn(2, 4))  # blame
## cuda | fails here | CUDA | no
x = torch.randn(N).cuda()  # blame
## scheduler attr | fails here | zero_grad | no
opt = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
opt.zero_gard()  # blame
## gradient differentiated again | cut here | create_graph | yes
x = torch.randn(N, requires_grad=True)
y = (x ** 3).sum()
y.backward()  # blame
h = torch.autograd.grad(x.grad.sum(), x)
## number asked for backward | cut here | plain number | no
net = nn.Linear(N, 1)
def step(x):
    loss = net(x).pow(2).mean()
    return loss.item()  # blame
total = 0
for _ in range(2):
    total += step(torch.randn(4, N))
total.backward()
## method not called | brackets missing here | does not call it | no
net = nn.Linear(N, 1)
loss = net(torch.randn(2, N)).mean  # blame
loss.backward()
## parameters not called | fails here | named and not called | no
net = nn.Linear(N, 1)
opt = torch.optim.SGD(net.parameters, lr=0.1)  # blame
## frozen and left out | frozen here | none is left | no
net = nn.Linear(N, 1)
for p in net.parameters():
    p.requires_grad = False  # blame
opt = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)
## saved tensors taken whole | a tuple from here | is a tuple | no
class Op(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(0, 1)
    @staticmethod
    def backward(ctx, g):
        x = ctx.saved_tensors  # blame
        return g * ((x > 0) & (x < 1))
w = torch.randn(N, requires_grad=True)
Op.apply(w).sum().backward()
## state that begins as None | carried over from here | in the step before | yes
rnn = nn.RNN(N, 4, batch_first=True)
h = None
for step in range(2):
    out, h = rnn(torch.randn(1, 2, N), h)  # blame
    out.mean().backward()
## values of NaN under anomaly detection | became NaN here | gave NaN | yes
x = torch.zeros(N, requires_grad=True)
y = x.sqrt()  # blame
with torch.autograd.detect_anomaly():
    (y * 0).sum().backward()
## torch attr | fails here | softmax | no
y = torch.sotfmax(torch.ones(3), 0)  # blame
## squeeze backward inplace data | overwritten here | through .data | yes
w = torch.randn(N, requires_grad=True)
h = torch.sigmoid(w)
h.data.mul_(2)  # blame
h.sum().backward()
## autocast backward dtype | fails here | dtype | yes
net = nn.Linear(N, 2)
with torch.autocast("cpu", dtype=torch.bfloat16):
    h = net(torch.randn(2, N))
w = torch.randn(2, 3)
y = h @ w  # blame
## checkpoint | fails here | checkpoint | no
from torch.utils.checkpoint import checkpoint
calls = []
def seg(x):
    calls.append(1)
    return torch.sin(x).exp() if len(calls) == 1 else torch.sin(x)
w = torch.randn(N, requires_grad=True)
y = checkpoint(seg, w, use_reentrant=False).sum()
y.backward()  # blame
## sysexit | fails here | exit status 3 | no
import sys
print("before")
sys.exit(3)  # blame
## sysexit text | fails here | stands for a failure | no
w = torch.randn(N)
raise SystemExit("no data found")  # blame
"""

HEALTHY: dict[str, str] = {
    "a write after backward": "x = torch.randn(3, requires_grad=True)\ns = torch.sigmoid(x)\ns.sum().backward()\ns.detach().mul_(2)\n",
    "relu_ after a linear": "net = nn.Linear(3, 3)\ny = F.relu_(net(torch.randn(2, 3)))\ny.sum().backward()\n",
    "add to a product with a constant": "x = torch.randn(3, requires_grad=True)\ny = x * 2\ny += 1\ny.sum().backward()\n",
    "a view of what is not kept": "x = torch.randn(4, requires_grad=True)\nh = x + 1\nh[:2].mul_(2)\nh.sum().backward()\n",
    "a copy of expanded memory": "row = torch.zeros(1, 3)\nfull = row.expand(4, 3).clone()\nfull[:, 0] = 1.0\n",
    "unbind without a write": "a, b = torch.randn(2, 3, requires_grad=True).unbind(0)\n(a * b).sum().backward()\n",
    "step after both passes": "net = nn.Linear(3, 1)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\nout = net(torch.randn(2, 3))\nout.sum().backward(retain_graph=True)\nout.pow(2).sum().backward()\nopt.step()\n",
    "a leaf written under no_grad": "w = torch.randn(3, requires_grad=True)\nwith torch.no_grad():\n    w[0] = 0.0\n(w * w).sum().backward()\n",
    "evaluation under no_grad": "net = nn.Linear(3, 1)\nwith torch.no_grad():\n    print(net(torch.randn(2, 3)).mean())\n",
    "values logged with item": "w = torch.randn(3, requires_grad=True)\nloss = (w * w).sum()\nprint(loss.item(), loss.detach().numpy())\nloss.backward()\n",
    "half frozen": "net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))\nnet[0].requires_grad_(False)\nnet(torch.randn(2, 3)).sum().backward()\n",
    "an inference tensor that is cloned": "w = torch.randn(3, requires_grad=True)\nwith torch.inference_mode():\n    c = torch.ones(3) * 2\n(w * c.clone()).sum().backward()\n",
    "forward again in each step": "w = torch.randn(3, requires_grad=True)\nfor _ in range(2):\n    (w * w).sum().backward()\n    w.grad = None\n",
    "a state that is detached": "w = torch.randn(3, requires_grad=True)\nh = torch.zeros(3)\nfor _ in range(3):\n    h = torch.tanh(h.detach() * w + w)\n    h.sum().backward()\n    w.grad = None\n",
    "a gradient of the right shape": "w = torch.randn(3, requires_grad=True)\n(w * 3).backward(torch.ones(3))\n",
    "a real root of complex leaves": "w = torch.randn(3, dtype=torch.cfloat, requires_grad=True)\n(w * w).abs().sum().backward()\n",
    "a custom function with a constant": "class Op(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x, k):\n        ctx.k = k\n        return x * k\n    @staticmethod\n    def backward(ctx, g):\n        return g * ctx.k, None\nw = torch.randn(3, requires_grad=True)\nOp.apply(w, 2.0).sum().backward()\n",
    "a Function without staticmethod": "class Op(torch.autograd.Function):\n    def forward(ctx, x):\n        return x * 2\n    def backward(ctx, g):\n        return g * 2\nw = torch.randn(3, requires_grad=True)\nOp.apply(w).sum().backward()\n",
    "a second derivative": "w = torch.randn(3, requires_grad=True)\ng, = torch.autograd.grad((w ** 3).sum(), w, create_graph=True)\ng.pow(2).sum().backward()\n",
    "a linear layer that fits": "print(nn.Linear(3, 2)(torch.randn(4, 3)).shape)\n",
    "a broadcast on purpose": "print((torch.randn(2, 3) + torch.randn(3)).shape)\n",
    "reshape of a transpose": "print(torch.randn(6, 5).t().reshape(30).shape)\n",
    "classes in range": "p = torch.randn(4, 3, requires_grad=True)\nF.cross_entropy(p, torch.tensor([0, 1, 2, 2])).backward()\n",
    "ids in range": "emb = nn.Embedding(10, 4)\nemb(torch.tensor([0, 9])).sum().backward()\n",
    "meta alone": "w = torch.randn(3, device='meta')\nprint((w + w).shape)\n",
    "unused on purpose": "w = torch.randn(3, requires_grad=True)\nb = torch.randn(3, requires_grad=True)\nprint(torch.autograd.grad((w * 2).sum(), [w, b], allow_unused=True))\n",
    "deepcopy of a module": "import copy\nnet = nn.Linear(3, 1)\nother = copy.deepcopy(net)\n(net(torch.randn(2, 3)) + other(torch.randn(2, 3))).sum().backward()\n",
    "a state dict that fits": "net = nn.Linear(3, 1)\nprint(net.load_state_dict(nn.Linear(3, 1).state_dict()))\n",
    "layers in a ModuleList": "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.layers = nn.ModuleList([nn.Linear(3, 3)])\n    def forward(self, x):\n        return self.layers[0](x)\nnet = Net()\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\nnet(torch.randn(2, 3)).sum().backward()\nopt.step()\n",
    "a loader of equal samples": "from torch.utils.data import DataLoader\nfor batch in DataLoader([torch.randn(2), torch.randn(2)], batch_size=2):\n    print(batch.shape)\n",
    "a scaler in order": "net = nn.Linear(3, 1)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\nscaler = torch.amp.GradScaler('cpu')\nscaler.scale(net(torch.randn(2, 3)).mean()).backward()\nscaler.unscale_(opt)\nscaler.step(opt)\nscaler.update()\n",
    "an error of Python that is caught": "try:\n    {}['key']\nexcept KeyError:\n    print('no key')\n",
    "exit status 0 at the end": "import sys\ndef main():\n    print('done')\n    return 0\nsys.exit(main())\n",
}
"""Programs that look like one of them and are right."""
