"""Messages over a stream socket: four bytes of length (big-endian), then JSON text in ASCII.

``write_frame`` and ``read_frame`` use plain reads and writes, the only ones left inside the walls. ``Incoming`` is the
outer end: it trusts no length and waits for nobody.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from typing import Any

from lab.execution.perform import AnswerError

CONTROL_BYTES = 1 << 16
"""Longest message between the zygote and its parent, on their own socket."""
_LENGTH = struct.Struct(">I")


class FrameError(AnswerError):
    """The peer broke the framing."""


def send_frame(peer: socket.socket, data: Any) -> None:
    """Send JSON data to a peer that may be stuck. Raises TimeoutError after 5 s."""
    peer.settimeout(5)
    peer.sendall(_frame(json.dumps(data, allow_nan=False)))


def write_frame(fd: int, text: str) -> None:
    """Send JSON text. Blocks until the peer has taken it."""
    left = memoryview(_frame(text))
    while left:
        left = left[os.write(fd, left) :]


def _frame(text: str) -> bytes:
    body = text.encode("ascii")
    return _LENGTH.pack(len(body)) + body


def read_frame(fd: int) -> Any:
    """Wait for one message of a trusted peer. Raises EOFError when it hung up."""
    return json.loads(_exactly(fd, *_LENGTH.unpack(_exactly(fd, _LENGTH.size))))


def _exactly(fd: int, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        chunk = os.read(fd, count - len(found))
        if not chunk:
            raise EOFError("the peer hung up")
        found += chunk
    return bytes(found)


class Incoming:
    """Messages of a peer that may be hostile."""

    def __init__(self, peer: socket.socket, *, frame_bytes: int, total_bytes: int) -> None:
        self._peer, self._buffer = peer, bytearray()
        self._frame_bytes, self._left = frame_bytes, total_bytes

    def next(self, wait_s: float) -> str | None:
        """JSON text of the next message, None when it is not complete within ``wait_s``.

        Raises EOFError when the peer hung up, FrameError when a message is too long, too much came in all, or it is not ASCII.
        """
        deadline = time.monotonic() + wait_s
        while (length := self._expected()) is None or len(self._buffer) < _LENGTH.size + length:
            left = deadline - time.monotonic()
            if left <= 0 or not self._receive(left):
                return None
        body = bytes(self._buffer[_LENGTH.size : _LENGTH.size + length])
        del self._buffer[: _LENGTH.size + length]
        try:
            return body.decode("ascii")
        except UnicodeDecodeError as error:
            raise FrameError(f"not ASCII at byte {error.start}") from None

    def _expected(self) -> int | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > self._frame_bytes:
            raise FrameError(f"a message of {length:,} bytes; the limit is {self._frame_bytes:,}")
        return length

    def _receive(self, wait_s: float) -> bool:
        self._peer.settimeout(wait_s)
        try:
            chunk = self._peer.recv(1 << 20)
        except TimeoutError:
            return False
        except ConnectionError:
            chunk = b""
        if not chunk:
            raise EOFError("the peer hung up")
        self._left -= len(chunk)
        if self._left < 0:
            raise FrameError("too many messages")
        self._buffer += chunk
        return True
