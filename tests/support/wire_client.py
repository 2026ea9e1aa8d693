"""The data plane's frames spoken from Python: for tests that say things no client would say.

Facts from src/wire/frame.h: a 24-byte little-endian header, replies begin with 16 more bytes.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from dataclasses import dataclass
from typing import Final

HEADER: Final = struct.Struct("<IHHIIQ")
REPLY: Final = struct.Struct("<iiII")
HELLO_BODY: Final = struct.Struct("<II32s16sQQQQQ")

MAGIC: Final = 0x4C505047
VERSION: Final = 3
HELLO, LEASE, DRAIN, STATS, GOODBYE, OUTPUT, PING = 1, 2, 3, 4, 5, 6, 7
SHARE_LIMIT = 16  # unasked: u32 device, u64 bytes, u32 number of a wish
SESSION = 15  # in the place of HELLO: another worker takes the session over
INQUIRE, END_SESSION = 18, 19  # in the place of HELLO: questions that the door answers itself
FLAG_ASK, FLAG_REPLY, FLAG_BULK = 1, 2, 4
OK, NOT_ATTACHED, PAST_EPOCH, FENCED, CLOSED = 0, 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class Reply:
    """What the worker answered: CUDA result, status, and the bytes behind the reply header."""

    message: int
    sequence: int
    result: int
    status: int
    body: bytes


class Closed(Exception):
    """The worker ended the connection."""


def hello_frame(
    token: str,
    session: str,
    *,
    pid: int | None = None,
    magic: int = MAGIC,
    arena: int = 0,
    message: int = HELLO,
) -> bytes:
    body = HELLO_BODY.pack(
        magic, VERSION, bytes.fromhex(token), bytes.fromhex(session), pid or os.getpid(), arena, 0, 0, 0
    )
    return HEADER.pack(HEADER.size + len(body), message, FLAG_ASK, 0, 0, 1) + body


class WireClient:
    """One connection. Everything times out after ``timeout`` seconds."""

    def __init__(self, port: int, timeout: float = 10.0, *, source: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout, (source, 0))
        self.sequence = 1
        #: What the worker said unasked before its last reply: message and body.
        self.pushes: list[tuple[int, bytes]] = []

    def __enter__(self) -> WireClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def hello(self, token: str, session: str, *, pid: int | None = None, arena: int = 0) -> Reply:
        self.socket.sendall(hello_frame(token, session, pid=pid, arena=arena))
        return self.read_reply()

    def ask(self, message: int, body: bytes = b"", *, epoch: int = 0) -> Reply:
        self.sequence += 1
        length = HEADER.size + len(body)
        self.socket.sendall(HEADER.pack(length, message, FLAG_ASK, epoch, 0, self.sequence) + body)
        return self.read_reply()

    def goodbye(self) -> None:
        self.sequence += 1
        self.socket.sendall(HEADER.pack(HEADER.size, GOODBYE, 0, 0, 0, self.sequence))

    def read_reply(self) -> Reply:
        while True:
            length, message, flags, _, _, sequence = HEADER.unpack(self._read(HEADER.size))
            body = self._read(length - HEADER.size)
            if flags & FLAG_REPLY:
                break
            assert not flags & FLAG_BULK, f"message {message} is no reply"
            self.pushes.append((message, body))
        result, _, _, status = REPLY.unpack_from(body)
        return Reply(message, sequence, result, status, body[REPLY.size :])

    def ended(self) -> bool:
        """Whether the connection has ended by now, without waiting."""
        readable, _, _ = select.select([self.socket], [], [], 0)
        return bool(readable) and self.socket.recv(1, socket.MSG_PEEK) == b""

    def closed(self) -> bool:
        """Waits for the end of the connection; False when the worker said something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                chunk = self.socket.recv(size - len(data))
            except ConnectionError as error:
                raise Closed from error
            if not chunk:
                raise Closed
            data += chunk
        return data
