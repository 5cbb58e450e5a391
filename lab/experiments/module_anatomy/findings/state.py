"""What loading the chosen state dict does, foreseen and measured."""

from __future__ import annotations

from collections.abc import Iterator

from lab.contract import Finding
from lab.experiments.module_anatomy.schema import Result
from lab.experiments.module_anatomy.words import counted, listed
from lab.records.anatomy import Keys


def loading(result: Result) -> Iterator[Finding]:
    keys = result.keys
    if keys is None or not keys.rows:
        return
    total = sum(bool(row.here) for row in keys.rows)
    if keys.error and keys.changed:
        yield Finding(
            level="warning",
            title=f"Refused, and {keys.changed} of {total} tensors are changed",
            text=f"Before it complains, load_state_dict copies all that fits. It raised for {_complaints(keys)}; {keys.changed} of {total} tensors have other bits than "
            "before, so the module is neither the old nor the new one.",
            evidence={"changed": keys.changed, "tensors": total, "mismatched": len(keys.mismatched)},
            repair="Compare names and shapes first; load into a fresh module.",
        )
    elif keys.error:
        yield Finding(
            level="fact",
            title="Refused, and nothing is changed",
            text=f"It raised for {_complaints(keys)}. No tensor has other bits than before.",
            evidence={"changed": keys.changed, "tensors": total},
            repair=_renaming(keys),
        )
    elif not keys.loaded and keys.unexpected:
        yield Finding(
            level="warning",
            title=f"0 of {total} tensors were loaded, without an error",
            text=f"No name of the file is one of the module: {len(keys.missing)} missing, {len(keys.unexpected)} unexpected. With strict=False only the answer says so.",
            evidence={"loaded": 0, "missing": len(keys.missing), "unexpected": len(keys.unexpected)},
            repair=_renaming(keys),
        )
    elif keys.missing or keys.unexpected:
        yield Finding(
            level="surprise",
            title=f"{keys.loaded} of {total} tensors were loaded",
            text=f"{_complaints(keys)[:1].upper()}{_complaints(keys)[1:]}. With strict=False only the answer says so.",
            evidence={"loaded": keys.loaded, "missing": len(keys.missing), "unexpected": len(keys.unexpected)},
        )
    elif keys.loaded < total:
        yield Finding(
            level="surprise",
            title=f"All names fit, and {keys.loaded} of {total} tensors equal the file",
            text=f"Names and shapes are those of the module, and nothing was raised. {keys.warned.split('. ')[0]}".rstrip(),
            evidence={"loaded": keys.loaded, "tensors": total},
        )
    else:
        yield Finding(
            level="fact",
            title=f"All {total} tensors were loaded",
            text="Names and shapes are those of the module, and every tensor equals that of the file afterwards.",
            evidence={"loaded": keys.loaded, "tensors": total},
        )
    yield from _cast(keys)
    yield from _replaced(keys)


def _complaints(keys: Keys) -> str:
    parts = [
        f"{counted(len(names), word + ' key')} ({listed(names, 2)})"
        for word, names in (("missing", keys.missing), ("unexpected", keys.unexpected), ("mismatched", keys.mismatched))
        if names
    ]
    return ", ".join(parts) or "what its message says"


def _renaming(keys: Keys) -> str:
    if not keys.renamed:
        return ""
    prefix = keys.renamed.lstrip("-")
    return f"Put {prefix} in front of every key." if keys.renamed.startswith("-") else f"Take {prefix} off every key."


def _cast(keys: Keys) -> Iterator[Finding]:
    cast = [row for row in keys.rows if row.foreseen == "cast" and row.changed]
    if not cast:
        return
    lost = sum(row.lost for row in cast)
    kept = sum(row.dtype_after == row.there.split(" ")[-1] for row in cast)
    yield Finding(
        level="warning" if lost else "surprise",
        title=f"{counted(len(cast), 'tensor')} in another dtype, without a word",
        text=f"{cast[0].key} is {cast[0].there.split(' ')[-1]} in the file and {cast[0].here.split(' ')[-1]} in the module. "
        + (
            f"With assign=True {kept} took the dtype of the file."
            if kept
            else "The values were cast to the module's dtype."
        )
        + (f" {lost} finite values became infinite." if lost else ""),
        evidence={"cast": len(cast), "became infinite": lost},
    )


def _replaced(keys: Keys) -> Iterator[Finding]:
    if keys.stale:
        yield Finding(
            level="warning",
            title=f"An optimizer from before holds {keys.stale} of {keys.owned} tensors that are gone",
            text="assign=True put new Parameters into the module. An optimizer over the old ones would go on stepping them, and the model would not change.",
            evidence={"gone": keys.stale, "held": keys.owned},
            change={"assign": False},
        )
    if keys.ties_after < keys.ties_before:
        yield Finding(
            level="warning",
            title="Tied weights came apart",
            text=f"{counted(keys.ties_before, 'parameter')} had several names before, {keys.ties_after} after: each name got a Parameter of its own.",
            evidence={"tied before": keys.ties_before, "tied after": keys.ties_after},
            change={"assign": False},
        )
