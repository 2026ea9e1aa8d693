"""`gpupool node logs`: what a node agent has logged, from anywhere."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

import typer

from gpupool.cli.common import completing, exits, show, watch
from gpupool.cli.common.options import Endpoint, Json, TokenFile, client, whole
from gpupool.cli.common.sessions import whole_session
from gpupool.cli.node.naming import NodeName
from gpupool.client.admin import node_logs
from gpupool.client.types import LogLine


def logs(
    node: NodeName,
    lines: Annotated[
        int,
        typer.Option(
            "--lines", "-n", parser=whole(1, 2000), metavar="NUMBER", help="Number of lines, the latest ones."
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

    async def read() -> list[LogLine]:
        async with client(pool, token_file) as connection:
            name = await whole_session(connection.sessions, session) if session else ""
            return [line async for line in node_logs(connection, node, lines, name)]

    if every is None:
        found = exits.run_async(read())
        if json:
            show.as_json({"node": node, "lines": found})
            return
        for line in found:
            _print(line)
        if not found:
            exits.say(f"{node} has logged nothing{' of this session' if session else ''}")
        return

    async def follow(pause: float) -> None:
        seen: set[LogLine] = set()
        while True:
            found = await read()
            for line in found:
                if line not in seen:
                    if json:
                        show.as_json_line(line)
                    else:
                        _print(line)
            seen = set(found)
            await asyncio.sleep(pause)

    try:
        exits.run_async(follow(every))
    except typer.Exit as end:
        raise typer.Exit(exits.OK if end.exit_code == exits.INTERRUPTED else end.exit_code) from None


def _print(line: LogLine) -> None:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line.at_unix))
    print(f"{when} {line.level:8} {line.text}", flush=True)
