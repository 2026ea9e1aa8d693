"""Where the network between a machine and this node is measured: one measurement at a time, for whom the pool sent.

It listens as workers do, at an address and on a port of their kind, so a firewall that would stop kernels stops it
too. Blocking sockets in a thread: an event loop would measure itself.

A caller sends its ticket (64 hexadecimal digits), then orders of nine bytes: a letter and a number, big-endian.

* ``E`` n: echo n messages of `ECHO_BYTES`;
* ``U`` n: take n bytes, then answer one;
* ``D`` n: send n bytes;
* ``W`` n: answer which machine this is (`gpupool.client.netperf.machine_mark`).
"""

from __future__ import annotations

import hmac
import socket
import struct
import threading
import time
from typing import Final

from gpupool.client.netperf import machine_mark
from gpupool.node.ports import PortRange

ORDER: Final = struct.Struct("!cQ")
ECHO_BYTES: Final = 64
TICKET_BYTES: Final = 64
#: The meter closes after this time, however far the measurement is.
OPEN_SECONDS: Final = 10.0
ANY_PORT: Final = PortRange()
_MAX_ECHOES: Final = 100_000
_MAX_BYTES: Final = 16 << 30
_PIECE_BYTES: Final = 1 << 20
#: Whoever connects says its ticket at once, or makes room for the next.
_TICKET_SECONDS: Final = 1.0


class MeterBusyError(RuntimeError):
    """Somebody else measures, or the port cannot be had; ``str()`` is one sentence."""


class Meter:
    """Opens at most one measurement at a time."""

    def __init__(
        self, listen_host: str, ports: PortRange = ANY_PORT, open_seconds: float = OPEN_SECONDS
    ) -> None:
        self._host = listen_host
        self._ports = ports
        self.open_seconds = open_seconds
        self._busy = threading.Lock()

    def open(self, ticket: str) -> int:
        """The port on which the holder of `ticket` is served once, within `open_seconds`.

        Raises:
            MeterBusyError: another measurement goes on, or nothing can listen there.
        """
        if not self._busy.acquire(blocking=False):
            raise MeterBusyError(
                f"somebody else measures the network of this node; try again in {self.open_seconds:.0f} s"
            )
        try:
            server = self._ports.listen(self._host.strip("[]"))
        except OSError as error:
            self._busy.release()
            raise MeterBusyError(
                f"nothing can listen at {self._host}:{self._ports}: {error.strerror}"
            ) from None
        port: int = server.getsockname()[1]
        try:
            threading.Thread(
                target=self._run, args=(server, ticket), name="network meter", daemon=True
            ).start()
        except RuntimeError as error:  # no more threads
            server.close()
            self._busy.release()
            raise MeterBusyError(f"this node has nothing to measure with: {error}") from None
        return port

    def _run(self, server: socket.socket, ticket: str) -> None:
        deadline = time.monotonic() + self.open_seconds
        try:
            with server:
                while (left := deadline - time.monotonic()) > 0:
                    server.settimeout(left)
                    try:
                        connection, _ = server.accept()
                    except OSError:
                        return  # nobody came
                    with connection:
                        if _admitted(connection, ticket, min(deadline, time.monotonic() + _TICKET_SECONDS)):
                            server.close()
                            _serve(connection, ticket, deadline)
                            return
        finally:
            self._busy.release()


def _admitted(connection: socket.socket, ticket: str, deadline: float) -> bool:
    try:
        block(connection, deadline - time.monotonic())
        said = _receive(connection, bytearray(TICKET_BYTES), deadline)
    except OSError:
        return False
    return hmac.compare_digest(bytes(said), ticket.encode())


def _serve(connection: socket.socket, ticket: str, deadline: float) -> None:
    piece = memoryview(bytearray(_PIECE_BYTES))
    total = 0
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        block(connection, deadline - time.monotonic())
        while True:
            letter, number = ORDER.unpack(_receive(connection, bytearray(ORDER.size), deadline))
            total += number if letter in (b"U", b"D") else 0
            if total > _MAX_BYTES or (letter == b"E" and number > _MAX_ECHOES):
                return
            if letter == b"E":
                message = bytearray(ECHO_BYTES)
                for _ in range(number):
                    connection.sendall(_receive(connection, message, deadline))
            elif letter == b"U":
                take(connection, number, piece, deadline)
                connection.sendall(b"k")
            elif letter == b"D":
                give(connection, number, piece, deadline)
            elif letter == b"W":
                connection.sendall(machine_mark(ticket))
            else:
                return
    except OSError:
        return  # the caller has what it wanted, or time is over


def take(connection: socket.socket, count: int, piece: memoryview, deadline: float) -> None:
    """Receives `count` bytes and forgets them.

    Raises:
        OSError: the other end went away, or the deadline (monotonic) passed.
    """
    while count > 0:
        _limit(deadline)
        received = connection.recv_into(piece[: min(count, len(piece))])
        if received == 0:
            raise ConnectionResetError("the other end closed the connection")
        count -= received


def give(connection: socket.socket, count: int, piece: memoryview, deadline: float) -> None:
    """Sends `count` bytes. Raises as :func:`take`."""
    while count > 0:
        _limit(deadline)
        count -= connection.send(piece[: min(count, len(piece))])


def _receive(connection: socket.socket, buffer: bytearray, deadline: float) -> bytearray:
    """Fills `buffer`."""
    view = memoryview(buffer)
    while view:
        _limit(deadline)
        received = connection.recv_into(view)
        if received == 0:
            raise ConnectionResetError("the other end closed the connection")
        view = view[received:]
    return buffer


def _limit(deadline: float) -> None:
    if time.monotonic() >= deadline:
        raise TimeoutError("the time for measuring is over")


def block(connection: socket.socket, seconds: float) -> None:
    """Makes calls block, for `seconds` at most, in the kernel: Python's own time-outs cost a system call each.

    Raises:
        TimeoutError: there are none left.
    """
    if seconds <= 0:
        raise TimeoutError("the time for measuring is over")
    limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6) or 1)
    connection.setblocking(True)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
