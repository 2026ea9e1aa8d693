"""The TCP ports that workers of a node listen on, where a firewall lets only some through."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from typing import Final

_RANGE: Final = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", re.ASCII)
_MAXIMUM_PORT: Final = 65535


class PortsError(ValueError):
    """A text is no range of ports; ``str()`` is one sentence with it."""


@dataclass(frozen=True, slots=True)
class PortRange:
    """From ``first`` to ``last``, both included; 0-0: whatever the system picks."""

    first: int = 0
    last: int = 0

    @classmethod
    def parse(cls, text: str) -> PortRange:
        """Reads ``40000-40099``, or one port.

        Raises:
            PortsError: it is no range.
        """
        match = _RANGE.fullmatch(text.strip())
        first = int(match[1]) if match else 0
        last = int(match[2] or match[1]) if match else 0
        if not 1 <= first <= last <= _MAXIMUM_PORT:
            raise PortsError(
                f"{text[:40]!r} is no range of ports; write FIRST-LAST, within 1-{_MAXIMUM_PORT}, such as 40000-40099"
            )
        return cls(first, last)

    @property
    def count(self) -> int:
        """How many ports these are; 0: not limited."""
        return self.last - self.first + 1 if self.first else 0

    def __str__(self) -> str:
        return f"{self.first}-{self.last}" if self.first != self.last else str(self.first)

    def listen(self, host: str) -> socket.socket:
        """A socket that listens on a port of the range that is free.

        Raises:
            OSError: none is, or nothing can listen at ``host``.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        for port in range(self.first, self.last):
            try:
                return socket.create_server((host, port), family=family, backlog=4)
            except OSError:
                continue
        # The last one's error is the whole range's.
        return socket.create_server((host, self.last), family=family, backlog=4)
