"""Groups of commands: their help in the order of its headings, and what was meant by a wrong word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from typer.core import TyperGroup

from gpupool.cli.common.likeness import meant, offered
from gpupool.cli.common.table import Commands, Row

#: Characters of a command's line in its group's help: it is wrapped, not cut.
_WHOLE_SENTENCE: Final = 400


class Group(TyperGroup):
    """Commands under headings (`rich_help_panel`), in the order in which they were added.

    Attributes:
        order: headings of the group, the first first; others follow.
        rows: commands of which each is loaded when it is used; empty for a group that has all of its commands already.
    """

    order: ClassVar[tuple[str, ...]] = ()
    rows: ClassVar[tuple[Row, ...]] = ()

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        if self.rows:
            # Nobody adds to a table.
            self.commands = Commands(self.rows, Group)  # type: ignore[assignment]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands, each under its heading."""
        shown = [(name, command) for name, command in self.commands.items() if not command.hidden]
        if not shown:
            return
        headings: dict[str, list[tuple[str, str]]] = {heading: [] for heading in self.order}
        for name, command in shown:
            heading = getattr(command, "rich_help_panel", None)
            rows = headings.setdefault(heading if isinstance(heading, str) else "Commands", [])
            rows.append((name, command.get_short_help_str(_WHOLE_SENTENCE)))
        for heading, rows in headings.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """An option that the group does not have may be one of its commands'."""
        option = args[0].partition("=")[0] if args else ""
        if option.startswith("-") and option != "--" and not ctx.resilient_parsing:
            own = {flag for given in self.get_params(ctx) for flag in (*given.opts, *given.secondary_opts)}
            # This loads every command: an option of the group's own doesn't wait for it.
            having = [] if option in own else self._having(option)
            if having:
                program = ctx.command_path
                some = [path for path in having if " " not in path][:6]
                ctx.fail(
                    f"{program!r} has no option {option}{offered(program, [f'{x} {option}' for x in some])}"
                )
        return super().parse_args(ctx, args)

    def _having(self, option: str) -> list[str]:
        """The paths of the commands below that have an option."""
        return [
            path
            for path, command in commands_below(self)
            if any(option in (*given.opts, *given.secondary_opts) for given in command.params)
        ]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the command; for a word that is none it says which may have been meant, anywhere in the program."""
        if args and args[0] not in self.commands and not ctx.resilient_parsing:
            program, *group = ctx.command_path.split()
            whole = ctx.find_root().command
            paths = meant(group, args, (path for path, _ in commands_below(whole)), groups_below(whole))
            ctx.fail(f"no such command {args[0][:80]!r}{offered(program, paths)}")
        return super().resolve_command(ctx, args)


def commands_below(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """The path of each command in a group and in the groups below it, with the command."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands_below(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def groups_below(group: Any, before: str = "") -> Iterator[str]:
    """The path of each group below a group."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield f"{before}{name}"
            yield from groups_below(command, f"{before}{name} ")
