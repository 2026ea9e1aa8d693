"""The tables of the pool; what is in them is told by a module for each kind of record.

Records are frozen; a change is a new record. All times are seconds of the pool's boot-time clock,
as passed in with events; the ledger turns those that outlive a restart into wall-clock time.
"""

from __future__ import annotations

from typing import Any

from gpupool.model.lease_records import LEASE_STATES, LeaseRecord, Notice, Resize
from gpupool.model.node_records import DeviceRecord, NodeRecord, node_of_device
from gpupool.model.project_records import DEFAULT_PROJECT, AccountRecord, LimitRecord, ProjectRecord
from gpupool.model.request_records import PRIORITIES, RequestRecord, key_of
from gpupool.model.session_records import (
    PLACES,
    SESSION_STATES,
    WORK_STATES,
    LeftWorker,
    Parking,
    SessionRecord,
    Usage,
)
from gpupool.model.state_index import StateIndex
from gpupool.model.table import Table

#: Code that works with the state works with its records.
__all__ = [
    "DEFAULT_PROJECT",
    "LEASE_STATES",
    "PLACES",
    "PRIORITIES",
    "SESSION_STATES",
    "WORK_STATES",
    "AccountRecord",
    "DeviceRecord",
    "LeaseRecord",
    "LeftWorker",
    "LimitRecord",
    "NodeRecord",
    "Notice",
    "Parking",
    "ProjectRecord",
    "RequestRecord",
    "Resize",
    "SessionRecord",
    "State",
    "Usage",
    "key_of",
    "node_of_device",
]


class State:
    """All tables. Only :class:`gpupool.pool.lifecycle.machine.Machine` changes them."""

    def __init__(self) -> None:
        self.nodes: Table[NodeRecord] = Table()
        self.devices: Table[DeviceRecord] = Table()
        self.sessions: Table[SessionRecord] = Table()
        self.leases: Table[LeaseRecord] = Table()
        self.requests: Table[RequestRecord] = Table()
        self.projects: Table[ProjectRecord] = Table()
        self.limits: Table[LimitRecord] = Table()
        self.accounts: Table[AccountRecord] = Table()
        #: (user, key) → lease id, joined by a newline, which neither may contain.
        self.keys: Table[str] = Table()
        #: What rules look for in the tables.
        self.index = StateIndex(self)
        #: How often a step has been taken back.
        self.rollbacks = 0
        #: What the scheduler sees of it; made by whoever looks first, and typed by `pool.live_view.of`.
        self.live_view: object | None = None
        #: What its leases hold, likewise; typed by `pool.projects.live_holdings.of`.
        self.live_holdings: object | None = None
        #: What users may have, likewise; typed by `pool.projects.limit_rules.quotas`.
        self.merged_quotas: object | None = None

    def commit(self) -> None:
        for table in self._tables():
            table.commit()

    def rollback(self) -> None:
        self.rollbacks += 1
        for table in self._tables():
            table.rollback()

    def begin_group(self) -> None:
        """From here on all steps can be taken back together, also those that were committed."""
        for table in self._tables():
            table.begin_group()

    def end_group(self, *, keep: bool) -> None:
        """Keeps all steps since :meth:`begin_group`, or takes all of them back."""
        if not keep:
            self.rollbacks += 1
        for table in self._tables():
            table.end_group(keep=keep)

    def leases_of_node(self, node: str) -> list[LeaseRecord]:
        """Leases whose shares are taken on `node`."""
        return self.index.holding_of_node.of(node)

    def lease_of_session(self, session: SessionRecord) -> LeaseRecord | None:
        """The lease that holds shares for `session`, a releasing one included."""
        return self.leases.get(session.lease_id) if session.lease_id else None

    def lease_parts(self, lease: LeaseRecord) -> list[LeaseRecord]:
        """All parts of the gang of a lease, in their order, as they are now; only itself when it is the whole."""
        if not lease.gang:
            return [self.leases[lease.id]]
        return sorted(self.index.leases_of_gang.of(lease.gang), key=lambda x: x.part)

    def session_parts(self, session: SessionRecord) -> list[SessionRecord]:
        """All parts of the gang of a session, in their order, as they are now; only itself when it is the only one."""
        if not session.gang:
            return [self.sessions[session.id]]
        return sorted(self.index.sessions_of_gang.of(session.gang), key=lambda x: x.part)

    def _tables(self) -> tuple[Table[Any], ...]:
        return (
            self.nodes,
            self.devices,
            self.sessions,
            self.leases,
            self.requests,
            self.projects,
            self.limits,
            self.accounts,
            self.keys,
        )
