"""How a client finds its worker: one line of text that the node makes and everybody else passes on.

``host:port[ key=value]...``: ``local`` is the path of the worker's Unix socket on its own
machine, ``tls`` the SHA-256 fingerprint of the one certificate that the worker shows.
Without ``tls`` the connection is not encrypted. Unknown keys are skipped.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

#: Longest line that is passed on.
MAX_LENGTH: Final = 512

_HOST_PORT = re.compile(r"[A-Za-z0-9.:\[\]_-]{1,255}:[0-9]{1,5}", re.ASCII)
_FINGERPRINT = re.compile(r"[0-9a-f]{64}", re.ASCII)
_WORD = re.compile(r"[!-~]{0,256}", re.ASCII)
# sockaddr_un holds 108 bytes with the final zero.
_MAX_SOCKET_PATH: Final = 107


class WorkerAddressError(ValueError):
    """The text is no worker's address."""


@dataclass(frozen=True, slots=True)
class WorkerAddress:
    """The parts of such a line."""

    host: str
    port: int
    local: str = ""
    tls: str = ""

    @classmethod
    def parse(cls, text: str) -> WorkerAddress:
        """Raises WorkerAddressError for what is no such line."""
        place, *options = text.split(" ")
        if len(text) > MAX_LENGTH or not _HOST_PORT.fullmatch(place):
            raise WorkerAddressError("the address is not host:port")
        host, _, port = place.rpartition(":")
        values = {}
        for option in options:
            key, _, value = option.partition("=")
            if not _WORD.fullmatch(value):
                raise WorkerAddressError(f"the address holds a bad value for {key!r}")
            values[key] = value
        if "tls" in values and not _FINGERPRINT.fullmatch(values["tls"]):
            raise WorkerAddressError("the address holds a bad fingerprint")
        return cls(host, int(port), values.get("local", ""), values.get("tls", ""))

    def __str__(self) -> str:
        options = [f"{key}={value}" for key, value in (("local", self.local), ("tls", self.tls)) if value]
        return " ".join((f"{self.host}:{self.port}", *options))


def can_be_told(path: str) -> bool:
    """Whether a socket at ``path`` can be named in an address and be connected to."""
    return bool(_WORD.fullmatch(path)) and 0 < len(os.fsencode(path)) <= _MAX_SOCKET_PATH
