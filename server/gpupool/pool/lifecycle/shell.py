"""The shell around the machine: stores each step in the ledger, then does what the machine asked for.

Everything runs in one event loop, and one event is handled from start to end before the next: the commit is
synchronous on purpose. A reader never sees a state that is not stored. Events that come together are stored together,
because it is the disk that takes the time: each remains a step of its own.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import structlog

from gpupool.ledger.ledger import Ledger, LedgerError
from gpupool.model import events, instructions
from gpupool.model.clock import Clock
from gpupool.model.instructions import Instruction, Journal
from gpupool.model.state import State, key_of
from gpupool.pool.lifecycle.arrivals import Arrival, Arrivals, Gathering
from gpupool.pool.lifecycle.fault_log import log_fault
from gpupool.pool.lifecycle.machine import Machine
from gpupool.pool.lifecycle.machine_memory import lesson, remembered
from gpupool.pool.lifecycle.mailbox import Mailbox
from gpupool.pool.lifecycle.replay import run_context
from gpupool.pool.model.consolidation import Consolidation
from gpupool.pool.model.step import Ids
from gpupool.pool.model.timers import Timers
from gpupool.pool.nodes.checks import NodeChecks
from gpupool.pool.nodes.questions import NodeQuestions
from gpupool.pool.projects.alerts import AlertBook
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.scheduler.model import Quota
from gpupool.scheduler.placement import DEFAULT_POLICY
from gpupool.scheduler.pool_view import Promise

logger = structlog.get_logger(__name__)

#: Places that are told in a second, at most, however many wait: telling one takes about a quarter of a millisecond.
_PLACES_PER_SECOND = 1000
#: Requests that one user may have waiting. Each may stand in a lane of its own, and a look at the queue takes a third of a
#: millisecond for each lane.
MAXIMUM_WAITING = 1000
#: Callers of one request at a time: each of them hears of its place.
MAXIMUM_CALLERS = 16
#: So many steps in a row that cannot be stored mean that none can.
_TRIES = 2
#: A pool that serves writes its history at least so often, seconds (`reporting/history_sampler.py`).
_WRITTEN_EVERY = 90.0
_KEEPS_ALIVE = (events.NodeHeartbeat, events.Renewed)

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
    outgoing: asyncio.Queue[NodeMessage | pb.ToNode | None]


class PoolShell:
    """The pool as the gRPC services use it."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        timers: Timers,
        quotas: Mapping[str, Quota] | None = None,
        policy: str = DEFAULT_POLICY,
        consolidate: Consolidation = Consolidation.IDLE,
    ) -> None:
        self.ledger = ledger
        self.clock = clock
        self.timers = timers
        merged = {**(quotas or {}), **ledger.quotas()}
        ledger.context = run_context(timers, merged, policy, consolidate)
        self.machine = Machine(ledger.load(), timers, random_ids(), merged, policy, consolidate)
        #: Why the ledger could not be written last time; None while all is well.
        self.ledger_problem: str | None = None
        #: What its settings name and it serves without, each with the reason.
        self.left_out: dict[str, str] = {}
        self.closing = False
        #: Quotas that are nearly used up, as `alert_watch` has said.
        self.alerts = AlertBook()
        self._waiters: dict[str, list[Mailbox]] = {}
        #: Number of requests in `_waiters`, by user.
        self._waits_of: Counter[str] = Counter()
        self._resizes: dict[str, list[asyncio.Future[instructions.TellResized]]] = {}
        self._endings: dict[str, list[asyncio.Event]] = {}
        self._streams: dict[int, NodeStream] = {}
        self._connections = itertools.count(1)
        self._arrived, self._gathering = Arrivals(clock), Gathering()
        #: Whether the loop will look at `_arrived`.
        self._handling = False
        #: What nodes are asked besides the machine's instructions.
        self.questions = NodeQuestions(self._send_to_node)
        self.node_checks = NodeChecks(self.questions)
        self.apply(events.Restarted(clock.now(), self._served_until()))
        #: Requests (user, key) that nobody waits for as far as is known, and when they are let go: callers of before the start
        #: may come again until then.
        self._absent = {(r.user, r.key): clock.now() + timers.reuse for r in self.state.requests.values()}

    @property
    def state(self) -> State:
        return self.machine.state

    def now(self) -> float:
        return self.clock.now()

    def _served_until(self) -> float | None:
        """When workers stopped serving since no pool was there, if that was long enough ago to be sure of it."""
        last = self.clock.from_unix(self.ledger.last_written_unix)
        until = last + _WRITTEN_EVERY + self.timers.reuse
        return until if until < self.clock.now() else None

    def promise(self, promised: Sequence[Promise]) -> None:
        """What providers can bring: from now on requests count on it."""
        self.machine.view.promised = tuple(promised)
        self.machine.queue.changed()
        self.ledger.context = {**self.ledger.context, "promised": [asdict(one) for one in promised]}

    def apply(self, event: events.Event) -> None:
        """Handles one event: state, then ledger, then messages. It goes before requests that wait, and behind all else.

        Raises:
            LedgerError: the step could not be stored; nothing happened.
        """
        while self._arrived.urgent:
            self._handle_group(only_urgent=True)
        self._apply_alone(event)

    async def apply_together(self, event: events.Event) -> None:
        """Like :meth:`apply`, but in its turn (`arrivals.py`), and stored in one transaction with others that wait.

        Each remains a step of its own, and one that fails takes no other with it. What a step has to say is said when all
        are stored.

        Raises:
            LedgerError: the step could not be stored; nothing happened.
        """
        done = self._arrive(event)
        await done

    def _arrive(self, event: events.Event) -> asyncio.Future[None]:
        self._handle_soon()
        return self._arrived.add(event)

    def _handle_soon(self) -> None:
        if not self._handling:
            self._handling = True
            loop = asyncio.get_running_loop()
            self._gathering.begin(loop.time())
            loop.call_soon(self._handle_arrived)

    def _handle_arrived(self) -> None:
        """In each turn of the loop while anything waits."""
        loop = asyncio.get_running_loop()
        if not self._gathering.is_over(len(self._arrived), loop.time()):
            loop.call_soon(self._handle_arrived)
            return
        try:
            self._handle_group()
        finally:
            self._handling = False
            if self._arrived:
                self._handle_soon()

    def _handle_group(self, *, only_urgent: bool = False) -> None:
        group = self._arrived.take(only_urgent=only_urgent)
        began = time.monotonic()
        self._handle_together(group)
        self._arrived.took(group, time.monotonic() - began)

    def _handle_together(self, group: Sequence[Arrival]) -> None:
        if len(group) > 1 and self._apply_group([event for event, _ in group]):
            for _, done in group:
                if not done.done():
                    done.set_result(None)
            return
        # Alone, so that whichever of them cannot be handled or stored fails alone. When nothing can be stored at all, two
        # tries say so as well as a hundred, each of which may wait for the disk. What keeps alive what is there stores
        # nothing as a rule: it needs no disk.
        problem: LedgerError | None = None
        failures = 0
        for event, done in group:
            given_up = problem if failures >= _TRIES else None
            try:
                if given_up is not None and not isinstance(event, _KEEPS_ALIVE):
                    raise LedgerError(str(given_up))
                if self._apply_alone(event, given_up):
                    failures = 0
            except LedgerError as error:
                problem, failures = error, failures + 1
                _fail(done, error)
            except Exception as error:
                _fail(done, error)
            else:
                if not done.done():
                    done.set_result(None)

    def _apply_group(self, group: Sequence[events.Event]) -> bool:
        """Handles several events in one transaction; False: nothing has happened."""
        done: list[Instruction] = []
        stored = False
        self.state.begin_group()
        try:
            with self.ledger.together():
                for event in group:
                    said, durable = self._handle(event)
                    self.state.commit()
                    done += said
                    stored = stored or durable
        except BaseException as error:
            self.state.end_group(keep=False)
            self.machine.taken_back()
            if isinstance(error, Exception):
                logger.warning("steps could not be stored together", steps=len(group), problem=str(error))
                return False
            raise
        self.state.end_group(keep=True)
        self.machine.stored()
        self._after(done, stored)
        return True

    def _apply_alone(self, event: events.Event, given_up: LedgerError | None = None) -> bool:
        """Returns whether anything was stored; `given_up`: why that is not tried."""
        try:
            done, stored = self._handle(event, given_up)
        except LedgerError as error:
            self.state.rollback()
            self.machine.taken_back()
            if self.ledger_problem is None:
                logger.error("the ledger cannot be written", problem=str(error))
            self.ledger_problem = str(error)
            raise
        except BaseException:
            self.state.rollback()
            self.machine.taken_back()
            raise
        self.state.commit()
        self.machine.stored()
        self._after(done, stored)
        return stored

    def _handle(
        self, event: events.Event, given_up: LedgerError | None = None
    ) -> tuple[list[Instruction], bool]:
        """What is to be done, and whether anything was stored; to be committed or taken back."""
        memory = remembered(self.machine)
        done = self.machine.handle(event)
        journal = [item for item in done if isinstance(item, Journal)]
        stored = self.ledger.store(
            self.state, journal, event.now, event, memory, lesson(self.machine), given_up
        )
        return done, stored

    def _after(self, done: Sequence[Instruction], stored: bool) -> None:
        """All is on disk: now others may hear of it."""
        if stored:
            self.ledger_problem = None
        for item in done:
            self._do(item)
        self._notice_endings()

    async def run_timers(self) -> None:
        """Ticks until cancelled."""
        while True:
            await asyncio.sleep(self.timers.tick)
            try:
                self.apply(events.Tick(self.clock.now()))
                self._forget_absent()
            except LedgerError:
                # Said in the log and in /health; leases go on as they are until it can be written again.
                continue
            except Exception:
                logger.exception("a tick failed")

    # ---- callers that wait

    def forget(self, user: str, key: str) -> None:
        """The last caller of a request has left. While that cannot be stored, every tick tries again."""
        now = self.clock.now()

        def ended(done: asyncio.Future[None]) -> None:
            error = None if done.cancelled() else done.exception()
            if isinstance(error, LedgerError):  # that one is logged and shown in /health
                if key_of(user, key) not in self._waiters:
                    self._absent[user, key] = now
            elif error is not None:
                logger.error("a request could not be let go", problem=str(error), exc_info=error)

        self._arrive(events.Cancelled(now, user, key)).add_done_callback(ended)

    def _forget_absent(self) -> None:
        """Lets go what nobody waits for; a request that was granted meanwhile, too."""
        now = self.clock.now()
        for user, key in [name for name, gone_at in self._absent.items() if gone_at <= now]:
            # Many at a time are stored together, and nodes are answered in between: after a restart all are due at once.
            del self._absent[user, key]
            self.forget(user, key)

    def has_too_many(self, user: str, key: str) -> bool:
        """Whether this request would be one too many of its user; another caller of one that waits already is none more."""
        callers = self._waiters.get(key_of(user, key))
        return self._waits_of[user] >= MAXIMUM_WAITING if callers is None else len(callers) >= MAXIMUM_CALLERS

    def join(self, user: str, key: str) -> Mailbox:
        """A mailbox that receives what is said about this request; to be given back with :meth:`leave`."""
        mailbox = Mailbox()
        others = self._waiters.setdefault(key_of(user, key), [])
        if not others:
            self._waits_of[user] += 1
        others.append(mailbox)
        self._absent.pop((user, key), None)
        return mailbox

    def leave(self, user: str, key: str, mailbox: Mailbox) -> bool:
        """Returns whether nobody else waits for this request."""
        name = key_of(user, key)
        others = self._waiters.get(name, [])
        if mailbox in others:
            others.remove(mailbox)
        if not others and self._waiters.pop(name, None) is not None:
            self._waits_of[user] -= 1
            if not self._waits_of[user]:
                del self._waits_of[user]
        return not others

    def place_seconds(self) -> float:
        """How long a caller that was told its place is told no other: the more wait, the longer."""
        return len(self._waiters) / _PLACES_PER_SECOND

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

    def _send_to_node(self, name: str, message: pb.ToNode) -> bool:
        node = self.state.nodes.get(name)
        stream = None if node is None or node.connection is None else self._streams.get(node.connection)
        if stream is not None:
            stream.outgoing.put_nowait(message)
        return stream is not None

    def close(self) -> None:
        """Ends all streams, for the shutdown. What they wait for stays as it is, in the ledger."""
        self.closing = True
        for stream in self._streams.values():
            stream.outgoing.put_nowait(None)
        for mailbox in [mailbox for waiting in self._waiters.values() for mailbox in waiting]:
            mailbox.close()

    # ---- instructions

    def _do(self, item: Instruction) -> None:
        match item:
            case instructions.TellQueued() | instructions.TellGranted() | instructions.TellRefused():
                for mailbox in self._waiters.get(key_of(item.user, item.key), []):
                    mailbox.put(item)
            case instructions.TellResized():
                for future in self._resizes.pop(item.lease_id, []):
                    if not future.done():
                        future.set_result(item)
            case instructions.DropNode():
                stream = self._streams.get(item.connection)
                if stream is not None:
                    stream.outgoing.put_nowait(None)
            case instructions.Fault():
                log_fault(item)
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


def _fail(done: asyncio.Future[None], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
