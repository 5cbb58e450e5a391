"""What the hooks of the program did, and how many of them there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from lab.contract import Finding
from lab.experiments.module_anatomy.schema import Result
from lab.experiments.module_anatomy.words import counted, listed, site
from lab.quantities import number_text
from lab.records.anatomy import HookRow


def registered(result: Result) -> Iterator[Finding]:
    """Several from one line on one object."""
    places = Counter((h.identity, h.kind, h.line) for h in result.hooks if h.line and h.identity >= 0)
    for (identity, kind, line), count in places.items():
        if count < 2:
            continue
        moments = {h.calls_before for h in result.hooks if (h.identity, h.kind, h.line) == (identity, kind, line)}
        first = next(h for h in result.hooks if (h.identity, h.kind, h.line) == (identity, kind, line))
        made = next((row.line for row in result.tree if row.identity == identity), None)
        if first.names > 1:
            yield _of_one_object(first, count, made)
        elif len(moments) > 1:  # calls lie between them: not several hooks that were put on at once
            yield _again(first, count)


def _of_one_object(hook: HookRow, count: int, made: int | None) -> Finding:
    return Finding(
        level="warning",
        title=f"{count} hooks sit on one object",
        text=f"{hook.path} is one module under {counted(hook.names, 'name')}. Line {hook.line} hooked it {count} times, and each of its calls runs all {count}: "
        f"{hook.names} uses in a forward make {count * hook.names} records, not {hook.names}.",
        evidence={"hooks": count, "objects": 1, "names": hook.names},
        line=made or hook.line,
        repair="Hook each object once (named_modules() gives each once), or make the module anew for each place.",
        sites=(*site(made, "one object", hook.path), *site(hook.line, "hooked again", hook.path)),
    )


def _again(hook: HookRow, count: int) -> Finding:
    total = count * (count + 1) // 2
    return Finding(
        level="warning",
        title=f"Line {hook.line} has hooked {hook.path or 'the model'} {count} times",
        text=f"Hooks add up until they are removed: every call now runs {count} of this line. One more with each of {count} calls makes {total} records.",
        evidence={"hooks alive": count, "records in as many calls": total},
        line=hook.line,
        repair="Keep the handle and call handle.remove(), or register once, outside of what is repeated.",
        sites=site(hook.line, "hooked again", hook.path),
    )


def order(result: Result) -> Iterator[Finding]:
    """In the view of hooks: what changed, what was skipped, in which order it opened and closed."""
    if result.own_hooks_skipped:
        yield Finding(
            level="surprise",
            title=f"model.forward(x) skipped {counted(result.own_hooks_skipped, 'hook')}",
            text="Hooks of the outermost module hang around its call, and forward was run without it. Those of the modules inside ran.",
            evidence={"skipped": result.own_hooks_skipped},
            change={"call": "model(x)"},
        )
    changes = [e for e in result.events if e.by == "program" and e.changed]
    for event in list({(e.path, e.kind, e.line): e for e in changes}.values())[:3]:
        sizes = (
            f" Its 2-norm went from {number_text(event.before)} to {number_text(event.after)}."
            if event.before is not None and event.after is not None
            else ""
        )
        yield Finding(
            level="surprise",
            title=f"The {event.kind} on {event.path or 'the model'} changes what goes on",
            text=f"It {event.changed}.{sizes}",
            evidence={"before": event.before, "after": event.after} if event.before is not None else {},
            line=event.line,
            sites=site(event.line, "changes it", event.path),
        )
    yield from _nesting(result)


def _nesting(result: Result) -> Iterator[Finding]:
    calls = [e for e in result.events if e.kind == "call"]
    opened = [e.path for e in calls if e.mark == "open"]
    if not opened:
        return
    depth, stack, nested = 0, [], True
    for event in calls:
        if event.mark == "open":
            stack.append(event.path)
            depth = max(depth, len(stack))
        else:
            nested &= bool(stack) and stack.pop() == event.path
    if nested and not stack:
        backward = [e for e in result.events if e.phase == "backward"]
        yield Finding(
            level="fact",
            title=f"{counted(len(opened), 'call')}, {depth} deep, {counted(len(backward), 'event')} on the way back",
            text=f"The outer module's call opens first and closes last.{_way_back(result)}",
            evidence={"calls": len(opened), "depth": depth, "events in backward": len(backward)},
        )


def _way_back(result: Result) -> str:
    pre = [e.path or "the model" for e in result.events if e.phase == "backward" and e.kind == "full backward pre-hook"]
    if len(pre) < 2:
        return ""
    return f" Backward enters {listed(list(dict.fromkeys(pre)))} in this order."
