"""Lessons whose subject is a program: rows T1, T2, T3 and T5."""

from __future__ import annotations

from lab.contract import Lesson
from lab.experiments.tensor_anatomy.readings import new_bytes, stride, variable
from lab.experiments.tensor_anatomy.schema import DEFAULT_PROGRAM, Params, Result

_VIEW_REFUSED = """B, H, T, D = 2, 4, 3, 8
heads = torch.randn(B, H, T, D)
swapped = heads.transpose(1, 2)
merged = swapped.view(B, T, H * D)
"""

_EXPANDED = """row = torch.tensor([1.0, 2.0, 3.0])
grid = row.expand(4, 3)
"""

_PAIRS = """predicted = torch.randn(100)
wanted = torch.randn(100, 1)
error = predicted - wanted
loss = error.square().mean()
pairs = error.numel()
"""

_ACCURACY = """logits = torch.tensor([[2.0], [-1.0], [3.0], [0.5]])
labels = torch.tensor([1, 0, 1, 1])
predicted = (logits > 0).long()
hits = (predicted == labels).sum().item()
accuracy = hits / len(labels)
"""

_TRANSPOSED = """x = torch.arange(6).reshape(2, 3)
by_view = x.view(3, 2)
by_transpose = x.t()
wrong = int((by_view != by_transpose).sum())
"""

_MASKED = """x = torch.arange(6.0)
before = x.clone()
x[x > 2][0] = 100.0
changed = int((x != before).sum())
"""

_EINSUM = """m = torch.randn(3, 3)
d = torch.einsum("ii->i", m)
"""

_ONE_CHANNEL = """a = torch.ones(4, 1, 3, 3)
formats = a.is_contiguous() + a.is_contiguous(memory_format=torch.channels_last)
"""

_BRIDGE = """import numpy as np

a = np.zeros(3)
shared = torch.from_numpy(a)
copied = torch.tensor(a)
a[0] = 7.0
arrived = int(shared[0] == 7.0) + int(copied[0] == 7.0)
"""

_SNAPSHOT = """weights = torch.zeros(2)
history = []
for step in range(3):
    weights += 1
    history.append(weights.numpy())
first = float(history[0][0])
"""

_COUNTER = """one = torch.ones((), dtype=torch.bfloat16)
count = torch.zeros((), dtype=torch.bfloat16)
for _ in range(1000):
    count += one
reached = count.item()
"""

_TOKENS = """text = "hello"
letters = sorted(set(text))
tokens = torch.tensor([[letters.index(c) for c in text]])
embedding, head = nn.Embedding(len(letters), 16), nn.Linear(16, len(letters))
for _ in range(3):
    scores = head(embedding(tokens))
    new = scores[:, -1].argmax(-1, keepdim=True)
    tokens = torch.cat([tokens, new], dim=1)
length = tokens.shape[1]
said = "".join(letters[i] for i in tokens[0])
"""

HEADLINES = {
    DEFAULT_PROGRAM: "0 if flat.data_ptr() == x.data_ptr() else flat.untyped_storage().nbytes()",
    _EXPANDED: "grid.stride(0)",
    _PAIRS: "pairs",
    _ACCURACY: "accuracy",
    _TRANSPOSED: "wrong",
    _MASKED: "changed",
    _EINSUM: "0 if d.untyped_storage().data_ptr() == m.untyped_storage().data_ptr() else d.untyped_storage().nbytes()",
    _ONE_CHANNEL: "int(formats)",
    _BRIDGE: "arrived",
    _SNAPSHOT: "first",
    _COUNTER: "reached",
    _TOKENS: "length",
}
"""Program -> the expression that prints its headline number."""


def _refused_bytes(result: Result) -> float:
    return float(result.refusals[0].copy_bytes) if result.refusals else 0.0


