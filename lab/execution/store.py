"""A store that forgets what was not used for longest."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

V = TypeVar("V")


class BoundedStore(Generic[V]):
    """Values by key, at most ``entries`` of them and ``size_bytes`` in all. Not thread-safe."""

    def __init__(self, *, entries: int, size_bytes: int) -> None:
        self._entries, self._size_bytes = entries, size_bytes
        self._items: OrderedDict[str, tuple[V, int]] = OrderedDict()
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: str) -> bool:
        return key in self._items

    def get(self, key: str) -> V | None:
        if key not in self._items:
            return None
        self._items.move_to_end(key)
        return self._items[key][0]

    def put(self, key: str, value: V, value_bytes: int) -> None:
        """Keep ``value``; a value larger than the whole store is the first to go when another one comes."""
        if key in self._items:
            self.held_bytes -= self._items.pop(key)[1]
        self._items[key] = value, value_bytes
        self.held_bytes += value_bytes
        while len(self._items) > 1 and (len(self._items) > self._entries or self.held_bytes > self._size_bytes):
            _, (_, freed_bytes) = self._items.popitem(last=False)
            self.held_bytes -= freed_bytes
