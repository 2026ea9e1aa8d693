"""The ledger: stores one step of the machine in one transaction, and gives the state back after a restart."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, Engine, delete, insert, select
from sqlalchemy.exc import SQLAlchemyError

from gpupool.ledger import charges, derived, recorder, rows, schema, statements, steps, version
from gpupool.ledger.database import database_at
from gpupool.ledger.histogram import TRANSACTION_SECONDS, Histogram
from gpupool.ledger.last_written import last_ms
from gpupool.ledger.periods import Write, milliseconds
from gpupool.ledger.servers import NotTheOnlyPoolError, ServerIdentity
from gpupool.ledger.statements import DerivedWriter
from gpupool.model import events
from gpupool.model.clock import Clock
from gpupool.model.instructions import Journal
from gpupool.model.state import State, key_of
from gpupool.scheduler.model import Quota
from gpupool.sentences import Sentence

_DAY_SECONDS = 86_400.0


class LedgerError(RuntimeError):
    """A step could not be stored (disk full, file unreadable, …); nothing of it was."""


class LedgerVersionError(LedgerError):
    """It has tables of another version."""


class LedgerTakenError(LedgerError):
    """Another pool server uses it."""


class Ledger:
    """A database with the pool's durable state.

    Args:
        where: the SQLite file, created with mode 0600; or the URL of a PostgreSQL database.
        clock: turns the machine's times into wall-clock times, which survive a reboot.
        journal_kept: days that the details of steps are kept, for rebuilding and replaying; None: for ever.
        leader: to be given by the server: no other may store steps in this database.

    Attributes:
        derived: who writes further rows with each step, see `statements.DerivedWriter`.
        context: what the machine is run with; recorded with each checkpoint, and when it has changed.
        checkpoint_steps: the least number of steps between two checkpoints.
        transactions: how long each took, from its beginning until it was on disk.
    """

    def __init__(
        self,
        where: Path | str,
        clock: Clock,
        *,
        journal_kept: float | None = None,
        leader: ServerIdentity | None = None,
    ) -> None:
        self._clock = clock
        self._kept = journal_kept
        self.derived: list[DerivedWriter] = [derived.writes]
        self.context: Mapping[str, Any] = {}
        self.checkpoint_steps = steps.CHECKPOINT_STEPS
        self._recorder = recorder.Recorder()
        self.transactions = Histogram(TRANSACTION_SECONDS)
        try:
            self.database = database_at(where, leader=leader)
        except ValueError as error:
            raise LedgerError(str(error)) from error
        try:
            self.database.open()
            with self.engine.begin() as connection:
                version.prepare(connection, self.name)
            self.database.lead()
            with self.engine.begin() as connection:
                self.last_written_unix = last_ms(connection) / 1000
                derived.prepare(connection, milliseconds(clock.to_unix(clock.now())))
                self.last_step = steps.last_number(connection)
                self._texts = steps.Texts(steps.known_texts(connection))
        except version.SchemaError as error:
            self.database.close()
            raise LedgerVersionError(str(error)) from None
        except NotTheOnlyPoolError as error:
            self.database.close()
            raise LedgerTakenError(f"the ledger {self.name} cannot be opened: {error}") from None
        except (OSError, SQLAlchemyError) as error:
            self.database.close()
            raise LedgerError(f"the ledger {self.name} cannot be opened: {_first_line(error)}") from error
        except BaseException:
            self.database.close()
            raise
        self._since_checkpoint: list[int] | None = None
        self._recorded_context: Mapping[str, Any] | None = None
        self._checkpoint_bytes = 0
        self._group: _Group | None = None

    @property
    def engine(self) -> Engine:
        return self.database.engine

    @property
    def name(self) -> str:
        return self.database.name

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Around whatever is read before the pool is served.

        Raises:
            LedgerError: the database failed.
        """
        try:
            yield
        except SQLAlchemyError as error:
            raise LedgerError(f"the ledger {self.name} cannot be read: {_first_line(error)}") from error

    def load(self) -> State:
        """The state as last committed; times that are not stored are zero, see `events.Restarted`."""
        state = State()
        with self.engine.connect() as connection:
            for binding in statements.BINDINGS:
                table = getattr(state, binding.name)
                for row in connection.execute(select(binding.sql)).mappings():
                    table[row[binding.key]] = binding.to_record(row, self._clock)
        for lease in state.leases.values():
            state.keys[key_of(lease.user, lease.key)] = lease.id
        state.commit()
        return state

    def store(
        self,
        state: State,
        journal: Iterable[Journal],
        now: float,
        event: events.Event | None = None,
        memory: Mapping[str, Any] | None = None,
        lesson: str = "",
        given_up: LedgerError | None = None,
    ) -> bool:
        """Writes what changed since the last commit of `state`, all or nothing.

        Returns whether there was anything durable to write.

        Args:
            state: the state, with the changes that its tables noted.
            journal: the lines that are told of it.
            now: the pool's boot-time clock, seconds.
            event: what made the change.
            memory: what the machine remembered before it (`pool.machine_memory`). A step without it can be rebuilt, but
                not replayed.
            lesson: what the placement policy had learned before it.
            given_up: why nothing can be written now: then it is not tried, which may take long.

        Raises:
            LedgerError: nothing was written; the caller must roll the state back.
        """
        changes = recorder.changes_of(state)
        at_unix = self._clock.to_unix(now)
        writes = statements.durable_writes(changes, self._clock)
        for derive in self.derived:
            writes += derive(state, changes, milliseconds(at_unix))
        if isinstance(event, events.Restarted) and event.served_until is not None:
            until = milliseconds(self._clock.to_unix(event.served_until))
            writes += charges.not_served(until, milliseconds(at_unix))
        number = self.last_step + 1
        lines = [journal_row(line, at_unix, number) for line in journal]
        if not writes and not lines and not isinstance(event, events.Restarted):
            self._recorder.skip(changes)
            return False
        if given_up is not None:
            raise LedgerError(str(given_up)) from given_up
        step = self._step(number, at_unix, state, changes, event, memory, lesson)
        row = steps.pack(step)
        writes += [statements.text_write(name, text) for name, text in self._texts.new.items()]
        writes += [statements.journal_write(line) for line in lines]
        writes.append(statements.step_write(row))
        prunes_at = at_unix if step.checkpoint and self._kept is not None else None
        if self._group is not None:
            self._group.add(number, writes, prunes_at)
        else:
            try:
                self._write(number, writes, prunes_at)
            except BaseException:
                self._texts.new.clear()
                raise
        self._stored(step, len(row["detail"]))
        return True

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Makes one transaction of all steps that are stored in the block; it is on disk when the block has ended.

        Each is a step of its own all the same. When the block ends with an error, none of them is stored, and the
        caller must take all of them back.

        Raises:
            LedgerError: nothing was written.
        """
        before = (self.last_step, self._since_checkpoint, self._checkpoint_bytes, self._recorded_context)
        if self._since_checkpoint is not None:
            self._since_checkpoint = list(self._since_checkpoint)
        base = self._recorder.base
        group = self._group = _Group()
        try:
            yield
            if group.writes:
                self._write(group.first_step, group.writes, group.prunes_at)
        except BaseException:
            self.last_step, self._since_checkpoint, self._checkpoint_bytes, self._recorded_context = before
            self._recorder.base = base
            self._texts.new.clear()
            self._texts.known -= group.texts
            raise
        finally:
            self._group = None

    def _write(self, number: int, writes: Sequence[Write], prunes_at: float | None) -> None:
        """One transaction, from step `number` on. `prunes_at`: the time, if old steps are to be dropped.

        Raises:
            LedgerError: nothing was written.
        """
        try:
            with self._writing(number) as connection:
                statements.execute(connection, writes)
                if prunes_at is not None and self._kept is not None:
                    steps.prune(connection, prunes_at - self._kept * _DAY_SECONDS)
        except SQLAlchemyError as error:
            raise LedgerError(f"the ledger {self.name} cannot be written: {_first_line(error)}") from error

    @contextlib.contextmanager
    def _writing(self, number: int) -> Iterator[Connection]:
        started = time.perf_counter()
        with self.database.writing(number) as connection:
            yield connection
        self.transactions.observe(time.perf_counter() - started)

    def quotas(self) -> dict[str, Quota]:
        """Quotas set for single users; `"*"` is the default for all others."""
        with self.engine.connect() as connection:
            return {
                row.user: Quota(milli=row.milli, shares=row.shares)
                for row in connection.execute(select(schema.quotas))
            }

    def set_quota(self, user: str, quota: Quota | None) -> None:
        """Stores a user's quota; None removes it. A running server reads it at its next start."""
        with self.engine.begin() as connection:
            connection.execute(delete(schema.quotas).where(schema.quotas.c.user == user))
            if quota is not None:
                row = {"user": user, "milli": quota.milli, "shares": quota.shares}
                connection.execute(insert(schema.quotas).values(**row))

    def close(self) -> None:
        self.database.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- the journal of steps

    def _step(
        self,
        number: int,
        at_unix: float,
        state: State,
        changes: recorder.Changes,
        event: events.Event | None,
        memory: Mapping[str, Any] | None,
        lesson: str,
    ) -> steps.RecordedStep:
        intern = self._texts.intern
        checkpoint = self._checkpoint_is_due() and not recorder.removes(changes)
        if checkpoint or self._since_checkpoint is None:
            checkpoint = True
            before = recorder.everything_before(state, changes)
        else:
            before = self._recorder.since_last(state, changes)
        context = {**self.context, "clock_offset": self._clock.offset}
        return steps.RecordedStep(
            number,
            at_unix,
            checkpoint,
            "" if event is None else type(event).__name__,
            {} if event is None else steps.event_fields(event, intern),
            recorder.written(before, intern),
            recorder.written(changes, intern),
            context if checkpoint or context != self._recorded_context else None,
            {**(memory or {}), "lesson": intern(lesson)} if lesson else memory,
        )

    def _checkpoint_is_due(self) -> bool:
        if self._since_checkpoint is None:
            return True
        count, size = self._since_checkpoint
        return count >= self.checkpoint_steps and size >= steps.CHECKPOINT_RATIO * self._checkpoint_bytes

    def _stored(self, step: steps.RecordedStep, size: int) -> None:
        self.last_step = step.number
        if self._group is not None:
            self._group.texts.update(self._texts.new)
        self._texts.written()
        self._recorder.recorded()
        if step.context is not None:
            self._recorded_context = step.context
        if step.checkpoint:
            self._since_checkpoint, self._checkpoint_bytes = [0, 0], size
        else:
            assert self._since_checkpoint is not None
            self._since_checkpoint[0] += 1
            self._since_checkpoint[1] += size


