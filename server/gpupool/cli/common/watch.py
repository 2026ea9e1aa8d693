"""`--json` and `--watch [SECONDS]` of every command that looks: once, or again and again."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text
from typer.core import TyperCommand

from gpupool.cli.common import exits, show
from gpupool.client.errors import PoolUnavailableError

DEFAULT_SECONDS: Final = 2.0
MINIMUM_SECONDS: Final = 0.2
_OPTION: Final = "--watch"

Value = TypeVar("Value")


def _seconds(text: str) -> float:
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = math.nan
    if not MINIMUM_SECONDS <= seconds <= 3600:
        raise typer.BadParameter(f"{text!r} is no time between {MINIMUM_SECONDS:g} and 3600 seconds")
    return seconds


Watch = Annotated[
    float | None,
    typer.Option(
        _OPTION,
        parser=_seconds,
        metavar="[SECONDS]",
        help=f"Look again every so many seconds ({DEFAULT_SECONDS:g} when none are given), until Ctrl-C: in place on a "
        "terminal, else, and with --json, one line of JSON each time.",
        show_default=False,
    ),
]


class WatchCommand(TyperCommand):
    """A command whose ``--watch`` may stand without a number, which options of typer cannot."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_seconds(args))


def with_seconds(args: Sequence[str]) -> list[str]:
    """``--watch`` followed by no number gets the default one."""
    filled: list[str] = []
    for position, word in enumerate(args):
        filled.append(word)
        if word == "--":
            return [*filled, *args[position + 1 :]]
        following = args[position + 1] if position + 1 < len(args) else ""
        if word == _OPTION and not (following[:1].isdigit() or following[:1] == "."):
            filled.append(f"{DEFAULT_SECONDS:g}")
    return filled


@dataclass(frozen=True, slots=True)
class Shown:
    """What a command shows of one look.

    Attributes:
        body: for people.
        data: the same for programs.
        notes: sentences for people beside it; on standard error.
        code: the exit code that it stands for.
    """

    body: RenderableType
    data: Any
    notes: tuple[str, ...] = ()
    code: int = exits.OK


def look(work: Callable[[], Awaitable[Shown]], *, as_json: bool, every: float | None) -> None:
    """Looks once and ends with its exit code, or again and again until Ctrl-C."""
    if every is None:
        shown = exits.run_async(_once(work))
        if as_json:
            show.as_json(shown.data)
        else:
            show.console().print(shown.body)
            for note in shown.notes:
                exits.say(note)
        if shown.code != exits.OK:
            raise typer.Exit(shown.code)
        return
    try:
        with exits.clear_errors():
            if as_json or not sys.stdout.isatty():
                asyncio.run(_append(work, every))
            else:
                asyncio.run(_redraw(work, every))
    except typer.Exit as end:
        # Ctrl-C is how one stops watching.
        raise typer.Exit(exits.OK if end.exit_code == exits.INTERRUPTED else end.exit_code) from None


async def _once(work: Callable[[], Awaitable[Shown]]) -> Shown:
    return await work()


async def _append(work: Callable[[], Awaitable[Shown]], every: float) -> None:
    """A pool that goes away is said once, and asked again: who watches wants to see it come back."""
    away = ""
    while True:
        try:
            shown = await work()
            away = ""
            show.as_json_line(shown.data)
        except PoolUnavailableError as error:
            if str(error) != away:
                away = str(error)
                exits.say(away)
        await asyncio.sleep(every)


async def _redraw(work: Callable[[], Awaitable[Shown]], every: float) -> None:
    with Live(console=show.console(), auto_refresh=False, vertical_overflow="ellipsis") as live:
        while True:
            live.update(await _frame(work, every), refresh=True)
            await asyncio.sleep(every)


async def _frame(work: Callable[[], Awaitable[Shown]], every: float) -> RenderableType:
    try:
        shown = await work()
    except PoolUnavailableError as error:
        return Group(Text(str(error), style="red"), _footer(every))
    return Group(shown.body, *(Text(note) for note in shown.notes), _footer(every))


def _footer(every: float) -> Text:
    return Text(f"every {every:g} s; Ctrl-C ends", style="dim")
