"""A copy of the ledger as it is at one moment, taken while the pool writes on; and what such a copy is worth."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpupool.ledger import version

_CHUNK_BYTES: Final = 1 << 20
_FOLDER: Final = ".backup-"
#: Tables of version 1, which every later one has.
_NEEDED: Final = frozenset({"meta", "nodes", "devices", "sessions", "leases", "journal", "tokens", "quotas"})


class BackupError(RuntimeError):
    """A copy cannot be made, or is not whole; `str()` is one sentence."""


@dataclass(frozen=True, slots=True)
class BackupInfo:
    """What a file holds that was found to be a whole ledger.

    Attributes:
        version: of its schema.
        taken_unix: the time of the last line of its journal; None: it has none.
        leases: those that hold shares. `lines`: of the journal.
    """

    sha256: str
    size: int
    version: int
    taken_unix: float | None
    leases: int
    sessions: int
    lines: int


@contextmanager
def copy_of(ledger: Path) -> Iterator[Path]:
    """A consistent copy beside the ledger, for as long as the block runs; it is read by its owner only.

    One at a time. A reader of its own sees one moment while the pool goes on writing. Takes as long as reading and
    writing all of it, so it belongs into a thread.

    Raises:
        BackupError: the disk is full, or the ledger is damaged.
    """
    for left in ledger.parent.glob(f"{_FOLDER}*"):
        shutil.rmtree(left, ignore_errors=True)  # of a pool that was killed while it made one
    # In the ledger's own private directory: the copy is as secret as the ledger.
    with tempfile.TemporaryDirectory(prefix=_FOLDER, dir=ledger.parent) as folder:
        target = Path(folder) / "pool.sqlite"
        try:
            with closing(sqlite3.connect(f"file:{quoted(ledger)}?mode=ro", uri=True)) as source:
                source.execute("VACUUM INTO ?", (str(target),))
            target.chmod(0o600)
        except (OSError, sqlite3.Error) as error:
            raise BackupError(f"the ledger {ledger} cannot be copied: {error}") from None
        yield target


def check(path: Path) -> BackupInfo:
    """Reads a backup from end to end; it is not changed.

    Raises:
        BackupError: it is no ledger, is damaged, or of a later version of this program.
    """
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
        # Immutable: looking must leave no files beside it.
        uri = f"file:{quoted(path)}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as database:
            found = _look(database, path)
    except FileNotFoundError:
        raise BackupError(f"there is no file {path}") from None
    except (OSError, sqlite3.Error) as error:
        raise BackupError(f"{path} is no whole ledger: {error}") from None
    return BackupInfo(digest, size, *found)


def _look(database: sqlite3.Connection, path: Path) -> tuple[int, float | None, int, int, int]:
    names = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not names >= _NEEDED:
        raise BackupError(f"{path} is a database, but no ledger of a pool")
    (problem,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    if problem != "ok":
        raise BackupError(f"{path} is damaged: {problem}")
    (found,) = database.execute("SELECT max(value) FROM meta WHERE name = 'schema_version'").fetchone()
    if not str(found).isdecimal():
        raise BackupError(f"{path} is no whole ledger: its schema version is {found!r}")
    try:
        version.check(int(found), str(path))
    except version.SchemaError as error:
        raise BackupError(str(error)) from None
    taken, lines = database.execute("SELECT max(at_unix), count(*) FROM journal").fetchone()
    (leases,) = database.execute("SELECT count(*) FROM leases WHERE state != 'ended'").fetchone()
    (sessions,) = database.execute("SELECT count(*) FROM sessions WHERE state != 'closed'").fetchone()
    return int(found), taken, leases, sessions, lines


def pieces(path: Path) -> Iterator[bytes]:
    """A file in pieces that fit a message."""
    with path.open("rb") as file:
        while piece := file.read(_CHUNK_BYTES):
            yield piece


def quoted(path: Path) -> str:
    """A path as SQLite's URIs have it."""
    return str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


class PrivateFile:
    """A file of mode 0600 that appears under its name whole, or not at all.

    Raises:
        OSError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:80]}-", dir=path.absolute().parent)
        self._part = Path(name)
        self._file = os.fdopen(handle, "wb")
        self._digest = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._digest.update(data)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    @property
    def part(self) -> Path:
        """Where it lies until :meth:`keep`; all that was written is in it."""
        self._file.flush()
        return self._part

    def keep(self) -> None:
        """Gives it its name, when it is on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._part.replace(self.path)
        sync_directory(self.path)

    def discard(self) -> None:
        """Removes it, unless it was kept."""
        self._file.close()
        self._part.unlink(missing_ok=True)


def sync_directory(path: Path) -> None:
    """What was renamed in the directory of `path` survives a power cut."""
    descriptor = os.open(path.absolute().parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
