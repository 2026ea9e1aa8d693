"""A backup becomes the ledger again, without anything of the time between being granted a second time.

What the pool granted after the backup was taken, the backup does not know: workers may serve those leases still, and
their epochs are used. So (1) every session goes on with epochs above any that can have been given out, (2) what the
backup believes to be held is taken back by the usual rules, and (3) the pool waits once, before it hears anybody,
until every worker of before has fenced itself.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sqlalchemy import delete, insert, select

from gpupool.ledger import schema
from gpupool.ledger import waits as waits_in_ledger
from gpupool.ledger.backup import BackupError, check, quoted, sync_directory
from gpupool.ledger.ledger import Ledger
from gpupool.ledger.periods import interrupt, milliseconds
from gpupool.model.clock import Clock
from gpupool.model.instructions import Journal
from gpupool.model.state import State
from gpupool.pool.leases import lease_rules
from gpupool.pool.model.step import Ids, Step
from gpupool.pool.model.timers import Timers
from gpupool.sentences import plain

#: Epochs have 32 bits on the wire (`src/wire/frame.h`).
LARGEST_EPOCH: Final = 2**32 - 1
#: Epochs after a restore begin at the seconds since 2026 times this, so that those of two restores never meet as long as
#: no session gets more leases a second than this, on average since the first; lasts until 2060.
EPOCHS_PER_SECOND: Final = 4
_EPOCH_ZERO_UNIX: Final = 1_767_225_600
_WAITS: Final = "restored"


class EpochsExhaustedError(BackupError):
    """No epoch is left above those that may have been used."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What was done.

    Attributes:
        ended: leases that were held when the backup was taken, and are taken back now.
        epoch: all new leases have higher ones.
        aside: where the ledger of before is now; None: there was none.
    """

    ended: int
    sessions: int
    epoch: int
    aside: Path | None


def epoch_floor(used: int, unix: float) -> int:
    """An epoch that no lease of this pool can have had: above `used`, and above those of all restores before.

    Raises:
        EpochsExhaustedError: there is none.
    """
    by_time = int((unix - _EPOCH_ZERO_UNIX) * EPOCHS_PER_SECOND)
    floor = max(used, by_time) + 1
    if floor >= LARGEST_EPOCH - EPOCHS_PER_SECOND * 86_400:
        raise EpochsExhaustedError(
            f"no epoch is left above {used}; the clock of this machine says {unix:.0f} s since 1970"
        )
    return floor


def restore(backup: Path, ledger: Path, *, force: bool = False) -> Restored:
    """Puts a backup in the place of `ledger`. The caller holds the lock of the pool's home.

    The backup stays as it is; a ledger that is there is moved aside.

    Raises:
        BackupError: the backup is not whole or of a later version, or there is a ledger and not `force`.
        OSError: the disk is full, or the like; the ledger of before is in its place.
    """
    check(backup)
    replaced = ledger if ledger.exists() else None
    if replaced is not None and not force:
        raise BackupError(
            f"there is a ledger at {ledger}; with --force it is moved aside, and what it knows that the backup does not is lost"
        )
    fresh = ledger.with_name(f".{ledger.name}-restoring")
    _remove(fresh)
    try:
        fresh.touch(mode=0o600)  # before anything secret is in it
        shutil.copyfile(backup, fresh)
        used = 0 if replaced is None else _highest_epoch(replaced)
        with Ledger(fresh, Clock.start()) as opened:
            done = begin_anew(opened, used=used)
        with closing(sqlite3.connect(fresh)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        aside = None if replaced is None else _move_aside(replaced)
        fresh.replace(ledger)
        sync_directory(ledger)
    finally:
        _remove(fresh)
    return replace(done, aside=aside)


def begin_anew(ledger: Ledger, *, used: int = 0) -> Restored:
    """Makes a ledger that was brought back fit to go on: epochs, leases, and the wait at the next start.

    Args:
        ledger: the ledger, which no server has open.
        used: the highest epoch that is known to have been used beyond those in the ledger.
    """
    clock = Clock.start()
    now = clock.now()
    # What was held and waited for since the backup was taken, and what was there, is not known.
    known_ms, now_ms = milliseconds(ledger.last_written_unix), milliseconds(clock.to_unix(now))
    with ledger.engine.begin() as connection:
        connection.execute(delete(schema.meta).where(schema.meta.c.name == _WAITS))
        connection.execute(insert(schema.meta).values(name=_WAITS, value="1"))
        if known_ms < now_ms:
            for table in (schema.charges, schema.capacity):
                for statement, values in interrupt(table, known_ms, now_ms):
                    connection.execute(statement, values)
            waits_in_ledger.end_all(connection, known_ms)
    state = ledger.load()
    highest = max((session.epoch for session in state.sessions.values()), default=0)
    floor = epoch_floor(max(used, highest), time.time())
    for name in list(state.requests):
        del state.requests[name]  # who waited then asked for it long ago
    held = [lease for lease in state.leases.values() if lease.live]
    step = Step(state, Timers(), {}, _no_names(), now)
    unknown = max(0.0, now - clock.from_unix(ledger.last_written_unix))
    for lease in state.index.holding.records():
        # As if it had begun so much later: its use is booked from then on, when it ends.
        state.leases[lease.id] = replace(lease, granted_at=min(now, lease.granted_at + unknown))
    why = "the ledger was restored from a backup, and whether the lease went on meanwhile is not known"
    for lease in held:
        current = state.leases[lease.id]
        if current.live:  # not ended with another part of its gang
            lease_rules.begin_release(step, current, "lost", why)
    _raise_epochs(state, floor)
    text = f"restored from a backup: {len(held)} lease(s) end, new ones have epochs above {floor}"
    journal = [item for item in step.out if isinstance(item, Journal)]
    ledger.store(state, [Journal("restored", plain(text), data={"epoch": floor}), *journal], now)
    state.commit()
    return Restored(len(held), len(state.sessions), floor, None)


def waits(ledger: Ledger) -> bool:
    """Whether the ledger was restored and no pool has run on it since."""
    with ledger.engine.connect() as connection:
        return (
            connection.execute(select(schema.meta.c.name).where(schema.meta.c.name == _WAITS)).first()
            is not None
        )


def waited(ledger: Ledger) -> None:
    """Every worker of before has fenced itself: `Timers.reuse` has passed without an answered heartbeat."""
    with ledger.engine.begin() as connection:
        connection.execute(delete(schema.meta).where(schema.meta.c.name == _WAITS))


def _raise_epochs(state: State, floor: int) -> None:
    for session in list(state.sessions.values()):
        state.sessions[session.id] = replace(session, epoch=floor)


def _no_names() -> Ids:
    def none() -> str:
        raise AssertionError("nothing is granted by a restore")

    return Ids(none, none, none, itertools.count(secrets.randbelow(2**40) + 1))


def _highest_epoch(ledger: Path) -> int:
    """Of a ledger that is replaced; 0 when it cannot be read, which may be why it is."""
    try:
        with closing(sqlite3.connect(f"file:{quoted(ledger)}?mode=ro", uri=True)) as database:
            return int(database.execute("SELECT coalesce(max(epoch), 0) FROM sessions").fetchone()[0])
    except sqlite3.Error:
        return 0


def _move_aside(ledger: Path) -> Path:
    """Gives the ledger a second name. Its first stays until the new one takes it, so that at no moment there is none."""
    # Alone the write-ahead log is nothing, but beside another database it would be read as that one's.
    with contextlib.suppress(sqlite3.Error), closing(sqlite3.connect(ledger)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for number in itertools.count():
        aside = ledger.with_name(f"{ledger.name}.before-{stamp}{f'-{number}' if number else ''}")
        if not aside.exists():
            break
    aside.hardlink_to(ledger)
    for suffix in ("-wal", "-shm"):  # only of one that SQLite cannot read
        with contextlib.suppress(FileNotFoundError):
            ledger.with_name(ledger.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
