"""Warm children kept ready, and a zygote replaced when it dies or is worn."""

from __future__ import annotations

import collections
import threading
import time
from typing import Any

from lab.execution.sealed.children import Child, Zygote, ZygoteError

_RETRY_S = 20.0
"""Rest after a zygote that could not start."""
_OLD_S = 24 * 3600.0
_MANY_CRASHES = 100
"""All children share the zygote's address layout; each crash may have told a stranger something about it."""


class Spares:
    """``count`` warm children of the current zygote. Starts the zygote when it is first needed."""

    def __init__(self, config: dict[str, Any], count: int) -> None:
        self._config, self._count = config, count
        self._lock, self._starting = threading.Lock(), threading.Lock()
        self._zygote: Zygote | None = None
        self._retired: list[Zygote] = []
        self._ready: collections.deque[Child] = collections.deque()
        self._rest_until, self._failure = 0.0, ""
        self._replacing = self._closed = False

    def take(self, *, gpu: bool = False) -> Child:
        """A child for one run, warm when one is waiting (never for ``gpu``). Raises ZygoteError."""
        zygote = self.start()
        with self._lock:
            while self._ready and not gpu:
                child = self._ready.popleft()
                if not child.gone.is_set():
                    return child
                child.close()
        return zygote.make_child(gpu=gpu)

    def start(self) -> Zygote:
        """The current zygote, up; a new one when there is none. Raises ZygoteError."""
        zygote = self._zygote
        if zygote and zygote.is_up:
            return zygote
        with self._starting:
            if self._zygote is None or not self._zygote.is_up:
                self._zygote = self._fresh()
            return self._zygote

    def refill(self) -> None:
        """Make spares up to the number, if a zygote is up."""
        with self._lock:
            zygote = self._zygote
            while zygote and zygote.is_up and not self._closed and len(self._ready) < self._count:
                try:
                    self._ready.append(zygote.make_child())
                except ZygoteError:  # it died just now: ``tend`` sees it
                    return

    def tend(self) -> None:
        zygote = self._zygote
        for old in [z for z in self._retired if not z.has_children]:
            self._retired.remove(old)
            old.close()
        if zygote is None or self._replacing or self._closed:
            return
        worn = time.monotonic() - zygote.started_at > _OLD_S or zygote.crashes >= _MANY_CRASHES
        if worn or (zygote.dead.is_set() and time.monotonic() > self._rest_until):
            self._replacing = True
            threading.Thread(target=self._replace, args=(zygote,), name="zygote replacement", daemon=True).start()

    def close(self) -> None:
        self._closed = True
        with self._starting:
            for zygote in [z for z in (self._zygote, *self._retired) if z]:
                zygote.close()
        self._drop_spares()

    def _fresh(self) -> Zygote:
        if self._closed:
            raise ZygoteError("the lab is closing")
        if time.monotonic() < self._rest_until:
            raise ZygoteError(self._failure)
        zygote = Zygote(self._config)
        try:
            zygote.wait_up()
        except ZygoteError as error:
            self._rest_until, self._failure = time.monotonic() + _RETRY_S, str(error)
            raise
        return zygote

    def _replace(self, old: Zygote) -> None:
        try:
            with self._starting:
                if self._zygote is old:
                    self._zygote = self._fresh()
        except ZygoteError:  # said to whoever asks next
            return
        finally:
            self._replacing = False
        self._drop_spares()
        self._retired.append(old)
        self.refill()

    def _drop_spares(self) -> None:
        with self._lock:
            while self._ready:
                self._ready.popleft().close()
