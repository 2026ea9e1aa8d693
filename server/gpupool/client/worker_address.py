"""How a client finds its worker: one line of text that the node makes and everybody else passes on.

``host:port[ key=value]...``: ``local`` is the path of the worker's Unix socket on its own
machine, ``tls`` the SHA-256 fingerprint of the one certificate that the worker shows.
Without ``tls`` the connection is not encrypted. Unknown keys are skipped.
"""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from typing import Final

#: Longest line that is passed on.
MAX_LENGTH: Final = 512

_HOST = re.compile(r"[A-Za-z0-9.:\[\]_-]{1,255}", re.ASCII)
_HOST_PORT = re.compile(rf"{_HOST.pattern}:[0-9]{{1,5}}", re.ASCII)
#: Of a value in an error.
_SHOWN: Final = 80
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
            raise WorkerAddressError(f"the address {text[:_SHOWN]!r} is not host:port")
        host, _, port = place.rpartition(":")
        values = {}
        for option in options:
            key, _, value = option.partition("=")
            if not _WORD.fullmatch(value):
                raise WorkerAddressError(f"the address holds {value[:_SHOWN]!r} for {key[:_SHOWN]!r}")
            values[key] = value
        if "tls" in values and not _FINGERPRINT.fullmatch(values["tls"]):
            raise WorkerAddressError(f"the address holds {values['tls'][:_SHOWN]!r} for a fingerprint")
        return cls(host, int(port), values.get("local", ""), values.get("tls", ""))

    def __str__(self) -> str:
        options = [f"{key}={value}" for key, value in (("local", self.local), ("tls", self.tls)) if value]
        return " ".join((f"{self.host}:{self.port}", *options))


def checked_host(text: str) -> str:
    """The name or IP address of a machine, as such a line can hold it.

    Raises:
        WorkerAddressError: it is none.
    """
    if _HOST.fullmatch(text) and (":" not in text or _is_ipv6(text)):
        return text
    raise WorkerAddressError(
        f"{text[:_SHOWN]!r} is no host that kernels can dial; give a name or an IP address, without a scheme and a port"
    )


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text.removeprefix("[").removesuffix("]")).version == 6
    except ValueError:
        return False


def can_be_told(path: str) -> bool:
    """Whether a socket at ``path`` can be named in an address and be connected to."""
    return bool(_WORD.fullmatch(path)) and 0 < len(os.fsencode(path)) <= _MAX_SOCKET_PATH
