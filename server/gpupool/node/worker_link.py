"""One running worker as the agent sees it: its control connection, lease and last figures."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from gpupool.engines.records import DeviceGrant, StartedWorker
from gpupool.node.busy_meter import BusyMeter
from gpupool.node.clock import boottime_ns
from gpupool.node.control import (
    Applied,
    ClientConnected,
    ControlChannel,
    ControlError,
    Fenced,
    Notice,
    WorkerStats,
)

#: How long the end of a worker waits for its last figures, seconds.
FIGURES_SECONDS: Final = 0.2
#: How long what it had still said is waited for. Its connection ends with it, so this is only for a busy machine.
_REST_SECONDS: Final = 2.0

logger = structlog.get_logger(__name__)


class WorkerLink:
    """Speaks to one worker; reconnects when needed.

    ``lock`` orders the pool's instructions for this session; heartbeat renewals do not take
    it, so a slow revocation of one session delays nobody's deadline.
    """

    def __init__(self, worker: StartedWorker, answer_seconds: float) -> None:
        self.session = worker.session
        self.address = worker.address
        self.epoch = worker.epoch
        self.devices: tuple[DeviceGrant, ...] = worker.devices
        #: The lease was revoked: heartbeats no longer extend it.
        self.revoked = False
        self.stats = WorkerStats(epoch=worker.epoch)
        self._control = worker.control
        self._answer_seconds = answer_seconds
        self._channel: ControlChannel | None = None
        self._connecting = asyncio.Lock()
        self._since_ns = boottime_ns()
        #: When work was last seen under way.
        self._worked_ns = 0
        self._busy = BusyMeter()
        self._wanted_ns = 0
        self._extending: asyncio.Task[None] | None = None
        self._mending: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Connects if needed and takes the worker's current figures and epoch."""
        channel = await self._connected()
        await channel.stats()
        self.epoch = max(self.epoch, self.stats.epoch)
        self.revoked = self.stats.state == "parked"

    def stay_connected(self) -> None:
        """Connects again in the background: a worker that nobody speaks to ends by itself after ten minutes.

        The lease of an attached one does that; a parked one has nothing to be told.
        """
        broken = self._channel is None or self._channel.closed.done()
        if broken and (self._mending is None or self._mending.done()):
            self._mending = asyncio.create_task(self._mend(), name=f"connect {self.session}")

    async def _mend(self) -> None:
        with contextlib.suppress(ControlError):
            await self._connected()

    def extend(self, deadline_ns: int) -> asyncio.Task[None]:
        """Moves the deadline of the current lease, in the background.

        A worker that answers slowly is not asked again meanwhile; it then gets the latest
        deadline at once. The task ends when the worker has heard it, or could not be told.
        """
        self._wanted_ns = max(self._wanted_ns, deadline_ns)
        if self._extending is None or self._extending.done():
            self._extending = asyncio.create_task(self._extend(), name=f"extend {self.session}")
        return self._extending

    async def _extend(self) -> None:
        told = 0
        while told < self._wanted_ns and not self.revoked:
            told = self._wanted_ns
            try:
                answer = await (await self._connected()).lease(self.epoch, told)
            except ControlError as error:
                logger.warning("a deadline was not extended", session=self.session, reason=str(error))
                return
            if not answer.ok:
                logger.warning("a worker refused a renewal", session=self.session, reason=answer.message)
                return

    async def apply(
        self, epoch: int, deadline_ns: Callable[[], int], devices: tuple[DeviceGrant, ...]
    ) -> Applied:
        """Grants a new lease (higher epoch) or resizes the current one.

        A new lease brings memory back that lies in the host, onto the devices that it names. That takes
        a while, in which heartbeats move the deadline: where the first one has passed, the next is taken.
        """
        channel = await self._connected()
        if epoch == self.epoch and not self.revoked:
            answer = await channel.lease(epoch, deadline_ns(), devices)
        else:
            await channel.stats()
            in_host = self.stats.place == "host"
            moved = [d.ordinal for d in devices] != [d.ordinal for d in self.devices]
            if moved and not in_host:
                return Applied(False, "resident")
            # Always named: an agent that was killed on the way may have noted devices that the worker never heard of.
            onto = {place: device.uuid for place, device in enumerate(devices)} if in_host else None
            # It may come behind a move that an agent before this one has asked for: then it takes as long as that.
            answer = await channel.lease(epoch, deadline_ns(), devices, onto=onto, from_host=True)
            if not answer.ok and answer.message == "late":
                # The memory is back already, where it was asked to be.
                self.devices = devices
                answer = await channel.lease(epoch, deadline_ns(), devices, from_host=True)
        if answer.ok:
            self.epoch, self.devices, self.revoked = epoch, devices, False
            # Its figures are of before: told beside the new epoch, a fence of the old one would end this lease.
            self.stats = replace(self.stats, epoch=epoch, state="attached", place="device")
        return answer

    async def revoke(self, epoch: int) -> Applied:
        """Ends a lease after posted work is finished; ``stats`` then tell what the session keeps."""
        channel = await self._connected()
        answer = await channel.revoke(epoch)
        if answer.ok and epoch >= self.epoch:
            self.epoch, self.revoked = epoch, True
            await channel.stats()
        return answer

    async def park(self, epoch: int) -> Applied:
        """Moves the memory to the host; again is no error."""
        channel = await self._connected()
        answer = await channel.park(epoch)
        if answer.ok:
            await channel.stats()
        return answer

    async def export(self, folder: Path) -> Applied:
        """Writes the session's image; the session stays as it is."""
        return await (await self._connected()).export(folder)

    async def last_figures(self) -> None:
        """Asks for what the worker has counted up to now, before it is ended; a worker that is busy says nothing."""
        with contextlib.suppress(ControlError, TimeoutError):
            async with asyncio.timeout(FIGURES_SECONDS):
                await (await self._connected()).stats()

    async def rest_of_figures(self) -> None:
        """Takes what a worker that has ended had still said."""
        if self._channel is not None:
            await asyncio.wait([self._channel.closed], timeout=_REST_SECONDS)

    async def ask_to_stop(self) -> None:
        await (await self._connected()).stop()

    async def close(self) -> None:
        """Ends the connection; the worker goes on."""
        if self._extending is not None:
            self._extending.cancel()
        if self._mending is not None:
            self._mending.cancel()
        await self._disconnect()

    async def _disconnect(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    @property
    def idle_seconds(self) -> float:
        """Since work was last submitted or seen under way, or since the agent knows the worker."""
        if self.stats.in_flight or self.stats.work in ("running", "draining"):
            return 0.0
        last_ns = max(self.stats.last_submit_ns, self._worked_ns) or self._since_ns
        return max(0, boottime_ns() - last_ns) / 1e9

    @property
    def busy(self) -> float:
        """Device time in each of the last seconds; 1 is one device all the time."""
        return self._busy.busy(boottime_ns())

    async def _connected(self) -> ControlChannel:
        async with self._connecting:
            if self._channel is not None and self._channel.closed.done():
                await self._disconnect()
            if self._channel is None:
                self._channel = await ControlChannel.connect(
                    self._control, self._notice, answer_seconds=self._answer_seconds
                )
            return self._channel

    def _figures(self, stats: WorkerStats) -> None:
        now_ns = boottime_ns()
        # Work that began and ended between two lines shows in what they count.
        if stats.device_ns > self.stats.device_ns or stats.in_flight:
            self._worked_ns = now_ns
        self._busy.add(now_ns, stats.device_ns)
        self.stats = stats

    def _notice(self, notice: Notice) -> None:
        match notice:
            case WorkerStats():
                self._figures(notice)
            case ClientConnected():
                self.stats = replace(self.stats, client=notice.connected)
            case Fenced():
                if notice.epoch == self.epoch:
                    self.stats = replace(self.stats, state="fenced")
                logger.warning("a worker fenced itself", session=self.session, epoch=notice.epoch)


__all__ = ["ControlError", "WorkerLink"]
