"""What pool, workers and model say of all sessions, compared: no double grant, and fences only where there is a cause."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from gpupool.client.types import Lease
from gpupool.shares import mib_of_milli, usable_mib

from tests.support.device_session import DeviceSession
from tests.support.pool_portal import PoolPortal
from tests.support.two_nodes import MEMORY_MIB, PoolAndTwoNodes
from tests.support.worker_state import WorkerState, worker_state

USABLE: Final = usable_mib(MEMORY_MIB)


def mib_of(milli: int) -> int:
    """The memory that comes with a share of each of these devices."""
    return mib_of_milli(milli, USABLE)


class Inconsistent(AssertionError):
    """Pool, workers and model do not say the same."""


class SessionSight:
    """The sessions, and whether pool, workers and model say the same of them."""

    def __init__(self, stack: PoolAndTwoNodes, portal: PoolPortal) -> None:
        self.stack = stack
        self.portal = portal
        self.sessions: list[DeviceSession] = []
        #: Fences that no disturbance explains: the machine stood still for seconds.
        self.unexplained_fences = 0
        self.events: list[str] = []
        self._disturbed: dict[str, float] = {}
        self._pool_killed = False
        self._fence = 25 * stack.scale
        self._heartbeat = 5 * stack.scale

    def note(self, text: str) -> None:
        """What happened, for who reads a failure."""
        self.events.append(f"{time.monotonic():.3f} {text}")

    # ---- what the model says

    @property
    def attached(self) -> list[DeviceSession]:
        return [session for session in self.sessions if session.attached]

    @property
    def parked(self) -> list[DeviceSession]:
        return [session for session in self.sessions if not session.attached]

    def free_milli(self) -> dict[str, int]:
        free = {f"{node}/{n}": 1000 for node, count in self.stack.nodes.items() for n in range(count)}
        for session in self.attached:
            free[session.device] -= session.milli
        return free

    def taken_mib(self) -> Counter[str]:
        """Memory of each device that leases promise, and that parked sessions keep there."""
        taken: Counter[str] = Counter()
        for session in self.sessions:
            with contextlib.suppress(OSError):  # a worker that was killed a moment ago
                state = self.worker_stats(session)
                if session.attached:
                    taken[session.device] += session.mib
                elif state.place == "device":
                    taken[session.device] += state.used_mib
        return taken

    def _disturb(self, node: str) -> None:
        self._disturbed.setdefault(node, time.monotonic())

    def _fenced(self, session: DeviceSession) -> None:
        """Its worker has fenced itself: memory and session stay, the lease is over."""
        session.interrupted()

    def explains(self, session: DeviceSession) -> bool:
        """Whether a refused call of an attached session is the fence of its worker, which nobody has noted yet."""
        if self.worker_stats(session).state != "fenced":
            return False
        self.settle()
        return not session.attached

    def settle(self) -> None:
        """Waits until pool and agents work together again, and takes note of leases that did not outlive it."""
        if self._pool_killed:
            self.stack.wait_answering()
        disturbed, self._disturbed, self._pool_killed = self._disturbed, {}, False
        for node in disturbed:
            self.stack.wait_lending(node)
        self._take_fences(disturbed)

    def _take_fences(self, disturbed: dict[str, float]) -> None:
        for session in list(self.sessions):
            if not session.attached or self.worker_stats(session).state == "attached":
                continue
            since = disturbed.get(session.node)
            if since is None or time.monotonic() - since < self._fence - 3 * self._heartbeat:
                self.unexplained_fences += 1
                self.note(f"{session.name} was fenced though nothing happened to its node")
            self._fenced(session)
        for session in self.parked:
            if session.unaware and session.grant.lease_id and session.file.read().state == "attached":
                self.wait_ended(session)

    # ---- what pool and workers say

    def worker_stats(self, session: DeviceSession) -> WorkerState:
        return worker_state(self.stack.worker_folder(session.node, session.id) / "control.sock")

    def live_leases(self) -> list[Lease]:
        return list(self.portal(self.portal.pool.leases()))

    def wait_ended(self, session: DeviceSession) -> None:
        """Until the pool says that the share is free."""
        lease_id = session.grant.lease_id
        self.wait(
            lambda: all(lease.id != lease_id for lease in self.live_leases()),
            f"the end of {session.name}'s lease",
        )

    def wait(self, condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise Inconsistent(f"waited {seconds:.0f} s for {what}")
            time.sleep(0.002)

    def check_shares(self) -> None:
        """No double grant: not by the pool's leases, not by its devices, not by what workers would execute now."""
        leases = self.live_leases()
        held: Counter[str] = Counter()
        mib: Counter[str] = Counter()
        for lease in leases:
            for share in lease.shares:
                held[share.device_id] += share.milli
                mib[share.device_id] += share.mib
        serving: Counter[str] = Counter()
        for session in self.sessions:
            with contextlib.suppress(OSError):  # a worker that was killed a moment ago
                state = self.worker_stats(session)
                if state.state == "attached":
                    serving[session.device] += session.epochs.get(state.epoch, 1000)
        for device in held.keys() | serving.keys():
            if held[device] > 1000 or serving[device] > 1000 or mib[device] > USABLE:
                raise Inconsistent(
                    f"{device}: {held[device]} granted ({mib[device]} MiB), {serving[device]} served"
                )
        if self._disturbed:
            return
        taken = self.taken_mib()
        if any(mib > USABLE for mib in taken.values()):
            raise Inconsistent(f"devices of {USABLE} MiB hold {dict(taken)}")
        if not self._agree() and any(self.worker_stats(x).state == "fenced" for x in self.attached):
            # A machine that stands still for seconds ends leases, too. How often that may be is bounded in the end.
            self._take_fences({})
            self.wait(self._agree, "the end of leases whose workers were fenced")
        if not self._agree():
            raise Inconsistent(f"the model has {self._expected()}, the pool {self._found()}")

    def _agree(self) -> bool:
        return self._expected() == self._found()

    def _expected(self) -> dict[str, int]:
        return {session.grant.lease_id: session.milli for session in self.attached}

    def _found(self) -> dict[str, int]:
        return {lease.id: lease.shares[0].milli for lease in self.live_leases()}
