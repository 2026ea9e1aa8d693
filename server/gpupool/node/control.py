"""The line protocol on a worker's control socket, agent's side.

One command at a time; each is answered by one line (``ok``, ``refused``, ``stats``).
Between the answers the worker says by itself what changed. A command that is not answered
in time ends the connection, so that a late answer can never be taken for another one's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpupool.engines.records import DeviceGrant
from gpupool.text import kernel_name

#: Longest line either side sends, bytes.
MAX_LINE: Final = 8192
#: A worker answers within this time, or is treated as not answering, seconds.
ANSWER_SECONDS: Final = 5.0
# sockaddr_un holds 108 bytes with the final zero.
_MAX_SOCKET_PATH: Final = 100
_MAX_COUNTER: Final = 2**63 - 1
_MAX_DEVICES: Final = 64
#: A revocation is answered when nothing of the session computes any more: after the grace that work under way has
#: (4 s from the end of the lease), and what stopping it takes; seconds.
REVOKE_SECONDS: Final = 10.0
#: Memory that is moved to the host, back or to disk answers within this time, seconds: less than the pool waits for
#: it (`Timers.park`), so that an order which the pool has given up has come to its end here, too.
MOVE_SECONDS: Final = 120.0
#: Where a session's device memory lies.
PLACES: Final = ("device", "host")
#: What the devices do for a session, where they do anything.
WORK_STATES: Final = ("running", "draining", "stopped")
#: Obstacles and levels of enforcement are short ids.
_MAX_CUDA_ERROR: Final = 9999
_ID: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")


class ControlError(Exception):
    """The worker cannot be spoken to, or said something that is not the protocol."""


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """One ``stats`` line: counters since the worker's start; nanoseconds and bytes."""

    epoch: int = 0
    state: str = "attached"
    client: bool = False
    device_ns: int = 0
    kernels: int = 0
    calls: int = 0
    posts: int = 0
    asks: int = 0
    ask_ns: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    memory_used: tuple[int, ...] = ()
    memory_peak: tuple[int, ...] = ()
    last_submit_ns: int = 0
    in_flight: bool = False
    #: ``device`` or ``host``.
    place: str = "device"
    #: Why the memory cannot be moved to the host, or the session into an image; empty: it can.
    park_obstacle: str = ""
    move_obstacle: str = ""
    #: ``none``, ``soft`` or ``hard``.
    enforcement: str = "none"
    #: What the devices do now: one of `WORK_STATES`, or empty; the kernel under way, and for how long.
    work: str = ""
    kernel: str = ""
    work_ms: int = 0
    #: The CUDA error that ended what the session can do until it is reset; 0: none.
    failure: int = 0
    failed_kernel: str = ""


@dataclass(frozen=True, slots=True)
class ClientConnected:
    """The client came, or went away."""

    connected: bool


@dataclass(frozen=True, slots=True)
class Fenced:
    """The worker has stopped to serve because its lease was not renewed."""

    epoch: int


Notice = WorkerStats | ClientConnected | Fenced


@dataclass(frozen=True, slots=True)
class Applied:
    """A worker's answer; ``message`` is its reason when it refused.

    ``bytes`` are what ``park`` moved and ``export`` wrote. ``used_mib``: what its session uses, when that is why it refused.
    """

    ok: bool
    message: str = ""
    bytes: int = 0
    used_mib: int = 0


def parse_notice(line: str) -> Notice | None:
    """A line that the worker sends by itself; None for one that is none (an answer).

    Raises:
        ControlError: it begins like one and is malformed.
    """
    verb, _, rest = line.partition(" ")
    if verb == "stats":
        return _stats(_fields(rest))
    if verb == "client":
        return ClientConnected(_fields(rest).get("connected") == "1")
    if verb == "fenced":
        return Fenced(_number(_fields(rest), "epoch"))
    return None


def _fields(text: str) -> dict[str, str]:
    fields = {}
    for item in text.split():
        key, equals, value = item.partition("=")
        if equals:
            fields[key] = value
    return fields


def _number(fields: Mapping[str, str], key: str) -> int:
    text = fields.get(key, "0")
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > _MAX_COUNTER:
        raise ControlError(f"the worker's {key} is not a number")
    return int(text)