PROGRAMS = (
    Lesson(
        row="T1",
        title="reshape of a transpose",
        params=Params(),
        question="x is 3 × 4 in float32, t is its transpose. How many bytes does t.reshape(12) copy?",
        choices={
            "48": "t reads the memory in column order; twelve numbers in row order of t are nowhere in one piece, so all 12 · 4 bytes are copied.",
            "0": "x.reshape(12) would copy nothing. In t the two dimensions are no neighbours in memory.",
            "24": "There is no half: reshape either describes the memory anew or copies every element.",
        },
        answer=lambda r: f"{new_bytes(r, 'reshape'):g}",
        evidence=lambda r: new_bytes(r, "reshape"),
        evidence_name="bytes copied by reshape",
        requirement="Say when reshape copies. Assume a strided tensor on one device.",
        mechanism="A tensor is shape, strides and offset over a storage. reshape gives a view if the new shape can be described with strides over the same memory, and copies if not.",
        proof="t.reshape(12) has a storage of its own of 48 bytes; row = x[1] and t share the storage of x. The same data_ptr would refute the copy.",
        recovery="Where a silent copy would hurt, use view: it refuses. Where only the result matters, reshape is simpler.",
    ),
    Lesson(
        row="T1",
        title="view after a transpose",
        params=Params(code=_VIEW_REFUSED),
        question="Attention heads (2, 4, 3, 8) are transposed to (2, 3, 4, 8), and view is to merge the last two. What happens?",
        choices={
            "view refuses": "After the transpose a step from head to head is 24 elements, not 8: heads and features are no neighbours, and one stride cannot cover both.",
            "view copies": "view never copies. reshape would, 768 bytes here.",
            "view gives a view": "That would need stride(H) = D · stride(D).",
        },
        answer=lambda r: "view refuses" if r.fault else "view gives a view",
        evidence=_refused_bytes,
        evidence_name="bytes that reshape would copy",
        requirement="Explain the error of view after a transpose and repair it. Assume the data must end in the merged order.",
        mechanism="view can join neighbouring dimensions i, j only if stride[i] = size[j] · stride[j]. transpose swaps strides, so the condition breaks.",
        proof="The strides are (96, 8, 24, 1): 24 is not 8 · 1. contiguous() makes them (96, 32, 8, 1), and the same view works.",
        recovery="reshape, or contiguous() where the copy should be seen. A layout that keeps the heads last needs no copy.",
    ),
    Lesson(
        row="T1",
        title="one channel, two formats",
        params=Params(code=_ONE_CHANNEL),
        question="A batch of shape (4, 1, 3, 3) was made with torch.ones. In how many of the two memory formats of images is it contiguous?",
        choices={
            "2": "A dimension of size 1 is never stepped along, so its stride does not matter: both descriptions hold.",
            "1": "That is so with three channels. With one the two orders are the same order.",
            "0": "It was made contiguous.",
        },
        answer=lambda r: f"{variable(r, 'formats'):g}",
        evidence=lambda r: variable(r, "formats"),
        evidence_name="formats in which it is contiguous",
        requirement="Say what channels_last changes, and when one cannot tell. Assume four dimensions.",
        mechanism="channels_last keeps the shape (N, C, H, W) and changes strides so that channels are nearest in memory. Sizes of 1 leave strides free.",
        proof="is_contiguous() is true for both formats. With three channels only one of them would be.",
        recovery="Pass memory_format explicitly where it matters; do not derive it from strides.",
    ),
    Lesson(
        row="T3",
        title="expanded stride",
        params=Params(code=_EXPANDED),
        question="row has 3 elements; grid = row.expand(4, 3). What is the stride of the first dimension of grid?",
        choices={
            "0": "A step down goes nowhere: all four rows are the same three elements.",
            "3": "That is the stride of a real 4 × 3 tensor. expand copies nothing.",
            "1": "One is the stride along the row.",
        },
        answer=lambda r: f"{stride(r, 'grid'):g}",
        evidence=lambda r: stride(r, "grid"),
        evidence_name="stride of dimension 0",
        requirement="Say how broadcasting repeats without memory. Assume an explicit expand.",
        mechanism="A repeated dimension gets stride 0, so every index along it reads the same element. Elementwise operations expand their inputs like this.",
        proof="12 elements, 12 bytes of memory: the strip shows four rows on the same three cells. A stride of 3 would refute it.",
        recovery="Writing in place into it is refused; clone() first. repeat() copies.",
    ),
    Lesson(
        row="T3",
        title="(n,) minus (n, 1)",
        params=Params(code=_PAIRS),
        question="predicted has shape (100,), wanted has shape (100, 1). How many elements has predicted − wanted?",
        choices={
            "10000": "Shapes are compared from the last dimension: 100 against 1, then nothing against 100. Both are repeated, every pair is formed.",
            "100": "That would need equal shapes. (100,) counts as (1, 100).",
            "an error": "Sizes of 1 fit everything, so nothing is refused.",
        },
        answer=lambda r: f"{variable(r, 'pairs'):g}",
        evidence=lambda r: variable(r, "pairs"),
        evidence_name="elements of the difference",
        requirement="Find the fault behind a loss that is too large and hardly falls. Assume predictions and targets of the same number.",
        mechanism="Broadcasting aligns shapes from the right and repeats sizes of 1. (n,) against (n, 1) gives (n, n).",
        proof="10,000 differences from 100 predictions. Both operands are smaller than the result: with equal shapes none is.",
        recovery="squeeze(-1) or view_as before the loss; assert predicted.shape == wanted.shape. mse_loss warns, a loss of your own does not.",
    ),
    Lesson(
        row="T3",
        title="accuracy above one",
        params=Params(code=_ACCURACY),
        question="Four predictions (4, 1) are compared with four labels (4,); hits are divided by 4. What accuracy comes out?",
        choices={
            "2.5": "16 comparisons, 10 of them true, divided by 4.",
            "1.0": "All four predictions are right, but sixteen pairs were compared.",
            "an error": "== broadcasts as subtraction does, and nothing warns.",
        },
        answer=lambda r: f"{variable(r, 'accuracy'):.1f}",
        evidence=lambda r: variable(r, "accuracy"),
        evidence_name="accuracy",
        requirement="Explain an accuracy above one. Assume a model with one output.",
        mechanism="(4, 1) == (4,) has shape (4, 4): every prediction meets every label.",
        proof="predicted == labels has 16 elements, 10 of them true. With predicted.squeeze(-1) it has 4.",
        recovery="Compare shapes before values. With balanced classes the number may stay below one, and the fault hides.",
    ),
    Lesson(
        row="T3",
        title="view used to transpose",
        params=Params(code=_TRANSPOSED),
        question="x is 2 × 3. x.view(3, 2) and x.t() have the same shape. In how many of the six places do they differ?",
        choices={
            "4": "view reads 0 1 2 3 4 5 in memory order, the transpose 0 3 1 4 2 5. Only the first and the last agree.",
            "0": "The shape agrees, the order does not.",
            "6": "The first and the last element stay where they are.",
        },
        answer=lambda r: f"{variable(r, 'wrong'):g}",
        evidence=lambda r: variable(r, "wrong"),
        evidence_name="elements that differ",
        requirement="Tell view from transpose. Assume both give the shape that the next line needs.",
        mechanism="view keeps the order of the elements in memory and counts them anew; transpose exchanges strides.",
        proof="Four of six elements differ; the shapes are equal, so no error comes.",
        recovery="permute to move dimensions, view to split or join neighbours. Check one known element, such as a pixel, after each change of layout.",
    ),
    Lesson(
        row="T3",
        title="mask, then assign",
        params=Params(code=_MASKED),
        question="x[x > 2][0] = 100. How many elements of x change?",
        choices={
            "0": "x[x > 2] is a copy. The assignment writes into the copy, which is then dropped.",
            "1": "It would with a slice: x[3:][0] = 100 writes through a view.",
            "3": "Only one element of the copy is written.",
        },
        answer=lambda r: f"{variable(r, 'changed'):g}",
        evidence=lambda r: variable(r, "changed"),
        evidence_name="elements of x that changed",
        requirement="Say which indexing gives a view. Assume reading on the left of another indexing.",
        mechanism="Integers and slices give views; masks and lists of indices gather into new memory. x[mask] = v alone writes into x, for that is one call.",
        proof="x is as before, and the indexing took 12 bytes of its own. With a slice one element changes.",
        recovery="Index once, with the final indices, or use torch.where.",
    ),
    Lesson(
        row="T3",
        title="einsum of a diagonal",
        params=Params(code=_EINSUM),
        question='d = einsum("ii->i", m) takes the diagonal of a 3 × 3 matrix. How many bytes of new memory does it take?',
        choices={
            "0": "No letter is summed, so nothing is computed: the diagonal is a view with stride 4.",
            "12": "Three floats could be copied, but a stride of n + 1 describes them where they are.",
            "36": "The whole matrix is not touched.",
        },
        answer=lambda r: f"{new_bytes(r, 'einsum'):g}",
        evidence=lambda r: new_bytes(r, "einsum"),
        evidence_name="new bytes",
        requirement="Say what an einsum costs. Assume you may read the operations that it became.",
        mechanism="The letters name loops. einsum permutes and views so that what is left is a multiplication, a sum or a bmm; here nothing is left.",
        proof='"ii->i" became one diagonal view without arithmetic. "ij,jk->ik" becomes a bmm. The loops in float64 give the same numbers.',
        recovery="For products of three and more inputs the order decides the cost: contract the small ones first.",
    ),
    Lesson(
        row="T2",
        title="from_numpy or tensor",
        params=Params(code=_BRIDGE),
        question="Two tensors are made from an array, one by from_numpy and one by torch.tensor. Then the array is written. In how many of the two does it arrive?",
        choices={
            "1": "from_numpy describes the memory of the array; torch.tensor copies it.",
            "2": "torch.tensor always copies.",
            "0": "from_numpy takes the address of the array, not its values.",
        },
        answer=lambda r: f"{variable(r, 'arrived'):g}",
        evidence=lambda r: variable(r, "arrived"),
        evidence_name="tensors that changed",
        requirement="Say what is shared between NumPy and torch. Assume a CPU array that torch can describe.",
        mechanism="from_numpy, as_tensor, asarray and .numpy() share memory where dtype and strides allow; torch.tensor copies.",
        proof="After a[0] = 7 the shared tensor shows 7 and the other 0. No version counter moved.",
        recovery="Copy where the array lives on, such as a reused buffer of a reader. Share large read-only data.",
    ),
    Lesson(
        row="T2",
        title="a snapshot that is none",
        params=Params(code=_SNAPSHOT),
        question="A vector starts at 0 and grows by 1 in each of three steps; weights.numpy() is appended each time. What does the first entry show in the end?",
        choices={
            "3": "All three entries have the memory of weights, which now holds 3.",
            "1": "It showed 1 when it was appended. numpy() copies nothing.",
            "0": "The first addition comes before the first append.",
        },
        answer=lambda r: f"{variable(r, 'first'):g}",
        evidence=lambda r: variable(r, "first"),
        evidence_name="first entry",
        requirement="Explain a history in which all entries are equal. Assume in-place updates.",
        mechanism="numpy() gives an array over the same memory. An in-place write changes every array and view of it.",
        proof="Three entries, one piece of memory, three writes.",
        recovery="t.detach().cpu().numpy().copy(), or .item() for single numbers. From a GPU .cpu() copies already.",
    ),
    Lesson(
        row="T4",
        title="counting in bfloat16",
        params=Params(code=_COUNTER),
        question="A bfloat16 counter adds 1 a thousand times. Where does it stand?",
        choices={
            "256": "bfloat16 has 8 significant bits. 257 needs 9, so 256 + 1 rounds back to 256.",
            "1000": "It would in float32, which counts to 16,777,216.",
            "2048": "That is where float16 stops, with 11 significant bits.",
        },
        answer=lambda r: f"{variable(r, 'reached'):g}",
        evidence=lambda r: variable(r, "reached"),
        evidence_name="the counter",
        requirement="Say why sums are kept in a wider format. Assume round to nearest even.",
        mechanism="Above 2^p neighbouring numbers are 2 apart, so adding 1 rounds back.",
        proof="The counter stands at 256 = 2^8; sum() of a thousand ones gives 1,000, for it adds up in float32 and rounds once.",
        recovery="Keep counters, losses and running means in float32. The same loss of small updates is why master weights exist.",
    ),
    Lesson(
        row="T5",
        title="one token at a time",
        params=Params(code=_TOKENS),
        question="Five characters become ids of shape (1, 5). Three tokens are generated, each from the last scores. What length have the ids then?",
        choices={
            "8": "Each round takes the scores of the last place, picks one id of shape (1, 1), and joins it to the sequence.",
            "5": "The sequence would stay if the new token replaced one. cat makes it longer.",
            "15": "All five places have scores, but only the last one says what comes next.",
        },
        answer=lambda r: f"{variable(r, 'length'):g}",
        evidence=lambda r: variable(r, "length"),
        evidence_name="ids in the end",
        requirement="Walk a text through a language model, with shapes and dtypes. Assume greedy decoding.",
        mechanism="Text → int64 ids (1, T) → vectors (1, T, 16) → scores (1, T, V) → the last place (1, V) → argmax (1, 1) → cat (1, T + 1).",
        proof="The lines show (1, 5), (1, 6), (1, 7), (1, 8), and keepdim makes the new id fit. Without keepdim cat refuses.",
        recovery="All ids go in again each time; a cache of keys and values saves that work. Cut the sequence at the longest length the model knows.",
    ),
)
