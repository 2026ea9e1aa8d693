"""The one version of tables that this program reads and writes; a ledger of another one is left as it is."""

from __future__ import annotations

from sqlalchemy import Connection, insert, inspect, select

from gpupool.ledger.schema import SCHEMA_VERSION, meta, metadata


class SchemaError(RuntimeError):
    """The ledger has another version of tables; ``str()`` names both, and what to do."""

    def __init__(self, name: str, version: int) -> None:
        super().__init__(
            f"the ledger {name} has schema version {version}, this gpupool has version {SCHEMA_VERSION}, and no ledger "
            "is changed from one to the other; start the gpupool that wrote it, or move it away and begin a new one"
        )


def check(version: int, name: str) -> None:
    """Raises SchemaError unless ``version`` is ours; ``name`` is the ledger's for people."""
    if version != SCHEMA_VERSION:
        raise SchemaError(name, version)


def of(connection: Connection) -> int:
    """The version of the tables that are there. Raises SQLAlchemyError: there are none."""
    return int(connection.execute(select(meta.c.value).where(meta.c.name == "schema_version")).scalar_one())


def prepare(connection: Connection, name: str) -> None:
    """Makes the tables of a new ledger, in the caller's transaction.

    Raises:
        SchemaError: there are tables of another version.
    """
    if inspect(connection).has_table("meta"):
        check(of(connection), name)
        return
    metadata.create_all(connection)
    connection.execute(insert(meta).values(name="schema_version", value=str(SCHEMA_VERSION)))
