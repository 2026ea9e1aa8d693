"""What workers say of themselves: into the pool's records, bounded, and out again, as far as a viewer may see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from gpupool.client.worker_address import MAX_LENGTH
from gpupool.model.events import ReportedWorker
from gpupool.model.state import WORK_STATES, LeaseRecord, State, Usage
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.records import reader_of
from gpupool.shares import MAXIMUM_MIB
from gpupool.text import kernel_name, printable

_MAX_DEVICES: Final = 64
#: All devices of a node work no longer in thirty years; in millionths it still is a number of 64 bits.
_MAX_SECONDS: Final = 1e11
#: The largest number that JSON's readers take exactly; a thousand of them together still have 64 bits.
_MAX_COUNT: Final = 1 << 53
_MAX_BYTES: Final = MAXIMUM_MIB << 20


def usage(record: Usage) -> pb.Usage:
    """The counters of a worker as a message, by the names of the fields."""
    return pb.Usage(**dict(zip(_NAMES, _values_of(record), strict=True)))


def usage_record(message: pb.Usage) -> Usage:
    """What a worker says of itself, each value within its bounds whatever the node says."""
    return Usage(*(read(value) for read, value in zip(_READERS, _values_of(message), strict=True)))


def _within(value: float, most: float) -> float:
    """The value; 0 if it cannot be: NaN and infinity are within no bounds."""
    return value if 0 <= value <= most else 0


def _seconds(value: float) -> float:
    return _within(value, _MAX_SECONDS)


def _count(value: float) -> float:
    return _within(value, _MAX_COUNT)


def _bytes_of_devices(values: Sequence[int]) -> tuple[float, ...]:
    return tuple(_within(number, _MAX_BYTES) for number in values[:_MAX_DEVICES])


def _work(value: str) -> str:
    return value if value in WORK_STATES else ""


def _word(value: str) -> str:
    return value[:32]


#: What reads a field of a message, by its name, or else by its type. Every heartbeat reads them all, of each worker.
_READER_OF: Final[Mapping[str, Callable[[Any], Any]]] = {
    "memory_used": _bytes_of_devices,
    "memory_peak": _bytes_of_devices,
    "kernel": kernel_name,
    "failed_kernel": kernel_name,
    "work": _work,
    "str": _word,
    "float": _seconds,
    "int": _count,
    "bool": bool,
}
_NAMES: Final = tuple(field.name for field in fields(Usage))
_READERS: Final = tuple(_READER_OF.get(field.name) or _READER_OF[str(field.type)] for field in fields(Usage))
_values_of: Final = reader_of(_NAMES)


def reported_worker(node: str, message: pb.WorkerReport) -> ReportedWorker:
    """What an agent says of a worker; a place that nobody knows counts as the device, where room is scarce."""
    return ReportedWorker(
        session_id=message.session_id[:64],
        epoch=message.epoch,
        state=message.state[:32],
        address=message.address[:MAX_LENGTH],
        usage=usage_record(message.usage),
        place="host" if message.memory_place == "host" else "device",
        park_obstacle=printable(message.park_obstacle[:32]),
        move_obstacle=printable(message.move_obstacle[:32]),
        enforcement=printable(message.enforcement[:16]) or "none",
        device_ids=tuple(f"{node}/{ordinal}" for ordinal in message.ordinals[:_MAX_DEVICES]),
    )


def after_a_lease(usage: Usage) -> Usage:
    """What ran when the worker was heard last drains when its lease is over, whether it has said so yet or not."""
    return replace(usage, work="draining") if usage.work == "running" else usage


def visible_work(lease: LeaseRecord, usage: Usage, viewer: str | None) -> Usage:
    """A kernel's name is its owner's business, like a notebook's; that something runs is not."""
    usage = usage if lease.live else after_a_lease(usage)
    return usage if viewer in (None, lease.user) else replace(usage, kernel="")


def busy(state: State) -> Mapping[str, float]:
    """The part of the last seconds in which each device worked; a session on several of a node used them evenly."""
    found = dict.fromkeys(state.devices, 0.0)
    for session in state.sessions.values():
        if session.usage.busy > 0 and session.device_ids and not session.worker_gone:
            for device_id in session.device_ids:
                found[device_id] = found.get(device_id, 0.0) + session.usage.busy / len(session.device_ids)
    return {device_id: min(1.0, part) for device_id, part in found.items()}
