from __future__ import annotations

from lab.execution.store import BoundedStore


def test_what_was_not_used_for_longest_goes_first() -> None:
    store = BoundedStore[str](entries=2, size_bytes=100)
    store.put("a", "A", 1)
    store.put("b", "B", 1)
    assert store.get("a") == "A"
    store.put("c", "C", 1)
    assert [store.get(key) for key in "abc"] == ["A", None, "C"]


def test_bytes_are_bounded_and_replacing_does_not_count_twice() -> None:
    store = BoundedStore[str](entries=10, size_bytes=100)
    store.put("a", "A", 60)
    store.put("a", "A2", 40)
    store.put("b", "B", 60)
    assert store.held_bytes == 100
    store.put("c", "C", 1)
    assert ("a" in store, "b" in store, store.held_bytes) == (False, True, 61)


def test_a_value_larger_than_the_store_is_kept_until_the_next_one() -> None:
    store = BoundedStore[str](entries=10, size_bytes=100)
    store.put("a", "A", 1000)
    assert store.get("a") == "A"
    store.put("b", "B", 1)
    assert (store.get("a"), store.get("b"), len(store), store.held_bytes) == (None, "B", 1, 1)
