"""A ledger that is only looked at: a running pool's, or a backup."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, create_engine, select
from sqlalchemy.exc import SQLAlchemyError

from gpupool.ledger import schema
from gpupool.ledger.database import database_at
from gpupool.ledger.ledger import LedgerError


@contextmanager
def reading(where: Path | str) -> Iterator[Connection]:
    """A connection that sees one moment of the ledger, and changes nothing.

    Raises:
        LedgerError: there is none, or it is of another version: an older one is brought up to date by the next start
            of the pool, never here.
    """
    path = where if isinstance(where, Path) else None if "://" in where else Path(where)
    if path is not None:
        if not path.is_file():
            raise LedgerError(f"there is no ledger at {path}")
        engine = create_engine(f"sqlite:///file:{path.absolute()}?mode=ro&uri=true")
    else:
        try:
            engine = database_at(where, exclusive=False).engine
        except ValueError as error:
            raise LedgerError(str(error)) from None
    try:
        with engine.connect() as connection:
            try:
                version = int(
                    connection.execute(
                        select(schema.meta.c.value).where(schema.meta.c.name == "schema_version")
                    ).scalar_one()
                )
            except SQLAlchemyError as error:
                raise LedgerError(
                    f"{where} cannot be read as a ledger: {getattr(error, 'orig', error)}"
                ) from None
            if version != schema.SCHEMA_VERSION:
                raise LedgerError(
                    f"{where} has schema version {version}, this program reads version {schema.SCHEMA_VERSION}; "
                    "use the program that wrote it, or start the pool on it once"
                )
            yield connection
    finally:
        engine.dispose()
