"""What the pool's history counts: sums over a time, so that sums over longer times are sums of these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final

MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS


@dataclass(frozen=True, slots=True)
class Amounts:
    """Sums over a time. To get a mean, divide by `covered_ms`; 0 there means that nobody looked.

    Attributes:
        covered_ms: how long of the time was looked at, milliseconds.
        capacity_milli_ms: what devices had to lend, milli-GPU times milliseconds; capacity_mib_ms: the same of memory.
        held_milli_ms: what leases held, from their grant until the share was free; held_mib_ms: the same of memory.
        used_milli_ms: device time, as measured by workers: one millisecond of a whole device is 1000.
        idle_milli_ms: held, but not used: see `pool.history.waste`.
        memory_mib_ms: memory of sessions that lay on devices, parked ones included.
        to_device_bytes, from_device_bytes: what programs copied.
        waiting_milli_ms: what requests waited for; waiting_request_ms: how many waited, times milliseconds.
    """

    covered_ms: int = 0
    capacity_milli_ms: int = 0
    capacity_mib_ms: int = 0
    held_milli_ms: int = 0
    held_mib_ms: int = 0
    used_milli_ms: int = 0
    idle_milli_ms: int = 0
    memory_mib_ms: int = 0
    to_device_bytes: int = 0
    from_device_bytes: int = 0
    waiting_milli_ms: int = 0
    waiting_request_ms: int = 0

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(*(getattr(self, name) + getattr(other, name) for name in AMOUNTS))

    def __bool__(self) -> bool:
        """Whether anything is counted."""
        return any(getattr(self, name) for name in AMOUNTS)


#: Their names, in order.
AMOUNTS: Final = tuple(field.name for field in fields(Amounts))


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom or what amounts are of; what is empty is summed over.

    Attributes:
        device: ``node/0``.
        session: the session's id.
        label: what its holder calls it: a notebook's name, a command.
    """

    device: str = ""
    user: str = ""
    project: str = ""
    session: str = ""
    label: str = ""


def total(amounts: Iterable[Amounts]) -> Amounts:
    """The sum of all."""
    whole = Amounts()
    for one in amounts:
        whole += one
    return whole


def as_row(subject: Subject, amounts: Amounts) -> dict[str, str | int]:
    """As the ledger has it."""
    return {
        "device_id": subject.device,
        "user": subject.user,
        "project": subject.project,
        "session_id": subject.session,
        "label": subject.label,
        **{name: getattr(amounts, name) for name in AMOUNTS},
    }


@dataclass(frozen=True, slots=True)
class Level:
    """Periods of one length, and how long they are kept before they become longer ones, milliseconds."""

    length_ms: int
    kept_ms: int


#: From the finest on; what is older than the last is dropped.
LEVELS: Final = (
    Level(MINUTE_MS, _DAY_MS),
    Level(10 * MINUTE_MS, 7 * _DAY_MS),
    Level(_HOUR_MS, 90 * _DAY_MS),
)


@dataclass(frozen=True, slots=True)
class Held:
    """What the ledger knows of a time: what leases held, what devices were there, what was waited for."""

    leases: Mapping[Subject, Amounts]
    devices: Mapping[Subject, Amounts]
    requests: Mapping[Subject, Amounts]
