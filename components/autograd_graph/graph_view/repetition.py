"""Sequences that repeat back to back, such as the rounds of a loop."""

from __future__ import annotations

REPEATS = 3
"""Fewest repetitions that count."""


class Periods:
    """Finds where ``signs`` repeat. Every period is scanned once along the whole list."""

    CANDIDATES, LONGEST = 32, 512

    def __init__(self, signs: list[int]) -> None:
        self.signs = signs
        self.following: list[int] = [len(signs)] * len(signs)
        last: dict[int, int] = {}
        for i in range(len(signs) - 1, -1, -1):
            self.following[i] = last.get(signs[i], len(signs))
            last[signs[i]] = i
        self.reach: dict[int, int] = {}

    def best(self, start: int) -> tuple[int, int]:
        """(period, times) that covers most from ``start`` on, the shortest period of equals; (1, 1) when nothing repeats."""
        best, at = (1, 1), self.following[start]
        for _ in range(self.CANDIDATES):
            period = at - start
            if at >= len(self.signs) or period > self.LONGEST:
                break
            times = (self._matched(start, period) - start) // period + 1
            if times >= REPEATS and period * times > best[0] * best[1]:
                best = (period, times)
            at = self.following[at]
        return best

    def _matched(self, start: int, period: int) -> int:
        """First index from ``start`` on whose sign differs from the one ``period`` later."""
        end = self.reach.get(period, -1)
        if end < start:
            end, last = start, len(self.signs) - period
            while end < last and self.signs[end] == self.signs[end + period]:
                end += 1
            self.reach[period] = end
        return end
