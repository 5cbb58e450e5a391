"""Repairs as edits of the program, found in its text at the line to blame."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

from lab.contract import Edit

CASTS = ("double", "float", "half", "bfloat16", "to", "type", "cuda", "cpu", "clone", "contiguous")


@functools.lru_cache(8)
def _tree(code: str) -> ast.Module:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def nodes_at(code: str, line: int) -> Iterator[ast.AST]:
    """Statements and expressions that begin on a line, the outermost first."""
    return (node for node in ast.walk(_tree(code)) if getattr(node, "lineno", None) == line)


def attribute_set(code: str, line: int, name: str) -> ast.Assign | None:
    """``self.name = value`` on this line."""
    for node in nodes_at(code, line):
        match node:
            case ast.Assign(targets=[ast.Attribute(attr=attr)]) if attr == name:
                return node
    return None


def multiplied_list(code: str, line: int) -> ast.BinOp | None:
    """``[layer] * 3`` or ``3 * [layer]`` on a line, with one call in the list."""
    for node in nodes_at(code, line):
        match node:
            case (
                ast.BinOp(left=ast.List(elts=[ast.Call()]), op=ast.Mult())
                | ast.BinOp(op=ast.Mult(), right=ast.List(elts=[ast.Call()]))
            ):
                return node
    return None


def replaced(code: str, node: ast.AST, text: str) -> tuple[Edit, ...]:
    """``node`` replaced by ``text``: an edit of its first line, and where it has several, one that empties each other."""
    lines = code.split("\n")
    first, last = node.lineno, node.end_lineno or node.lineno  # pyright: ignore[reportAttributeAccessIssue]
    head = _cut(lines[first - 1], node.col_offset)[0]  # pyright: ignore[reportAttributeAccessIssue]
    tail = _cut(lines[last - 1], node.end_col_offset)[1]  # pyright: ignore[reportAttributeAccessIssue]
    if first == last:
        return (Edit(first, lines[first - 1], head + text + tail),)
    return (
        Edit(first, lines[first - 1], head + text + tail),
        *(Edit(n, lines[n - 1], "") for n in range(first + 1, last + 1)),
    )


def _cut(line: str, byte: int) -> tuple[str, str]:
    """ast counts columns in UTF-8 bytes."""
    raw = line.encode()
    return raw[:byte].decode(), raw[byte:].decode()


def source_of(code: str, node: ast.AST) -> str:
    return ast.get_source_segment(code, node) or ast.unparse(node)


def wrapped(code: str, node: ast.AST, before: str, after: str) -> tuple[Edit, ...]:
    """``before`` and ``after`` around a node, which keeps its lines."""
    lines, first, last = code.split("\n"), node.lineno, node.end_lineno or node.lineno  # pyright: ignore[reportAttributeAccessIssue]
    start, end = node.col_offset, node.end_col_offset  # pyright: ignore[reportAttributeAccessIssue]
    head, rest = _cut(lines[first - 1], start)
    if first == last:
        middle, tail = _cut(lines[first - 1], end)
        return (Edit(first, lines[first - 1], head + before + middle[len(head) :] + after + tail),)
    body, tail = _cut(lines[last - 1], end)
    return Edit(first, lines[first - 1], head + before + rest), Edit(last, lines[last - 1], body + after + tail)


def as_container(code: str, line: int | None, name: str, kind: str) -> tuple[Edit, ...]:
    """``self.name = [...]`` as ``self.name = nn.ModuleList([...])``."""
    found = attribute_set(code, line, name) if line else None
    if found is None:
        return ()
    maker = _nn(code, kind)
    match found.value:
        case ast.List(elts=[]) | ast.Dict(keys=[]) | ast.Tuple(elts=[]):
            return replaced(code, found.value, f"{maker}()")
    return wrapped(code, found.value, f"{maker}(", ")")


def _nn(code: str, name: str) -> str:
    """``nn.X``; every program finds nn, unless it calls something else so."""
    return f"nn.{name}"


def as_buffer(code: str, line: int | None, name: str) -> tuple[Edit, ...]:
    """``self.mask = value`` as ``self.register_buffer("mask", value)``."""
    found = attribute_set(code, line, name) if line else None
    if found is None or not isinstance(found.targets[0], ast.Attribute):
        return ()
    value, owner = found.value, source_of(code, found.targets[0].value)
    call = f'{owner}.register_buffer("{name}", '
    if value.lineno == value.end_lineno:
        return replaced(code, found, f"{call}{source_of(code, value)})")
    around = wrapped(code, value, "", ")")
    if value.lineno != found.lineno or len(around) != 2:
        return ()
    first = code.split("\n")[found.lineno - 1]
    head, rest = _cut(first, found.col_offset)[0], _cut(first, value.col_offset)[1]
    return Edit(found.lineno, first, head + call + rest), around[1]


def as_parameter(code: str, line: int | None, name: str) -> tuple[Edit, ...]:
    """``self.w = torch.randn(3, requires_grad=True)`` as a Parameter of it, without the keyword."""
    found = attribute_set(code, line, name) if line else None
    match found:
        case ast.Assign(value=ast.Call(func=func, args=args, keywords=keywords) as call):
            rest = [k for k in keywords if k.arg != "requires_grad"]
            if len(rest) == len(keywords):
                return ()
            inner = ast.unparse(ast.Call(func, args, rest))
            return replaced(code, call, f"{_nn(code, 'Parameter')}({inner})")
    return ()


def wrapped_last(code: str, line: int | None, name: str) -> tuple[Edit, ...]:
    """``nn.Parameter(x).double()`` as ``nn.Parameter(x.double())``."""
    found = attribute_set(code, line, name) if line else None
    if found is None:
        return ()
    chain, node = [], found.value
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not _makes_parameter(node):
        if node.func.attr not in CASTS:
            return ()
        chain.append(node)
        node = node.func.value
    if not chain or not isinstance(node, ast.Call) or not node.args:
        return ()
    inner = source_of(code, node.args[0])
    if not isinstance(node.args[0], (ast.Call, ast.Name, ast.Attribute, ast.Subscript)):
        inner = f"({inner})"
    for call in reversed(chain):
        given = ", ".join(ast.unparse(a) for a in (*call.args, *call.keywords)) if call.args or call.keywords else ""
        inner += f".{call.func.attr}({given})"  # pyright: ignore[reportAttributeAccessIssue]
    others = "".join(f", {ast.unparse(k)}" for k in node.keywords)
    return replaced(code, found.value, f"{source_of(code, node.func)}({inner}{others})")


def _makes_parameter(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute | ast.Name) and ast.unparse(node.func).split(".")[-1] == "Parameter"


def own_copies(code: str, line: int) -> tuple[Edit, ...]:
    """``[nn.Linear(2, 2)] * 3`` as a comprehension that makes each anew."""
    node = multiplied_list(code, line)
    if node is None:
        return ()
    listed, count = (node.left, node.right) if isinstance(node.left, ast.List) else (node.right, node.left)
    assert isinstance(listed, ast.List)
    return replaced(code, node, f"[{source_of(code, listed.elts[0])} for _ in range({source_of(code, count)})]")


def called(code: str, line: int) -> tuple[Edit, ...]:
    """``net.forward(x)`` as ``net(x)``, where one stands on the line."""
    found = [
        node.func
        for node in nodes_at(code, line)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "forward"
        and not source_of(code, node.func.value).startswith("super(")
    ]
    return replaced(code, found[0], source_of(code, found[0].value)) if len(found) == 1 else ()


def calls_forward_by_name(code: str) -> bool:
    """Whether the program writes out a call of a forward that is not its base class's. Compilers read the text of forward itself."""
    return not any(word in code for word in (".jit.", "torch.jit", "torch.export", "torch.compile")) and any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "forward"
        and not ast.unparse(node.func.value).startswith("super(")
        for node in ast.walk(_tree(code))
    )


