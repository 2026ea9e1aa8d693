"""Records to rows and back. What a row leaves out is not stored: see "Not stored" in `gpupool.model.state`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, Final

from gpupool.filters import Filter
from gpupool.model.clock import Clock
from gpupool.model.state import (
    AccountRecord,
    DeviceRecord,
    LeaseRecord,
    LeftWorker,
    LimitRecord,
    NodeRecord,
    Notice,
    ProjectRecord,
    RequestRecord,
    Resize,
    SessionRecord,
)
from gpupool.records import reader_of
from gpupool.scheduler.model import PlacedShare
from gpupool.sentences import NOTHING, Sentence

Row = dict[str, Any]
#: Of a request, what is asked for and how. Why it waits is said anew.
_WANTED: Final = (
    "milli", "mib", "count", "session_id", "label", "holder", "duration", "reservation", "strict", "nodes", "kind",
    "priority", "isolated",
)  # fmt: skip

#: Fields that no row has: what changes in these alone is not stored.
FLEETING: Final[Mapping[type, frozenset[str]]] = {
    NodeRecord: frozenset(
        {
            "connection",
            "last_answered",
            "park_memory_mib",
            "park_disk_mib",
            "worker_ports",
            "leaves_at",
            "given_back",
        }
    ),
    DeviceRecord: frozenset({"shrunk"}),
    SessionRecord: frozenset(
        {
            "gone_since",
            "usage",
            "park_obstacle",
            "move_obstacle",
            "enforcement",
            "parking",
            "park_failure",
            "park_retry_at",
            "kept_place",
            "kept_until",
        }
    ),
    LeaseRecord: frozenset(
        {"renew_by", "covered_at", "since", "confirm_request", "ready", "address", "filters"}
    ),
}


def has_same_row(record: Any, other: Any) -> bool:
    """Whether two records of one kind are stored alike, as far as that shows without their rows."""
    stored = _stored(record.__class__)
    return stored(record) == stored(other)


@cache
def _stored(kind: type[Any]) -> Callable[[Any], tuple[Any, ...]]:
    fleeting = FLEETING.get(kind, frozenset())
    return reader_of([field.name for field in fields(kind) if field.name not in fleeting])


def node_row(record: NodeRecord, _clock: Clock) -> Row:
    return {
        "name": record.name,
        "instance": record.instance,
        "advertise_host": record.advertise_host,
        "lost": record.lost,
        "pool": record.pool,
        "labels": [list(label) for label in record.labels],
        "sharing": record.sharing,
        "drained": record.drained,
        "drain_reason": record.drain_reason,
    }


def node_record(row: Mapping[str, Any], _clock: Clock) -> NodeRecord:
    labels = tuple((str(name), str(value)) for name, value in row["labels"])
    return NodeRecord(**{**row, "labels": labels})


def device_row(record: DeviceRecord, _clock: Clock) -> Row:
    return {name: getattr(record, name) for name in DeviceRecord.__dataclass_fields__ if name != "shrunk"}


def device_record(row: Mapping[str, Any], _clock: Clock) -> DeviceRecord:
    return DeviceRecord(**row)


def session_row(record: SessionRecord, clock: Clock) -> Row:
    return {
        "id": record.id,
        "user": record.user,
        "label": record.label,
        "holder": record.holder,
        "node": record.node,
        "device_ids": list(record.device_ids),
        "secret": record.secret,
        "state": record.state,
        "reason": record.reason,
        "epoch": record.epoch,
        "address": record.address,
        "lease_id": record.lease_id,
        "closed_unix": _to_unix(record.closed_at, clock),
        "worker_gone": record.worker_gone,
        "strict": record.strict,
        "place": record.place,
        "parked_unix": _to_unix(record.parked_at, clock),
        "parked_mib": list(record.parked_mib),
        "left_worker": None if record.left is None else _left_json(record.left),
        "source_gone": record.source_gone,
        "gang": record.gang,
        "part": record.part,
        "project": record.project,
        "isolated": record.isolated,
    }


def session_record(row: Mapping[str, Any], clock: Clock) -> SessionRecord:
    fields = dict(row)
    fields["device_ids"] = tuple(fields["device_ids"])
    fields["closed_at"] = _from_unix(fields.pop("closed_unix"), clock)
    fields["parked_at"] = _from_unix(fields.pop("parked_unix"), clock)
    fields["parked_mib"] = tuple(int(mib) for mib in fields["parked_mib"])
    left = fields.pop("left_worker")
    return SessionRecord(left=None if left is None else _left(left), **fields)


def lease_row(record: LeaseRecord, clock: Clock) -> Row:
    return {
        "id": record.id,
        "session_id": record.session_id,
        "user": record.user,
        "idempotency_key": record.key,
        "label": record.label,
        "holder": record.holder,
        "epoch": record.epoch,
        "shares": _shares_json(record.shares),
        "resize_shares": None if record.resize is None else _shares_json(record.resize.shares),
        "state": record.state,
        "reason": record.reason,
        "granted_unix": clock.to_unix(record.granted_at),
        "ends_unix": _to_unix(record.ends_at, clock),
        "ended_unix": _to_unix(record.ended_at, clock),
        "new_session": record.new_session,
        "reservation": record.reservation,
        "close_session": record.close_session,
        "gang": record.gang,
        "part": record.part,
        "project": record.project,
        "kind": record.kind,
        "priority": record.priority,
        "notice": None if record.notice is None else _notice_json(record.notice, clock),
    }


def lease_record(row: Mapping[str, Any], clock: Clock) -> LeaseRecord:
    fields = dict(row)
    resize = fields.pop("resize_shares")
    granted_at = clock.from_unix(fields.pop("granted_unix"))
    notice = fields.pop("notice")
    return LeaseRecord(
        key=fields.pop("idempotency_key"),
        shares=_shares(fields.pop("shares")),
        resize=None if resize is None else Resize(_shares(resize), request=0, since=granted_at),
        granted_at=granted_at,
        ends_at=_from_unix(fields.pop("ends_unix"), clock),
        ended_at=_from_unix(fields.pop("ended_unix"), clock),
        notice=None if notice is None else _notice(notice, clock),
        **fields,
    )


def request_row(record: RequestRecord, clock: Clock) -> Row:
    wanted = {name: getattr(record, name) for name in _WANTED}
    return {
        "id": record.id,
        "number": record.number,
        "user": record.user,
        "idempotency_key": record.key,
        "project": record.project,
        "since_unix": clock.to_unix(record.since),
        "give_up_unix": _to_unix(record.give_up_at, clock),
        "wanted": {
            **wanted,
            "filters": [[one.key, one.operator, one.value] for one in record.filters],
            "pools": list(record.pools),
        },
    }


def request_record(row: Mapping[str, Any], clock: Clock) -> RequestRecord:
    wanted = dict(row["wanted"])
    filters = tuple(
        Filter(str(key), str(operator), str(value)) for key, operator, value in wanted.pop("filters")
    )
    return RequestRecord(
        id=row["id"],
        number=row["number"],
        user=row["user"],
        key=row["idempotency_key"],
        project=row["project"],
        since=clock.from_unix(row["since_unix"]),
        give_up_at=_from_unix(row["give_up_unix"], clock),
        filters=filters,
        pools=tuple(str(name) for name in wanted.pop("pools")),
        # Its caller was told that it waits; where and why it is told anew.
        told=(0, NOTHING),
        **wanted,
    )


def project_row(record: ProjectRecord, _clock: Clock) -> Row:
    return {
        "path": record.path,
        "deserved": record.deserved,
        "limit_milli": record.limit,
        "weight": record.weight,
        "priority": record.priority,
        "min_run": record.min_run,
        "members": list(record.members),
    }


def project_record(row: Mapping[str, Any], _clock: Clock) -> ProjectRecord:
    fields = dict(row)
    members = tuple(str(member) for member in fields.pop("members"))
    return ProjectRecord(limit=fields.pop("limit_milli"), members=members, **fields)


def limit_row(record: LimitRecord, _clock: Clock) -> Row:
    return {name: getattr(record, name) for name in LimitRecord.__dataclass_fields__}


def limit_record(row: Mapping[str, Any], _clock: Clock) -> LimitRecord:
    return LimitRecord(**row)


def account_row(record: AccountRecord, clock: Clock) -> Row:
    return {
        "id": record.id,
        "window_unix": _to_unix(record.window_from, clock),
        "window_milli_ms": record.window_milli_ms,
        "decayed_milli_seconds": record.decayed_milli_seconds,
        "as_of_unix": clock.to_unix(record.as_of),
    }


def account_record(row: Mapping[str, Any], clock: Clock) -> AccountRecord:
    fields = dict(row)
    window_from = _from_unix(fields.pop("window_unix"), clock)
    return AccountRecord(window_from=window_from, as_of=clock.from_unix(fields.pop("as_of_unix")), **fields)


def _left_json(left: LeftWorker) -> Row:
    return {
        "node": left.node,
        "place": left.place,
        "device_ids": list(left.device_ids),
        "mib": list(left.mib),
    }


def _left(row: Mapping[str, Any]) -> LeftWorker:
    return LeftWorker(
        node=str(row["node"]),
        place=str(row["place"]),
        device_ids=tuple(str(device_id) for device_id in row["device_ids"]),
        mib=tuple(int(mib) for mib in row["mib"]),
    )


def _notice_json(notice: Notice, clock: Clock) -> Row:
    return {
        "reason": notice.reason,
        "until_unix": clock.to_unix(notice.until),
        "said": notice.said.as_json(),
        "for_request": notice.for_request,
        "target": _shares_json(notice.target),
        "heard": notice.heard,
    }


def _notice(row: Mapping[str, Any], clock: Clock) -> Notice:
    return Notice(
        reason=str(row["reason"]),
        until=clock.from_unix(float(row["until_unix"])),
        said=Sentence.from_json(row["said"]),
        for_request=str(row["for_request"]),
        target=_shares(row["target"]),
        heard=bool(row["heard"]),
    )


def _shares_json(shares: tuple[PlacedShare, ...]) -> list[list[str | int]]:
    return [[share.device_id, share.milli, share.mib] for share in shares]


def _shares(rows: list[list[Any]]) -> tuple[PlacedShare, ...]:
    return tuple(PlacedShare(str(device_id), int(milli), int(mib)) for device_id, milli, mib in rows)


def _to_unix(moment: float | None, clock: Clock) -> float | None:
    return None if moment is None else clock.to_unix(moment)


def _from_unix(unix: float | None, clock: Clock) -> float | None:
    return None if unix is None else clock.from_unix(unix)
