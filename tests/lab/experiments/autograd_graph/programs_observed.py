"""Programs that would notice if looking at them changed anything: each uses torch in another way."""

from __future__ import annotations

import re

_TEXT = """
## a value used twice
x = torch.tensor([1.0, 2.0], requires_grad=True)
h = torch.sigmoid(x) * x
loss = (h + x).sum()
loss.backward()
print(x.grad, loss.grad_fn, x.grad_fn)

## several backward passes
x = torch.tensor(3.0, requires_grad=True)
y = x ** 2
for _ in range(3):
    y.backward(retain_graph=True)
    print(x.grad)
y.backward()
try:
    y.backward()
except RuntimeError as error:
    print(error)

## parts of a graph freed
x = torch.ones(3, requires_grad=True)
a = x.exp()
b, c = a.sin(), a.cos()
b.sum().backward()
try:
    c.sum().backward()
except RuntimeError as error:
    print(str(error)[:40], x.grad)

## create_graph and third order
x = torch.tensor(2.0, requires_grad=True)
first, = torch.autograd.grad(x ** 4, x, create_graph=True)
second, = torch.autograd.grad(first, x, create_graph=True)
third, = torch.autograd.grad(second, x)
print(first, second, third)

## gradient penalty
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
x = torch.randn(5, 3, requires_grad=True)
slope, = torch.autograd.grad(net(x).sum(), x, create_graph=True)
loss = (slope.norm(dim=1) - 1).square().mean()
loss.backward()
print([p.grad.norm() for p in net.parameters() if p.grad is not None])

## complex numbers
z = torch.tensor([1 + 2j, 3 - 1j], requires_grad=True)
loss = (z * z.conj()).real.sum() + torch.view_as_real(z * 1j).square().sum()
loss.backward()
print(z.grad, z.conj().is_conj())

## tied weights
emb = nn.Embedding(7, 4)
head = nn.Linear(4, 7, bias=False)
head.weight = emb.weight
loss = F.cross_entropy(head(emb(torch.tensor([1, 2, 3]))), torch.tensor([2, 3, 4]))
loss.backward()
print(emb.weight.grad.norm(), head.weight is emb.weight, len(list(nn.ModuleList([emb, head]).parameters())))

## modules in modules and their hooks
log = []
net = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 1)))
for name, m in net.named_modules():
    m.register_forward_pre_hook(lambda m, i, n=name: log.append(("pre", n)))
    m.register_forward_hook(lambda m, i, o, n=name: log.append(("post", n)))
    m.register_full_backward_hook(lambda m, gi, go, n=name: log.append(("back", n, [g is None for g in gi])))
net(torch.ones(1, 2)).sum().backward()
print(log)

## nested functions
def outer(t):
    def inner(u):
        v = u * 2
        return v.sin()
    return inner(t) + inner(t * 3)
x = torch.tensor(0.5, requires_grad=True)
loss = (
    outer(x)
    * outer(x ** 2)
)
loss.backward()
print(x.grad)

## hooks that change gradients
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x * 2
handle = y.register_hook(lambda g: g * 10)
x.register_hook(lambda g: g.clamp(max=15))
y.sum().backward(retain_graph=True)
print(x.grad)
handle.remove()
y.sum().backward()
print(x.grad)

## hooks on nodes
x = torch.tensor(2.0, requires_grad=True)
y = (x * 3).exp()
y.grad_fn.register_hook(lambda given, got: tuple(g * 0.5 for g in given))
y.grad_fn.register_prehook(lambda got: (got[0] + 1,))
y.backward()
print(x.grad, y.grad_fn.name(), y.grad_fn.next_functions[0][0].name(), sorted(k for k in y.grad_fn.metadata if k == "mine"))

## hooks that fail
x = torch.tensor(2.0, requires_grad=True)
y = x * 3
def boom(g):
    raise KeyError("hook says no")
y.register_hook(boom)
try:
    y.backward()
except KeyError as error:
    print("caught", error)
x.register_hook(boom)
(x * 2).backward()

## hooks that wait for several tensors
a = torch.tensor(1.0, requires_grad=True)
b = torch.tensor(2.0, requires_grad=True)
c, d = a * b, a + b
seen = []
torch.autograd.graph.register_multi_grad_hook((c, d), lambda gs: seen.append([g.item() for g in gs]))
torch.autograd.graph.register_multi_grad_hook((c, d), lambda g: seen.append(g.item()), mode="any")
(c * d).backward()
print(seen)

## an optimizer step inside backward
p = nn.Parameter(torch.ones(2))
opt = torch.optim.SGD([p], lr=0.1)
def step(q):
    opt.step()
    opt.zero_grad()
p.register_post_accumulate_grad_hook(step)
for _ in range(3):
    (p * p).sum().backward()
print(p, p.grad)

## retain_grad
x = torch.tensor([1.0, -1.0], requires_grad=True)
y = x.relu()
y.retain_grad()
z = y * 3
z.sum().backward()
print(y.grad, y.retains_grad, z.retains_grad)

## autograd.grad on a part of the inputs
a, b, c = (torch.tensor(float(i), requires_grad=True) for i in (1, 2, 3))
loss = a * b + b * c
print(torch.autograd.grad(loss, [b], retain_graph=True))
print(torch.autograd.grad(loss, (a, c), retain_graph=True, materialize_grads=True))
d = torch.tensor(1.0, requires_grad=True)
print(torch.autograd.grad(loss, (a, d), allow_unused=True, retain_graph=True))
try:
    torch.autograd.grad(loss, d)
except RuntimeError as error:
    print(str(error)[:60])

## gradient with respect to a result
x = torch.tensor(2.0, requires_grad=True)
y = x ** 2
z = y ** 3
print(torch.autograd.grad(z, y, retain_graph=True), torch.autograd.grad(z, [x, y]))

## backward with a gradient and with inputs
x = torch.tensor([1.0, 2.0], requires_grad=True)
w = torch.tensor([3.0, 4.0], requires_grad=True)
y = x * w
y.backward(torch.tensor([1.0, 10.0]), retain_graph=True)
print(x.grad, w.grad)
y.backward(gradient=torch.ones(2), inputs=[w])
print(x.grad, w.grad)

## several roots
x = torch.tensor(2.0, requires_grad=True)
a, b = x * 3, x ** 2
torch.autograd.backward([a, b])
print(x.grad)
torch.autograd.backward((x * 1, x.exp()), (torch.tensor(2.0), torch.tensor(0.0)))
print(x.grad)

## gradient edges as roots
from torch.autograd.graph import get_gradient_edge
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x.exp()
edge = get_gradient_edge(y)
total = y.sum()
del y
print(torch.autograd.grad(total, edge, retain_graph=True))
torch.autograd.backward(edge, torch.ones(2))
print(x.grad)

## no scalar to start from
x = torch.ones(2, requires_grad=True)
(x * 2).backward()

## torch.func
from torch.func import grad, vmap, jacrev, jacfwd, hessian, vjp, jvp, functional_call
f = lambda t: (t ** 3).sum()
x = torch.tensor([1.0, 2.0])
print(grad(f)(x), vmap(grad(lambda s: s.sin()))(x), jacrev(torch.exp)(x), jacfwd(torch.exp)(x), hessian(f)(x))
value, pull = vjp(torch.sin, x)
print(value, pull(torch.ones(2)), jvp(torch.cos, (x,), (torch.ones(2),)))
print(grad(grad(lambda s: s ** 4))(torch.tensor(2.0)))

## torch.func over tensors that require gradients
from torch.func import grad, vmap
w = torch.tensor(2.0, requires_grad=True)
inner = grad(lambda t: w * t ** 3)(torch.tensor(1.5))
loss = vmap(lambda t: t * w + inner)(torch.arange(3.0)).sum()
loss.backward()
print(inner, w.grad)

## per-sample gradients
from torch.func import functional_call, grad, vmap
net = nn.Linear(2, 1)
params = {k: v.detach() for k, v in net.named_parameters()}
def cost(p, x, y):
    return (functional_call(net, p, (x,)) - y).square().sum()
each = vmap(grad(cost), in_dims=(None, 0, 0))(params, torch.randn(3, 2), torch.randn(3, 1))
print({k: v.shape for k, v in each.items()}, each["bias"])

## functional_call
net = nn.Linear(2, 2)
fast = {k: (v * 2) for k, v in net.named_parameters()}
loss = torch.func.functional_call(net, fast, (torch.ones(1, 2),)).sum()
loss.backward()
print(net.weight.grad, net.bias.grad)

## functional jacobian and hessian
from torch.autograd.functional import jacobian, hessian, vjp, hvp
f = lambda a, b: (a * b).exp().sum()
a, b = torch.tensor([0.1, 0.2]), torch.tensor([1.0, 2.0])
print(jacobian(f, (a, b)), hessian(lambda t: (t ** 3).sum(), a))
print(jacobian(lambda t: t ** 2, a, vectorize=True), hvp(lambda t: (t ** 3).sum(), a, b), vjp(torch.sin, a, b))

## batched gradients
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x ** 2
rows, = torch.autograd.grad(y, x, torch.eye(2), is_grads_batched=True)
print(rows)

## gradcheck
x = torch.tensor([0.3, 0.7], dtype=torch.float64, requires_grad=True)
print(torch.autograd.gradcheck(torch.sin, x), torch.autograd.gradgradcheck(torch.sin, x))

## forward mode
import torch.autograd.forward_ad as fwAD
with fwAD.dual_level():
    dual = fwAD.make_dual(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.0]))
    out = dual ** 3
    print(fwAD.unpack_dual(out))
x = torch.tensor(2.0, requires_grad=True)
with fwAD.dual_level():
    tangent = fwAD.unpack_dual(fwAD.make_dual(x, torch.tensor(1.0)).sin()).tangent
    tangent.backward()
print(x.grad)

## autocast
net = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))
with torch.autocast("cpu", dtype=torch.bfloat16):
    out = net(torch.randn(3, 4))
    loss = F.mse_loss(out, torch.zeros(3, 2))
loss.backward()
print(out.dtype, loss.dtype, net[0].weight.grad.dtype, torch.is_autocast_enabled("cpu"))

## inference mode
x = torch.ones(2, requires_grad=True)
with torch.inference_mode():
    y = x * 2
print(y.is_inference(), y.requires_grad)
try:
    (y * x).sum().backward()
except RuntimeError as error:
    print(str(error)[:70])

## no_grad, enable_grad, set_grad_enabled
x = torch.ones(2, requires_grad=True)
@torch.no_grad()
def off(t):
    with torch.enable_grad():
        u = t * 2
    return u + 1, t * 3
a, b = off(x)
with torch.set_grad_enabled(False):
    c = a * x
print(a.requires_grad, b.requires_grad, c.requires_grad, torch.is_grad_enabled())

## anomaly mode
x = torch.tensor([-1.0, 4.0], requires_grad=True)
with torch.autograd.detect_anomaly():
    y = x.sqrt()
    y.sum().backward()

## set_detect_anomaly in the middle
torch.autograd.set_detect_anomaly(True)
x = torch.tensor([0.0, 4.0], requires_grad=True)
loss = (x.sqrt() * 0).sum()
try:
    loss.backward()
except RuntimeError as error:
    print(error)

## a dispatch mode of its own
from torch.utils._python_dispatch import TorchDispatchMode
class Log(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        print(func)
        return func(*args, **(kwargs or {}))
x = torch.tensor([1.0, 2.0], requires_grad=True)
with Log():
    loss = (x.sin() * x).sum()
    loss.backward()
    emb = nn.Embedding(3, 2, sparse=True)
    emb(torch.tensor([1])).sum().backward()
print(x.grad)

## a function mode of its own
from torch.overrides import TorchFunctionMode
class Log(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        print(getattr(func, "__name__", func))
        return func(*args, **(kwargs or {}))
x = torch.tensor([1.0, 2.0], requires_grad=True)
with Log():
    loss = (x.sin() * x).sum()
    loss.backward()
    y = x.clone()
    y.mul_(2)

## fake tensors
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    out = net(torch.randn(3, 4))
    out.sum().backward()
    print(out.shape, net[0].weight.grad.shape)

## sparse gradients
emb = nn.Embedding(6, 2, sparse=True)
out = emb(torch.tensor([1, 1, 4])).sum()
out.backward()
g = emb.weight.grad
print(g.is_sparse, g.coalesce().indices(), g.coalesce().values(), g.is_coalesced())
opt = torch.optim.SparseAdam(list(emb.parameters()), lr=0.1)
opt.step()
print(emb.weight.sum())

## sparse matrices
m = torch.eye(3).to_sparse().requires_grad_()
d = torch.ones(3, 2, requires_grad=True)
loss = torch.sparse.mm(m, d).sum()
loss.backward()
print(d.grad, m.grad, m.to_sparse_csr().layout)

## nested tensors
a, b = torch.ones(2, 3, requires_grad=True), torch.ones(4, 3, requires_grad=True)
nt = torch.nested.as_nested_tensor([a, b])
out = torch.nested.to_padded_tensor(nt * 2, 0.0)
out.sum().backward()
print(out.shape, a.grad, nt.is_nested)

## nested tensors with a jagged layout
nt = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged, requires_grad=True)
out = (nt * 3).sin()
loss = out.values().sum()
loss.backward()
print(loss, nt.grad is not None)

## a nested leaf
nt = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], requires_grad=True)
loss = torch.nested.to_padded_tensor(nt.relu() * nt, 0.0).sum()
loss.backward()
print(nt.grad.is_nested, [t.sum().item() for t in nt.grad.unbind()])

## quantized tensors
q = torch.quantize_per_tensor(torch.tensor([0.1, 0.5]), 0.1, 0, torch.qint8)
x = torch.tensor([0.12, 0.57], requires_grad=True)
y = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)
y.sum().backward()
print(q.int_repr(), q.dequantize(), y, x.grad)

## meta tensors
with torch.device("meta"):
    net = nn.Linear(1000, 1000)
    loss = net(torch.empty(5, 1000)).sum()
loss.backward()
print(loss, net.weight.grad.shape, net.weight.device)

## recurrent networks
rnn = nn.LSTM(3, 4, num_layers=2, batch_first=True)
gru = nn.GRUCell(4, 4)
out, (h, c) = rnn(torch.randn(2, 5, 3))
loss = gru(out[:, -1], h[-1]).sum()
loss.backward()
print(loss, rnn.weight_hh_l1.grad.norm(), gru.bias_ih.grad)

## packed sequences
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
rnn = nn.GRU(2, 3)
packed = pack_padded_sequence(torch.randn(4, 2, 2), torch.tensor([4, 2]))
out, lengths = pad_packed_sequence(rnn(packed)[0])
out.sum().backward()
print(out.shape, lengths, rnn.weight_ih_l0.grad.norm())

## attention
q, k, v = (torch.randn(1, 2, 4, 8, requires_grad=True) for _ in range(3))
out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
out.square().sum().backward()
print(out.norm(), q.grad.norm(), v.grad.norm())

## a transformer block
layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.1)
x = torch.randn(2, 3, 8)
loss = layer(x).square().mean()
loss.backward()
print(loss, layer.self_attn.in_proj_weight.grad.norm())
layer.eval()
with torch.no_grad():
    print(layer(x).norm())

## a data loader
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.arange(12.0).reshape(6, 2), torch.arange(6))
net = nn.Linear(2, 1)
for x, y in DataLoader(data, batch_size=4, shuffle=True, num_workers=0):
    loss = F.mse_loss(net(x).squeeze(1), y.float())
    loss.backward()
    print(y, loss)

## deep copies
import copy
net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
twin = copy.deepcopy(net)
net(torch.randn(4, 2)).sum().backward()
again = copy.deepcopy(net)
print(twin[0].weight.grad, again[0].weight.grad is not None, torch.equal(net[1].running_mean, again[1].running_mean))
x = torch.ones(2, requires_grad=True)
try:
    copy.deepcopy(x * 2)
except RuntimeError as error:
    print(str(error)[:60])

## parametrizations
from torch.nn.utils import parametrizations
a = parametrizations.weight_norm(nn.Linear(3, 2))
b = parametrizations.spectral_norm(nn.Linear(2, 2))
loss = b(a(torch.randn(4, 3))).square().mean()
loss.backward()
print(loss, a.parametrizations.weight.original0.grad, b.parametrizations.weight.original.grad.norm())

## an orthogonal parametrization and pruning
from torch.nn.utils import parametrizations, prune
a = parametrizations.orthogonal(nn.Linear(3, 3))
b = prune.l1_unstructured(nn.Linear(3, 2), "weight", amount=0.5)
loss = b(a(torch.randn(4, 3))).sum()
loss.backward()
print(b.weight_mask, b.weight_orig.grad.norm(), (a.weight @ a.weight.T).diag())

## custom function with several outputs
class Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k, name="t"):
        ctx.k, ctx.name = k, name
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, None)
        return x * k, x + k, "text"
    @staticmethod
    def backward(ctx, a, b, text):
        print("backward", a, b, text, ctx.name, ctx.needs_input_grad, [t is None for t in ctx.saved_tensors])
        return (ctx.k * a if a is not None else b), None, None
x = torch.ones(2, requires_grad=True)
a, b, c = Split.apply(x, 3, "u")
a.sum().backward()
print(x.grad, c)

## custom function with setup_context
class Cube(torch.autograd.Function):
    generate_vmap_rule = True
    @staticmethod
    def forward(x):
        return x ** 3, x ** 2
    @staticmethod
    def setup_context(ctx, inputs, outputs):
        ctx.save_for_backward(*inputs, outputs[1])
        ctx.mark_non_differentiable(outputs[1])
    @staticmethod
    def backward(ctx, g, unused):
        x, square = ctx.saved_tensors
        return g * 3 * square
x = torch.tensor([1.0, 2.0], requires_grad=True)
y, s = Cube.apply(x)
y.sum().backward()
print(x.grad, s.requires_grad, torch.func.vmap(lambda t: Cube.apply(t)[0])(torch.arange(3.0)))

## custom function that writes in place
class Half(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(0.5)
    @staticmethod
    def backward(ctx, g):
        return g * 0.5
x = torch.ones(2, requires_grad=True)
y = x * 2
z = Half.apply(y)
z.sum().backward()
print(x.grad, y is z, y.grad_fn, y._version)

## custom function that calls autograd inside
class Inner(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_()
            ctx.y = ctx.x.exp()
        return ctx.y.detach()
    @staticmethod
    def backward(ctx, g):
        ctx.y.backward(g)
        return ctx.x.grad
x = torch.tensor(1.0, requires_grad=True)
y = Inner.apply(x) * 2
y.backward()
print(x.grad)

## custom function with an attribute of the graph
class Keep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.variable = x
        ctx.label = "mine"
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g + ctx.variable
x = torch.tensor(3.0, requires_grad=True)
y = Keep.apply(x)
print(y.grad_fn.label, y.grad_fn.variable)
y.backward()
print(x.grad)

## custom function once differentiable
from torch.autograd.function import once_differentiable
class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.exp()
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return g * 2
x = torch.tensor(1.0, requires_grad=True)
g, = torch.autograd.grad(Once.apply(x), x, create_graph=True)
g.backward()

## custom function that fails
class Bad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        raise ArithmeticError("no derivative here")
x = torch.tensor(1.0, requires_grad=True)
Bad.apply(x * 3).backward()

## apply of a subclass of a custom function
class Base(torch.autograd.Function):
    @staticmethod
    def backward(ctx, g):
        return g * 2
class Child(Base):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @classmethod
    def apply(cls, *args):
        print("apply", cls.__name__)
        return super().apply(*args)
x = torch.tensor(1.0, requires_grad=True)
Child.apply(x).backward()
print(x.grad, torch.autograd.Function.apply.__name__)

## tensor subclass with functions of its own
class Logged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        calls.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})
calls = []
x = torch.ones(2).as_subclass(Logged)
w = torch.tensor([1.0, 2.0], requires_grad=True)
y = (x * w).sum()
y.backward()
print(type(y).__name__, w.grad, calls)

## tensor subclass that is a leaf
class Unit(torch.Tensor):
    def __repr__(self):
        return "Unit"
x = torch.tensor([1.0, 2.0]).as_subclass(Unit).requires_grad_()
y = x * 2
y[0] = 5
y.sum().backward()
print(type(y).__name__, x.grad, isinstance(x.grad, Unit))

## wrapper subclass with dispatch
class Wrap(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, requires_grad=inner.requires_grad)
    def __init__(self, inner):
        self.inner = inner.detach()
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        log.append(str(func))
        strip = lambda t: t.inner if isinstance(t, Wrap) else t
        out = func(*[strip(a) for a in args], **(kwargs or {}))
        return Wrap(out) if isinstance(out, torch.Tensor) else out
log = []
x = Wrap(torch.tensor([1.0, 2.0], requires_grad=True))
y = (x * 2).sin()
y.sum().backward()
print(log, type(x.grad).__name__)

## generators and tensors made along the way
def rows(w):
    for i in range(3):
        yield (w * i).sin()
w = torch.tensor([1.0, 2.0], requires_grad=True)
loss = sum(r.sum() for r in rows(w))
loss.backward()
print(w.grad)

## a chain of many operations
x = torch.ones(1, requires_grad=True)
y = x
for i in range(500):
    y = y + 1 if i % 2 else y * 1
y.backward()
print(x.grad, y)

## checkpoint without reentry
from torch.utils.checkpoint import checkpoint
calls = []
def block(t):
    calls.append(torch.is_grad_enabled())
    return F.dropout(t.sin().exp(), 0.5)
x = torch.linspace(0, 1, 5, requires_grad=True)
y = checkpoint(block, x, use_reentrant=False)
y.sum().backward()
print(calls, x.grad)

## checkpoint with reentry
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
calls = []
def block(t):
    calls.append(torch.is_grad_enabled())
    return t.sin() * t
x = torch.linspace(0, 1, 5, requires_grad=True)
y = checkpoint(block, checkpoint(block, x, use_reentrant=True), use_reentrant=True)
y.sum().backward()
net = nn.Sequential(*[nn.Linear(5, 5) for _ in range(4)])
checkpoint_sequential(net, 2, x, use_reentrant=False).sum().backward()
print(calls, x.grad, net[0].weight.grad.norm())

## saved tensors hooks
packed, unpacked = [], []
def pack(t):
    packed.append(tuple(t.shape))
    return t.double()
def unpack(t):
    unpacked.append(tuple(t.shape))
    return t.float()
x = torch.ones(3, requires_grad=True)
with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
    y = (x.exp() * x).sum()
y.backward()
print(packed, unpacked, x.grad)
with torch.autograd.graph.save_on_cpu():
    (x.sin() * x).sum().backward()
print(x.grad)

## in-place and views
x = torch.ones(4, requires_grad=True)
y = x * 2
v = y.view(2, 2)
v[0].mul_(3)
y[3:] = 0
z = y.clone()
z.relu_()
F.relu(z, inplace=True)
z.unsqueeze_(0)
loss = (z * z).sum()
loss.backward()
print(x.grad, y._version, v.grad_fn, z._version)

## overwritten before backward
x = torch.ones(2, requires_grad=True)
y = x.exp()
z = y * 2
y.add_(1)
z.sum().backward()

## data and detach
x = torch.ones(2, requires_grad=True)
x.data.mul_(3)
d = x.detach()
d[0] = 7
y = x * 2
x.data = torch.zeros(2)
print(x, d, y, x._version, d._version)
x.grad = torch.ones(2)
x.grad.zero_()
print(x.grad)

## parameters changed between forward and backward
net = nn.Linear(2, 2)
opt = torch.optim.Adam(net.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    loss = net(torch.ones(1, 2)).square().sum()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    opt.step()
    print(loss.item())

## an LBFGS closure
w = torch.tensor([3.0, -2.0], requires_grad=True)
opt = torch.optim.LBFGS([w], max_iter=4)
calls = []
def closure():
    calls.append(1)
    opt.zero_grad()
    loss = (w ** 2).sum()
    loss.backward()
    return loss
opt.step(closure)
print(len(calls), w)

## unbind, split, cat, stack
x = torch.arange(6.0).reshape(2, 3).requires_grad_()
a, b = x.unbind(0)
c, d, e = x.split(1, dim=1)
values, where = x.sort(dim=1, descending=True)
q, r = torch.linalg.qr(x.T @ x + torch.eye(3))
loss = torch.cat([a, b * 2]).sum() + torch.stack([c, e]).sum() + values[0, 0] + r.diag().abs().sum() + x.max(dim=1).values.sum()
loss.backward()
print(x.grad, where)

## operations with out
x = torch.ones(2)
out = torch.empty(2)
torch.add(x, 1, out=out)
torch.sum(x, 0, out=torch.empty(()))
w = torch.ones(2, requires_grad=True)
try:
    torch.mul(w, 2, out=out)
except RuntimeError as error:
    print(error)
print(out)

## a tensor dies when its last name goes
import weakref
x = torch.ones(3, requires_grad=True)
y = x * 2
r = weakref.ref(y)
del y
z = x + 1
print(r() is None)

## the last result dies with its name
import weakref
x = torch.ones(3, requires_grad=True)
y = x.exp()
r = weakref.ref(y)
del y
print(r() is None)

## a graph in a function is gone after it
import weakref
class Token:
    pass
def f(x):
    y = x.sigmoid()
    y.token = Token()
    refs.append(weakref.ref(y.token))
    return (y * y).sum().item()
refs = []
f(torch.ones(2, requires_grad=True))
print(refs[0]() is None)

## hooks and cleared gradients
x = torch.ones(2, requires_grad=True)
y = x * 2
handle = y.register_hook(lambda g: g * 3)
y.retain_grad()
y.sum().backward()
print(x.grad, y.grad, type(handle).__name__)
handle.remove()
x.grad = None
opt = torch.optim.SGD([x], lr=0.1)
(x * 2).sum().backward()
opt.step()
opt.zero_grad()
print(x, x.grad)

## a saved tensor dies with backward
import gc, weakref
x = torch.ones(3, requires_grad=True)
y = x * 2
loss = (y * y).sum()
r = weakref.ref(y)
del y
print(r() is None)
loss.backward()
gc.collect()
print(r() is None)

## a tensor dies inside a function
import weakref
def f(x):
    y = x * 2
    loss = (y * y).sum()
    loss.backward()
    r = weakref.ref(y)
    del y, loss
    z = x + 1
    return r() is None
print(f(torch.ones(3, requires_grad=True)))

## locals of a function
def f(x):
    y = x * 2
    before = locals()
    y.sum().backward()
    return sorted(before), sorted(locals())
print(f(torch.ones(3, requires_grad=True)))

## a graph dies with its loss
import weakref
class Token:
    pass
class Keep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.token = Token()
        refs.append(weakref.ref(ctx.token))
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g * 2
refs = []
x = torch.ones(2, requires_grad=True)
for _ in range(3):
    loss = Keep.apply(x).sum()
    loss.backward()
loss = (x * 2).sum()
print([r() is None for r in refs])

## random numbers
import random
import numpy as np
a = torch.rand(3, requires_grad=True)
(a * torch.randn(3)).sum().backward()
print(a.grad, random.random(), np.random.rand(2), torch.randperm(5), F.dropout(torch.ones(4), 0.5))
g = torch.Generator().manual_seed(7)
print(torch.rand(2, generator=g), torch.initial_seed())

## numpy and back
import numpy as np
a = np.arange(3.0)
t = torch.from_numpy(a)
t.add_(1)
x = torch.tensor(a, requires_grad=True)
y = (x * t).sum()
print(a, y.item(), float(y), y.detach().numpy(), np.asarray(t), x.tolist(), int(t[0]), bool(t[1] > 0), f"{y:.3f}")
x.numpy()

## warnings
import warnings
warnings.warn("mine")
x = torch.ones(2, requires_grad=True)
y = x * 2
y.sum().backward()
print(y.grad)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    y.grad
    torch.tensor(x)
print([str(w.message)[:40] for w in caught])

## distributions
from torch.distributions import Normal, Categorical, kl_divergence
mu = torch.zeros(2, requires_grad=True)
d = Normal(mu, 1.0)
loss = -d.log_prob(d.rsample()).sum() + kl_divergence(d, Normal(torch.ones(2), 2.0)).sum()
loss.backward()
c = Categorical(logits=torch.zeros(3, requires_grad=True))
print(mu.grad, c.sample(), c.entropy())

## convolution, pooling and norms
net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.GroupNorm(2, 2), nn.Linear(2, 2))
x = torch.randn(3, 1, 4, 4)
loss = F.nll_loss(F.log_softmax(net(x), 1), torch.tensor([0, 1, 0]))
loss.backward()
print(loss, net[0].weight.grad.norm(), net[1].running_mean, net[1].num_batches_tracked)

## einsum, gather, scatter, index
x = torch.randn(3, 4, requires_grad=True)
i = torch.tensor([[0, 1], [2, 3], [1, 1]])
loss = torch.einsum("ij,kj->ik", x, x).sum() + x.gather(1, i).sum() + torch.zeros(3, 4).scatter_add(1, i, x[:, :2]).square().sum() + x[x > 0].sum() + x[[0, 1]].sum()
loss.backward()
print(x.grad)

## linear algebra
a = torch.tensor([[4.0, 1.0], [1.0, 3.0]], requires_grad=True)
loss = torch.linalg.inv(a).sum() + torch.logdet(a) + torch.linalg.eigvalsh(a).max() + torch.linalg.svdvals(a).sum() + torch.linalg.cholesky(a).sum()
loss.backward()
print(a.grad)

## moving and converting
x = torch.ones(2, requires_grad=True)
y = x.to(torch.float64).half().float().to("cpu").contiguous().cpu()
y.sum().backward()
print(x.grad, y.dtype, y is y.float())
net = nn.Linear(2, 1).double()
net.to(torch.float32).requires_grad_(False)
print(net.weight.dtype, net.weight.requires_grad, torch.get_default_dtype())
torch.set_default_dtype(torch.float64)
print(torch.ones(1).dtype)

## state dicts and freezing
net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.Linear(2, 1))
net[0].requires_grad_(False)
state = {k: v.clone() for k, v in net.state_dict().items()}
net.eval()
loss = net(torch.ones(1, 2)).sum()
loss.backward()
print(net.load_state_dict(state), [p.grad is None for p in net.parameters()])
net.zero_grad()
print([p.grad for p in net.parameters()])

## no tensor at all
def fib(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a
values = [fib(i) for i in range(10)]
print(values, sum(values))
fib(50)

## an exception with a cause
def f():
    try:
        1 / 0
    except ZeroDivisionError as error:
        raise ValueError("outer") from error
x = torch.ones(1, requires_grad=True) * 2
f()

## a class with state and properties
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("seen", torch.zeros(1))
        self.blocks = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))
    @property
    def total(self):
        return self.scale * 2
    def __getattr__(self, name):
        return super().__getattr__(name)
    def forward(self, x):
        self.seen += 1
        for b in self.blocks:
            x = torch.tanh(b(x)) * self.total
        return x
net = Net()
loss = net(torch.ones(1, 2)).sum() + net(torch.zeros(1, 2)).sum()
loss.backward()
print(net.seen, net.scale.grad, net)

## an object that watches its attributes
class Spy:
    def __init__(self):
        object.__setattr__(self, "touched", [])
    def __getattribute__(self, name):
        object.__getattribute__(self, "__dict__")["touched"].append(name)
        return object.__getattribute__(self, name)
    def __repr__(self):
        print("repr was called")
        return "Spy"
spy = Spy()
x = torch.ones(1, requires_grad=True)
loss = (x * 2).sum()
loss.backward()
print(object.__getattribute__(spy, "__dict__")["touched"])

## a list and a dict that watch their use
class Loud(list):
    def __iter__(self):
        print("iterated")
        return super().__iter__()
class LoudDict(dict):
    def items(self):
        print("items")
        return super().items()
a, b = Loud([torch.ones(1, requires_grad=True)]), LoudDict(k=torch.ones(1, requires_grad=True))
loss = a[0] * b["k"]
loss.backward()
print(a[0].grad)

## threads of the engine and hooks on accumulators
x = torch.ones(2, requires_grad=True)
acc = x.view_as(x).grad_fn.next_functions[0][0]
acc.register_hook(lambda given, got: print("accumulated", got))
acc.register_prehook(lambda got: (got[0] * 2,))
(x * 3).sum().backward()
print(x.grad, acc.variable is x)

## callbacks at the end of backward
from torch.autograd import Variable
x = torch.ones(1, requires_grad=True)
y = x * 2
y.register_hook(lambda g: Variable._execution_engine.queue_callback(lambda: print("end of backward")))
y.backward()
print("after")

## backward inside backward
x = torch.tensor(2.0, requires_grad=True)
y = x ** 2
inner = torch.tensor(3.0, requires_grad=True)
y.register_hook(lambda g: (inner ** 2).backward())
y.backward()
print(x.grad, inner.grad)

## in-place on a multi-output view
x = torch.ones(2, 2, requires_grad=True)
a, b = (x * 1).unbind(0)
a.mul_(2)

## disabled torch functions
x = torch.ones(2, requires_grad=True)
with torch._C.DisableTorchFunction():
    y = x * 2
loss = y.sum()
loss.backward()
print(x.grad)

## embedding bag, ctc and other rare nodes
bag = nn.EmbeddingBag(5, 3, mode="mean")
logp = torch.randn(6, 1, 4, requires_grad=True).log_softmax(2)
loss = bag(torch.tensor([1, 2, 4]), torch.tensor([0, 2])).sum() + F.ctc_loss(logp, torch.tensor([[1, 2]]), torch.tensor([6]), torch.tensor([2]))
loss = loss + F.grid_sample(torch.ones(1, 1, 2, 2, requires_grad=True), torch.zeros(1, 1, 1, 2), align_corners=False).sum()
loss = loss + torch.fft.rfft(torch.ones(4, requires_grad=True)).abs().sum() + torch.cdist(torch.ones(2, 2, requires_grad=True), torch.zeros(1, 2)).sum()
loss.backward()
print(loss)

## swapping and setting tensors
x = torch.ones(2, requires_grad=True)
y = torch.zeros(2, requires_grad=True)
with torch.no_grad():
    x.copy_(torch.tensor([3.0, 4.0]))
    x.set_(torch.tensor([5.0, 6.0]))
z = (x * y).sum()
z.backward()
x.requires_grad_(False)
w = z.detach_()
print(x, y.grad, w.requires_grad, z.grad_fn)

## unused results and deleted names
x = torch.ones(2, requires_grad=True)
x * 2
x.sin()
y = x.exp()
del y
(x.cos() * 3).sum()

## lazy modules
net = nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyBatchNorm1d())
w = net[0].weight
x = torch.ones(2, requires_grad=True)
(x * 2).sum().backward()
print(x.grad, net)
net(torch.randn(4, 2)).sum().backward()
print(net[0].weight.grad)

## a module that forgot super().__init__()
class Net(nn.Module):
    def __init__(self):
        self.k = 3
net = Net()
x = torch.ones(2, requires_grad=True)
(x * net.k).sum().backward()
print(x.grad)
net(x)

## objects that refuse to be looked at
class Evil:
    @property
    def __class__(self):
        raise RuntimeError("no class")
    def __getattr__(self, name):
        raise RuntimeError("no " + name)
    def __eq__(self, other):
        raise RuntimeError("no comparison")
    def __hash__(self):
        return 1
    def __repr__(self):
        raise RuntimeError("no text")
    def __bool__(self):
        raise RuntimeError("no truth")
class EvilList(list):
    def __iter__(self):
        raise RuntimeError("no iteration")
    def __len__(self):
        raise RuntimeError("no length")
    __getitem__ = __iter__
class EvilInt(int):
    def __int__(self):
        raise RuntimeError("no number")
    __abs__ = __lt__ = __index__ = __pos__ = __int__
class EvilFloat(float):
    def __float__(self):
        raise RuntimeError("no number")
class EvilText(str):
    def __getitem__(self, i):
        raise RuntimeError("no text")
    __str__ = __len__ = __getitem__
class EvilDict(dict):
    def items(self):
        raise RuntimeError("no items")
class EvilMeta(type):
    def __getattribute__(cls, name):
        raise RuntimeError("no " + name)
class Child(metaclass=EvilMeta):
    pass
evil, a, b, c, d, e, f = Evil(), EvilList([1]), EvilInt(3), EvilFloat(0.5), EvilText("t"), EvilDict(k=1), Child()
keys = {evil: 1, 10 ** 5000: 2, None: 3, (1, 2): 4, float("nan"): float("inf")}
x = torch.ones(1, requires_grad=True)
(x * 2).backward()
print(x.grad, list.__len__(a))

## containers without end
me = []
me.append(me)
row = [0.5] * 1000
cube = [[row] * 1000] * 1000
tensors = [[[torch.ones(1, requires_grad=True)] * 200] * 200] * 200
huge = 10 ** 4000
d = {}
d["d"] = d
x = torch.ones(1, requires_grad=True)
for _ in range(5):
    (x * 2).backward()
print(x.grad, math.nan, [math.inf, {"k": -math.inf}])

## writes that Python does not name
x = torch.ones(4, requires_grad=True)
y = x * 2
torch._foreach_add_([y], 1.0)
F.dropout(y, 0.5, inplace=True)
F.leaky_relu(y, inplace=True)
nn.Hardtanh(inplace=True)(y)
y[y > 1] += 1
torch.nn.init.zeros_(torch.empty(2))
loss = y.sum()
loss.backward()
print(y._version, x.grad)

## leaves that change their mind
x = torch.ones(2)
x.requires_grad_()
a = x * 2
x.requires_grad_(False)
b = x * 3
a.sum().backward()
print(x.grad, b.requires_grad, x.requires_grad)
y = torch.ones(2, requires_grad=True)
c = y.sum()
y.grad = torch.ones(2)
c.backward()
y = y.detach().requires_grad_()
print(y.grad)
"""

PROGRAMS: dict[str, str] = {
    title.strip(): code.strip("\n") + "\n" for title, code in re.findall(r"^## (.*)\n((?:(?!^## ).*\n)*)", _TEXT, re.M)
}
