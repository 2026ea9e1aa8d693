"""`gpupool node logs`: what a node agent has logged, from anywhere."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from gpupool.cli.common import completing, exits, show, watch
from gpupool.cli.common.options import Endpoint, Json, TokenFile, client, whole
from gpupool.cli.common.sessions import whole_session
from gpupool.cli.node.naming import NodeName
from gpupool.client.admin import node_logs
from gpupool.client.errors import PoolUnavailableError
from gpupool.client.types import LogLine

#: That an agent keeps.
_MOST_LINES: Final = 2000
#: The level of lines that a worker wrote.
_WORKER: Final = "worker"


def logs(
    node: NodeName,
    lines: Annotated[
        int,
        typer.Option(
            "--lines",
            "-n",
            parser=whole(1, _MOST_LINES),
            metavar="NUMBER",
            help="Number of lines, the latest ones.",
        ),
    ] = "200",  # type: ignore[assignment]
    session: Annotated[
        str,
        typer.Option(
            metavar="SESSION",
            help="Only lines of this session, and the log of its worker while it runs.",
            show_default=False,
            autocompletion=completing.sessions,
        ),
    ] = "",
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
    every: watch.Watch = None,
) -> None:
    """Show the latest lines of a node agent's log, from anywhere. For administrators.

    The agent keeps its last 2000 lines in memory; tokens are never among them. With --watch new lines follow.

    \b
    Examples:
      gpupool node logs gpu1
      gpupool node logs gpu1 --session 3f2a9c0b1d7e --watch
    """

    async def read(count: int) -> list[LogLine]:
        async with client(pool, token_file) as connection:
            name = await whole_session(connection.sessions, session) if session else ""
            return [line async for line in node_logs(connection, node, count, name)]

    if every is None:
        found = exits.run_async(read(lines))
        if json:
            show.as_json({"node": node, "lines": found})
            return
        for line in found:
            _print(line)
        if not found:
            exits.say(f"{node} has logged nothing{' of this session' if session else ''}")
        return

    one_line = show.as_json_line if json or not sys.stdout.isatty() else _print

    async def follow(pause: float) -> None:
        seen: list[LogLine] | None = None
        away = False
        while True:
            try:
                found = await read(_MOST_LINES)
            except PoolUnavailableError as error:
                if seen is None:
                    raise
                if not away:
                    exits.say(str(error))
                away = True
            else:
                away = False
                for line in found[-lines:] if seen is None else new_lines(seen, found):
                    one_line(line)
                seen = found
            await asyncio.sleep(pause)

    try:
        exits.run_async(follow(every))
    except typer.Exit as end:
        raise typer.Exit(exits.OK if end.exit_code == exits.INTERRUPTED else end.exit_code) from None


def new_lines(before: Sequence[LogLine], now: Sequence[LogLine]) -> list[LogLine]:
    """What was written between two looks. A worker's lines, which have no time of their own, are a log beside the agent's."""
    found: list[LogLine] = []
    for of_worker in (False, True):
        old = [(line.level, line.text) for line in before if (line.level == _WORKER) == of_worker]
        lines = [line for line in now if (line.level == _WORKER) == of_worker]
        texts = [(line.level, line.text) for line in lines]
        both = next(
            length
            for length in range(min(len(old), len(lines)), -1, -1)
            if old[len(old) - length :] == texts[:length]
        )
        found += lines[both:]
    return found


def _print(line: LogLine) -> None:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line.at_unix))
    print(f"{when} {line.level:8} {line.text}", flush=True)