@dataclass(slots=True)
class _Group:
    """Steps that are stored together: what is written for them, and the texts that none has named before."""

    first_step: int = 0
    writes: list[Write] = field(default_factory=list)
    prunes_at: float | None = None
    texts: set[str] = field(default_factory=set)

    def add(self, number: int, writes: Sequence[Write], prunes_at: float | None) -> None:
        self.first_step = self.first_step or number
        self.writes += writes
        self.prunes_at = self.prunes_at if prunes_at is None else prunes_at


def journal_row(line: Journal, at_unix: float, step: int) -> rows.Row:
    """A line of the journal as it is stored; `at_unix` in seconds, `step` the number of the step that wrote it."""
    return {
        "at_unix": at_unix,
        "kind": line.kind,
        "user": line.user,
        "lease_id": line.lease_id,
        "session_id": line.session_id,
        "node": line.node,
        "sentence": line.said.as_json(),
        "data": dict(line.data),
        "step": step,
    }


def _first_line(error: Exception) -> str:
    # SQLAlchemy appends the statement with its values, which may hold a worker token.
    cause = getattr(error, "orig", None) or error
    return str(cause).splitlines()[0] if str(cause) else type(cause).__name__


def read_journal(connection: Connection, *, lease_id: str = "", limit: int = 1000) -> list[dict[str, Any]]:
    """The latest lines of the journal, oldest first; all, or those of one lease. `explanation`: the sentence in words."""
    query = select(schema.journal).order_by(schema.journal.c.number.desc()).limit(limit)
    if lease_id:
        query = query.where(schema.journal.c.lease_id == lease_id)
    return [
        {**row, "explanation": str(Sentence.from_json(row["sentence"]))}
        for row in reversed(connection.execute(query).mappings().all())
    ]
