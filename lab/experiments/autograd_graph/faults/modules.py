"""Classes of the program that torch calls, and what their text shows: a method that is missing, what it returns, what it hides."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator

from lab.experiments.autograd_graph.findings.record import Explained, Record, on_line, site
from lab.program.rewrite import LIBRARIES
from lab.records.program import Ended

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def explain(record: Record, ended: Ended) -> Explained | None:
    message = ended.message
    if "is missing the required" in message:
        return _no_forward(record, message, ended.line)
    if "before Module.__init__() call" in message or re.search(
        r"has no attribute '_(parameters|modules|buffers)'", message
    ):
        return _no_super(record, ended)
    if re.search(r"object of type '(\w+)' has no len\(\)", message):
        return _no_length(record, message, ended.line)
    if "optimizer got an empty parameter list" in message:
        return _hidden_in_a_list(record, ended.line) or _all_frozen(record, ended.line)
    if re.search(r"'(method|builtin_function_or_method|function)' object (has no attribute|is not)", message):
        return _not_called(record, ended.line)
    if re.search(r"'(float|int)' object has no attribute '(backward|detach|sum|mean|item)'", message):
        return _plain_number(record, message, ended.line)
    attribute = re.search(r"^'(\w+)' object has no attribute '(\w+)'", message)
    if attribute and ended.type == "AttributeError":
        if attribute[1] in ("NoneType", "tuple"):
            return _of_a_call(record, attribute[1], attribute[2], ended.line)
        return _misspelt(record, attribute[1], attribute[2], ended.line)
    if re.search(r"forward\(\) (missing|takes|got an unexpected)", message):
        return _arguments(record, message, ended.line)
    return None


def _classes(record: Record) -> Iterator[ast.ClassDef]:
    yield from (n for n in ast.walk(record.tree) if isinstance(n, ast.ClassDef)) if record.tree else ()


def _class(record: Record, name: str) -> ast.ClassDef | None:
    return next((c for c in _classes(record) if c.name == name), None)


def _methods(defined: ast.ClassDef) -> list[_Function]:
    return [f for f in defined.body if isinstance(f, _Function)]


def _no_forward(record: Record, message: str, line: int | None) -> Explained | None:
    name = re.search(r"Module \[(\w+)\]", message)
    defined = _class(record, name[1]) if name else None
    if defined is None:
        return None
    text = f"Calling a module runs its forward, and {defined.name}{on_line(defined.lineno)} has none."
    near = difflib.get_close_matches("forward", [f.name for f in _methods(defined)], 1)
    sites, edits, repair = (
        site(defined.lineno, "forward is missing here", defined.name),
        (),
        "Define def forward(self, x): inside the class; look at its indentation.",
    )
    if near:
        method = next(f for f in _methods(defined) if f.name == near[0])
        text += f" It has {near[0]}{on_line(method.lineno)}."
        repair = f"Call it forward: def forward{on_line(method.lineno)}."
        sites = site(method.lineno, "meant as forward?", near[0]) + sites
        edits = record.changed(method.lineno, f"def {near[0]}(", "def forward(")
    return Explained(text, repair, sites + site(line, "fails here"), {"class": defined.name}, edits)


def _no_super(record: Record, ended: Ended) -> Explained | None:
    """The ``__init__`` around the line that failed, else the only one that calls no super's."""
    found = [(c, f) for c in _classes(record) for f in _methods(c) if f.name == "__init__"]
    around = [(c, f) for c, f in found if f.lineno <= (ended.line or 0) <= (f.end_lineno or 0)]
    without = [(c, f) for c, f in found if c.bases and not _super_lines(f)]
    defined, method = (around or without or [(None, None)])[-1]
    if defined is None or method is None:
        return None
    late = _super_lines(method)
    text = f"nn.Module keeps submodules and parameters in tables that its own __init__ makes, and __init__ of {defined.name}{on_line(method.lineno)} "
    text += f"calls it on line {late[0]} only, after they are needed." if late else "does not call it."
    sites = site(method.lineno, "super().__init__() is missing here", defined.name) + site(ended.line, "fails here")
    first = method.body[1 if ast.get_docstring(method) and len(method.body) > 1 else 0]
    edits = record.source.before(first, "super().__init__()") if not late and first.lineno > method.lineno else ()
    return Explained(
        text, "Call super().__init__() as the first line of __init__.", sites, {"class": defined.name}, edits
    )


