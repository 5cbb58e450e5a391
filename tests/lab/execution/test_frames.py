"""Framing, from the side that trusts nobody."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from lab.execution.sealed.frames import FrameError, Incoming, read_frame, send_frame, write_frame


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    with near, far:
        yield near, far


def test_messages_pass_both_ways(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    send_frame(near, {"a": [1, "é"]})
    assert read_frame(far.fileno()) == {"a": [1, "é"]}
    write_frame(far.fileno(), '{"b": 2}')
    write_frame(far.fileno(), '{"c": 3}')
    incoming = Incoming(near, frame_bytes=100, total_bytes=100)
    assert [json.loads(incoming.next(1) or "") for _ in range(2)] == [{"b": 2}, {"c": 3}]


def test_an_incomplete_message_does_not_hold_the_reader(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    incoming = Incoming(near, frame_bytes=100, total_bytes=100)
    far.sendall(struct.pack(">I", 2) + b"[")
    started = time.monotonic()
    assert incoming.next(0.05) is None
    assert 0.05 <= time.monotonic() - started < 1
    far.sendall(b"]")
    assert incoming.next(1) == "[]"


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (b"\xff\xff\xff\xff", "4,294,967,295 bytes; the limit is 100"),
        (struct.pack(">I", 101), "101 bytes"),
        (struct.pack(">I", 2) + b"\xc3\xa9", "not ASCII"),
        (struct.pack(">I", 1) + b"1" + os.urandom(200), "too many messages"),
    ],
)
def test_what_breaks_the_framing_raises(sent: bytes, says: str, pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    far.sendall(sent)
    with pytest.raises(FrameError, match=says):
        Incoming(near, frame_bytes=100, total_bytes=150).next(1)


def test_a_peer_that_hangs_up_is_an_end(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    far.sendall(struct.pack(">I", 10) + b"half")
    far.close()
    with pytest.raises(EOFError):
        Incoming(near, frame_bytes=100, total_bytes=100).next(1)
    with pytest.raises(EOFError):
        read_frame(near.fileno())
