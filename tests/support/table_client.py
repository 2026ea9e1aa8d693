"""The worker's calls spoken from Python, by the names and fields of the protocol table."""

from __future__ import annotations

import functools
import struct
import sys
from pathlib import Path
from typing import Any

from tests.support.wire_client import FLAG_ASK, FLAG_BULK, HEADER, Reply, WireClient

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src" / "protocol"))

import cuda_header
import find_cuda_headers
import table
from kinds import KINDS

FIRST_CALL = 64
_FORMATS = {"u8": "<B", "u16": "<H", "u32": "<I", "u64": "<Q", "i32": "<i", "f32": "<f"}


@functools.cache
def messages() -> dict[str, tuple[int, table.Message]]:
    """Number and description of each message."""
    header = cuda_header.load(find_cuda_headers.find())
    driver = Path(table.__file__).parent / "driver"
    return {m.name: (FIRST_CALL + n, m) for n, m in enumerate(table.load(driver, header).messages)}


def handle(kind: str, index: int, generation: int = 0) -> int:
    """A handle as a client mints it."""
    return KINDS[kind].number << 48 | generation << 32 | index


class TableClient(WireClient):
    """A client that says single calls. Call :meth:`hello` first, as with WireClient."""

    epoch = 1

    def post(self, name: str, /, *, payload: bytes | None = None, **fields: Any) -> None:
        self._say(name, payload, fields)

    def call(self, name: str, /, *, payload: bytes | None = None, **fields: Any) -> dict[str, Any]:
        """Asks and decodes the answer: its fields, ``result``, ``deferred`` and ``payload``."""
        message = self._say(name, payload, fields)
        return self._answer(message)

    def ask_without_reading(self, name: str, /, **fields: Any) -> None:
        """Its answer is for :meth:`read_answer`."""
        self._say(name, None, fields)

    def read_answer(self) -> tuple[int, bytes]:
        """Status and payload of the next answer."""
        reply, _, payload = self._read_call()
        return reply.status, payload

    def deferred(self) -> int:
        """The first error of the posts since the last answer."""
        return int(self.call("StreamAttribute", stream=0, attribute=0)["deferred"])

    def _say(self, name: str, payload: bytes | None, fields: dict[str, Any]) -> table.Message:
        number, message = messages()[name]
        body = b""
        for field in message.fields:
            value = fields.pop(field.name, 0)
            if field.packed == "bytes":
                data = bytes(value or b"")
                body += struct.pack("<I", len(data)) + data
            else:
                body += struct.pack(_FORMATS[field.packed], value)
        assert not fields, fields
        if message.bulk == "request":
            body += struct.pack("<Q", len(payload or b""))
        self.sequence += 1
        flags = (FLAG_ASK if message.kind == "ask" else 0) | (FLAG_BULK if message.bulk == "request" else 0)
        length = HEADER.size + len(body)
        self.socket.sendall(
            HEADER.pack(length, number, flags, self.epoch, 0, self.sequence) + body + (payload or b"")
        )
        return message

    def _answer(self, message: table.Message) -> dict[str, Any]:
        reply, deferred, payload = self._read_call()
        answer: dict[str, Any] = {"result": reply.result, "status": reply.status, "deferred": deferred}
        answer["payload"] = payload
        at = 0
        for field in message.reply if reply.result == 0 else ():
            if field.packed == "bytes":
                (size,) = struct.unpack_from("<I", reply.body, at)
                answer[field.name] = reply.body[at + 4 : at + 4 + size]
                at += 4 + size
            elif field.packed in _FORMATS:
                (answer[field.name],) = struct.unpack_from(_FORMATS[field.packed], reply.body, at)
                at += struct.calcsize(_FORMATS[field.packed])
        return answer

    def _read_call(self) -> tuple[Reply, int, bytes]:
        """The next reply; what the worker says unasked before it is dropped."""
        while True:
            length, number, flags, _, _, sequence = HEADER.unpack(self._read(HEADER.size))
            body = self._read(length - HEADER.size)
            payload = self._read(struct.unpack("<Q", body[-8:])[0]) if flags & FLAG_BULK else b""
            if flags & 2:
                result, deferred, _, status = struct.unpack_from("<iiII", body)
                return Reply(number, sequence, result, status, body[16:]), deferred, payload