def _stats(fields: Mapping[str, str]) -> WorkerStats:
    used: list[int] = []
    peak: list[int] = []
    for item in filter(None, fields.get("mem", "").split(",")):
        parts = item.split(":")
        if len(parts) != 3 or len(used) == _MAX_DEVICES:
            raise ControlError("the worker's memory figures are malformed")
        memory = dict(zip(("ordinal", "used", "peak"), parts, strict=True))
        if _number(memory, "ordinal") != len(used):
            raise ControlError("the worker's memory figures are out of order")
        used.append(_number(memory, "used"))
        peak.append(_number(memory, "peak"))
    state = fields.get("state", "")
    if state not in ("attached", "parked", "fenced"):
        raise ControlError("the worker is in an unknown state")
    # A state of work that is unknown here reads as nothing: it is only shown.
    work = fields.get("work", "")
    work = work if work in WORK_STATES else ""
    failure = _number(fields, "failed")
    if failure > _MAX_CUDA_ERROR:
        raise ControlError(f"the worker's failed={failure} is not an error of CUDA")
    return WorkerStats(
        epoch=_number(fields, "epoch"),
        state=state,
        client=fields.get("client") == "1",
        device_ns=_number(fields, "device_ns"),
        kernels=_number(fields, "kernels"),
        calls=_number(fields, "calls"),
        posts=_number(fields, "posts"),
        asks=_number(fields, "asks"),
        ask_ns=_number(fields, "ask_ns"),
        bytes_in=_number(fields, "bytes_in"),
        bytes_out=_number(fields, "bytes_out"),
        memory_used=tuple(used),
        memory_peak=tuple(peak),
        last_submit_ns=_number(fields, "last_submit_ns"),
        in_flight=fields.get("in_flight") == "1",
        place=_place(fields),
        park_obstacle=_obstacle(fields, "park"),
        move_obstacle=_obstacle(fields, "move"),
        enforcement=_id(fields, "enforcement", "none"),
        work=work,
        kernel=kernel_name(fields.get("kernel", "")) if work else "",
        work_ms=_number(fields, "work_ms") if work else 0,
        failure=failure,
        failed_kernel=kernel_name(fields.get("failed_kernel", "")) if failure else "",
    )


def _place(fields: Mapping[str, str]) -> str:
    place = fields.get("place", "device")
    if place not in PLACES:
        raise ControlError("the worker's memory is in an unknown place")
    return place


def _id(fields: Mapping[str, str], key: str, default: str) -> str:
    text = fields.get(key, default)
    if not _ID.fullmatch(text):
        raise ControlError(f"the worker's {key} is not an id")
    return text


def _obstacle(fields: Mapping[str, str], key: str) -> str:
    found = _id(fields, key, "other")
    return "" if found == "ok" else found


