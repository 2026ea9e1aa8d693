"""What leases hold and for how long, device by device: rows that are written with the step that changes them.

A row lasts from the moment that a lease takes a size of a device until it takes another size or the share is free;
``to_ms`` is empty while it lasts. On each device the open rows sum to what leases take. Rows of one lease and device follow
each other without gap, but for the time that the pool was down for longer than workers serve without it: no lease was of any
use then (:func:`not_served`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, select

from gpupool.ledger.periods import Write, begin, end, interrupt, milliseconds
from gpupool.ledger.recorder import Changes
from gpupool.ledger.schema import charges, leases
from gpupool.model.state import LeaseRecord


@dataclass(frozen=True, slots=True)
class Charge:
    """What one lease takes of one device."""

    lease_id: str
    device_id: str
    user: str
    project: str
    milli: int
    mib: int


def charges_of(lease: LeaseRecord | None) -> dict[str, Charge]:
    """What `lease` takes, by device; nothing when it has ended or does not exist."""
    if lease is None or not lease.holds:
        return {}
    return {
        share.device_id: Charge(lease.id, share.device_id, lease.user, lease.project, share.milli, share.mib)
        for share in lease.taken()
    }


def writes(changes: Changes, now_ms: int) -> Iterator[Write]:
    """The statements that bring the rows up to date with what a step changed."""
    for before, after in changes.get("leases", {}).values():
        if before is not None and after is not None and after.takes_like(before):
            continue
        old, new = charges_of(before), charges_of(after)
        for device_id, was in old.items():
            if new.get(device_id) != was:
                yield end(charges, {"lease_id": was.lease_id, "device_id": device_id}, now_ms)
        for device_id, charge in new.items():
            if old.get(device_id) != charge:
                yield begin(charges, asdict(charge), now_ms)


def not_served(from_ms: int, to_ms: int) -> Iterator[Write]:
    """The statements by which no lease is charged for a time, after which all of them go on."""
    return interrupt(charges, from_ms, to_ms)


def open_missing(connection: Connection) -> None:
    """Opens rows for leases of a ledger that comes from a version without them: from their grant on, at their present size."""
    charged = select(charges.c.lease_id).where(charges.c.to_ms.is_(None))
    uncharged = select(leases).where(leases.c.state != "ended", leases.c.id.not_in(charged))
    for lease in connection.execute(uncharged).mappings().all():
        sizes = zip(lease["shares"], lease["resize_shares"] or lease["shares"], strict=True)
        for (device_id, milli, mib), (_, new_milli, new_mib) in sizes:
            charge = Charge(
                lease["id"],
                device_id,
                lease["user"],
                lease["project"],
                max(milli, new_milli),
                max(mib, new_mib),
            )
            connection.execute(*begin(charges, asdict(charge), milliseconds(lease["granted_unix"])))