def _no_length(record: Record, message: str, line: int | None) -> Explained | None:
    """A data set that a sampler asks for its length."""
    name = re.search(r"type '(\w+)'", message)
    defined = _class(record, name[1]) if name else None
    if defined is None or any(f.name == "__len__" for f in _methods(defined)):
        return None
    asks = (
        "A DataLoader that shuffles asks its data set for the length"
        if "DataLoader" in record.text(line)
        else f"Line {line} asks for the length"
    )
    text = f"{asks}, and {defined.name}{on_line(defined.lineno)} has no method __len__."
    sites = site(defined.lineno, "__len__ is missing here", defined.name) + site(line, "fails here")
    return Explained(
        text, "Define def __len__(self): and return the number of samples.", sites, {"class": defined.name}
    )


def _super_lines(method: _Function) -> list[int]:
    return [
        n.lineno
        for n in ast.walk(method)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "__init__"
    ]


def _hidden_in_a_list(record: Record, line: int | None) -> Explained | None:
    """A module that a plain list or dict keeps from its owner."""
    for node in ast.walk(record.tree) if record.tree else ():
        match node:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)],
                value=ast.List() | ast.ListComp() | ast.Dict() | ast.DictComp() as held,
            ):
                if not re.search(r"\bnn\.|Linear|Conv|Parameter|Module", record.source.text(held)):
                    continue
                kind = "dict" if isinstance(held, (ast.Dict, ast.DictComp)) else "list"
                better = "nn.ModuleDict" if kind == "dict" else "nn.ModuleList"
                text = f"self.{name}{on_line(node.lineno)} is a plain {kind}, and a module does not look into one: parameters() finds nothing for the optimizer{on_line(line)}."
                sites = site(node.lineno, "hidden here", f"self.{name}") + site(line, "fails here")
                end = (held.end_lineno or held.lineno, held.end_col_offset or held.col_offset)
                begins, ends = (
                    (held.lineno, held.col_offset, held.col_offset, f"{better}("),
                    (end[0], end[1], end[1], ")"),
                )
                wrapped = record.source.spans(begins, ends)
                return Explained(text, f"Use {better} for it.", sites, {"parameters": 0}, wrapped)
    return None


def _all_frozen(record: Record, line: int | None) -> Explained | None:
    """Parameters that the program froze and then left out."""
    parameters = [t for t in record.result.tensors if t.is_parameter]
    at = next((n for n, t in enumerate(record.lines, 1) if re.search(r"requires_grad(_\(|\s*=\s*)False", t)), None)
    if (
        not parameters
        or any(t.requires_grad for t in parameters)
        or at is None
        or "requires_grad" not in record.text(line)
    ):
        return None
    text = f"Line {at} switched requires_grad off for every parameter, and line {line} takes only those that have it on: none is left."
    sites = site(at, "frozen here") + site(line, "fails here")
    return Explained(text, "Leave it on for what is to be trained.", sites, {"parameters": len(parameters)})


def _not_called(record: Record, line: int | None) -> Explained | None:
    """A method that stands without its brackets, on this line or where the name was given."""
    asked = record.statement(line)
    reads = (
        {n.value.id for n in ast.walk(asked) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)}
        if asked
        else ()
    )
    given = [s for name in reads for s in record.source.given_to(name, line or 0) if isinstance(s, ast.Assign)]
    bare = [s for s in given if isinstance(s.value, ast.Attribute) and ast.unparse(s.value.value) not in LIBRARIES]
    if not bare:
        return None
    made = max(bare, key=lambda s: s.lineno)
    value = record.source.text(made.value)
    text = f"{value}{on_line(made.lineno)} stands without brackets: it names the method and does not call it."
    sites = site(made.lineno, "brackets missing here", ast.unparse(made.targets[0])) + site(line, "fails here")
    edits = record.source.exchanged(made.value, f"{value}()")
    return Explained(text, f"Call it: {value}().", sites, {"called": False}, edits)


def _plain_number(record: Record, message: str, line: int | None) -> Explained | None:
    """A number that ``item()`` took out of torch."""
    from_here = record.source.leads_to(line)
    left = [c for c in record.result.cuts if c.reason == "leaves torch" and c.line in from_here]
    if not left:
        return None
    cut, kind = left[-1], message.split("'")[1]
    text = f"Line {line} asks a plain number ({kind}) for what only a tensor has. {cut.operation}(){on_line(cut.line)} gave numbers, which have no history."
    sites = site(cut.line, "cut here", cut.source) + site(line, "fails here")
    return Explained(
        text, "Keep the tensor on the way to the loss, and use item() only for printing.", sites, {"type": kind}
    )


