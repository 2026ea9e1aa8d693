"""`gpupool session`: processes with GPU memory in the pool."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import RenderableType

from gpupool.cli.common import exits, show, watch
from gpupool.cli.common.options import Endpoint, Json, TokenFile, client
from gpupool.client.types import SessionInfo
from gpupool.sentences import obstacles

app = typer.Typer(no_args_is_help=True, help="Sessions: GPU memory and work of one kernel or program.")


@app.command("list", cls=watch.WatchCommand, epilog=exits.HELP)
def list_(
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
    closed: Annotated[bool, typer.Option("--closed", help="Also those that ended in the last hour.")] = False,
    every: watch.Watch = None,
) -> None:
    """List sessions, where their memory lies, and what keeps it from being moved.

    \b
    Examples:
      gpupool session list
      gpupool session list --json | jq '.sessions[] | {id, memory_place, park_obstacle}'
    """

    async def work() -> watch.Shown:
        async with client(pool, token_file) as connection:
            found = [s for s in await connection.sessions() if closed or s.state != "closed"]
        notes = [
            f"{session.id[:12]}: {sentence}"
            for session in found
            for sentence in obstacles.sentences(session.park_obstacle, session.move_obstacle)
        ]
        notes += [f"{session.id[:12]}: {session.notice.explanation}" for session in found if session.notice]
        return watch.Shown(_session_table(found), {"sessions": found}, tuple(notes))

    watch.look(work, as_json=json, every=every)


def _session_table(found: list[SessionInfo]) -> RenderableType:
    lines = show.table(
        *("SESSION", "USER", "PROJECT", "WHAT", "STATE", "GPU", "MEMORY", "LIES IN", "CAP"),
        right=("MEMORY",),
        wrapped=("WHAT", "STATE"),
        less_wanted=("PROJECT", "CAP", "LIES IN", "MEMORY", "WHAT"),
    )
    for session in found:
        lines.add(
            session.id[:12],
            session.user,
            session.project or "-",
            session.label or session.holder or "-",
            show.session_state(session),
            ",".join(session.device_ids) or "-",
            show.mib(sum(session.usage.memory_used) // show.MIB),
            session.memory_activity or session.memory_place,
            f"{session.enforcement}{', strict' if session.strict else ''}",
        )
    return lines if lines.count else "No session."