def without_line(code: str, line: int | None, name: str) -> tuple[Edit, ...]:
    """``self.name = ...`` left out, where it is one of several statements."""
    found = attribute_set(code, line, name) if line else None
    if found is None:
        return ()
    body = next((b for b in _bodies(_tree(code)) if found in b), [])
    lines = code.split("\n")
    if len(body) < 2 or found.lineno != found.end_lineno:
        return ()
    return (Edit(found.lineno, lines[found.lineno - 1], ""),)


def _bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            yield body


def made_once(code: str, line: int) -> tuple[Edit, ...]:
    """A layer that ``forward`` makes, made in ``__init__`` instead; only of constants and names from outside."""
    for owner in [n for n in ast.walk(_tree(code)) if isinstance(n, ast.ClassDef)]:
        methods = {f.name: f for f in owner.body if isinstance(f, ast.FunctionDef)}
        forward, init = methods.get("forward"), methods.get("__init__")
        if forward is None or init is None or not forward.lineno <= line <= (forward.end_lineno or 0):
            continue
        made = [n for n in nodes_at(code, line) if isinstance(n, ast.Call) and _makes_layer(n)]
        last = init.body[-1]
        if len(made) != 1 or made[0].lineno != made[0].end_lineno or last.end_lineno == line:
            return ()
        local = {n.id for n in ast.walk(forward) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        local |= {a.arg for a in forward.args.args}
        used = {n.id for n in ast.walk(made[0]) if isinstance(n, ast.Name)}
        if used & local:
            return ()
        taken = {n.attr for n in ast.walk(owner) if isinstance(n, ast.Attribute)}
        name = next(n for n in ("layer", "made_layer", "own_layer", "layer_of_forward") if n not in taken)
        lines = code.split("\n")
        indent = " " * last.col_offset
        end = last.end_lineno or last.lineno
        return (
            Edit(end, lines[end - 1], f"{lines[end - 1]}\n{indent}self.{name} = {source_of(code, made[0])}"),
            *replaced(code, made[0], f"self.{name}"),
        )
    return ()


def _makes_layer(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id == "nn"


def detached(code: str, line: int | None, name: str) -> tuple[Edit, ...]:
    """``self.last = value`` keeps a detached copy; what follows in the function goes on with the tensor itself."""
    found = attribute_set(code, line, name) if line else None
    function = next(
        (f for f in ast.walk(_tree(code)) if isinstance(f, ast.FunctionDef) and found is not None and found in f.body),
        None,
    )
    if found is None or function is None or found.lineno != found.end_lineno or isinstance(found.value, ast.Name):
        if found is not None and isinstance(found.value, ast.Name) and found.lineno == found.end_lineno:
            return (
                replaced(code, found.value, f"{found.value.id}.detach()")
                if not _read_after(function, found, name)
                else ()
            )
        return ()
    if name in {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}:
        return ()
    lines, indent = code.split("\n"), " " * found.col_offset
    value, target = source_of(code, found.value), source_of(code, found.targets[0])
    edits = [
        Edit(found.lineno, lines[found.lineno - 1], f"{indent}{name} = {value}\n{indent}{target} = {name}.detach()")
    ]
    by_line: dict[int, list[ast.Attribute]] = {}
    for read in _read_after(function, found, name):
        by_line.setdefault(read.lineno, []).append(read)
    for at, reads in by_line.items():
        if len(reads) > 1 or at == found.lineno:
            return ()
        edits += replaced(code, reads[0], name)
    return tuple(edits)


def _read_after(function: ast.FunctionDef | None, found: ast.Assign, name: str) -> list[ast.Attribute]:
    if function is None:
        return []
    return [
        n
        for n in ast.walk(function)
        if isinstance(n, ast.Attribute) and n.attr == name and isinstance(n.ctx, ast.Load) and n.lineno > found.lineno
    ]


def answer_is_read(code: str, line: int) -> bool:
    """Whether something is done with what the call on this line returns."""
    return not any(isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) for node in nodes_at(code, line))


def super_first(code: str, line: int | None) -> tuple[int | None, tuple[Edit, ...]] | None:
    """For a line of an ``__init__`` that runs before ``super().__init__()``: the line of that call, and the edit."""
    for owner in [n for n in ast.walk(_tree(code)) if isinstance(n, ast.ClassDef)]:
        init = next((f for f in owner.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"), None)
        if init is None or line is None or not init.lineno <= line <= (init.end_lineno or 0):
            continue
        lines, first = code.split("\n"), init.body[0]
        calls = [n for n in init.body if isinstance(n, ast.Expr) and "__init__(" in source_of(code, n)]
        if first.lineno == init.lineno:
            return None
        indent = " " * first.col_offset
        head = Edit(first.lineno, lines[first.lineno - 1], f"{indent}super().__init__()\n{lines[first.lineno - 1]}")
        if not calls:
            return None, (head,)
        late = calls[0]
        kept = head if late.lineno != first.lineno else None
        return late.lineno, (kept, Edit(late.lineno, lines[late.lineno - 1], "")) if kept else ()
    return None


def prefix_removed(code: str, line: int, prefix: str) -> tuple[Edit, ...]:
    """``load_state_dict(state)`` with the prefix taken off each key."""
    calls = [
        n
        for n in nodes_at(code, line)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "load_state_dict" and n.args
    ]
    if len(calls) != 1 or calls[0].args[0].lineno != calls[0].args[0].end_lineno:
        return ()
    given = calls[0].args[0]
    text = source_of(code, given)
    return replaced(code, given, f'{{key.removeprefix("{prefix}"): value for key, value in {text}.items()}}')


def renamed_method(code: str, line: int, name: str, meant: str) -> tuple[Edit, ...]:
    """``def _init_(`` as ``def __init__(``."""
    old = code.split("\n")[line - 1]
    return (Edit(line, old, old.replace(f"def {name}(", f"def {meant}(", 1)),) if f"def {name}(" in old else ()


def as_parameter_value(code: str, line: int | None, name: str) -> tuple[Edit, ...]:
    """``layer.weight = tensor`` as ``layer.weight = nn.Parameter(tensor)``."""
    found = attribute_set(code, line, name) if line else None
    return wrapped(code, found.value, "nn.Parameter(", ")") if found else ()


def tied_again(code: str, line: int, owner: str, names: tuple[str, ...]) -> tuple[Edit, ...]:
    """A line after ``line`` that makes the named parameters one object again."""
    statement = next((n for n in nodes_at(code, line) if isinstance(n, ast.stmt)), None)
    if statement is None or len(names) != 2 or not owner.isidentifier():
        return ()
    (first, a), (second, b) = (name.rpartition(".")[::2] for name in names)
    if not first or not second:
        return ()
    lines, end = code.split("\n"), statement.end_lineno or line
    indent = " " * statement.col_offset
    text = f'{indent}{owner}.get_submodule("{second}").{b} = {owner}.get_submodule("{first}").{a}'
    return (Edit(end, lines[end - 1], f"{lines[end - 1]}\n{text}"),)


def property_line(code: str, class_: str, name: str) -> int | None:
    """The line of a property of a class of the program."""
    for owner in ast.walk(_tree(code)):
        if isinstance(owner, ast.ClassDef) and owner.name == class_:
            for f in owner.body:
                if (
                    isinstance(f, ast.FunctionDef)
                    and f.name == name
                    and any("property" in ast.unparse(d) for d in f.decorator_list)
                ):
                    return f.lineno
    return None


def assigned_anywhere(code: str, name: str) -> int | None:
    """The first line that gives a plain name a value, in any scope."""
    for node in ast.walk(_tree(code)):
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            return node.lineno
    return None
