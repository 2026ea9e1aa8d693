"""A pool in memory for tests of its holders: capacity, queue, leases that end; no worker behind it.

Only for unit tests of the Jupyter side. Tests of the whole use the real pool.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpupool.client.errors import PoolRefusedError, PoolUnavailableError, QueueTimeoutError
from gpupool.client.types import (
    Caller,
    Device,
    Grant,
    GrantedShare,
    HeldShare,
    Lease,
    LeaseRequest,
    LeaseStatus,
    Notice,
    Queue,
    QueueEntry,
    QueuePlace,
    SessionInfo,
    Usage,
)
from gpupool.proto import pool_pb2
from gpupool.shares import Share, ShareError, usable_mib

TOTAL_MIB = 8192
PROFILE = "driver_version 13000\ndevice 0\nname Software GPU (gpupool)\nsoftware 1\nend\n"


@dataclass
class Held:
    request: LeaseRequest
    grant: Grant
    state: str = "attached"
    reason: str = ""


@dataclass
class MemoryPool:
    """One device. ``down`` makes every call fail; ``quota_milli`` limits what all may hold."""

    capacity_milli: int = 1000
    quota_milli: int = 1000
    software: bool = False
    down: bool = False
    #: A lease that is released still holds its share, until :meth:`drained`.
    drains: bool = False
    #: Requests stay without any answer, as of a pool that has much to do; see :meth:`speak`.
    silent: bool = False
    endpoint: str = "unix:/tmp/memory-pool"
    #: Whom it takes its caller for.
    caller: Caller = field(default_factory=lambda: Caller("ann", "user"))
    #: Attributes of SessionInfo that every session has.
    memory_now: dict[str, Any] = field(default_factory=dict)
    usage_now: Usage = field(default_factory=lambda: Usage(idle_seconds=1e9, state="attached"))
    held: dict[str, Held] = field(default_factory=dict)
    session_states: dict[str, str] = field(default_factory=dict)
    session_reasons: dict[str, str] = field(default_factory=dict)
    waiting: list[LeaseRequest] = field(default_factory=list)
    calls: list[tuple[str, str]] = field(default_factory=list)
    notices: dict[str, tuple[Notice, float]] = field(default_factory=dict)
    #: The answer of Projects/ListProjects.
    projects: pool_pb2.ProjectList = field(default_factory=pool_pb2.ProjectList)
    #: All that came to the pool.
    requests: list[LeaseRequest] = field(default_factory=list)
    #: By the name of a call: the reasons with which it is refused next, each once.
    refuses: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1)
        self._changed = asyncio.Event()

    # --- what a test does to it -------------------------------------------------------------

    def reset(self) -> None:
        """As at the start."""
        fresh = MemoryPool()
        for name in (
            "capacity_milli",
            "quota_milli",
            "software",
            "down",
            "drains",
            "silent",
            "usage_now",
            "memory_now",
            "projects",
            "caller",
        ):
            setattr(self, name, getattr(fresh, name))
        for kept in (self.held, self.session_states, self.session_reasons, self.waiting, self.calls):
            kept.clear()
        for kept in (self.requests, self.notices, self.refuses):
            kept.clear()

    def speak(self) -> None:
        """Answers what it was silent about."""
        self.silent = False
        self._wake()

    def tell(self, lease_id: str, notice: Notice | None) -> None:
        """Gives notice of a lease, or withdraws it. The lease does not end by itself."""
        if notice is None:
            self.notices.pop(lease_id, None)
        else:
            until = asyncio.get_running_loop().time() + notice.seconds_left
            self.notices[lease_id] = notice, until

    def end(self, lease_id: str, reason: str, *, lost: bool = False) -> None:
        """Takes a lease back, as reclaim or a lost node would."""
        entry = self.held[lease_id]
        entry.state, entry.reason = "ended", reason
        self.session_states[entry.grant.session_id] = "lost" if lost else "parked"
        self.usage_now = replace(self.usage_now, state="lost" if lost else "parked")
        self._wake()

    def drained(self) -> None:
        """Nothing runs any more on the shares of leases that were released."""
        self.drains = False
        for entry in self.held.values():
            if entry.state == "releasing":
                entry.state = "ended"
        self._wake()

    @property
    def free_milli(self) -> int:
        return self.capacity_milli - sum(
            entry.grant.shares[0].milli
            for entry in self.held.values()
            if entry.state in ("attached", "releasing")
        )

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _answer(self, call: str, argument: str = "") -> None:
        self.calls.append((call, argument))
        if self.down:
            raise PoolUnavailableError(self.endpoint, "connection refused")

    def _refuse(self, call: str) -> None:
        if reasons := self.refuses.get(call):
            raise PoolRefusedError(reasons[0], f"The pool says {reasons.pop(0)}.")

    # --- the port ----------------------------------------------------------------------------

    async def request(
        self,
        request: LeaseRequest,
        *,
        on_queued: Callable[[QueuePlace], None] | None = None,
        wait_seconds: float | None = None,
    ) -> Grant:
        self._answer("request", request.session_id)
        self.requests.append(request)
        self._refuse("request")
        if request.session_id and self.session_states.get(request.session_id) != "parked":
            raise PoolRefusedError("unknown-session", f"There is no session {request.session_id}.")
        milli = self._milli(request.share)
        if milli > self.quota_milli:
            raise PoolRefusedError(
                "quota", f"The quota is {self.quota_milli} milli-GPU, {milli} were asked for."
            )
        loop = asyncio.get_running_loop()
        deadline = None if wait_seconds is None else loop.time() + wait_seconds
        self.waiting.append(request)
        try:
            while self.silent:
                await self._changed.wait()
            while self.free_milli < milli:
                if wait_seconds == 0:
                    raise PoolRefusedError("full", f"{milli} milli-GPU asked for, {self.free_milli} free.")
                place = self.waiting.index(request) + 1
                if on_queued is not None:
                    on_queued(QueuePlace(place, f"{self.free_milli} milli-GPU are free.", None))
                remaining = None if deadline is None else deadline - loop.time()
                try:
                    await asyncio.wait_for(self._changed.wait(), remaining)
                except TimeoutError:
                    raise QueueTimeoutError(f"Nothing became free within {wait_seconds:g} s.") from None
        finally:
            self.waiting.remove(request)
        number = next(self._numbers)
        session_id = request.session_id or f"{number:032x}"
        self.session_states[session_id] = "attached"
        grant = Grant(
            lease_id=f"lease{number}",
            session_id=session_id,
            epoch=number,
            shares=tuple(
                GrantedShare(f"node1/{ordinal}", milli, milli * usable_mib(TOTAL_MIB) // 1000)
                for ordinal in range(request.count)
            ),
            worker_address="127.0.0.1:1",
            worker_token="ab" * 32,
            software=self.software,
            profile=PROFILE,
            new_session=not request.session_id,
        )
        self.held[grant.lease_id] = Held(request, grant)
        return grant

    async def call(self, service: str, name: str, message: Any, seconds: float = 10.0) -> Any:
        """Only what the Jupyter side asks of other services: the list of projects."""
        self._answer(f"{service}/{name}", "")
        if (service, name) != ("Projects", "ListProjects"):
            raise PoolRefusedError("too-old", f"This pool has no {service}/{name}.")
        return self.projects

    def _milli(self, share: Share) -> int:
        try:
            return share.on_device(usable_mib(TOTAL_MIB)).milli
        except ShareError as error:
            raise PoolRefusedError("bad-share", str(error)) from None

    async def release(self, lease_id: str, reason: str = "release", close_session: bool = False) -> None:
        self._answer("release", lease_id)
        self._refuse("release")
        entry = self.held.get(lease_id)
        if entry is not None and entry.state == "attached":
            entry.state, entry.reason = "releasing" if self.drains else "ended", reason
            self.session_states[entry.grant.session_id] = "closed" if close_session else "parked"
            self._wake()

    async def renew(self, lease_ids: Sequence[str]) -> dict[str, LeaseStatus]:
        self._answer("renew", ",".join(lease_ids))
        statuses = {}
        for lease_id in lease_ids:
            entry = self.held.get(lease_id)
            state, reason = (entry.state, entry.reason) if entry is not None else ("unknown", "")
            notice = None
            if lease_id in self.notices and state == "attached":
                told, until = self.notices[lease_id]
                notice = replace(told, seconds_left=max(0.0, until - asyncio.get_running_loop().time()))
            statuses[lease_id] = LeaseStatus(lease_id, state, reason, self.usage_now, notice)
        return statuses

    async def resize(self, lease_id: str, share: Share) -> Grant:
        self._answer("resize", lease_id)
        self._refuse("resize")
        entry = self.held[lease_id]
        milli = self._milli(share)
        more = milli - entry.grant.shares[0].milli
        if more > self.free_milli:
            raise PoolRefusedError("full", f"{more} milli-GPU more asked for, {self.free_milli} free.")
        shares = tuple(
            GrantedShare(s.device_id, milli, milli * usable_mib(TOTAL_MIB) // 1000)
            for s in entry.grant.shares
        )
        entry.grant = replace(entry.grant, shares=shares, epoch=next(self._numbers))
        self._wake()
        return entry.grant

    async def close_session(self, session_id: str, reason: str) -> None:
        self._answer("close_session", session_id)
        self._refuse("close_session")
        self.session_states[session_id] = "closed"
        for entry in self.held.values():
            if entry.grant.session_id == session_id:
                entry.state = "ended"
        self._wake()

    async def lenders(self) -> list[str]:
        return []

    async def devices(self) -> list[Device]:
        self._answer("devices")
        shares = tuple(
            HeldShare(
                lease_id=lease_id,
                session_id=entry.grant.session_id,
                user=entry.request.on_behalf_of,
                label=entry.request.label,
                holder=entry.request.holder,
                milli=entry.grant.shares[0].milli,
                mib=entry.grant.shares[0].mib,
                state="attached",
                in_use=False,
            )
            for lease_id, entry in self.held.items()
            if entry.state == "attached"
        )
        return [
            Device(
                id="node1/0",
                node="node1",
                ordinal=0,
                name="Software GPU (gpupool)",
                uuid="0" * 32,
                software=self.software,
                healthy=True,
                health_reason="",
                total_mib=TOTAL_MIB,
                usable_mib=usable_mib(TOTAL_MIB),
                free_milli=self.free_milli,
                free_mib=self.free_milli * usable_mib(TOTAL_MIB) // 1000,
                used_bytes=0,
                shares=shares,
                profile=PROFILE,
            )
        ]

    async def leases(self) -> list[Lease]:
        self._answer("leases")
        return [
            Lease(
                id=lease_id,
                session_id=entry.grant.session_id,
                user=entry.request.on_behalf_of,
                label=entry.request.label,
                holder=entry.request.holder,
                epoch=entry.grant.epoch,
                shares=entry.grant.shares,
                state=entry.state,
                reason=entry.reason,
                granted_unix=0.0,
                ends_unix=None,
                reservation=False,
            )
            for lease_id, entry in self.held.items()
            if entry.state != "ended"
        ]

    async def sessions(self) -> list[SessionInfo]:
        self._answer("sessions")
        return [
            SessionInfo(
                session_id,
                "",
                "",
                "",
                "node1",
                state,
                self.session_reasons.get(session_id, ""),
                ("node1/0",),
                "",
                self.usage_now,
                **self.memory_now,
            )
            for session_id, state in self.session_states.items()
        ]

    async def queue(self) -> Queue:
        self._answer("queue")
        return Queue(
            QueueEntry(
                place=place,
                user=request.on_behalf_of,
                label=request.label,
                holder=request.holder,
                milli=self._milli(request.share),
                mib=0,
                count=request.count,
                reason="full",
                eta_seconds=None,
                since_unix=0.0,
            )
            for place, request in enumerate(self.waiting, 1)
        )

    async def whoami(self) -> Caller:
        self._answer("whoami", "")
        return self.caller

    async def usage(self, session_id: str) -> Usage:
        self._answer("usage", session_id)
        return self.usage_now
