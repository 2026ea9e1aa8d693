"""A pool's own past as a trace: who asked when, waited how long and held what, from the charges and the journal of its ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, func, select

from gpupool.ledger import rows, schema
from gpupool.ledger.ledger import LedgerError
from gpupool.ledger.reading import reading
from gpupool.model.clock import Clock
from gpupool.model.state import LimitRecord, ProjectRecord
from gpupool.simulation.replay_nodes import NodeShape
from gpupool.simulation.replay_trace import BadTraceError, Task, Trace

_MAGIC = b"SQLite format 3\x00"


@dataclass(frozen=True, slots=True)
class History:
    """What a ledger knows.

    Attributes:
        trace: a task for each lease, from its request on; of a resized lease the first size counts.
        nodes: the nodes with the devices that they have now.
        still_held: leases that had not ended; they count as if they had at the ledger's last moment.
    """

    trace: Trace
    nodes: tuple[NodeShape, ...]
    projects: tuple[ProjectRecord, ...]
    limits: tuple[LimitRecord, ...]
    still_held: int


def is_ledger(path: Path) -> bool:
    """Whether a file is a ledger or a backup of one, rather than a text. Raises OSError."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def read_history(where: Path | str) -> History:
    """What a ledger, also that of a running pool, or a backup says.

    Raises:
        BadTraceError: it cannot be read, or nobody has held anything yet.
    """
    try:
        with reading(where) as connection:
            clock = Clock.start()
            projects = connection.execute(select(schema.projects)).mappings()
            limits = connection.execute(select(schema.limits)).mappings()
            tasks, still_held = _tasks(connection)
            return History(
                _in_order(str(where), tasks),
                _nodes(connection),
                tuple(rows.project_record(dict(row), clock) for row in projects),
                tuple(rows.limit_record(dict(row), clock) for row in limits),
                still_held,
            )
    except LedgerError as error:
        raise BadTraceError(f"{error}.") from error


@dataclass(slots=True)
class _Held:
    """What the charges say of a lease, or of a gang of them."""

    user: str
    project: str
    begin_ms: int
    end_ms: int
    milli: int
    devices: set[str]


def _tasks(connection: Connection) -> tuple[list[Task], int]:
    charges = schema.charges
    newest = select(func.max(func.coalesce(charges.c.to_ms, charges.c.from_ms)))
    last = int(connection.execute(newest).scalar() or 0)
    granted = _granted(connection)
    held: dict[str, _Held] = {}
    still_held = set()
    for row in connection.execute(select(charges).order_by(charges.c.number)).mappings():
        name = granted.get(row["lease_id"], {}).get("whole", row["lease_id"])
        if row["to_ms"] is None:
            still_held.add(name)
        end = last if row["to_ms"] is None else int(row["to_ms"])
        one = held.setdefault(
            name, _Held(row["user"], row["project"], row["from_ms"], end, row["milli"], set())
        )
        one.end_ms = max(one.end_ms, end)
        one.begin_ms = min(one.begin_ms, row["from_ms"])
        one.devices.add(row["device_id"])
    tasks = []
    for name, one in held.items():
        waited = float(granted.get(name, {}).get("waited_seconds", 0.0))
        tasks.append(
            Task(
                name,
                one.begin_ms / 1000 - waited,
                (one.end_ms - one.begin_ms) / 1000,
                max(1, min(1000, one.milli)),
                len(one.devices),
                user=one.user,
                project=one.project,
            )
        )
    return tasks, len(still_held)


def _granted(connection: Connection) -> dict[str, Mapping[str, Any]]:
    """Of each lease what the journal says of its grant, and under `whole` the lease that stands for its gang."""
    journal = schema.journal
    lines = connection.execute(
        select(journal.c.lease_id, journal.c.user, journal.c.data)
        .where(journal.c.kind == "grant")
        .order_by(journal.c.number)
    )
    whole: dict[tuple[str, str], str] = {}
    granted: dict[str, Mapping[str, Any]] = {}
    for lease_id, user, data in lines:
        key, _, part = str(data.get("key", lease_id)).partition("\n")
        if not part:
            whole[user, key] = lease_id
        granted[lease_id] = {**data, "whole": whole.get((user, key), lease_id)}
    return granted


def _in_order(name: str, tasks: list[Task]) -> Trace:
    if not tasks:
        raise BadTraceError(f"{name} has no charges: nobody has held a share yet.")
    begin = min(task.at for task in tasks)
    shifted = [
        Task(t.name, t.at - begin, t.seconds, t.milli, t.count, None, t.user, t.project) for t in tasks
    ]
    return Trace(name, tuple(sorted(shifted, key=lambda task: task.at)), {})


def _nodes(connection: Connection) -> tuple[NodeShape, ...]:
    devices = connection.execute(
        select(schema.devices)
        .where(schema.devices.c.present)
        .order_by(schema.devices.c.node, schema.devices.c.ordinal)
    )
    sizes: dict[str, list[int]] = {}
    kinds: dict[str, Counter[str]] = {}
    for device in devices.mappings():
        sizes.setdefault(device["node"], []).append(device["total_mib"])
        kinds.setdefault(device["node"], Counter())[device["name"]] += 1
    shapes = []
    for node in connection.execute(select(schema.nodes).order_by(schema.nodes.c.name)).mappings():
        if node["name"] not in sizes or node["lost"]:
            continue
        labels = tuple((str(name), str(value)) for name, value in node["labels"])
        kind = kinds[node["name"]].most_common(1)[0][0]
        shapes.append(NodeShape(node["name"], tuple(sizes[node["name"]]), kind, node["pool"], labels))
    return tuple(shapes)
