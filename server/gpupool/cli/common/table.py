"""Tables of commands: a command is loaded when it is used, so that no command waits for what the others import."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
import typer.main

from gpupool.cli.common import exits


@dataclass(frozen=True, slots=True)
class Row:
    """One command, or one group of commands.

    Attributes:
        name: its word on the command line.
        place: ``module:attribute`` of the command's function, or of the `typer.Typer` of a group. A module with an
            `EPILOG` ends the command's help with it, others with the exit codes.
        heading: where `--help` lists it.
        watches: it has `--watch`, whose number may be left out.
        passes_on: the words behind its name are a program's, with or without `--`.
    """

    name: str
    place: str
    heading: str | None = None
    watches: bool = False
    passes_on: bool = False


class Commands(Mapping[str, Any]):
    """The commands of a group by name, in the order of its table; each is made when it is asked for the first time."""

    def __init__(self, rows: tuple[Row, ...], group: type[Any]) -> None:
        """`group`: the class of the groups below."""
        self._rows = {row.name: row for row in rows}
        self._made: dict[str, Any] = {}
        self._group = group

    def __contains__(self, name: object) -> bool:
        return name in self._rows  # without loading it

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _made(self._rows[name], self._group)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def _made(row: Row, group: type[Any]) -> Any:
    """The command of a row, as typer makes it for a program of its own."""
    module_name, _, attribute = row.place.partition(":")
    module = import_module(module_name)
    found = getattr(module, attribute)
    program = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    program.callback()(_nothing)  # otherwise a single command would be the program itself
    if isinstance(found, typer.Typer):
        _alike(found, group)
        program.add_typer(found, name=row.name, rich_help_panel=row.heading)
    else:
        program.command(
            row.name,
            cls=_watching() if row.watches else None,
            rich_help_panel=row.heading,
            epilog=getattr(module, "EPILOG", exits.HELP),
            context_settings={"allow_interspersed_args": False} if row.passes_on else None,
        )(found)
    made: Any = typer.main.get_command(program)
    return made.commands[row.name]


def _watching() -> type[Any]:
    from gpupool.cli.common.watch import WatchCommand

    return WatchCommand


def _alike(program: typer.Typer, group: type[Any]) -> None:
    """Every command's help ends with what its exit code means, and every group says what was meant by a wrong word."""
    if not (isinstance(program.info.cls, type) and issubclass(program.info.cls, group)):
        program.info.cls = group
    for command in program.registered_commands:
        command.epilog = command.epilog or exits.HELP


def _nothing() -> None:
    """The program around a single command does nothing itself."""
