"""Triggers that keep what is written from being rewritten, for each database that a ledger may be in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Protection:
    """Forbids a verb on a table.

    Attributes:
        name: the trigger's.
        verb: ``UPDATE`` or ``DELETE``.
        message: what who tries is told.
        unless: a condition in SQL, about the row ``OLD``, under which it is allowed all the same.
    """

    name: str
    table: str
    verb: str
    message: str
    unless: str = ""

    def sqlite(self) -> tuple[str, ...]:
        when = f" WHEN NOT {self.unless}" if self.unless else ""
        return (
            f"CREATE TRIGGER {self.name} BEFORE {self.verb} ON {self.table}{when} "
            f"BEGIN SELECT RAISE(ABORT, '{self.message}'); END",
        )

    def postgresql(self) -> tuple[str, ...]:
        allowed = "RETURN OLD;" if self.unless else ""
        body = f"RAISE EXCEPTION '{self.message}';"
        if self.unless:
            body = f"IF NOT {self.unless} THEN {body} END IF; {allowed}"
        statements = (
            f"CREATE FUNCTION {self.name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$",
            f"CREATE TRIGGER {self.name} BEFORE {self.verb} ON {self.table} FOR EACH ROW "
            f"EXECUTE FUNCTION {self.name}()",
        )
        # TRUNCATE passes row triggers by.
        truncate = (
            f"CREATE TRIGGER {self.table}_no_truncate BEFORE TRUNCATE ON {self.table} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {self.name}()",
        )
        return statements + (truncate if self.verb == "UPDATE" else ())
