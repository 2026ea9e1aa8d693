"""What changed between two recorded steps, and in one: every field of every record, the fleeting ones included.

Most events change only what is not stored (heartbeats, renewals, ticks). The recorder remembers what the records
were like at the last recorded step, so that the next one tells all that the scheduler saw when it decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from gpupool.ledger import plain
from gpupool.model.state import (
    AccountRecord,
    DeviceRecord,
    LeaseRecord,
    LimitRecord,
    NodeRecord,
    ProjectRecord,
    RequestRecord,
    SessionRecord,
    State,
)
from gpupool.model.table import Table

#: The tables of a state that are recorded, in the order in which a state is put together. `State.keys` follows from
#: the leases.
RECORDED: Final[Mapping[str, type]] = {
    "nodes": NodeRecord,
    "devices": DeviceRecord,
    "sessions": SessionRecord,
    "leases": LeaseRecord,
    "requests": RequestRecord,
    "projects": ProjectRecord,
    "limits": LimitRecord,
    "accounts": AccountRecord,
}
#: (before, after) by key, by table; None: no such record.
Changes = Mapping[str, Mapping[str, tuple[Any, Any]]]
#: What :func:`written` makes of changes: null for a record that went, a list of one for a new one, else its changed fields.
Written = dict[str, dict[str, Any]]


def tables(state: State) -> Iterator[tuple[str, Table[Any]]]:
    """The recorded tables, in the order of `RECORDED`."""
    for name in RECORDED:
        yield name, getattr(state, name)


def changes_of(state: State) -> dict[str, dict[str, tuple[Any, Any]]]:
    """What the present step changed, by table; tables without a change are left out."""
    return {name: changed for name, table in tables(state) if (changed := table.changes())}


def written(changes: Changes, intern: plain.Intern) -> Written:
    """Changes as they are recorded; what changed only in fields that are left out does not appear."""
    result: Written = {}
    for name, changed in changes.items():
        rows: dict[str, Any] = {}
        for key, (before, after) in changed.items():
            if after is None:
                if before is not None:
                    rows[key] = None
            elif before is None:
                rows[key] = [plain.record(after, intern)]
            elif before is not after and (fields := plain.difference(before, after, intern)):
                rows[key] = fields
        if rows:
            result[name] = rows
    return result


class Recorder:
    """Remembers the records as of the last recorded step, of those that changed since."""

    def __init__(self) -> None:
        #: The records, by table. Whoever stores several steps together puts it back when none of them is stored: what was
        #: skipped meanwhile stays in it, and has not changed then.
        self.base: dict[str, dict[str, Any]] = _nothing()

    def skip(self, changes: Changes) -> None:
        """A step went by that is not recorded."""
        for name, changed in changes.items():
            base = self.base[name]
            for key, (before, _) in changed.items():
                base.setdefault(key, before)

    def since_last(self, state: State, changes: Changes) -> dict[str, dict[str, tuple[Any, Any]]]:
        """What skipped steps changed since the last recorded one, up to the step that made `changes`."""
        result = {}
        for name, base in self.base.items():
            if not base:
                continue
            table, now = getattr(state, name), changes.get(name, {})
            result[name] = {
                key: (old, now[key][0] if key in now else table.get(key)) for key, old in base.items()
            }
        return result

    def recorded(self) -> None:
        """The step was stored; what comes is compared with it."""
        self.base = _nothing()


def _nothing() -> dict[str, dict[str, Any]]:
    return {name: {} for name in RECORDED}


def everything_before(state: State, changes: Changes) -> dict[str, dict[str, tuple[Any, Any]]]:
    """The whole state as it was before the step that made `changes`, in its order, as if all of it were new.

    Not for a step that :func:`removes` records.
    """
    result: dict[str, dict[str, tuple[Any, Any]]] = {}
    for name, table in tables(state):
        changed = changes.get(name, {})
        before = {key: changed[key][0] if key in changed else row for key, row in table.items()}
        result[name] = {key: (None, row) for key, row in before.items() if row is not None}
    return result


def removes(changes: Changes) -> bool:
    """Whether the step removed a record that was there before it: its place among the others is lost then."""
    return any(
        before is not None and after is None
        for changed in changes.values()
        for before, after in changed.values()
    )


def apply(state: State, changes: Written, text: Callable[[str], str]) -> None:
    """Changes a state as a step did.

    Raises:
        ValueError: the step was recorded by another version of this program, or steps are missing.
    """
    for name, rows in changes.items():
        kind = RECORDED.get(name)
        if kind is None:
            raise ValueError(f"a step changed {name!r}, which this version does not know")
        table = getattr(state, name)
        for key, fields in rows.items():
            if fields is None:
                if key not in table:
                    raise ValueError(f"a step ended {name} {key}, which was not there")
                del table[key]
            elif isinstance(fields, list):
                table[key] = plain.make(kind, fields[0], text)
            else:
                if key not in table:
                    raise ValueError(f"a step changed {name} {key}, which was not there")
                table[key] = replace(table[key], **plain.decode_fields(kind, fields, text))