class ControlChannel:
    """A connection to one worker. ``on_notice`` is called from the event loop."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_notice: Callable[[Notice], None],
        answer_seconds: float,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._on_notice = on_notice
        self._answer_seconds = answer_seconds
        self._lock = asyncio.Lock()
        self._answer: asyncio.Future[str] | None = None
        self._expects_stats = False
        self._stopping = False
        #: Ends when the connection does.
        self.closed = asyncio.create_task(self._read(), name="worker control")

    @classmethod
    async def connect(
        cls, path: Path, on_notice: Callable[[Notice], None], *, answer_seconds: float = ANSWER_SECONDS
    ) -> ControlChannel:
        """Raises ControlError when nobody listens at ``path``."""
        try:
            reader, writer = await _connect(path)
        except OSError as error:
            raise ControlError(f"the worker's control socket does not answer ({error.strerror})") from error
        return cls(reader, writer, on_notice, answer_seconds)

    async def lease(
        self,
        epoch: int,
        deadline_ns: int,
        devices: Sequence[DeviceGrant] | None = None,
        *,
        onto: Mapping[int, str] | None = None,
        from_host: bool = False,
    ) -> Applied:
        """Grants, renews or (with ``devices``, in the client's order) resizes a lease.

        Args:
            epoch: of the lease; a lower one than the worker knows is refused.
            deadline_ns: when it ends unless it is renewed, on the node's boot-time clock.
            devices: what is granted; None: as before.
            onto: UUIDs (32 hex digits) of other devices than before, by the client's ordinal; only
                where the memory is in the host.
            from_host: memory may have to be brought back: it may take up to :data:`MOVE_SECONDS`. Where
                it took longer than the lease lasts, the reason is ``late``: ask again with another deadline.
        """
        command = f"lease epoch={epoch} deadline_ns={deadline_ns}"
        if devices:
            shares = ",".join(f"{place}:{d.milli}:{d.mib}" for place, d in enumerate(devices))
            command += f" share={shares}"
        if onto:
            command += " device=" + ",".join(f"{place}:{uuid}" for place, uuid in sorted(onto.items()))
        return _applied(await self._command(command, MOVE_SECONDS if from_host or onto else None))

    async def park(self, epoch: int) -> Applied:
        """Moves the device memory to the host. There must be no lease in force."""
        return _applied(await self._command(f"park epoch={epoch}", MOVE_SECONDS))

    async def export(self, folder: Path) -> Applied:
        """Writes the session's image into ``folder``. There must be no lease in force."""
        return _applied(await self._command(f"export folder={folder}", MOVE_SECONDS))

    async def revoke(self, epoch: int) -> Applied:
        """Ends the lease and answers when nothing of it computes any more; may take up to :data:`REVOKE_SECONDS`."""
        return _applied(await self._command(f"revoke epoch={epoch}", REVOKE_SECONDS))

    async def stats(self) -> None:
        """Asks for a ``stats`` line now; it arrives as a notice before this returns."""
        await self._command("stats")

    async def stop(self) -> None:
        """Ends the worker, also while another command takes long."""
        self._stopping = True
        if self._lock.locked():
            # The worker answers this, too, and that must not be taken for the end of the command.
            if self._answer is not None and not self._answer.done():
                self._answer.set_exception(ControlError("the worker is being stopped"))
            with contextlib.suppress(OSError, RuntimeError):
                self._writer.write(b"stop\n")
            await asyncio.wait([self.closed], timeout=self._answer_seconds)
            if not self.closed.done():
                raise ControlError("the worker did not stop")
            return
        await self._command("stop")

    async def close(self) -> None:
        """Ends the connection, not the worker. May be called twice."""
        self.closed.cancel()
        self._writer.close()
        with contextlib.suppress(asyncio.CancelledError):
            await self.closed

    async def _command(self, text: str, seconds: float | None = None) -> str:
        limit = self._answer_seconds if seconds is None else max(seconds, self._answer_seconds)
        async with self._lock:
            if self.closed.done():
                raise ControlError("the worker's control connection is closed")
            if self._stopping and text != "stop":
                raise ControlError("the worker is being stopped")
            answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            self._answer = answer
            self._expects_stats = text == "stats"
            try:
                self._writer.write(os.fsencode(text) + b"\n")
                async with asyncio.timeout(limit):
                    await self._writer.drain()
                    return await answer
            except (TimeoutError, OSError) as error:
                self.closed.cancel()
                raise ControlError(
                    f"the worker did not answer {text.split()[0]!r} within {limit:g} s"
                ) from error
            finally:
                self._answer = None

    async def _read(self) -> None:
        try:
            while raw := await self._reader.readline():
                line = raw.decode("ascii").strip()
                if line:
                    self._take(line)
        except (OSError, ValueError, ControlError):
            # Broken, too long, not ASCII or malformed: the connection is of no more use.
            return
        finally:
            self._writer.close()
            if self._answer is not None and not self._answer.done():
                self._answer.set_exception(ControlError("the worker closed its control connection"))

    def _take(self, line: str) -> None:
        notice = parse_notice(line)
        if notice is not None:
            self._on_notice(notice)
            # A stats line that was asked for is an answer, too.
            if not isinstance(notice, WorkerStats):
                return
        is_answer = isinstance(notice, WorkerStats) == self._expects_stats
        if is_answer and self._answer is not None and not self._answer.done():
            self._answer.set_result(line)


def _applied(line: str) -> Applied:
    verb, _, rest = line.partition(" ")
    fields = _fields(rest)
    if verb == "ok":
        return Applied(True, bytes=_number(fields, "bytes"))
    if verb == "refused":
        message = fields.get("reason", "refused")
        if "why" in fields:
            message += f" why={fields['why']}"
        return Applied(False, message, used_mib=_number(fields, "used_mib"))
    raise ControlError(f"the worker answered {line[:80]!r}")


async def _connect(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if len(os.fsencode(path)) <= _MAX_SOCKET_PATH:
        return await asyncio.open_unix_connection(path, limit=MAX_LINE)
    # Too long for a socket address: go by way of the folder's descriptor.
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return await asyncio.open_unix_connection(f"/proc/self/fd/{folder}/{path.name}", limit=MAX_LINE)
    finally:
        os.close(folder)
