"""A ledger that is only looked at: a running pool's, or a backup."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import SQLAlchemyError

from gpupool.ledger import version
from gpupool.ledger.backup import quoted
from gpupool.ledger.database import database_at
from gpupool.ledger.ledger import LedgerError


@contextmanager
def reading(where: Path | str) -> Iterator[Connection]:
    """A connection that sees one moment of the ledger, and changes nothing.

    Raises:
        LedgerError: there is none, or it is of another version.
    """
    path = where if isinstance(where, Path) else None if "://" in where else Path(where)
    if path is not None:
        if not path.is_file():
            raise LedgerError(f"there is no ledger at {path}")
        address = f"file:{quoted(path.absolute())}?mode=ro"
        engine = create_engine("sqlite://", creator=lambda: sqlite3.connect(address, uri=True))
    else:
        try:
            engine = database_at(where).engine
        except ValueError as error:
            raise LedgerError(str(error)) from None
    try:
        with engine.connect() as connection:
            try:
                version.check(version.of(connection), str(where))
            except version.SchemaError as error:
                raise LedgerError(str(error)) from None
            except SQLAlchemyError as error:
                raise LedgerError(
                    f"{where} cannot be read as a ledger: {getattr(error, 'orig', error)}"
                ) from None
            yield connection
    finally:
        engine.dispose()