def _of_a_call(record: Record, kind: str, attribute: str, line: int | None) -> Explained | None:
    """An attribute asked of None or of a tuple that a call on an earlier line gave."""
    statement = record.statement(line)
    read = next(
        (
            n.value.id
            for n in ast.walk(statement)
            if isinstance(n, ast.Attribute) and n.attr == attribute and isinstance(n.value, ast.Name)
        )
        if statement
        else iter(()),
        "",
    )
    given = [a for a in _assignments(record, read) if a.lineno < (line or 0) and isinstance(a.value, ast.Call)]
    if not given:
        return None
    made = given[-1]
    assert isinstance(made.value, ast.Call)
    at = site(line, "fails here", read)
    if kind == "tuple":
        text = f"{read}{on_line(made.lineno)} is a tuple: the call there returned several results together, and line {line} asks it for .{attribute}."
        repair = f"Take them apart where they are made: {read}, _ = ..."
        return Explained(text, repair, site(made.lineno, "a tuple from here", read) + at, {"type": kind})
    called = _called(record, made.value)
    if called is None or any(isinstance(n, ast.Return) and n.value for n in ast.walk(called)):
        return None
    text = f"{read}{on_line(made.lineno)} is None: {called.name}{on_line(called.lineno)} has no return with a value, so its call gives nothing."
    sites = site(called.lineno, "returns nothing", called.name) + site(made.lineno, "None from here", read) + at
    return Explained(text, f"End {called.name} with return and its result.", sites, {"type": kind})


def _assignments(record: Record, name: str) -> list[ast.Assign]:
    found = [n for n in ast.walk(record.tree) if isinstance(n, ast.Assign)] if record.tree else []
    own = [a for a in found if any(isinstance(t, ast.Name) and t.id == name for t in a.targets)]
    return sorted(own, key=lambda a: a.lineno)


def _called(record: Record, call: ast.Call) -> _Function | None:
    """The function of the program that a call runs: by name, or the forward of a module's class."""
    name = ast.unparse(call.func)
    if isinstance(call.func, ast.Call):
        name = ast.unparse(call.func.func)
    for given in _assignments(record, name):
        if isinstance(given.value, ast.Call):
            name = ast.unparse(given.value.func)
    defined = _class(record, name)
    if defined is not None:
        return next((f for f in _methods(defined) if f.name == "forward"), None)
    functions = [n for n in ast.walk(record.tree) if isinstance(n, _Function)] if record.tree else []
    return next((f for f in functions if f.name == name), None)


def _misspelt(record: Record, owner: str, attribute: str, line: int | None) -> Explained | None:
    """An attribute of a class of the program that has nearly that name."""
    defined = _class(record, owner)
    if defined is None:
        return None
    known: dict[str, int] = {f.name: f.lineno for f in _methods(defined)}
    for node in ast.walk(defined):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            known.setdefault(node.attr, node.lineno)
    near = difflib.get_close_matches(attribute, known, 1, 0.7)
    if not near:
        return None
    at = known[near[0]]
    text = f"{owner} has no attribute {attribute}. It has {near[0]}{on_line(at)}."
    sites = site(line, "fails here", attribute) + site(at, "defined here", near[0])
    edits = record.changed(line, f".{attribute}", f".{near[0]}")
    return Explained(text, f"Write {near[0]} instead of {attribute}{on_line(line)}.", sites, {"class": owner}, edits)


def _arguments(record: Record, message: str, line: int | None) -> Explained | None:
    name = re.match(r"(?:(\w+)\.)?forward\(\)", message)
    found = _class(record, name[1]) if name and name[1] else None
    method = next((f for f in _methods(found) if f.name == "forward"), None) if found else None
    if found is None or method is None:
        return None
    takes = ", ".join(a.arg for a in method.args.args)
    text = f"forward of {found.name}{on_line(method.lineno)} takes ({takes}), and the call{on_line(line)} does not fit: {message.split('()', 1)[1].strip()}."
    sites = site(line, "fails here", found.name) + site(method.lineno, "parameters here", takes)
    return Explained(text, "Hand over each parameter that has no default, without self.", sites, {"class": found.name})
