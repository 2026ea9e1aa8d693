"""Opens the ports of a node for a moment, so that somebody elsewhere can try which of them a firewall lets through.

A port at which nobody listens refuses a connection just as some firewalls do; so something must listen while it is
tried. Workers that start meanwhile need ports too: only a part of the free ones is open at a time.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from dataclasses import dataclass
from typing import Final

from gpupool.node.ports import PortRange

#: A part has at most so many ports: each is a file of the agent's.
LARGEST_PART: Final = 128
#: Parts at least: the other ports are left to workers.
_LEAST_PARTS: Final = 4
#: The doors close after this time, whoever came.
OPEN_SECONDS: Final = 4.0
_A_MOMENT: Final = 1.0


class DoorsBusyError(RuntimeError):
    """No doors can be opened now; ``str()`` is one sentence."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What was opened.

    Attributes:
        ports: at which somebody listens now for whoever tries.
        taken: ports of this part that something else has, a worker most likely.
        parts: how many parts the range has.
        seconds: for so long.
    """

    ports: tuple[int, ...]
    taken: tuple[int, ...]
    parts: int
    seconds: float


class Doors:
    """Of one node; one part of its range is open at a time."""

    def __init__(self, listen_host: str, ports: PortRange, open_seconds: float = OPEN_SECONDS) -> None:
        self._host = listen_host.strip("[]")
        self.ports = ports
        self._open_seconds = open_seconds
        self._busy = threading.Lock()

    def open(self, part: int) -> Opened:
        """Opens the free ports of part number `part`, from 0; each closes when somebody was there. May block for a moment.

        Raises:
            DoorsBusyError: the system picks the ports, there is no such part, or another one is open.
        """
        if not self.ports.first:
            raise DoorsBusyError("this node has no --port-range: the system picks the ports of workers")
        wanted = list(range(self.ports.first, self.ports.last + 1))
        parts = max(_LEAST_PARTS, -(-len(wanted) // LARGEST_PART))
        if not 0 <= part < parts:
            raise DoorsBusyError(f"there is no part {part}; the range {self.ports} has {parts}")
        # Whoever tries one part after the other may be faster than the doors close behind them.
        if not self._busy.acquire(timeout=_A_MOMENT):
            raise DoorsBusyError(
                f"somebody else tries the ports of this node; try again in {self._open_seconds:.0f} s"
            )
        doors: dict[int, socket.socket] = {}
        taken = []
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        for port in wanted[part::parts]:
            try:
                doors[port] = socket.create_server((self._host, port), family=family, backlog=1)
            except OSError:
                taken.append(port)
        watch = threading.Thread(target=self._watch, args=(list(doors.values()),), name="doors", daemon=True)
        try:
            watch.start()
        except RuntimeError as error:
            for door in doors.values():
                door.close()
            self._busy.release()
            raise DoorsBusyError(f"this node has no thread to watch its ports: {error}") from None
        return Opened(tuple(doors), tuple(taken), parts, self._open_seconds)

    def _watch(self, doors: list[socket.socket]) -> None:
        end = time.monotonic() + self._open_seconds
        try:
            with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
                for door in doors:
                    stack.enter_context(door)
                    door.setblocking(False)
                    selector.register(door, selectors.EVENT_READ)
                while selector.get_map() and (left := end - time.monotonic()) > 0:
                    for key, _ in selector.select(left):
                        tried = key.fileobj
                        assert isinstance(tried, socket.socket)
                        with contextlib.suppress(OSError):
                            tried.accept()[0].close()
                        selector.unregister(tried)
                        tried.close()
        finally:
            self._busy.release()
