"""One script of an ES module and all that it imports: a components-v2 figure takes one script and may fetch no other.

NOTE How it is made.
1. A source is a plain ES module, so that the browser, node and the linter read it as it is. It imports names from relative
   paths (``import { element } from "../kit/base.js"``) and exports declarations (``export function``, ``export class``,
   ``export const``) or one ``export default``. Any other form is refused here.
2. Each module becomes one function call that answers its exports, once, after all that it imports. Its names stay its own.
3. The module that was asked for keeps its ``export default``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

_IMPORT = re.compile(r'^import\s*\{([^}]*)\}\s*from\s*"(\.[^"]+)"[ \t]*;?[ \t]*$', re.MULTILINE)
_EXPORT = re.compile(r"^export\s+(?=(?:async\s+)?(?:function\*?|class|const)\s+(\w+))", re.MULTILINE)
_DEFAULT = re.compile(r"^export default\s+", re.MULTILINE)
_MODULE_WORD = re.compile(r"^\s*(?:import|export)\b.*|\bimport\s*\(.*", re.MULTILINE)
_NAME = re.compile(r"(\w+)(?:\s+as\s+(\w+))?")


def script(entry: Path) -> str:
    """The text of one ES module that does what ``entry`` does, without imports."""
    written: dict[Path, str] = {}
    _write(entry.resolve(), written, ())
    last = list(written)[-1]
    return "\n".join([*written.values(), f"export default {_variable(list(written).index(last))}.default\n"])


def _write(path: Path, written: dict[Path, str], above: tuple[Path, ...]) -> None:
    """Add ``path`` to ``written`` behind everything that it imports."""
    if path in above:
        raise ValueError(f"modules import each other: {' → '.join(p.name for p in (*above, path))}")
    if path in written:
        return
    source = path.read_text(encoding="utf-8")
    for match in _IMPORT.finditer(source):
        _write((path.parent / match[2]).resolve(), written, (*above, path))
    order = list(written)

    def bound(match: re.Match[str]) -> str:
        names = ", ".join(f"{name}: {alias}" if alias else name for name, alias in _NAME.findall(match[1]))
        return f"const {{ {names} }} = {_variable(order.index((path.parent / match[2]).resolve()))}"

    body = _DEFAULT.sub("const exportedDefault = ", _EXPORT.sub("", _IMPORT.sub(bound, source)))
    if left := _MODULE_WORD.search(_IMPORT.sub("", _EXPORT.sub("", _DEFAULT.sub("", source)))):
        raise ValueError(f"{path.name}: not a form of import or export that is understood: {left[0].strip()}")
    names = [*_EXPORT.findall(source), *(["default: exportedDefault"] if _DEFAULT.search(source) else [])]
    written[path] = (
        f"// {json.dumps(path.name)}\nconst {_variable(len(written))} = (() => {{\n{body}\nreturn {{ {', '.join(names)} }}\n}})()"
    )


def _variable(number: int) -> str:
    return f"module{number}"
