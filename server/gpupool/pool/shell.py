"""The shell around the machine: stores each step in the ledger, then does what the machine asked for.

Everything runs in one event loop, and one event is handled from start to end before the next: the commit is
synchronous on purpose. A reader never sees a state that is not stored.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from gpupool.ledger.ledger import Ledger, LedgerError
from gpupool.pool import events, instructions
from gpupool.pool.clock import Clock
from gpupool.pool.instructions import Instruction, Journal
from gpupool.pool.machine import Machine
from gpupool.pool.state import State, key_of
from gpupool.pool.step import Ids
from gpupool.pool.timers import Timers
from gpupool.scheduler.model import Quota
from gpupool.scheduler.placement import DEFAULT_POLICY

logger = structlog.get_logger(__name__)

#: What a caller that waits for an ask is told.
Told = instructions.TellQueued | instructions.TellGranted | instructions.TellRefused
#: What a node's stream is given to send; None ends the stream.
NodeMessage = (
    instructions.StartWorker
    | instructions.ApplyLease
    | instructions.RevokeLease
    | instructions.StopWorker
    | instructions.ParkMemory
    | instructions.AnswerHeartbeat
)


def random_ids() -> Ids:
    """Names for a running server. Request numbers begin at random, so that answers from an earlier run miss."""
    return Ids(
        session=lambda: secrets.token_hex(16),
        lease=lambda: f"l{secrets.token_hex(6)}",
        token=lambda: secrets.token_hex(32),
        requests=itertools.count(secrets.randbelow(2**40) + 1),
    )


@dataclass(slots=True)
class NodeStream:
    """The sending half of a node's connection."""

    node: str
    outgoing: asyncio.Queue[NodeMessage | None]


class PoolShell:
    """The pool as the gRPC services use it."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        timers: Timers,
        quotas: Mapping[str, Quota] | None = None,
        policy: str = DEFAULT_POLICY,
    ) -> None:
        self.ledger = ledger
        self.clock = clock
        self.timers = timers
        merged = {**(quotas or {}), **ledger.quotas()}
        self.machine = Machine(ledger.load(), timers, random_ids(), merged, policy)
        #: Why the ledger could not be written last time; None while all is well.
        self.ledger_problem: str | None = None
        self.closing = False
        self._waiters: dict[str, list[asyncio.Queue[Told | None]]] = {}
        self._resizes: dict[str, list[asyncio.Future[instructions.TellResized]]] = {}
        self._endings: dict[str, list[asyncio.Event]] = {}
        self._streams: dict[int, NodeStream] = {}
        self._connections = itertools.count(1)
        self.apply(events.Restarted(clock.now()))

    @property
    def state(self) -> State:
        return self.machine.state

    def apply(self, event: events.Event) -> None:
        """Handles one event: state, then ledger, then messages.

        Raises:
            LedgerError: the step could not be stored; nothing happened.
        """
        try:
            done = self.machine.handle(event)
            journal = [item for item in done if isinstance(item, Journal)]
            if self.ledger.store(self.state, journal, event.now):
                self.ledger_problem = None
        except LedgerError as error:
            self.state.rollback()
            if self.ledger_problem is None:
                logger.error("the ledger cannot be written", problem=str(error))
            self.ledger_problem = str(error)
            raise
        except BaseException:
            self.state.rollback()
            raise
        self.state.commit()
        for item in done:
            self._do(item)
        self._notice_endings()

    async def run_timers(self) -> None:
        """Ticks until cancelled."""
        while True:
            await asyncio.sleep(self.timers.tick)
            try:
                self.apply(events.Tick(self.clock.now()))
            except LedgerError:
                # Said in the log and in /health; leases go on as they are until it can be written again.
                continue
            except Exception:
                logger.exception("a tick failed")

    # ---- callers that wait

    def join(self, user: str, key: str) -> asyncio.Queue[Told | None]:
        """A queue that receives what is said about this ask; None: the pool is stopping.

        To be given back with :meth:`leave`.
        """
        queue: asyncio.Queue[Told | None] = asyncio.Queue()
        self._waiters.setdefault(key_of(user, key), []).append(queue)
        return queue

    def leave(self, user: str, key: str, queue: asyncio.Queue[Told | None]) -> bool:
        """Returns whether nobody else waits for this ask."""
        name = key_of(user, key)
        others = self._waiters.get(name, [])
        if queue in others:
            others.remove(queue)
        if not others:
            self._waiters.pop(name, None)
        return not others

    def expect_resize(self, lease_id: str) -> asyncio.Future[instructions.TellResized]:
        future: asyncio.Future[instructions.TellResized] = asyncio.get_running_loop().create_future()
        self._resizes.setdefault(lease_id, []).append(future)
        return future

    async def wait_ended(self, lease_id: str, seconds: float) -> bool:
        """Waits until the lease's share is free, at most `seconds`; returns whether it is."""
        if self._has_ended(lease_id):
            return True
        done = asyncio.Event()
        self._endings.setdefault(lease_id, []).append(done)
        try:
            async with asyncio.timeout(seconds):
                await done.wait()
            return True
        except TimeoutError:
            return False

    # ---- node streams

    def open_stream(self, node: str) -> tuple[int, NodeStream]:
        number = next(self._connections)
        stream = NodeStream(node, asyncio.Queue())
        self._streams[number] = stream
        return number, stream

    def close_stream(self, connection: int) -> None:
        self._streams.pop(connection, None)

    def close(self) -> None:
        """Ends all streams, for the shutdown. What they wait for stays as it is, in the ledger."""
        self.closing = True
        for stream in self._streams.values():
            stream.outgoing.put_nowait(None)
        for queue in [queue for waiting in self._waiters.values() for queue in waiting]:
            queue.put_nowait(None)

    # ---- instructions

    def _do(self, item: Instruction) -> None:
        match item:
            case instructions.TellQueued() | instructions.TellGranted() | instructions.TellRefused():
                for queue in self._waiters.get(key_of(item.user, item.key), []):
                    queue.put_nowait(item)
            case instructions.TellResized():
                for future in self._resizes.pop(item.lease_id, []):
                    if not future.done():
                        future.set_result(item)
            case instructions.DropNode():
                stream = self._streams.get(item.connection)
                if stream is not None:
                    stream.outgoing.put_nowait(None)
            case instructions.Journal():
                logger.info(
                    item.kind,
                    explanation=item.explanation,
                    **{name: value for name in ("user", "lease_id", "session_id", "node")
                       if (value := getattr(item, name))},
                )  # fmt: skip
            case _:
                stream = self._streams.get(item.connection)
                if stream is not None:
                    stream.outgoing.put_nowait(item)

    def _has_ended(self, lease_id: str) -> bool:
        lease = self.state.leases.get(lease_id)
        return lease is None or not any(part.holds for part in self.state.lease_parts(lease))

    def _notice_endings(self) -> None:
        for lease_id in [name for name in self._endings if self._has_ended(name)]:
            for done in self._endings.pop(lease_id):
                done.set()
