"""Measures the network between this machine and a node, at the place that the node opened for it.

The other end is :mod:`gpupool.node.meter`, which describes what is said. Blocking sockets without Nagle's delay, as the
client runtime has them; the round trip is of `ECHO_BYTES` each way.
"""

from __future__ import annotations

import hashlib
import os
import socket
import statistics
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpupool.client.errors import GpupoolError

#: What is advised between kernels and nodes: at most so many µs, at least so many Gbit/s.
ADVISED_ROUND_TRIP_US: Final = 50.0
ADVISED_GBIT: Final = 10.0
#: Bytes of `machine_mark`.
MARK_BYTES: Final = 32
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NETWORK: Final = Path("/proc/self/ns/net")
_ORDER: Final = struct.Struct("!cQ")
_ECHO_BYTES: Final = 64
_PIECE_BYTES: Final = 1 << 20
_BURST_BYTES: Final = 32 << 20
_WARM_UP: Final = 20
#: A node that says nothing for this long is not measured.
_STILL_SECONDS: Final = 5


@dataclass(frozen=True, slots=True)
class Measured:
    """Round trips in microseconds, throughput in Gbit/s as this program sent and received.

    ``here``: the node is on this machine. A node behind a tunnel isn't, although its address may be 127.0.0.1.
    """

    round_trip_us: float
    round_trip_p99_us: float
    to_node_gbit: float
    from_node_gbit: float
    round_trips: int
    here: bool = False

    @property
    def advised(self) -> bool:
        """Whether it is as good as advised."""
        gbit = min(self.to_node_gbit, self.from_node_gbit)
        return self.round_trip_us <= ADVISED_ROUND_TRIP_US and gbit >= ADVISED_GBIT


class NotMeasuredError(GpupoolError):
    """The node's address cannot be reached from here, or it closed; ``str()`` is one sentence."""


def measure(address: str, ticket: str, *, round_trips: int = 1000, seconds: float = 0.5) -> Measured:
    """Round trips, then as much as goes through in `seconds` each way. Blocks.

    Raises:
        NotMeasuredError: the address cannot be dialled from here, or the connection broke.
    """
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=3.0) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Time-outs of the kernel: those of Python cost a system call for each call.
            connection.setblocking(True)
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                connection.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", _STILL_SECONDS, 0))
            connection.sendall(ticket.encode())
            times = _round_trips(connection, round_trips + _WARM_UP)[_WARM_UP:]
            up = _throughput(connection, b"U", seconds)
            down = _throughput(connection, b"D", seconds)
            here = _is_here(connection, ticket)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise NotMeasuredError(
            f"The node at {address} cannot be measured from this machine ({why})."
        ) from None
    times.sort()
    p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
    return Measured(statistics.median(times), p99, up, down, len(times), here)


def _round_trips(connection: socket.socket, count: int) -> list[float]:
    """Each in microseconds."""
    connection.sendall(_ORDER.pack(b"E", count))
    message, answer = bytes(_ECHO_BYTES), memoryview(bytearray(_ECHO_BYTES))
    times = []
    for _ in range(count):
        started = time.perf_counter_ns()
        connection.sendall(message)
        _fill(connection, answer)
        times.append((time.perf_counter_ns() - started) / 1000)
    return times


def _throughput(connection: socket.socket, letter: bytes, seconds: float) -> float:
    """Gbit/s over bursts of `_BURST_BYTES` until `seconds` have passed."""
    piece = memoryview(bytearray(_PIECE_BYTES))
    done = memoryview(bytearray(1))
    moved, started = 0, time.perf_counter()
    burst = _PIECE_BYTES  # the first is short: a slow network must not take a minute for it
    while (passed := time.perf_counter() - started) < seconds:
        connection.sendall(_ORDER.pack(letter, burst))
        for _ in range(burst // _PIECE_BYTES):
            if letter == b"U":
                connection.sendall(piece)
            else:
                _fill(connection, piece)
        if letter == b"U":
            _fill(connection, done)
        moved += burst
        if passed < seconds / 4:
            burst = min(burst * 2, _BURST_BYTES)
    return moved * 8 / 1e9 / max(time.perf_counter() - started, 1e-9)


def machine_mark(ticket: str) -> bytes:
    """Of this machine, in the one measurement whose ticket it is: elsewhere it says nothing.

    No address says whether two programs are on one machine: a tunnel ends at 127.0.0.1, too. A machine is a boot of a system
    and one of its networks, for in a container with its own 127.0.0.1 is another place. Where the machine cannot be told, no
    two marks are the same.
    """
    try:
        machine = f"{_BOOT.read_text().strip()} {_NETWORK.readlink()}".encode()
    except OSError:
        machine = os.urandom(MARK_BYTES)
    return hashlib.sha256(ticket.encode() + b" " + machine).digest()


def _is_here(connection: socket.socket, ticket: str) -> bool:
    said = memoryview(bytearray(MARK_BYTES))
    try:
        connection.sendall(_ORDER.pack(b"W", 0))
        _fill(connection, said)
    except OSError:
        return False  # a node of before, which does not say; or time is over
    return bytes(said) == machine_mark(ticket)


def _fill(connection: socket.socket, view: memoryview) -> None:
    while view:
        received = connection.recv_into(view)
        if received == 0:
            raise ConnectionResetError("the node closed the connection")
        view = view[received:]
